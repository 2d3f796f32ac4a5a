//! What one function of time remembers.

use crate::plan::{Temporal, TimeFunction};
use crate::time::moment::Moment;
use crate::time::timeline::{REMEMBERED, Timeline};
use crate::value::arithmetic::Binary;
use crate::value::{Number, Scalar, Unknown, UnknownKind};
use forebay_core::ids::StepNumber;
use serde::{Deserialize, Serialize};

/// What one function of time remembers of each evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Remembered {
    function: Kept,
    window: usize,
    values: Timeline<(f64, Value)>,
}

/// What a function remembers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Kept {
    /// The latest values of its argument.
    Window,
    /// The first one.
    First,
    /// The values of a latch whenever it changed.
    Latch,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Value {
    Number(Number),
    Condition(bool),
}

impl Value {
    fn of(scalar: &Scalar) -> Option<Value> {
        match scalar {
            Scalar::Number(number) => Some(Value::Number(*number)),
            Scalar::Condition(condition) => Some(Value::Condition(*condition)),
            _ => None,
        }
    }

    fn scalar(self) -> Scalar {
        match self {
            Value::Number(number) => Scalar::Number(number),
            Value::Condition(condition) => Scalar::Condition(condition),
        }
    }

    fn number(self) -> Number {
        match self {
            Value::Number(number) => number,
            Value::Condition(condition) => Number::Integer(condition.into()),
        }
    }

    fn holds(self) -> bool {
        matches!(self, Value::Condition(true))
    }

    fn is_same(self, other: Value) -> bool {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => a.is_same(b),
            (a, b) => a == b,
        }
    }
}

impl Remembered {
    /// Whether another one remembers the same, whatever came so far.
    pub(super) fn is_like(&self, other: &Remembered) -> bool {
        self.function == other.function && self.window == other.window
    }

    pub(super) fn new(temporal: &Temporal) -> Remembered {
        let window = temporal.window as usize;
        let (function, most) = match temporal.function {
            TimeFunction::First => (Kept::First, 1),
            TimeFunction::Latch => (Kept::Latch, REMEMBERED),
            _ => (Kept::Window, window + REMEMBERED),
        };
        Remembered { function, window, values: Timeline::new(most) }
    }

    pub(super) fn forget_from(&mut self, step: StepNumber) {
        self.values.forget_from(step);
    }

    /// What the function gives now, and what is to be remembered of that.
    pub(super) fn evaluate(&mut self, function: TimeFunction, inputs: [&Scalar; 2], now: Moment) -> Scalar {
        if function == TimeFunction::Latch {
            return self.latch(inputs, now);
        }
        let Some(value) = Value::of(inputs[0]) else { return inputs[0].clone() };
        let result = self.windowed(function, value, now);
        if self.function != Kept::First || self.values.last().is_none() {
            self.values.push(now.step, (now.time, value));
        }
        result.unwrap_or_else(Scalar::Unknown)
    }

    /// `set` and `reset`, of which the latter wins.
    fn latch(&mut self, [set, reset]: [&Scalar; 2], now: Moment) -> Scalar {
        let before = self.values.last().is_some_and(|(_, value)| value.holds());
        let after = match (set, reset) {
            (_, Scalar::Condition(true)) => false,
            (Scalar::Condition(true), Scalar::Condition(false)) => true,
            (Scalar::Condition(true), reset) if !before => return reset.clone(),
            (_, reset @ Scalar::Unknown(_)) if before => return reset.clone(),
            (set @ Scalar::Unknown(_), _) if !before => return set.clone(),
            _ => before,
        };
        if after != before {
            self.values.push(now.step, (now.time, Value::Condition(after)));
        }
        Scalar::Condition(after)
    }

    /// Of the latest values, this one among them.
    fn windowed(&self, function: TimeFunction, value: Value, now: Moment) -> Result<Scalar, Unknown> {
        let before = |back: usize| self.values.back().nth(back - 1).copied();
        let earlier = |back: usize| before(back).ok_or_else(|| too_few(back));
        let last = || earlier(1).map(|(time, value)| (time, value.number()));
        match function {
            TimeFunction::Previous => Ok(earlier(self.window - 1)?.1.scalar()),
            TimeFunction::First => Ok(self.values.last().map_or(value, |(_, first)| *first).scalar()),
            TimeFunction::Delta => {
                let (_, last) = last()?;
                value.number().binary(Binary::Minus, last).map(Scalar::Number).ok_or_else(|| {
                    Unknown::new(UnknownKind::Overflow, "delta(): an integer is beyond 128 bits")
                })
            }
            TimeFunction::Rate => {
                let (time, last) = last()?;
                if now.time == time {
                    return Err(Unknown::new(
                        UnknownKind::History,
                        "rate(): no time has passed since the step before",
                    ));
                }
                let change = value.number().to_f64() - last.to_f64();
                Ok(Scalar::Number(Number::F64(change / (now.time - time))))
            }
            TimeFunction::MaxOver
            | TimeFunction::MinOver
            | TimeFunction::MeanOver
            | TimeFunction::CountOver => self.over(function, value),
            TimeFunction::Held => match self.run_of(value) {
                Some(run) if run >= self.window => Ok(Scalar::Condition(true)),
                // It has held whenever it was known, and that was not often enough.
                Some(run) if run > self.values.back().len() => Err(too_few(self.window - 1)),
                _ => Ok(Scalar::Condition(false)),
            },
            TimeFunction::Rising => {
                let held = before(1).is_some_and(|(_, earlier)| earlier.holds());
                Ok(Scalar::Condition(value.holds() && !held))
            }
            TimeFunction::Falling => {
                let held = before(1).is_some_and(|(_, earlier)| earlier.holds());
                Ok(Scalar::Condition(!value.holds() && held))
            }
            TimeFunction::Changed => Ok(Scalar::Condition(!earlier(1)?.1.is_same(value))),
            TimeFunction::Latch => Ok(value.scalar()),
        }
    }

    /// How often it has held one after the other, with this time; `None` if it does not.
    fn run_of(&self, value: Value) -> Option<usize> {
        value.holds().then(|| 1 + self.values.back().take_while(|(_, earlier)| earlier.holds()).count())
    }

    fn over(&self, function: TimeFunction, value: Value) -> Result<Scalar, Unknown> {
        if self.values.back().len() + 1 < self.window {
            return Err(too_few(self.window - 1));
        }
        let earlier = self.values.back().take(self.window - 1).map(|(_, earlier)| *earlier);
        let all = || std::iter::once(value).chain(earlier.clone());
        let number = match function {
            TimeFunction::CountOver => Number::Integer(all().filter(|value| value.holds()).count() as i128),
            TimeFunction::MeanOver => {
                let sum: forebay_core::exact_sum::ExactSum =
                    all().map(|value| value.number().to_f64()).collect();
                Number::F64(sum.to_f64() / self.window as f64)
            }
            _ => {
                let op = if function == TimeFunction::MaxOver { Binary::Maximum } else { Binary::Minimum };
                let keep = |a: Number, b: Number| a.binary(op, b).unwrap_or(a);
                all().map(Value::number).reduce(keep).unwrap_or(value.number())
            }
        };
        Ok(Scalar::Number(number))
    }
}

fn too_few(back: usize) -> Unknown {
    let text = match back {
        1 => "there was no evaluation before".into(),
        _ => format!("there were fewer than {back} evaluations before"),
    };
    Unknown::new(UnknownKind::History, text)
}
