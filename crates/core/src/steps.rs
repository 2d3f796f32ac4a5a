//! The life of a stream's steps, as its coordinator sees it: ranks join and end steps, steps close, go to
//! those attached, are released, and are free again.
//!
//! Every method takes what happened and returns what must now be done, as [`Effect`]s.

mod attachment;
mod coordinator;
mod ledger;
mod run;

pub use attachment::{Attachment, AttachmentId, AttachmentRecord, Start, Takes};
pub use coordinator::{StreamCoordinator, StreamStatus};
pub use ledger::{Inheritance, InheritedRank, Ledger, RankLedger, RunLedger};
pub use run::{
    BackTo, Durability, EndedField, Policy, Registered, RunOptions, StepCounts, StepEnded, check_replicas,
    check_replicas_among,
};

use crate::Error;
use crate::attr::Attrs;
use crate::block::BlockRecord;
use crate::contract::Field;
use crate::cut::{Cuts, Decision};
use crate::directory::check_blocks;
use crate::ids::{Epoch, RunNumber, ServerId, StepId, StepNumber};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// In runs of up to this many ranks, the records of a step's blocks travel with it: then a report has a few
/// kilobytes, and a reader needs no further question. In larger ones the blocks of placed fields are
/// registered with the owners of their tiles, and readers ask those for what they need: a report of all blocks
/// to every reader would grow with ranks times readers.
pub const RECORDS_TRAVEL_RANKS_MAX: u32 = 64;

/// One field of a step, as it is told to those who read it. What is decoded was checked: see
/// [`crate::directory::check_blocks`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct FieldReport {
    /// The field, with its shape at this step.
    pub field: Field,
    /// Its blocks, as far as they are told with it.
    pub blocks: Vec<BlockRecord>,
    /// How many blocks are registered with the owners of their tiles instead.
    pub registered: u64,
}

impl FieldReport {
    /// A field all of whose blocks are told.
    pub fn new(field: Field, blocks: Vec<BlockRecord>) -> FieldReport {
        FieldReport { field, blocks, registered: 0 }
    }
}

impl Serialize for FieldReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FieldReport::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for FieldReport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FieldReport, D::Error> {
        let report = FieldReport::deserialize(deserializer)?;
        check_blocks(&report.field, &report.blocks).map_err(D::Error::custom)?;
        Ok(report)
    }
}

/// A closed step, as it is told to those who read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Which step it is.
    pub id: StepId,
    /// Physical time.
    pub time: f64,
    /// How many steps that this reader wanted were dropped before this one.
    pub missed: u64,
    /// Whether a new run went back: what was read of steps from this number on is no longer true.
    pub rewound: bool,
    /// Whether a rank died in it, or left it out.
    pub torn: bool,
    /// Whether something of it found no room: told only to those that take all steps.
    pub dropped: bool,
    /// The fields that the reader wants at this step.
    pub fields: Vec<FieldReport>,
    /// The run's attributes, if they are others than this reader was told last.
    pub attrs: Option<Box<Attrs>>,
    /// Since which epoch the server that tells of it has coordinated the stream, if another one did before; else 0.
    pub term: Epoch,
}

/// A step that a reader which comes back held in its time with the coordinator before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldStep {
    /// The run.
    pub run: RunNumber,
    /// The step.
    pub step: StepNumber,
    /// Whether the reader has finished with it, and only arrays of it live on.
    pub pinned: bool,
}

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
    /// Tell an attachment that the stream has ended, and how many steps that it wanted were dropped after the last
    /// one it was told of.
    Ended(AttachmentId, u64),
    /// Tell every server of an attachment, or that its place need not be kept any more, in case that the coordinator dies.
    Attachment(AttachmentId, Option<Box<AttachmentRecord>>),
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
    /// Tell every server that all ranks of a run have come and gone: whoever coordinates it next waits for none.
    Over(RunNumber),
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
    pub below: StepNumber,
}
