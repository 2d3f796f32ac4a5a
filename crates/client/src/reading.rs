//! Reading blocks, wherever they are: what consumers, workers and the space share. Knows nothing of how steps come.
//!
//! From the bottom up:
//!
//! - [`buffers`], [`pins`], [`share`]: memory that is used again, the bound on what arrays keep, which blocks are a worker's;
//! - [`readable_arena`], [`server_pool`]: the servers that hold blocks, and their arenas;
//! - [`successors`], [`block_access`]: getting at a block's bytes, also when the server is gone that held it;
//! - [`block_lookup`], [`remote`], [`assemble`]: finding the blocks of a field, fetching parts of many, and filling a region from them;
//! - [`seen`]: what of these blocks a reader's contract shows it;
//! - [`held_steps`], [`statics`], [`block_view`], [`block_bytes`], [`step`]: a step as its reader holds it, the static fields of its
//!   run, and the bytes of their blocks;
//! - [`rows`]: blocks without a place in a global array, one after another;
//! - [`seat`], [`mine`]: which of its blocks are this rank's, of a parallel reader;
//! - [`block_list`]: blocks found once, and shown one by one;
//! - [`evaluate`]: what an expression gives at a step.

pub(crate) mod assemble;
pub(crate) mod block_access;
mod block_bytes;
pub(crate) mod block_list;
pub(crate) mod block_lookup;
pub(crate) mod block_view;
pub(crate) mod buffers;
mod evaluate;
pub(crate) mod held_steps;
mod mine;
pub(crate) mod pins;
pub(crate) mod readable_arena;
pub(crate) mod remote;
mod rows;
pub(crate) mod seat;
pub(crate) mod seen;
pub(crate) mod server_pool;
pub(crate) mod share;
pub(crate) mod statics;
pub(crate) mod step;
pub(crate) mod successors;
