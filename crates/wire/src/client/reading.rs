//! Blocks, as whoever reads them finds and gets them: a consumer, a user of the space, or a pipeline's worker.

use crate::protocol::speaks;
use forebay_core::block::BlockRecord;
use forebay_core::ids::{Epoch, ServerId, StepId};
use forebay_core::region::{Dims, Region};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a server lets a client wait at most until the group knows who holds what a dead server held.
pub const SUCCESSORS_PATIENCE: Duration = Duration::from_secs(5);

/// How many parts of blocks may be asked for at once.
pub const FETCHED_AT_ONCE_MAX: usize = 1024;

/// The part of a block that is fetched: every `step[d]`-th element of a box of the stored array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The first element in each dimension, in the stored array.
    pub offset: Dims,
    /// How many elements in each dimension.
    pub shape: Dims,
    /// Distance between them.
    pub step: Dims,
}

/// Bytes of a block that are asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    /// The arena.
    pub arena: u32,
    /// Where the block starts, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Its generation.
    pub generation: u64,
    /// Its extents as stored.
    pub stored: Dims,
    /// The size of an element, in bytes.
    pub element: u8,
    /// Which part.
    pub part: Part,
}

/// What a reader of blocks says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for an arena to map. Answer: [`Reply::Arena`], with its descriptor opened for reading.
    OpenArena {
        /// The arena.
        arena: u32,
        /// The term in which the client was told of what it looks at there.
        term: Epoch,
    },
    /// Does not have an arena mapped any more. Not answered.
    CloseArena {
        /// As in [`Reply::Arena`].
        reader: u64,
    },
    /// Asks for bytes of a block that this client holds. Answer: [`Reply::Data`] with a payload.
    Fetch(Fetch),
    /// The same of several blocks, at most [`FETCHED_AT_ONCE_MAX`] small parts: their bytes come one after the other.
    FetchMany(Vec<Fetch>),
    /// Asks an owner of tiles for the blocks of a step that this client holds. Answer: [`Reply::Records`].
    FindBlocks {
        /// The step.
        id: StepId,
        /// The field's name.
        field: String,
        /// Those that meet this region, or all that the owner knows.
        region: Option<Region>,
        /// How many to leave out, since they were told already.
        skip: u64,
    },
    /// A server is gone: who are the successors that hold this arena of it? Answer: [`Reply::Successors`], once the group
    /// knows.
    FindSuccessors {
        /// The server.
        server: ServerId,
        /// The arena's number there.
        arena: u32,
    },
    /// Asks a successor whether it holds a block of an arena. Answer: [`Reply::Done`].
    HasBlock {
        /// The arena's number there.
        arena: u32,
        /// Where the block starts, in bytes.
        offset: u64,
        /// Its length, in bytes.
        bytes: u64,
        /// Its generation.
        generation: u64,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is so.
    Done,
    /// To [`Request::OpenArena`], with a descriptor.
    Arena {
        /// Its size.
        bytes: u64,
        /// Names the mapping that is made of it.
        reader: u64,
    },
    /// To [`Request::Fetch`] and [`Request::FetchMany`]: the bytes follow, dense and row-major.
    Data,
    /// To [`Request::FindBlocks`].
    Records {
        /// The blocks, in an order that stays.
        blocks: Vec<BlockRecord>,
        /// Whether there are more: then ask again.
        more: bool,
    },
    /// To [`Request::FindSuccessors`].
    Successors {
        /// Servers, and the arena's number at each. One of them holds each block that is not lost.
        servers: Vec<(ServerId, u32)>,
    },
}

speaks!(Reading: Request => Reply);
