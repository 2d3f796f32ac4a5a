//! What ranks that drive a pipeline want of it. It goes from a rank to its home server, and from there to the server that
//! coordinates the pipeline.

use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use serde::{Deserialize, Serialize};

/// How many steps of a pipeline that is driven may be active at once.
pub const DRIVEN_WINDOW: usize = 4;

/// What a rank that drives a pipeline wants of it, and all that the pipeline's coordinator has to know of the rank: another
/// server, that has taken the coordinator's place, knows no more than this.
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
