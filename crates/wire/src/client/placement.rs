//! A rank of a simulation and a server that is not its home but is to hold blocks of it. The rank's home is told of each
//! block, and where it is.

use super::block::BytesLocation;
use crate::protocol::speaks;
use forebay_core::block::Location;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{Durability, Policy};
use serde::{Deserialize, Serialize};

/// What a rank says to a server that holds blocks of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Begins: for which rank blocks are to be held. Answer: [`Reply::Opened`], with the arena's descriptor.
    Open {
        /// The stream.
        stream: String,
        /// The run that the rank joined at its home.
        run: RunNumber,
        /// The rank.
        rank: u32,
        /// What happens when memory cannot keep up.
        policy: Policy,
        /// How many other servers are to hold copies.
        copies: u32,
        /// When they are made.
        durability: Durability,
    },
    /// Holds bytes for a block that the rank's home is then told of. Answer: [`Reply::Placed`].
    Place {
        /// The step.
        step: StepNumber,
        /// How many bytes.
        size: u64,
        /// Where they are: granted, or the payload.
        bytes: BytesLocation,
    },
    /// The rank's home knows all blocks of a step that are here. Answered with [`Reply::Done`] if it has a request number, once
    /// the copies are made that there are to be.
    End {
        /// The step.
        step: StepNumber,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// To [`Request::Open`]: the arena to write to and its size in bytes, if memory is shared.
    Opened(Option<(u32, u64)>),
    /// To [`Request::Place`]: where the bytes are held.
    Placed(Location),
}

/// What the server tells unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The server leaves the group, and takes nothing more. The connection ends.
    LetGo,
}

speaks!(Placement: Request => Reply, events Event);
