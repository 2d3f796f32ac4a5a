//! What a producer is given and gives back.

use forebay_core::Result;
use forebay_core::block::Extent;
use forebay_store::Mapping;
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
