//! Processes that open a communicator by its name, and the server at which they meet.

use crate::protocol::speaks;
use forebay_core::ids::ServerId;
use serde::{Deserialize, Serialize};

/// How many ranks a communicator may have that is opened by its name.
pub const SIZE_MAX: u32 = 4096;

/// What stands for a communicator where servers share out streams among them by name. No stream is called so.
pub fn place_of(name: &str) -> String {
    format!("comm\n{name}")
}

/// What a process says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// It comes as a rank. Answered when all ranks have come. Answer: [`Reply::Met`] or [`Reply::Redirect`].
    Come {
        /// The communicator.
        name: String,
        /// Which of its ranks this process is.
        rank: u32,
        /// How many there are.
        size: u32,
        /// Where the others reach it.
        addresses: Vec<String>,
        /// How long to wait for them.
        patience_ms: u64,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// All have come.
    Met {
        /// The communicator's number.
        id: u64,
        /// Where each rank is reached.
        members: Vec<Vec<String>>,
    },
    /// Another server is where they meet.
    Redirect(ServerId),
}

speaks!(Meeting: Request => Reply);
