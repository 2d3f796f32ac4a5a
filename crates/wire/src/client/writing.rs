//! Memory for blocks, as whoever writes them asks for it: a rank at its home or at another server, or a user of the space.

use super::block::Grant;
use crate::protocol::speaks;
use serde::{Deserialize, Serialize};

/// What a writer says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for a range. Answer: [`Reply::Granted`].
    Reserve {
        /// How many bytes.
        bytes: u64,
        /// How long the client will wait, in milliseconds.
        patience_ms: u64,
    },
    /// Gives an unused range back. Not answered.
    Abort {
        /// The arena.
        arena: u32,
        /// The range's start.
        offset: u64,
        /// The grant's generation.
        generation: u64,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Reserve`]; `None` if the policy is not to wait and nothing could be given up.
    Granted(Option<Grant>),
}

speaks!(Writing: Request => Reply);
