//! Blocks that an owner has let go of and that their holders may hold still.

use forebay_cluster::environment::HashMap;
use forebay_core::block::Location;
use forebay_core::ids::ServerId;
use std::collections::HashSet;

/// What this owner has let go of, by the number with which it told the holder. If the holder dies, the servers that hold
/// copies may not have heard of it, and hand those blocks over.
#[derive(Debug, Default)]
pub(super) struct FreeRequests(pub(super) HashMap<u64, FreeRequest>);

/// Blocks that a holder was told to free, and may hold still.
#[derive(Debug)]
pub(super) struct FreeRequest {
    pub(super) holder: ServerId,
    pub(super) locations: Vec<Location>,
}

impl FreeRequests {
    /// Where all blocks are that may not be free yet.
    pub(super) fn locations(&self) -> HashSet<&Location> {
        self.0.values().flat_map(|request| &request.locations).collect()
    }

    /// Checks that each of them names something.
    pub(super) fn sanity_check(&self) -> Result<(), String> {
        match self.0.values().find(|request| request.locations.is_empty()) {
            Some(request) => Err(format!("{} was told to free nothing", request.holder)),
            None => Ok(()),
        }
    }
}
