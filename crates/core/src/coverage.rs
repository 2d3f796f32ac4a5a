//! Coverage: whether blocks fill a region.

use crate::region::Region;

/// The first part of `wanted` that none of `blocks` fills, or `None` if all of it is filled.
///
/// Cost: blocks times pieces left over; disjoint blocks that fill the region leave few pieces.
pub fn missing<'a>(wanted: &Region, blocks: impl Iterator<Item = &'a Region>) -> Option<Region> {
    let mut left = if wanted.is_empty() { Vec::new() } else { vec![wanted.clone()] };
    for block in blocks {
        if left.is_empty() {
            break;
        }
        let mut next = Vec::with_capacity(left.len());
        for piece in left {
            match piece.intersect(block) {
                None => next.push(piece),
                Some(_) => next.extend(piece.subtract(block)),
            }
        }
        left = next;
    }
    left.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hole_is_found() {
        let r = |o: [u64; 2], s: [u64; 2]| Region::new(&o, &s).unwrap();
        let blocks = [r([0, 0], [2, 7]), r([2, 0], [3, 4]), r([2, 4], [2, 3])];
        assert_eq!(missing(&r([0, 0], [4, 7]), blocks.iter()), None);
        assert_eq!(missing(&r([0, 0], [5, 7]), blocks.iter()), Some(r([4, 4], [1, 3])));
        assert_eq!(missing(&r([9, 9], [0, 3]), [].iter()), None);
    }
}
