//! Which elements of a field are read: every so many of a box.

use forebay_core::contract::Field;
use forebay_core::region::{Dims, Region};
use forebay_core::{Error, Result};

/// Every `step[d]`-th element of a box of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The first element in each dimension.
    pub offset: Dims,
    /// How many elements in each dimension.
    pub shape: Dims,
    /// The distance between them.
    pub step: Dims,
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

    /// Checks it against a field's shape; returns the box that it spans.
    pub fn span(&self, field: &Field) -> Result<Region> {
        let fail = |text: String| Err(Error::out_of_bounds(format!("field '{}': {text}", field.name)));
        let Some(global) = &field.shape else {
            return fail(
                "its blocks have no place in a global array; read them one by one with blocks()".into(),
            );
        };
        let n = global.len();
        if self.offset.len() != n || self.shape.len() != n || self.step.len() != n {
            return fail(format!("a selection of {} dimensions from a field of {n}", self.shape.len()));
        }
        let mut span = Dims::new();
        for d in 0..n {
            if self.step[d] == 0 {
                return fail("a selection of every 0 elements; use 1 for all".into());
            }
            let extent = match self.shape[d] {
                0 => Some(0),
                count => (count - 1).checked_mul(self.step[d]).and_then(|extent| extent.checked_add(1)),
            };
            let inside = extent
                .and_then(|extent| self.offset[d].checked_add(extent))
                .is_some_and(|end| end <= global[d]);
            let Some(extent) = extent.filter(|_| inside) else {
                return fail(format!(
                    "a selection from {} of {} elements every {} reaches outside the shape {:?} in dimension {d}",
                    self.offset[d],
                    self.shape[d],
                    self.step[d],
                    &global[..]
                ));
            };
            span.push(extent);
        }
        Region::new(&self.offset, &span)
    }

    /// Which of the selected elements lie in a box: as a region of the selection.
    pub(super) fn within(&self, interior: &Region) -> Option<Region> {
        let (mut offset, mut shape) = (Dims::new(), Dims::new());
        for d in 0..self.shape.len() {
            let first = interior.offset()[d].saturating_sub(self.offset[d]).div_ceil(self.step[d]);
            let end =
                interior.end(d).saturating_sub(self.offset[d]).div_ceil(self.step[d]).min(self.shape[d]);
            if first >= end {
                return None;
            }
            offset.push(first);
            shape.push(end - first);
        }
        Region::new(&offset, &shape).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_meet_boxes_where_they_should() {
        let selection = Selection { offset: [1][..].into(), shape: [4][..].into(), step: [3][..].into() };
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
}
