//! The bytes of a block as they are gathered and counted on the way to a server.

use crate::producer::block::BlockPart;
use forebay_core::Result;
use forebay_core::block::Extent;
use forebay_core::contract::Field;
use forebay_core::selection::Selection;
use forebay_core::stats::{BlockStats, Stats, StatsOfBlock};
use forebay_store::stats::Accumulator;
use forebay_store::strided::Source;
use forebay_wire::client::block::{BytesLocation, PutBlock};
use std::borrow::Cow;
use std::sync::Arc;

/// The statistics that a block is to have, if any. They are computed while it is copied, or from the copy if it has
/// ghosts: those take no part.
pub(super) struct StatsOnTheWay<'a> {
    stats: Option<Accumulator>,
    extent: &'a Extent,
}

impl<'a> StatsOnTheWay<'a> {
    pub(super) fn new(field: &Field, block: &'a BlockPart<'_>) -> StatsOnTheWay<'a> {
        let wanted = block.stats != StatsOfBlock::Nothing && field.dtype.is_ordered();
        let interior = block.extent.interior_bytes(field.dtype);
        let stats = wanted.then(|| Accumulator::new(field.dtype, interior, block.stats));
        StatsOnTheWay { stats, extent: &block.extent }
    }

    /// For what copies the block: where the elements are to be counted on the way.
    pub(super) fn while_copied(&mut self) -> Option<&mut Accumulator> {
        self.stats.as_mut().filter(|_| !self.extent.has_ghosts())
    }

    /// The block is copied, and these are its bytes.
    pub(super) fn done(mut self, bytes: &[u8]) -> Option<BlockStats> {
        if let Some(stats) = self.stats.as_mut().filter(|_| self.extent.has_ghosts()) {
            stats.add_interior(bytes, self.extent);
        }
        self.stats.map(|stats| stats.finish(bytes, self.extent))
    }
}

/// The statistics of a block that is not staged: its array as it lies, ghosts included.
pub(super) fn stats_of(field: &Field, extent: &Extent, source: &Source<'_>) -> Result<Stats> {
    let interior = Selection {
        offset: extent.ghost_low(),
        shape: extent.shape().into(),
        step: extent.shape().iter().map(|_| 1).collect(),
    };
    let interior_bytes = extent.interior_bytes(field.dtype);
    let mut stats = Accumulator::new(field.dtype, interior_bytes, StatsOfBlock::All);
    source.part(&interior)?.count(&mut stats);
    Ok(stats.finish_whole().unwrap_or(Stats::EMPTY))
}

/// A source's elements, dense: where they lie if they are, else (or for their statistics) a copy.
pub(super) fn gather<'a>(source: &Source<'a>, stats: Option<&mut Accumulator>) -> Cow<'a, [u8]> {
    match source.as_dense() {
        Some(dense) if stats.is_none() => Cow::Borrowed(dense),
        _ => Cow::Owned(source.to_vec(stats)),
    }
}

pub(super) fn put_block(block: &BlockPart<'_>, bytes: BytesLocation, stats: Option<BlockStats>) -> PutBlock {
    PutBlock {
        field: block.field.to_owned(),
        number: block.number,
        part: block.part,
        level: block.level,
        extent: block.extent.clone().into_owned(),
        of_field: block.of_field && stats.is_some(),
        stats: stats.map(Arc::new),
        bytes,
    }
}
