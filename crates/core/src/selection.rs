//! Selections: every so many elements of a box.

use crate::region::{Dims, MAX_NDIM, Region};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Every `step[d]`-th element of a box. All three have as many numbers as the array has dimensions; no step is 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "(Dims, Dims, Dims)", into = "(Dims, Dims, Dims)")]
pub struct Selection {
    /// The first element in each dimension.
    pub offset: Dims,
    /// How many elements in each dimension.
    pub shape: Dims,
    /// The distance between them.
    pub step: Dims,
}

impl TryFrom<(Dims, Dims, Dims)> for Selection {
    type Error = Error;

    /// What another process says is checked: lengths, distances, and that the box it spans is possible.
    fn try_from((offset, shape, step): (Dims, Dims, Dims)) -> Result<Selection> {
        let selection = Selection { offset, shape, step };
        let ndim = selection.shape.len();
        let is_possible = ndim <= MAX_NDIM
            && [&selection.offset, &selection.step].into_iter().all(|dims| dims.len() == ndim)
            && !selection.step.contains(&0);
        let span: Option<Dims> =
            is_possible.then(|| (0..ndim).map(|d| selection.extent(d)).collect()).flatten();
        let span = span.and_then(|span| Region::new(&selection.offset, &span).ok());
        match span {
            Some(_) => Ok(selection),
            None => Err(Error::out_of_bounds("a selection that no array has")),
        }
    }
}

impl From<Selection> for (Dims, Dims, Dims) {
    fn from(selection: Selection) -> Self {
        (selection.offset, selection.shape, selection.step)
    }
}

impl Selection {
    /// A whole region.
    pub fn region(region: &Region) -> Selection {
        Selection {
            offset: region.offset().into(),
            shape: region.shape().into(),
            step: region.shape().iter().map(|_| 1).collect(),
        }
    }

    /// How many elements lie in dimension `d` from its first to its last, both among them; `None` beyond 64 bits.
    pub fn extent(&self, d: usize) -> Option<u64> {
        match self.shape[d] {
            0 => Some(0),
            count => (count - 1).checked_mul(self.step[d])?.checked_add(1),
        }
    }

    /// The box that it spans, if it lies in an array of this shape.
    pub fn span_in(&self, shape: &[u64]) -> Option<Region> {
        let mut span = Dims::new();
        for (d, n) in shape.iter().enumerate() {
            let extent = self.extent(d)?;
            self.offset[d].checked_add(extent).filter(|end| end <= n)?;
            span.push(extent);
        }
        Region::new(&self.offset, &span).ok()
    }

    /// The number of its elements, which is known to be possible.
    pub fn volume(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether it has no gaps.
    pub fn is_dense(&self) -> bool {
        self.step.iter().zip(&self.shape).all(|(step, count)| *step == 1 || *count <= 1)
    }

    /// Whether its elements lie side by side, in their order, in a dense row-major array of this shape.
    pub fn is_contiguous_in(&self, shape: &[u64]) -> bool {
        // Behind the first dimension of which it takes more than one element it takes all.
        let first = self.shape.iter().position(|count| *count != 1).unwrap_or(self.shape.len());
        let all = |d: usize| self.shape[d] == shape[d];
        self.is_dense() && (first + 1..self.shape.len()).all(all)
    }

    /// How many elements of a dense row-major array of this shape lie before its first one.
    pub fn first_in(&self, shape: &[u64]) -> u64 {
        self.offset.iter().zip(shape).fold(0, |before, (offset, extent)| before * extent + offset)
    }

    /// Which of its elements lie in a box: as a region of the selection.
    pub fn within(&self, region: &Region) -> Option<Region> {
        let (mut offset, mut shape) = (Dims::new(), Dims::new());
        for d in 0..self.shape.len() {
            let first = region.offset()[d].saturating_sub(self.offset[d]).div_ceil(self.step[d]);
            let end = region.end(d).saturating_sub(self.offset[d]).div_ceil(self.step[d]).min(self.shape[d]);
            if first >= end {
                return None;
            }
            offset.push(first);
            shape.push(end - first);
        }
        Region::new(&offset, &shape).ok()
    }

    /// Those of its elements that lie in a box.
    pub fn cut_to(&self, region: &Region) -> Option<Selection> {
        Some(self.part(&self.within(region)?))
    }

    /// Some of its elements: a region of it, as [`Selection::within`] gives it.
    pub fn part(&self, part: &Region) -> Selection {
        let place = |d: usize| self.offset[d] + part.offset()[d] * self.step[d];
        // Of a single element no distance is known.
        let step = |d: usize| if part.shape()[d] == 1 { 1 } else { self.step[d] };
        let ndim = self.shape.len();
        Selection {
            offset: (0..ndim).map(place).collect(),
            shape: part.shape().into(),
            step: (0..ndim).map(step).collect(),
        }
    }

    /// Whether every element of another one, which has some, is one of its own.
    pub fn holds(&self, other: &Selection) -> bool {
        self.place_of(other).is_some()
    }

    /// Where the elements of another one are among its own: as a selection of its indices. `None` if it lacks some.
    pub fn place_of(&self, other: &Selection) -> Option<Selection> {
        let (mut offset, mut step) = (Dims::new(), Dims::new());
        for d in 0..self.shape.len() {
            let distance = other.offset[d].checked_sub(self.offset[d])?;
            let apart = if other.shape[d] > 1 { other.step[d] } else { self.step[d] };
            if !distance.is_multiple_of(self.step[d]) || !apart.is_multiple_of(self.step[d]) {
                return None;
            }
            let (first, apart) = (distance / self.step[d], apart / self.step[d]);
            let last = other.shape[d].saturating_sub(1).checked_mul(apart)?.checked_add(first)?;
            if last >= self.shape[d] {
                return None;
            }
            offset.push(first);
            step.push(apart);
        }
        Some(Selection { offset, shape: other.shape.clone(), step })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for d in 0..self.shape.len() {
            let (first, step) = (self.offset[d], self.step[d]);
            let end = self.extent(d).and_then(|extent| first.checked_add(extent)).unwrap_or(u64::MAX);
            write!(f, "{}{first}:{end}", if d > 0 { ", " } else { "" })?;
            if step != 1 && self.shape[d] > 1 {
                write!(f, ":{step}")?;
            }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn dims(values: &[u64]) -> Dims {
        values.into()
    }

    #[test]
    fn strides_meet_boxes_where_they_should() {
        let selection = Selection { offset: dims(&[1]), shape: dims(&[4]), step: dims(&[3]) };
        // Elements 1, 4, 7, 10.
        let within = |offset: u64, shape: u64| {
            let found = selection.within(&Region::new(&[offset], &[shape]).unwrap());
            found.map(|region| (region.offset()[0], region.shape()[0]))
        };
        assert_eq!(within(0, 5), Some((0, 2)));
        assert_eq!(within(5, 2), None);
        assert_eq!(within(5, 3), Some((2, 1)));
        assert_eq!(within(10, 90), Some((3, 1)));
        assert_eq!(within(11, 90), None);
    }

    #[test]
    fn planes_of_the_slowest_dimension_lie_side_by_side() {
        let of =
            |offset: [u64; 3], shape: [u64; 3]| Selection::region(&Region::new(&offset, &shape).unwrap());
        for (selection, is, first) in [
            (of([2, 0, 0], [3, 4, 5]), true, 40),
            (of([2, 1, 0], [1, 3, 5]), true, 45),
            (of([2, 1, 1], [1, 1, 3]), true, 46),
            (of([2, 0, 0], [2, 3, 5]), false, 40),
            (of([0, 0, 2], [6, 4, 1]), false, 2),
        ] {
            assert_eq!(selection.is_contiguous_in(&[6, 4, 5]), is, "{selection}");
            assert_eq!(selection.first_in(&[6, 4, 5]), first);
        }
        let apart = Selection { offset: dims(&[0]), shape: dims(&[3]), step: dims(&[2]) };
        assert!(!apart.is_contiguous_in(&[5]));
    }

    fn some() -> impl Strategy<Value = Selection> {
        let one = || (0u64..8, 1u64..5, 1u64..5);
        (one(), one()).prop_map(|(a, b)| Selection {
            offset: dims(&[a.0, b.0]),
            shape: dims(&[a.1, b.1]),
            step: dims(&[a.2, b.2]),
        })
    }

    fn elements(of: &Selection) -> BTreeSet<(u64, u64)> {
        let along = |d: usize| (0..of.shape[d]).map(move |i| of.offset[d] + i * of.step[d]);
        along(0).flat_map(|i| along(1).map(move |j| (i, j))).collect()
    }

    proptest! {
        #[test]
        fn a_cut_has_what_lies_in_the_box(a in some(), (i, j, m, n) in (0u64..9, 0u64..9, 0u64..9, 0u64..9)) {
            let region = Region::new(&[i, j], &[m, n]).unwrap();
            let inside: BTreeSet<_> =
                elements(&a).into_iter().filter(|(x, y)| (i..i + m).contains(x) && (j..j + n).contains(y)).collect();
            let cut = a.cut_to(&region);
            prop_assert_eq!(cut.as_ref().map(elements).unwrap_or_default(), inside);
            prop_assert!(cut.is_none_or(|cut| a.holds(&cut)));
        }

        #[test]
        fn what_is_held_is_found_again(a in some(), b in some()) {
            let (ours, theirs) = (elements(&a), elements(&b));
            prop_assert_eq!(a.holds(&b), theirs.is_subset(&ours));
            if let Some(place) = a.place_of(&b) {
                let of_index = |(i, j): (u64, u64)| (a.offset[0] + i * a.step[0], a.offset[1] + j * a.step[1]);
                let found: BTreeSet<_> = elements(&place).into_iter().map(of_index).collect();
                prop_assert_eq!(found, theirs);
            }
        }
    }
}
