//! Steps of which an attachment needs nothing, one after the other: its contract may never meet what is offered.

use crate::contract::{Field, Needs};
use crate::ids::StepNumber;
use std::collections::VecDeque;

/// After so many of them whoever is attached is told.
pub(super) const STEPS_UNMATCHED: u32 = 16;
/// How many numbers of them are shown.
const SHOWN: usize = 4;

/// The steps since the last of which an attachment needed something, or since it takes part.
#[derive(Debug, Default)]
pub(super) struct Unmatched {
    count: u32,
    last: VecDeque<StepNumber>,
}

impl Unmatched {
    /// A step of which something, or nothing, is needed. Whether it is to be told now that its contract meets nothing.
    pub(super) fn note(&mut self, step: StepNumber, is_wanted: bool) -> bool {
        if is_wanted {
            *self = Unmatched::default();
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.last.push_back(step);
        if self.last.len() > SHOWN {
            self.last.pop_front();
        }
        self.count == STEPS_UNMATCHED
    }

    /// What is said of a contract that has met none of the latest steps; `None` while it may.
    pub(super) fn text<'a>(&self, needs: &Needs, offered: impl Iterator<Item = &'a Field>) -> Option<String> {
        if self.count < STEPS_UNMATCHED {
            return None;
        }
        let numbers: Vec<String> = self.last.iter().map(StepNumber::to_string).collect();
        let needed = offered
            .filter(|field| !field.is_static)
            .filter_map(|field| Some((field, needs.of(&field.name)?)));
        let periods: Vec<String> = needed
            .take(SHOWN)
            .map(|(field, terms)| {
                let (every, sequence) = (u64::from(field.every), field.sequence);
                let apart = sequence.stride.saturating_mul(every);
                let name = &field.name;
                format!(
                    "'{name}' is offered from {} on every {apart}, and needed with {}",
                    sequence.first, terms.period
                )
            })
            .collect();
        Some(format!(
            "the contract meets none of the last {STEPS_UNMATCHED} steps, of which the latest are {}: {}. Say in the simulation \
             which numbers its steps have (`first` and `stride` of the producer), or in the contract from which step on \
             they are counted (`first` of `every`)",
            numbers.join(", "),
            if periods.is_empty() {
                "no field that it needs is offered".to_owned()
            } else {
                periods.join("; ")
            }
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    #[test]
    fn a_contract_that_meets_nothing_is_told_once_with_what_was_seen() {
        let field = Field::new("U", Dtype::F64, None, 1);
        let needs = Needs::all(10);
        let mut unmatched = Unmatched::default();
        let told: Vec<u64> =
            (0..40).map(|i| 10 * i + 1).filter(|step| unmatched.note(*step, false)).collect();
        assert_eq!(told, [151], "once");
        let text = unmatched.text(&needs, [&field].into_iter()).unwrap();
        for part in
            ["361, 371, 381, 391", "'U' is offered from 0 on every 1, and needed with every=10", "`first`"]
        {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        unmatched.note(400, true);
        assert_eq!(unmatched.text(&needs, [&field].into_iter()), None);
    }
}
