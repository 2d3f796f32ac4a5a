//! Sets of byte ranges.

use std::collections::BTreeMap;

/// A set of disjoint half-open ranges; neighbours are merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start and end of each.
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl RangeSet {
    /// How many bytes are in it.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds a range.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        while let Some((s, e)) = self.ranges.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.ranges.remove(&s);
            self.total -= e - s;
        }
        self.ranges.insert(start, end);
        self.total += end - start;
    }

    /// Takes a range out.
    pub fn remove(&mut self, start: u64, end: u64) {
        let touched: Vec<(u64, u64)> = self.within(start, end).collect();
        for (s, e) in touched {
            let whole = self.ranges.range(..=s).next_back().map(|(s, e)| (*s, *e));
            let Some((whole_start, whole_end)) = whole else { continue };
            self.ranges.remove(&whole_start);
            if whole_start < s {
                self.ranges.insert(whole_start, s);
            }
            if e < whole_end {
                self.ranges.insert(e, whole_end);
            }
            self.total -= e - s;
        }
    }

    /// Whether all of a range is in it.
    pub fn contains(&self, start: u64, end: u64) -> bool {
        start >= end || self.ranges.range(..=start).next_back().is_some_and(|(_, e)| *e >= end)
    }

    /// The parts of a range that are in it, in order.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.ranges.range(..=start).next_back().map_or(start, |(s, _)| *s);
        self.ranges
            .range(first..end.max(first))
            .map(move |(s, e)| ((*s).max(start), (*e).min(end)))
            .filter(|(s, e)| s < e)
    }

    /// How many bytes of a range are in it.
    pub fn overlap(&self, start: u64, end: u64) -> u64 {
        self.within(start, end).map(|(s, e)| e - s).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_numbers(actions in prop::collection::vec((any::<bool>(), 0u64..40, 0u64..12), 0..40), a in 0u64..40, n in 0u64..20) {
            let mut set = RangeSet::default();
            let mut model = std::collections::BTreeSet::new();
            for (insert, start, length) in actions {
                if insert {
                    set.insert(start, start + length);
                    model.extend(start..start + length);
                } else {
                    set.remove(start, start + length);
                    model.retain(|i| !(start..start + length).contains(i));
                }
                prop_assert_eq!(set.total(), model.len() as u64);
            }
            let inside: Vec<u64> = set.within(a, a + n).flat_map(|(s, e)| s..e).collect();
            prop_assert_eq!(&inside, &model.range(a..a + n).copied().collect::<Vec<_>>());
            prop_assert_eq!(set.contains(a, a + n), inside.len() as u64 == n);
        }
    }
}
