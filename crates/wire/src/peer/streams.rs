//! About streams: between the home server of a rank and the stream's coordinator, from the coordinator to all, and to the
//! server that takes the place of a coordinator which has died.

use crate::protocol::speaks;
use forebay_core::attr::Attr;
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::error::Error;
use forebay_core::ids::{Epoch, RunNumber, ServerId, StepId, StepNumber, Timestamp};
use forebay_core::steps::{
    AttachmentId, AttachmentRecord, HandedCounts, Joining, RankEnd, ReadersThere, Rejoin, RunReport,
    RunSummary, StepContribution,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The run that a rank has joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinedRun {
    /// The run.
    pub run: RunNumber,
    /// The rank as it has joined.
    pub joining: Box<Joining>,
    /// The demand in force from its step 0 on.
    pub demand: Demand,
    /// From which later steps other demands hold.
    pub cuts: Vec<(StepNumber, Demand)>,
    /// The version of a change that is being agreed: until it is decided, no step can begin.
    pub agreeing: Option<u64>,
    /// The coordinator knows all that the rank did in the steps below this one; of a run with copies, it knows besides that
    /// these were made, or are needed no more.
    pub below: StepNumber,
    /// When its first rank joined.
    pub began: Timestamp,
}

/// What servers say about streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    // From a rank's home to the stream's coordinator.
    /// A rank wants to join. Answer: `Joined`, or `Redirect`.
    Join {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
        /// The rank.
        joining: Box<Joining>,
        /// How it comes back, if it does.
        back_to: Option<Rejoin>,
    },
    /// A rank offers a field. Answer: `Done`, or `Redirect`.
    Define {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// The field.
        field: Field,
    },
    /// A rank sets an attribute. Answer: `Done`, or `Redirect`.
    SetAttr {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The field; `None`: of the stream itself.
        field: Option<String>,
        /// Its name.
        key: String,
        /// Its values.
        attr: Attr,
    },
    /// Has all been taken that this server told of a stream before? What is wrong with it is told first. Answer: `Done`.
    Sync {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
    },
    /// A rank begins a step: its first, or one after some that it left out and at which something was wanted.
    RankBegan {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// The step: the rank has finished all before it.
        step: StepNumber,
    },
    /// A rank leaves, after it had begun this step.
    HighestBegun {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The highest step that it began.
        step: StepNumber,
    },
    /// Which readers take part in a run? Answer: `Readers`, or `Redirect`.
    WhoReads {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
    },
    /// Nobody waits any more for the answer to this rank's join: it has not come.
    JoinAbandoned {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
    },
    /// A rank ended a step at which something was demanded.
    StepEnded {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// What it put.
        ended: Arc<StepContribution>,
        /// Whether it has as many copies as it is to have.
        copied: bool,
    },
    /// A rank closed its handle or died.
    RankGone {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// How.
        end: RankEnd,
    },
    /// The sender leaves the group, and has told all that the rank did: the rank comes back through another home.
    RankMoves {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
    },
    /// A rank left blocks of a step on the sender, which is not its home, and is gone; the sender does not know
    /// whether the rank's home was told of them.
    BlocksStranded {
        /// The stream, run and step.
        id: StepId,
        /// The rank.
        rank: u32,
    },
    /// Memory is short at the sender: a closed step may be given up.
    MemoryPressure {
        /// The stream.
        stream: String,
    },
    /// To `PrepareCut`.
    CutPrepared {
        /// The stream.
        stream: String,
        /// The demand's version.
        version: u64,
        /// The highest step begun at the sender.
        highest: Option<StepNumber>,
    },

    // From the coordinator to a rank's home.
    /// To `Join`.
    Joined {
        /// The question's token.
        token: u64,
        /// The stream.
        stream: String,
        /// The rank.
        rank: u32,
        /// What the rank joined, or why not.
        result: Result<JoinedRun, Error>,
    },
    /// To `Define`, `SetAttr` and `Sync`.
    Done {
        /// The question's token.
        token: u64,
        /// Whether it went well.
        result: Result<(), Error>,
    },
    /// To `WhoReads`.
    Readers {
        /// The question's token.
        token: u64,
        /// The readers.
        readers: Box<ReadersThere>,
    },
    /// To a question about a stream: ask this server.
    Redirect {
        /// The question's token.
        token: u64,
        /// The server that coordinates the stream.
        server: ServerId,
    },
    /// The demand is about to change. Answer: `CutPrepared`.
    PrepareCut {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The demand's version.
        version: u64,
    },
    /// The demand holds from this step on.
    Cut {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The first step.
        from: StepNumber,
        /// The demand.
        demand: Demand,
    },
    /// From which step of a run each demand holds, as the server knows it that coordinates the stream now.
    Cuts {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The demand in force from its step 0 on.
        demand: Demand,
        /// From which later steps other demands hold.
        cuts: Vec<(StepNumber, Demand)>,
        /// The version of the change that is being agreed, if any.
        agreeing: Option<u64>,
    },
    /// Nothing holds this step any more.
    Free {
        /// The step.
        id: StepId,
        /// Readers may look at it who were told of it in a term before this one; 0 if there are none.
        unseen_before: Epoch,
    },
    /// Tell a rank of what went wrong.
    RankFailed {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// What.
        error: Error,
    },
    /// All ranks of a run have come and gone, so that whoever coordinates the stream next waits for none of those whose home
    /// is gone, too.
    RunOver {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// How it ended.
        summary: Box<RunSummary>,
    },

    // From the coordinator to all.
    /// The sender coordinates a stream, which has this attachment, or has it no more.
    AttachmentChanged {
        /// The stream.
        stream: String,
        /// The attachment.
        id: AttachmentId,
        /// What is known of it, if its place is to be kept when the sender dies.
        record: Option<Box<AttachmentRecord>>,
    },
    /// The sender coordinates a stream: the next reader of this name goes on there.
    CursorKept {
        /// The stream.
        stream: String,
        /// What the reader is called.
        name: String,
        /// The run.
        run: RunNumber,
        /// The step.
        step: StepNumber,
    },
    /// The sender has forgotten a stream that it coordinated.
    StreamForgotten {
        /// The stream.
        stream: String,
    },

    // From each server to all when the roster changes.
    /// The sender knows the roster of this epoch. Of the streams that the view alone would have elsewhere, it coordinates
    /// these, and will never coordinate others.
    Locations {
        /// The epoch.
        epoch: Epoch,
        /// The streams.
        streams: Vec<String>,
        /// Arenas of servers that are dead, and the number of each with the sender, which is their successor.
        arenas: Vec<(ServerId, u32, u32)>,
    },

    // To the server that takes the place of a stream's coordinator, which has died.
    /// A stream whose coordinator has died had this attachment. Goes before `StepsHeld`.
    TakeOverAttachment {
        /// The epoch in which the receiver takes its place.
        epoch: Epoch,
        /// The stream.
        stream: String,
        /// The attachment.
        id: AttachmentId,
        /// What is known of it.
        record: Box<AttachmentRecord>,
    },
    /// What a rank's home knows of a run. Each rank's steps follow, as `StepEnded`, and `RankGone`.
    TakeOverRun {
        /// The epoch in which the receiver coordinates the stream.
        epoch: Epoch,
        /// The stream.
        stream: String,
        /// The run.
        known: Box<RunReport>,
    },
    /// The sender holds or knows blocks of these steps. It has now told all that it knows of the stream.
    StepsHeld {
        /// The epoch in which the receiver coordinates the stream.
        epoch: Epoch,
        /// The stream.
        stream: String,
        /// The steps, by run.
        steps: Vec<(RunNumber, StepNumber)>,
    },
    /// To `TakeOverRun`: tell this server instead, which coordinates the stream.
    CoordinatedBy {
        /// The stream.
        stream: String,
        /// The server.
        server: ServerId,
    },

    /// The receiver was named in `CoordinatedBy`; what the sender knows of the stream follows.
    Named {
        /// The epoch in which the receiver coordinates the stream.
        epoch: Epoch,
        /// The stream.
        stream: String,
    },
    /// The sender was named so: tell it of the stream. Answer: `StepsHeld`, after all else that is known, or
    /// `CoordinatedBy`.
    TellAgain {
        /// The stream.
        stream: String,
    },

    // From a coordinator that leaves the group, to all: one of them is going to take its place.
    /// What the sender has counted of a stream so far. Told when it begins to leave, and again when that has changed.
    Counted {
        /// The stream.
        stream: String,
        /// What it has counted.
        counts: HandedCounts,
    },
}

impl Message {
    /// The stream, if this tells its coordinator, without a question, what happened to ranks that it knows.
    pub fn tells_coordinator(&self) -> Option<&str> {
        match self {
            Message::JoinAbandoned { stream, .. }
            | Message::RankBegan { stream, .. }
            | Message::HighestBegun { stream, .. }
            | Message::StepEnded { stream, .. }
            | Message::RankGone { stream, .. }
            | Message::RankMoves { stream, .. }
            | Message::MemoryPressure { stream }
            | Message::CutPrepared { stream, .. } => Some(stream),
            Message::BlocksStranded { id, .. } => Some(&id.stream),
            _ => None,
        }
    }
}

speaks!(Streams: Message);
