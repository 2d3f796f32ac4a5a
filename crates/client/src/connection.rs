//! Finding a group and talking to its servers. Knows nothing of streams, steps or blocks.
//!
//! From the bottom up:
//!
//! - [`deadline_mutex`]: locks that are waited for until a deadline;
//! - [`group`]: the connection file, and what it tells of the members;
//! - [`rpc`], [`receive`], [`call`]: one connection, its sending half, its receiving half, and requests that use both;
//! - [`connect`]: how one is made;
//! - [`probe`]: whether servers live, and how long to try again while a group gives up those that do not;
//! - [`coordinator`]: finding the server that coordinates a stream;
//! - [`connection_pool`]: one connection to each server;
//! - [`fan_out`]: one request to many servers at once.

pub(crate) mod call;
pub(crate) mod connect;
pub(crate) mod connection_pool;
pub(crate) mod coordinator;
pub(crate) mod deadline_mutex;
pub(crate) mod fan_out;
pub(crate) mod group;
pub(crate) mod probe;
pub(crate) mod receive;
pub(crate) mod rpc;
