//! What servers were told of fields that are watched in the space.

use forebay_core::ids::ServerId;
use std::collections::BTreeSet;

/// What was told to the servers of the group.
#[derive(Debug, Default)]
pub(super) struct WatchedFields {
    /// Which fields are watched.
    pub(super) fields: BTreeSet<String>,
    /// Those who know.
    pub(super) servers: BTreeSet<ServerId>,
    /// The questions that were asked for one watch that is new.
    pub(super) for_one: BTreeSet<u64>,
}
