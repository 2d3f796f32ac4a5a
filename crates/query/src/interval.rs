//! What can be said of elements from bounds alone: the same instructions, run over intervals.
//!
//! R. E. Moore, "Interval Analysis" (1966). A result holds every number that the program can give of numbers within the bounds; it
//! may be wider.

use crate::plan::{Instruction, Lane, Op, Part, Program, Register};
use crate::syntax::Comparison;
use crate::value::arithmetic::{Binary, Float, Test, Unary};
use crate::value::{Number, Scalar};
use forebay_core::stats::{BlockStats, Value};

/// All numbers that something can be, and whether it can be NaN. Of integers it may be wider than they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Not above the smallest; above `high` if it can only be NaN.
    pub low: f64,
    /// Not below the largest.
    pub high: f64,
    /// Whether it can be NaN.
    pub nan: bool,
}

/// What a condition can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Truth {
    Always,
    Never,
    Sometimes,
}

/// What is known of each register; used again, since there are many tiles.
#[derive(Debug, Default)]
pub struct Registers(Vec<Known>);

/// What is known of a register.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Known {
    Number(Interval),
    Condition(Truth),
}

/// What a program gives within bounds: its value, and which elements count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Of the value.
    pub value: Option<Interval>,
    /// Of the mask; always, if it has none.
    pub mask: Truth,
}

impl Interval {
    /// Anything.
    pub const ANY: Interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY, nan: true };

    /// Of one number.
    pub fn of(number: f64) -> Interval {
        match number.is_nan() {
            true => Interval { low: f64::INFINITY, high: f64::NEG_INFINITY, nan: true },
            false => Interval { low: number, high: number, nan: false },
        }
    }

    /// Of the elements of a block.
    pub fn of_stats(stats: &BlockStats) -> Interval {
        let none = Interval { nan: stats.nan > 0, ..Interval::of(f64::NAN) };
        stats.extremes.map_or(none, |found| none.with(found.min, found.max))
    }

    /// The same, and others from one value to another. Those of NaN add nothing.
    pub(crate) fn with(self, min: Value, max: Value) -> Interval {
        Interval { low: self.low.min(min.below()), high: self.high.max(max.above()), ..self }
    }

    /// Whether none can be NaN.
    pub(crate) fn is_of_numbers(self) -> bool {
        self.is_number() && !self.nan
    }

    fn is_number(self) -> bool {
        self.low <= self.high
    }

    /// Both together.
    fn joined(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high), nan: self.nan || other.nan }
    }

    fn has_infinity(self) -> bool {
        self.low == f64::NEG_INFINITY || self.high == f64::INFINITY
    }

    fn holds(self, number: f64) -> bool {
        self.low <= number && number <= self.high
    }

    /// A little wider: for what the last bits of may be off.
    fn widened(self) -> Interval {
        let wide = |number: f64| (number.abs() * 1e-6).max(1e-300);
        match self.is_number() {
            true => Interval {
                low: self.low.min(f64::MAX) - wide(self.low.min(f64::MAX)),
                high: self.high.max(f64::MIN) + wide(self.high.max(f64::MIN)),
                ..self
            },
            false => self,
        }
    }
}

/// What a program gives of elements whose fields lie within bounds; `None` if nothing can be said, or an integer may be beyond
/// its type.
pub fn bounds(
    program: &Program,
    inputs: &[Scalar],
    field: impl Fn(u16) -> Option<Interval>,
    Registers(known): &mut Registers,
) -> Option<Bounds> {
    // What is asked most often takes a third of the time so: whether elements as they are compare with a number.
    if let ([Instruction { op: Op::Load { field: of, part: Part::Whole, shift: None }, lane }, compare], None) =
        (&program.instructions[..], program.value)
        && let (Op::CompareInput(comparison, _, input), true) = (compare.op, *lane != Lane::Mask)
        && let Some(Scalar::Number(number)) = inputs.get(usize::from(input))
    {
        return Some(Bounds { value: None, mask: compared(comparison, field(*of)?, around(*number)) });
    }
    known.clear();
    for instruction in &program.instructions {
        known.push(result(instruction, known, inputs, &field)?);
    }
    let number = |register: Register| match known[register.index()] {
        Known::Number(interval) => interval,
        Known::Condition(_) => Interval::ANY,
    };
    let mask = program.mask.map_or(Truth::Always, |register| truth(known, register));
    Some(Bounds { value: program.value.map(number), mask })
}

fn truth(known: &[Known], register: Register) -> Truth {
    match known[register.index()] {
        Known::Condition(truth) => truth,
        Known::Number(_) => Truth::Sometimes,
    }
}

fn result(
    instruction: &Instruction,
    known: &[Known],
    inputs: &[Scalar],
    field: &impl Fn(u16) -> Option<Interval>,
) -> Option<Known> {
    let lane = instruction.lane;
    let number = |register: Register| match known[register.index()] {
        Known::Number(interval) => interval,
        Known::Condition(_) => Interval::ANY,
    };
    let condition = |register: Register| truth(known, register);
    let input = |index: u16| inputs.get(usize::from(index));
    let result = match instruction.op {
        Op::Load { field: index, part: Part::Whole, shift: None } => {
            let interval = field(index)?;
            match lane {
                Lane::Mask => {
                    return Some(Known::Condition(compared(
                        Comparison::NotEqual,
                        interval,
                        Interval::of(0.0),
                    )));
                }
                _ => interval,
            }
        }
        Op::Load { .. } | Op::ByZone(..) => Interval::ANY,
        Op::Input(index) => match input(index)? {
            Scalar::Number(number) => Interval::of(number.to_f64()),
            Scalar::Condition(condition) => return Some(Known::Condition(certain(*condition))),
            _ => return None,
        },
        Op::Convert(a) => checked(converted(number(a), lane), lane)?,
        Op::Unary(op, a) => checked(unary(op, number(a), lane), lane)?,
        Op::Binary(Binary::Times, a, b) if a == b => {
            let size = unary(Unary::Abs, number(a), lane);
            checked(binary(Binary::Times, size, size, lane), lane)?
        }
        Op::Binary(op, a, b) => checked(binary(op, number(a), number(b), lane), lane)?,
        Op::Test(test, a) => return Some(Known::Condition(tested(test, number(a)))),
        Op::Compare(comparison, a, b) => {
            return Some(Known::Condition(compared(comparison, number(a), number(b))));
        }
        Op::CompareInput(comparison, a, index) => {
            let one = match input(index)? {
                Scalar::Number(number) => around(*number),
                _ => return None,
            };
            return Some(Known::Condition(compared(comparison, number(a), one)));
        }
        Op::And(a, b) => return Some(Known::Condition(both(condition(a), condition(b)))),
        Op::Or(a, b) => {
            let neither = both(opposite(condition(a)), opposite(condition(b)));
            return Some(Known::Condition(opposite(neither)));
        }
        Op::Not(a) => return Some(Known::Condition(opposite(condition(a)))),
        Op::Select(mask, a, b) => match condition(mask) {
            Truth::Always => number(a),
            Truth::Never => number(b),
            Truth::Sometimes => number(a).joined(number(b)),
        },
    };
    Some(Known::Number(result))
}

/// A number that elements are compared with: of an integer that no double is, those around it.
pub(crate) fn around(number: Number) -> Interval {
    let double = number.to_f64();
    match number {
        Number::Integer(integer) if double as i128 != integer => {
            Interval { low: double.next_down(), high: double.next_up(), nan: false }
        }
        _ => Interval::of(double),
    }
}

/// Integers are computed in 64 bits: what may be beyond is not known.
fn checked(interval: Interval, lane: Lane) -> Option<Interval> {
    const MOST: f64 = 9e18;
    match lane {
        Lane::I64 | Lane::U64 if interval.is_number() && !(interval.low > -MOST && interval.high < MOST) => {
            None
        }
        Lane::I64 | Lane::U64 if interval.nan => None,
        Lane::I64 | Lane::U64 => Some(interval.widened_integer()),
        _ => Some(interval),
    }
}

impl Interval {
    /// Of integers beyond 2^53, which doubles do not tell apart.
    fn widened_integer(self) -> Interval {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self.low > -EXACT && self.high < EXACT {
            true => self,
            false => Interval { low: self.low.next_down(), high: self.high.next_up(), ..self },
        }
    }
}

fn converted(a: Interval, to: Lane) -> Interval {
    match to {
        // Rounded, but in the same order.
        Lane::F32 if a.is_number() => {
            Interval { low: f64::from(a.low as f32), high: f64::from(a.high as f32), ..a }
        }
        _ => a,
    }
}

/// A function at both ends: with the precision of the lane.
fn at(op: Unary, number: f64, lane: Lane) -> f64 {
    match lane {
        Lane::F32 => f64::from((number as f32).unary(op)),
        _ => number.unary(op),
    }
}

fn unary(op: Unary, a: Interval, lane: Lane) -> Interval {
    let ends =
        |low: f64, high: f64| Interval { low: at(op, low, lane), high: at(op, high, lane), nan: a.nan };
    if !a.is_number() {
        return a;
    }
    match op {
        Unary::Minus => Interval { low: -a.high, high: -a.low, nan: a.nan },
        Unary::Abs => {
            let (low, high) = (a.low.abs(), a.high.abs());
            Interval { low: if a.holds(0.0) { 0.0 } else { low.min(high) }, high: low.max(high), nan: a.nan }
        }
        Unary::Floor | Unary::Ceil | Unary::Round | Unary::Sign => ends(a.low, a.high),
        Unary::Sqrt => match a.high < 0.0 {
            true => Interval::of(f64::NAN),
            false => Interval { nan: a.nan || a.low < 0.0, ..ends(a.low.max(0.0), a.high) },
        },
        Unary::Log | Unary::Log2 | Unary::Log10 => match a.high < 0.0 {
            true => Interval::of(f64::NAN),
            false => Interval { nan: a.nan || a.low < 0.0, ..ends(a.low.max(0.0), a.high) }.widened(),
        },
        Unary::Exp | Unary::Atan | Unary::Sinh | Unary::Tanh => ends(a.low, a.high).widened(),
        Unary::Asin if a.low >= -1.0 && a.high <= 1.0 => ends(a.low, a.high).widened(),
        Unary::Acos if a.low >= -1.0 && a.high <= 1.0 => {
            Interval { low: at(op, a.high, lane), high: at(op, a.low, lane), nan: a.nan }.widened()
        }
        Unary::Cosh => {
            let (low, high) = (at(op, a.low, lane), at(op, a.high, lane));
            let least = if a.holds(0.0) { 1.0 } else { low.min(high) };
            Interval { low: least, high: low.max(high), nan: a.nan }.widened()
        }
        Unary::Sin | Unary::Cos => Interval { low: -1.0, high: 1.0, nan: a.nan || a.has_infinity() },
        Unary::Tan | Unary::Asin | Unary::Acos => Interval::ANY,
    }
}

fn binary(op: Binary, a: Interval, b: Interval, lane: Lane) -> Interval {
    let nan = a.nan || b.nan;
    if !a.is_number() || !b.is_number() {
        // Of an infinity and NaN the length is infinite; 1 to the power of NaN is 1, and NaN to that of 0.
        let may_be_number = matches!(op, Binary::Hypot | Binary::Power);
        return if may_be_number { Interval::ANY } else { Interval::of(f64::NAN) };
    }
    let compute = |x: f64, y: f64| match lane {
        Lane::F32 => f64::from((x as f32).binary(op, y as f32)),
        _ => x.binary(op, y),
    };
    // The order of numbers goes on through each of these, so that extremes lie at the ends.
    let ends = |nan: bool| {
        let corners =
            [(a.low, b.low), (a.low, b.high), (a.high, b.low), (a.high, b.high)].map(|(x, y)| compute(x, y));
        // What an end gives that is no number can be anything.
        if corners.iter().any(|corner| corner.is_nan()) {
            return Interval::ANY;
        }
        let low = corners.into_iter().fold(f64::INFINITY, f64::min);
        Interval { low, high: corners.into_iter().fold(f64::NEG_INFINITY, f64::max), nan }
    };
    match op {
        Binary::Plus | Binary::Minus => {
            let opposite = if op == Binary::Plus { b } else { Interval { low: -b.high, high: -b.low, ..b } };
            let cancels = (a.low == f64::NEG_INFINITY && opposite.high == f64::INFINITY)
                || (a.high == f64::INFINITY && opposite.low == f64::NEG_INFINITY);
            ends(nan || cancels)
        }
        Binary::Times => {
            let is_no_number = (a.has_infinity() && b.holds(0.0)) || (b.has_infinity() && a.holds(0.0));
            if is_no_number { Interval::ANY } else { ends(nan) }
        }
        Binary::Divide => match b.holds(0.0) || (a.has_infinity() && b.has_infinity()) {
            true => Interval::ANY,
            false => ends(nan),
        },
        Binary::Minimum => Interval { low: a.low.min(b.low), high: a.high.min(b.high), nan },
        Binary::Maximum => Interval { low: a.low.max(b.low), high: a.high.max(b.high), nan },
        Binary::Power => power(a, b, lane),
        Binary::Hypot => {
            let (x, y) = (unary(Unary::Abs, a, lane), unary(Unary::Abs, b, lane));
            // NaN and an infinity give an infinity.
            let low = compute(x.low, y.low);
            let high = if nan { f64::INFINITY } else { compute(x.high, y.high) };
            Interval { low, high, nan }.widened()
        }
        Binary::FloorDivide | Binary::Remainder | Binary::Atan2 | Binary::BitwiseAnd => Interval::ANY,
    }
}

/// Of a base from 0 on, or of an integer as the exponent.
fn power(a: Interval, b: Interval, lane: Lane) -> Interval {
    let compute = |x: f64| match lane {
        Lane::F32 => f64::from((x as f32).binary(Binary::Power, b.low as f32)),
        _ => x.binary(Binary::Power, b.low),
    };
    let exponent = b.low;
    if b.low != b.high || exponent.fract() != 0.0 || !(0.0..=1e6).contains(&exponent) || b.nan {
        return Interval::ANY;
    }
    if exponent == 0.0 {
        // Also of NaN.
        return Interval::of(1.0);
    }
    let (low, high) = (compute(a.low), compute(a.high));
    let is_even = exponent % 2.0 == 0.0;
    let least = match is_even {
        true if a.holds(0.0) => 0.0,
        _ => low.min(high),
    };
    let bounds = Interval { low: least, high: low.max(high), nan: a.nan };
    // Of integers it is exact.
    if matches!(lane, Lane::I64) { bounds } else { bounds.widened() }
}

fn certain(condition: bool) -> Truth {
    if condition { Truth::Always } else { Truth::Never }
}

fn opposite(truth: Truth) -> Truth {
    match truth {
        Truth::Always => Truth::Never,
        Truth::Never => Truth::Always,
        Truth::Sometimes => Truth::Sometimes,
    }
}

fn both(a: Truth, b: Truth) -> Truth {
    match (a, b) {
        (Truth::Always, Truth::Always) => Truth::Always,
        (Truth::Never, _) | (_, Truth::Never) => Truth::Never,
        _ => Truth::Sometimes,
    }
}

fn tested(test: Test, a: Interval) -> Truth {
    match test {
        Test::IsNan if !a.is_number() => {
            if a.nan {
                Truth::Always
            } else {
                Truth::Sometimes
            }
        }
        Test::IsNan => {
            if a.nan {
                Truth::Sometimes
            } else {
                Truth::Never
            }
        }
        Test::IsInf if !a.is_number() => Truth::Never,
        Test::IsInf => {
            if a.has_infinity() {
                Truth::Sometimes
            } else {
                Truth::Never
            }
        }
        Test::IsFinite if !a.is_number() => Truth::Never,
        Test::IsFinite => {
            if a.has_infinity() || a.nan {
                Truth::Sometimes
            } else {
                Truth::Always
            }
        }
    }
}

fn compared(comparison: Comparison, a: Interval, b: Interval) -> Truth {
    if comparison == Comparison::NotEqual {
        return opposite(compared(Comparison::Equal, a, b));
    }
    let nan = a.nan || b.nan;
    if !a.is_number() || !b.is_number() {
        // Of nothing, or of NaN alone.
        return Truth::Never;
    }
    let (always, never) = match comparison {
        Comparison::Less => (a.high < b.low, a.low >= b.high),
        Comparison::LessEqual => (a.high <= b.low, a.low > b.high),
        Comparison::Greater => (a.low > b.high, a.high <= b.low),
        Comparison::GreaterEqual => (a.low >= b.high, a.high < b.low),
        Comparison::Equal | Comparison::NotEqual => {
            let is_one = a.low == a.high && b.low == b.high && a.low == b.low;
            (is_one, a.high < b.low || a.low > b.high)
        }
    };
    match (always, never) {
        (_, true) => Truth::Never,
        (true, _) if !nan => Truth::Always,
        _ => Truth::Sometimes,
    }
}
