//! The latest steps that a rank has ended, to be replayed at another home server.
//!
//! The home server was told of each. But where the rank waits for no copies, nobody says whether the home has told the stream's
//! coordinator before it died. Then the rank can put these steps again, as long as its memory holds them.

use crate::producer::stored_block::{BytesPlace, StoredBlock};
use forebay_core::attr::Attrs;
use forebay_core::ids::StepNumber;
use forebay_core::stats::Stats;
use forebay_wire::client::block::Grant;
use std::collections::{BTreeMap, VecDeque};

/// How many steps are remembered: a home server tells the coordinator of a step at once.
const KEPT: usize = 4;

/// A step that was ended.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplayStep {
    pub(super) step: StepNumber,
    pub(super) time: f64,
    pub(super) blocks: u64,
    pub(super) dropped: bool,
    pub(super) stored: Vec<StoredBlock>,
    /// The version of the demand that was in force.
    pub(super) demand: u64,
    /// As in an open step.
    pub(super) stats: BTreeMap<String, Stats>,
    /// What the rank says of it.
    pub(super) attrs: Attrs,
}

/// The latest steps that were ended, as far as they can be put again.
#[derive(Debug, Default)]
pub(super) struct ReplayLog {
    steps: VecDeque<ReplayStep>,
    /// Where blocks of them begin in the home's arena: where each ends, and its step.
    ranges: BTreeMap<u64, (u64, StepNumber)>,
}

impl ReplayStep {
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.stored.iter().filter_map(|block| match &block.place {
            BytesPlace::Mapped(_, grant) => Some((grant.offset, grant.offset + grant.bytes)),
            _ => None,
        })
    }
}

impl ReplayLog {
    /// A step was ended.
    pub(super) fn push(&mut self, ended: ReplayStep) {
        let ranges: Vec<(u64, u64)> = ended.ranges().collect();
        self.push_at(ended, ranges);
    }

    fn push_at(&mut self, ended: ReplayStep, ranges: impl IntoIterator<Item = (u64, u64)>) {
        self.ranges.extend(ranges.into_iter().map(|(start, end)| (start, (end, ended.step))));
        self.steps.push_back(ended);
        if self.steps.len() > KEPT
            && let Some(oldest) = self.steps.front()
        {
            self.forget(oldest.step);
        }
    }

    /// The rank is about to write to a range: the coordinator knows the step that had a block there, since it had that freed.
    pub(super) fn overwrite(&mut self, grant: &Grant) {
        let end = grant.offset + grant.bytes + forebay_store::lead(grant.bytes);
        while let Some((_, (_, step))) =
            self.ranges.range(..end).next_back().filter(|(_, (last, _))| *last > grant.offset)
        {
            self.forget(*step);
        }
    }

    fn forget(&mut self, step: StepNumber) {
        self.steps.retain(|ended| ended.step != step);
        self.ranges.retain(|_, (_, of)| *of != step);
    }

    /// The steps from `below` on.
    pub(super) fn since(&self, below: StepNumber) -> Vec<ReplayStep> {
        self.steps.iter().filter(|ended| ended.step >= below).cloned().collect()
    }

    /// Another server is the home now, where only these steps were put again.
    pub(super) fn replace(&mut self, ended: Vec<ReplayStep>) {
        *self = ReplayLog::default();
        ended.into_iter().for_each(|ended| self.push(ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(step: StepNumber) -> ReplayStep {
        ReplayStep { step, ..ReplayStep::default() }
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut steps = ReplayLog::default();
        (0..9).for_each(|step| steps.push(ended(step)));
        let since = |steps: &ReplayLog, below| {
            steps.since(below).into_iter().map(|ended| ended.step).collect::<Vec<_>>()
        };
        assert_eq!((since(&steps, 0), since(&steps, 7)), (vec![5, 6, 7, 8], vec![7, 8]));
        steps.replace(vec![ended(8)]);
        assert_eq!(since(&steps, 0), [8]);
    }

    #[test]
    fn a_step_that_is_written_over_is_forgotten() {
        let grant = |offset, bytes| Grant { arena: 1, offset, bytes, generation: 1, fresh: false };
        let mut steps = ReplayLog::default();
        steps.push_at(ended(1), [(0, 100), (8192, 9000)]);
        steps.push_at(ended(2), [(4096, 4100)]);
        steps.overwrite(&grant(12288, 5000));
        assert_eq!(steps.since(0).len(), 2);
        steps.overwrite(&grant(4096, 5000));
        assert_eq!(steps.since(0).len(), 0, "it reaches into both: {steps:?}");
        assert!(steps.ranges.is_empty());
        steps.push_at(ended(3), [(4096, 20000)]);
        steps.overwrite(&grant(8192, 10));
        assert_eq!(steps.since(0).len(), 0);
    }
}
