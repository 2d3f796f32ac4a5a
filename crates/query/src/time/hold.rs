//! For how long a condition holds.

use crate::syntax::Duration;
use crate::time::moment::Moment;
use crate::time::timeline::{REMEMBERED, Timeline};
use forebay_core::ids::StepNumber;
use serde::{Deserialize, Serialize};

/// For how long a condition holds: as it was at each of the latest evaluations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct HoldState(Timeline<Run>);

/// How often it has held, one time after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Run {
    since: Option<Moment>,
    count: u64,
}

impl HoldState {
    pub(super) fn new() -> HoldState {
        HoldState(Timeline::new(REMEMBERED))
    }

    /// The condition holds now, or does not.
    pub(super) fn note(&mut self, holds: bool, now: Moment) {
        let before = self.0.last().copied().unwrap_or_default();
        let run = match holds {
            true => Run { since: before.since.or(Some(now)), count: before.count + 1 },
            false => Run::default(),
        };
        self.0.push(now.step, run);
    }

    /// Whether it holds, and has done so for long enough.
    pub(super) fn is_met(&self, duration: Option<Duration>, now: Moment) -> bool {
        let Some(Run { since: Some(since), count }) = self.0.last().copied() else { return false };
        match duration {
            None => true,
            Some(Duration::Steps(steps)) => count >= steps,
            Some(Duration::Time(time)) => now.time - since.time >= time,
        }
    }

    pub(super) fn forget_from(&mut self, step: StepNumber) {
        self.0.forget_from(step);
    }
}
