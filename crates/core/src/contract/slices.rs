//! A part of an array, as NumPy says it: before the array's shape is known.

use crate::region::{Dims, MAX_NDIM};
use crate::selection::Selection;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A place in a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Index {
    /// So many elements lie before it.
    FromStart(u64),
    /// So many elements lie from it to the end: NumPy's negative indices.
    FromEnd(u64),
}

impl Index {
    /// Where it is among `n` elements; `None` if that is outside. `n` itself is the end.
    pub fn among(self, n: u64) -> Option<u64> {
        match self {
            Index::FromStart(index) => Some(index).filter(|index| *index <= n),
            Index::FromEnd(index) => n.checked_sub(index),
        }
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Index::FromStart(index) => write!(f, "{index}"),
            Index::FromEnd(index) => write!(f, "-{index}"),
        }
    }
}

/// Elements of one dimension: from `start` to before `stop`, every so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// The first; `None`: of all.
    pub start: Option<Index>,
    /// Before which it ends; `None`: after the last of all.
    pub stop: Option<Index>,
    /// The distance between two.
    pub step: u64,
}

impl Slice {
    /// All elements.
    pub const ALL: Slice = Slice { start: None, stop: None, step: 1 };

    /// Those of `n` elements: the first, and how many. What lies outside is left out.
    fn of(&self, n: u64) -> (u64, u64) {
        let clipped = |index: Index| match index {
            Index::FromStart(index) => index.min(n),
            Index::FromEnd(index) => n.saturating_sub(index),
        };
        let first = self.start.map_or(0, clipped);
        let end = self.stop.map_or(n, clipped);
        (first, end.saturating_sub(first).div_ceil(self.step))
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |index: Option<Index>| index.map(|index| index.to_string()).unwrap_or_default();
        write!(f, "{}:{}", shown(self.start), shown(self.stop))?;
        if self.step == 1 { Ok(()) } else { write!(f, ":{}", self.step) }
    }
}

/// A part of an array: slices of its first dimensions and of its last ones; of those between, all.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(Vec<Slice>, Vec<Slice>)", into = "(Vec<Slice>, Vec<Slice>)")]
pub struct Slices {
    first: Vec<Slice>,
    last: Vec<Slice>,
}

impl TryFrom<(Vec<Slice>, Vec<Slice>)> for Slices {
    type Error = Error;
    fn try_from((first, last): (Vec<Slice>, Vec<Slice>)) -> Result<Slices> {
        Slices::new(first, last)
    }
}

impl From<Slices> for (Vec<Slice>, Vec<Slice>) {
    fn from(slices: Slices) -> Self {
        (slices.first, slices.last)
    }
}

impl Slices {
    /// Slices of the first dimensions, slowest first, and of the last ones: those after an ellipsis.
    pub fn new(first: Vec<Slice>, last: Vec<Slice>) -> Result<Slices> {
        let (count, slices) = (first.len() + last.len(), Slices { first, last });
        if count > MAX_NDIM {
            return Err(Error::out_of_bounds(format!(
                "region {slices} has {count} dimensions; at most {MAX_NDIM} are possible"
            )));
        }
        if slices.first.iter().chain(&slices.last).any(|slice| slice.step == 0) {
            return Err(Error::invalid(format!("region {slices}: its step is 0; use 1 for all elements")));
        }
        Ok(slices)
    }

    /// Checks that it names elements of an array of this shape, and none outside.
    pub fn check_in(&self, shape: &[u64]) -> Result<()> {
        let fail = |text: String| Err(Error::out_of_bounds(format!("region {self} {text}")));
        if self.first.len() + self.last.len() > shape.len() {
            return fail(format!("has more dimensions than shape {shape:?}"));
        }
        for (d, slice) in self.along(shape.len()).enumerate() {
            let bounds = [slice.start, slice.stop];
            if let Some(outside) = bounds.into_iter().flatten().find(|index| index.among(shape[d]).is_none())
            {
                return fail(format!("lies outside shape {shape:?}: {outside} in dimension {d}"));
            }
            if shape[d] > 0 && slice.of(shape[d]).1 == 0 {
                return fail(format!("is empty: {slice} in dimension {d}"));
            }
        }
        Ok(())
    }

    /// Its elements in an array of this shape; what lies outside is left out. `None` if there are none.
    pub fn of(&self, shape: &[u64]) -> Option<Selection> {
        if self.first.len() + self.last.len() > shape.len() {
            return None;
        }
        let (mut offset, mut counts, mut step) = (Dims::new(), Dims::new(), Dims::new());
        for (slice, n) in self.along(shape.len()).zip(shape) {
            let (first, count) = slice.of(*n);
            if count == 0 {
                return None;
            }
            offset.push(first);
            counts.push(count);
            step.push(if count == 1 { 1 } else { slice.step });
        }
        Some(Selection { offset, shape: counts, step })
    }

    /// One for each of so many dimensions, which are no fewer than it names.
    fn along(&self, ndim: usize) -> impl Iterator<Item = Slice> {
        let between = ndim.saturating_sub(self.first.len() + self.last.len());
        let all = std::iter::repeat_n(Slice::ALL, between);
        self.first.iter().copied().chain(all).chain(self.last.iter().copied())
    }
}

impl fmt::Display for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |slices: &[Slice]| slices.iter().map(Slice::to_string).collect::<Vec<_>>();
        let mut parts = shown(&self.first);
        if !self.last.is_empty() {
            parts.push("...".into());
            parts.extend(shown(&self.last));
        }
        write!(f, "[{}]", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(start: Option<i64>, stop: Option<i64>, step: u64) -> Slice {
        let index = |index: i64| match index {
            0.. => Index::FromStart(index.unsigned_abs()),
            _ => Index::FromEnd(index.unsigned_abs()),
        };
        Slice { start: start.map(index), stop: stop.map(index), step }
    }

    fn parts(slices: &Slices, shape: &[u64]) -> Option<(Vec<u64>, Vec<u64>, Vec<u64>)> {
        let found = slices.of(shape)?;
        Some((found.offset.to_vec(), found.shape.to_vec(), found.step.to_vec()))
    }

    #[test]
    fn parts_are_those_of_numpy() {
        let plane = Slices::new(vec![Slice::ALL, slice(Some(2), Some(3), 1)], vec![]).unwrap();
        assert_eq!(parts(&plane, &[4, 5, 6]), Some((vec![0, 2, 0], vec![4, 1, 6], vec![1, 1, 1])));
        let last = Slices::new(vec![], vec![slice(Some(-3), None, 2)]).unwrap();
        assert_eq!(parts(&last, &[4, 6]), Some((vec![0, 3], vec![4, 2], vec![1, 2])));
        assert_eq!(last.to_string(), "[..., -3::2]");
        let all = Slices::default();
        assert_eq!(parts(&all, &[]), Some((vec![], vec![], vec![])));
        let coarse = Slices::new(vec![slice(None, None, 4); 2], vec![]).unwrap();
        assert_eq!(parts(&coarse, &[9, 8]), Some((vec![0, 0], vec![3, 2], vec![4, 4])));
        assert_eq!(parts(&coarse, &[9]), None, "of an array of fewer dimensions");
    }

    #[test]
    fn what_lies_outside_is_refused_when_it_is_asked_for_and_left_out_later() {
        let wide = Slices::new(vec![slice(Some(3), Some(9), 1)], vec![]).unwrap();
        assert!(wide.check_in(&[9]).is_ok());
        let text = wide.check_in(&[8]).unwrap_err().text;
        assert!(text.contains("lies outside shape [8]: 9 in dimension 0"), "{text}");
        assert_eq!(parts(&wide, &[8]), Some((vec![3], vec![5], vec![1])));
        assert_eq!(parts(&wide, &[3]), None);
        let back = Slices::new(vec![slice(Some(-9), None, 1)], vec![]).unwrap();
        assert!(back.check_in(&[8]).unwrap_err().text.contains("-9 in dimension 0"));
        assert_eq!(parts(&back, &[8]), Some((vec![0], vec![8], vec![1])));
        let empty = Slices::new(vec![slice(Some(3), Some(3), 1)], vec![]).unwrap();
        assert!(empty.check_in(&[8]).unwrap_err().text.contains("is empty"));
        assert!(empty.check_in(&[0]).is_err(), "3 lies outside");
        assert!(Slices::new(vec![slice(None, None, 0)], vec![]).is_err());
        assert!(Slices::new(vec![Slice::ALL; 5], vec![Slice::ALL; 4]).is_err());
    }
}
