//! What an attachment needs from which step on: a reader may change its contract while it is attached.

use super::Needs;
use crate::Result;
use crate::ids::{RunNumber, StepNumber};
use serde::{Deserialize, Serialize};

/// How many changes are remembered: nobody still waits for a step that is more changes behind.
const CHANGES_MAX: usize = 64;

/// The needs of an attachment, and from which steps on later ones hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedsByStep {
    first: Needs,
    later: Vec<(RunNumber, StepNumber, Needs)>,
}

impl From<Needs> for NeedsByStep {
    fn from(first: Needs) -> NeedsByStep {
        NeedsByStep { first, later: Vec::new() }
    }
}

impl NeedsByStep {
    /// Checks everything that can be wrong with them in themselves.
    pub fn check(&self) -> Result<()> {
        self.later.iter().map(|(_, _, needs)| needs).chain([&self.first]).try_for_each(Needs::check)
    }

    /// What is needed at a step.
    pub fn at(&self, run: RunNumber, step: StepNumber) -> &Needs {
        let holds = |change: &&(RunNumber, StepNumber, Needs)| (change.0, change.1) <= (run, step);
        self.later.iter().rev().find(holds).map_or(&self.first, |(_, _, needs)| needs)
    }

    /// What is needed at last.
    pub fn latest(&self) -> &Needs {
        self.later.last().map_or(&self.first, |(_, _, needs)| needs)
    }

    /// From which step on that holds; `None` if it was never changed.
    pub fn changed_at(&self) -> Option<(RunNumber, StepNumber)> {
        self.later.last().map(|(run, step, _)| (*run, *step))
    }

    /// Other needs hold from this step on.
    pub fn change(&mut self, run: RunNumber, step: StepNumber, needs: Needs) {
        self.later.retain(|change| (change.0, change.1) < (run, step));
        self.later.push((run, step, needs));
        if self.later.len() > CHANGES_MAX {
            self.first = self.later.remove(0).2;
        }
    }

    /// Whether these were changed after what the other ones know.
    pub fn is_newer_than(&self, other: &NeedsByStep) -> bool {
        self.changed_at() > other.changed_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_the_needs_that_held_when_it_began() {
        let mut needs = NeedsByStep::from(Needs::all(1));
        needs.change(2, 5, Needs::all(2));
        needs.change(2, 9, Needs::all(3));
        let at = |run, step| needs.at(run, step).clone();
        assert_eq!([at(1, 99), at(2, 4)], [Needs::all(1), Needs::all(1)]);
        assert_eq!([at(2, 5), at(2, 8)], [Needs::all(2), Needs::all(2)]);
        assert_eq!([at(2, 9), at(3, 0)], [Needs::all(3), Needs::all(3)]);
        let before = needs.clone();
        needs.change(2, 9, Needs::all(4));
        assert_eq!((needs.latest(), needs.changed_at()), (&Needs::all(4), Some((2, 9))));
        for step in 10..200 {
            needs.change(2, step, Needs::all(step as u32));
        }
        assert!(needs.later.len() <= CHANGES_MAX && needs.is_newer_than(&before));
        assert_eq!(needs.at(2, 199), &Needs::all(199));
    }
}
