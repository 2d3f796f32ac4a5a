//! A pipeline's worker and the server beside it.

use crate::execution::Execute;
use crate::protocol::speaks;
use forebay_core::contract::Needs;
use serde::{Deserialize, Serialize};

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The worker's code is loaded and it listens for its comm here. Answer: [`Reply::Done`].
    Ready {
        /// Where the other workers reach it.
        addresses: Vec<String>,
        /// Needs that the pipeline's code declares, if it does.
        needs: Option<Needs>,
    },
    /// The worker ran a step. Not answered.
    Executed {
        /// Which execution.
        execution: u64,
        /// `None`, or the traceback.
        error: Option<String>,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// No view of the step's blocks is left in the worker: their memory may be used again. Not answered.
    Released {
        /// Which execution.
        execution: u64,
    },
    /// The worker's code could not be loaded. Answer: [`Reply::Done`]; the worker ends.
    Failed {
        /// The traceback.
        error: String,
    },
}

/// What the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It took note.
    Done,
}

/// What a worker is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Run this.
    Execute(Box<Execute>),
}

speaks!(Worker: Request => Reply, events Event);
