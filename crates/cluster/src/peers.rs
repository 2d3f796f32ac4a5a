//! Connections between the servers of a group. Each server dials each other one, and tells it what it has to over that
//! connection; it is told over the connection that the other one dialled.
//!
//! - [`dialling`]: a connection to another server;
//! - [`connections`]: what waits to be told to each other server;
//! - [`session`]: what another server tells this one;
//! - [`inbound`]: all is handled that the dead among them had said.

pub mod connections;
pub mod dialling;
pub(crate) mod inbound;
mod session;

pub use connections::{Peers, SendOutcome};
pub(crate) use connections::{outlast_outages, start};
pub(crate) use inbound::Inbound;
