//! A reader and the server that coordinates its stream.

use crate::protocol::speaks;
use forebay_core::contract::Needs;
use forebay_core::error::Error;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, HeldStep, Start, StepReport};
use serde::{Deserialize, Serialize};

/// What a reader attaches with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// The stream.
    pub stream: String,
    /// What is needed.
    pub needs: Needs,
    /// How many steps may be told before one is released.
    pub window: u32,
    /// With which step to begin.
    pub start: Start,
    /// Whether to go on with the next run when one ends.
    pub follow: bool,
    /// What a reader that comes back still holds.
    pub held: Vec<HeldStep>,
    /// What names it, if it comes back.
    pub back: Option<AttachmentId>,
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
    },
    /// Detaches. Answer: [`Reply::Done`].
    Detach {
        /// The attachment.
        attachment: AttachmentId,
        /// Steps of which arrays live on: they stay held.
        held: Vec<(RunNumber, StepNumber)>,
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
    },
    /// To [`Request::Attach`]: another server coordinates the stream.
    Redirect(ServerId),
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
}

speaks!(Consumer: Request => Reply, events Event);
