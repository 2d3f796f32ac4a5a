//! Producers: one rank of a simulation.
//!
//! [`rank`] has the handle, and the other files have its calls. From the bottom up:
//!
//! - [`block`], [`species`], [`block_bytes`]: what the user gives, and the bytes of a block;
//! - [`stored_block`], [`replay_log`], [`home_choice`], [`outstanding`], [`fast_path`], [`staging`], [`state`]: what a rank
//!   remembers;
//! - [`rank`]: the handle, its locks, its home server;
//! - [`publish`]: telling the home server of blocks;
//! - [`failover`]: what happens when the home server dies or leaves, or another server joins. The calls above enter it by its
//!   functions `on_...`, and by `resume_staging` and `rehome_to_joined`, which each step's begin calls;
//! - [`home_call`]: questions to the home server, whichever that is;
//! - the normal path of a rank: [`join`], [`declare`], [`begin`], [`targets`], [`put`], [`allocate`], [`put_async`], [`end`],
//!   [`close`].

mod allocate;
mod begin;
mod block;
mod block_bytes;
mod close;
mod declare;
mod end;
mod failover;
mod fast_path;
mod home_call;
mod home_choice;
mod join;
mod outstanding;
mod publish;
mod put;
mod put_async;
mod rank;
mod replay_log;
mod species;
mod staging;
mod state;
mod stored_block;
mod targets;

pub use block::{Allocation, Block};
pub use rank::Producer;
