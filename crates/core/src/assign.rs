//! Which blocks of a field are whose, among the ranks of a parallel reader.
//!
//! Every rank finds the same: nothing but the blocks, as all are told of them, and the ranks that read decides. Each block is one
//! rank's. `Ranks` is the mapping of libIS (Usher et al., "libIS: a lightweight library for flexible in transit visualization",
//! section 3), which gives whole ranks of the simulation, neighbours together, to each reader, and spreads the remainder over the
//! first ones; here readers may be more than ranks. `Balanced` places the largest block first, on the rank that has the fewest bytes
//! (longest processing time first: Graham, "Bounds on multiprocessing timing anomalies", 1969): no rank has more than 4/3 of the
//! best that is possible.

use crate::selection::Selection;
use std::collections::BTreeMap;

/// Which blocks are whose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Assign {
    /// All are each rank's.
    #[default]
    All,
    /// Those of whole ranks of the simulation, neighbours together.
    Ranks,
    /// In turn.
    RoundRobin,
    /// So that all have about as many bytes.
    Balanced,
    /// Each has a slab of the field.
    Slab,
    /// First what lies on a rank's host, as `Ranks`.
    HostRanks,
    /// The same, as `RoundRobin`.
    HostRoundRobin,
    /// The same, as `Balanced`.
    HostBalanced,
}

/// A block that is to be assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToAssign<'a> {
    /// The rank of the simulation that put it.
    pub rank: u32,
    /// How large it is.
    pub bytes: u64,
    /// The host that holds it, if that is known.
    pub host: Option<&'a str>,
}

/// A rank that reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader<'a> {
    /// Its number.
    pub rank: u32,
    /// Where it is.
    pub host: &'a str,
}

impl Assign {
    /// Whether blocks are cut, so that more than one rank may have a part of one.
    pub fn cuts(self) -> bool {
        self == Assign::Slab
    }

    /// The reader of each block, in the order of these blocks, which is that of their ranks and numbers. The simulation has so many
    /// ranks. There must be a reader; with [`Assign::All`] and [`Assign::Slab`] each has all.
    pub fn readers_of(self, blocks: &[ToAssign<'_>], ranks: u32, readers: &[Reader<'_>]) -> Vec<u32> {
        let mut assigned = Assigned { to: vec![None; blocks.len()], bytes: BTreeMap::new() };
        let everything: Vec<usize> = (0..blocks.len()).collect();
        let all: Vec<u32> = readers.iter().map(|reader| reader.rank).collect();
        let within = match self {
            Assign::All | Assign::Slab | Assign::Ranks | Assign::HostRanks => Within::Ranks(ranks),
            Assign::RoundRobin | Assign::HostRoundRobin => Within::Turns,
            Assign::Balanced | Assign::HostBalanced => Within::Bytes,
        };
        if matches!(self, Assign::HostRanks | Assign::HostRoundRobin | Assign::HostBalanced) {
            let mut by_host: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
            for reader in readers {
                by_host.entry(reader.host).or_default().push(reader.rank);
            }
            for (host, here) in by_host {
                let held = |index: &usize| blocks.get(*index).is_some_and(|block| block.host == Some(host));
                let held: Vec<usize> = everything.iter().copied().filter(held).collect();
                assigned.spread(&within.here(), blocks, &held, &here);
            }
        }
        let left: Vec<usize> =
            everything.into_iter().filter(|index| assigned.to.get(*index) == Some(&None)).collect();
        assigned.spread(&within, blocks, &left, &all);
        let first = all.first().copied().unwrap_or_default();
        assigned.to.into_iter().map(|to| to.unwrap_or(first)).collect()
    }
}

/// How blocks are spread over readers.
#[derive(Debug, Clone, Copy)]
enum Within {
    /// By these many ranks.
    Ranks(u32),
    /// By those ranks that have any of them.
    RanksThere,
    Turns,
    Bytes,
}

impl Within {
    /// The same on one host, where only some ranks have blocks.
    fn here(self) -> Within {
        match self {
            Within::Ranks(_) => Within::RanksThere,
            other => other,
        }
    }
}

struct Assigned {
    to: Vec<Option<u32>>,
    bytes: BTreeMap<u32, u64>,
}

impl Assigned {
    /// Spreads some of the blocks over some of the readers.
    fn spread(&mut self, within: &Within, blocks: &[ToAssign<'_>], chosen: &[usize], readers: &[u32]) {
        let found = chosen.iter().filter_map(|index| Some((*index, blocks.get(*index)?)));
        let mut found: Vec<(usize, &ToAssign<'_>)> = found.collect();
        match *within {
            Within::Ranks(ranks) => {
                for (index, block) in found {
                    self.give(index, block, share_of(block.rank, ranks, readers));
                }
            }
            Within::RanksThere => {
                let mut there: Vec<u32> = found.iter().map(|(_, block)| block.rank).collect();
                there.dedup();
                for (index, block) in found {
                    let place = there.binary_search(&block.rank).unwrap_or_default();
                    self.give(index, block, share_of(place as u32, there.len() as u32, readers));
                }
            }
            Within::Turns => {
                for ((index, block), reader) in found.into_iter().zip(readers.iter().cycle()) {
                    self.give(index, block, Some(*reader));
                }
            }
            Within::Bytes => {
                found.sort_by_key(|(index, block)| (std::cmp::Reverse(block.bytes), *index));
                for (index, block) in found {
                    let has = |reader: &u32| self.bytes.get(reader).copied().unwrap_or_default();
                    let least = readers.iter().min_by_key(|reader| (has(reader), **reader)).copied();
                    self.give(index, block, least);
                }
            }
        }
    }

    fn give(&mut self, index: usize, block: &ToAssign<'_>, reader: Option<u32>) {
        let (Some(place), Some(reader)) = (self.to.get_mut(index), reader) else { return };
        *place = Some(reader);
        *self.bytes.entry(reader).or_default() += block.bytes;
    }
}

/// The reader that has this one of so many ranks: neighbours together, the remainder over the first readers.
fn share_of(rank: u32, ranks: u32, readers: &[u32]) -> Option<u32> {
    let count = readers.len() as u32;
    let each = ranks.checked_div(count)?;
    let (more, rank) = (ranks % count, rank.min(ranks.saturating_sub(1)));
    // The first `more` readers have one more each.
    let place = match rank < more * (each + 1) {
        true => rank / (each + 1),
        false => more + (rank - more * (each + 1)) / each.max(1),
    };
    readers.get(place as usize).copied()
}

/// The slab of what is selected that is the `index`th of `count`: along the first dimension that has as many elements, or else the
/// longest; as even as possible, the first ones larger by one element.
pub fn slab(whole: &Selection, index: u32, count: u32) -> Selection {
    let long_enough = whole.shape.iter().position(|length| *length >= u64::from(count));
    let longest = || (0..whole.shape.len()).rev().max_by_key(|d| whole.shape.get(*d).copied());
    let mut slab = whole.clone();
    let Some(d) = long_enough.or_else(longest) else { return slab };
    if let (Some(offset), Some(length), Some(step)) =
        (slab.offset.get_mut(d), slab.shape.get_mut(d), whole.step.get(d))
    {
        let (index, count) = (u64::from(index), u64::from(count.max(1)));
        let (each, more) = (*length / count, *length % count);
        let begin = index * each + index.min(more);
        *offset += begin * step;
        *length = each + u64::from(index < more);
    }
    slab
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Dims;
    use proptest::prelude::*;

    fn block(rank: u32, bytes: u64, host: Option<&str>) -> ToAssign<'_> {
        ToAssign { rank, bytes, host }
    }

    fn readers(hosts: &[&'static str]) -> Vec<Reader<'static>> {
        hosts.iter().enumerate().map(|(rank, host)| Reader { rank: rank as u32, host }).collect()
    }

    fn of_each_rank(count: u32) -> Vec<ToAssign<'static>> {
        (0..count).map(|rank| block(rank, 8, None)).collect()
    }

    #[test]
    fn whole_ranks_go_to_readers_as_in_libis() {
        let assigned =
            |ranks, count| Assign::Ranks.readers_of(&of_each_rank(ranks), ranks, &readers(&vec!["a"; count]));
        assert_eq!(assigned(4, 2), [0, 0, 1, 1]);
        assert_eq!(assigned(5, 3), [0, 0, 1, 1, 2]);
        assert_eq!(assigned(2, 4), [0, 1]);
        assert_eq!(assigned(4, 4), [0, 1, 2, 3]);
        let some = [block(6, 1, None), block(7, 1, None)];
        assert_eq!(Assign::Ranks.readers_of(&some, 8, &readers(&["a", "a"])), [1, 1], "by all ranks");
    }

    #[test]
    fn the_largest_go_first_to_who_has_least() {
        let blocks = [block(0, 1, None), block(1, 9, None), block(2, 4, None), block(3, 5, None)];
        assert_eq!(Assign::Balanced.readers_of(&blocks, 4, &readers(&["a", "a"])), [0, 0, 1, 1]);
        assert_eq!(Assign::RoundRobin.readers_of(&blocks, 4, &readers(&["a", "a", "a"])), [0, 1, 2, 0]);
    }

    #[test]
    fn what_lies_on_a_host_is_read_there() {
        let blocks =
            [block(0, 1, Some("b")), block(1, 1, Some("a")), block(2, 1, Some("c")), block(3, 1, Some("b"))];
        let there = readers(&["a", "b", "b"]);
        assert_eq!(Assign::HostRanks.readers_of(&blocks, 4, &there), [1, 0, 1, 2]);
        assert_eq!(Assign::HostRoundRobin.readers_of(&blocks, 4, &there), [1, 0, 0, 2]);
        assert_eq!(Assign::HostBalanced.readers_of(&blocks, 4, &there), [1, 0, 0, 2]);
        let absent = [Reader { rank: 2, host: "b" }];
        assert_eq!(Assign::HostBalanced.readers_of(&blocks, 4, &absent), [2, 2, 2, 2]);
    }

    #[test]
    fn slabs_lie_along_the_first_dimension_that_is_long_enough() {
        let whole = |shape: &[u64]| Selection {
            offset: shape.iter().map(|_| 1).collect(),
            shape: shape.iter().copied().collect(),
            step: shape.iter().map(|_| 2).collect::<Dims>(),
        };
        let second = slab(&whole(&[7, 9]), 1, 3);
        assert_eq!((&second.offset[..], &second.shape[..]), (&[7, 1][..], &[2, 9][..]));
        let second = slab(&whole(&[2, 9]), 2, 3);
        assert_eq!((&second.offset[..], &second.shape[..]), (&[1, 13][..], &[2, 3][..]));
        let last = slab(&whole(&[2, 3]), 3, 4);
        assert_eq!(last.shape[..], [2, 0]);
        assert_eq!(slab(&whole(&[]), 1, 2), whole(&[]));
    }

    proptest! {
        #[test]
        fn each_rank_has_a_reader_and_shares_differ_by_one(ranks in 1u32..50, count in 1usize..20) {
            let assigned = Assign::Ranks.readers_of(&of_each_rank(ranks), ranks, &readers(&vec!["a"; count]));
            prop_assert!(assigned.is_sorted());
            let shares: Vec<usize> =
                (0..count).map(|reader| assigned.iter().filter(|a| **a == reader as u32).count()).collect();
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }

        #[test]
        fn slabs_are_disjoint_and_are_the_whole(shape in prop::collection::vec(0u64..20, 1..4), count in 1u32..9) {
            let whole = Selection {
                offset: shape.iter().map(|_| 0).collect(),
                shape: shape.iter().copied().collect(),
                step: shape.iter().map(|_| 1).collect(),
            };
            let slabs: Vec<Selection> = (0..count).map(|index| slab(&whole, index, count)).collect();
            prop_assert_eq!(slabs.iter().map(Selection::volume).sum::<u64>(), whole.volume());
            for pair in slabs.windows(2) {
                let differs = |d: &usize| pair[0].offset[*d] != pair[1].offset[*d];
                let Some(d) = (0..shape.len()).find(differs) else { continue };
                prop_assert_eq!(pair[0].offset[d] + pair[0].shape[d], pair[1].offset[d]);
            }
        }
    }
}
