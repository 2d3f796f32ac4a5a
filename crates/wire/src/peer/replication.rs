//! About copies: from a server to its backups, which hold copies of what it holds and take its place when it dies.

use crate::protocol::speaks;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::Field;
use forebay_core::error::Error;
use forebay_core::ids::{BlockKey, DescriptionNumber, RunNumber, ServerId, StepId, StepNumber};
use forebay_core::steps::{FieldReport, RankEnd, RunReport, StepContribution};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A range of an arena that holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockRange {
    /// The arena.
    pub arena: u32,
    /// Where the block starts, in bytes.
    pub offset: u64,
    /// Tells this use of the range from others.
    pub generation: u64,
    /// The block's length, in bytes.
    pub bytes: u64,
}

impl From<&Location> for BlockRange {
    /// Where a block is on its server.
    fn from(location: &Location) -> BlockRange {
        let Location { arena, offset, generation, bytes, .. } = *location;
        BlockRange { arena, offset, generation, bytes }
    }
}

/// What is replicated as one, and outlives its server at the backups.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReplicaUnit {
    /// What a server holds of a step.
    Step(StepId),
    /// A block of the space, by the number that the server gave it which it was put to.
    Space(BlockKey),
}

impl ReplicaUnit {
    /// The step, if it is one.
    pub fn step(&self) -> Option<&StepId> {
        match self {
            ReplicaUnit::Step(id) => Some(id),
            ReplicaUnit::Space(_) => None,
        }
    }
}

impl fmt::Display for ReplicaUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplicaUnit::Step(id) => id.fmt(f),
            ReplicaUnit::Space(key) => {
                write!(f, "block {} of the space, put to {}", key.number, ServerId(key.rank))
            }
        }
    }
}

/// A block of the space, as its owners know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpaceBlock {
    /// The field.
    pub field: Arc<Field>,
    /// The step.
    pub step: StepNumber,
    /// Under which description it is registered.
    pub description: DescriptionNumber,
    /// The block.
    pub record: BlockRecord,
}

/// What a backup is to hold, so that it outlives the server that tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// Of what.
    pub unit: ReplicaUnit,
    /// How many servers are to hold copies.
    pub copies: u32,
    /// Those that do: the first of them that lives takes the place of the server that tells.
    pub backups: Vec<ServerId>,
    /// Blocks of that server.
    pub ranges: Vec<BlockRange>,
    /// What ranks told of the step.
    pub ended: Vec<(u32, Arc<StepContribution>)>,
    /// The records of those blocks, by field, where only owners of tiles know them.
    pub records: Vec<FieldReport>,
    /// What its owners know, if it is a block of the space.
    pub space: Option<SpaceBlock>,
    /// Whether the backup was told of the step's run. It was not by a server that only rejoins with what it held before it was
    /// given up, and knows of no run itself.
    pub of_told_run: bool,
}

/// What servers say about copies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// An arena of the sender, of which blocks are to be replicated. Its descriptor comes with it on one host; else the
    /// receiver makes one of this size, and fetches.
    OfferArena {
        /// The arena.
        arena: u32,
        /// Its size in bytes.
        bytes: u64,
    },
    /// An arena of the sender is gone, with all its blocks.
    WithdrawArena {
        /// The arena.
        arena: u32,
    },
    /// What the sender knows of a run whose ranks have their home there.
    NoteRun {
        /// The stream.
        stream: String,
        /// The server that coordinates it.
        coordinator: ServerId,
        /// The run.
        known: Box<RunReport>,
    },
    /// A rank of a run whose ranks have their home with the sender is gone.
    NoteRankGone {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// How.
        end: RankEnd,
    },
    /// Answer: `Replicated`, once the receiver has noted what the sender told it before of runs and ranks.
    ConfirmNotes {
        /// Ties the answer to it.
        token: u64,
    },
    /// Hold these. Answer: `Replicated`.
    Replicate {
        /// Ties the answer to it.
        token: u64,
        /// What.
        replica: Box<Replica>,
    },
    /// To `Replicate` and `ConfirmNotes`.
    Replicated {
        /// The question's token.
        token: u64,
        /// Whether the sender holds it now.
        result: Result<(), Error>,
    },
    /// The sender needs what it held of this no more. Answer: `Released`, once the receiver does not hold it either.
    Release {
        /// Ties the answer to it.
        token: u64,
        /// What.
        unit: ReplicaUnit,
    },
    /// To `Release`.
    Released {
        /// The question's token.
        token: u64,
    },
}

speaks!(Replication: Message);
