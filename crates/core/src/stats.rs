//! Statistics of the elements of a block, and of several blocks together.
//!
//! Infinities are values like others; NaN are left out and counted. Integers are added exactly, floats as pairs of doubles (the
//! error-free sum of T. J. Dekker, "A floating-point technique for extending the available precision", 1971), and squared
//! distances from the mean are merged as in T. F. Chan, G. H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm
//! for computing sample variances" (1979): the result does not depend on how elements lie in blocks, but for the last bits.

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

    /// How two of one kind compare; `None` of different kinds, or of what is not a number.
    fn compare(self, other: Value) -> Option<Ordering> {
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

/// Statistics of elements, all of one real dtype. Ghosts take no part: they are their owner's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The smallest and the largest of those that are numbers, infinities among them; `None` if there are none.
    pub bounds: Option<(Value, Value)>,
    /// How many are numbers.
    pub count: u64,
    /// How many are not.
    pub nan: u64,
    /// The sum of the numbers.
    pub sum: Sum,
    /// The sum of their squared distances from their mean.
    pub m2: f64,
}

impl Stats {
    /// The statistics of no elements, which are merged with any.
    pub const EMPTY: Stats = Stats { bounds: None, count: 0, nan: 0, sum: Sum::Int(0), m2: 0.0 };

    /// The mean of the numbers; NaN if there are none.
    pub fn mean(&self) -> f64 {
        match self.count {
            0 => f64::NAN,
            count => self.sum.to_f64() / count as f64,
        }
    }

    /// Their variance, with their count as divisor; NaN if there are none.
    pub fn variance(&self) -> f64 {
        match self.count {
            0 => f64::NAN,
            count => self.m2 / count as f64,
        }
    }

    /// The smallest as a double, not above it; NaN if there is none.
    pub fn min(&self) -> f64 {
        self.bounds.map_or(f64::NAN, |(min, _)| {
            let rounded = min.to_f64();
            if is_above(rounded, min) { rounded.next_down() } else { rounded }
        })
    }

    /// The largest as a double, not below it; NaN if there is none.
    pub fn max(&self) -> f64 {
        self.bounds.map_or(f64::NAN, |(_, max)| {
            let rounded = max.to_f64();
            if is_below(rounded, max) { rounded.next_up() } else { rounded }
        })
    }

    /// Takes in other elements of the same field.
    pub fn merge(&mut self, other: &Stats) {
        if other.count > 0 {
            let between = other.mean() - self.mean();
            if self.count == 0 {
                (self.bounds, self.sum, self.m2) = (other.bounds, other.sum, other.m2);
            } else {
                let (mine, theirs) = (self.count as f64, other.count as f64);
                self.m2 += other.m2 + between * between * (mine * theirs / (mine + theirs));
                self.sum = self.sum.plus(other.sum);
                self.bounds = joined(self.bounds, other.bounds);
            }
            self.count += other.count;
        }
        self.nan += other.nan;
    }
}

fn joined(a: Option<(Value, Value)>, b: Option<(Value, Value)>) -> Option<(Value, Value)> {
    let (Some((min, max)), Some((other_min, other_max))) = (a, b) else { return a.or(b) };
    let lower = other_min.compare(min) == Some(Ordering::Less);
    let higher = other_max.compare(max) == Some(Ordering::Greater);
    Some((if lower { other_min } else { min }, if higher { other_max } else { max }))
}

/// Whether a double is above an integer that it stands for.
fn is_above(rounded: f64, value: Value) -> bool {
    match value {
        Value::Int(value) => rounded as i128 > i128::from(value),
        Value::Unsigned(value) => rounded as i128 > i128::from(value),
        Value::Float(_) => false,
    }
}

fn is_below(rounded: f64, value: Value) -> bool {
    match value {
        Value::Int(value) => (rounded as i128) < i128::from(value),
        Value::Unsigned(value) => (rounded as i128) < i128::from(value),
        Value::Float(_) => false,
    }
}

/// The least bytes of elements whose bounds a block keeps together.
pub const TILE_BYTES: u64 = 64 << 10;
/// The most tiles of a block: of a larger one they have more bytes.
pub const TILES_MAX: u64 = 4096;

/// How many bytes a tile has of a block of so many bytes: a multiple of [`TILE_BYTES`], twice that or four times ...
pub fn tile_bytes(block: u64) -> u64 {
    let mut tile = TILE_BYTES;
    while block.div_ceil(tile) > TILES_MAX {
        tile *= 2;
    }
    tile
}

/// Statistics of a block's interior.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockStats {
    /// Of all of it.
    pub all: Stats,
    /// The smallest and the largest element of each tile, in the field's own type, one pair after the other. A tile is as many
    /// consecutive elements of the interior, in C order, as [`tile_bytes`] says. One without numbers has NaN. A block of one tile
    /// has none.
    pub tiles: Box<[u8]>,
}

impl BlockStats {
    /// Whether the tiles are those of a block whose interior has so many bytes, with elements of this size.
    pub fn fits(&self, interior: u64, element: usize) -> bool {
        let tiles = interior.div_ceil(tile_bytes(interior));
        let tiles = if tiles > 1 { tiles } else { 0 };
        self.tiles.len() as u64 == tiles * 2 * element as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[f64]) -> Stats {
        let mut stats = Stats::EMPTY;
        for value in values {
            let one = match value.is_nan() {
                true => Stats { nan: 1, ..Stats::EMPTY },
                false => Stats {
                    bounds: Some((Value::Float(*value), Value::Float(*value))),
                    count: 1,
                    nan: 0,
                    sum: Sum::Float(*value, 0.0),
                    m2: 0.0,
                },
            };
            stats.merge(&one);
        }
        stats
    }

    #[test]
    fn the_variance_of_large_numbers_that_differ_little() {
        let stats = of(&[1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]);
        assert_eq!((stats.variance(), stats.mean()), (22.5, 1e9 + 10.0));
    }

    #[test]
    fn infinities_are_values_and_nan_is_counted() {
        let stats = of(&[f64::NAN, 1.0, f64::INFINITY, -2.0]);
        assert_eq!((stats.min(), stats.max(), stats.count, stats.nan), (-2.0, f64::INFINITY, 3, 1));
        assert!(stats.sum.to_f64().is_infinite());
        assert!(of(&[f64::INFINITY, f64::NEG_INFINITY]).sum.to_f64().is_nan());
        let none = of(&[f64::NAN]);
        assert!(none.min().is_nan() && none.mean().is_nan() && none.variance().is_nan());
    }

    #[test]
    fn sums_keep_what_doubles_lose() {
        let stats = of(&[1.0, 1e100, 1.0, -1e100]);
        assert_eq!(stats.sum, Sum::Float(2.0, 0.0), "Neumaier's example, of two doubles");
    }

    #[test]
    fn bounds_of_wide_integers_are_exact_and_their_doubles_never_inside() {
        let wide = |value| Stats {
            bounds: Some((Value::Int(value), Value::Int(value))),
            count: 1,
            sum: Sum::Int(value.into()),
            ..Stats::EMPTY
        };
        let mut stats = wide(i64::MAX);
        stats.merge(&wide(i64::MIN + 1));
        assert_eq!(stats.bounds, Some((Value::Int(i64::MIN + 1), Value::Int(i64::MAX))));
        assert!(
            stats.max() as i128 >= i128::from(i64::MAX) && stats.min() as i128 <= i128::from(i64::MIN + 1)
        );
        assert_eq!(stats.sum, Sum::Int(0));
    }

    #[test]
    fn tiles_are_never_too_many() {
        assert_eq!([1, 64 << 10, 256 << 20].map(tile_bytes), [TILE_BYTES; 3]);
        assert_eq!(tile_bytes((256 << 20) + 1), 2 * TILE_BYTES);
        assert!(u64::MAX.div_ceil(tile_bytes(u64::MAX)) <= TILES_MAX);
        let fits = |tiles: usize, interior| {
            BlockStats { all: Stats::EMPTY, tiles: vec![0; 16 * tiles].into() }.fits(interior, 8)
        };
        assert!(fits(0, 64 << 10) && fits(2, (64 << 10) + 8) && !fits(1, 64 << 10) && !fits(1, 0));
    }

    proptest! {
        /// However elements lie in blocks, and whatever the order in which these are merged.
        #[test]
        fn merging_in_another_order_changes_nothing(values in prop::collection::vec(-1e6f64..1e6, 1..60), cut in 0usize..60) {
            let cut = cut.min(values.len());
            let whole = of(&values);
            let (mut first, second) = (of(&values[cut..]), of(&values[..cut]));
            first.merge(&second);
            prop_assert_eq!((first.bounds, first.count), (whole.bounds, whole.count));
            prop_assert_eq!(first.sum.to_f64(), whole.sum.to_f64());
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let exact = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
            prop_assert!((first.variance() - exact).abs() <= 1e-9 * exact.max(1.0));
        }
    }
}
