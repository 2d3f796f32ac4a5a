//! Forebay's expressions: what a scientist watches for, or asks once.
//!
//! Pure functions and state machines: no input, no output, no clocks. A text becomes a tree ([`syntax`]); where the fields are known
//! that it names ([`schema`]), the tree becomes a plan ([`mod@check`], [`plan`]) of [`value`]s. An [`evaluation`] of a plan at a step asks
//! those that hold its [`pieces`] in rounds, and merges what they [`gather`]; what bounds alone decide nobody reads ([`interval`],
//! [`decide`]).
//! What came before stands in [`time`], and what becomes of a text that is watched in [`mod@subscription`].

pub mod check;
pub mod decide;
pub mod evaluation;
pub mod gather;
pub mod interval;
pub mod pieces;
pub mod plan;
pub mod schema;
pub mod subscription;
pub mod syntax;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod time;
pub mod value;

pub use check::{Purpose, check, takes_neighbours};
pub use evaluation::{Evaluation, ReportedValue, StepFacts};
pub use plan::Plan;
pub use schema::{SPACE, Schema, check_watched, in_words};
pub use syntax::Syntax;
