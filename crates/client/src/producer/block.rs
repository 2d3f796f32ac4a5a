//! What a producer is given and gives back.

use forebay_core::Result;
use forebay_core::block::Extent;
use forebay_core::demand::BlockDemand;
use forebay_core::parts::{Wanted, extent_of_part, place_in_block};
use forebay_core::stats::StatsOfBlock;
use forebay_store::Mapping;
use forebay_store::strided::Source;
use std::borrow::Cow;
use std::sync::Arc;

/// A block that is put: its field, number and box.
#[derive(Debug, Clone)]
pub struct Block<'a> {
    /// The field.
    pub field: &'a str,
    /// Tells apart several blocks of one rank, field and step.
    pub number: u64,
    /// Refinement level. Above 0, offsets count in an index space of that level's own, of any extent; reads by region
    /// leave such blocks out.
    pub level: u32,
    /// Its box.
    pub extent: Extent,
}

/// What goes to a server: a block, or a part of one, which is a block of its own there.
#[derive(Debug)]
pub(super) struct BlockPart<'a> {
    pub(super) field: &'a str,
    pub(super) number: u64,
    /// Counted from 1; 0 if it is all of the block.
    pub(super) part: u32,
    pub(super) level: u32,
    pub(super) extent: Cow<'a, Extent>,
    /// The statistics that it is to carry.
    pub(super) stats: StatsOfBlock,
    /// Whether these are to be counted among those of the whole field.
    pub(super) of_field: bool,
}

impl<'a> BlockPart<'a> {
    /// All of a block.
    pub(super) fn whole(block: &'a Block<'_>, wanted: &BlockDemand) -> BlockPart<'a> {
        let Block { field, number, level, extent } = block;
        let of_field = wanted.stats_of_field;
        let stats = if of_field { StatsOfBlock::All } else { wanted.stats };
        let extent = Cow::Borrowed(extent);
        BlockPart { field, number: *number, part: 0, level: *level, extent, stats, of_field }
    }

    /// What is wanted of a block, each with its elements.
    pub(super) fn wanted_of<'s>(
        block: &'a Block<'_>,
        source: &Source<'s>,
        wanted: &BlockDemand,
    ) -> Result<Vec<(BlockPart<'a>, Source<'s>)>> {
        let whole = || BlockPart::whole(block, wanted);
        let parts = match &wanted.data {
            Wanted::Nothing => return Ok(Vec::new()),
            Wanted::Whole => return Ok(vec![(whole(), source.clone())]),
            Wanted::Parts(parts) => parts,
        };
        let part = |(part, selection)| {
            let extent = extent_of_part(&block.extent, selection)?;
            let elements = source.part(&place_in_block(&block.extent, &extent))?;
            let (extent, stats, of_field) = (Cow::Owned(extent), wanted.stats, false);
            Ok((BlockPart { part, extent, stats, of_field, ..whole() }, elements))
        };
        (1..).zip(parts).map(part).collect()
    }
}

/// Memory of a staged block, to compute into. Dense, row-major, ghosts included.
#[derive(Debug)]
pub struct Allocation {
    /// Names it in `commit` and `abort`.
    pub id: u64,
    /// Its length in bytes.
    pub bytes: u64,
    pub(super) memory: Arc<Mapping>,
    pub(super) offset: u64,
}

impl Allocation {
    /// The address of its first byte. The address stays valid while this lives, but the memory is the caller's
    /// to write only until it is committed or aborted.
    pub fn address(&self) -> Result<*mut u8> {
        self.memory.address_mut(self.offset, self.bytes)
    }
}
