//! Numbers of a kind.

use crate::syntax::Comparison;
use crate::value::arithmetic::{Binary, Float, Integer, Test, Unary, compares};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// Of which kind a number is, or each element of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An integer as it is written, which takes the kind of what it meets.
    WrittenInteger,
    /// A number as it is written with a point or an exponent, which takes the kind of floats that it meets.
    WrittenFloat,
    /// Of elements: a signed integer of up to 64 bits, or an unsigned one of up to 32.
    I64,
    /// Of elements: an unsigned integer of 64 bits.
    U64,
    /// Of a number that elements gave: an integer of any of these types, and their sums.
    Integer,
    /// A float of 32 bits; of elements also one of 16.
    F32,
    /// A float of 64 bits.
    F64,
}

impl Kind {
    /// Whether it is one of integers.
    pub fn is_integer(self) -> bool {
        !matches!(self, Kind::WrittenFloat | Kind::F32 | Kind::F64)
    }

    /// Whether it was written, so that it takes another kind.
    pub fn is_written(self) -> bool {
        matches!(self, Kind::WrittenInteger | Kind::WrittenFloat)
    }

    /// In which kind two numbers meet: that of NumPy 2 (NEP 50), but that all integers have 64 bits.
    pub fn meets(self, other: Kind) -> Kind {
        use Kind::{F32, F64, I64, Integer, U64, WrittenFloat, WrittenInteger};
        match (self, other) {
            (a, b) if a == b => a,
            (WrittenInteger, other) | (other, WrittenInteger) => other,
            (WrittenFloat, F32) | (F32, WrittenFloat) => F32,
            (I64 | U64 | Integer, I64 | U64 | Integer) => {
                if self == Integer || other == Integer {
                    self.min(other)
                } else {
                    I64
                }
            }
            _ => F64,
        }
    }

    /// In which kind a function gives a float of it.
    pub fn as_float(self) -> Kind {
        match self {
            Kind::F32 | Kind::WrittenFloat => self,
            Kind::WrittenInteger => Kind::WrittenFloat,
            _ => Kind::F64,
        }
    }
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Number {
    /// An integer; sums of all integers of 64 bits fit.
    Integer(i128),
    /// A float of 32 bits.
    F32(f32),
    /// A float of 64 bits.
    F64(f64),
}

impl Number {
    /// The same as a double.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Integer(number) => number as f64,
            Number::F32(number) => f64::from(number),
            Number::F64(number) => number,
        }
    }

    /// The same in another kind: rounded, if that cannot hold it. Floats stay floats.
    pub fn to_kind(self, kind: Kind) -> Number {
        match (kind, self) {
            (Kind::F32, Number::Integer(number)) => Number::F32(number as f32),
            (Kind::F32, Number::F64(number)) => Number::F32(number as f32),
            (Kind::F64 | Kind::WrittenFloat, number) => Number::F64(number.to_f64()),
            _ => self,
        }
    }

    /// What a function gives; `None` if that is an integer beyond 128 bits.
    pub fn unary(self, op: Unary) -> Option<Number> {
        Some(match self {
            Number::F32(number) => Number::F32(number.unary(op)),
            Number::F64(number) => Number::F64(number.unary(op)),
            Number::Integer(number) => match op {
                Unary::Minus | Unary::Abs | Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round => {
                    Number::Integer(number.integer_unary(op)?)
                }
                _ => Number::F64((number as f64).unary(op)),
            },
        })
    }

    /// What an operator gives of two of one kind; `None` if that is an integer beyond 128 bits, or a divisor is 0.
    pub fn binary(self, op: Binary, other: Number) -> Option<Number> {
        Some(match (self, other) {
            (Number::Integer(a), Number::Integer(b)) => match op {
                Binary::Divide | Binary::Atan2 | Binary::Hypot => {
                    Number::F64((a as f64).binary(op, b as f64))
                }
                Binary::Power if b < 0 => Number::F64((a as f64).binary(op, b as f64)),
                _ => Number::Integer(a.integer_binary(op, b)?),
            },
            (Number::F32(a), Number::F32(b)) => Number::F32(a.binary(op, b)),
            (a, b) => Number::F64(a.to_f64().binary(op, b.to_f64())),
        })
    }

    /// Whether two compare like that: integers exactly, others as floats.
    pub fn compares(self, comparison: Comparison, other: Number) -> bool {
        match (self, other) {
            (Number::Integer(a), Number::Integer(b)) => compares(comparison, a, b),
            (a, b) => compares(comparison, a.to_f64(), b.to_f64()),
        }
    }

    /// How two compare; `None` with NaN.
    pub fn order(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Integer(a), Number::Integer(b)) => Some(a.cmp(&b)),
            (a, b) => a.to_f64().partial_cmp(&b.to_f64()),
        }
    }

    /// Whether it is one of those.
    pub fn test(self, test: Test) -> bool {
        self.to_f64().test(test)
    }

    /// Whether both are the same, bit by bit but for the sign of NaN.
    pub fn is_same(self, other: Number) -> bool {
        self == other || (self.to_f64().is_nan() && other.to_f64().is_nan())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Integer(number) => write!(f, "{number}"),
            Number::F32(number) => write!(f, "{number:?}"),
            Number::F64(number) => write!(f, "{number:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_numbers_take_the_kind_of_what_they_meet() {
        use Kind::{F32, F64, I64, Integer, U64, WrittenFloat, WrittenInteger};
        for (a, b, expected) in [
            (WrittenFloat, F32, F32),
            (WrittenInteger, F32, F32),
            (WrittenFloat, I64, F64),
            (WrittenFloat, WrittenInteger, WrittenFloat),
            (WrittenInteger, U64, U64),
            (I64, F32, F64),
            (F32, F64, F64),
            (U64, I64, I64),
            (Integer, U64, U64),
            (Integer, F32, F64),
        ] {
            assert_eq!((a.meets(b), b.meets(a)), (expected, expected), "{a:?} and {b:?}");
        }
        assert_eq!(Number::F64(0.1).to_kind(F32), Number::F32(0.1));
    }

    #[test]
    fn integers_are_exact_and_wide() {
        let wide = Number::Integer(i128::from(u64::MAX) * 3);
        assert!(wide.compares(Comparison::Greater, Number::Integer(i128::from(u64::MAX) * 3 - 1)));
        assert_eq!(Number::Integer(2).binary(Binary::Power, Number::Integer(-1)), Some(Number::F64(0.5)));
        assert_eq!(Number::Integer(1).binary(Binary::FloorDivide, Number::Integer(0)), None);
        assert_eq!(Number::Integer(i128::MAX).binary(Binary::Plus, Number::Integer(1)), None);
        assert_eq!(Number::Integer(7).binary(Binary::Divide, Number::Integer(2)), Some(Number::F64(3.5)));
    }
}
