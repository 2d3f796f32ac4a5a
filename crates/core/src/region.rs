//! Half-open boxes of up to [`MAX_NDIM`] dimensions and their algebra.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;

/// The most dimensions an array may have.
pub const MAX_NDIM: usize = 8;

/// One number for each dimension, slowest first.
pub type Dims = SmallVec<[u64; 4]>;

/// A half-open box: in dimension `d` it holds the indices `offset[d] .. offset[d] + shape[d]`.
///
/// A region of zero dimensions holds one element (a scalar). Sums never overflow: that is checked when
/// it is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "(Dims, Dims)", into = "(Dims, Dims)")]
pub struct Region {
    offset: Dims,
    shape: Dims,
}

impl TryFrom<(Dims, Dims)> for Region {
    type Error = Error;
    fn try_from((offset, shape): (Dims, Dims)) -> Result<Self> {
        Region::new(&offset, &shape)
    }
}

impl From<Region> for (Dims, Dims) {
    fn from(region: Region) -> Self {
        (region.offset, region.shape)
    }
}

impl Region {
    /// A region from its offset and shape, which have the same number of dimensions.
    pub fn new(offset: &[u64], shape: &[u64]) -> Result<Region> {
        if offset.len() != shape.len() || shape.len() > MAX_NDIM {
            return Err(Error::out_of_bounds(format!(
                "a region needs as many offsets as extents, at most {MAX_NDIM}; got {} and {}",
                offset.len(),
                shape.len()
            )));
        }
        if offset.iter().zip(shape).any(|(o, n)| o.checked_add(*n).is_none()) {
            return Err(Error::out_of_bounds(format!("offset {offset:?} + shape {shape:?} exceeds 64 bits")));
        }
        let elements = shape.iter().try_fold(1u64, |product, n| product.checked_mul(*n));
        if elements.is_none() && !shape.contains(&0) {
            return Err(Error::out_of_bounds(format!("shape {shape:?} has more than 2^64 elements")));
        }
        Ok(Region { offset: offset.into(), shape: shape.into() })
    }

    /// A region whose numbers were checked when an extent or another region was made.
    pub(crate) fn from_checked(offset: Dims, shape: Dims) -> Region {
        Region { offset, shape }
    }

    /// The region that starts at zero and has this shape.
    pub fn whole(shape: &[u64]) -> Result<Region> {
        Region::new(&[0; MAX_NDIM][..shape.len().min(MAX_NDIM)], shape)
    }

    /// The first index in each dimension.
    pub fn offset(&self) -> &[u64] {
        &self.offset
    }

    /// The extent in each dimension.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// One past the last index in dimension `d`.
    pub fn end(&self, d: usize) -> u64 {
        self.offset[d] + self.shape[d]
    }

    /// The number of elements.
    pub fn volume(&self) -> u64 {
        if self.is_empty() { 0 } else { self.shape.iter().product() }
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Whether every element of `other` is in it. Both have the same number of dimensions.
    pub fn contains(&self, other: &Region) -> bool {
        self.ndim() == other.ndim()
            && (other.is_empty()
                || (0..self.ndim()).all(|d| self.offset[d] <= other.offset[d] && other.end(d) <= self.end(d)))
    }

    /// What both hold, or `None` if that is nothing.
    pub fn intersect(&self, other: &Region) -> Option<Region> {
        if self.ndim() != other.ndim() {
            return None;
        }
        let mut offset = Dims::new();
        let mut shape = Dims::new();
        for d in 0..self.ndim() {
            let low = self.offset[d].max(other.offset[d]);
            let high = self.end(d).min(other.end(d));
            if low >= high {
                return None;
            }
            offset.push(low);
            shape.push(high - low);
        }
        Some(Region { offset, shape })
    }

    /// What it holds and `other` does not, as disjoint boxes: at most two for each dimension.
    pub fn subtract(&self, other: &Region) -> Vec<Region> {
        if self.is_empty() {
            return Vec::new();
        }
        let Some(common) = self.intersect(other) else { return vec![self.clone()] };
        let mut rest = self.clone();
        let mut pieces = Vec::new();
        for d in 0..self.ndim() {
            if rest.offset[d] < common.offset[d] {
                let mut below = rest.clone();
                below.shape[d] = common.offset[d] - rest.offset[d];
                pieces.push(below);
            }
            if common.end(d) < rest.end(d) {
                let mut above = rest.clone();
                above.offset[d] = common.end(d);
                above.shape[d] = rest.end(d) - common.end(d);
                pieces.push(above);
            }
            rest.offset[d] = common.offset[d];
            rest.shape[d] = common.shape[d];
        }
        pieces
    }

    /// The same box with indices counted from `origin`, which is not above its offset.
    pub fn relative_to(&self, origin: &[u64]) -> Region {
        let offset = self.offset.iter().zip(origin).map(|(o, base)| o - base).collect();
        Region { offset, shape: self.shape.clone() }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for d in 0..self.ndim() {
            if d > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{}:{}", self.offset[d], self.end(d))?;
        }
        f.write_str("]")
    }
}

/// Cuts a shape, in row-major order, into boxes of at most so many elements. A box has all of the dimensions behind the one that is
/// cut, and one index of those before it.
#[derive(Debug)]
pub struct Boxes {
    shape: Dims,
    /// The dimension that is cut into runs; those before it are taken one index at a time.
    cut: usize,
    /// How many indices of it make a run.
    run: u64,
    /// Where the next box begins; `None` at the end.
    next: Option<Dims>,
}

impl Boxes {
    /// Of an array of this shape. Without elements there is no box; without dimensions there is one.
    pub fn new(shape: &[u64], most: u64) -> Boxes {
        let mut cut = shape.len().saturating_sub(1);
        let mut inner = 1u64;
        while cut > 0 && inner.checked_mul(shape[cut]).is_some_and(|inner| inner <= most) {
            inner *= shape[cut];
            cut -= 1;
        }
        let next = (!shape.contains(&0)).then(|| shape.iter().map(|_| 0).collect());
        Boxes { shape: shape.into(), cut, run: (most / inner.max(1)).max(1), next }
    }
}

impl Iterator for Boxes {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        let first = self.next.take()?;
        let Some(extent) = self.shape.get(self.cut).copied() else { return Region::whole(&[]).ok() };
        let mut shape = self.shape.clone();
        shape[..self.cut].fill(1);
        shape[self.cut] = self.run.min(extent - first[self.cut]);
        let mut after = first.clone();
        after[self.cut] += shape[self.cut];
        for d in (1..=self.cut).rev() {
            if after[d] == self.shape[d] {
                after[d] = 0;
                after[d - 1] += 1;
            }
        }
        self.next = (after[0] < self.shape[0]).then_some(after);
        Region::new(&first, &shape).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(ndim: usize) -> impl Strategy<Value = Region> {
        (prop::collection::vec(0u64..6, ndim), prop::collection::vec(0u64..6, ndim))
            .prop_map(|(offset, shape)| Region::new(&offset, &shape).unwrap())
    }

    fn points(r: &Region) -> std::collections::BTreeSet<Vec<u64>> {
        let mut all = vec![vec![]];
        for d in 0..r.ndim() {
            all = all
                .into_iter()
                .flat_map(|p: Vec<u64>| {
                    (r.offset()[d]..r.end(d)).map(move |i| {
                        let mut q = p.clone();
                        q.push(i);
                        q
                    })
                })
                .collect();
        }
        all.into_iter().collect()
    }

    #[test]
    fn boxes_are_small_and_in_order() {
        for (shape, most) in [
            (vec![3, 5, 7], 1 << 17),
            (vec![2, 1 << 20, 3], 1 << 17),
            (vec![3 << 20], 1 << 20),
            (vec![2, 2, 700_000], 1 << 18),
            (vec![1, 1, 1, 1 << 18, 5], 1 << 16),
            (vec![1 << 20, 1], 1 << 19),
            (vec![], 4),
        ] {
            let volume: u64 = shape.iter().product();
            let mut at = 0;
            for piece in Boxes::new(&shape, most) {
                let first = (0..shape.len()).fold(0, |at, d| at * shape[d] + piece.offset()[d]);
                assert_eq!(first, at, "{shape:?}: {piece} does not follow");
                assert!(piece.volume() <= most, "{shape:?}: {piece}");
                at += piece.volume();
            }
            assert_eq!(at, volume);
        }
        assert_eq!(Boxes::new(&[3, 0], 4).count(), 0);
    }

    proptest! {
        #[test]
        fn intersect_and_subtract_partition((a, b) in (1usize..4).prop_flat_map(|n| (region(n), region(n)))) {
            let common = a.intersect(&b).map(|r| points(&r)).unwrap_or_default();
            let expected: std::collections::BTreeSet<_> = points(&a).intersection(&points(&b)).cloned().collect();
            prop_assert_eq!(&common, &expected);
            let rest = a.subtract(&b);
            let mut seen = common;
            for piece in &rest {
                for point in points(piece) {
                    prop_assert!(seen.insert(point), "pieces are disjoint");
                }
            }
            prop_assert_eq!(seen, points(&a));
        }

        #[test]
        fn volume_counts_points(a in (0usize..4).prop_flat_map(region)) {
            prop_assert_eq!(a.volume() as usize, points(&a).len());
        }
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Region::new(&[u64::MAX], &[1]).is_err());
        assert!(Region::new(&[0, 0], &[1 << 40, 1 << 40]).is_err());
        assert!(Region::new(&[0], &[1, 2]).is_err());
        assert!(Region::new(&[0; 9], &[1; 9]).is_err());
        assert!(Region::new(&[0, 0], &[0, u64::MAX]).is_ok());
    }
}
