//! Cuts: from which step of a run a demand holds, agreed ahead, so that every server answers
//! `begin_step` alone and all ranks of a step see the same.
//!
//! The coordinator of a stream asks every server for the highest step begun there and freezes the
//! beginning of later ones for that one round trip; the change then holds from one past the highest of
//! all. Steps that are running are never waited for.

//!
//! A rank that comes late is told with its run which demands held before, and whether a change is being agreed;
//! one that leaves says how far it was. So it does not matter which ranks are there at the same time.

use crate::demand::Demand;
use crate::ids::{RunNumber, ServerId, StepNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// How many changes of the demand are remembered: no step is still begun by a rank that is more than a few behind,
/// or came that much later than the others.
const CUTS_MAX: usize = 64;

/// From which step of a run each demand holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Cuts {
    /// From step 0.
    first: Arc<Demand>,
    later: Vec<(StepNumber, Arc<Demand>)>,
}

impl Cuts {
    /// This demand holds from the first step of a run on.
    pub fn new(first: Arc<Demand>) -> Cuts {
        Cuts { first, later: Vec::new() }
    }

    /// What another server has told.
    pub fn from_parts(first: Demand, later: Vec<(StepNumber, Demand)>) -> Cuts {
        let mut cuts = Cuts::new(Arc::new(first));
        later.into_iter().for_each(|(from, demand)| cuts.decide(from, Arc::new(demand)));
        cuts
    }

    /// What another server is told.
    pub fn to_parts(&self) -> (Demand, Vec<(StepNumber, Demand)>) {
        let later = self.later.iter().map(|(from, demand)| (*from, (**demand).clone()));
        ((*self.first).clone(), later.collect())
    }

    /// Another demand holds from this step on.
    pub fn decide(&mut self, from: StepNumber, demand: Arc<Demand>) {
        self.later.retain(|(start, _)| *start < from);
        self.later.push((from, demand));
        if self.later.len() > CUTS_MAX {
            self.later.remove(0);
        }
    }

    /// The demand that was decided last.
    pub fn latest(&self) -> &Arc<Demand> {
        self.later.last().map_or(&self.first, |(_, demand)| demand)
    }

    /// Whether others, of the same run, know of a later change.
    pub fn are_before(&self, others: &Cuts) -> bool {
        let last = |cuts: &Cuts| cuts.later.last().map(|(from, demand)| (*from, demand.version));
        last(self) < last(others)
    }

    /// The demand in force at a step.
    pub fn at(&self, step: StepNumber) -> &Arc<Demand> {
        let index = self.later.partition_point(|(from, _)| *from <= step);
        index.checked_sub(1).and_then(|index| self.later.get(index)).map_or(&self.first, |(_, demand)| demand)
    }

    /// Whether the demand in force at a step holds for all later ones as well.
    fn is_last(&self, step: StepNumber) -> bool {
        self.later.last().is_none_or(|(from, _)| *from <= step)
    }

    /// Whether anything is wanted at one of these steps.
    fn wants_any(&self, steps: Range<StepNumber>) -> bool {
        let mut within = self.later.iter().filter(|(from, _)| steps.contains(from));
        !steps.is_empty()
            && (!self.at(steps.start).is_empty() || within.any(|(_, demand)| !demand.is_empty()))
    }
}

/// A server's part: the cuts of each run, and what has begun.
#[derive(Debug, Default)]
pub struct CutMember {
    runs: BTreeMap<RunNumber, RunCuts>,
    /// The change that is being agreed, if any: later steps than the highest begun must wait.
    frozen: Option<u64>,
}

#[derive(Debug)]
struct RunCuts {
    cuts: Cuts,
    highest_begun: Option<StepNumber>,
}

/// What became of an attempt to begin a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Begin {
    /// The demand in force at this step.
    Now(Arc<Demand>),
    /// A change is being agreed: ask again when [`CutMember::decide`] or [`CutMember::adopt_run`] was called.
    Wait,
    /// The run is not known here.
    UnknownRun,
}

impl CutMember {
    /// A rank of a run is here: what was decided for it before, and the version of the change that is being
    /// agreed, of which this server was asked while it had no rank.
    pub fn open_run(&mut self, run: RunNumber, cuts: Cuts, agreeing: Option<u64>) {
        self.runs.entry(run).or_insert(RunCuts { cuts, highest_begun: None });
        self.frozen = agreeing.or(self.frozen);
    }

    /// Another coordinator has taken the place of one that died: these are its cuts, and the version of the change that it is
    /// agreeing, if any; a change that the one before had not decided is none. What was begun here stays begun.
    pub fn adopt_run(&mut self, run: RunNumber, cuts: Cuts, agreeing: Option<u64>) {
        if let Some(known) = self.runs.get_mut(&run) {
            known.cuts = cuts;
            self.frozen = agreeing;
        }
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
        Begin::Now(cuts.cuts.at(step).clone())
    }

    /// A rank began a step by itself, by the word that it shares with this server.
    pub fn note_begun(&mut self, run: RunNumber, step: StepNumber) {
        if let Some(cuts) = self.runs.get_mut(&run) {
            cuts.highest_begun = cuts.highest_begun.max(Some(step));
        }
    }

    /// From which step of a run each demand holds, if the run is known.
    pub fn cuts(&self, run: RunNumber) -> Option<&Cuts> {
        self.runs.get(&run).map(|known| &known.cuts)
    }

    /// Whether the demand in force at a step of a run holds for all later steps as well, as far as is known.
    pub fn is_settled(&self, run: RunNumber, step: StepNumber) -> bool {
        self.frozen.is_none() && self.runs.get(&run).is_some_and(|cuts| cuts.cuts.is_last(step))
    }

    /// Whether anything is wanted at one of these steps of a run.
    pub fn wants_any(&self, run: RunNumber, steps: Range<StepNumber>) -> bool {
        self.runs.get(&run).is_some_and(|cuts| cuts.cuts.wants_any(steps))
    }

    /// The highest step of a run that was begun here.
    pub fn highest_begun(&self, run: RunNumber) -> Option<StepNumber> {
        self.runs.get(&run).and_then(|cuts| cuts.highest_begun)
    }

    /// The demand in force at a step of a run, if the run is known.
    pub fn demand_at(&self, run: RunNumber, step: StepNumber) -> Option<Arc<Demand>> {
        self.runs.get(&run).map(|cuts| cuts.cuts.at(step).clone())
    }

    /// The coordinator prepares a change: answers with the highest step begun here, and freezes.
    pub fn prepare(&mut self, run: RunNumber, version: u64) -> Option<StepNumber> {
        self.frozen = Some(version);
        self.highest_begun(run)
    }

    /// The coordinator decided: the demand holds from this step of this run on; other runs of the stream
    /// that are known here have ended and do not care.
    pub fn decide(&mut self, run: RunNumber, from: StepNumber, demand: Arc<Demand>) {
        if self.frozen.is_some_and(|version| version <= demand.version) {
            self.frozen = None;
        }
        if let Some(cuts) = self.runs.get_mut(&run) {
            cuts.cuts.decide(from, demand);
        }
    }
}

/// The coordinator's part: one change at a time, to the newest demand.
///
/// ```text
///            propose                 all servers have answered, or are gone
///   (idle) ─────────► (a round) ──────────────────────────────────────────► decide: (idle)
///                         │  ▲
///                         └──┘ the demand changes again: the round is outdated, and another one follows it
/// ```
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
    age: Freshness,
}

/// Whether a round is about the newest demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Current,
    /// The demand has changed since it was proposed.
    Outdated,
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
    pub fn is_agreeing(&self) -> bool {
        self.round.is_some()
    }

    /// The demand changes again while a change is being agreed.
    pub(crate) fn note_outdated(&mut self) {
        if let Some(round) = &mut self.round {
            round.age = Freshness::Outdated;
        }
    }

    /// Whether the demand has changed since the change was proposed that is being agreed.
    pub(crate) fn is_outdated(&self) -> bool {
        self.round.as_ref().is_some_and(|round| round.age == Freshness::Outdated)
    }

    /// The version of the change that is being agreed for a run, if any.
    pub fn proposed_version(&self, run: RunNumber) -> Option<u64> {
        self.round.as_ref().filter(|round| round.run == run).map(|round| round.demand.version)
    }

    /// Starts a round: every one of these servers must be asked to prepare. `highest` is the highest step begun by
    /// ranks that have left.
    pub fn propose(
        &mut self,
        run: RunNumber,
        demand: Arc<Demand>,
        highest: Option<StepNumber>,
        servers: impl IntoIterator<Item = ServerId>,
    ) {
        let waiting_for = servers.into_iter().collect();
        self.round = Some(Round { run, demand, waiting_for, highest, age: Freshness::Current });
    }

    /// A rank has left, and a server does not know any more that this step was begun.
    pub fn note_highest_step_left(&mut self, run: RunNumber, step: StepNumber) {
        if let Some(round) = self.round.as_mut().filter(|round| round.run == run) {
            round.highest = round.highest.max(Some(step));
        }
    }

    /// A server answered.
    pub fn on_prepared(&mut self, from: ServerId, version: u64, highest: Option<StepNumber>) {
        if let Some(round) = self.round.as_mut().filter(|round| round.demand.version == version)
            && round.waiting_for.remove(&from)
        {
            round.highest = round.highest.max(highest);
        }
    }

    /// A server is gone: nothing is awaited from it any more. What its ranks have begun the caller finds out, before it has
    /// the change [decided](CutCoordinator::decide).
    pub fn on_server_gone(&mut self, server: ServerId) {
        if let Some(round) = &mut self.round {
            round.waiting_for.remove(&server);
        }
    }

    /// Decides the change once all servers have answered. `ended` is the highest step that a rank of a run is known to have
    /// ended, wherever that was.
    pub fn decide(&mut self, ended: impl FnOnce(RunNumber) -> Option<StepNumber>) -> Option<Decision> {
        let round = self.round.take_if(|round| round.waiting_for.is_empty())?;
        let highest = round.highest.max(ended(round.run));
        let from = highest.map_or(0, |highest| highest.saturating_add(1));
        Some(Decision { run: round.run, from, demand: round.demand })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Needs;
    use proptest::prelude::*;

    fn demand(version: u64) -> Arc<Demand> {
        Arc::new(Demand::union(version, [Needs::all(1)].iter()))
    }

    #[test]
    fn a_frozen_member_still_answers_running_steps() {
        let mut member = CutMember::default();
        member.open_run(1, Cuts::new(demand(1)), None);
        assert_eq!(member.begin(1, 5), Begin::Now(demand(1)));
        assert_eq!(member.prepare(1, 2), Some(5));
        assert_eq!(member.begin(1, 5), Begin::Now(demand(1)));
        assert_eq!(member.begin(1, 6), Begin::Wait);
        member.decide(1, 9, demand(2));
        assert_eq!(member.begin(1, 8), Begin::Now(demand(1)));
        assert_eq!(member.begin(1, 9), Begin::Now(demand(2)));
        assert_eq!(member.begin(2, 0), Begin::UnknownRun);
    }

    #[test]
    fn what_is_wanted_between_two_steps() {
        let nothing = Arc::new(Demand::default());
        let mut cuts = Cuts::new(nothing.clone());
        cuts.decide(5, demand(1));
        cuts.decide(8, nothing);
        for (steps, wanted) in [(0..5, false), (0..6, true), (7..9, true), (8..99, false), (6..6, false)] {
            assert_eq!(cuts.wants_any(steps.clone()), wanted, "{steps:?}");
        }
        let (first, later) = cuts.to_parts();
        assert_eq!(Cuts::from_parts(first, later), cuts);
    }

    /// What the coordinator tells a server; it arrives in order.
    enum Told {
        Prepare(u64),
        Decide(Decision),
        Joined(Cuts, Option<u64>),
    }

    proptest! {
        /// Whatever the order in which ranks come, begin steps and leave, and changes are prepared and decided: all
        /// ranks of a step see one demand.
        #[test]
        fn one_demand_a_step(actions in prop::collection::vec((0usize..3, 0u8..8), 1..200)) {
            // Each server has one rank at a time, and no member without one.
            let mut members: Vec<Option<CutMember>> = (0..3).map(|_| None).collect();
            let mut told: Vec<std::collections::VecDeque<Told>> = (0..3).map(|_| Default::default()).collect();
            let mut next = [0u64; 3];
            let mut joining = [false; 3];
            let mut coordinator = CutCoordinator::default();
            let mut cuts = Cuts::new(demand(1));
            let mut left: Option<StepNumber> = None;
            let mut version = 1;
            let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
            for (who, what) in actions {
                match what {
                    0..=2 => if let Some(member) = &mut members[who]
                        && let Begin::Now(demand) = member.begin(1, next[who])
                    {
                        let first = *seen.entry(next[who]).or_insert(demand.version);
                        prop_assert_eq!(first, demand.version, "step {}", next[who]);
                        next[who] += 1;
                    },
                    3 | 4 => match told[who].pop_front() {
                        Some(Told::Prepare(version)) => {
                            let highest = members[who].as_mut().and_then(|member| member.prepare(1, version));
                            coordinator.on_prepared(ServerId(who as u32), version, highest);
                            if let Some(decision) = coordinator.decide(|_| None) {
                                cuts.decide(decision.from, decision.demand.clone());
                                told.iter_mut().for_each(|told| told.push_back(Told::Decide(decision.clone())));
                            }
                        }
                        Some(Told::Decide(decision)) => if let Some(member) = &mut members[who] {
                            member.decide(decision.run, decision.from, decision.demand);
                        },
                        Some(Told::Joined(cuts, agreeing)) => {
                            joining[who] = false;
                            next[who] = 0;
                            members[who].get_or_insert_default().open_run(1, cuts, agreeing);
                        }
                        None => {}
                    },
                    5 => if !coordinator.is_agreeing() {
                        version += 1;
                        coordinator.propose(1, demand(version), left, (0..3).map(ServerId));
                        told.iter_mut().for_each(|told| told.push_back(Told::Prepare(version)));
                    },
                    6 => if members[who].is_none() && !joining[who] {
                        joining[who] = true;
                        told[who].push_back(Told::Joined(cuts.clone(), coordinator.proposed_version(1)));
                    },
                    _ => if let Some(step) = members[who].take().and_then(|member| member.highest_begun(1)) {
                        left = left.max(Some(step));
                        coordinator.note_highest_step_left(1, step);
                    },
                }
            }
        }
    }
}
