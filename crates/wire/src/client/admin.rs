//! An administrator, or a tool, and any server.

use crate::execution::PipelineSpec;
use crate::protocol::speaks;
use forebay_core::ids::ServerId;
use serde::{Deserialize, Serialize};

/// What an administrator says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Answer: [`Reply::Status`].
    Status,
    /// Creates a pipeline on every server. Answer: [`Reply::Done`] when every worker is ready, or [`Reply::Redirect`]. The
    /// pipeline ends with the connection until then.
    CreatePipeline {
        /// What it is.
        spec: Box<PipelineSpec>,
        /// How long its workers may take to be ready, in milliseconds.
        patience_ms: u64,
    },
    /// Ends a pipeline. Answer: [`Reply::Done`].
    DestroyPipeline {
        /// Its name.
        name: String,
    },
    /// Asks for a pipeline of this name. Answer: [`Reply::Pipeline`], also from servers that only have a worker of it.
    FindPipeline {
        /// Its name.
        name: String,
    },
    /// Asks what is needed of a stream. Answer: [`Reply::Contracts`], or [`Reply::Redirect`].
    Contracts {
        /// Its name.
        stream: String,
    },
    /// Asks for the subscriptions that the server coordinates. Answer: [`Reply::Subscriptions`].
    Subscriptions {
        /// How many to leave out, since they were told already.
        skip: u64,
    },
    /// The server leaves its group, once all that it holds is held elsewhere; then it ends. Answer: [`Reply::Done`].
    LeaveGroup {
        /// Whether what no other server can hold is given up.
        discard: bool,
        /// How long that may take, in milliseconds.
        patience_ms: u64,
    },
    /// The group has lost half of its servers or more, and is to go on with those that this one reaches. Answer:
    /// [`Reply::Healed`].
    Heal {
        /// Whether to do so, or only to tell with whom it would go on.
        force: bool,
    },
    /// Ends the server. Answer: [`Reply::Done`], then the connection closes.
    Shutdown,
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// To [`Request::Status`]: JSON.
    Status(String),
    /// To [`Request::FindPipeline`].
    Pipeline {
        /// The stream that it runs on.
        stream: String,
        /// Whether it is driven by ranks.
        driven: bool,
    },
    /// To [`Request::Heal`].
    Healed {
        /// Those with which the group goes on.
        kept: Vec<ServerId>,
        /// Those which it gives up.
        given_up: Vec<ServerId>,
    },
    /// To [`Request::Contracts`]: JSON.
    Contracts(String),
    /// To [`Request::Subscriptions`]: JSON of some, and whether there are more.
    Subscriptions {
        /// A list.
        list: String,
        /// Whether there are more: then ask again.
        more: bool,
    },
    /// To [`Request::CreatePipeline`] and [`Request::Contracts`]: another server coordinates the stream.
    Redirect(ServerId),
}

speaks!(Admin: Request => Reply);
