//! All that a subscription remembers.

use crate::evaluation::Evaluation;
use crate::plan::Plan;
use crate::subscription::counts::Counts;
use crate::subscription::definition::{Definition, Missing};
use crate::subscription::event::Event;
use crate::time::{Moment, Outcome, WatchState};
use crate::value::{Unknown, UnknownKind};
use forebay_core::ids::{RunNumber, StepNumber};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All that a subscription remembers, but for its events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Of what is watched; `None` until its fields are known.
    pub watch: Option<WatchState>,
    /// From which step on it watches, once that is known.
    pub from: Option<(RunNumber, StepNumber)>,
    /// The last step that was evaluated.
    pub last: Option<(RunNumber, StepNumber)>,
    /// How often what has happened.
    pub counts: Counts,
    /// Of each sort of reason the first: where nothing was known, and why.
    pub reasons: BTreeMap<UnknownKind, (RunNumber, StepNumber, String)>,
    /// Whether nothing is evaluated.
    pub is_paused: bool,
    /// Why the latest evaluation gave nothing known, if it did not.
    pub unknown: Option<Unknown>,
}

/// An evaluation that has come to its end.
#[derive(Debug)]
pub struct Evaluated<'a> {
    /// The step's run.
    pub run: RunNumber,
    /// The step, and its time.
    pub moment: Moment,
    /// The evaluation, or why there was none.
    pub evaluation: Result<&'a Evaluation, Unknown>,
    /// What is remembered after it, but for what comes of it.
    pub watch: Option<WatchState>,
    /// How many steps were dropped before it.
    pub missed: u64,
}

/// What came of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// An event.
    pub event: Option<Event>,
    /// Why nothing is known, where subscribers were not told of that sort before.
    pub unknown: Option<Unknown>,
}

impl State {
    /// What is remembered as a step of a run is evaluated with this plan: what came at or after it is forgotten, if a run has gone
    /// back, and all is if the plan is another one. The space has no runs, which is run 0, and its steps come in any order.
    pub fn watch_for(&self, plan: &Plan, run: RunNumber, step: StepNumber) -> WatchState {
        let mut watch = match &self.watch {
            Some(watch) if watch.fits(plan) => watch.clone(),
            _ => WatchState::new(plan),
        };
        if run != 0 && self.last.is_some_and(|(last_run, last)| run != last_run || step <= last) {
            watch.forget_from(step);
        }
        watch
    }

    /// Takes in what was evaluated. `number` is that of the next event.
    pub fn settle(&mut self, definition: &Definition, evaluated: Evaluated<'_>, number: u64) -> Settled {
        let Evaluated { run, moment, evaluation, watch, missed } = evaluated;
        self.counts.evaluated += 1;
        self.counts.missed += missed;
        self.last = Some((run, moment.step));
        let resets = definition.missing == Missing::Reset;
        let mut watch = watch.or_else(|| self.watch.take());
        let outcome = match (&evaluation, &mut watch) {
            (Ok(evaluation), Some(watch)) => evaluation.outcome(watch, resets),
            (Ok(_), None) => Outcome::Nothing,
            (Err(why), _) => Outcome::Unknown(why.clone()),
        };
        self.watch = watch;
        self.unknown = None;
        let (event, unknown) = match outcome {
            Outcome::Nothing => (None, None),
            Outcome::Unknown(why) => {
                let is_new = self.note_unknown((run, moment.step), &why);
                (None, is_new.then_some(why))
            }
            Outcome::Event(turn, episode) => {
                self.counts.held += u64::from(turn != crate::time::Turn::Fell);
                let values =
                    || evaluation.as_ref().map(|evaluation| evaluation.reported()).unwrap_or_default();
                let event = definition.on.includes(turn).then(|| Event {
                    number,
                    run,
                    step: moment.step,
                    time: moment.time,
                    turn,
                    episode,
                    values: values(),
                });
                self.counts.events += u64::from(event.is_some());
                (event, None)
            }
        };
        Settled { event, unknown }
    }

    /// Nothing is known at a step. Returns whether subscribers are to be told: of each sort of reason once.
    pub fn note_unknown(&mut self, (run, step): (RunNumber, StepNumber), why: &Unknown) -> bool {
        *self.counts.unknown.entry(why.kind).or_default() += 1;
        // At first there is no history: that is no news.
        let is_new = why.kind != UnknownKind::History && !self.reasons.contains_key(&why.kind);
        if is_new {
            self.reasons.insert(why.kind, (run, step, why.text.clone()));
        }
        self.unknown = Some(why.clone());
        is_new
    }

    /// Whether it ends by itself: it has had as many events as it was to have.
    pub fn is_over(&self, definition: &Definition) -> bool {
        definition.limit.is_some_and(|limit| self.counts.events >= limit)
    }
}
