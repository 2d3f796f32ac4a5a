//! Pipelines that the ranks of a simulation drive themselves: activate a step, stage it, execute, deactivate.
//!
//! A handle is a [`crate::Producer`] of the pipeline's stream, which asks its home server; that asks the server that coordinates
//! the pipeline. Each question tells all that has to be known of this rank, so that a server that takes the place of another
//! goes on where that was. From the bottom up: [`driver`], [`handle`].

mod driver;
mod handle;

pub use driver::{DriveOutcome, PipelineRequest};
pub use handle::PipelineHandle;
