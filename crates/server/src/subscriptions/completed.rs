//! At which steps what is watched in the space was complete, so that each time is an event once, also after the coordinator's death.

use forebay_core::ids::{DescriptionNumber, StepNumber};
use forebay_wire::subscription::Completion;
use std::collections::{BTreeMap, VecDeque};

/// How many steps are remembered, the latest.
const COMPLETED_MAX: usize = 16_384;

/// The steps, and under which descriptions.
#[derive(Debug, Clone, Default)]
pub(super) struct Completed {
    known: BTreeMap<StepNumber, Completion>,
    /// In the order in which they came.
    order: VecDeque<StepNumber>,
    /// Whether it is known which were complete before anything was watched.
    pub(super) is_ready: bool,
}

impl Completed {
    /// A step was complete. The first of many is forgotten.
    pub(super) fn insert(&mut self, step: StepNumber, completion: Completion) {
        if self.known.insert(step, completion).is_none() {
            self.order.push_back(step);
        }
        if self.order.len() > COMPLETED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// What another server has kept, too.
    pub(super) fn extend(&mut self, steps: Vec<(StepNumber, Completion)>, is_ready: bool) {
        for (step, completion) in steps {
            // Descriptions grow.
            if self.known.get(&step).is_none_or(|known| *known < completion) {
                self.insert(step, completion);
            }
        }
        self.is_ready |= is_ready;
    }

    /// Whether this step was complete under just these descriptions.
    pub(super) fn has(&self, step: StepNumber, completion: &Completion) -> bool {
        self.known.get(&step) == Some(completion)
    }

    /// Whether this step was complete with this description among others.
    pub(super) fn knows(&self, step: StepNumber, description: DescriptionNumber) -> bool {
        self.known.get(&step).is_some_and(|known| known.contains(&description))
    }

    /// All of them.
    pub(super) fn steps(&self) -> Vec<(StepNumber, Completion)> {
        let of = |step: &StepNumber| Some((*step, self.known.get(step)?.clone()));
        self.order.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_put_again_is_another_completion_and_old_ones_are_forgotten() {
        let mut all = Completed::default();
        all.insert(7, vec![1, 2]);
        assert!(all.has(7, &vec![1, 2]) && all.knows(7, 2) && !all.knows(7, 3) && !all.knows(8, 1));
        all.insert(7, vec![1, 3]);
        assert!(!all.has(7, &vec![1, 2]) && all.knows(7, 3) && !all.is_ready);
        all.extend(vec![(9, vec![4])], true);
        assert_eq!((all.steps(), all.is_ready), (vec![(7, vec![1, 3]), (9, vec![4])], true));
        (0..COMPLETED_MAX as u64).for_each(|step| all.insert(step + 100, vec![5]));
        assert_eq!((all.steps().len(), all.knows(7, 3)), (COMPLETED_MAX, false));
    }
}
