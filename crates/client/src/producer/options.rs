//! What a producer is given and gives back.

use forebay_core::Result;
use forebay_core::block::Extent;
use forebay_store::Mapping;
use std::sync::Arc;

/// What a producer does when its servers are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// Goes on without staging, and counts the steps that were not staged. The default.
    #[default]
    Skip,
    /// Waits for another server, as long as any wait may take, and then fails.
    Fail,
}

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

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is held by a server, and survives this process.
    Staged,
    /// Nothing wants it: it was not copied.
    Undemanded,
    /// There was no room, and the stream's policy is to go on: the step is counted as dropped.
    Dropped,
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
