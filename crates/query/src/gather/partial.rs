//! An answer, of some of the elements.

use crate::gather::moments::Moments;
use crate::gather::total::Total;
use crate::value::{Number, Place, Unknown};
use forebay_core::exact_sum::ExactSum;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// An extreme, and where the first of those lies that are the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extreme {
    /// The number.
    pub value: Number,
    /// Where.
    pub place: Place,
}

/// What was gathered of some elements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Partial {
    /// Of numbers that are no NaN.
    Least(Option<Extreme>),
    /// Of numbers that are no NaN.
    Greatest(Option<Extreme>),
    /// The sum of those that are no NaN, and how many that are.
    Sum(Total, u64),
    /// The sum of those that are no NaN, and how they spread.
    Moments(Box<Moments>),
    /// The sum of squared distances.
    Squares(Box<ExactSum>),
    /// For how many a condition holds.
    Count(u64),
    /// Whether it holds for any.
    Any(bool),
    /// Whether it holds for all.
    All(bool),
    /// Nothing but how many elements there are: none of them counts.
    Elements,
    /// How many numbers lie in each bucket that is not empty, in the order of buckets.
    Buckets(Vec<(u32, u64)>),
    /// Numbers by their keys, in their order.
    Keys(Vec<u64>),
    /// The smallest and the largest number that is finite.
    Bounds(Option<(f64, f64)>),
}

/// What was gathered of some elements, and how many they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gathered {
    /// How many elements were looked at, whether they count or not.
    pub elements: u64,
    /// How many of those that count are no numbers.
    pub nan: u64,
    /// What was gathered, or why that is not known.
    pub partial: Result<Partial, Unknown>,
}

impl Partial {
    /// Takes in what was gathered of other elements, for the same question.
    fn merge(&mut self, other: Partial) {
        match (self, other) {
            (Partial::Least(own), Partial::Least(theirs)) => keep_first(own, theirs, Ordering::Less),
            (Partial::Greatest(own), Partial::Greatest(theirs)) => keep_first(own, theirs, Ordering::Greater),
            (Partial::Sum(own, count), Partial::Sum(theirs, more)) => {
                own.add(&theirs);
                *count += more;
            }
            (Partial::Moments(own), Partial::Moments(theirs)) => own.add(&theirs),
            (Partial::Squares(own), Partial::Squares(theirs)) => own.add_sum(&theirs),
            (Partial::Count(own), Partial::Count(theirs)) => *own += theirs,
            (Partial::Any(own), Partial::Any(theirs)) => *own |= theirs,
            (Partial::All(own), Partial::All(theirs)) => *own &= theirs,
            (Partial::Buckets(own), Partial::Buckets(theirs)) => *own = merged_counts(own, &theirs),
            (Partial::Keys(own), Partial::Keys(theirs)) => {
                own.extend(theirs);
                own.sort_unstable();
            }
            (Partial::Bounds(own), Partial::Bounds(theirs)) => {
                *own = match (*own, theirs) {
                    (Some((low, high)), Some((other_low, other_high))) => {
                        Some((low.min(other_low), high.max(other_high)))
                    }
                    (own, theirs) => own.or(theirs),
                };
            }
            (own @ Partial::Elements, theirs) => *own = theirs,
            // Of elements none of which counts; or no answer to one question.
            (_, _) => {}
        }
    }
}

/// Keeps the extreme; of those that are the same the first.
fn keep_first(own: &mut Option<Extreme>, theirs: Option<Extreme>, wins: Ordering) {
    let Some(other) = theirs else { return };
    let takes = own.as_ref().is_none_or(|own| match other.value.order(own.value) {
        Some(Ordering::Equal) => other.place < own.place,
        order => order == Some(wins),
    });
    if takes {
        *own = Some(other);
    }
}

/// The counts of both, in the order of buckets.
fn merged_counts(a: &[(u32, u64)], b: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let mut merged = Vec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some((x, _)), Some((y, _))) if x == y => {
                let ((bucket, first), (_, second)) =
                    (a.next().unwrap_or_default(), b.next().unwrap_or_default());
                Some((bucket, first + second))
            }
            (Some((x, _)), Some((y, _))) if y < x => b.next(),
            (Some(_), _) => a.next(),
            _ => b.next(),
        };
        match next {
            Some(counted) => merged.push(counted),
            None => return merged,
        }
    }
}

impl Gathered {
    /// Whether something holds, of no elements.
    pub fn condition(holds: bool) -> Gathered {
        Gathered { elements: 0, nan: 0, partial: Ok(Partial::All(holds)) }
    }

    /// Takes in what was gathered of other elements, for the same question. What is not known of some is not known of all.
    pub fn merge(&mut self, other: Gathered) {
        self.elements = self.elements.saturating_add(other.elements);
        self.nan = self.nan.saturating_add(other.nan);
        match (&mut self.partial, other.partial) {
            (Ok(own), Ok(theirs)) => own.merge(theirs),
            (own @ Ok(_), Err(why)) => *own = Err(why),
            // Of two reasons the same one, whichever came first.
            (Err(own), Err(why)) if (why.kind, &why.text) < (own.kind, &own.text) => *own = why,
            (Err(_), _) => {}
        }
    }

    /// Whether it may be an answer of a peer: counts in their order.
    pub fn is_well_formed(&self) -> bool {
        match &self.partial {
            Ok(Partial::Buckets(counts)) => counts.is_sorted_by(|a, b| a.0 < b.0),
            Ok(Partial::Keys(keys)) => keys.is_sorted(),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::UnknownKind;

    fn at(value: f64, index: &[u64]) -> Option<Extreme> {
        let place = Place { level: 0, block: None, index: index.into() };
        Some(Extreme { value: Number::F64(value), place })
    }

    fn merged(a: Partial, b: Partial) -> Partial {
        let (mut first, mut second) = (a.clone(), b.clone());
        first.merge(b);
        second.merge(a);
        assert_eq!(first, second, "whatever comes first");
        first
    }

    #[test]
    fn of_extremes_that_are_the_same_the_first_stays() {
        let least = |a, b| merged(Partial::Least(a), Partial::Least(b));
        assert_eq!(least(at(1.0, &[3, 0]), at(1.0, &[2, 9])), Partial::Least(at(1.0, &[2, 9])));
        assert_eq!(least(at(1.0, &[3, 0]), at(2.0, &[2, 9])), Partial::Least(at(1.0, &[3, 0])));
        assert_eq!(least(None, at(f64::INFINITY, &[1])), Partial::Least(at(f64::INFINITY, &[1])));
        assert_eq!(least(None, None), Partial::Least(None));
        let greatest = merged(Partial::Greatest(at(1.0, &[0])), Partial::Greatest(at(2.0, &[1])));
        assert_eq!(greatest, Partial::Greatest(at(2.0, &[1])));
    }

    #[test]
    fn counts_are_added_bucket_by_bucket() {
        let a = Partial::Buckets(vec![(1, 2), (5, 1)]);
        let b = Partial::Buckets(vec![(0, 7), (5, 3), (9, 1)]);
        assert_eq!(merged(a, b), Partial::Buckets(vec![(0, 7), (1, 2), (5, 4), (9, 1)]));
        let sum = |x: f64| Partial::Sum(Total::Float(Box::new([x].into_iter().collect())), 1);
        let Partial::Sum(total, count) = merged(merged(sum(1e100), sum(1.0)), sum(-1e100)) else {
            panic!("no sum")
        };
        assert_eq!((total.to_f64(), count), (1.0, 3));
    }

    #[test]
    fn what_is_not_known_of_some_is_not_known_of_all() {
        let known = Gathered { elements: 3, nan: 1, partial: Ok(Partial::Count(2)) };
        let why = |text| Err(Unknown::new(UnknownKind::Overflow, text));
        let (mut a, mut b) = (known.clone(), Gathered { partial: why("b"), ..known.clone() });
        b.merge(Gathered { partial: why("a"), ..known.clone() });
        b.merge(known);
        a.merge(b.clone());
        assert_eq!((a.elements, a.nan, &a.partial), (12, 4, &b.partial));
        assert_eq!(a.partial, why("a"));
    }
}
