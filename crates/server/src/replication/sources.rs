//! What replication asks of the components that hold what is replicated.

use crate::held::Held;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::steps::{FieldReport, RankEnd, RunReport};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit, SpaceBlock};

/// What this server knows of a run whose ranks have their home here.
#[derive(Debug)]
pub(crate) struct RunKnowledge {
    /// The server that coordinates the run's stream.
    pub(crate) coordinator: ServerId,
    pub(crate) known: RunReport,
    /// The ranks that are gone, and how each ended.
    pub(crate) gone: Vec<(u32, RankEnd)>,
}

/// What replication asks of the components that hold what is replicated.
pub(crate) trait Sources {
    /// Whether this server holds a block of a unit in this range.
    fn holds(&self, unit: &ReplicaUnit, range: Held) -> bool;

    /// The records of a step's blocks in these ranges, where only owners of tiles know them.
    fn records_in(&self, unit: &ReplicaUnit, ranges: &[BlockRange]) -> Vec<FieldReport>;

    /// What its owners know of a block of the space.
    fn space_block(&self, unit: &ReplicaUnit) -> Option<SpaceBlock>;

    /// The version of what this server knows of a run; `None` if it knows nothing of it.
    fn run_version(&self, stream: &str, run: RunNumber) -> Option<u64>;

    /// What this server knows of a run.
    fn run(&self, stream: &str, run: RunNumber) -> Option<RunKnowledge>;
}
