//! About evaluations of expressions: between the servers that hold something of the fields. They form a binary tree for each
//! inquiry.

use crate::evaluation::{Answers, Inquiry};
use crate::protocol::speaks;
use forebay_core::error::Error;
use serde::{Deserialize, Serialize};

/// What servers say about evaluations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Answer this for all of these shares: the first is the receiver's, the others it passes on. Answer: `Answers`.
    Inquire {
        /// Ties the answer to it.
        token: u64,
        /// What is asked.
        inquiry: Box<Inquiry>,
    },
    /// To `Inquire`.
    Answers {
        /// The question's token.
        token: u64,
        /// The answers, or why there are none.
        result: Box<Result<Answers, Error>>,
    },
}

speaks!(Evaluation: Message);
