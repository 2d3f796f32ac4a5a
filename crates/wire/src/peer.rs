//! Messages between servers. Each flows one way on a connection that its sender dialled; an answer is a
//! message of its own, with the token of its question.

use crate::message::{CommMember, Drive, DriveAnswer, Execute, PipelineHistory, PipelineSpec};
use forebay_core::attr::Attr;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::{Field, Needs};
use forebay_core::demand::Demand;
use forebay_core::error::Error;
use forebay_core::ids::{BlockKey, DescriptionNumber, Epoch, RunNumber, ServerId, StepId, StepNumber};
use forebay_core::membership;
use forebay_core::roster::{Candidate, Roster};
use forebay_core::steps::{
    AttachmentId, AttachmentRecord, BackTo, FieldReport, Inheritance, RunOptions, StepEnded,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A range of an arena that holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range {
    /// The arena.
    pub arena: u32,
    /// Where the block starts.
    pub offset: u64,
    /// Tells this use of the range from others.
    pub generation: u64,
    /// The block's length.
    pub bytes: u64,
}

/// What is held as one, and outlives its server with a guardian.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kept {
    /// What a server holds of a step.
    Step(StepId),
    /// A block of the space, by the number that the server gave it which it was put to.
    Space(BlockKey),
}

impl Kept {
    /// The step, if it is one.
    pub fn step(&self) -> Option<&StepId> {
        match self {
            Kept::Step(id) => Some(id),
            Kept::Space(_) => None,
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::Step(id) => id.fmt(f),
            Kept::Space(key) => write!(f, "block {} of the space, put to {}", key.number, ServerId(key.rank)),
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

/// What a guardian is to hold, so that it outlives the server that tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Keep {
    /// Of what.
    pub id: Kept,
    /// How many servers are to hold copies.
    pub copies: u32,
    /// Those that do: the first of them that lives takes the place of the one that tells.
    pub guardians: Vec<ServerId>,
    /// Blocks of that server.
    pub ranges: Vec<Range>,
    /// What ranks told of the step.
    pub ended: Vec<(u32, Arc<StepEnded>)>,
    /// The records of those blocks, by field, where only owners of tiles know them.
    pub records: Vec<FieldReport>,
    /// What its owners know, if it is a block of the space.
    pub space: Option<SpaceBlock>,
    /// Whether the guardian was told of the step's run. It was not by one that only offers what it held before it was given up
    /// (and came back), and knows of no run itself.
    pub of_told_run: bool,
}

/// The run that a rank has joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinedRun {
    /// The run.
    pub run: RunNumber,
    /// What the rank joined with.
    pub options: RunOptions,
    /// The demand in force from its step 0 on.
    pub demand: Demand,
    /// From which later steps other demands hold.
    pub cuts: Vec<(StepNumber, Demand)>,
    /// The version of a change that is being agreed: until it is decided, no step can begin.
    pub agreeing: Option<u64>,
    /// The coordinator knows all that the rank did in the steps below this one; of a run with copies, it knows besides that
    /// these were made, or are needed no more.
    pub below: StepNumber,
}

/// From one server to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PeerMessage {
    // About the group's members.
    /// To any member: a server wants to be one. Answer, on the same connection: `Admitted`.
    JoinGroup(Candidate),
    /// To any member: which roster is in force? Answer, on the same connection: `Admitted`.
    WhichRoster,
    /// The roster in force; after `JoinGroup`, the first that the sender knows of in which the receiver is a member, or why
    /// it cannot be one.
    Admitted(Result<Arc<Roster>, Error>),
    /// What members agree on.
    Membership(membership::Message),
    /// Are you there? Answer: `IAmThere`, with the same number.
    AreYouThere(u64),
    /// Yes.
    IAmThere(u64),
    /// What watches for members that fall silent says, where its datagrams do not come through.
    Gossip(Vec<u8>),
    /// The sender knows the roster of this epoch. Of the streams whose place is with other servers in that, it coordinates
    /// these, and will never coordinate others.
    Coordinates {
        /// The epoch.
        epoch: Epoch,
        /// The streams.
        streams: Vec<String>,
        /// Arenas of servers that are dead, and the number of each with the sender, which answers for it.
        arenas: Vec<(ServerId, u32, u32)>,
    },
    /// The sender coordinates a stream, which has this attachment, or has it no more.
    Attachment {
        /// The stream.
        stream: String,
        /// The attachment.
        id: AttachmentId,
        /// What is known of it, if its place is to be kept when the sender dies.
        record: Option<Box<AttachmentRecord>>,
    },
    /// A stream whose coordinator has died had this attachment. Goes before `Holds`.
    InheritAttachment {
        /// The epoch in which the receiver takes its place.
        epoch: Epoch,
        /// The stream.
        stream: String,
        /// The attachment.
        id: AttachmentId,
        /// What is known of it.
        record: Box<AttachmentRecord>,
    },
    /// The sender has forgotten a stream that it coordinated.
    CoordinatesNoMore {
        /// The stream.
        stream: String,
    },
    /// The sender leaves the group: it is given nothing more to hold. Answer: `Answer`, once the receiver has handled
    /// all that the sender told before, and, if it is asked whether the sender may go, needs nothing of it any more.
    Leaves {
        /// Ties the answer to it.
        token: u64,
        /// Whether this asks if the sender may go.
        may_go: bool,
    },
    /// The sender does not leave after all.
    Stays,
    /// The group was told to end, and the sender does: the receiver is to end, too. One that stands still finds it when it
    /// goes on.
    GroupEnds,
    /// To a question about a stream: ask this server.
    AskInstead {
        /// The question's token.
        token: u64,
        /// The server that coordinates the stream.
        server: ServerId,
    },

    // From a rank's home to the stream's coordinator.
    /// A rank wants to join. Answer: `Joined`.
    Join {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
        /// The rank.
        rank: u32,
        /// What all ranks agree on.
        options: RunOptions,
        /// How it comes back, if it does.
        back_to: Option<BackTo>,
    },
    /// A rank offers a field. Answer: `Answer`.
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
    /// Has all been taken that this server told of a stream before? What is wrong with it is told first. Answer:
    /// `Answer`.
    Heard {
        /// Ties the answer to it.
        token: u64,
        /// The stream.
        stream: String,
    },
    /// A rank begins a step: its first, or one after some that it left out and at which something was wanted.
    Begun {
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
    Reached {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The highest step that it began.
        step: StepNumber,
    },
    /// Nobody waits any more for the answer to this rank's join: it has not come.
    NeverCame {
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
        ended: Arc<StepEnded>,
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
        /// Whether it died.
        died: bool,
    },
    /// The sender leaves the group, and has told all that the rank did: it comes back through another home.
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
    Stranded {
        /// The stream, run and step.
        id: StepId,
        /// The rank.
        rank: u32,
    },
    /// Memory is short: a closed step may be given up.
    Pressure {
        /// The stream.
        stream: String,
    },
    /// To `Prepare`.
    Prepared {
        /// The stream.
        stream: String,
        /// The demand's version.
        version: u64,
        /// The highest step begun here.
        highest: Option<StepNumber>,
    },

    // To the server that takes the place of a stream's coordinator, which has died.
    /// What a rank's home knows of a run. Each rank's steps follow, as `StepEnded`, and `RankGone`.
    Inherit {
        /// The epoch in which the receiver coordinates the stream.
        epoch: Epoch,
        /// The stream.
        stream: String,
        /// The run.
        told: Box<Inheritance>,
    },
    /// The sender holds or knows blocks of these steps. It has now told all that it knows of the stream.
    Holds {
        /// The epoch in which the receiver coordinates the stream.
        epoch: Epoch,
        /// The stream.
        stream: String,
        /// The steps, by run.
        steps: Vec<(RunNumber, StepNumber)>,
    },
    /// To `Inherit`: tell this server instead, which coordinates the stream.
    CoordinatedBy {
        /// The stream.
        stream: String,
        /// The server.
        server: ServerId,
    },
    /// To servers with workers of a pipeline: what the sender knows, which coordinates it. To one whose worker has become
    /// ready; and to all when the sender leaves, and begins nothing more.
    PipelineWas {
        /// The pipeline.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
        /// What is known of its executions.
        history: PipelineHistory,
    },
    /// There is a worker of a pipeline on the stream beside the sender.
    InheritPipeline {
        /// The epoch in which the sender tells it.
        epoch: Epoch,
        /// Which one of that name.
        creation: u64,
        /// What it runs.
        spec: PipelineSpec,
        /// Where it listens, if it is ready.
        member: Option<CommMember>,
        /// What is known of its executions beside the sender.
        history: PipelineHistory,
    },

    // To a guardian: a server that holds copies of what the sender holds, and answers for it when that is dead.
    /// An arena of the sender, of which blocks are to be kept. Its descriptor comes with it on one host; else the receiver
    /// makes one of this size, and fetches.
    Guard {
        /// The arena.
        arena: u32,
        /// Its size.
        bytes: u64,
    },
    /// An arena of the sender is gone, with all its blocks.
    GuardNoMore(u32),
    /// What the sender knows of a run whose ranks have their home there.
    GuardRun {
        /// The stream.
        stream: String,
        /// The server that coordinates it.
        coordinator: ServerId,
        /// The run.
        told: Box<Inheritance>,
    },
    /// Keep these. Answer: `Answer`.
    Keep {
        /// Ties the answer to it.
        token: u64,
        /// What.
        keep: Box<Keep>,
    },
    /// The sender needs what it held of this no more. Answer: `Answer`, once the receiver does not hold it either.
    KeepNoMore {
        /// Ties the answer to it.
        token: u64,
        /// What.
        id: Kept,
    },
    /// From a stream's coordinator to all: all ranks of a run have come and gone, so that whoever coordinates the stream
    /// next waits for none of those whose home is gone, too.
    RunOver {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
    },
    /// A rank of a run whose ranks have their home with the sender is gone.
    GuardedRankGone {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// Whether it died.
        died: bool,
    },

    // From a rank's home to the owners of tiles.
    /// What a rank put in a step. Answer: `StepRegistered`.
    StepRegister {
        /// Ties the answer to it.
        token: u64,
        /// The step.
        id: StepId,
        /// Blocks that touch tiles which the receiver owns.
        owned: Vec<FieldReport>,
        /// Blocks that the receiver holds.
        held: Vec<FieldReport>,
    },
    /// To `StepRegister`.
    StepRegistered {
        /// The question's token.
        token: u64,
        /// Blocks that were refused, by field.
        refused: Vec<(String, BlockKey)>,
        /// Why the first of them was.
        error: Option<Error>,
    },
    /// To who owns tiles now whose owner has gone: the sender holds these blocks, which touch them.
    StepKnow {
        /// The step.
        id: StepId,
        /// The blocks, by field.
        owned: Vec<FieldReport>,
    },
    /// These blocks were refused by another owner. Answer: `Answer`.
    StepUnregister {
        /// Ties the answer to it.
        token: u64,
        /// The step.
        id: StepId,
        /// The blocks, by field.
        blocks: Vec<(String, BlockKey)>,
    },

    // From the coordinator.
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
    /// To `Define` and others that are done or not.
    Answer {
        /// The question's token.
        token: u64,
        /// Whether it went well.
        result: Result<(), Error>,
    },
    /// A rank at the sender drives a pipeline of a stream that the receiver coordinates. Answer: `Driven`, or `AskInstead`.
    Drive {
        /// Names the question; 0 where nobody waits for an answer.
        token: u64,
        /// What it wants.
        drive: Box<Drive>,
    },
    /// To `Drive`.
    Driven {
        /// The question's token.
        token: u64,
        /// What became of it.
        result: Result<DriveAnswer, Error>,
    },
    /// The demand is about to change. Answer: `Prepared`.
    Prepare {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The demand's version.
        version: u64,
    },
    /// The demand holds from this step on.
    Decide {
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
    RankError {
        /// The stream.
        stream: String,
        /// The run.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// What.
        error: Error,
    },

    // About the space's blocks.
    /// To an owner of parts of the field: these blocks are held by the sender. Answer: `SpaceRegistered`.
    SpaceRegister {
        /// Ties the answer to it.
        token: u64,
        /// The step.
        step: StepNumber,
        /// Under which description of the field; 0 asks the server that describes it which one is in force,
        /// and describes it if none is.
        description: DescriptionNumber,
        /// The field and the blocks.
        report: FieldReport,
    },
    /// To `SpaceRegister`.
    SpaceRegistered {
        /// The question's token.
        token: u64,
        /// Under which description they are registered; 0: not at all, that description is no longer in force.
        result: Result<DescriptionNumber, Error>,
    },
    /// To who owns parts of the field now whose owner has gone, or describes it: these blocks are held by the sender, and
    /// were registered under this description.
    SpaceKnow {
        /// The step.
        step: StepNumber,
        /// The description.
        description: DescriptionNumber,
        /// The field and the blocks.
        report: FieldReport,
    },
    /// To an owner: the put failed elsewhere. It lets go of these blocks, also if it does not know them.
    SpaceUnregister {
        /// The field's name.
        field: String,
        /// The step.
        step: StepNumber,
        /// The blocks and where they are.
        blocks: Vec<(BlockKey, Location)>,
    },
    /// To a server that registers under this description: it is no longer in force. Answer: `Answer`, once
    /// nothing that it began under it is on its way.
    SpaceRevoke {
        /// Ties the answer to it.
        token: u64,
        /// The description.
        description: DescriptionNumber,
    },
    /// To an owner: what was registered under this description is removed. Answer: `Answer`.
    SpaceForget {
        /// Ties the answer to it.
        token: u64,
        /// The field's name.
        field: String,
        /// The step.
        step: StepNumber,
        /// The description.
        description: DescriptionNumber,
    },
    /// To a holder: the sender has let go of these blocks. Answer, once nobody holds them any more: `SpaceFreed`.
    SpaceFree {
        /// Number of the question.
        token: u64,
        /// Where the sender knew them: in the arenas of a server that is dead, if the holder answers for it.
        locations: Vec<Location>,
    },
    /// Answer: nobody holds them.
    SpaceFreed(u64),

    // About pipelines.
    /// Start a worker of this pipeline. Answer: `WorkerReady`, or `PipelineTrouble`.
    StartPipeline {
        /// Tells this pipeline from earlier ones of the same name.
        creation: u64,
        /// What to run.
        spec: PipelineSpec,
    },
    /// End the worker of this pipeline.
    StopPipeline {
        /// Its name.
        name: String,
        /// Which one of that name.
        creation: u64,
    },
    /// To the pipeline's coordinator: the sender's worker is ready.
    WorkerReady {
        /// The pipeline.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
        /// Where it listens.
        member: CommMember,
        /// What its code says it needs.
        needs: Option<Needs>,
    },
    /// To the pipeline's coordinator: the sender's worker is gone or could not start.
    WorkerGone {
        /// The pipeline.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
        /// Why.
        error: String,
    },
    /// Run this on the worker beside the receiver.
    Execute {
        /// The pipeline.
        pipeline: String,
        /// What.
        order: Box<Execute>,
    },
    /// To the pipeline's coordinator: the sender leaves the group, its worker is to run nothing more.
    WorkerLeaves {
        /// The pipeline.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
    },
    /// To the pipeline's coordinator: the sender's worker ran it.
    Executed {
        /// The pipeline.
        pipeline: String,
        /// Which execution.
        execution: u64,
        /// `None`, or the traceback.
        error: Option<String>,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// To the pipeline's coordinator: nothing on the sender's worker shows memory of that step any more.
    Released {
        /// The pipeline.
        pipeline: String,
        /// Which execution.
        execution: u64,
    },

    // From a rank's home to the stream's coordinator.
    /// A rank sets an attribute. Answer: `Answer`.
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
}

impl PeerMessage {
    /// The stream, if this tells its coordinator, without a question, what happened to ranks that it knows.
    pub fn tells_coordinator(&self) -> Option<&str> {
        match self {
            PeerMessage::NeverCame { stream, .. }
            | PeerMessage::Begun { stream, .. }
            | PeerMessage::Reached { stream, .. }
            | PeerMessage::StepEnded { stream, .. }
            | PeerMessage::RankGone { stream, .. }
            | PeerMessage::RankMoves { stream, .. }
            | PeerMessage::Pressure { stream }
            | PeerMessage::Prepared { stream, .. } => Some(stream),
            PeerMessage::Stranded { id, .. } => Some(&id.stream),
            _ => None,
        }
    }
}
