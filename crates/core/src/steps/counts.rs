//! What a coordinator counts of steps, and hands over to the one that takes its place when it leaves.

use crate::ids::{Epoch, RunNumber, StepNumber};
use crate::steps::attachment::AttachmentId;
use serde::{Deserialize, Serialize};

/// How many steps of a run have come to what end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCounts {
    /// All ranks have ended them, or are gone.
    pub closed: u64,
    /// Those of them that had no room.
    pub dropped: u64,
    /// Those of them in which a rank died.
    pub torn: u64,
}

/// What was counted of a stream's latest run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedCounts {
    /// The run.
    pub run: RunNumber,
    /// Its steps.
    pub steps: StepCounts,
    /// The epoch from which on they were counted, if not from the beginning of the run; else 0.
    pub since: Epoch,
    /// The highest of those that were closed: one up to it that closes again, where it is still held, is counted already.
    pub last_closed: Option<StepNumber>,
    /// How many steps each attachment has missed.
    pub missed: Vec<(AttachmentId, u64)>,
}
