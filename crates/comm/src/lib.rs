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
//! - What has arrived and is not yet received is bounded ([`EARLY_MAX`], [`UNREAD_MAX`]); beyond that the
//!   sender's connection is not read, and the sender waits.
//!
//! Inside, lowest first: `mailbox` is the messages that wait, `peers` who is connected how, `hub` all of that under one lock,
//! `reader` reads one connection, `dial` makes one. What is said is [`forebay_wire::comm`].

mod collectives;
mod comm;
mod dial;
mod endpoint;
mod hub;
mod mailbox;
mod members;
mod peers;
mod point;
mod reader;
mod window;

pub use comm::{Comm, TIMEOUT_DEFAULT};
pub use endpoint::{Endpoint, EndpointOptions};
pub use mailbox::{EARLY_MAX, UNREAD_MAX};
