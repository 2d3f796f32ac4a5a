//! The ranks of a cohort that takes part, and which of them holds which step.

use crate::identity::Identity;
use crate::ids::{RunNumber, StepNumber};
use crate::steps::cohort::rank::ToldStep;
use crate::steps::holders::Holders;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What every server knows of a cohort.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CohortRecord {
    /// What its ranks are called.
    pub name: String,
    /// How many there are.
    pub size: u32,
    /// Whether it goes on without ranks that die.
    pub goes_on: bool,
    /// Those that it has gone on without.
    pub gone: BTreeSet<u32>,
}

/// A step of which some ranks were told by the coordinator before, and these were not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::steps) struct CatchUp {
    pub(in crate::steps) step: ToldStep,
    pub(in crate::steps) lacking: Vec<u32>,
}

/// The ranks of a cohort that takes part.
#[derive(Debug)]
pub(in crate::steps) struct Cohort {
    pub(in crate::steps) record: CohortRecord,
    /// Who the ranks are, as far as they have come, and on which hosts.
    who: BTreeMap<u32, (Identity, String)>,
    /// The ranks that read.
    here: BTreeSet<u32>,
    /// Which ranks hold which step.
    pub(in crate::steps) holders: Holders,
    /// What some ranks are still to be told.
    pub(in crate::steps) catch_up: VecDeque<CatchUp>,
}

impl Cohort {
    /// A cohort of which these ranks have come.
    pub(in crate::steps) fn new(record: CohortRecord, who: BTreeMap<u32, (Identity, String)>) -> Cohort {
        let here = who.keys().copied().collect();
        Cohort { record, who, here, holders: Holders::default(), catch_up: VecDeque::new() }
    }

    /// The ranks without which it has gone on.
    pub(in crate::steps) fn absent(&self) -> Vec<u32> {
        (0..self.record.size).filter(|rank| !self.here.contains(rank)).collect()
    }

    /// How many ranks read.
    pub(in crate::steps) fn ranks(&self) -> u64 {
        self.here.len() as u64
    }

    /// Whether a rank reads.
    pub(in crate::steps) fn is_here(&self, rank: u32) -> bool {
        self.here.contains(&rank)
    }

    /// Whether none reads any more.
    pub(in crate::steps) fn is_empty(&self) -> bool {
        self.here.is_empty()
    }

    /// The hosts of all ranks, in their order; nothing of one that has never come.
    pub(in crate::steps) fn hosts(&self) -> Vec<String> {
        let host = |rank| self.who.get(&rank).map(|(_, host)| host.clone()).unwrap_or_default();
        (0..self.record.size).map(host).collect()
    }

    /// A rank, as people read it.
    pub(in crate::steps) fn describe(&self, rank: u32) -> String {
        let CohortRecord { name, size, .. } = &self.record;
        let who = self.who.get(&rank).map(|(who, _)| format!(" (process {} on {})", who.pid, who.host));
        format!("rank {rank}{} of the {size} readers '{name}'", who.unwrap_or_default())
    }

    /// All that read are told of a step.
    pub(in crate::steps) fn note_told(&mut self, step: (RunNumber, StepNumber)) {
        self.here.iter().for_each(|rank| self.holders.note(*rank, step, false));
    }

    /// All that read hold something with which none has to finish.
    pub(in crate::steps) fn note_given(&mut self, given: (RunNumber, StepNumber)) {
        self.here.iter().for_each(|rank| self.holders.note(*rank, given, true));
    }

    /// A rank is gone; of these steps arrays live on there. Returns what the whole cohort has finished with thereby: the steps,
    /// and whether arrays of each live.
    pub(in crate::steps) fn leave(
        &mut self,
        rank: u32,
        kept: &BTreeSet<(RunNumber, StepNumber)>,
    ) -> Vec<((RunNumber, StepNumber), bool)> {
        if self.here.remove(&rank) && self.record.goes_on {
            self.record.gone.insert(rank);
        }
        self.catch_up.iter_mut().for_each(|told| told.lacking.retain(|other| *other != rank));
        let held: Vec<_> = self.holders.of(rank).map(|(step, _)| step).collect();
        let finished = held
            .into_iter()
            .filter_map(|step| Some((step, self.holders.release(rank, step, kept.contains(&step))?)));
        finished.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cohort(size: u32) -> Cohort {
        let record = CohortRecord { name: "render".into(), size, goes_on: true, gone: BTreeSet::new() };
        Cohort::new(record, (0..size).map(|rank| (rank, (Identity::default(), String::new()))).collect())
    }

    #[test]
    fn the_last_rank_releases_a_step() {
        let mut three = cohort(3);
        three.note_told((1, 7));
        assert_eq!(three.holders.release(0, (1, 7), false), None);
        assert_eq!(three.holders.release(0, (1, 7), false), None, "it has said so before");
        assert_eq!(three.holders.release(1, (1, 7), true), None, "another one reads");
        assert_eq!(three.holders.readers_of((1, 7)), [2]);
        assert_eq!(three.holders.release(2, (1, 7), false), Some(true), "arrays live at one");
        assert_eq!(three.holders.release(1, (1, 7), false), Some(false));
        assert_eq!(three.holders.release(1, (1, 8), false), None, "nobody was told of that");
    }

    #[test]
    fn what_a_rank_that_is_gone_holds_is_released() {
        let mut two = cohort(2);
        two.note_told((1, 3));
        two.note_told((1, 4));
        two.holders.release(1, (1, 3), false);
        assert_eq!(two.leave(0, &BTreeSet::from([(1, 4)])), [((1, 3), false)]);
        assert_eq!(two.holders.release(1, (1, 4), false), Some(true), "arrays of it live where the rank was");
        assert_eq!(two.leave(0, &BTreeSet::new()), [((1, 4), false)]);
        assert_eq!((two.absent(), two.record.gone), (vec![0], BTreeSet::from([0])));
    }
}
