//! Which elements are computed with, and where their bytes lie.

use forebay_core::dtype::Dtype;
use forebay_core::ids::BlockKey;
use forebay_core::region::{Dims, MAX_NDIM};
use forebay_core::selection::Selection;
use forebay_core::{Error, Result};
use forebay_query::pieces::{Piece, Source};
use forebay_query::plan::{Op, Program, Shift};

/// A dense, row-major array in memory, and where it lies among all elements.
#[derive(Debug, Clone)]
pub struct FieldArray<'a> {
    /// Its bytes, of any alignment.
    pub bytes: &'a [u8],
    /// The type of its elements.
    pub dtype: Dtype,
    /// The index of its first element; ghosts may lie before 0.
    pub origin: [i64; MAX_NDIM],
    /// Its extents.
    pub shape: Dims,
}

/// Some elements, and the arrays that hold them.
#[derive(Debug, Clone)]
pub struct Window<'a> {
    /// Which elements: by their indexes in the global array, or in the interior of a block without a place.
    pub part: Selection,
    /// All elements that the question is about, of this and other windows.
    pub all: Selection,
    /// The global shape, whose ends have no neighbours behind them; of a block without a place that of its interior.
    pub shape: Dims,
    /// By the place of the field in the plan: those that the program needs.
    pub arrays: Vec<Option<FieldArray<'a>>>,
    /// The refinement level.
    pub level: u32,
    /// The block, if it has no place in a global array.
    pub block: Option<BlockKey>,
}

impl<'a> Window<'a> {
    /// The elements of a piece, in these arrays of its sources.
    pub fn of(piece: &Piece, arrays: Vec<Option<FieldArray<'a>>>) -> Window<'a> {
        let Piece { part, all, shape, level, block, .. } = piece;
        Window {
            part: part.clone(),
            all: all.clone(),
            shape: shape.clone(),
            arrays,
            level: *level,
            block: *block,
        }
    }
}

impl Window<'_> {
    /// Checks that it has one number for each dimension everywhere.
    pub(super) fn check(&self) -> Result<()> {
        let ndim = self.part.shape.len();
        let fits = |dims: &Dims| dims.len() == ndim;
        if ndim > MAX_NDIM || ![&self.part.offset, &self.part.step, &self.shape].into_iter().all(fits) {
            return Err(Error::internal("a window whose dimensions differ"));
        }
        Ok(())
    }

    /// Checks that the arrays hold all that a program takes of them for some of the elements.
    pub(super) fn check_holds(&self, program: &Program, part: &Selection) -> Result<()> {
        for instruction in &program.instructions {
            if let Op::Load { field, shift, .. } = instruction.op {
                let array = self.arrays.get(usize::from(field)).and_then(Option::as_ref);
                let array =
                    array.ok_or_else(|| Error::internal(format!("field {field} of a plan is not there")))?;
                if !array.holds(part, shift) {
                    return Err(Error::internal(format!(
                        "the array of field {field} lacks elements of a window"
                    )));
                }
            }
        }
        Ok(())
    }
}

impl<'a> FieldArray<'a> {
    /// The array of a source, in these bytes.
    pub fn of(source: &Source, bytes: &'a [u8]) -> FieldArray<'a> {
        let mut origin = [0; MAX_NDIM];
        origin.iter_mut().zip(&source.origin).for_each(|(origin, first)| *origin = *first);
        FieldArray { bytes, dtype: source.dtype, origin, shape: source.shape.clone() }
    }
}

impl FieldArray<'_> {
    /// Whether its bytes are all there.
    pub(super) fn is_filled(&self) -> bool {
        let volume = self.shape.iter().try_fold(self.dtype.size() as u64, |volume, n| volume.checked_mul(*n));
        volume == Some(self.bytes.len() as u64)
    }

    /// Whether it holds all elements of a selection, or all neighbours of them.
    fn holds(&self, part: &Selection, shift: Option<Shift>) -> bool {
        if !self.is_filled() || self.shape.len() != part.shape.len() {
            return false;
        }
        part.volume() == 0
            || (0..part.shape.len()).all(|d| {
                let by =
                    shift.filter(|shift| usize::from(shift.dim) == d).map_or(0, |shift| i64::from(shift.by));
                let extent = part.extent(d).unwrap_or(u64::MAX);
                let first = i64::try_from(part.offset[d]).ok().and_then(|first| first.checked_add(by));
                let Some(first) = first.and_then(|first| first.checked_sub(self.origin[d])) else {
                    return false;
                };
                let end = u64::try_from(first).ok().and_then(|first| first.checked_add(extent));
                end.is_some_and(|end| end <= self.shape[d])
            })
    }

    /// How many elements lie from one to the next in a dimension.
    pub(super) fn stride(&self, dim: usize) -> u64 {
        self.shape[dim + 1..].iter().product()
    }

    /// How many elements lie before the one of this index.
    pub(super) fn place(&self, index: &[u64]) -> u64 {
        let each = index.iter().zip(&self.shape).zip(self.origin);
        each.fold(0, |place, ((index, extent), origin)| place * extent + (*index as i64 - origin) as u64)
    }
}
