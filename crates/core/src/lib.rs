//! The sans-IO core of Forebay: plain state machines and pure functions.
//!
//! Nothing here knows of sockets, clocks, threads or shared memory. The same code runs in a server, in
//! unit tests and in simulations of many servers.
//!
//! The modules, low to high: each uses only those before it.
//!
//! - `server_id`: the number of a server;
//! - [`error`]: what went wrong, of which kind, which server it is about, and what helps;
//! - [`seeded`]: bugs that tests seed on purpose;
//! - [`ids`]: names and numbers of servers, streams, runs, steps and blocks;
//! - [`view`]: the members of a group at an epoch, and hashes that spread work over them;
//! - [`dtype`]: the types of elements;
//! - [`exact_sum`]: sums of doubles that lose nothing;
//! - [`region`]: boxes of cells;
//! - [`c_order`]: indexes in C order, and consecutive elements as boxes;
//! - [`coverage`]: what of a box is missing;
//! - [`assign`]: which blocks are whose, among the ranks of a parallel reader;
//! - [`hilbert`]: the curve that keeps near tiles near;
//! - [`attr`]: attributes of streams and fields;
//! - [`block`]: one rank's part of a field, and where its bytes lie;
//! - [`contract`]: what a field is, and what a reader needs of it;
//! - [`shards`]: which member owns which shard of the directory;
//! - [`home_assignment`]: which member the ranks of simulations have their home at;
//! - [`placement`]: which member holds a block;
//! - [`tiles`]: which member knows which part of a field;
//! - [`directory`]: the blocks of a field at a step, found by region;
//! - [`demand`]: what all readers of a stream need;
//! - [`cut`]: from which step on each demand holds;
//! - [`steps`]: a stream's runs, steps and readers, at its coordinator;
//! - [`agreement`]: how members agree on one value;
//! - [`lease`]: for how long a member may acknowledge;
//! - [`roster`]: all that members agree on about who they are;
//! - [`membership`]: one member's part in agreeing on the next roster.

pub mod agreement;
pub mod assign;
pub mod attr;
pub mod block;
pub mod c_order;
pub mod contract;
pub mod coverage;
pub mod cut;
pub mod demand;
pub mod directory;
pub mod dtype;
pub mod error;
pub mod exact_sum;
pub mod hilbert;
pub mod home_assignment;
pub mod identity;
pub mod ids;
pub mod lease;
pub mod membership;
pub mod parts;
pub mod placement;
pub mod region;
pub mod roster;
pub mod seeded;
pub mod selection;
mod server_id;
pub mod shards;
#[cfg(test)]
mod simulation;
pub mod stats;
pub mod steps;
pub mod tiles;
pub mod view;

pub use error::{Error, ErrorKind, Result};
