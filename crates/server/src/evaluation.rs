//! Evaluations of expressions at this server: what does not need the rest of it.
//!
//! - [`pool`]: the threads that compute; [`manners`]: how they leave processors to others;
//! - [`checked`]: texts and their plans;
//! - [`asking`]: what is asked of all servers in a round, each question once;
//! - [`job`]: what a thread computes;
//! - [`connections`]: connections to servers whose blocks are read.

mod asking;
mod checked;
mod connections;
mod job;
mod manners;
mod pool;

pub(crate) use asking::{Round, StepBlocks};
pub(crate) use checked::{CheckedText, facts};
pub(crate) use connections::Connections;
pub(crate) use job::{Computed, Job};
pub(crate) use pool::{Pool, Weight};
