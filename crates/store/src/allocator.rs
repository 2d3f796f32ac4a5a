//! The offset allocator: which ranges of an arena are free.
//!
//! Best fit, lowest address first among equals. The untouched tail of an arena is its largest hole, so
//! pages that were touched before are used again before fresh ones.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges of an address space that starts at 0.
#[derive(Debug, Clone)]
pub struct Allocator {
    by_start: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
}

impl Allocator {
    /// All of `0..size` is free.
    pub fn new(size: u64) -> Allocator {
        let mut allocator = Allocator { by_start: BTreeMap::new(), by_length: BTreeSet::new() };
        allocator.add(0, size);
        allocator
    }

    fn add(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.by_start.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    fn take(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }

    /// Takes `length` bytes (not 0) and returns where they start.
    pub fn allocate(&mut self, length: u64) -> Option<u64> {
        let (hole, start) = self.by_length.range((length.max(1), 0)..).next().copied()?;
        self.take(start, hole);
        self.add(start + length, hole - length);
        Some(start)
    }

    /// Takes this very range; `false` if part of it is not free.
    pub fn allocate_at(&mut self, start: u64, length: u64) -> bool {
        let hole = self.by_start.range(..=start).next_back().map(|(s, n)| (*s, *n));
        let end = start.saturating_add(length);
        let Some((hole, size)) = hole.filter(|(hole, size)| length > 0 && end <= hole + size) else {
            return false;
        };
        self.take(hole, size);
        self.add(hole, start - hole);
        self.add(end, hole + size - end);
        true
    }

    /// Gives a range back. It must have been allocated.
    pub fn free(&mut self, start: u64, length: u64) {
        let (mut start, mut length) = (start, length);
        if let Some((s, n)) = self.by_start.range(..start).next_back().map(|(s, n)| (*s, *n))
            && s + n == start
        {
            self.take(s, n);
            (start, length) = (s, n + length);
        }
        if let Some(n) = self.by_start.get(&(start + length)).copied() {
            self.take(start + length, n);
            length += n;
        }
        self.add(start, length);
    }

    /// The free ranges, highest first.
    pub fn holes_from_top(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().rev().map(|(start, length)| (*start, start + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_all_comes_back(actions in prop::collection::vec((any::<prop::sample::Index>(), 1u64..30, 0u8..3), 1..80)) {
            let mut allocator = Allocator::new(200);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (index, length, action) in actions {
                if action == 2 {
                    let start = index.index(200) as u64;
                    let free = live.iter().all(|(s, n)| start + length <= *s || s + n <= start) && start + length <= 200;
                    prop_assert_eq!(allocator.allocate_at(start, length), free);
                    live.extend(free.then_some((start, length)));
                } else if action == 1 {
                    if let Some(start) = allocator.allocate(length) {
                        prop_assert!(start + length <= 200);
                        prop_assert!(live.iter().all(|(s, n)| start + length <= *s || s + n <= start));
                        live.push((start, length));
                    }
                } else if !live.is_empty() {
                    let (start, length) = live.swap_remove(index.index(live.len()));
                    allocator.free(start, length);
                }
                let free: u64 = allocator.holes_from_top().map(|(s, e)| e - s).sum();
                prop_assert_eq!(free + live.iter().map(|(_, n)| n).sum::<u64>(), 200);
            }
            for (start, length) in live {
                allocator.free(start, length);
            }
            prop_assert_eq!(allocator.holes_from_top().collect::<Vec<_>>(), vec![(0, 200)]);
        }
    }

    #[test]
    fn touched_memory_is_used_again_first() {
        let mut allocator = Allocator::new(1000);
        let first = allocator.allocate(100).unwrap();
        allocator.allocate(10).unwrap();
        allocator.free(first, 100);
        assert_eq!(allocator.allocate(100), Some(first));
    }
}
