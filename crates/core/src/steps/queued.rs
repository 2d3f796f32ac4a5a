//! What waits for readers.

use crate::ids::{RunNumber, StepNumber};

/// A closed step that waits for an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) run: RunNumber,
    pub(super) step: StepNumber,
    /// Steps dropped between the one before it and this one.
    pub(super) missed: u64,
}
