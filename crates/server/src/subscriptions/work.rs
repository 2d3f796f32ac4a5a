//! What is to be evaluated, and what was.

use crate::evaluation::CheckedText;
use forebay_core::steps::{AttachmentId, StepReport};
use forebay_query::Evaluation;
use forebay_query::subscription::Event;
use forebay_query::time::WatchState;
use forebay_query::value::Unknown;
use forebay_wire::evaluation::Cost;
use std::sync::Arc;
use std::time::Duration;

/// Texts that are to be evaluated at a step.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) watch: AttachmentId,
    pub(crate) report: Arc<StepReport>,
    /// Those of further streams.
    pub(crate) partners: Vec<Arc<StepReport>>,
    pub(crate) due: Vec<Due>,
    /// When the step was told of.
    pub(crate) began: Duration,
}

/// A text that is to be evaluated.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) name: String,
    pub(crate) creation: u64,
    pub(crate) text: CheckedText,
    pub(crate) watch: WatchState,
}

/// A text that was evaluated, or why it could not be.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) name: String,
    pub(crate) creation: u64,
    pub(crate) evaluation: Result<Evaluation, Unknown>,
    pub(crate) watch: Option<WatchState>,
    pub(crate) cost: Cost,
    /// When the step was told of.
    pub(crate) began: Duration,
}

/// A subscription that has come further, with its new event.
#[derive(Debug)]
pub(super) struct ProgressOf {
    pub(super) name: String,
    pub(super) event: Option<Box<Event>>,
}
