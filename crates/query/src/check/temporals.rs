//! What functions of what was before mean.

use crate::check::calls::Arguments;
use crate::check::checker::{Checker, Purpose, Result};
use crate::check::meaning::Meaning;
use crate::plan::{ScalarOp, Temporal, TimeFunction};
use crate::syntax::{NodeId, Problem, WINDOW_MAX};
use crate::value::Kind;

/// Evaluations that all functions of time of a text look back over.
const WINDOWS_MAX: u64 = 16 * WINDOW_MAX;

impl Checker<'_> {
    pub(super) fn temporal(&mut self, function: TimeFunction, arguments: &Arguments<'_>) -> Result<Meaning> {
        let (name, span) = (arguments.function(), arguments.span());
        if self.purpose == Purpose::Once {
            let what = format!(
                "{name}() looks at steps before, and one step is evaluated: subscribe to this, or leave it out"
            );
            return Err(Problem::invalid(span, what));
        }
        let (first, second, window) = match function {
            TimeFunction::Previous => {
                let ([x], [k]) = arguments.take(["x"], ["k"])?;
                let back = k.map_or(Ok(1), |k| self.window(k, 1..=WINDOW_MAX - 1))?;
                (x, x, back + 1)
            }
            TimeFunction::MaxOver | TimeFunction::MinOver | TimeFunction::MeanOver => {
                let ([x, k], []) = arguments.take(["x", "k"], [])?;
                (x, x, self.window(k, 1..=WINDOW_MAX)?)
            }
            TimeFunction::CountOver | TimeFunction::Held => {
                let ([c, k], []) = arguments.take(["c", "k"], [])?;
                (c, c, self.window(k, 1..=WINDOW_MAX)?)
            }
            TimeFunction::Latch => {
                let ([set, reset], []) = arguments.take(["set", "reset"], [])?;
                (set, reset, 1)
            }
            TimeFunction::First => {
                let ([x], []) = arguments.take(["x"], [])?;
                (x, x, 1)
            }
            TimeFunction::Rising | TimeFunction::Falling => {
                let ([c], []) = arguments.take(["c"], [])?;
                (c, c, 2)
            }
            TimeFunction::Delta | TimeFunction::Rate | TimeFunction::Changed => {
                let ([x], []) = arguments.take(["x"], [])?;
                (x, x, 2)
            }
        };
        let (inputs, kind) = self.temporal_inputs(function, name, first, second)?;
        let id = self.builder.scalar(ScalarOp::Temporal(Temporal { function, inputs, window }), span)?;
        let windows = self.builder.scalars.iter().map(|op| match op {
            ScalarOp::Temporal(temporal) => temporal.window,
            _ => 0,
        });
        if windows.sum::<u64>() > WINDOWS_MAX {
            let what =
                format!("functions of time look back over more than {WINDOWS_MAX} evaluations together");
            return Err(Problem::invalid(span, what));
        }
        Ok(match kind {
            Some(kind) => Meaning::Number(id, kind),
            None => Meaning::Condition(id),
        })
    }

    /// How many evaluations are looked back over.
    fn window(&self, k: NodeId, range: std::ops::RangeInclusive<u64>) -> Result<u64> {
        self.written_integer(k, "the number of evaluations", range)
    }

    /// What a function of time takes, and the kind of the number that it gives; `None` of a condition.
    fn temporal_inputs(
        &mut self,
        function: TimeFunction,
        name: &str,
        first: NodeId,
        second: NodeId,
    ) -> Result<([usize; 2], Option<Kind>)> {
        use TimeFunction::{Changed, CountOver, Delta, Falling, First, Held, Latch, Previous, Rate, Rising};
        let takes_conditions = matches!(function, CountOver | Held | Rising | Falling | Latch);
        let takes_both = matches!(function, Previous | First | Changed);
        let mut one = |node: NodeId| match self.used(node)? {
            Meaning::Number(id, kind) if !takes_conditions => Ok((id, Some(kind))),
            Meaning::Condition(id) if takes_conditions || takes_both => Ok((id, None)),
            other => {
                let takes = match (takes_conditions, takes_both) {
                    (true, _) => "a condition",
                    (_, true) => "a number or a condition",
                    _ => "a number",
                };
                let what = format!("{name}() takes {takes}; this is {}", super::checker::described(&other));
                Err(self.mismatch(node, &what))
            }
        };
        let ((a, kind), (b, _)) = (one(first)?, one(second)?);
        let kind = match function {
            Previous | First | TimeFunction::MaxOver | TimeFunction::MinOver | Delta => kind,
            Rate | TimeFunction::MeanOver => Some(Kind::F64),
            CountOver => Some(Kind::Integer),
            _ => None,
        };
        Ok(([a, b], kind))
    }
}
