//! What bounds say of some elements, for a question.

use crate::gather::{Gathered, Partial, Question, Stage};
use crate::interval::{Interval, Registers, Truth, around, bounds};
use crate::plan::{Aggregate, Measure};

/// What is known of some elements, for a question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// All of them count.
    All,
    /// None of them does.
    Nothing,
    /// The extreme that is asked for lies between these, if it is one of theirs: none is NaN. Whether all of them count.
    Within { low: f64, high: f64, all: bool },
    /// They have to be read.
    Open,
}

/// What bounds of the fields say.
pub(super) fn verdict(
    aggregate: &Aggregate,
    question: &Question,
    field: impl Fn(u16) -> Option<Interval>,
    registers: &mut Registers,
) -> Verdict {
    if aggregate.measure == Measure::Size {
        return Verdict::All;
    }
    let found = bounds(&aggregate.program, &question.inputs, field, registers);
    let Some(found) = found else { return Verdict::Open };
    match (aggregate.measure, found.mask, found.value) {
        (_, Truth::Never, _) => Verdict::Nothing,
        (Measure::Count | Measure::Any | Measure::All, Truth::Always, _) => Verdict::All,
        (Measure::Min | Measure::Max, mask, Some(value)) if is_extreme(question) && value.is_of_numbers() => {
            Verdict::Within { low: value.low, high: value.high, all: mask == Truth::Always }
        }
        _ => Verdict::Open,
    }
}

/// The answer of so many elements all of which count, or none.
pub(super) fn answer(measure: Measure, all: bool, elements: u64) -> Gathered {
    let partial = match (measure, all) {
        (Measure::Count, true) => Partial::Count(elements),
        (Measure::Any, true) => Partial::Any(elements > 0),
        (Measure::All, all) => Partial::All(all || elements == 0),
        _ => Partial::Elements,
    };
    Gathered { elements, nan: 0, partial: Ok(partial) }
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

    /// Takes in what is known of some elements, if there are any.
    pub(super) fn take(&mut self, verdict: Verdict) {
        if let Verdict::Within { low, high, all: true } = verdict {
            self.reach(if self.is_least { high } else { low });
        }
    }

    /// Takes in an extreme of some elements.
    pub(super) fn take_answer(&mut self, answer: &Gathered) {
        if let Ok(Partial::Least(Some(extreme)) | Partial::Greatest(Some(extreme))) = &answer.partial {
            let around = around(extreme.value);
            self.reach(if self.is_least { around.high } else { around.low });
        }
    }

    fn reach(&mut self, number: f64) {
        self.at = if self.is_least { self.at.min(number) } else { self.at.max(number) };
    }

    /// Whether none of these elements can be the extreme: then they are known.
    pub(super) fn beats(self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Within { low, high, .. } => {
                if self.is_least {
                    low > self.at
                } else {
                    high < self.at
                }
            }
            _ => false,
        }
    }
}
