//! What is computed of aggregates, and of what was before.

use crate::plan::aggregate::Property;
use crate::plan::program::ScalarId;
use crate::syntax::Comparison;
use crate::value::arithmetic::{Binary, Test, Unary};
use crate::value::{Kind, Number, Scalar, Unknown, UnknownKind};

/// A function of what was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum TimeFunction {
    Previous,
    Delta,
    Rate,
    First,
    MaxOver,
    MinOver,
    MeanOver,
    CountOver,
    Held,
    Rising,
    Falling,
    Changed,
    Latch,
}

/// A call of a function of what was before.
#[derive(Debug, Clone, PartialEq)]
pub struct Temporal {
    /// The function.
    pub function: TimeFunction,
    /// What it is a function of: one, or two of a latch.
    pub inputs: [ScalarId; 2],
    /// How many evaluations it looks back over, this one among them.
    pub window: u64,
}

/// How one scalar is made.
#[derive(Debug, Clone, PartialEq)]
pub enum ScalarOp {
    /// It stands in the text.
    Constant(Scalar),
    /// The number of the step.
    Step,
    /// The physical time of the step.
    Time,
    /// The distance of elements in a dimension of a field of the plan, at this step.
    Spacing(usize, u8),
    /// Of an aggregate.
    Aggregate(usize, Property),
    /// The same in another kind.
    Convert(ScalarId, Kind),
    /// A function of a number.
    Unary(Unary, ScalarId),
    /// An operator on two numbers.
    Binary(Binary, ScalarId, ScalarId),
    /// A test of a number.
    Test(Test, ScalarId),
    /// How two numbers compare.
    Compare(Comparison, ScalarId, ScalarId),
    /// Both conditions.
    And(ScalarId, ScalarId),
    /// One of two conditions.
    Or(ScalarId, ScalarId),
    /// A condition's opposite.
    Not(ScalarId),
    /// If a condition holds the first, else the second.
    Select(ScalarId, ScalarId, ScalarId),
    /// Of what was before.
    Temporal(Temporal),
}

impl ScalarOp {
    /// What it is made of, the results of aggregates aside.
    pub fn operands(&self) -> impl Iterator<Item = ScalarId> {
        let of = |ids: [Option<ScalarId>; 3]| ids.into_iter().flatten();
        match *self {
            ScalarOp::Constant(_)
            | ScalarOp::Step
            | ScalarOp::Time
            | ScalarOp::Spacing(..)
            | ScalarOp::Aggregate(..) => of([None; 3]),
            ScalarOp::Convert(a, _) | ScalarOp::Unary(_, a) | ScalarOp::Test(_, a) | ScalarOp::Not(a) => {
                of([Some(a), None, None])
            }
            ScalarOp::Binary(_, a, b)
            | ScalarOp::Compare(_, a, b)
            | ScalarOp::And(a, b)
            | ScalarOp::Or(a, b) => of([Some(a), Some(b), None]),
            ScalarOp::Select(c, a, b) => of([Some(c), Some(a), Some(b)]),
            ScalarOp::Temporal(Temporal { inputs: [a, b], .. }) => of([Some(a), Some(b), None]),
        }
    }
}

/// Scalars, by their places among those of a plan.
pub(crate) trait Scalars {
    /// One that is known.
    fn of(&self, id: ScalarId) -> Scalar;
}

/// What an operation gives whose operands are known; `None` of one that needs more than them.
pub(crate) fn folded(op: &ScalarOp, known: &impl Scalars) -> Option<Scalar> {
    let of = |id: ScalarId| known.of(id);
    let result = match *op {
        ScalarOp::Constant(ref scalar) => Ok(scalar.clone()),
        ScalarOp::And(a, b) => Ok(of(a).and(of(b))),
        ScalarOp::Or(a, b) => Ok(of(a).or(of(b))),
        ScalarOp::Not(a) => Ok(!of(a)),
        ScalarOp::Convert(a, kind) => of(a).number().map(|number| Scalar::Number(number.to_kind(kind))),
        ScalarOp::Unary(op, a) => of(a).number().and_then(|a| number_or_overflow(a.unary(op))),
        ScalarOp::Binary(op, a, b) => {
            both(of(a), of(b)).and_then(|(a, b)| number_or_overflow(a.binary(op, b)))
        }
        ScalarOp::Test(test, a) => of(a).number().map(|a| Scalar::Condition(a.test(test))),
        ScalarOp::Compare(comparison, a, b) => {
            both(of(a), of(b)).map(|(a, b)| Scalar::Condition(a.compares(comparison, b)))
        }
        ScalarOp::Select(condition, a, b) => {
            of(condition).condition().map(|holds| of(if holds { a } else { b }))
        }
        ScalarOp::Step
        | ScalarOp::Time
        | ScalarOp::Spacing(..)
        | ScalarOp::Aggregate(..)
        | ScalarOp::Temporal(_) => return None,
    };
    Some(result.unwrap_or_else(Scalar::Unknown))
}

fn both(a: Scalar, b: Scalar) -> Result<(Number, Number), Unknown> {
    Ok((a.number()?, b.number()?))
}

fn number_or_overflow(number: Option<Number>) -> Result<Scalar, Unknown> {
    number.map(Scalar::Number).ok_or_else(|| {
        Unknown::new(UnknownKind::Overflow, "an integer is beyond 128 bits, or was divided by 0")
    })
}
