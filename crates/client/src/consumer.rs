//! Consumers: readers of a stream, which attach and detach at any moment.
//!
//! From the bottom up: [`options`]; [`attach`], at the server that coordinates the stream; [`handle`]; [`failover`], where that
//! server dies; [`next_step`].

mod attach;
mod failover;
mod handle;
mod next_step;
mod options;

pub use handle::Consumer;
pub use options::ConsumerOptions;
