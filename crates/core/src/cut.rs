//! Cuts: from which step of a run a demand holds, agreed ahead, so that every server answers
//! `begin_step` alone and all ranks of a step see the same.
//!
//! The coordinator of a stream asks every server for the highest step begun there and freezes the
//! beginning of later ones for that one round trip; the change then holds from one past the highest of
//! all. Steps that are running are never waited for.

use crate::demand::Demand;
use crate::ids::{RunNumber, ServerId, StepNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A server's part: the cuts of each run, and what has begun.
#[derive(Debug, Default)]
pub struct CutMember {
    runs: BTreeMap<RunNumber, RunCuts>,
    /// The change that is being agreed, if any: later steps than the highest begun must wait.
    frozen: Option<u64>,
}

#[derive(Debug)]
struct RunCuts {
    /// From which step each demand holds; the first entry holds from step 0.
    cuts: Vec<(StepNumber, Arc<Demand>)>,
    highest_begun: Option<StepNumber>,
}

/// What became of an attempt to begin a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Begin {
    /// The demand in force at this step.
    Now(Arc<Demand>),
    /// A change is being agreed: ask again when [`CutMember::decide`] or [`CutMember::thaw`] was called.
    Wait,
    /// The run is not known here.
    UnknownRun,
}

impl CutMember {
    /// A run that has ranks on this server, with the demand in force from its first step on.
    pub fn open_run(&mut self, run: RunNumber, demand: Arc<Demand>) {
        self.runs.entry(run).or_insert_with(|| RunCuts { cuts: vec![(0, demand)], highest_begun: None });
    }

    /// Forgets a run whose ranks on this server have all closed.
    pub fn close_run(&mut self, run: RunNumber) {
        self.runs.remove(&run);
    }

    /// A rank begins a step.
    pub fn begin(&mut self, run: RunNumber, step: StepNumber) -> Begin {
        let Some(cuts) = self.runs.get_mut(&run) else { return Begin::UnknownRun };
        if self.frozen.is_some() && cuts.highest_begun.is_none_or(|highest| step > highest) {
            return Begin::Wait;
        }
        cuts.highest_begun = cuts.highest_begun.max(Some(step));
        Begin::Now(cuts.at(step))
    }

    /// A rank began a step by itself, by the word that it shares with this server.
    pub fn note_begun(&mut self, run: RunNumber, step: StepNumber) {
        if let Some(cuts) = self.runs.get_mut(&run) {
            cuts.highest_begun = cuts.highest_begun.max(Some(step));
        }
    }

    /// Whether the demand in force at a step of a run holds for all later steps as well, as far as is known.
    pub fn is_settled(&self, run: RunNumber, step: StepNumber) -> bool {
        let cuts = self.runs.get(&run);
        self.frozen.is_none()
            && cuts.is_some_and(|cuts| cuts.cuts.last().is_some_and(|(from, _)| *from <= step))
    }

    /// The demand in force at a step of a run, if the run is known.
    pub fn demand_at(&self, run: RunNumber, step: StepNumber) -> Option<Arc<Demand>> {
        self.runs.get(&run).map(|cuts| cuts.at(step))
    }

    /// The coordinator prepares a change: answers with the highest step begun here, and freezes.
    pub fn prepare(&mut self, run: RunNumber, version: u64) -> Option<StepNumber> {
        self.frozen = Some(version);
        self.runs.get(&run).and_then(|cuts| cuts.highest_begun)
    }

    /// The coordinator decided: the demand holds from this step of this run on; other runs of the stream
    /// that are known here have ended and do not care.
    pub fn decide(&mut self, run: RunNumber, from: StepNumber, demand: Arc<Demand>) {
        if self.frozen.is_some_and(|version| version <= demand.version) {
            self.frozen = None;
        }
        if let Some(cuts) = self.runs.get_mut(&run) {
            cuts.cuts.retain(|(start, _)| *start < from);
            cuts.cuts.push((from, demand));
            // No step below the highest begun can still be begun by a rank that is more than a few
            // changes behind: keep enough for stragglers, in bounds.
            if cuts.cuts.len() > 64 {
                cuts.cuts.remove(1);
            }
        }
    }

    /// The coordinator died before it decided: what was in force stays.
    pub fn thaw(&mut self) {
        self.frozen = None;
    }
}

impl RunCuts {
    fn at(&self, step: StepNumber) -> Arc<Demand> {
        let index = self.cuts.partition_point(|(from, _)| *from <= step);
        self.cuts[index.saturating_sub(1)].1.clone()
    }
}

/// The coordinator's part: one change at a time, to the newest demand.
#[derive(Debug, Default)]
pub struct CutCoordinator {
    round: Option<Round>,
}

#[derive(Debug)]
struct Round {
    run: RunNumber,
    demand: Arc<Demand>,
    waiting_for: BTreeSet<ServerId>,
    highest: Option<StepNumber>,
}

/// A decision to be told to every server.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The run it is about.
    pub run: RunNumber,
    /// The first step at which it holds.
    pub from: StepNumber,
    /// The demand.
    pub demand: Arc<Demand>,
}

impl CutCoordinator {
    /// Whether a change is being agreed.
    pub fn is_busy(&self) -> bool {
        self.round.is_some()
    }

    /// Starts a round: every one of these servers must be asked to prepare.
    pub fn propose(
        &mut self,
        run: RunNumber,
        demand: Arc<Demand>,
        servers: impl IntoIterator<Item = ServerId>,
    ) {
        let waiting_for = servers.into_iter().collect();
        self.round = Some(Round { run, demand, waiting_for, highest: None });
    }

    /// A server answered, or is gone (`highest` is then `None`, and no step of its ranks can be begun).
    pub fn prepared(
        &mut self,
        from: ServerId,
        version: u64,
        highest: Option<StepNumber>,
    ) -> Option<Decision> {
        let round = self.round.as_mut()?;
        if round.demand.version != version || !round.waiting_for.remove(&from) {
            return None;
        }
        round.highest = round.highest.max(highest);
        if !round.waiting_for.is_empty() {
            return None;
        }
        let round = self.round.take()?;
        let from = round.highest.map_or(0, |highest| highest.saturating_add(1));
        Some(Decision { run: round.run, from, demand: round.demand })
    }

    /// A server is gone: nothing is awaited from it any more.
    pub fn server_gone(&mut self, server: ServerId) -> Option<Decision> {
        let version = self.round.as_ref()?.demand.version;
        self.prepared(server, version, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Needs;
    use proptest::prelude::*;

    fn demand(version: u64) -> Arc<Demand> {
        Arc::new(Demand::union(version, [Needs::All { every: 1 }].iter()))
    }

    #[test]
    fn a_frozen_member_still_answers_running_steps() {
        let mut member = CutMember::default();
        member.open_run(1, demand(1));
        assert_eq!(member.begin(1, 5), Begin::Now(demand(1)));
        assert_eq!(member.prepare(1, 2), Some(5));
        assert_eq!(member.begin(1, 5), Begin::Now(demand(1)));
        assert_eq!(member.begin(1, 6), Begin::Wait);
        member.decide(1, 9, demand(2));
        assert_eq!(member.begin(1, 8), Begin::Now(demand(1)));
        assert_eq!(member.begin(1, 9), Begin::Now(demand(2)));
        assert_eq!(member.begin(2, 0), Begin::UnknownRun);
    }

    proptest! {
        /// Whatever the order of begins, prepares and decisions: all ranks of a step see one demand.
        #[test]
        fn one_demand_a_step(actions in prop::collection::vec((0usize..3, 0u8..4), 1..120)) {
            let mut members: Vec<CutMember> = (0..3).map(|_| CutMember::default()).collect();
            let mut next = [0u64; 3];
            for member in &mut members {
                member.open_run(1, demand(1));
            }
            let mut coordinator = CutCoordinator::default();
            let mut version = 1;
            let mut unprepared = BTreeSet::new();
            let mut undecided: Vec<Option<Decision>> = vec![None; 3];
            let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
            for (who, what) in actions {
                match what {
                    0 | 1 => {
                        if let Begin::Now(demand) = members[who].begin(1, next[who]) {
                            let first = *seen.entry(next[who]).or_insert(demand.version);
                            prop_assert_eq!(first, demand.version, "step {}", next[who]);
                            next[who] += 1;
                        }
                    }
                    2 if unprepared.contains(&who) => {
                        unprepared.remove(&who);
                        let highest = members[who].prepare(1, version);
                        if let Some(decision) = coordinator.prepared(ServerId(who as u32), version, highest) {
                            undecided = vec![Some(decision); 3];
                        }
                    }
                    2 => if let Some(decision) = undecided[who].take() {
                        members[who].decide(decision.run, decision.from, decision.demand);
                    },
                    _ => if !coordinator.is_busy() && undecided.iter().all(Option::is_none) {
                        version += 1;
                        coordinator.propose(1, demand(version), (0..3).map(ServerId));
                        unprepared = (0..3).collect();
                    },
                }
            }
        }
    }
}
