//! What clients and servers say to each other: one protocol for each role, and two that several roles share, for writing
//! blocks and for reading them.
//!
//! A request whose frame has a number is answered, with the same number; without one it is only told. Events are told by the
//! server, without being asked for.

pub mod admin;
pub mod block;
pub mod consumer;
pub mod meeting;
pub mod placement;
pub mod producer;
pub mod reading;
pub mod space;
pub mod worker;
pub mod writing;
