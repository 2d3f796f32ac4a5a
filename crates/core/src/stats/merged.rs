//! Statistics of elements that lie in blocks in any way.

use super::value::{Sum, Value};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

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
        self.bounds.map_or(f64::NAN, |(min, _)| min.below())
    }

    /// The largest as a double, not below it; NaN if there is none.
    pub fn max(&self) -> f64 {
        self.bounds.map_or(f64::NAN, |(_, max)| max.above())
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
    let lower = other_min.order(min) == Some(Ordering::Less);
    let higher = other_max.order(max) == Some(Ordering::Greater);
    Some((if lower { other_min } else { min }, if higher { other_max } else { max }))
}
