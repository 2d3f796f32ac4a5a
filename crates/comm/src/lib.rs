//! Comm: the communicator of the worker processes of one pipeline, in one view.
//!
//! An [`Endpoint`] is one process's door: it listens, keeps one thread for all its connections and lives as
//! long as the process does. A [`Comm`] is one execution's set of ranks on top of it; it is cheap to open,
//! and connections made for one are kept for the next. There is no MPI inside, so ranks may differ from one
//! comm to the next, and the death of one is an error for the others, never a hang.
//!
//! What holds:
//!
//! - Every wait ends by the comm's deadline, with `Timeout` that names what was awaited and from whom.
//! - What involves a rank that died, closed the comm or cannot be reached fails at once with `Unreachable`
//!   that names it; messages that it sent before are still received. A collective involves every rank.
//! - Messages of one thread to one rank with one tag arrive in the order they were sent.
//! - What has arrived and is not yet received is bounded ([`EARLY_MAX`], [`UNREAD_MAX`]); beyond that nothing is
//!   taken, and the sender waits.
//! - Messages of processes of one host get on while these are in a call, as with MPI; who sleeps in one is woken.
//!
//! Inside, lowest first: `shared` is the memory of two processes, `operation`, `reduction` and `target` what happens to bytes that come,
//! `kind` what the ranks of a collective agree on, `mail`
//! who receives which message, `peers` who is connected how, `channel` takes what comes through shared memory, `hub` is all of that
//! under one lock. `meet` agrees on shared memory, `reader` reads one socket, `dial` makes one. `progress` waits; `sending` and
//! `receiving` are single messages, `collectives` what all ranks do together, `compositing` how they put pictures together. What is said is [`forebay_wire::comm`].

mod channel;
mod collectives;
mod comm;
mod compositing;
mod dial;
mod endpoint;
mod hub;
mod kind;
mod mail;
mod meet;
mod members;
mod nonblocking;
mod operation;
mod peers;
mod progress;
mod reader;
mod receiving;
mod reduction;
mod request;
mod route;
mod sending;
mod shared;
#[cfg(test)]
mod simulation;
mod spare;
mod target;
mod task;
mod window;

pub use comm::{Comm, Status, TIMEOUT_DEFAULT};
pub use compositing::visibility::{Bounds, View, front_to_back};
pub use compositing::{Channel, Layer};
pub use endpoint::{Endpoint, EndpointOptions};
pub use mail::{EARLY_MAX, UNREAD_MAX};
pub use operation::{Datatype, Operation};
pub use reduction::{Function, Reduction};
pub use request::{Done, Request};
pub use target::Memory;
