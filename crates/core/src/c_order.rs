//! Elements of an array in C order: the index of one, and consecutive ones as boxes.

use crate::region::{Dims, Region};
use std::cmp::Ordering;

/// The index of the element that has so many before it.
pub fn index_of(mut before: u64, shape: &[u64]) -> Dims {
    let mut index: Dims = shape.iter().map(|_| 0).collect();
    for (index, extent) in index.iter_mut().zip(shape).rev() {
        *index = before % (*extent).max(1);
        before /= (*extent).max(1);
    }
    index
}

/// Elements from `first` to before `end` of an array of this shape, as boxes in their order: at most two for each dimension, less one.
pub fn boxes_of(shape: &[u64], mut first: u64, end: u64) -> Vec<Region> {
    let mut boxes = Vec::new();
    let end = end.min(shape.iter().product());
    while first < end {
        let offset = index_of(first, shape);
        // Of the dimension that is cut whole indices are taken, and all elements behind it.
        let (mut cut, mut inner) = (shape.len().saturating_sub(1), 1);
        while cut > 0 && offset[cut] == 0 && inner * shape[cut] <= end - first {
            inner *= shape[cut];
            cut -= 1;
        }
        let Some(extent) = shape.get(cut) else { return Region::whole(shape).into_iter().collect() };
        let count = ((end - first) / inner).min(extent - offset[cut]);
        let extents = (0..shape.len()).map(|d| match d.cmp(&cut) {
            Ordering::Less => 1,
            Ordering::Equal => count,
            Ordering::Greater => shape[d],
        });
        boxes.extend(Region::new(&offset, &extents.collect::<Dims>()).ok());
        first += count * inner;
    }
    boxes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_scalar_is_one_box() {
        assert_eq!(boxes_of(&[], 0, 9), [Region::whole(&[]).unwrap()]);
        assert!(boxes_of(&[3, 0], 0, 9).is_empty() && boxes_of(&[3, 2], 4, 4).is_empty());
        assert_eq!(index_of(23, &[2, 3, 4])[..], [1, 2, 3]);
    }

    proptest! {
        #[test]
        fn boxes_are_few_and_hold_each_element_once(
            shape in prop::collection::vec(1u64..6, 1..5), first in 0u64..700, count in 0u64..700
        ) {
            let end = (first + count).min(shape.iter().product());
            let boxes = boxes_of(&shape, first, first + count);
            prop_assert!(boxes.len() < 2 * shape.len());
            let mut at = first;
            for piece in boxes {
                let place = |index: &[u64]| index.iter().zip(&shape).fold(0, |at, (index, n)| at * n + index);
                prop_assert_eq!(place(piece.offset()), at);
                let last: Vec<u64> = (0..piece.ndim()).map(|d| piece.end(d) - 1).collect();
                at += piece.volume();
                prop_assert_eq!(place(&last), at - 1, "its elements are consecutive");
            }
            prop_assert_eq!(at, end.max(first));
        }
    }
}
