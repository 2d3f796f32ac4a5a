//! What is computed of all elements together.

use crate::plan::program::{Instruction, Op, Part, Program};

/// What is gathered of all elements, and merged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// The smallest, and where the first of them lies.
    Min,
    /// The largest, and where the first of them lies.
    Max,
    /// The exact sum, and how many.
    Sum(Weights),
    /// How many, the mean, and the squared distances from it.
    Moments,
    /// For how many the condition holds.
    Count,
    /// Whether it holds for any.
    Any,
    /// Whether it holds for all.
    All,
    /// How many there are.
    Size,
    /// The value below which so many percent lie, exactly.
    Percentile(f64),
    /// How many lie near each value: within 1 % of it.
    Sketch,
    /// How many lie in each of so many bins of the same width.
    Histogram(u32),
    /// Whether blocks fill the region.
    Covered,
}

/// How much an element adds to a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// All the same.
    None,
    /// Half as much at the ends of each dimension: the trapezoidal rule.
    Trapezoid,
}

/// What is made of what was gathered.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)] // the names say it
pub enum Reduction {
    Min,
    Max,
    Sum,
    Mean,
    Var,
    Std,
    Norm,
    Count,
    Any,
    All,
    Size,
    Percentile,
    /// The value below which so many percent lie, within 1 % of it.
    Approximate(f64),
    Entropy,
    Covered,
}

/// What of an aggregate is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Property {
    /// Its value.
    Value(Reduction),
    /// How many elements are no numbers.
    Nan,
    /// Where its extreme lies.
    Place,
    /// The index of that in a dimension.
    Index(u8),
    /// The coordinate of that in a dimension.
    Coordinate(u8),
    /// The rank that put it.
    Rank,
    /// The number of its block among those of the rank.
    Block,
}

/// What is gathered of all elements of a domain.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// Which elements, by their place among the domains.
    pub domain: usize,
    /// The field whose blocks say where they are, by its place among the fields of the plan.
    pub field: usize,
    /// What is gathered.
    pub measure: Measure,
    /// What is computed of each element before.
    pub program: Program,
}

impl Aggregate {
    /// Whether bounds of a field can say what it gathers of elements, or that none of them counts.
    pub fn is_told_by_bounds(&self, field: usize) -> bool {
        let takes = |instruction: &Instruction| match instruction.op {
            Op::Load { field: of, part: Part::Whole, shift: None } => usize::from(of) == field,
            _ => false,
        };
        let compares = match self.measure {
            Measure::Min | Measure::Max | Measure::Histogram(_) => true,
            Measure::Size | Measure::Covered => false,
            _ => self.program.mask.is_some(),
        };
        compares && self.program.instructions.iter().any(takes)
    }
}
