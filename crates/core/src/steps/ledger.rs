//! What a home server has told the coordinators of its ranks' streams, kept until the steps are free: when a coordinator
//! has died, the one that takes its place is told again.

use crate::attr::{Attr, Attrs};
use crate::contract::Field;
use crate::demand::Demand;
use crate::ids::{RunNumber, StepId, StepNumber};
use crate::steps::{RunOptions, StepEnded};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How many runs are remembered of which nothing is left but that they were.
const IDLE_MAX: usize = 256;

/// What a server that takes the place of a dead coordinator is told of a run first, by each home of its ranks. The steps
/// follow one by one, then which ranks are gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inheritance {
    /// The run.
    pub run: RunNumber,
    /// What its ranks joined with.
    pub options: RunOptions,
    /// What they offer.
    pub fields: Vec<Field>,
    /// What they have set.
    pub attrs: Attrs,
    /// The demand from step 0 on, and from which later steps other demands hold. `None` where no rank is left.
    pub cuts: Option<(Demand, Vec<(StepNumber, Demand)>)>,
    /// The highest step that was begun by ranks which have left.
    pub reached: Option<StepNumber>,
    /// The ranks whose home the sender is or was, and below which step each has finished all.
    pub ranks: Vec<(u32, StepNumber)>,
    /// Whether one of them has begun a step.
    pub begun: bool,
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
    ranks: BTreeMap<u32, RankLedger>,
}

/// One rank.
#[derive(Debug, Default)]
pub struct RankLedger {
    below: StepNumber,
    /// Whether it has gone, and if so whether it died.
    pub gone: Option<bool>,
    /// What it has ended and was not freed yet.
    pub steps: BTreeMap<StepNumber, Arc<StepEnded>>,
}

impl Ledger {
    fn run_mut(&mut self, stream: &str, run: RunNumber) -> Option<&mut RunLedger> {
        self.runs.get_mut(&(stream.to_owned(), run))
    }

    /// A rank has joined.
    pub fn joined(&mut self, stream: &str, run: RunNumber, rank: u32, options: RunOptions) {
        let entry = self.runs.entry((stream.to_owned(), run)).or_insert_with(|| RunLedger {
            options,
            fields: BTreeMap::new(),
            attrs: Attrs::default(),
            begun: false,
            reached: None,
            ranks: BTreeMap::new(),
        });
        entry.ranks.entry(rank).or_default().gone = None;
        self.idle.retain(|(name, number)| name != stream || *number != run);
    }

    /// A rank offers a field.
    pub fn defined(&mut self, stream: &str, run: RunNumber, field: Field) {
        if let Some(run) = self.run_mut(stream, run) {
            run.fields.insert(field.name.clone(), field);
        }
    }

    /// A rank has set an attribute, and the coordinator has taken it.
    pub fn attr_set(&mut self, stream: &str, run: RunNumber, field: Option<&str>, key: &str, attr: Attr) {
        if let Some(run) = self.run_mut(stream, run) {
            // What the coordinator has taken, this does.
            let _ = run.attrs.set(field, key, attr);
        }
    }

    /// A rank begins this step: it has finished all before it.
    pub fn begun(&mut self, stream: &str, run: RunNumber, rank: u32, step: StepNumber) {
        if let Some(run) = self.run_mut(stream, run) {
            run.begun = true;
            if let Some(rank) = run.ranks.get_mut(&rank) {
                rank.below = rank.below.max(step);
            }
        }
    }

    /// A rank has ended a step. Returns how many of its steps are kept.
    pub fn ended(&mut self, stream: &str, run: RunNumber, rank: u32, ended: Arc<StepEnded>) -> usize {
        let rank = self.run_mut(stream, run).and_then(|run| run.ranks.get_mut(&rank));
        rank.map_or(0, |rank| {
            rank.below = rank.below.max(ended.step);
            rank.steps.insert(ended.step, ended);
            rank.steps.len()
        })
    }

    /// A rank leaves that had begun this step.
    pub fn reached(&mut self, stream: &str, run: RunNumber, step: StepNumber) {
        if let Some(run) = self.run_mut(stream, run) {
            run.reached = run.reached.max(Some(step));
        }
    }

    /// A rank has gone, and all that it ended has been told.
    pub fn gone(&mut self, stream: &str, run: RunNumber, rank: u32, died: bool) {
        let rank = self.run_mut(stream, run).and_then(|run| run.ranks.get_mut(&rank));
        if let Some(rank) = rank {
            rank.gone = Some(died);
        }
        self.forget_if_idle(stream, run);
    }

    /// A step is free: nobody needs to be told of it again.
    pub fn free(&mut self, id: &StepId) {
        let Some(run) = self.run_mut(&id.stream, id.run) else { return };
        for rank in run.ranks.values_mut() {
            rank.steps.remove(&id.step);
        }
        self.forget_if_idle(&id.stream, id.run);
    }

    /// Of an idle run only that it was is of use, and only of a stream's last one.
    fn forget_if_idle(&mut self, stream: &str, run: RunNumber) {
        let key = (stream.to_owned(), run);
        let idle =
            |run: &RunLedger| run.ranks.values().all(|rank| rank.gone.is_some() && rank.steps.is_empty());
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
        {
            self.runs.remove(&oldest);
        }
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
    /// The ranks.
    pub fn ranks(&self) -> impl Iterator<Item = (u32, &RankLedger)> {
        self.ranks.iter().map(|(rank, state)| (*rank, state))
    }

    /// What is told of the run before its steps.
    pub fn inheritance(
        &self,
        run: RunNumber,
        cuts: Option<(Demand, Vec<(StepNumber, Demand)>)>,
    ) -> Inheritance {
        Inheritance {
            run,
            options: self.options.clone(),
            fields: self.fields.values().cloned().collect(),
            attrs: self.attrs.clone(),
            cuts,
            reached: self.reached,
            ranks: self.ranks.iter().map(|(rank, state)| (*rank, state.below)).collect(),
            begun: self.begun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Policy;

    fn options() -> RunOptions {
        RunOptions { size: 2, policy: Policy::Block, keep: 0, queue_bytes: 0, continues: None }
    }

    fn step(step: StepNumber) -> Arc<StepEnded> {
        Arc::new(StepEnded {
            step,
            time: 0.0,
            fields: Vec::new(),
            dropped: false,
            torn: false,
            servers: Vec::new(),
        })
    }

    #[test]
    fn steps_are_kept_until_they_are_free_and_runs_for_as_long_as_they_are_the_last() {
        let mut ledger = Ledger::default();
        ledger.joined("s", 1, 0, options());
        ledger.joined("s", 1, 1, options());
        for number in 4..7 {
            ledger.ended("s", 1, 0, step(number));
            ledger.ended("s", 1, 1, step(number));
        }
        ledger.free(&StepId { stream: "s".into(), run: 1, step: 4 });
        assert_eq!(ledger.steps("s").collect::<Vec<_>>(), [(1, 5), (1, 6), (1, 5), (1, 6)]);
        for rank in 0..2 {
            ledger.gone("s", 1, rank, false);
        }
        ledger.reached("s", 1, 6);
        let (_, run) = ledger.runs_of("s").next().unwrap();
        let told = run.inheritance(1, None);
        assert_eq!((told.ranks, told.reached), (vec![(0, 6), (1, 6)], Some(6)));
        for number in 5..7 {
            ledger.free(&StepId { stream: "s".into(), run: 1, step: number });
        }
        assert_eq!(ledger.runs_of("s").count(), 1, "that it was");
        ledger.joined("s", 2, 0, options());
        ledger.gone("s", 2, 0, true);
        assert_eq!(ledger.runs_of("s").map(|(number, _)| number).collect::<Vec<_>>(), [2]);
        for number in 0..1000 {
            ledger.joined(&format!("t{number}"), 1, 0, options());
            ledger.gone(&format!("t{number}"), 1, 0, false);
        }
        assert_eq!(ledger.streams().count(), IDLE_MAX);
    }
}
