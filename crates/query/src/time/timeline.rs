//! The latest values of something, by the steps at which they came.

use forebay_core::ids::StepNumber;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many evaluations back a run may go on without that all is forgotten.
pub(super) const REMEMBERED: usize = 256;

/// The latest values of something, each with its step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Timeline<T> {
    values: VecDeque<(StepNumber, T)>,
    most: usize,
}

impl<T> Timeline<T> {
    /// Of at most so many.
    pub(super) fn new(most: usize) -> Timeline<T> {
        Timeline { values: VecDeque::new(), most }
    }

    pub(super) fn push(&mut self, step: StepNumber, value: T) {
        if self.values.len() == self.most {
            self.values.pop_front();
        }
        self.values.push_back((step, value));
    }

    /// Forgets what came at this step or after it.
    pub(super) fn forget_from(&mut self, step: StepNumber) {
        while self.values.back().is_some_and(|(last, _)| *last >= step) {
            self.values.pop_back();
        }
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.values.back().map(|(_, value)| value)
    }

    /// From the latest one back.
    pub(super) fn back(&self) -> impl ExactSizeIterator<Item = &T> + Clone {
        self.values.iter().rev().map(|(_, value)| value)
    }
}
