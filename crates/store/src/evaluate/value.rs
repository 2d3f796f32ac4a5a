//! The elements of registers, and chunks of them.

use crate::element::bytes_of;
use crate::evaluate::CHUNK;
use crate::extremes::{self, Found};
use forebay_query::value::Number;

/// An element of a register.
pub(super) trait Value: Copy + PartialOrd {
    /// No element is below it.
    const LEAST: Self;
    /// No element is above it.
    const GREATEST: Self;
    fn number(self) -> Number;
    fn to_f64(self) -> f64;
    /// Its key, of what is no NaN.
    fn key(self) -> u64;
    fn is_nan(self) -> bool;
    /// The same elements, if they are doubles.
    fn as_doubles(values: &[Self]) -> Option<&[f64]>;
    /// The smallest and the largest, if they are floats.
    fn extremes(values: &[Self]) -> Option<Found<Self>>;
}

impl Value for f64 {
    const LEAST: f64 = f64::NEG_INFINITY;
    const GREATEST: f64 = f64::INFINITY;
    fn number(self) -> Number {
        Number::F64(self)
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn key(self) -> u64 {
        let bits = self.to_bits();
        // All bits of negative numbers are the other way round, of others the sign alone: as `key_of`.
        bits ^ (((bits as i64 >> 63) as u64) | 1 << 63)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.is_nan()
    }
    #[inline(always)]
    fn as_doubles(values: &[f64]) -> Option<&[f64]> {
        Some(values)
    }
    #[inline(always)]
    fn extremes(values: &[f64]) -> Option<Found<f64>> {
        Some(extremes::of_bytes(bytes_of(values)))
    }
}

impl Value for f32 {
    const LEAST: f32 = f32::NEG_INFINITY;
    const GREATEST: f32 = f32::INFINITY;
    fn number(self) -> Number {
        Number::F32(self)
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn key(self) -> u64 {
        Value::key(f64::from(self))
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.is_nan()
    }
    #[inline(always)]
    fn as_doubles(_: &[f32]) -> Option<&[f64]> {
        None
    }
    #[inline(always)]
    fn extremes(values: &[f32]) -> Option<Found<f32>> {
        Some(extremes::of_bytes(bytes_of(values)))
    }
}

macro_rules! integer {
    ($type:ident, $key:expr) => {
        impl Value for $type {
            const LEAST: $type = $type::MIN;
            const GREATEST: $type = $type::MAX;
            fn number(self) -> Number {
                Number::Integer(i128::from(self))
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn key(self) -> u64 {
                $key(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn as_doubles(_: &[$type]) -> Option<&[f64]> {
                None
            }
            #[inline(always)]
            fn extremes(_: &[$type]) -> Option<Found<$type>> {
                None
            }
        }
    };
}

integer!(i64, |number: i64| number as u64 ^ 1 << 63);
integer!(u64, |number: u64| number);

/// The elements of a chunk: their values, and which of them count.
#[derive(Clone, Copy)]
pub(super) struct Chunk<'a, T> {
    pub(super) values: &'a [T],
    pub(super) mask: Option<&'a [u8]>,
}

/// Several independent lanes, so that comparisons do not wait for each other.
const LANES: usize = 16;

impl<'a, T: Value> Chunk<'a, T> {
    /// Those that count and are no NaN.
    #[inline(always)]
    pub(super) fn numbers(self, mut take: impl FnMut(T)) {
        match self.mask {
            None => self.values.iter().filter(|value| !value.is_nan()).for_each(|value| take(*value)),
            Some(mask) => {
                let each = self.values.iter().zip(mask);
                each.filter(|(value, counts)| **counts != 0 && !value.is_nan())
                    .for_each(|(value, _)| take(*value));
            }
        }
    }

    /// Whether an element counts.
    #[inline(always)]
    pub(super) fn counts(self, index: usize) -> bool {
        self.mask.is_none_or(|mask| mask[index] != 0)
    }

    /// How many count, though they are NaN.
    #[inline(always)]
    pub(super) fn nans(self) -> u64 {
        match self.mask {
            None => self.values.iter().map(|value| u64::from(value.is_nan())).sum(),
            Some(mask) => {
                let each = self.values.iter().zip(mask);
                each.map(|(value, counts)| u64::from(value.is_nan()) & u64::from(*counts)).sum()
            }
        }
    }

    /// How many count, NaN among them.
    #[inline(always)]
    pub(super) fn count(self) -> u64 {
        self.mask.map_or(self.values.len() as u64, |mask| mask.iter().map(|counts| u64::from(*counts)).sum())
    }

    /// What is made of each that counts, as doubles; of others, and of NaN, 0.
    #[inline(always)]
    pub(super) fn doubles<'b>(self, nans: u64, room: &'b mut [f64; CHUNK]) -> &'b [f64]
    where
        'a: 'b,
    {
        if let (None, 0, Some(values)) = (self.mask, nans, T::as_doubles(self.values)) {
            return values;
        }
        let one = |value: T, counts: bool| if counts && !value.is_nan() { value.to_f64() } else { 0.0 };
        match self.mask {
            None => room.iter_mut().zip(self.values).for_each(|(to, value)| *to = one(*value, true)),
            Some(mask) => {
                let each = self.values.iter().zip(mask);
                room.iter_mut().zip(each).for_each(|(to, (value, counts))| *to = one(*value, *counts != 0));
            }
        }
        &room[..self.values.len()]
    }

    /// The extreme of those that count, NaN left out; the end of the type, if there are none.
    #[inline(always)]
    pub(super) fn extreme(self, is_least: bool) -> T {
        if is_least {
            self.fold(T::GREATEST, |a, b| if b < a { b } else { a })
        } else {
            self.fold(T::LEAST, |a, b| if b > a { b } else { a })
        }
    }

    /// NaN is never the smaller or the larger one.
    #[inline(always)]
    fn fold(self, end: T, keep: impl Fn(T, T) -> T) -> T {
        let mut lanes = [end; LANES];
        let (rows, rest) = self.values.as_chunks::<LANES>();
        match self.mask {
            None => {
                for row in rows {
                    for lane in 0..LANES {
                        lanes[lane] = keep(lanes[lane], row[lane]);
                    }
                }
                rest.iter().chain(&lanes).fold(end, |best, value| keep(best, *value))
            }
            Some(mask) => {
                let (of_rows, of_rest) = mask.as_chunks::<LANES>();
                for (row, counts) in rows.iter().zip(of_rows) {
                    for lane in 0..LANES {
                        lanes[lane] = keep(lanes[lane], if counts[lane] != 0 { row[lane] } else { end });
                    }
                }
                let counted =
                    rest.iter().zip(of_rest).filter(|(_, counts)| **counts != 0).map(|(value, _)| value);
                counted.chain(&lanes).fold(end, |best, value| keep(best, *value))
            }
        }
    }
}

/// The largest size of numbers none of which is NaN.
#[inline(always)]
pub(super) fn largest(numbers: &[f64]) -> f64 {
    let mut lanes = [0f64; LANES];
    let larger = |a: f64, b: f64| if b.abs() > a { b.abs() } else { a };
    let (rows, rest) = numbers.as_chunks::<LANES>();
    for row in rows {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], row[lane]);
        }
    }
    rest.iter().chain(&lanes).fold(0.0, |most, number| larger(most, *number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_query::gather::key_of;
    use forebay_query::plan::Lane;

    #[test]
    fn keys_are_those_of_plain_code() {
        for x in
            [0.0, -0.0, 1.5, -1.5, f64::MAX, -f64::MAX, f64::INFINITY, f64::NEG_INFINITY, 5e-324, -5e-324]
        {
            assert_eq!(Some(Value::key(x)), key_of(Number::F64(x), Lane::F64));
            assert_eq!(Some(Value::key(x as f32)), key_of(Number::F32(x as f32), Lane::F32));
        }
        assert_eq!(Value::key(-3i64), (1 << 63) - 3);
        assert_eq!(Some(Value::key(7i64)), key_of(Number::Integer(7), Lane::I64));
        assert_eq!(Some(Value::key(u64::MAX)), key_of(Number::Integer(u64::MAX.into()), Lane::U64));
    }
}
