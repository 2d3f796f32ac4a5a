//! The smallest and the largest of elements of any real dtype.

use crate::extremes::{self, Float, Found};
use forebay_core::dtype::Dtype;
use forebay_core::stats::{Stats, Value};
use std::cmp::Ordering;

/// What comparing finds of some elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Compared {
    /// The smallest and the largest of those that are numbers.
    pub(super) bounds: Option<(Value, Value)>,
    /// How many are numbers.
    pub(super) count: u64,
    /// How many are not.
    pub(super) nan: u64,
}

impl Compared {
    /// Of no elements.
    pub(super) const NOTHING: Compared = Compared { bounds: None, count: 0, nan: 0 };

    /// Of these elements. Those of complex numbers are not compared.
    pub(super) fn of(dtype: Dtype, bytes: &[u8]) -> Compared {
        match dtype {
            Dtype::F64 => Compared::of_floats(extremes::of_bytes::<f64>(bytes), bytes.len() / 8),
            Dtype::F32 => Compared::of_floats(extremes::of_bytes::<f32>(bytes), bytes.len() / 4),
            Dtype::F16 => of_halves(bytes, half::f16::from_le_bytes),
            Dtype::Bf16 => of_halves(bytes, half::bf16::from_le_bytes),
            Dtype::Bool => of_integers(bytes, |[byte]| byte != 0, |value| Value::Unsigned(value.into())),
            Dtype::I8 => of_integers(bytes, i8::from_le_bytes, |value| Value::Int(value.into())),
            Dtype::I16 => of_integers(bytes, i16::from_le_bytes, |value| Value::Int(value.into())),
            Dtype::I32 => of_integers(bytes, i32::from_le_bytes, |value| Value::Int(value.into())),
            Dtype::I64 => of_integers(bytes, i64::from_le_bytes, Value::Int),
            Dtype::U8 => of_integers(bytes, u8::from_le_bytes, |value| Value::Unsigned(value.into())),
            Dtype::U16 => of_integers(bytes, u16::from_le_bytes, |value| Value::Unsigned(value.into())),
            Dtype::U32 => of_integers(bytes, u32::from_le_bytes, |value| Value::Unsigned(value.into())),
            Dtype::U64 => of_integers(bytes, u64::from_le_bytes, Value::Unsigned),
            Dtype::C64 | Dtype::C128 => Compared::NOTHING,
        }
    }

    /// Of so many floats.
    pub(super) fn of_floats<T: Float + Into<f64>>(found: Found<T>, elements: usize) -> Compared {
        let (count, nan) = ((elements - found.nan) as u64, found.nan as u64);
        let bounds = (Value::Float(found.min.into()), Value::Float(found.max.into()));
        Compared { bounds: (count > 0).then_some(bounds), count, nan }
    }

    /// The same of elements of which more is known.
    pub(super) fn of_stats(stats: &Stats) -> Compared {
        Compared { bounds: stats.bounds, count: stats.count, nan: stats.nan }
    }

    /// Takes in others.
    pub(super) fn merge(&mut self, other: Compared) {
        self.bounds = match (self.bounds, other.bounds) {
            (Some((min, max)), Some((least, most))) => {
                let is_lower = least.order(min) == Some(Ordering::Less);
                let is_higher = most.order(max) == Some(Ordering::Greater);
                Some((if is_lower { least } else { min }, if is_higher { most } else { max }))
            }
            (own, theirs) => own.or(theirs),
        };
        self.count += other.count;
        self.nan += other.nan;
    }
}

fn of_halves<T: PartialOrd + Into<f64> + Copy>(bytes: &[u8], read: impl Fn([u8; 2]) -> T) -> Compared {
    let (elements, _) = bytes.as_chunks::<2>();
    let mut found = Found { min: f64::INFINITY, max: f64::NEG_INFINITY, nan: 0 };
    for element in elements {
        let x: f64 = read(*element).into();
        found.min = if x < found.min { x } else { found.min };
        found.max = if x > found.max { x } else { found.max };
        found.nan += usize::from(x.is_nan());
    }
    Compared::of_floats(found, elements.len())
}

fn of_integers<const N: usize, T: Copy + Ord>(
    bytes: &[u8],
    read: impl Fn([u8; N]) -> T,
    exact: impl Fn(T) -> Value,
) -> Compared {
    let (elements, _) = bytes.as_chunks::<N>();
    let Some(first) = elements.first().map(|first| read(*first)) else { return Compared::NOTHING };
    let (mut min, mut max) = (first, first);
    for element in elements {
        let x = read(*element);
        min = min.min(x);
        max = max.max(x);
    }
    Compared { bounds: Some((exact(min), exact(max))), count: elements.len() as u64, nan: 0 }
}
