//! Blocks: what one rank puts of one field at one step, and where it is held.

use crate::dtype::Dtype;
use crate::ids::{BlockKey, ServerId};
use crate::region::{Dims, MAX_NDIM, Region};
use crate::selection::Selection;
use crate::stats::BlockStats;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The box of a block: its interior, its place in the global array if it has one, and its ghosts. Of a part with gaps the elements
/// of the interior lie apart, and there are no ghosts.
///
/// Kept in one allocation, because a directory holds very many of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ExtentParts", into = "ExtentParts")]
pub struct Extent {
    ndim: u8,
    placed: bool,
    gaps: bool,
    ghosts: bool,
    /// `shape`, then `offset` if placed, then `step` if there are gaps, then `ghost_low` and `ghost_high` if there are ghosts.
    values: Box<[u64]>,
}

/// Shape, offset, step, ghosts.
type ExtentParts = (Dims, Option<Dims>, Option<Dims>, Option<(Dims, Dims)>);

impl TryFrom<ExtentParts> for Extent {
    type Error = Error;
    fn try_from((shape, offset, step, ghosts): ExtentParts) -> Result<Self> {
        if let Some(step) = step {
            return match (&offset, &ghosts) {
                (Some(offset), None) => Extent::with_gaps(offset, &shape, &step),
                _ => Err(Error::out_of_bounds("a part with gaps has a place, and no ghosts")),
            };
        }
        let (low, high) = match &ghosts {
            Some((low, high)) => (&low[..], &high[..]),
            None => (&[][..], &[][..]),
        };
        Extent::new(offset.as_deref(), &shape, low, high)
    }
}

impl From<Extent> for ExtentParts {
    fn from(extent: Extent) -> Self {
        let ghosts = extent.ghosts.then(|| (extent.ghost_low(), extent.ghost_high()));
        (extent.shape().into(), extent.offset().map(Dims::from), extent.step().map(Dims::from), ghosts)
    }
}

impl Extent {
    /// A block's box. `offset` is `None` for a local array without a place in a global one; empty ghost
    /// slices mean no ghosts. Fails if lengths differ or sizes overflow.
    pub fn new(offset: Option<&[u64]>, shape: &[u64], low: &[u64], high: &[u64]) -> Result<Extent> {
        let ndim = shape.len();
        if ndim > MAX_NDIM {
            return Err(Error::out_of_bounds(format!(
                "an array has at most {MAX_NDIM} dimensions, this one {ndim}"
            )));
        }
        for (what, given) in
            [("offset", offset.unwrap_or(shape)), ("ghost widths", low), ("ghost widths", high)]
        {
            if given.len() != ndim && !(what == "ghost widths" && given.is_empty()) {
                return Err(Error::out_of_bounds(format!(
                    "{what} {given:?} has {} numbers for a block of {ndim} dimensions",
                    given.len()
                )));
            }
        }
        Region::new(offset.unwrap_or(&[0; MAX_NDIM][..ndim]), shape)?;
        let ghosts = low.iter().chain(high).any(|width| *width > 0);
        let mut values = shape.to_vec();
        values.extend(offset.unwrap_or_default());
        if ghosts {
            let width = |side: &[u64], d: usize| side.get(d).copied().unwrap_or(0);
            values.extend((0..ndim).map(|d| width(low, d)));
            values.extend((0..ndim).map(|d| width(high, d)));
        }
        let (placed, gaps) = (offset.is_some(), false);
        let extent = Extent { ndim: ndim as u8, placed, gaps, ghosts, values: values.into() };
        let overflow =
            || Error::out_of_bounds(format!("a block of shape {shape:?} with its ghosts exceeds 64 bits"));
        let mut stored = Dims::new();
        for (d, n) in shape.iter().enumerate() {
            let sum = n.checked_add(extent.low(d)).and_then(|n| n.checked_add(extent.high(d)));
            stored.push(sum.ok_or_else(overflow)?);
        }
        Region::whole(&stored).map_err(|_| overflow())?;
        Ok(extent)
    }

    /// The box of a part of which only every so many elements are there; `shape` says how many. Fails if lengths differ, sizes
    /// overflow, or a step is 0.
    pub fn with_gaps(offset: &[u64], shape: &[u64], step: &[u64]) -> Result<Extent> {
        let ndim = shape.len();
        let fail = |text: String| Err(Error::out_of_bounds(text));
        if step.len() != ndim || step.contains(&0) {
            return fail(format!("steps {step:?} of a part of shape {shape:?}"));
        }
        // Bounds and lengths are those of a block without gaps.
        Extent::new(Some(offset), shape, &[], &[])?;
        let part = Selection { offset: offset.into(), shape: shape.into(), step: step.into() };
        let span: Option<Dims> = (0..ndim).map(|d| part.extent(d)).collect();
        let Some(span) = span else { return fail(format!("shape {shape:?} every {step:?} exceeds 64 bits")) };
        Region::new(offset, &span)?;
        let values = shape.iter().chain(offset).chain(step).copied().collect();
        Ok(Extent { ndim: ndim as u8, placed: true, gaps: true, ghosts: false, values })
    }

    /// Whether it has ghosts.
    pub fn has_ghosts(&self) -> bool {
        self.ghosts
    }

    fn group(&self, index: usize) -> &[u64] {
        let n = self.ndim as usize;
        &self.values[index * n..(index + 1) * n]
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.ndim as usize
    }

    /// How many elements the interior has in each dimension.
    pub fn shape(&self) -> &[u64] {
        self.group(0)
    }

    /// The interior's place in the global array, if it has one.
    pub fn offset(&self) -> Option<&[u64]> {
        self.placed.then(|| self.group(1))
    }

    /// The distance between the interior's elements in each dimension, if there are gaps.
    pub fn step(&self) -> Option<&[u64]> {
        self.gaps.then(|| self.group(2))
    }

    fn low(&self, d: usize) -> u64 {
        if self.ghosts { self.group(1 + usize::from(self.placed))[d] } else { 0 }
    }

    fn high(&self, d: usize) -> u64 {
        if self.ghosts { self.group(2 + usize::from(self.placed))[d] } else { 0 }
    }

    /// Ghost layers before the interior, in each dimension.
    pub fn ghost_low(&self) -> Dims {
        (0..self.ndim()).map(|d| self.low(d)).collect()
    }

    /// Ghost layers after the interior, in each dimension.
    pub fn ghost_high(&self) -> Dims {
        (0..self.ndim()).map(|d| self.high(d)).collect()
    }

    /// The extents of the array as it is stored, ghosts included.
    pub fn stored_shape(&self) -> Dims {
        (0..self.ndim()).map(|d| self.shape()[d] + self.low(d) + self.high(d)).collect()
    }

    /// Bytes of the array as it is stored.
    pub fn bytes(&self, dtype: Dtype) -> Result<u64> {
        let shape = self.stored_shape();
        if shape.contains(&0) {
            return Ok(0);
        }
        shape.iter().try_fold(dtype.size() as u64, |bytes, n| bytes.checked_mul(*n)).ok_or_else(|| {
            Error::out_of_bounds(format!("a block of shape {shape:?} of {dtype} has more than 2^64 bytes"))
        })
    }

    /// Bytes of the interior, of a block whose array is known to be possible.
    pub fn interior_bytes(&self, dtype: Dtype) -> u64 {
        self.shape().iter().product::<u64>() * dtype.size() as u64
    }

    /// The interior as a region of the global array, gaps included; for a block without a place, of itself.
    pub fn interior(&self) -> Region {
        let selection = self.selection();
        if !self.gaps {
            return Region::from_checked(selection.offset, selection.shape);
        }
        let span = (0..self.ndim()).map(|d| selection.extent(d).unwrap_or(0)).collect();
        Region::from_checked(selection.offset, span)
    }

    /// The elements of the interior as a selection of the global array; for a block without a place, of itself.
    pub fn selection(&self) -> Selection {
        let zero = [0; MAX_NDIM];
        let offset = self.offset().unwrap_or(&zero[..self.ndim()]);
        let step = self.step().map_or_else(|| self.shape().iter().map(|_| 1).collect(), Dims::from);
        Selection { offset: offset.into(), shape: self.shape().into(), step }
    }
}

/// Where a block's bytes are. An arena is named by its number on its server, a range by the
/// generation of its handle, so that a stale one is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// The server that holds it.
    pub server: ServerId,
    /// The arena on that server.
    pub arena: u32,
    /// Where it starts in the arena, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Tells this use of the range from earlier ones.
    pub generation: u64,
}

/// All that a directory keeps of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockRecord {
    /// Which block of its field it is.
    pub key: BlockKey,
    /// Refinement level.
    pub level: u32,
    /// Its box.
    pub extent: Extent,
    /// Where its bytes are.
    pub location: Location,
    /// The bytes themselves, if they are few.
    pub inline: Option<Box<[u8]>>,
    /// Statistics, if they were asked for.
    pub stats: Option<Arc<BlockStats>>,
}

impl BlockRecord {
    /// Bytes that it holds besides itself, with an allocator's overhead; bytes of the block are not counted.
    pub fn heap_bytes(&self) -> usize {
        let stats = self.stats.as_ref().map_or(0, |stats| size_of::<BlockStats>() + stats.tiles.len() + 32);
        self.extent.values.len() * 8 + 16 + stats
    }
}

/// Blocks of up to this many bytes travel inside messages and are kept beside their record.
pub const INLINE_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_ghosts_knows_its_interior() {
        let extent = Extent::new(Some(&[10, 20]), &[4, 6], &[1, 0], &[2, 3]).unwrap();
        assert_eq!(extent.stored_shape()[..], [7, 9]);
        assert_eq!(extent.bytes(Dtype::F64).unwrap(), 7 * 9 * 8);
        let parts: ExtentParts = extent.clone().into();
        assert_eq!(Extent::try_from(parts).unwrap(), extent);
    }

    #[test]
    fn a_part_with_gaps_knows_where_its_elements_lie() {
        let extent = Extent::with_gaps(&[10, 20], &[3, 1], &[4, 1]).unwrap();
        assert_eq!(extent.interior(), Region::new(&[10, 20], &[9, 1]).unwrap());
        assert_eq!(extent.bytes(Dtype::F64).unwrap(), 3 * 8);
        assert_eq!((extent.step(), extent.has_ghosts()), (Some(&[4, 1][..]), false));
        let parts: ExtentParts = extent.clone().into();
        assert_eq!(Extent::try_from(parts).unwrap(), extent);
    }

    #[test]
    fn bad_boxes_are_refused() {
        assert!(Extent::new(Some(&[0]), &[1, 2], &[], &[]).is_err());
        assert!(Extent::new(None, &[1, 2], &[1], &[]).is_err());
        assert!(Extent::new(None, &[u64::MAX], &[1], &[]).is_err());
        assert!(Extent::new(Some(&[u64::MAX]), &[1], &[], &[]).is_err());
        assert!(Extent::new(None, &[1 << 62], &[], &[]).unwrap().bytes(Dtype::F64).is_err());
        assert!(Extent::with_gaps(&[0], &[3], &[0]).is_err());
        assert!(Extent::with_gaps(&[0], &[3], &[u64::MAX]).is_err());
        assert!(Extent::with_gaps(&[u64::MAX - 3], &[3], &[2]).is_err());
        assert!(Extent::with_gaps(&[0, 0], &[3], &[2]).is_err());
        let ghosts = Some((Dims::from(&[1][..]), Dims::from(&[0][..])));
        let one = |n: u64| Dims::from(&[n][..]);
        assert!(Extent::try_from((one(3), Some(one(0)), Some(one(2)), ghosts)).is_err());
        assert!(Extent::try_from((one(3), None, Some(one(2)), None)).is_err());
        assert_eq!(Extent::new(None, &[0, u64::MAX], &[], &[]).unwrap().bytes(Dtype::F64).unwrap(), 0);
    }

    #[test]
    fn a_record_of_a_3d_block_is_small() {
        // The directory's bar is 256 bytes a block; the allocator rounds up and adds a little.
        let extent = Extent::new(Some(&[0; 3]), &[8; 3], &[1; 3], &[1; 3]).unwrap();
        let heap = extent.values.len() * 8 + 16;
        assert!(size_of::<BlockRecord>() + heap <= 256, "{} + {heap}", size_of::<BlockRecord>());
    }
}
