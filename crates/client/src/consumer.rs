//! Consumers: readers of a stream, which attach and detach at any moment.
//!
//! From the bottom up: [`attach`], at the server that coordinates the stream; [`handle`]; [`failover`], where that
//! server dies; [`next_step`].

mod attach;
mod failover;
mod handle;
mod next_step;

pub use handle::Consumer;
