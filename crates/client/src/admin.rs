//! Administration: status, pipelines, members, ending a group.
//!
//! From the bottom up: [`handle`], [`status`], [`contracts`], [`pipelines`], [`members`].

mod contracts;
mod handle;
mod members;
mod pipelines;
mod status;

pub use handle::Admin;
pub use pipelines::FoundPipeline;
pub use status::told;
