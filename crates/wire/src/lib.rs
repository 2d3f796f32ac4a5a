//! The wire protocol: what processes of a group say to each other, byte by byte. Sans-IO.
//!
//! A connection begins with the [`handshake`], which proves that both sides hold the group's secret and
//! speak one version. Then [`frame`]s flow both ways: a header of fixed size, a body of bounded size that
//! is a [`message`], and possibly raw payload bytes that are nobody's to parse. Over TCP, frames travel
//! [`seal`]ed.

pub mod datagram;
pub mod frame;
pub mod handshake;
pub mod message;
pub mod peer;
pub mod seal;

/// The protocol's version: both sides must speak the same.
pub const VERSION: u16 = 1;
