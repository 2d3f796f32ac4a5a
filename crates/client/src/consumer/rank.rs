//! What a rank of a parallel reader says of itself when it attaches.

use crate::connection::group::Group;
use crate::declared::ConsumerOptions;
use crate::on_rank_loss::OnRankLoss;
use forebay_core::steps::{CohortRank, Sharer, StepReport, ToldStep};
use forebay_core::{Error, Result};
use std::collections::VecDeque;

/// The latest steps that a reader was told of.
#[derive(Debug)]
pub(super) struct ToldSteps {
    /// As many as it may hold: no rank of its cohort can be further behind. More where it shares steps: others may be.
    at_most: usize,
    steps: VecDeque<ToldStep>,
}

impl ToldSteps {
    pub(super) fn new(window: u32, shares: bool) -> ToldSteps {
        ToldSteps { at_most: if shares { Sharer::TOLD_MAX } else { window as usize }, steps: VecDeque::new() }
    }

    pub(super) fn note(&mut self, report: &StepReport) {
        let (run, step) = (report.id.run, report.id.step);
        let (missed, rewound) = (report.missed, report.rewound);
        self.steps.push_back(ToldStep { run, step, missed, rewound });
        while self.steps.len() > self.at_most {
            self.steps.pop_front();
        }
    }

    pub(super) fn last(&self) -> Option<ToldStep> {
        self.steps.back().copied()
    }

    pub(super) fn all(&self) -> Vec<ToldStep> {
        self.steps.iter().copied().collect()
    }
}

/// Which rank of a cohort a reader is opened as; `None` if it is to be none.
pub(super) fn rank_of(options: &ConsumerOptions, group: &Group) -> Result<Option<CohortRank>> {
    let ConsumerOptions { rank, size, on_loss, .. } = *options;
    let goes_on = on_loss == OnRankLoss::GoOn;
    let told = CohortRank { rank, size, host: group.here().to_owned(), goes_on, told: Vec::new() };
    told.check()?;
    if size > 1 && options.group.name.is_none() {
        return Err(Error::invalid(format!(
            "size is {size}, but the reader has no name: the ranks of a parallel reader have one, which says that they belong together"
        )));
    }
    Ok((size > 1).then_some(told))
}
