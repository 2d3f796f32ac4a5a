//! What bounds say of some elements, for a question.

use crate::gather::{Gathered, Partial, Question, Stage};
use crate::interval::{Interval, Truth, around, bounds};
use crate::plan::{Aggregate, Measure};

/// What is known of some elements, for a question.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// Their answer.
    Known(Gathered),
    /// The extreme that is asked for lies between these, if it is one of theirs: none is NaN. Whether all of them count.
    Within { low: f64, high: f64, all: bool },
    /// They have to be read.
    Open,
}

/// What bounds of the fields say of so many elements.
pub(super) fn verdict(
    aggregate: &Aggregate,
    question: &Question,
    elements: u64,
    field: impl Fn(u16) -> Option<Interval>,
) -> Verdict {
    let known = |partial| Verdict::Known(Gathered { elements, nan: 0, partial: Ok(partial) });
    if aggregate.measure == Measure::Size {
        return known(Partial::Elements);
    }
    let Some(found) = bounds(&aggregate.program, &question.inputs, field) else { return Verdict::Open };
    match (aggregate.measure, found.mask, found.value) {
        (Measure::Count, Truth::Always, _) => known(Partial::Count(elements)),
        (Measure::Any, Truth::Always, _) => known(Partial::Any(elements > 0)),
        (Measure::All, Truth::Always, _) => known(Partial::All(true)),
        (Measure::All, Truth::Never, _) => known(Partial::All(elements == 0)),
        // None of them counts, whatever is gathered.
        (_, Truth::Never, _) => known(Partial::Elements),
        (Measure::Min | Measure::Max, mask, Some(value)) if is_extreme(question) && value.is_of_numbers() => {
            Verdict::Within { low: value.low, high: value.high, all: mask == Truth::Always }
        }
        _ => Verdict::Open,
    }
}

/// Whether it is about the extreme itself.
fn is_extreme(question: &Question) -> bool {
    question.stage == Stage::First
}

/// A limit which the extreme of all is known to reach, by those that are sure to have one; anything beyond cannot be it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    is_least: bool,
    at: f64,
}

impl Limit {
    /// Of an aggregate that asks for an extreme.
    pub(super) fn of(measure: Measure) -> Option<Limit> {
        match measure {
            Measure::Min => Some(Limit { is_least: true, at: f64::INFINITY }),
            Measure::Max => Some(Limit { is_least: false, at: f64::NEG_INFINITY }),
            _ => None,
        }
    }

    /// Takes in what is known of some elements.
    pub(super) fn take(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Within { low, high, all: true } => {
                self.reach(if self.is_least { *high } else { *low });
            }
            Verdict::Known(Gathered { partial: Ok(Partial::Least(Some(extreme))), .. })
            | Verdict::Known(Gathered { partial: Ok(Partial::Greatest(Some(extreme))), .. }) => {
                let around = around(extreme.value);
                self.reach(if self.is_least { around.high } else { around.low });
            }
            _ => {}
        }
    }

    fn reach(&mut self, number: f64) {
        self.at = if self.is_least { self.at.min(number) } else { self.at.max(number) };
    }

    /// Whether none of these elements can be the extreme: then they are known.
    pub(super) fn beats(self, verdict: &Verdict) -> bool {
        match verdict {
            Verdict::Within { low, high, .. } => {
                if self.is_least {
                    *low > self.at
                } else {
                    *high < self.at
                }
            }
            _ => false,
        }
    }
}
