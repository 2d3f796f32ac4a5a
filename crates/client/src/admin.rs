//! Administration: status, pipelines, members, ending a group.
//!
//! From the bottom up: [`handle`], [`status`], [`contracts`], [`pipelines`], [`subscriptions`], [`members`].

mod contracts;
mod handle;
mod members;
mod pipelines;
mod status;
mod subscriptions;

pub use handle::Admin;
pub use pipelines::FoundPipeline;
pub use status::told;
