//! The sans-IO core of Forebay: plain state machines and pure functions.
//!
//! Nothing here knows of sockets, clocks, threads or shared memory. The same code runs in a server, in
//! unit tests and in simulations of many servers. A newcomer reads it in this order:
//!
//! - the words: [`ids`], [`dtype`], [`region`], [`block`], [`contract`], [`attr`], [`error`];
//! - who demands what from which step on: [`demand`], [`cut`];
//! - a step's life: [`steps`];
//! - who the members are: [`roster`], [`agreement`], [`lease`], [`membership`];
//! - where blocks are: [`view`], [`seats`], [`homes`], [`placement`], [`hilbert`], [`tiles`], [`directory`], [`coverage`].

pub mod agreement;
pub mod attr;
pub mod block;
pub mod contract;
pub mod coverage;
pub mod cut;
pub mod demand;
pub mod directory;
pub mod dtype;
pub mod error;
pub mod hilbert;
pub mod homes;
pub mod ids;
pub mod lease;
pub mod membership;
pub mod placement;
pub mod region;
pub mod roster;
pub mod seats;
pub mod seeded;
#[cfg(test)]
mod simulation;
pub mod steps;
pub mod tiles;
pub mod view;

pub use error::{Error, ErrorKind, Result};
