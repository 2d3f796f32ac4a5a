//! The bytes of a block as they are gathered and counted on the way to a server.

use crate::producer::block::BlockPart;
use forebay_core::block::{Extent, Stats};
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_store::stats;
use forebay_store::strided::Source;
use forebay_wire::client::block::{BytesLocation, PutBlock};
use std::borrow::Cow;

/// The statistics that a block is to have, if any. They are computed while it is copied, or from the copy if it has
/// ghosts: those take no part.
pub(super) struct BlockStats<'a> {
    stats: Option<Stats>,
    dtype: Dtype,
    extent: &'a Extent,
}

impl<'a> BlockStats<'a> {
    pub(super) fn new(field: &Field, block: &'a BlockPart<'_>) -> BlockStats<'a> {
        let stats = (field.stats && stats::supported(field.dtype)).then_some(Stats::EMPTY);
        BlockStats { stats, dtype: field.dtype, extent: &block.extent }
    }

    /// For what copies the block: where the elements are to be counted on the way.
    pub(super) fn while_copied(&mut self) -> Option<(Dtype, &mut Stats)> {
        self.stats.as_mut().filter(|_| !self.extent.has_ghosts()).map(|stats| (self.dtype, stats))
    }

    /// The block is copied, and these are its bytes.
    pub(super) fn done(mut self, bytes: &[u8]) -> Option<Stats> {
        if let Some(stats) = self.stats.as_mut().filter(|_| self.extent.has_ghosts()) {
            stats::accumulate_interior(stats, self.dtype, bytes, self.extent);
        }
        self.stats
    }
}

/// A source's elements, dense: where they lie if they are, else (or for their statistics) a copy.
pub(super) fn gather<'a>(source: &Source<'a>, stats: Option<(Dtype, &mut Stats)>) -> Cow<'a, [u8]> {
    match source.as_dense() {
        Some(dense) if stats.is_none() => Cow::Borrowed(dense),
        _ => Cow::Owned(source.to_vec(stats)),
    }
}

pub(super) fn put_block(block: &BlockPart<'_>, bytes: BytesLocation, stats: Option<Stats>) -> PutBlock {
    PutBlock {
        field: block.field.to_owned(),
        number: block.number,
        part: block.part,
        level: block.level,
        extent: block.extent.clone().into_owned(),
        stats: stats.map(Box::new),
        bytes,
    }
}
