//! What a primary on another host wants done, in order, since bytes are fetched for it.

use forebay_wire::peer::replication::{BlockRange, Replica, ReplicaUnit};

/// What a primary on another host wants done, in order.
#[derive(Debug)]
pub(crate) enum Order {
    /// To hold a replica, with the token of that question.
    Hold(u64, Box<Replica>),
    /// To hold it no more.
    Release(ReplicaUnit),
}

/// A range that is to be fetched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchedRange {
    /// Where it is at the primary.
    pub(crate) theirs: BlockRange,
    /// Where it will be here.
    pub(crate) mine: BlockRange,
}
