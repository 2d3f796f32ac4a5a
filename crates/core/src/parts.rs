//! What of a block is wanted: nothing, all of it, or these parts.

use crate::block::{BlockRecord, Extent};
use crate::region::{Dims, Region};
use crate::selection::Selection;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Into how many dense parts, and how many with gaps, a block is cut at most: beyond that it is the box around them.
const PARTS_MAX: usize = 16;

/// What of a block is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// The block as it is.
    Whole,
    /// These parts of its interior. No two of those without gaps have an element in common.
    Parts(Vec<Selection>),
}

/// What of a block is wanted where these selections of its field are. Each of them is found in a single part, or is spread over
/// those that have no gaps.
pub fn parts_of(interior: &Region, wanted: impl Iterator<Item = Selection>) -> Wanted {
    let mut cut: Vec<Selection> = wanted.filter_map(|selection| selection.cut_to(interior)).collect();
    // The largest first: others may lie in it.
    cut.sort_by(|a, b| b.volume().cmp(&a.volume()).then_with(|| place(a).cmp(&place(b))));
    cut.dedup();
    let (dense, gaps): (Vec<Selection>, Vec<Selection>) = cut.into_iter().partition(Selection::is_dense);
    let mut boxes = disjoint(dense.iter().map(box_of));
    let mut strided: Vec<Selection> = Vec::new();
    for selection in gaps {
        let span = box_of(&selection);
        let is_there = boxes.iter().any(|dense| dense.contains(&span))
            || strided.iter().any(|other| other.holds(&selection));
        if !is_there {
            strided.push(selection);
        }
    }
    if strided.len() > PARTS_MAX {
        let around = around(boxes.iter().cloned().chain(strided.iter().map(box_of)));
        (boxes, strided) = (around.into_iter().collect(), Vec::new());
    }
    let parts: Vec<Selection> = boxes.iter().map(Selection::region).chain(strided).collect();
    let volume = parts.iter().map(Selection::volume).fold(0, u64::saturating_add);
    match () {
        () if parts.is_empty() => Wanted::Nothing,
        // One copy of all costs no more than copies of nearly all.
        () if volume as f64 >= 0.9 * interior.volume() as f64 => Wanted::Whole,
        () => Wanted::Parts(parts),
    }
}

/// Boxes that hold what these hold, none of them an element of another one.
fn disjoint(boxes: impl Iterator<Item = Region> + Clone) -> Vec<Region> {
    let mut found: Vec<Region> = Vec::new();
    for wanted in boxes.clone() {
        let mut pieces = vec![wanted];
        for known in &found {
            pieces = pieces.iter().flat_map(|piece| piece.subtract(known)).collect();
        }
        found.extend(pieces);
        if found.len() > PARTS_MAX {
            return around(boxes).into_iter().collect();
        }
    }
    found
}

/// The box around these.
fn around(boxes: impl Iterator<Item = Region>) -> Option<Region> {
    boxes.reduce(|a, b| {
        let offset: Dims = (0..a.ndim()).map(|d| a.offset()[d].min(b.offset()[d])).collect();
        let shape = (0..a.ndim()).map(|d| a.end(d).max(b.end(d)) - offset[d]).collect();
        Region::from_checked(offset, shape)
    })
}

fn place(selection: &Selection) -> (&Dims, &Dims, &Dims) {
    (&selection.offset, &selection.shape, &selection.step)
}

/// The box that a selection spans, which lies in a block.
fn box_of(selection: &Selection) -> Region {
    let shape = (0..selection.shape.len()).map(|d| selection.extent(d).unwrap_or(0)).collect();
    Region::from_checked(selection.offset.clone(), shape)
}

/// The part of a block as a block of its own: where it lies, with the block's ghosts where it touches the block's border.
pub fn extent_of_part(block: &Extent, part: &Selection) -> crate::Result<Extent> {
    let interior = block.interior();
    if !part.is_dense() {
        return Extent::with_gaps(&part.offset, &part.shape, &part.step);
    }
    let (low, high) = (block.ghost_low(), block.ghost_high());
    let end = |d: usize| part.offset[d] + part.shape[d];
    let touches_low = |d: usize| part.offset[d] == interior.offset()[d];
    let low: Dims = (0..low.len()).map(|d| if touches_low(d) { low[d] } else { 0 }).collect();
    let high: Dims = (0..high.len()).map(|d| if end(d) == interior.end(d) { high[d] } else { 0 }).collect();
    Extent::new(Some(&part.offset), &part.shape, &low, &high)
}

/// Where a part of a block lies in the block's array as it is stored. The block may itself be a part; that holds the other one.
pub fn place_in_block(block: &Extent, part: &Extent) -> Selection {
    let (low, own) = (block.ghost_low(), part.ghost_low());
    let within = part.selection();
    let mut place = block.selection().place_of(&within).unwrap_or(within);
    for d in 0..low.len() {
        place.offset[d] += low[d] - own[d];
    }
    place.shape = part.stored_shape();
    place
}

/// Which of these blocks, or parts of blocks, show a reader what it needs of a field, each element once: by their places, with what
/// is shown of each.
pub fn shown_of(needed: &Selection, records: &[BlockRecord]) -> Vec<(usize, Extent)> {
    let mut shown = Vec::new();
    // What of each block is needed and there, as regions of what is needed.
    let mut found: HashMap<(u32, u64), Vec<(usize, Region)>> = HashMap::new();
    for (index, BlockRecord { key, level, extent, .. }) in records.iter().enumerate() {
        if *level > 0 || extent.offset().is_none() {
            shown.push((index, extent.clone()));
        } else if let Some(within) = needed.within(&extent.interior())
            && extent.selection().holds(&needed.part(&within))
        {
            found.entry((key.rank, key.number)).or_default().push((index, within));
        }
    }
    for mut parts in found.into_values() {
        // Those that are cut like what is needed go first, and of these the one that has most of it.
        let is_alike = |index: &usize| {
            records.get(*index).is_some_and(|record| record.extent.step().is_none() == needed.is_dense())
        };
        parts.sort_by_key(|(index, within)| (!is_alike(index), Reverse(within.volume()), *index));
        let mut known: Vec<Region> = Vec::new();
        for (index, within) in parts {
            let pieces = known.iter().fold(vec![within], |pieces, known| {
                pieces.iter().flat_map(|piece| piece.subtract(known)).collect()
            });
            let extent = records.get(index).map(|record| &record.extent);
            let cut = |piece: &Region| Some((index, extent_of_part(extent?, &needed.part(piece)).ok()?));
            shown.extend(pieces.iter().filter_map(cut));
            known.extend(pieces);
        }
    }
    shown.sort_by_key(|(index, extent)| (*index, extent.offset().map(<[u64]>::to_vec)));
    shown
}

/// Which of these blocks of a field hold which elements of a selection: by their places, with regions of the selection that have
/// no element in common. Blocks without a place and those of other levels than this hold none.
pub fn holders_of(selection: &Selection, level: u32, records: &[BlockRecord]) -> Vec<(usize, Region)> {
    let within = |(index, record): (usize, &BlockRecord)| {
        let is_placed = record.level == level && record.extent.offset().is_some();
        is_placed.then(|| Some((index, selection.within(&record.extent.interior())?))).flatten()
    };
    let found = records.iter().enumerate().filter_map(within);
    let has_gaps = |(index, _): &(usize, Region)| {
        records.get(*index).is_some_and(|record| record.extent.step().is_some())
    };
    let (with_gaps, mut held): (Vec<_>, Vec<_>) = found.partition(has_gaps);
    if with_gaps.is_empty() {
        // Interiors are disjoint.
        return held;
    }
    // Other parts of the same block may have some of their elements, too.
    let block_of = |index: usize| records.get(index).map(|record| (record.key.rank, record.key.number));
    let mut known: HashMap<Option<(u32, u64)>, Vec<Region>> = HashMap::new();
    for (index, part) in &held {
        known.entry(block_of(*index)).or_default().push(part.clone());
    }
    for (index, part) in with_gaps {
        let holds = |record: &BlockRecord| record.extent.selection().holds(&selection.part(&part));
        if !records.get(index).is_some_and(holds) {
            continue;
        }
        let known = known.entry(block_of(index)).or_default();
        let pieces = known.iter().fold(vec![part], |pieces, known| {
            pieces.iter().flat_map(|piece| piece.subtract(known)).collect()
        });
        known.extend(pieces.iter().cloned());
        held.extend(pieces.into_iter().map(|piece| (index, piece)));
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Location;
    use crate::ids::{BlockKey, ServerId};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn selection(first: (u64, u64, u64), second: (u64, u64, u64)) -> Selection {
        let step = |(_, count, step): (u64, u64, u64)| if count == 1 { 1 } else { step };
        Selection {
            offset: [first.0, second.0][..].into(),
            shape: [first.1, second.1][..].into(),
            step: [step(first), step(second)][..].into(),
        }
    }

    fn elements(of: &Selection) -> BTreeSet<(u64, u64)> {
        let along = |d: usize| (0..of.shape[d]).map(move |i| of.offset[d] + i * of.step[d]);
        along(0).flat_map(|i| along(1).map(move |j| (i, j))).collect()
    }

    fn some() -> impl Strategy<Value = Selection> {
        let one = || (0u64..14, 1u64..8, 1u64..5);
        (one(), one()).prop_map(|(a, b)| selection(a, b))
    }

    proptest! {
        #[test]
        fn what_is_wanted_is_there_and_is_found_as_readers_look(wanted in prop::collection::vec(some(), 0..6)) {
            let interior = Region::new(&[3, 2], &[12, 14]).unwrap();
            let inside = |selection: &Selection| selection.cut_to(&interior);
            let cut: Vec<Selection> = wanted.iter().filter_map(inside).collect();
            let all: BTreeSet<_> = cut.iter().flat_map(elements).collect();
            match parts_of(&interior, wanted.iter().cloned()) {
                Wanted::Nothing => prop_assert!(all.is_empty()),
                Wanted::Whole => prop_assert!(!all.is_empty()),
                Wanted::Parts(parts) => {
                    let there: BTreeSet<_> = parts.iter().flat_map(elements).collect();
                    prop_assert!(all.is_subset(&there));
                    let dense: Vec<_> = parts.iter().filter(|part| part.is_dense()).collect();
                    let in_dense: BTreeSet<_> = dense.iter().flat_map(|part| elements(part)).collect();
                    let count: usize = dense.iter().map(|part| part.volume() as usize).sum();
                    prop_assert_eq!(in_dense.len(), count, "dense parts are disjoint");
                    for selection in &cut {
                        let held = parts.iter().any(|part| part.holds(selection));
                        prop_assert!(held || elements(selection).is_subset(&in_dense));
                    }
                }
            }
        }
    }

    fn record(part: u32, selection: &Selection) -> BlockRecord {
        let whole = Extent::new(Some(&[3, 2]), &[12, 14], &[], &[]).unwrap();
        let location = Location { server: ServerId(0), arena: 0, offset: 0, bytes: 0, generation: 0 };
        let key = BlockKey { part, ..BlockKey::whole(0, 0) };
        let extent = extent_of_part(&whole, selection).unwrap();
        BlockRecord { key, level: 0, extent, location, inline: None, stats: None }
    }

    proptest! {
        #[test]
        fn each_reader_is_shown_what_it_needs_each_element_once(wanted in prop::collection::vec(some(), 1..6)) {
            let interior = Region::new(&[3, 2], &[12, 14]).unwrap();
            let parts = match parts_of(&interior, wanted.iter().cloned()) {
                Wanted::Nothing => vec![],
                Wanted::Whole => vec![Selection::region(&interior)],
                Wanted::Parts(parts) => parts,
            };
            let records: Vec<BlockRecord> = (1..).zip(&parts).map(|(part, cut)| record(part, cut)).collect();
            for needed in &wanted {
                let shown = shown_of(needed, &records);
                let lists: Vec<_> = shown.iter().map(|(_, extent)| elements(&extent.selection())).collect();
                let all: BTreeSet<_> = lists.iter().flatten().copied().collect();
                prop_assert_eq!(all.len(), lists.iter().map(BTreeSet::len).sum::<usize>());
                prop_assert_eq!(all, needed.cut_to(&interior).as_ref().map(elements).unwrap_or_default());
                for (index, extent) in shown {
                    prop_assert!(records[index].extent.selection().holds(&extent.selection()));
                }
            }
        }
    }

    #[test]
    fn a_sixty_fourth_is_no_more_than_that() {
        let interior = Region::new(&[0, 0], &[64, 64]).unwrap();
        for wanted in [
            selection((0, 8, 1), (0, 8, 1)),
            selection((0, 8, 8), (3, 8, 8)),
            selection((5, 1, 1), (0, 64, 1)),
        ] {
            assert_eq!(parts_of(&interior, [wanted.clone()].into_iter()), Wanted::Parts(vec![wanted]));
        }
        assert_eq!(parts_of(&interior, [selection((0, 64, 1), (1, 63, 1))].into_iter()), Wanted::Whole);
    }

    #[test]
    fn many_parts_are_the_box_around_them() {
        let interior = Region::new(&[0, 0], &[1000, 1000]).unwrap();
        let small = (0..200).map(|i| selection((i * 3, 1, 1), (i * 2, 2, 1)));
        let Wanted::Parts(parts) = parts_of(&interior, small.clone()) else { panic!("no parts") };
        assert_eq!(parts, [selection((0, 598, 1), (0, 400, 1))]);
        let Wanted::Parts(parts) =
            parts_of(&interior, (0..40).map(|i| selection((i, 3, 7 + i), (i, 2, 90 + i))))
        else {
            panic!("no parts")
        };
        assert_eq!(parts.len(), 1);
        assert!(small.count() > PARTS_MAX);
    }

    #[test]
    fn ghosts_go_with_the_border() {
        let block = Extent::new(Some(&[10, 20]), &[8, 6], &[1, 2], &[3, 4]).unwrap();
        let part = extent_of_part(&block, &selection((10, 4, 1), (22, 4, 1))).unwrap();
        assert_eq!(part, Extent::new(Some(&[10, 22]), &[4, 4], &[1, 0], &[0, 4]).unwrap());
        let strided = extent_of_part(&block, &selection((10, 4, 2), (20, 3, 2))).unwrap();
        assert!(!strided.has_ghosts());
        assert_eq!(place_in_block(&block, &part), selection((0, 5, 1), (4, 8, 1)));
        assert_eq!(place_in_block(&block, &strided), selection((1, 4, 2), (2, 3, 2)));
        assert_eq!(strided.stored_shape()[..], [4, 3]);
    }
}
