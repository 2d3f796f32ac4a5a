//! From a tree to a plan, where the fields are known: of which type each part is, and what has to be computed for it.
//!
//! - [`functions`]: all functions;
//! - [`meaning`]: what a part means;
//! - [`builder`]: the lists of the plan while they grow;
//! - [`operators`], [`calls`], [`aggregates`], [`stencils`], [`temporals`], [`attributes`]: what parts mean;
//! - [`checker`]: from the first node to the last.

mod aggregates;
mod attributes;
mod builder;
mod calls;
mod checker;
mod fields;
mod functions;
mod meaning;
mod operators;
mod stencils;
mod temporals;
#[cfg(test)]
mod tests;

pub use checker::{Purpose, check};
pub use functions::takes_neighbours;
