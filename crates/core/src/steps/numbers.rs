//! Which steps of a run have been closed, in little room: their numbers are evenly spaced most of the time.

use crate::ids::StepNumber;
use std::collections::VecDeque;

/// How many evenly spaced stretches are remembered; of more the latest.
const STRETCHES_MAX: usize = 1024;

/// Steps at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    first: StepNumber,
    /// How far apart; of a single step 0, as long as there is no other.
    stride: u64,
    count: u64,
}

impl Stretch {
    fn last(&self) -> StepNumber {
        self.first + self.stride * (self.count - 1)
    }
}

/// Numbers of steps, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct StepNumbers {
    stretches: VecDeque<Stretch>,
}

impl StepNumbers {
    /// A step comes, which must be higher than all before; others are passed over.
    pub(super) fn push(&mut self, number: StepNumber) {
        if let Some(latest) = self.stretches.back_mut() {
            let Some(distance) = number.checked_sub(latest.last()).filter(|distance| *distance > 0) else {
                return;
            };
            if latest.count == 1 || latest.stride == distance {
                (latest.stride, latest.count) = (distance, latest.count + 1);
                return;
            }
        }
        self.stretches.push_back(Stretch { first: number, stride: 0, count: 1 });
        if self.stretches.len() > STRETCHES_MAX {
            self.stretches.pop_front();
        }
    }

    /// The latest ones, at most `most`, from this step on: the latest first.
    pub(super) fn latest_from(&self, step: StepNumber, most: usize) -> impl Iterator<Item = StepNumber> + '_ {
        let all = self.stretches.iter().rev();
        let numbers =
            all.flat_map(|stretch| (0..stretch.count).rev().map(|n| stretch.first + stretch.stride * n));
        numbers.take(most).take_while(move |number| *number >= step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn from(numbers: &StepNumbers, step: StepNumber) -> Vec<StepNumber> {
        let mut found: Vec<StepNumber> = numbers.latest_from(step, usize::MAX).collect();
        found.reverse();
        found
    }

    #[test]
    fn what_is_evenly_spaced_takes_one_place() {
        let mut numbers = StepNumbers::default();
        (0..100_000).for_each(|n| numbers.push(5 + 10 * n));
        assert_eq!(numbers.stretches.len(), 1);
        assert_eq!(from(&numbers, 999_976), [999_985, 999_995]);
        assert_eq!(numbers.latest_from(0, 3).count(), 3);
    }

    #[test]
    fn of_many_stretches_the_latest_are_remembered() {
        let mut numbers = StepNumbers::default();
        let mut number = 0;
        for n in 0..3000_u64 {
            number += 1 + n * n;
            numbers.push(number);
        }
        assert_eq!(numbers.stretches.len(), STRETCHES_MAX);
        assert_eq!(from(&numbers, number), [number]);
    }

    proptest! {
        #[test]
        fn they_are_those_that_came(pushed in prop::collection::vec(0..200_u64, 0..60), step in 0..200_u64) {
            let (mut numbers, mut highest, mut expected) = (StepNumbers::default(), None, BTreeSet::new());
            for number in pushed {
                numbers.push(number);
                if highest.is_none_or(|highest| number > highest) {
                    highest = Some(number);
                    expected.insert(number);
                }
            }
            prop_assert_eq!(from(&numbers, step), expected.split_off(&step).into_iter().collect::<Vec<_>>());
        }
    }
}
