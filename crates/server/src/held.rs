//! Where a block is in this server's memory.

use forebay_core::block::Location;
use forebay_wire::peer::replication::BlockRange;

/// A range that holds a block, and the arena it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) arena: u32,
    pub(crate) offset: u64,
    pub(crate) generation: u64,
}

impl From<&Location> for Held {
    fn from(location: &Location) -> Held {
        Held { arena: location.arena, offset: location.offset, generation: location.generation }
    }
}

impl From<&BlockRange> for Held {
    fn from(range: &BlockRange) -> Held {
        Held { arena: range.arena, offset: range.offset, generation: range.generation }
    }
}
