//! Messages between a client (producer, consumer, worker, administrator) and a server.
//!
//! Enumerations are append-only within a protocol version. A message with a request number is answered by
//! one with the same number; others are told and not answered.

use forebay_core::attr::Attr;
use forebay_core::block::{BlockRecord, Extent, Location, Stats};
use forebay_core::contract::{Field, Needs};
use forebay_core::demand::Demand;
use forebay_core::error::Error;
use forebay_core::ids::{BlockKey, DescriptionNumber, Epoch, RunNumber, ServerId, StepId, StepNumber};
use forebay_core::region::{Dims, Region};
use forebay_core::steps::{
    AttachmentId, BackTo, Durability, FieldReport, HeldStep, Policy, RunOptions, Start, StepReport,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a server lets a client wait at most until the group knows who answers for what a dead server held.
pub const ANSWERS_PATIENCE: Duration = Duration::from_secs(5);

/// What tells whether two processes are on one host: the machine's boot, and the namespace that matters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostId(pub String);

/// What a connection is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A rank of a simulation.
    Producer,
    /// A reader, `Space` or tool.
    Consumer,
    /// The process that runs one pipeline beside one server.
    Worker {
        /// The pipeline.
        pipeline: String,
        /// Which start of it, as the server told the process.
        instance: u64,
    },
    /// Another server of the group.
    Server(ServerId),
}

/// The first message on every connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// What the connection is for.
    pub role: Role,
    /// The process, for messages to people and to prove its death on the same host.
    pub pid: u32,
    /// Where `pid` has its meaning: the machine's boot and the process's PID namespace.
    pub host: HostId,
    /// Whether descriptors can be passed on this connection.
    pub shared_memory: bool,
    /// How long it waits for an answer by default, in milliseconds.
    pub patience_ms: u64,
}

/// The answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Which server this is.
    pub server: ServerId,
    /// The members of the current view.
    pub members: Vec<ServerId>,
    /// Whether payloads are to be sealed on connections that are sealed.
    pub seal_payload: bool,
}

/// A range of an arena that a producer may write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The arena on this server.
    pub arena: u32,
    /// Where the range starts, in bytes.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Tells this use of the range from others.
    pub generation: u64,
    /// Whether pages of it may be missing: then it pays to populate them in one go.
    pub fresh: bool,
}

/// Where the bytes of a committed block are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Bytes {
    /// In the range that was granted, written by the client.
    Granted {
        /// The arena.
        arena: u32,
        /// The range's start.
        offset: u64,
        /// The grant's generation.
        generation: u64,
    },
    /// In this message.
    Inline(Box<[u8]>),
    /// In the payload that follows this message.
    Payload,
    /// On a server that is not the rank's home, which holds them already.
    Placed(Location),
}

/// A block that is put.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PutBlock {
    /// The field, as this rank defined it.
    pub field: String,
    /// Which block of the field it is.
    pub number: u64,
    /// Refinement level.
    pub level: u32,
    /// Its box.
    pub extent: Extent,
    /// Statistics, if they were computed.
    pub stats: Option<Box<Stats>>,
    /// Its bytes.
    pub bytes: Bytes,
}

/// A block of the space that is put.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpacePut {
    /// The field, with its shape.
    pub field: Field,
    /// The step.
    pub step: StepNumber,
    /// Who puts it, by a number made at random. With the block's it tells it from all others, also when it is put once more
    /// since the answer has not come.
    pub by: u32,
    /// How many servers are to hold it.
    pub replicas: u32,
    /// The block.
    pub block: PutBlock,
}

/// The part of a block that is fetched: every `step[d]`-th element of a box of the stored array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The first element in each dimension, in the stored array.
    pub offset: Dims,
    /// How many elements in each dimension.
    pub shape: Dims,
    /// Distance between them.
    pub step: Dims,
}

/// From a client to a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToServer {
    /// The first message. Answer: [`ToClient::Welcome`].
    Hello(Hello),

    // A producer's.
    /// Joins a stream as one rank. Answer: [`ToClient::Producing`], with the arena's descriptor.
    Produce {
        /// The stream.
        stream: String,
        /// This rank.
        rank: u32,
        /// What all ranks agree on.
        options: RunOptions,
        /// How it comes back, if it does.
        back_to: Option<BackTo>,
    },
    /// The rank has come back, and has told all that it had to: this server is its home now. A connection that ends before is
    /// one that the rank has given up, and not its death.
    Settles,
    /// Offers a field, or changes its shape from the next step on. Answer: [`ToClient::Done`].
    Define(Field),
    /// Begins a step. Answer: [`ToClient::Begun`].
    Begin {
        /// The step.
        step: StepNumber,
        /// Physical time.
        time: f64,
        /// The version of the demand that the client knows.
        known: u64,
        /// How long the client will wait, in milliseconds.
        patience_ms: u64,
    },
    /// Began a step by the words in shared memory, at which something of this rank is wanted: the one before, which
    /// brought blocks of a few bytes only, was taken whole. Not answered.
    Began {
        /// The step.
        step: StepNumber,
        /// Physical time.
        time: f64,
    },
    /// Began and ended a step, by the word in shared memory, at which nothing of this rank was wanted although
    /// somebody wants something of the stream. Not answered.
    Passed {
        /// The step.
        step: StepNumber,
        /// Physical time.
        time: f64,
    },
    /// Asks for a range. Answer: [`ToClient::Granted`].
    Reserve {
        /// How many bytes.
        bytes: u64,
        /// How long the client will wait, in milliseconds.
        patience_ms: u64,
    },
    /// Publishes a block. Answered with [`ToClient::Done`] if it has a request number; otherwise a failure
    /// comes with the answer to the next `Begin` or `Flush`.
    Put(PutBlock),
    /// Gives an unused range back. Not answered.
    Abort {
        /// The arena.
        arena: u32,
        /// The range's start.
        offset: u64,
        /// The grant's generation.
        generation: u64,
    },
    /// Ends the step. Not answered unless it has a request number.
    End {
        /// The step.
        step: StepNumber,
        /// How many blocks were put; a check that none was lost.
        blocks: u64,
        /// Whether something did not fit and was dropped by policy.
        dropped: bool,
    },
    /// Stores blocks here for a rank whose home is another server. Answer: [`ToClient::Storing`]. Then
    /// `Reserve`, `Place`, `Abort` and `End` (once the home knows all blocks of a step) are understood.
    Store {
        /// The stream.
        stream: String,
        /// The run that the rank joined at its home.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// What happens when memory cannot keep up.
        policy: Policy,
        /// How many other servers are to hold copies.
        copies: u32,
        /// When they are made.
        durability: Durability,
    },
    /// Holds bytes here for a block that the rank's home is then told of. Answer: [`ToClient::Placed`].
    Place {
        /// The step.
        step: StepNumber,
        /// How many bytes.
        size: u64,
        /// Where they are: granted, or the payload.
        bytes: Bytes,
    },
    /// Answer: [`ToClient::Done`] when all that was put before is held, or what failed.
    Flush,
    /// Closes this rank of the stream. Answer: [`ToClient::Done`].
    Leave,
    /// The rank, which is between two steps, goes on at another server. Answer: [`ToClient::Leaves`], then the connection
    /// closes.
    GoElsewhere,

    // A consumer's.
    /// A server is gone: who answers for this arena of it? Answer: [`ToClient::AnswersFor`], once the group knows.
    WhoAnswers {
        /// The server.
        server: ServerId,
        /// The arena's number there.
        arena: u32,
    },
    /// Asks a server that answers for an arena whether it holds a block of it. Answer: [`ToClient::Done`].
    HasBlock {
        /// The arena's number there.
        arena: u32,
        /// Where the block starts.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Its generation.
        generation: u64,
    },
    /// Attaches to a stream. Answer: [`ToClient::Attached`]; then steps are told with request number 0.
    Attach {
        /// The stream.
        stream: String,
        /// What is needed.
        needs: Needs,
        /// How many steps may be told before one is released.
        window: u32,
        /// With which step to begin.
        start: Start,
        /// Whether to go on with the next run when one ends.
        follow: bool,
        /// What a reader that comes back still holds.
        held: Vec<HeldStep>,
        /// What names it, if it comes back.
        back: Option<AttachmentId>,
    },
    /// Has finished with a step. Not answered.
    Release {
        /// The attachment.
        attachment: AttachmentId,
        /// The run.
        run: RunNumber,
        /// The step.
        step: StepNumber,
        /// Whether arrays of it live on.
        pinned: bool,
    },
    /// Detaches. Answer: [`ToClient::Done`].
    Detach {
        /// The attachment.
        attachment: AttachmentId,
        /// Steps of which arrays live on: they stay held.
        held: Vec<(RunNumber, StepNumber)>,
    },
    /// Asks for an arena to map. Answer: [`ToClient::Arena`], with its descriptor opened for reading.
    OpenArena {
        /// The arena.
        arena: u32,
        /// The term in which the client was told of what it looks at there.
        term: Epoch,
    },
    /// Does not have an arena mapped any more. Not answered.
    CloseArena {
        /// As in [`ToClient::Arena`].
        reader: u64,
    },
    /// Asks for bytes of a block that this client holds. Answer: [`ToClient::Data`] with a payload.
    Fetch {
        /// The arena.
        arena: u32,
        /// Where the block starts.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Its generation.
        generation: u64,
        /// Its extents as stored.
        stored: Dims,
        /// The size of an element.
        element: u8,
        /// Which part.
        part: Part,
    },

    /// Asks an owner of tiles for the blocks of a step that this client holds. Answer: [`ToClient::Records`].
    FindBlocks {
        /// The step.
        id: StepId,
        /// The field's name.
        field: String,
        /// Those that meet this region, or all that the owner knows.
        region: Option<Region>,
        /// How many to leave out, since they were told already.
        skip: u64,
    },

    // The space's.
    /// Asks for an arena to write arrays of the space to. Answer: [`ToClient::Storing`]. Then `Reserve` and
    /// `Abort` are understood too.
    SpaceStore,
    /// Puts a block to be kept until it is removed. Answer: [`ToClient::Done`].
    SpacePut(Box<SpacePut>),
    /// Asks an owner for the blocks that meet a region, waiting until they cover what it owns of the region.
    /// Answer: [`ToClient::Found`]; the blocks are held for this client until `SpaceRelease`. Other messages are taken while
    /// it waits.
    SpaceFind {
        /// The field's name.
        field: String,
        /// The step.
        step: StepNumber,
        /// The region, which is waited for; `None` only describes the field, once something of it is there.
        region: Option<Region>,
        /// The global shape by which the client chose whom to ask. If the field has another, or if the client
        /// knows none and there are more owners to ask, the answer only describes the field, at once.
        shape: Option<Dims>,
        /// How long the client will wait, in milliseconds.
        patience_ms: u64,
    },
    /// Has finished with the blocks of an earlier answer, or does not wait for that answer any more. Not answered.
    SpaceRelease {
        /// The number of the question.
        request: u64,
    },
    /// Removes what was put of a field at a step. Answer: [`ToClient::Done`].
    SpaceRemove {
        /// The field's name.
        field: String,
        /// The step.
        step: StepNumber,
    },

    // An administrator's.
    /// Answer: [`ToClient::Status`].
    Status,
    /// Creates a pipeline on every server. Answer: [`ToClient::Done`] when every worker is ready. It ends with
    /// the connection until then.
    CreatePipeline {
        /// What it is.
        spec: PipelineSpec,
        /// How long its workers may take to be ready, in milliseconds.
        patience_ms: u64,
    },
    /// Ends a pipeline. Answer: [`ToClient::Done`].
    DestroyPipeline {
        /// Its name.
        name: String,
    },
    /// Asks for a pipeline of this name. Answer: [`ToClient::PipelineIs`], also from servers that only have a worker of it.
    FindPipeline {
        /// Its name.
        name: String,
    },
    /// The rank drives a pipeline. Answer: [`ToClient::Driven`], while other questions are answered.
    Drive(Box<Drive>),
    /// Ends the server. Answer: [`ToClient::Done`], then the connection closes.
    Shutdown,
    /// The server leaves its group, once all that it holds is held elsewhere; then it ends. Answer: [`ToClient::Done`].
    LeaveGroup {
        /// Whether what no other server can hold is given up.
        discard: bool,
        /// How long that may take, in milliseconds.
        patience_ms: u64,
    },
    /// The group has lost half of its servers or more, and is to go on with those that this one reaches. Answer:
    /// [`ToClient::Healed`].
    Heal {
        /// Whether to do so, or only to tell with whom it would go on.
        force: bool,
    },

    // A worker's.
    /// The worker's code is loaded and it listens for its comm here. Answer: [`ToClient::Done`].
    WorkerReady {
        /// Where the other workers reach it.
        addresses: Vec<String>,
        /// Needs that the pipeline's code declares, if it does.
        needs: Option<Needs>,
    },
    /// The worker ran a step. Not answered.
    WorkerDone {
        /// Which execution.
        execution: u64,
        /// `None`, or the traceback.
        error: Option<String>,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// No view of the step's blocks is left in the worker: their memory may be used again. Not answered.
    WorkerReleased {
        /// Which execution.
        execution: u64,
    },
    /// The worker's code could not be loaded. Not answered; the worker ends.
    WorkerFailed {
        /// The traceback.
        error: String,
    },

    // A producer's.
    /// Sets an attribute, for the rest of the run. Answer: [`ToClient::Done`].
    SetAttr {
        /// The field; `None`: of the stream itself.
        field: Option<String>,
        /// Its name.
        key: String,
        /// Its values.
        attr: Attr,
    },
}

/// A pipeline as it is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineSpec {
    /// Its name.
    pub name: String,
    /// The stream it runs on.
    pub stream: String,
    /// The program that runs a worker, and its first arguments.
    pub command: Vec<String>,
    /// The user's code, as `path:Class`.
    pub code: String,
    /// Its configuration, as JSON.
    pub config: String,
    /// What it needs; empty means that the code says it.
    pub needs: Option<Needs>,
    /// Whether it runs when the ranks say so, instead of on each closed step.
    pub driven: bool,
    /// The directory it runs in.
    pub directory: String,
}

/// How many steps of a pipeline that is driven may be active at once.
pub const DRIVEN_WINDOW: usize = 4;

/// What a rank that drives a pipeline wants of it, and all that its coordinator has to know of the rank: another one, that
/// has taken its place, knows no more than this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// The pipeline's name.
    pub pipeline: String,
    /// The stream that it runs on.
    pub stream: String,
    /// The run that the rank belongs to.
    pub run: RunNumber,
    /// The rank.
    pub rank: u32,
    /// The server whose worker alone is to run; `None`: all.
    pub server: Option<ServerId>,
    /// The steps that the rank has activated and not deactivated; [`DRIVEN_WINDOW`] at most.
    pub active: Vec<StepNumber>,
    /// The last step that it has activated: all up to it that are not active are done with.
    pub latest: StepNumber,
    /// What it wants.
    pub order: DriveOrder,
}

/// What a rank wants of a pipeline that it drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriveOrder {
    /// The step, which it is about to stage, is to be run: which workers will is fixed now. Answer:
    /// [`DriveAnswer::Activated`], once there is room for it.
    Activate(StepNumber),
    /// The step is to be run once all ranks have ended it. Answer: [`DriveAnswer::Executed`], or what failed.
    Execute {
        /// The step.
        step: StepNumber,
        /// The how many-th time, from 1: all ranks that ask for one time are told of the same execution.
        attempt: u32,
    },
    /// Nothing more than to take note of the steps that are active. Not answered.
    Deactivate,
}

/// What became of what a rank wanted of a pipeline that it drives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DriveAnswer {
    /// A step is active.
    Activated {
        /// The servers whose workers run it, as far as they are there then.
        workers: Vec<ServerId>,
        /// Those whose workers run the next one that is activated.
        next: Vec<ServerId>,
    },
    /// An execution is over.
    Executed {
        /// Whether it was run: not at steps at which the pipeline needs nothing.
        ran: bool,
        /// How long that took, in seconds.
        seconds: f64,
    },
}

/// One member of a pipeline's comm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommMember {
    /// Its server.
    pub server: ServerId,
    /// Where it listens.
    pub addresses: Vec<String>,
}

/// What became of a pipeline's steps so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineCounts {
    /// The number of the last execution.
    pub last: u64,
    /// Steps that were run without an error.
    pub executed: u64,
    /// Steps whose execution failed.
    pub failed: u64,
    /// Executions that lost a worker with its server, and were repeated.
    pub repeated: u64,
    /// Steps that were dropped before they could be run.
    pub missed: u64,
}

impl PipelineCounts {
    /// A step was run.
    pub fn ran(&mut self, failed: bool) {
        let count = if failed { &mut self.failed } else { &mut self.executed };
        *count = count.saturating_add(1);
    }
}

/// What is known of a pipeline's executions, for the server that takes the place of one that coordinated it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineHistory {
    /// The last step of which an execution is over for all, if there is one.
    pub done: Option<(RunNumber, StepNumber)>,
    /// What became of the steps up to that one; `last` may be the number of the execution after it.
    pub counts: PipelineCounts,
    /// An execution after that, which may be over or not.
    pub open: Option<OpenExecution>,
}

/// An execution of which it is not known whether it is over for all that take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenExecution {
    /// The step's run.
    pub run: RunNumber,
    /// The step.
    pub step: StepNumber,
    /// The how many-th time, if ranks ask for it; else 0.
    pub attempt: u32,
    /// The servers whose workers take part.
    pub together: Vec<ServerId>,
    /// Whether it failed, as far as that is known; `None` if it has not ended for one that lives.
    pub failed: Option<bool>,
}

/// An order to run a pipeline on a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Execute {
    /// Names this execution within the pipeline: numbers grow.
    pub execution: u64,
    /// The last step of which an execution is over, if there is one.
    pub done: Option<(RunNumber, StepNumber)>,
    /// What became of the steps up to that one.
    pub counts: PipelineCounts,
    /// The how many-th time ranks want the step run, if they drive the pipeline; else 0.
    pub attempt: u32,
    /// The members of the comm, in the order of their ranks.
    pub members: Vec<CommMember>,
    /// This worker's rank.
    pub rank: u32,
    /// Whether every server that may hold blocks has a worker among the members.
    pub beside_all: bool,
    /// The step, with all its blocks; of those that owners of tiles know, only the ones that the worker's
    /// server holds.
    pub report: StepReport,
}

/// From a server to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// To [`ToServer::Hello`].
    Welcome(Welcome),
    /// It failed.
    Failed(Error),
    /// It is done.
    Done,
    /// To [`ToServer::Produce`].
    Producing {
        /// The run that was joined.
        run: RunNumber,
        /// The coordinator knows all that the rank did in the steps below this one; of a run with copies, it knows besides
        /// that these were made, or are needed no more.
        below: StepNumber,
        /// The arena to write to and its size, if memory is shared.
        arena: Option<(u32, u64)>,
    },
    /// To [`ToServer::Begin`].
    Begun {
        /// The demand, if the client does not know it yet.
        demand: Option<Demand>,
        /// Ranges for what was put in the step before, so that the same needs no further question.
        grants: Vec<Grant>,
        /// Something that went wrong since the last answer.
        trouble: Option<Error>,
    },
    /// To [`ToServer::Reserve`]; `None` if the policy is not to wait and nothing could be given up.
    Granted(Option<Grant>),
    /// To [`ToServer::Store`] and [`ToServer::SpaceStore`]: the arena to write to and its size, with its
    /// descriptor, if memory is shared.
    Storing(Option<(u32, u64)>),
    /// To [`ToServer::Place`]: where the bytes are held.
    Placed(Location),
    /// To [`ToServer::WhoAnswers`].
    AnswersFor {
        /// Servers, and the arena's number at each. One of them holds each block that is not lost.
        servers: Vec<(ServerId, u32)>,
    },
    /// To [`ToServer::Heal`].
    Healed {
        /// Those with which the group goes on.
        kept: Vec<ServerId>,
        /// Those which it gives up.
        given_up: Vec<ServerId>,
    },
    /// To [`ToServer::Attach`].
    Attached {
        /// Names it.
        attachment: AttachmentId,
        /// The run and the step from which on it takes part; `None` before the first run.
        from: Option<(RunNumber, StepNumber)>,
    },
    /// A closed step.
    Step {
        /// The attachment it is for.
        attachment: AttachmentId,
        /// The step.
        report: Box<StepReport>,
    },
    /// The stream has ended.
    Ended {
        /// The attachment.
        attachment: AttachmentId,
        /// How many steps that it wanted were dropped after the last one it was told of.
        missed: u64,
    },
    /// The attachment's contract cannot be met, or its coordinator is gone.
    Detached {
        /// The attachment.
        attachment: AttachmentId,
        /// Why.
        error: Error,
    },
    /// To [`ToServer::OpenArena`], with a descriptor.
    Arena {
        /// Its size.
        bytes: u64,
        /// Names the mapping that is made of it.
        reader: u64,
    },
    /// To [`ToServer::Fetch`]: the bytes follow, dense and row-major.
    Data,
    /// To [`ToServer::SpaceFind`].
    Found {
        /// Whether the blocks are held, under the number of the question. If not, the answer only describes the field.
        held: bool,
        /// Which description of the field this is: one that was removed and put again has another.
        description: DescriptionNumber,
        /// The epoch in which it was told.
        term: Epoch,
        /// The field and the blocks.
        report: Box<FieldReport>,
    },
    /// To [`ToServer::FindBlocks`].
    Records {
        /// The blocks, in an order that stays.
        blocks: Vec<BlockRecord>,
        /// Whether there are more: then ask again.
        more: bool,
    },
    /// To [`ToServer::Status`]: JSON.
    Status(String),
    /// To [`ToServer::FindPipeline`].
    PipelineIs {
        /// The stream that it runs on.
        stream: String,
        /// Whether it is driven by ranks.
        driven: bool,
    },
    /// To [`ToServer::Drive`].
    Driven(DriveAnswer),
    /// To a worker: run this.
    Execute(Box<Execute>),
    /// To a question about a stream: another server coordinates it.
    AskInstead(ServerId),
    /// To a question about the space: the server does not own what was asked for, as far as it knows which members there
    /// are. Whoever asks reads the connection file again.
    NotOwned,
    /// To a rank that joins or begins a step, or who puts into the space: the server leaves the group, and takes nothing.
    /// To a rank that goes elsewhere: it is let go.
    Leaves,
}

impl PutBlock {
    /// The most bytes that a record of it takes, encoded: numbers of full length.
    pub fn told_bytes_max(&self) -> usize {
        let inline = match &self.bytes {
            Bytes::Inline(bytes) => bytes.len(),
            Bytes::Granted { .. } | Bytes::Payload | Bytes::Placed(_) => 0,
        };
        // Four numbers a dimension (shape, offset and both ghosts) and all that has a fixed size.
        128 + 4 * 10 * self.extent.ndim() + inline
    }
}

/// What a block's key is made of on the server's side.
pub fn key_of(rank: u32, block: &PutBlock) -> BlockKey {
    BlockKey { rank, number: block.number }
}
