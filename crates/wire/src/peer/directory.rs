//! About the blocks of large runs: between the home of a rank, the owners of tiles, and the servers that hold blocks.

use crate::protocol::speaks;
use forebay_core::error::Error;
use forebay_core::ids::{BlockKey, StepId};
use forebay_core::steps::FieldReport;
use serde::{Deserialize, Serialize};

/// What servers say about the directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// From a rank's home to owners and holders: what the rank put in a step. Answer: `Registered`.
    Register {
        /// Ties the answer to it.
        token: u64,
        /// The step.
        id: StepId,
        /// Blocks that touch tiles which the receiver owns.
        owned: Vec<FieldReport>,
        /// Blocks that the receiver holds.
        held: Vec<FieldReport>,
    },
    /// To `Register`.
    Registered {
        /// The question's token.
        token: u64,
        /// Blocks that were refused, by field.
        refused: Vec<(String, BlockKey)>,
        /// Why the first of them was.
        error: Option<Error>,
    },
    /// These blocks were refused by another owner. Answer: `Unregistered`.
    Unregister {
        /// Ties the answer to it.
        token: u64,
        /// The step.
        id: StepId,
        /// The blocks, by field.
        blocks: Vec<(String, BlockKey)>,
    },
    /// To `Unregister`.
    Unregistered {
        /// The question's token.
        token: u64,
    },
    /// To the server that owns tiles now whose owner has gone: the sender holds these blocks, which touch them.
    HandOver {
        /// The step.
        id: StepId,
        /// The blocks, by field.
        owned: Vec<FieldReport>,
    },
}

speaks!(Directory: Message);
