//! A rank of a simulation and its home server.

use super::block::{Grant, PutBlock};
use crate::drive::{Drive, DriveAnswer};
use crate::protocol::speaks;
use forebay_core::attr::{Attr, Attrs};
use forebay_core::block::Location;
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::error::Error;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::stats::Stats;
use forebay_core::steps::{Joining, RankCounts, Rejoin};
use serde::{Deserialize, Serialize};

/// What a rank says to its home server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Joins a stream as one rank. Answer: [`Reply::Joined`], with the arena's descriptor; or [`Reply::LetGo`].
    Join {
        /// The stream.
        stream: String,
        /// The rank.
        joining: Box<Joining>,
        /// How it comes back, if it does.
        back_to: Option<Rejoin>,
    },
    /// The rank has come back, and has told all that it had to: this server is its home now. A connection that ends before is
    /// one that the rank has given up, and not the rank's death. Not answered.
    Settle,
    /// Offers a field, or changes its shape from the next step on. Answer: [`Reply::Done`].
    Define(Field),
    /// Sets an attribute, for the rest of the run. Answer: [`Reply::Done`].
    SetAttr {
        /// The field; `None`: of the stream itself.
        field: Option<String>,
        /// Its name.
        key: String,
        /// Its values.
        attr: Attr,
    },
    /// Begins a step. Answer: [`Reply::Begun`]; or [`Reply::LetGo`].
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
    /// The rank began a step without a question, by the word that it shares with its home. Told where something of the stream
    /// is wanted at the step: of this rank (the step before, which brought blocks of a few bytes only, was taken whole), or of
    /// others alone. Not answered.
    BeganAlone {
        /// The step.
        step: StepNumber,
        /// Physical time.
        time: f64,
        /// The rank has ended it, too: nothing of the rank was wanted.
        ended: bool,
    },
    /// Publishes a block. Answered with [`Reply::Done`] or [`Reply::Placed`] if it has a request number; otherwise a failure
    /// comes with the answer to the next `Begin` or `Flush`.
    Put(PutBlock),
    /// Ends the step. Answered with [`Reply::Done`] if it has a request number, once the copies are made that there are to be.
    End {
        /// The step.
        step: StepNumber,
        /// How many blocks were put; a check that none was lost.
        blocks: u64,
        /// Whether something did not fit and was dropped by policy.
        dropped: bool,
        /// Of fields, the statistics of blocks that were not staged as they are, where those of the whole field are wanted.
        stats: Vec<(String, Stats)>,
        /// What the rank says of the step.
        attrs: Attrs,
    },
    /// Answer: [`Reply::Done`] when all that was put before is held, or what failed.
    Flush,
    /// Closes this rank of the stream; what it has counted. Answer: [`Reply::Done`], once other servers know it, too.
    Close(RankCounts),
    /// Gives this rank up without closing the stream, as if its process had ended; it writes to no memory any more. Answer:
    /// [`Reply::Done`].
    Abandon,
    /// The rank, which is between two steps, goes on at another server. Answer: [`Reply::LetGo`], then the connection closes.
    Move,
    /// The rank drives a pipeline. Answer: [`Reply::Driven`], while other questions are answered.
    Drive(Box<Drive>),
}

/// What a home server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// To [`Request::Join`].
    Joined {
        /// The run that was joined.
        run: RunNumber,
        /// The coordinator knows all that the rank did in the steps below this one; of a run with copies, it knows besides
        /// that these were made, or are needed no more.
        below: StepNumber,
        /// The arena to write to and its size in bytes, if memory is shared.
        arena: Option<(u32, u64)>,
    },
    /// To [`Request::Begin`].
    Begun {
        /// The demand, if the client does not know it yet.
        demand: Option<Demand>,
        /// Ranges for what was put in the step before, so that the same needs no further question.
        grants: Vec<Grant>,
        /// Something that went wrong since the last answer.
        deferred: Option<Error>,
    },
    /// To [`Request::Put`] of a block that several servers hold: where.
    Placed(Location),
    /// The server leaves the group and takes nothing, or the rank has moved: it goes on at another server.
    LetGo,
    /// To [`Request::Drive`].
    Driven(DriveAnswer),
}

/// What a home server tells a rank unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The server leaves the group: the rank, which is between two steps, goes on at another server. The connection ends.
    LetGo,
}

speaks!(Producer: Request => Reply, events Event);
