//! What a home server has told the coordinators of its ranks' streams, kept until the steps are free: when a coordinator
//! has died, the one that takes its place is told again.

use crate::attr::{Attr, Attrs};
use crate::contract::Field;
use crate::demand::Demand;
use crate::identity::Identity;
use crate::ids::{RunNumber, STATIC_STEP, StepId, StepNumber, Timestamp};
use crate::seeded::{Bug, seeded};
use crate::steps::contribution::StepContribution;
use crate::steps::options::RunOptions;
use crate::steps::rank::Joining;
use crate::steps::run_end::{RankEnd, RunSummary};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How many runs are remembered of which nothing is left but that they were.
const IDLE_MAX: usize = 256;

/// The demand from step 0 of a run on, and from which later steps other demands hold.
pub(super) type CutsReport = (Demand, Vec<(StepNumber, Demand)>);

/// Those of which the last change is the later one.
fn later_cuts(some: Option<CutsReport>, others: Option<CutsReport>) -> Option<CutsReport> {
    let last = |cuts: &CutsReport| cuts.1.last().map(|(from, demand)| (*from, demand.version));
    some.into_iter().chain(others).max_by_key(last)
}

/// What a server that takes the place of a dead coordinator is told of a run first, by each home of its ranks. The steps
/// follow one by one, then which ranks are gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The run.
    pub run: RunNumber,
    /// What its ranks joined with.
    pub options: RunOptions,
    /// What they offer.
    pub fields: Vec<Field>,
    /// What they have set.
    pub attrs: Attrs,
    /// The demand from step 0 on, and from which later steps other demands hold. `None` where no rank is left.
    pub cuts: Option<CutsReport>,
    /// The highest step that was begun by ranks which have left.
    pub highest_step_left: Option<StepNumber>,
    /// The ranks whose home the sender is or was.
    pub ranks: Vec<RankReport>,
    /// Whether one of them has begun a step.
    pub begun: bool,
    /// How the run ended, if all its ranks have come and gone, those of other homes, too.
    pub over: Option<Box<RunSummary>>,
    /// When its first rank joined.
    pub began: Timestamp,
}

/// Runs are counted: no stream has so many.
const RUNS_MAX: RunNumber = 1 << 48;

impl RunReport {
    /// Checks what can be wrong in itself.
    pub fn check(&self) -> Result<()> {
        check_run(self.run)?;
        self.fields.iter().try_for_each(Field::check)?;
        self.ranks.iter().try_for_each(|rank| self.options.check(rank.rank))
    }
}

/// Whether a run can have this number.
pub(super) fn check_run(run: RunNumber) -> Result<()> {
    match run {
        1..RUNS_MAX => Ok(()),
        _ => Err(Error::protocol(format!("no stream has had {run} runs"))),
    }
}

/// One rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Its number.
    pub rank: u32,
    /// Which process it is.
    pub who: Identity,
    /// It has finished all steps below this one.
    pub below: StepNumber,
    /// All that it ended below this step had as many copies as it was to have, or is needed no more.
    pub safe_below: StepNumber,
    /// Whether it has begun a step.
    pub begun: bool,
    /// Whether its home is dead, and the sender had only copies.
    pub away: bool,
}

/// The runs of all ranks that have or had their home on one server.
#[derive(Debug, Default)]
pub struct Ledger {
    runs: BTreeMap<(String, RunNumber), RunLedger>,
    /// Those without steps whose ranks are gone, the longest ago first.
    idle: VecDeque<(String, RunNumber)>,
}

/// One run.
#[derive(Debug)]
pub struct RunLedger {
    options: RunOptions,
    fields: BTreeMap<String, Field>,
    attrs: Attrs,
    begun: bool,
    reached: Option<StepNumber>,
    /// Which demands held, as another server knew that is dead, or this one when its last rank moved away.
    cuts: Option<CutsReport>,
    /// How it ended, if all its ranks have come and gone, those of other homes, too.
    over: Option<Box<RunSummary>>,
    began: Timestamp,
    ranks: BTreeMap<u32, RankLedger>,
    /// How often something of it changed but its steps.
    version: u64,
}

/// One rank.
#[derive(Debug, Default)]
pub struct RankLedger {
    who: Identity,
    below: StepNumber,
    safe_below: StepNumber,
    begun: bool,
    /// It has its home elsewhere: this one has let it go, or had a copy of what its home told, which has died.
    away: bool,
    /// How it ended, if it has.
    pub gone: Option<RankEnd>,
    /// What it has ended and was not freed yet; its static fields under [`STATIC_STEP`].
    pub steps: BTreeMap<StepNumber, Arc<StepContribution>>,
}

impl RankLedger {
    /// Whether it has its home elsewhere: this one has let it go, or had a copy of what its home told, which has died.
    pub fn is_away(&self) -> bool {
        self.away
    }

    /// Whether what it ended in this step had as many copies as it was to have, or is needed no more.
    pub fn is_safe(&self, step: StepNumber) -> bool {
        step < self.safe_below
    }

    fn note_safe_to(&mut self, step: StepNumber) {
        if step == STATIC_STEP {
            return;
        }
        self.safe_below = self.safe_below.max(step.saturating_add(1));
    }
}

impl Ledger {
    fn run_mut(&mut self, stream: &str, run: RunNumber) -> Option<&mut RunLedger> {
        self.runs.get_mut(&(stream.to_owned(), run))
    }

    /// A rank has joined a run that began then.
    pub fn on_joined(&mut self, stream: &str, run: RunNumber, joining: Joining, began: Timestamp) {
        let Joining { rank, who, options } = joining;
        let entry =
            self.runs.entry((stream.to_owned(), run)).or_insert_with(|| RunLedger::new(options, began));
        entry.version += 1;
        entry.over = None;
        let rank = entry.ranks.entry(rank).or_default();
        (rank.who, rank.gone, rank.away) = (who, None, false);
        self.idle.retain(|(name, number)| name != stream || *number != run);
    }

    /// A rank offers a field.
    pub fn on_defined(&mut self, stream: &str, run: RunNumber, field: Field) {
        if let Some(run) = self.run_mut(stream, run) {
            run.fields.insert(field.name.clone(), field);
            run.version += 1;
        }
    }

    /// A rank has set an attribute, and the coordinator has taken it.
    pub fn on_attr_set(&mut self, stream: &str, run: RunNumber, field: Option<&str>, key: &str, attr: Attr) {
        if let Some(run) = self.run_mut(stream, run) {
            // What the coordinator has taken, this does.
            let _ = run.attrs.set(field, key, attr);
            run.version += 1;
        }
    }

    /// A rank begins this step: it has finished all before it.
    pub fn on_begun(&mut self, stream: &str, run: RunNumber, rank: u32, step: StepNumber) {
        if let Some(run) = self.run_mut(stream, run) {
            run.version += u64::from(!run.begun);
            run.begun = true;
            if let Some(rank) = run.ranks.get_mut(&rank) {
                rank.below = rank.below.max(step);
                rank.safe_below = rank.safe_below.max(step);
                rank.begun = true;
            }
        }
    }

    /// What a rank has ended in a step has as many copies as it is to have.
    pub fn on_replicated(&mut self, stream: &str, run: RunNumber, rank: u32, step: StepNumber) {
        let rank = self.run_mut(stream, run).and_then(|run| run.ranks.get_mut(&rank));
        rank.into_iter().for_each(|rank| rank.note_safe_to(step));
    }

    /// A rank has ended a step. Returns how many of its steps are kept.
    pub fn on_ended(
        &mut self,
        stream: &str,
        run: RunNumber,
        rank: u32,
        ended: Arc<StepContribution>,
    ) -> usize {
        let rank = self.run_mut(stream, run).and_then(|run| run.ranks.get_mut(&rank));
        rank.map_or(0, |rank| {
            if ended.step != STATIC_STEP {
                rank.below = rank.below.max(ended.step.saturating_add(1));
            }
            rank.steps.insert(ended.step, ended);
            rank.steps.len()
        })
    }

    /// A rank leaves that had begun this step.
    pub fn note_highest_step_left(&mut self, stream: &str, run: RunNumber, step: StepNumber) {
        if let Some(run) = self.run_mut(stream, run) {
            run.reached = run.reached.max(Some(step));
            run.version += 1;
        }
    }

    /// A rank has gone, and all that it ended has been told.
    pub fn on_gone(&mut self, stream: &str, run: RunNumber, rank: u32, end: RankEnd) {
        let rank = self.run_mut(stream, run).and_then(|run| run.ranks.get_mut(&rank));
        if let Some(rank) = rank {
            rank.gone = Some(end);
        }
        self.forget_if_idle(stream, run);
    }

    /// A rank has its home elsewhere from now on, and all that it ended here has been told.
    pub fn on_released(&mut self, stream: &str, run: RunNumber, rank: u32) {
        if let Some(entry) = self.run_mut(stream, run)
            && let Some(rank) = entry.ranks.get_mut(&rank)
        {
            rank.away = true;
            entry.version += 1;
        }
        self.forget_if_idle(stream, run);
    }

    /// All ranks of a run have come and gone, those of other homes, too.
    pub fn on_run_over(&mut self, stream: &str, run: RunNumber, summary: RunSummary) {
        if let Some(run) = self.run_mut(stream, run) {
            run.over = Some(Box::new(summary));
        }
    }

    /// Which demands hold, since no rank is left here through which that is known.
    pub fn keep_cuts(&mut self, stream: &str, run: RunNumber, cuts: CutsReport) {
        if let Some(run) = self.run_mut(stream, run) {
            run.cuts = Some(cuts);
            run.version += 1;
        }
    }

    /// All that is kept of steps.
    pub fn all_steps(&self) -> impl Iterator<Item = StepId> {
        self.runs.iter().flat_map(|((stream, run), ledger)| {
            let steps = ledger.ranks.values().flat_map(|rank| rank.steps.keys());
            steps.map(|step| StepId { stream: stream.clone(), run: *run, step: *step })
        })
    }

    /// All runs.
    pub fn all_runs(&self) -> impl Iterator<Item = &(String, RunNumber)> {
        self.runs.keys()
    }

    /// A step is free: nobody needs to be told of it again.
    pub fn on_freed(&mut self, id: &StepId) {
        let Some(run) = self.run_mut(&id.stream, id.run) else { return };
        for rank in run.ranks.values_mut() {
            if rank.steps.remove(&id.step).is_some() {
                rank.note_safe_to(id.step);
            }
        }
        self.forget_if_idle(&id.stream, id.run);
    }

    /// Of an idle run only that it was is of use, and only of a stream's last one.
    fn forget_if_idle(&mut self, stream: &str, run: RunNumber) {
        let key = (stream.to_owned(), run);
        let done = |rank: &RankLedger| (rank.gone.is_some() || rank.away) && rank.steps.is_empty();
        // One that was idle may not be any more.
        let idle = |run: &RunLedger| run.ranks.values().all(done);
        if !self.runs.get(&key).is_some_and(idle) {
            return;
        }
        let earlier: Vec<_> = self
            .runs
            .range((stream.to_owned(), 0)..key.clone())
            .filter(|(_, run)| idle(run))
            .map(|(key, _)| key.clone())
            .collect();
        for key in earlier {
            self.runs.remove(&key);
            self.idle.retain(|known| *known != key);
        }
        if !self.idle.contains(&key) {
            self.idle.push_back(key);
        }
        if self.idle.len() > IDLE_MAX
            && let Some(oldest) = self.idle.pop_front()
            && self.runs.get(&oldest).is_some_and(idle)
        {
            self.runs.remove(&oldest);
        }
    }

    /// Another demand holds from some step on.
    pub fn on_demand_changed(&mut self, stream: &str, run: RunNumber) {
        if let Some(run) = self.run_mut(stream, run) {
            run.version += 1;
        }
    }

    /// Another server tells what it knows of a run but its steps, in case that it dies.
    pub fn on_replica(&mut self, stream: &str, told: RunReport) {
        let key = (stream.to_owned(), told.run);
        let run = self.runs.entry(key).or_insert_with(|| RunLedger::new(told.options.clone(), told.began));
        run.fields = told.fields.into_iter().map(|field| (field.name.clone(), field)).collect();
        run.attrs = told.attrs;
        run.begun = told.begun;
        run.reached = told.highest_step_left;
        run.cuts = told.cuts;
        run.over = run.over.take().or(told.over);
        for rank in told.ranks {
            let known = run.ranks.entry(rank.rank).or_default();
            known.who = rank.who;
            known.below = known.below.max(rank.below);
            known.safe_below = known.safe_below.max(rank.safe_below);
            known.begun |= rank.begun;
            known.away = true;
        }
    }

    /// The server is dead of which this is a copy: what it knew is told by this one from now on.
    pub fn absorb(&mut self, copy: Ledger) {
        for ((stream, number), theirs) in copy.runs {
            let key = (stream, number);
            let run =
                self.runs.entry(key).or_insert_with(|| RunLedger::new(theirs.options.clone(), theirs.began));
            run.version += 1;
            for (name, field) in theirs.fields {
                run.fields.entry(name).or_insert(field);
            }
            if run.attrs.is_empty() {
                run.attrs = theirs.attrs;
            }
            run.begun |= theirs.begun;
            run.over = run.over.take().or(theirs.over);
            run.reached = run.reached.max(theirs.reached);
            // What this server knew may be from long ago, when it was the home of a rank.
            run.cuts = match seeded(Bug::BelievesItsOldCuts) {
                false => later_cuts(run.cuts.take(), theirs.cuts),
                true => run.cuts.take().or(theirs.cuts),
            };
            for (number, rank) in theirs.ranks {
                let known =
                    run.ranks.entry(number).or_insert(RankLedger { away: true, ..RankLedger::default() });
                if known.away {
                    known.who = rank.who;
                }
                known.below = known.below.max(rank.below);
                known.safe_below = known.safe_below.max(rank.safe_below);
                known.begun |= rank.begun;
                known.gone = known.gone.or(rank.gone);
                known.steps.extend(rank.steps);
            }
        }
    }

    /// Whether what its parts say of one another agrees: checked in tests. The error says what does not.
    pub fn sanity_check(&self) -> std::result::Result<(), String> {
        let idle: BTreeSet<_> = self.idle.iter().collect();
        if idle.len() != self.idle.len() || idle.len() > IDLE_MAX {
            return Err(format!(
                "{} idle runs are remembered, {} different ones",
                self.idle.len(),
                idle.len()
            ));
        }
        if let Some((stream, run)) = idle.into_iter().find(|key| !self.runs.contains_key(*key)) {
            return Err(format!("run {run} of stream '{stream}' is idle, but forgotten"));
        }
        for ((stream, number), run) in &self.runs {
            for (rank, state) in &run.ranks {
                let last = state.steps.range(..STATIC_STEP).next_back();
                if let Some((step, _)) = last.filter(|(step, _)| **step >= state.below) {
                    return Err(format!(
                        "rank {rank} of run {number} of stream '{stream}' has ended step {step}, but none from {} on",
                        state.below
                    ));
                }
                if *rank >= run.options.size {
                    return Err(format!(
                        "run {number} of stream '{stream}' has rank {rank}, of {}",
                        run.options.size
                    ));
                }
            }
        }
        Ok(())
    }

    /// What ranks told of a step, as far as it is kept.
    pub fn contributions_to(&self, id: &StepId) -> Vec<(u32, Arc<StepContribution>)> {
        let run = self.runs.get(&(id.stream.clone(), id.run));
        let ranks = run.into_iter().flat_map(|run| &run.ranks);
        ranks
            .filter_map(|(rank, state)| state.steps.get(&id.step).map(|told| (*rank, told.clone())))
            .collect()
    }

    /// A run.
    pub fn run(&self, stream: &str, run: RunNumber) -> Option<&RunLedger> {
        self.runs.get(&(stream.to_owned(), run))
    }

    /// The streams of all ranks.
    pub fn streams(&self) -> impl Iterator<Item = &String> {
        self.runs.keys().map(|(stream, _)| stream)
    }

    /// The steps of a stream that are kept.
    pub fn steps(&self, stream: &str) -> impl Iterator<Item = (RunNumber, StepNumber)> {
        self.runs_of(stream).flat_map(|(number, run)| {
            run.ranks.values().flat_map(move |rank| rank.steps.keys().map(move |step| (number, *step)))
        })
    }

    /// The runs of a stream, the oldest first.
    pub fn runs_of(&self, stream: &str) -> impl Iterator<Item = (RunNumber, &RunLedger)> {
        let range = self.runs.range((stream.to_owned(), 0)..=(stream.to_owned(), RunNumber::MAX));
        range.map(|((_, number), run)| (*number, run))
    }
}

impl RunLedger {
    fn new(options: RunOptions, began: Timestamp) -> RunLedger {
        RunLedger {
            options,
            fields: BTreeMap::new(),
            attrs: Attrs::default(),
            begun: false,
            reached: None,
            cuts: None,
            over: None,
            began,
            ranks: BTreeMap::new(),
            version: 0,
        }
    }

    /// Grows with each change of what is told before the steps.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What its ranks joined with.
    pub fn options(&self) -> &RunOptions {
        &self.options
    }

    /// The ranks.
    pub fn ranks(&self) -> impl Iterator<Item = (u32, &RankLedger)> {
        self.ranks.iter().map(|(rank, state)| (*rank, state))
    }

    /// What is told of the run before its steps.
    pub fn report(&self, run: RunNumber, cuts: Option<CutsReport>) -> RunReport {
        RunReport {
            run,
            options: self.options.clone(),
            fields: self.fields.values().cloned().collect(),
            attrs: self.attrs.clone(),
            cuts: cuts.or_else(|| self.cuts.clone()),
            highest_step_left: self.reached,
            over: self.over.clone(),
            began: self.began,
            ranks: self
                .ranks
                .iter()
                .map(|(rank, state)| {
                    let RankLedger { below, safe_below, begun, away, .. } = *state;
                    RankReport { rank: *rank, who: state.who.clone(), below, safe_below, begun, away }
                })
                .collect(),
            begun: self.begun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::options::{Durability, Policy};
    use crate::steps::run_end::RankCounts;

    fn options() -> RunOptions {
        RunOptions {
            size: 2,
            policy: Policy::Block,
            keep: 0,
            queue_bytes: 0,
            continues: None,
            replicas: 1,
            durability: Durability::Local,
            wait_for_readers: 0,
            job: String::new(),
        }
    }

    fn joining(rank: u32) -> Joining {
        Joining { rank, who: Identity::default(), options: options() }
    }

    fn step(step: StepNumber) -> Arc<StepContribution> {
        Arc::new(StepContribution {
            step,
            time: 0.0,
            fields: Vec::new(),
            attrs: Default::default(),
            dropped: false,
            torn: false,
            servers: Vec::new(),
        })
    }

    #[test]
    fn a_run_that_was_idle_is_not_forgotten_when_it_is_used_again() {
        let mut ledger = Ledger::default();
        let told = |stream: &str| {
            let mut home = Ledger::default();
            home.on_joined(stream, 1, joining(0), Timestamp(7));
            let told = home.runs_of(stream).next().map(|(run, known)| known.report(run, None));
            (stream.to_owned(), told.unwrap())
        };
        let id = |stream: &str, step| StepId { stream: stream.into(), run: 1, step };
        let mut is_used = |stream: &str, steps: std::ops::Range<StepNumber>| {
            let (name, told) = told(stream);
            ledger.on_replica(&name, told);
            for number in steps.clone() {
                ledger.on_ended(stream, 1, 0, step(number));
            }
            ledger.on_freed(&id(stream, steps.start));
            ledger.sanity_check().unwrap();
            ledger.contributions_to(&id("s", 1)).len()
        };
        is_used("s", 0..1);
        assert_eq!(is_used("s", 0..2), 1);
        for other in 0..2 * IDLE_MAX {
            assert_eq!(is_used(&format!("other{other}"), 0..1), 1, "after {other} others");
        }
    }

    #[test]
    fn steps_are_kept_until_they_are_free_and_runs_for_as_long_as_they_are_the_last() {
        let mut ledger = Ledger::default();
        ledger.on_joined("s", 1, joining(0), Timestamp(7));
        ledger.on_joined("s", 1, joining(1), Timestamp(9));
        for number in 4..7 {
            ledger.on_ended("s", 1, 0, step(number));
            ledger.on_ended("s", 1, 1, step(number));
            ledger.sanity_check().unwrap();
        }
        ledger.on_freed(&StepId { stream: "s".into(), run: 1, step: 4 });
        assert_eq!(ledger.steps("s").collect::<Vec<_>>(), [(1, 5), (1, 6), (1, 5), (1, 6)]);
        for rank in 0..2 {
            ledger.on_gone("s", 1, rank, RankEnd::Closed(RankCounts::default()));
        }
        ledger.note_highest_step_left("s", 1, 6);
        let (_, run) = ledger.runs_of("s").next().unwrap();
        let told = run.report(1, None);
        let rank = |rank| RankReport {
            rank,
            who: Identity::default(),
            below: 7,
            safe_below: 5,
            begun: false,
            away: false,
        };
        assert_eq!((told.ranks, told.highest_step_left), (vec![rank(0), rank(1)], Some(6)));
        assert_eq!(told.began, Timestamp(7), "when its first rank joined");
        for number in 5..7 {
            ledger.on_freed(&StepId { stream: "s".into(), run: 1, step: number });
        }
        assert_eq!(ledger.runs_of("s").count(), 1, "that it was");
        ledger.on_joined("s", 2, joining(0), Timestamp(7));
        ledger.on_gone("s", 2, 0, RankEnd::Died);
        assert_eq!(ledger.runs_of("s").map(|(number, _)| number).collect::<Vec<_>>(), [2]);
        for number in 0..1000 {
            ledger.on_joined(&format!("t{number}"), 1, joining(0), Timestamp(7));
            ledger.on_gone(&format!("t{number}"), 1, 0, RankEnd::Closed(RankCounts::default()));
            ledger.sanity_check().unwrap();
        }
        assert_eq!(ledger.streams().count(), IDLE_MAX);
    }
}
