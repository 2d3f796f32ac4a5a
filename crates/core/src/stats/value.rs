//! Elements, exactly, and their sums.

use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// An element, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Of a signed integer.
    Int(i64),
    /// Of an unsigned integer, or a bool: 0 or 1.
    Unsigned(u64),
    /// Of a float of any width.
    Float(f64),
}

impl Value {
    /// The same, rounded if a double cannot hold it.
    pub fn to_f64(self) -> f64 {
        match self {
            Value::Int(value) => value as f64,
            Value::Unsigned(value) => value as f64,
            Value::Float(value) => value,
        }
    }

    /// A double that is not above it.
    pub fn below(self) -> f64 {
        let rounded = self.to_f64();
        let is_above = match self {
            Value::Int(value) => rounded as i128 > i128::from(value),
            Value::Unsigned(value) => rounded as i128 > i128::from(value),
            Value::Float(_) => false,
        };
        if is_above { rounded.next_down() } else { rounded }
    }

    /// A double that is not below it.
    pub fn above(self) -> f64 {
        let rounded = self.to_f64();
        let is_below = match self {
            Value::Int(value) => (rounded as i128) < i128::from(value),
            Value::Unsigned(value) => (rounded as i128) < i128::from(value),
            Value::Float(_) => false,
        };
        if is_below { rounded.next_up() } else { rounded }
    }

    /// An element of a real dtype, of which these are the bytes; NaN if they are too few, or if it is complex.
    pub fn read(dtype: Dtype, bytes: &[u8]) -> Value {
        fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.first_chunk().copied()
        }
        let value = match dtype {
            Dtype::Bool => first(bytes).map(|[byte]| Value::Unsigned((byte != 0).into())),
            Dtype::I8 => first(bytes).map(|b| Value::Int(i8::from_le_bytes(b).into())),
            Dtype::I16 => first(bytes).map(|b| Value::Int(i16::from_le_bytes(b).into())),
            Dtype::I32 => first(bytes).map(|b| Value::Int(i32::from_le_bytes(b).into())),
            Dtype::I64 => first(bytes).map(|b| Value::Int(i64::from_le_bytes(b))),
            Dtype::U8 => first(bytes).map(|b| Value::Unsigned(u8::from_le_bytes(b).into())),
            Dtype::U16 => first(bytes).map(|b| Value::Unsigned(u16::from_le_bytes(b).into())),
            Dtype::U32 => first(bytes).map(|b| Value::Unsigned(u32::from_le_bytes(b).into())),
            Dtype::U64 => first(bytes).map(|b| Value::Unsigned(u64::from_le_bytes(b))),
            Dtype::F16 => first(bytes).map(|b| Value::Float(half::f16::from_le_bytes(b).into())),
            Dtype::Bf16 => first(bytes).map(|b| Value::Float(half::bf16::from_le_bytes(b).into())),
            Dtype::F32 => first(bytes).map(|b| Value::Float(f32::from_le_bytes(b).into())),
            Dtype::F64 => first(bytes).map(|b| Value::Float(f64::from_le_bytes(b))),
            Dtype::C64 | Dtype::C128 => None,
        };
        value.unwrap_or(Value::Float(f64::NAN))
    }

    /// Appends it as an element of a type that it has come from.
    pub fn write(self, dtype: Dtype, to: &mut Vec<u8>) {
        match (dtype, self) {
            (Dtype::F16, value) => to.extend(half::f16::from_f64(value.to_f64()).to_le_bytes()),
            (Dtype::Bf16, value) => to.extend(half::bf16::from_f64(value.to_f64()).to_le_bytes()),
            (Dtype::F32, value) => to.extend((value.to_f64() as f32).to_le_bytes()),
            (_, Value::Float(value)) => to.extend(value.to_le_bytes()),
            (_, Value::Int(value)) => to.extend(&value.to_le_bytes()[..dtype.size().min(8)]),
            (_, Value::Unsigned(value)) => to.extend(&value.to_le_bytes()[..dtype.size().min(8)]),
        }
    }

    /// How two of one kind compare; `None` of different kinds, or of what is not a number.
    pub fn order(self, other: Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
            (Value::Unsigned(a), Value::Unsigned(b)) => Some(a.cmp(&b)),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(&b),
            _ => None,
        }
    }
}

/// A sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Sum {
    /// Of integers, exactly: 2^64 elements of 64 bits fit.
    Int(i128),
    /// Of floats: the double that is nearest to it, and what that lacks.
    Float(f64, f64),
}

impl Sum {
    /// The same as one double.
    pub fn to_f64(self) -> f64 {
        match self {
            Sum::Int(sum) => sum as f64,
            Sum::Float(high, _) => high,
        }
    }

    /// Both together.
    pub fn plus(self, other: Sum) -> Sum {
        match (self, other) {
            (Sum::Int(a), Sum::Int(b)) => Sum::Int(a.wrapping_add(b)),
            (Sum::Float(high, low), Sum::Float(more, rest)) => {
                let (sum, error) = two_sum(high, more);
                Sum::float(sum, error + low + rest)
            }
            // Of one field they are of one kind.
            (a, b) => Sum::Float(a.to_f64() + b.to_f64(), 0.0),
        }
    }

    /// A pair of doubles, the first of which is nearest to their sum. What is not finite lacks nothing.
    pub fn float(high: f64, low: f64) -> Sum {
        if !high.is_finite() || !low.is_finite() {
            return Sum::Float(high, 0.0);
        }
        let (sum, error) = two_sum(high, low);
        if sum.is_finite() { Sum::Float(sum, error) } else { Sum::Float(sum, 0.0) }
    }
}

/// The sum of two doubles, and its error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}
