//! Consumers: readers of a stream, which attach and detach at any moment.
//!
//! From the bottom up: [`rank`] and [`sharer`], what a reader says of itself that is not alone; [`attach`], at the server that coordinates
//! the stream; [`handle`]; [`failover`], where that server dies; [`told`], what the coordinator tells; [`newest`],
//! [`on_demand`] and [`next_step`], waiting for that; [`lateness`], why none came; [`need`], what is needed changes.

mod attach;
mod failover;
mod handle;
mod lateness;
mod need;
mod newest;
mod next_step;
mod on_demand;
mod rank;
mod sharer;
mod told;

pub use handle::Consumer;
