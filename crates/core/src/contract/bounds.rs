//! Where blocks lie in space.

use super::{Association, Field};
use crate::selection::Selection;
use crate::{Error, Result};

/// A box in the coordinates of a field: the lowest and the highest place in each dimension.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bounds {
    /// The lowest.
    pub low: Vec<f64>,
    /// The highest.
    pub high: Vec<f64>,
}

impl Field {
    /// The box in space that these elements of a level fill, and so many more on each side (ghosts). A vertex is where it is; a
    /// cell reaches half the spacing to each side of its place, and those of a finer level share its edges. The origin is where
    /// the first element of level 0 lies. `ErrorKind::Invalid` if the producer did not say the spacing, or, above level 0, the
    /// refinement.
    pub fn bounds_of(&self, elements: &Selection, level: u32, ghosts: (&[u64], &[u64])) -> Result<Bounds> {
        let fail = |text: String| Err(Error::invalid(format!("field '{}': {text}", self.name)));
        if self.spacing.is_empty() {
            return fail("its producer did not say how far apart its elements lie (`spacing`)".into());
        }
        if level > 0 && self.refinement.is_empty() {
            return fail(format!("its producer did not say how much finer level {level} is (`refinement`)"));
        }
        let ndim = self.spacing.len();
        let lengths = [elements.offset.len(), elements.shape.len(), elements.step.len()];
        if lengths != [ndim; 3] || [ghosts.0.len(), ghosts.1.len()].iter().any(|n| *n != ndim && *n != 0) {
            return fail(format!("a box of {} dimensions in a field of {ndim}", elements.shape.len()));
        }
        let mut bounds = Bounds::default();
        for (d, coarse) in self.spacing.iter().enumerate() {
            let finer =
                self.refinement.get(d).map_or(1.0, |factor| f64::from(*factor).powf(f64::from(level)));
            let (origin, spacing) = (self.origin.get(d).copied().unwrap_or(0.0), coarse / finer);
            let before = ghosts.0.get(d).copied().unwrap_or(0) as f64;
            let after = ghosts.1.get(d).copied().unwrap_or(0) as f64;
            let first = elements.offset[d] as f64 - before;
            let count = elements.shape[d];
            let last =
                elements.offset[d] as f64 + count.saturating_sub(1) as f64 * elements.step[d] as f64 + after;
            let (low, high) = match self.association {
                Association::Vertex => (origin + first * spacing, origin + last * spacing),
                Association::Cell => {
                    let edge = origin - coarse / 2.0;
                    let end = if count == 0 { last } else { last + 1.0 };
                    (edge + first * spacing, edge + end * spacing)
                }
            };
            bounds.low.push(low.min(high));
            bounds.high.push(low.max(high));
        }
        Ok(bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    fn field(association: Association) -> Field {
        Field {
            association,
            spacing: vec![0.5, 2.0],
            origin: vec![1.0, -1.0],
            refinement: vec![2, 4],
            ..Field::new("U", Dtype::F64, Some(&[8, 8]), 2)
        }
    }

    fn elements(offset: [u64; 2], shape: [u64; 2], step: [u64; 2]) -> Selection {
        Selection { offset: offset[..].into(), shape: shape[..].into(), step: step[..].into() }
    }

    fn of(association: Association, elements: &Selection, level: u32, ghosts: u64) -> (Vec<f64>, Vec<f64>) {
        let widths = [ghosts; 2];
        let bounds = field(association).bounds_of(elements, level, (&widths, &widths)).unwrap();
        (bounds.low, bounds.high)
    }

    #[test]
    fn cells_reach_half_the_spacing_further_than_vertices() {
        let block = elements([2, 0], [3, 4], [1, 1]);
        assert_eq!(of(Association::Vertex, &block, 0, 0), (vec![2.0, -1.0], vec![3.0, 5.0]));
        assert_eq!(of(Association::Cell, &block, 0, 0), (vec![1.75, -2.0], vec![3.25, 6.0]));
        assert_eq!(of(Association::Cell, &block, 0, 1), (vec![1.25, -4.0], vec![3.75, 8.0]));
    }

    #[test]
    fn finer_cells_share_the_edges_of_those_below() {
        let coarse = of(Association::Cell, &elements([1, 1], [2, 1], [1, 1]), 0, 0);
        assert_eq!(of(Association::Cell, &elements([2, 4], [4, 4], [1, 1]), 1, 0), coarse);
        assert_eq!(of(Association::Cell, &elements([4, 16], [8, 16], [1, 1]), 2, 0), coarse);
    }

    #[test]
    fn elements_that_lie_apart_reach_from_the_first_to_the_last() {
        let apart = elements([0, 1], [3, 2], [2, 3]);
        assert_eq!(of(Association::Vertex, &apart, 0, 0), (vec![1.0, 1.0], vec![3.0, 7.0]));
        assert_eq!(of(Association::Cell, &elements([3, 3], [0, 1], [1, 1]), 0, 0).0[0], 2.25);
    }

    #[test]
    fn what_was_not_said_is_an_error() {
        let all = elements([0, 0], [8, 8], [1, 1]);
        let mut unsaid = field(Association::Cell);
        unsaid.refinement.clear();
        let error = unsaid.bounds_of(&all, 1, (&[], &[])).unwrap_err();
        assert!(error.text.contains("how much finer level 1"), "{error}");
        unsaid.spacing.clear();
        assert!(unsaid.bounds_of(&all, 0, (&[], &[])).unwrap_err().text.contains("`spacing`"));
        let flat = Selection { offset: [0][..].into(), shape: [1][..].into(), step: [1][..].into() };
        assert!(field(Association::Cell).bounds_of(&flat, 0, (&[], &[])).is_err());
    }
}
