//! Contracts: what a producer offers, what a consumer needs, and how they match.
//!
//! - [`sequence`]: which numbers a producer's steps have;
//! - [`field`]: a field as it is offered;
//! - [`bounds`]: where its blocks lie in space;
//! - [`slices`]: a part of an array, as NumPy says it;
//! - [`terms`]: what is needed of a field: at which steps, which part, of which type;
//! - [`needs`]: what a consumer needs, and whether it is offered;
//! - [`needs_by_step`]: from which step on, of a contract that changes.
//!
//! How periods meet is Algorithm 1 of Mommessin et al., "Automatic data filtering for in situ workflows" (CLUSTER 2017): a
//! consumer's period counts the producer's outputs, so that the absolute period is the product of both.

mod bounds;
mod field;
mod needs;
mod needs_by_step;
mod sequence;
mod slices;
mod terms;

pub use bounds::Bounds;
pub use field::{Association, FIELDS_MAX, Field};
pub use needs::{Need, Needs};
pub use needs_by_step::NeedsByStep;
pub use sequence::Sequence;
pub use slices::{Index, Slice, Slices};
pub use terms::{Period, Statistics, Terms};
