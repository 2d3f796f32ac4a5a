//! What must be done after something happened, and what a rank learns when it joins.

use crate::Error;
use crate::cut::{Cuts, Decision};
use crate::ids::{Epoch, RunNumber, ServerId, StepId, StepNumber, Timestamp};
use crate::steps::attachment::{AttachmentId, AttachmentRecord};
use crate::steps::report::StepReport;
use crate::steps::run_end::{RunEnd, RunSummary};

/// What must be done after something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Ask every server to prepare a change of the demand.
    Prepare {
        /// The run whose steps it is about.
        run: RunNumber,
        /// The demand's version.
        version: u64,
    },
    /// Tell every server the decision.
    Decide(Decision),
    /// Tell an attachment of a closed step. It holds the step until it releases it.
    Deliver(AttachmentId, Box<StepReport>),
    /// The same of these ranks of a cohort alone.
    DeliverTo(AttachmentId, Vec<u32>, Box<StepReport>),
    /// Tell an attachment that its run is over.
    Ended(AttachmentId, Box<RunEnd>),
    /// Tell every server of an attachment, or that its place need not be kept any more, in case that the coordinator dies.
    Attachment(AttachmentId, Option<Box<AttachmentRecord>>),
    /// Tell every server where the next reader of this name goes on.
    Cursor(String, (RunNumber, StepNumber)),
    /// The contract of a reader, or of a pipeline, meets none of the latest steps: of which, and what the log is to say.
    Unmatched(String, String),
    /// All ranks of a run have begun, the last one with this step, and offer none of the fields that subscriptions need.
    NotOffered(AttachmentId, RunNumber, StepNumber),
    /// Tell an attachment that its contract cannot be met; it is gone.
    Failed(AttachmentId, Error),
    /// Nothing holds the step any more: these servers may free its blocks.
    Free {
        /// The step.
        id: StepId,
        /// The servers that hold blocks of it, or know some as owners of tiles.
        servers: Vec<ServerId>,
        /// Readers may look at them who were told of them in a term before this one, and have not come back; 0 if there
        /// are none.
        unseen_before: Epoch,
    },
    /// Tell every server from which step of a run each demand holds, since another server coordinates it now.
    Cuts {
        /// The run.
        run: RunNumber,
        /// The demands.
        cuts: Cuts,
        /// The version of the change that is being agreed, if any: no server may forget that it was asked of it.
        agreeing: Option<u64>,
    },
    /// Tell every server how a run ended whose ranks have all come and gone: whoever coordinates it next waits for none.
    Over(RunNumber, Box<RunSummary>),
    /// Tell a rank, at its next call, of something that went wrong with what it put.
    RankError {
        /// Its home server.
        server: ServerId,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// What went wrong.
        error: Error,
    },
}

/// What a rank learns when it joins.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// Its run.
    pub run: RunNumber,
    /// From which step of the run each demand holds.
    pub cuts: Cuts,
    /// The version of the change of the demand that is being agreed, if any.
    pub agreeing: Option<u64>,
    /// The coordinator knows all that the rank did in the steps below this one; of a run with copies, it knows besides that
    /// these were made, or are needed no more.
    pub reported_below: StepNumber,
    /// When its first rank joined.
    pub began: Timestamp,
}
