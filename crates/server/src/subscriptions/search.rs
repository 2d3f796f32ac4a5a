//! Steps of the space that are to be looked for, and what was found.

use super::readers::Leases;
use forebay_core::ids::{StepId, StepNumber};
use forebay_core::steps::{AttachmentId, FieldReport, StepReport};
use forebay_query::SPACE;
use forebay_wire::subscription::Completion;
use std::sync::Arc;
use tokio::sync::Notify;

/// A step whose arrays are to be looked for.
#[derive(Debug, Clone)]
pub(crate) struct SearchOrder {
    pub(crate) watch: AttachmentId,
    /// Tells it from others of the step.
    pub(crate) number: u64,
    pub(crate) step: StepNumber,
    /// The names.
    pub(crate) fields: Vec<String>,
    /// Whether to wait until all is there.
    pub(crate) waits: bool,
    /// It is over.
    pub(crate) over: Arc<Notify>,
}

/// Arrays that were found, complete.
#[derive(Debug)]
pub(crate) struct FoundArrays {
    pub(crate) fields: Vec<FieldReport>,
    pub(crate) completion: Completion,
    pub(crate) leases: Leases,
}

/// What is known of fields of the space at a step, as of a stream's step.
pub(crate) fn in_space(step: StepNumber, fields: Vec<FieldReport>) -> StepReport {
    StepReport {
        id: StepId { stream: SPACE.to_owned(), run: 0, step },
        time: f64::NAN,
        missed: 0,
        rewound: false,
        torn: false,
        dropped: false,
        fields,
        statics: None,
        own_attrs: None,
        attrs: None,
        term: 0,
        ranks: 0,
        absent: Vec::new(),
        attempt: 0,
    }
}
