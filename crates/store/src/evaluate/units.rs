//! Elements in boxes of three sizes, one in the other.
//!
//! Whoever has a piece computed with cuts it so: then a box is computed alike by whom it may be, and sums of squares have the same bits.

use forebay_core::region::Boxes;
use forebay_core::selection::Selection;

/// How many elements a thread computes with at a time: as many as take some hundred microseconds.
pub const JOB: u64 = 1 << 20;
/// How many elements are copied at a time that lie elsewhere.
pub const COPIED: u64 = 1 << 18;
/// Of so many elements all questions are answered before the next ones are looked at: they are in the cache then.
pub const CACHED: u64 = 1 << 15;

/// A selection in boxes of at most so many elements, one of these three.
pub fn boxes_of(selection: &Selection, most: u64) -> Vec<Selection> {
    let mut boxes = vec![selection.clone()];
    for size in [JOB, COPIED, CACHED].into_iter().filter(|size| *size >= most) {
        let smaller =
            boxes.iter().flat_map(|all| Boxes::new(&all.shape, size).map(|region| all.part(&region)));
        boxes = smaller.collect();
    }
    boxes
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::region::Region;

    #[test]
    fn boxes_are_the_same_whoever_cuts_first() {
        let whole = |shape: &[u64]| Selection::region(&Region::whole(shape).unwrap());
        for shape in [vec![3 << 20], vec![700, 3000], vec![5, 300, 777], vec![3, 3, 3], vec![2, 0], vec![]] {
            let all = boxes_of(&whole(&shape), CACHED);
            let jobs = boxes_of(&whole(&shape), JOB);
            let copied: Vec<Selection> = jobs.iter().flat_map(|job| boxes_of(job, COPIED)).collect();
            assert_eq!(copied.iter().flat_map(|part| boxes_of(part, CACHED)).collect::<Vec<_>>(), all);
            assert_eq!(all.iter().flat_map(|unit| boxes_of(unit, CACHED)).collect::<Vec<_>>(), all);
            assert_eq!(all.iter().map(Selection::volume).sum::<u64>(), shape.iter().product());
            assert!(
                all.iter().all(|unit| unit.volume() <= CACHED) && jobs.iter().all(|job| job.volume() <= JOB)
            );
        }
    }
}
