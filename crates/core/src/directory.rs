//! The directory's leaf: the blocks of one field at one step, found by region.

use crate::block::{BlockRecord, Extent};
use crate::contract::{Association, Field};
use crate::coverage;
use crate::ids::BlockKey;
use crate::region::Region;
use crate::view::mix;
use crate::{Error, ErrorKind, Result};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;

/// A block that touches more cells than this is looked at by every search instead.
const CELLS_MAX: u64 = 64;

/// No arena ends beyond this: the sum of many lengths below it does not overflow.
const PLACE_MAX: u64 = 1 << 48;

/// The blocks of one field at one step.
///
/// Placed blocks are found through a uniform grid whose cell is the shape of the first block: decompositions are
/// nearly always into equal boxes, so that a block touches one cell and a search few. Where it turns out that most
/// blocks have another size, the grid is made anew.
#[derive(Debug)]
pub struct FieldIndex {
    field: Field,
    of_space: bool,
    blocks: Vec<BlockRecord>,
    by_key: HashMap<BlockKey, u32>,
    cell: Vec<u64>,
    /// The sum of the logarithms of the extents in each dimension, and of how many blocks.
    logs: (Vec<f64>, u64),
    /// How often blocks were taken out.
    removals: u64,
    /// For each cell that blocks touch, by its hash, the first of its chain in `links`. Cells that share a
    /// hash share a chain: what is found is checked anyway.
    cells: HashMap<u64, u32>,
    links: Vec<Link>,
    large: Vec<u32>,
}

/// A block that touches a cell, and the next one that does.
#[derive(Debug, Clone, Copy)]
struct Link {
    block: u32,
    next: u32,
}

/// The end of a chain.
const END: u32 = u32::MAX;

impl FieldIndex {
    /// An empty index of this field, as it is at this step.
    pub fn new(field: Field) -> FieldIndex {
        FieldIndex {
            field,
            of_space: false,
            blocks: Vec::new(),
            by_key: HashMap::new(),
            cell: Vec::new(),
            logs: (Vec::new(), 0),
            removals: 0,
            cells: HashMap::new(),
            links: Vec::new(),
            large: Vec::new(),
        }
    }

    /// An empty index of a field in the space, whose puts have no rank and no ghosts to speak of.
    pub fn of_space(field: Field) -> FieldIndex {
        FieldIndex { of_space: true, ..FieldIndex::new(field) }
    }

    /// The field, as it is at this step.
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// All blocks, in the order in which they were registered.
    pub fn blocks(&self) -> &[BlockRecord] {
        &self.blocks
    }

    /// About how many bytes of memory it takes, with what its tables reserve ahead.
    pub fn bytes(&self) -> u64 {
        let records = self.blocks.capacity() * size_of::<BlockRecord>();
        let heap: usize = self.blocks.iter().map(BlockRecord::heap_bytes).sum();
        let keys = self.by_key.capacity() * (size_of::<BlockKey>() + size_of::<u32>() + 1);
        let cells = self.cells.capacity() * (size_of::<u64>() + size_of::<u32>() + 1);
        let links = self.links.capacity() * size_of::<Link>();
        (size_of::<Self>() + records + heap + keys + cells + links) as u64
    }

    /// Registers a block. The same block again is harmless (`Ok(false)`); the same key with another box or
    /// place, a box outside the field, and an interior that overlaps another's are errors.
    pub fn insert(&mut self, record: BlockRecord) -> Result<bool> {
        self.check_fits(&record)?;
        if let Some(index) = self.by_key.get(&record.key) {
            let known = &self.blocks[*index as usize];
            if known.extent == record.extent && known.location == record.location {
                return Ok(false);
            }
            return Err(Error::conflict(format!(
                "{} of field '{}' was already put with other content; give each block of a step its own number",
                record.key, self.field.name
            )));
        }
        let index = self.blocks.len() as u32;
        if record.extent.offset().is_some() {
            let interior = record.extent.interior();
            // Parts of one block may have elements in common where they have gaps.
            let is_another =
                |other: &&BlockRecord| other.level == record.level && !other.key.is_of_block(&record.key);
            if let Some(other) = self.find(&interior).find(is_another) {
                let (name, before) = (&self.field.name, other.extent.interior());
                return Err(Error::conflict(if self.of_space {
                    format!(
                        "what is put of field '{name}' at {interior} overlaps what was put at {before}; put each \
                         element once, or remove the field at this step first"
                    )
                } else {
                    format!(
                        "{} of field '{name}' at {interior} overlaps {} at {before}; interiors must be disjoint{}",
                        record.key,
                        other.key,
                        match self.field.association {
                            Association::Cell => ", declare shared layers as ghosts",
                            Association::Vertex => {
                                ": nodes that two blocks share are of the block that they begin, and a layer of ghosts \
                                 (ghost_high) of the one that they end"
                            }
                        }
                    )
                }));
            }
        }
        let placed = record.extent.offset().is_some().then(|| record.extent.interior());
        self.by_key.insert(record.key, index);
        if self.blocks.len() == self.blocks.capacity() {
            // By a quarter, not doubled: there are very many of these.
            self.blocks.reserve_exact(self.blocks.len() / 4 + 4);
        }
        self.blocks.push(record);
        if let Some(interior) = placed {
            self.add_to_cells(index, &interior);
        }
        Ok(true)
    }

    /// The block with a key, if it is known.
    pub fn get(&self, key: BlockKey) -> Option<&BlockRecord> {
        self.by_key.get(&key).map(|index| &self.blocks[*index as usize])
    }

    /// Forgets the blocks for which `gone` holds. Costs a look at every block.
    pub fn remove(&mut self, gone: impl Fn(&BlockRecord) -> bool) {
        if !self.blocks.iter().any(&gone) {
            return;
        }
        // Rare, after a conflict: the rest is registered anew, so that all tables agree.
        let (blocks, removals) = (std::mem::take(&mut self.blocks), self.removals + 1);
        *self = FieldIndex { removals, of_space: self.of_space, ..FieldIndex::new(self.field.clone()) };
        for block in blocks.into_iter().filter(|block| !gone(block)) {
            // They were there together before.
            let _ = self.insert(block);
        }
    }

    /// How often blocks were taken out: while it stays the same, [`FieldIndex::blocks`] only grows at its end.
    pub fn removals(&self) -> u64 {
        self.removals
    }

    /// Whether its tables agree: checked in tests. The error says what does not.
    pub fn sanity_check(&self) -> std::result::Result<(), String> {
        let fail = |text: &str| Err(format!("index of field '{}': {text}", self.field.name));
        let finds =
            |(index, block): (usize, &BlockRecord)| self.by_key.get(&block.key) == Some(&(index as u32));
        if self.by_key.len() != self.blocks.len() || !self.blocks.iter().enumerate().all(finds) {
            return fail("keys and blocks differ");
        }
        let mut placed: HashSet<u32> = self.large.iter().copied().collect();
        placed.extend(self.links.iter().map(|link| link.block));
        let is_placed =
            |block: &BlockRecord| block.extent.offset().is_some() && !block.extent.interior().is_empty();
        let expected = self.blocks.iter().enumerate().filter(|(_, block)| is_placed(block));
        let expected: HashSet<u32> = expected.map(|(index, _)| index as u32).collect();
        if placed != expected {
            return fail("the grid has other blocks than those with a place");
        }
        let ends = |at: &u32| *at == END || (*at as usize) < self.links.len();
        let mut linked = self.links.iter().map(|link| &link.next).chain(self.cells.values());
        if !linked.all(ends) {
            return fail("a chain of the grid leads nowhere");
        }
        Ok(())
    }

    fn check_fits(&self, record: &BlockRecord) -> Result<()> {
        check_block_fits(&self.field, record.key, record.level, &record.extent)
    }

    fn add_to_cells(&mut self, index: u32, interior: &Region) {
        if interior.is_empty() {
            return;
        }
        if self.cell.is_empty() {
            self.cell = interior.shape().to_vec();
            self.logs = (vec![0.0; self.cell.len()], 0);
        }
        for (sum, extent) in self.logs.0.iter_mut().zip(interior.shape()) {
            *sum += (*extent as f64).ln();
        }
        self.logs.1 += 1;
        self.add_to_grid(index, interior);
        // Rarely enough that it costs little beside the insertions before.
        if self.logs.1 >= 16 && self.logs.1.is_power_of_two() {
            self.fit_grid();
        }
    }

    /// Makes the grid anew if its cells have another size than most blocks.
    fn fit_grid(&mut self) {
        let mean = |sum: &f64| (sum / self.logs.1 as f64).exp().round().max(1.0);
        let typical: Vec<u64> = self.logs.0.iter().map(|sum| mean(sum) as u64).collect();
        let apart = |(a, b): (&u64, &u64)| *a > b.saturating_mul(2) || *b > a.saturating_mul(2);
        if !typical.iter().zip(&self.cell).any(apart) {
            return;
        }
        self.cell = typical;
        self.cells = HashMap::new();
        self.links = Vec::new();
        self.large = Vec::new();
        for index in 0..self.blocks.len() {
            let extent = &self.blocks[index].extent;
            if extent.offset().is_some() {
                let interior = extent.interior();
                self.add_to_grid(index as u32, &interior);
            }
        }
    }

    fn add_to_grid(&mut self, index: u32, interior: &Region) {
        if interior.is_empty() {
            return;
        }
        match cells_of(interior, &self.cell) {
            Some(cells) => {
                for cell in cells {
                    let link = self.links.len() as u32;
                    let next = self.cells.insert(cell, link).unwrap_or(END);
                    if self.links.len() == self.links.capacity() {
                        self.links.reserve_exact(self.links.len() / 4 + 4);
                    }
                    self.links.push(Link { block: index, next });
                }
            }
            None => self.large.push(index),
        }
    }

    /// The placed blocks whose interior meets a region, each once.
    pub fn find<'a>(&'a self, region: &'a Region) -> impl Iterator<Item = &'a BlockRecord> {
        let cells = if self.cell.is_empty() { None } else { cells_of(region, &self.cell) };
        let mut candidates: Vec<u32> = match cells {
            Some(cells) => {
                let mut near = self.large.clone();
                for cell in cells {
                    let mut at = self.cells.get(&cell).copied().unwrap_or(END);
                    while let Some(link) = self.links.get(at as usize) {
                        near.push(link.block);
                        at = link.next;
                    }
                }
                near
            }
            None => (0..self.blocks.len() as u32).collect(),
        };
        candidates.sort_unstable();
        candidates.dedup();
        candidates.into_iter().map(|index| &self.blocks[index as usize]).filter(move |block| {
            block.extent.offset().is_some() && block.extent.interior().intersect(region).is_some()
        })
    }

    /// An error that names the part of a region that is missing, if one is.
    pub fn check_covered(&self, step: &str, region: &Region) -> Result<()> {
        self.check_parts_covered(step, region, std::slice::from_ref(region))
    }

    /// An error that names what is missing of these parts of a region, if something is.
    pub fn check_parts_covered(&self, step: &str, region: &Region, parts: &[Region]) -> Result<()> {
        let interiors: Vec<Region> =
            self.find(region).filter(|block| block.level == 0).map(|block| block.extent.interior()).collect();
        match parts.iter().find_map(|part| coverage::missing(part, interiors.iter())) {
            None => Ok(()),
            Some(part) => Err(not_covered(&self.field.name, step, &part, region)),
        }
    }
}

/// The error for a part of a region that nobody put.
pub fn not_covered(field: &str, step: &str, part: &Region, region: &Region) -> Error {
    let text = format!("field '{field}' at {step}: nothing was put at {part}, which is part of {region}");
    Error::new(ErrorKind::NotCovered, text)
}

/// Checks that a block's box fits its field: dimensions, a place where the field has one, and bounds. Those of a
/// refined level are not known: its blocks lie in an index space of their own. `block` is its name in errors.
pub fn check_block_fits(field: &Field, block: impl Display, level: u32, extent: &Extent) -> Result<()> {
    let (offset, shape) = (extent.offset(), extent.shape());
    let fail = |text: String| Err(Error::out_of_bounds(format!("{block} of field '{}': {text}", field.name)));
    if shape.len() != field.ndim as usize {
        return fail(format!("it has {} dimensions, the field {}", shape.len(), field.ndim));
    }
    match (&field.shape, offset) {
        (None, None) => Ok(()),
        (None, Some(_)) => fail("it has an offset, but the field has no global shape; declare one".into()),
        (Some(_), None) => fail("it has no offset; say where it lies in the field's global shape".into()),
        (Some(_), Some(_)) if level > 0 => Ok(()),
        (Some(global), Some(offset)) => {
            let interior = extent.interior();
            match (0..shape.len()).find(|d| interior.end(*d) > global[*d]) {
                Some(d) => fail(format!(
                    "offset {offset:?} + shape {:?} reaches outside the global shape {:?} in dimension {d}",
                    interior.shape(),
                    &global[..]
                )),
                None => Ok(()),
            }
        }
    }
}

/// Checks blocks that another process tells of a field: their boxes fit it, and what is said of their bytes
/// fits their boxes. What reads them relies on it.
pub fn check_blocks(field: &Field, blocks: &[BlockRecord]) -> Result<()> {
    for block in blocks {
        check_block_fits(field, "a block", block.level, &block.extent)?;
        let (bytes, place) = (block.extent.bytes(field.dtype)?, &block.location);
        let ends = place.offset.checked_add(place.bytes).is_some_and(|end| end <= PLACE_MAX);
        if place.bytes != bytes || !ends || block.inline.as_ref().is_some_and(|own| own.len() as u64 != bytes)
        {
            return Err(Error::protocol(format!(
                "{} of field '{}' has {bytes} bytes, but is said to be elsewhere or of another length",
                block.key, field.name
            )));
        }
        let interior = block.extent.interior_bytes(field.dtype);
        if block.stats.as_ref().is_some_and(|stats| !stats.fits(interior, field.dtype.size())) {
            return Err(Error::protocol(format!(
                "{} of field '{}' has statistics of another number of tiles",
                block.key, field.name
            )));
        }
    }
    Ok(())
}

/// Hashes of the grid cells that a region touches, or `None` if they are many.
fn cells_of(region: &Region, cell: &[u64]) -> Option<Vec<u64>> {
    let n = cell.len();
    if region.ndim() != n {
        return Some(Vec::new());
    }
    if region.is_empty() {
        return Some(Vec::new());
    }
    let low: Vec<u64> = (0..n).map(|d| region.offset()[d] / cell[d]).collect();
    let high: Vec<u64> = (0..n).map(|d| (region.end(d) - 1) / cell[d]).collect();
    let count = (0..n).try_fold(1u64, |count, d| count.checked_mul(high[d] - low[d] + 1))?;
    if count > CELLS_MAX {
        return None;
    }
    let mut cells = vec![0];
    for d in 0..n {
        cells = cells
            .into_iter()
            .flat_map(|cell| (low[d]..=high[d]).map(move |i| mix(cell ^ mix(i + 1))))
            .collect();
    }
    Some(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Extent, Location};
    use crate::dtype::Dtype;
    use crate::ids::ServerId;
    use proptest::prelude::*;

    fn record(rank: u32, offset: &[u64], shape: &[u64]) -> BlockRecord {
        BlockRecord {
            key: BlockKey::whole(rank, 0),
            level: 0,
            extent: Extent::new(Some(offset), shape, &[], &[]).unwrap(),
            location: Location { server: ServerId(0), arena: 0, offset: 0, bytes: 0, generation: 0 },
            inline: None,
            stats: None,
        }
    }

    fn field(shape: &[u64]) -> Field {
        Field::new("U", Dtype::F64, Some(shape), shape.len())
    }

    #[test]
    fn retries_are_harmless_and_conflicts_are_not() {
        let mut index = FieldIndex::new(field(&[10, 7]));
        assert!(index.insert(record(0, &[0, 0], &[5, 7])).unwrap());
        assert!(!index.insert(record(0, &[0, 0], &[5, 7])).unwrap());
        assert_eq!(index.insert(record(0, &[0, 0], &[4, 7])).unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!(index.insert(record(1, &[4, 0], &[2, 7])).unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!(index.insert(record(1, &[5, 0], &[6, 7])).unwrap_err().kind, ErrorKind::OutOfBounds);
        let whole = Region::whole(&[10, 7]).unwrap();
        let error = index.check_covered("step 3", &whole).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotCovered);
        assert!(error.text.contains("[5:10, 0:7]"), "{error}");
        assert!(index.insert(record(1, &[5, 0], &[5, 7])).unwrap());
        assert!(index.check_covered("step 3", &whole).is_ok());
        let parts = |width| [Region::new(&[4, 0], &[2, width]).unwrap()];
        assert!(index.check_parts_covered("step 3", &whole, &parts(7)).is_ok());
        index.remove(|block| block.key.rank == 1);
        assert_eq!(index.blocks(), [record(0, &[0, 0], &[5, 7])]);
        let error = index.check_parts_covered("step 3", &whole, &parts(3)).unwrap_err();
        assert!(error.text.contains("[5:6, 0:3], which is part of [0:10, 0:7]"), "{error}");
        assert!(index.insert(record(2, &[5, 0], &[5, 7])).unwrap());
    }

    #[test]
    fn the_grid_fits_most_blocks_whatever_the_first_is() {
        for (first, rest) in [(1, 10), (4000, 3)] {
            let mut index = FieldIndex::new(field(&[first + 300 * rest]));
            index.insert(record(0, &[0], &[first])).unwrap();
            for number in 0..300 {
                index.insert(record(1 + number, &[first + u64::from(number) * rest], &[rest])).unwrap();
            }
            assert!(index.cell[0].abs_diff(rest) <= rest, "{:?} for blocks of {rest}", index.cell);
            assert!(index.large.len() <= 1, "{} blocks are in no cell", index.large.len());
            for number in 0..300 {
                let region = Region::new(&[first + number * rest + rest / 2], &[1]).unwrap();
                let found: Vec<u32> = index.find(&region).map(|block| block.key.rank).collect();
                assert_eq!(found, [1 + number as u32]);
            }
            let overlapping = record(999, &[first + 17 * rest], &[1]);
            assert_eq!(index.insert(overlapping).unwrap_err().kind, ErrorKind::Conflict);
        }
    }

    #[test]
    fn a_refined_level_has_an_index_space_of_its_own() {
        let mut index = FieldIndex::new(field(&[10]));
        let refined = |rank, offset: u64, level| BlockRecord { level, ..record(rank, &[offset], &[10]) };
        assert!(index.insert(refined(0, 0, 0)).unwrap());
        assert!(index.insert(refined(1, 5, 1)).unwrap(), "no overlap with another level, nor a bound");
        assert_eq!(index.insert(refined(2, 14, 1)).unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!(index.insert(refined(3, 5, 0)).unwrap_err().kind, ErrorKind::OutOfBounds);
        assert!(index.check_covered("step 0", &Region::whole(&[10]).unwrap()).is_ok());
        index.remove(|block| block.level == 0);
        assert_eq!(index.removals(), 1);
        assert!(index.check_covered("step 0", &Region::whole(&[10]).unwrap()).is_err(), "by no other level");
    }

    proptest! {
        #[test]
        fn the_grid_finds_what_a_scan_finds(
            boxes in prop::collection::vec(((0u64..30, 0u64..20), (0u64..12, 0u64..25)), 0..40),
            (a, b, c, d) in (0u64..30, 0u64..20, 0u64..30, 0u64..20),
        ) {
            let mut index = FieldIndex::new(field(&[60, 60]));
            for (rank, ((y, x), (h, w))) in boxes.iter().enumerate() {
                let before = index.blocks.len();
                let new = record(rank as u32, &[*y, *x], &[*h, *w]);
                let interior = new.extent.interior();
                let overlaps = index.blocks.iter().any(|other| other.extent.interior().intersect(&interior).is_some());
                prop_assert_eq!(index.insert(new).is_err(), overlaps);
                prop_assert_eq!(index.blocks.len() - before, usize::from(!overlaps));
                prop_assert_eq!(index.sanity_check(), Ok(()));
            }
            let region = Region::new(&[a, b], &[c, d]).unwrap();
            let found: Vec<_> = index.find(&region).map(|block| block.key.rank).collect();
            let scanned: Vec<_> = index.blocks.iter()
                .filter(|block| block.extent.interior().intersect(&region).is_some())
                .map(|block| block.key.rank).collect();
            prop_assert_eq!(found, scanned);
        }
    }
}
