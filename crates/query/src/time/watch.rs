//! All that is remembered of one text from step to step.

use crate::plan::{Plan, ScalarId, TimeFunction};
use crate::syntax::Duration;
use crate::time::episode::{Episode, Turn};
use crate::time::hold::HoldState;
use crate::time::moment::Moment;
use crate::time::remembered::Remembered;
use crate::time::timeline::{REMEMBERED, Timeline};
use crate::value::{Scalar, Unknown};
use forebay_core::ids::StepNumber;
use serde::{Deserialize, Serialize};

/// All that is remembered of one text from step to step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchState {
    /// By the place of the function among the scalars.
    remembered: Vec<(ScalarId, Remembered)>,
    condition: HoldState,
    until: HoldState,
    episodes: Timeline<Episodes>,
}

/// The episode that goes on after an evaluation, and how many there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Episodes {
    current: Option<Episode>,
    count: u64,
}

/// What came of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// What is watched holds, or holds no more: an event.
    Event(Turn, Episode),
    /// It does not hold.
    Nothing,
    /// Whether it holds is not known.
    Unknown(Unknown),
}

/// What is watched at a step, as it was evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    /// The condition, and for how long it must hold.
    pub condition: (&'a Scalar, Option<Duration>),
    /// What ends an episode, and for how long that must hold.
    pub until: Option<(&'a Scalar, Option<Duration>)>,
    /// Whether what is not known counts as if it did not hold.
    pub unknown_resets: bool,
}

impl WatchState {
    /// Nothing was before.
    pub fn new(plan: &Plan) -> WatchState {
        let remembered = plan.temporals().map(|(id, temporal)| (id, Remembered::new(temporal))).collect();
        let (condition, until) = (HoldState::new(), HoldState::new());
        WatchState { remembered, condition, until, episodes: Timeline::new(REMEMBERED) }
    }

    /// Whether it is what a plan remembers: its functions of time stand at the same places.
    pub fn fits(&self, plan: &Plan) -> bool {
        let fresh = WatchState::new(plan).remembered;
        let is_same = |(own, other): (&(ScalarId, Remembered), &(ScalarId, Remembered))| {
            own.0 == other.0 && own.1.is_like(&other.1)
        };
        self.remembered.len() == fresh.len() && self.remembered.iter().zip(&fresh).all(is_same)
    }

    /// A run goes on at this step: what came at or after it is forgotten. Further back than is remembered, all is.
    pub fn forget_from(&mut self, step: StepNumber) {
        self.remembered.iter_mut().for_each(|(_, remembered)| remembered.forget_from(step));
        self.condition.forget_from(step);
        self.until.forget_from(step);
        self.episodes.forget_from(step);
    }

    /// What a function of time gives now; what it takes is remembered.
    pub(crate) fn evaluate(
        &mut self,
        id: ScalarId,
        function: TimeFunction,
        inputs: [&Scalar; 2],
        now: Moment,
    ) -> Option<Scalar> {
        let (_, remembered) = self.remembered.iter_mut().find(|(known, _)| *known == id)?;
        Some(remembered.evaluate(function, inputs, now))
    }

    /// What comes of what is watched, as it was evaluated now.
    pub fn turn(&mut self, watched: Watched<'_>, now: Moment) -> Outcome {
        let known = |scalar: &Scalar| match scalar.condition() {
            Err(_) if watched.unknown_resets => Ok(false),
            known => known,
        };
        let note = |state: &mut HoldState, (scalar, duration): (&Scalar, Option<Duration>)| {
            state.note(known(scalar)?, now);
            Ok(state.is_met(duration, now))
        };
        let is_met = note(&mut self.condition, watched.condition);
        let ends = watched.until.map(|until| note(&mut self.until, until));
        let before = self.episodes.last().copied().unwrap_or_default();
        let is_on = match (ends, before.current) {
            // Without an end of its own an episode goes on while the condition holds.
            (None, _) => is_met,
            // What ends it wins.
            (Some(Ok(true)), _) => Ok(false),
            (Some(Ok(false)), Some(_)) => Ok(true),
            (Some(Ok(false)), None) => is_met,
            (Some(Err(why)), Some(_)) => Err(why),
            (Some(Err(why)), None) => is_met.and_then(|is_met| if is_met { Err(why) } else { Ok(false) }),
        };
        let (outcome, after) = before.then(is_on, now);
        self.episodes.push(now.step, after);
        outcome
    }
}

impl Episodes {
    /// What comes of it that what is watched holds, or does not, or is not known; and what goes on then.
    fn then(self, is_on: Result<bool, Unknown>, now: Moment) -> (Outcome, Episodes) {
        match (is_on, self.current) {
            (Err(why), current) => {
                let current = current.map(|episode| Episode { missing: episode.missing + 1, ..episode });
                (Outcome::Unknown(why), Episodes { current, ..self })
            }
            (Ok(true), Some(episode)) => (Outcome::Event(Turn::Holds, episode), self),
            (Ok(true), None) => {
                let episode = Episode { number: self.count + 1, first: now.step, missing: 0 };
                (
                    Outcome::Event(Turn::Rose, episode),
                    Episodes { current: Some(episode), count: episode.number },
                )
            }
            (Ok(false), Some(episode)) => {
                (Outcome::Event(Turn::Fell, episode), Episodes { current: None, ..self })
            }
            (Ok(false), None) => (Outcome::Nothing, self),
        }
    }
}
