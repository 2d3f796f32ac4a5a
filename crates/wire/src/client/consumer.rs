//! A reader and the server that coordinates its stream.

use crate::evaluation::TextValue;
use crate::protocol::speaks;
use crate::subscription::{Change, Listen};
use forebay_core::contract::{Needs, NeedsByStep};
use forebay_core::error::Error;
use forebay_core::identity::Identity;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::{
    AttachmentId, CohortRank, HeldStep, RunEnd, Sharer, Situation, Start, StepReport, Take,
};
use forebay_query::subscription::{Definition, Event as Fired};
use forebay_query::value::Unknown;
use serde::{Deserialize, Serialize};

/// What a reader attaches with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// The stream.
    pub stream: String,
    /// What is needed: of a reader that comes back, with the changes that it knows of.
    pub needs: NeedsByStep,
    /// How many steps may be told before one is released.
    pub window: u32,
    /// With which step to begin.
    pub start: Start,
    /// Whether to go on with the next run when one ends.
    pub follow: bool,
    /// Which of the steps that wait for it the reader is told of.
    pub take: Take,
    /// Who the reader is.
    pub reader: Identity,
    /// What a reader that comes back still holds.
    pub held: Vec<HeldStep>,
    /// The first step that it has given back after the last one with which it has finished, if it comes back.
    pub given_back: Option<(RunNumber, StepNumber)>,
    /// What names it, if it comes back.
    pub back: Option<AttachmentId>,
    /// For how many milliseconds it waits for the answer.
    pub patience_ms: u64,
    /// Which rank of a cohort it is, if it is one.
    pub cohort: Option<CohortRank>,
    /// How it shares steps with others of its name, if it does.
    pub sharer: Option<Sharer>,
    /// Whether others go on in its place if its connection ends: what it holds stays there for a while.
    pub is_followed: bool,
    /// The subscription of which it is told events, with the steps that these hold, if it is a subscriber.
    pub listen: Option<Listen>,
}

impl Attach {
    /// What one attaches with that comes for the first time, alone, and is told of the steps of one run, from the next on.
    pub fn new(stream: &str, needs: Needs, window: u32, reader: Identity) -> Attach {
        Attach {
            stream: stream.to_owned(),
            needs: needs.into(),
            window,
            start: Start::Next,
            follow: false,
            take: Take::All,
            reader,
            held: Vec::new(),
            given_back: None,
            back: None,
            patience_ms: 0,
            cohort: None,
            sharer: None,
            is_followed: false,
            listen: None,
        }
    }

    /// The same of a subscriber, which holds these steps as it comes.
    pub fn to_listen(
        stream: &str,
        window: u32,
        reader: Identity,
        held: Vec<HeldStep>,
        listen: Listen,
    ) -> Attach {
        let attach = Attach::new(stream, Needs::all(1), window, reader);
        Attach { follow: true, held, listen: Some(listen), ..attach }
    }
}

/// What a reader says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Attaches to a stream. Answer: [`Reply::Attached`] or [`Reply::Redirect`]; then steps are told as [`Event`]s.
    Attach(Box<Attach>),
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
        /// Whether the reader could not do with it what it wanted: others are given it, or the next of its name.
        gives_back: bool,
    },
    /// A reader that takes the newest step alone asks for it: the newest one that it was not told of, or the next that closes. One
    /// that shares steps on demand asks for the next. Answer: [`Reply::Done`], after the step if there is one.
    Next {
        /// The attachment.
        attachment: AttachmentId,
        /// Whether it has one that it was told of too late to give it to its user: once it is told of a newer one it releases
        /// that.
        has_spare: bool,
        /// The last step that it was told of: of the ranks of a cohort the first that asks has the next one chosen for all.
        after: Option<(RunNumber, StepNumber)>,
    },
    /// Asks what the reader waits for. Answer: [`Reply::Situation`].
    Look {
        /// The attachment.
        attachment: AttachmentId,
    },
    /// Changes its contract. Answer: [`Reply::Needed`], once it is agreed from which step on that holds.
    Need {
        /// The attachment.
        attachment: AttachmentId,
        /// What is needed.
        needs: Box<Needs>,
    },
    /// Evaluates a text at a step that it holds, where the blocks are. Answer: [`Reply::Evaluated`].
    Evaluate {
        /// The attachment.
        attachment: AttachmentId,
        /// The run.
        run: RunNumber,
        /// The step.
        step: StepNumber,
        /// The text.
        text: String,
    },
    /// Makes a subscription: the coordinator of its stream watches for it from the next step on. One of that name that is the same
    /// goes on. It ends with those who have made it or listen to it, unless it is to be kept. Answer: [`Reply::Subscribed`] or
    /// [`Reply::Redirect`].
    Subscribe {
        /// The stream.
        stream: String,
        /// The subscription.
        definition: Box<Definition>,
    },
    /// Waits until it is agreed from which step on a subscription watches. Answer: [`Reply::Needed`] or [`Reply::Redirect`].
    AwaitSubscription {
        /// The stream.
        stream: String,
        /// Its name.
        name: String,
    },
    /// Does something with a subscription. Answer: [`Reply::Done`] or [`Reply::Redirect`].
    ChangeSubscription {
        /// The stream.
        stream: String,
        /// Its name.
        name: String,
        /// What.
        change: Change,
    },
    /// Detaches. Answer: [`Reply::Done`].
    Detach {
        /// The attachment.
        attachment: AttachmentId,
        /// Steps of which arrays live on: they stay held.
        held: Vec<(RunNumber, StepNumber)>,
        /// Whether it has failed, and is to be taken for one that has died.
        failed: bool,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// To [`Request::Attach`].
    Attached {
        /// Names it.
        attachment: AttachmentId,
        /// The run and the step from which on it takes part; `None` before the first run.
        from: Option<(RunNumber, StepNumber)>,
        /// The hosts of all ranks of its cohort, if it is one.
        hosts: Vec<String>,
        /// Its number among those with whom it shares steps, if it does.
        number: Option<u32>,
    },
    /// To [`Request::Attach`] of a subscriber.
    Listening {
        /// Names it.
        attachment: AttachmentId,
        /// Tells its subscription from earlier ones of the same name.
        creation: u64,
        /// The number of the last event before those that it is told of.
        last: u64,
    },
    /// To [`Request::Attach`]: another server coordinates the stream.
    Redirect(ServerId),
    /// To [`Request::Need`].
    Needed {
        /// The run and the step from which on it holds; `None` of one that waits for a run.
        from: Option<(RunNumber, StepNumber)>,
    },
    /// To [`Request::Look`].
    Situation(Box<Situation>),
    /// To [`Request::Evaluate`].
    Evaluated(Box<TextValue>),
    /// To [`Request::Subscribe`].
    Subscribed {
        /// Tells it from earlier ones of the same name.
        creation: u64,
        /// Whether it was there before.
        existed: bool,
        /// The number of its last event; 0 if there was none.
        last: u64,
        /// The number of the last event with which a subscriber has finished.
        finished: u64,
    },
}

/// What a reader is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A closed step.
    Step {
        /// The attachment it is for.
        attachment: AttachmentId,
        /// The step.
        report: Box<StepReport>,
    },
    /// Its run is over, and it was told of all that there was.
    Ended {
        /// The attachment.
        attachment: AttachmentId,
        /// How the run ended.
        end: Box<RunEnd>,
    },
    /// To a subscriber: an event.
    Fired {
        /// The attachment it is for.
        attachment: AttachmentId,
        /// The event.
        event: Box<Fired>,
        /// How many events before it are not remembered any more.
        missed: u64,
        /// Its step, which it holds; `None` if that is held no longer.
        report: Option<Box<StepReport>>,
    },
    /// To a subscriber: whether what is watched holds was not known at a step. Told once for each sort of reason.
    Unknown {
        /// The attachment it is for.
        attachment: AttachmentId,
        /// The run.
        run: RunNumber,
        /// The step.
        step: StepNumber,
        /// Why.
        why: Box<Unknown>,
    },
    /// The attachment's contract cannot be met, or its coordinator is gone; of a subscriber that its subscription has ended.
    Detached {
        /// The attachment.
        attachment: AttachmentId,
        /// Why.
        error: Error,
    },
}

speaks!(Consumer: Request => Reply, events Event);
