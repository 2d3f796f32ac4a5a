//! The wire: what processes of a group say to each other, byte by byte. Sans-IO.
//!
//! A connection begins with the [`handshake`], which proves that both sides hold the group's secret and speak one version,
//! and with a greeting ([`connection`]), which says in which role the one that has dialled speaks. Then [`frame`]s flow both
//! ways: a header of fixed size, a body of bounded size that is a message of one [`protocol`], and possibly raw payload bytes
//! that are nobody's to parse. Over TCP, frames travel [`seal`]ed.
//!
//! - [`client`]: the protocols between clients and servers, one for each role;
//! - [`peer`]: the protocols between servers, one for each component;
//! - [`comm`]: the protocol between the workers of a pipeline;
//! - [`request`]: which answer belongs to which request of one connection;
//! - [`execution`], [`drive`]: what several of them say of pipelines;
//! - [`evaluation`], [`subscription`]: what several of them say of expressions and subscriptions;
//! - [`datagram`]: what servers say past connections;
//! - `testing`: values of all messages, for tests (feature `testing`).

pub mod client;
pub mod comm;
pub mod connection;
pub mod datagram;
pub mod drive;
pub mod evaluation;
pub mod execution;
pub mod frame;
pub mod handshake;
pub mod peer;
pub mod protocol;
pub mod request;
pub mod seal;
pub mod subscription;
#[cfg(feature = "testing")]
pub mod testing;

/// The protocol's version: both sides must speak the same.
pub const VERSION: u16 = 5;
