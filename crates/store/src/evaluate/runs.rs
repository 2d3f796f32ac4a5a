//! The elements of a window as runs that lie side by side in all of its arrays, and runs as chunks.

use crate::evaluate::window::FieldArray;
use forebay_core::region::{Dims, MAX_NDIM};
use forebay_core::selection::Selection;

/// The elements of a selection, one run after the other, in C order.
#[derive(Debug)]
pub(super) struct Runs {
    part: Selection,
    /// How many of the first dimensions count the runs; those behind them lie in one.
    outer: usize,
    /// Elements of a run.
    length: u64,
    /// How far the elements of a run lie from each other.
    pub(super) step: u64,
    /// Which run comes next, and which of its elements.
    at: [u64; MAX_NDIM],
    within: u64,
    is_done: bool,
}

/// Elements that lie side by side.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    /// The index of the first element of its run.
    pub(super) start: Dims,
    /// How many elements of the run lie before it.
    pub(super) skip: u64,
    /// How many it has.
    pub(super) count: usize,
}

impl Runs {
    /// Of a selection of elements that all of these arrays hold.
    pub(super) fn new<'a>(
        part: &Selection,
        arrays: impl Iterator<Item = &'a FieldArray<'a>> + Clone,
    ) -> Runs {
        let ndim = part.shape.len();
        let is_dense = |d: usize| part.step[d] == 1;
        let takes_all = |d: usize| is_dense(d) && arrays.clone().all(|array| array.shape[d] == part.shape[d]);
        // Dimensions of which all arrays have no more elements than are taken lie side by side with the one before.
        let mut outer = ndim.saturating_sub(1);
        while outer > 0 && takes_all(outer) && is_dense(outer - 1) {
            outer -= 1;
        }
        let length = part.shape[outer..].iter().product();
        let step = if outer + 1 == ndim { part.step[outer] } else { 1 };
        let is_done = part.volume() == 0;
        Runs { part: part.clone(), outer, length, step, at: [0; MAX_NDIM], within: 0, is_done }
    }

    /// How many elements lie side by side.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Fills a chunk of at most so many elements with segments of the next ones; how many elements they have, none behind the last.
    pub(super) fn next_chunk(&mut self, most: usize, segments: &mut Vec<Segment>) -> usize {
        segments.clear();
        let mut filled = 0;
        while filled < most && !self.is_done {
            let count = (self.length - self.within).min((most - filled) as u64) as usize;
            segments.push(Segment { start: self.start(), skip: self.within, count });
            filled += count;
            self.within += count as u64;
            if self.within == self.length {
                self.next_run();
            }
        }
        filled
    }

    fn start(&self) -> Dims {
        let ndim = self.part.shape.len();
        (0..ndim)
            .map(|d| self.part.offset[d] + if d < self.outer { self.at[d] * self.part.step[d] } else { 0 })
            .collect()
    }

    fn next_run(&mut self) {
        self.within = 0;
        let next = (0..self.outer).rev().find(|d| self.at[*d] + 1 < self.part.shape[*d]);
        let Some(d) = next else {
            self.is_done = true;
            return;
        };
        self.at[d] += 1;
        self.at[d + 1..self.outer].fill(0);
    }

    /// The index of an element of a chunk, by its place there.
    pub(super) fn index_of(&self, segments: &[Segment], place: usize) -> Dims {
        let mut before = 0;
        for segment in segments {
            if place < before + segment.count {
                return self.index_in(segment, (place - before) as u64);
            }
            before += segment.count;
        }
        self.part.offset.clone()
    }

    fn index_in(&self, segment: &Segment, place: u64) -> Dims {
        let (mut index, mut left) = (segment.start.clone(), segment.skip + place);
        for d in (self.outer..index.len()).rev() {
            // Of the first dimension of a run all that is left.
            let n = if d == self.outer { u64::MAX } else { self.part.shape[d] };
            index[d] += left % n * self.part.step[d];
            left /= n;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::CHUNK;
    use forebay_core::dtype::Dtype;

    fn selection(offset: &[u64], shape: &[u64], step: &[u64]) -> Selection {
        Selection { offset: offset.into(), shape: shape.into(), step: step.into() }
    }

    #[test]
    fn every_element_comes_once_in_c_order() {
        for (part, stored, origin, runs) in [
            (selection(&[0, 0, 0], &[3, 4, 5], &[1, 1, 1]), [3, 4, 5], [0, 0, 0], 1),
            (selection(&[4, 0, 0], &[2, 4, 5], &[1, 1, 1]), [3, 4, 5], [3, 0, 0], 1),
            (selection(&[0, 1, 0], &[3, 2, 5], &[1, 1, 1]), [3, 4, 5], [0, 0, 0], 3),
            (selection(&[0, 0, 1], &[3, 4, 2], &[1, 1, 2]), [3, 4, 5], [0, 0, 0], 12),
            (selection(&[0, 0, 0], &[2, 4, 5], &[2, 1, 1]), [3, 4, 5], [0, 0, 0], 2),
            (selection(&[0, 0, 0], &[3, 0, 5], &[1, 1, 1]), [3, 4, 5], [0, 0, 0], 0),
        ] {
            let mut at = [0i64; MAX_NDIM];
            at[..3].copy_from_slice(&origin);
            let array =
                FieldArray { bytes: &[], dtype: Dtype::U8, origin: at, shape: stored.as_slice().into() };
            let mut all = Runs::new(&part, std::iter::once(&array));
            let (mut segments, mut found, mut count) = (Vec::new(), Vec::new(), 0);
            loop {
                let filled = all.next_chunk(CHUNK, &mut segments);
                if filled == 0 {
                    break;
                }
                count += segments.len();
                found.extend((0..filled).map(|place| all.index_of(&segments, place).to_vec()));
            }
            let mut expected = Vec::new();
            for z in 0..part.shape[0] {
                for y in 0..part.shape[1] {
                    for x in 0..part.shape[2] {
                        let of = |d: usize, i: u64| part.offset[d] + i * part.step[d];
                        expected.push(vec![of(0, z), of(1, y), of(2, x)]);
                    }
                }
            }
            assert_eq!((found, count), (expected, runs));
        }
    }

    #[test]
    fn long_runs_are_cut_and_short_ones_joined() {
        let array = |shape: &[u64]| FieldArray {
            bytes: &[],
            dtype: Dtype::U8,
            origin: [0; MAX_NDIM],
            shape: shape.into(),
        };
        let long = array(&[2500]);
        let mut runs = Runs::new(&selection(&[0], &[2500], &[1]), std::iter::once(&long));
        let mut segments = Vec::new();
        let counts = [0; 4].map(|_| runs.next_chunk(CHUNK, &mut segments));
        assert_eq!(counts, [CHUNK, CHUNK, 2500 - 2 * CHUNK, 0]);
        let short = array(&[400, 10]);
        let mut runs = Runs::new(&selection(&[0, 0], &[400, 7], &[1, 1]), std::iter::once(&short));
        assert_eq!((runs.next_chunk(CHUNK, &mut segments), segments.len()), (CHUNK, CHUNK.div_ceil(7)));
        // A scalar has one.
        let scalar = array(&[]);
        let mut runs = Runs::new(&selection(&[], &[], &[]), std::iter::once(&scalar));
        assert_eq!((runs.next_chunk(CHUNK, &mut segments), runs.next_chunk(CHUNK, &mut Vec::new())), (1, 0));
    }
}
