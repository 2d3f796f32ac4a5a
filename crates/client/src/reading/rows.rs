//! Fields without a global shape as one: the rows of all their blocks, one after another; and the bounds of ranks.

use crate::check_dtype::check_dtype;
use crate::holes::Holes;
use crate::rank_bounds::{RANK_BOUNDS, RankBounds};
use crate::reading::assemble;
use crate::reading::step::Step;
use forebay_core::block::{BlockRecord, Extent};
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::region::Dims;
use forebay_core::selection::Selection;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Target;
use std::collections::BTreeMap;

impl Step {
    /// How many rows a field without a global shape has: elements of the first dimension, in all blocks of level 0, without ghosts.
    /// Of a particle species these are its particles. Moves no data.
    pub fn row_count(&self, name: &str) -> Result<u64> {
        Ok(self.in_rows(name)?.0.shape.and_then(|shape| shape.first().copied()).unwrap_or(0))
    }

    /// Copies rows from the one of this number on into `target`, whose first extent says how many; its others are those of a row.
    /// They are counted from 0 over all blocks, in the order of ranks and of numbers. Only what is read is fetched.
    pub fn read_rows(&self, name: &str, first: u64, target: &mut Target<'_>) -> Result<()> {
        let (field, records) = self.in_rows(name)?;
        let _hold = self.hold_of(&field)?;
        let shape: Dims = target.shape().into();
        let mut offset: Dims = shape.iter().map(|_| 0).collect();
        if let Some(row) = offset.first_mut() {
            *row = first;
        }
        let step = shape.iter().map(|_| 1).collect();
        let selection = Selection { offset, shape, step };
        field.span_of(&selection)?;
        assemble::read(&self.source_of(&field), &field, &records, &selection, Holes::Refused, target)
            .map_err(|error| self.explained(error))
    }

    /// A field whose blocks are placed one after another, and these.
    fn in_rows(&self, name: &str) -> Result<(Field, Vec<BlockRecord>)> {
        let (found, records) = self.found_records(name)?;
        let field = &found.field;
        let fail = |text: &str| Err(Error::invalid(format!("field '{name}': {text}")));
        if field.shape.is_some() {
            return fail("it has a global shape: read a region of it");
        }
        if field.ndim == 0 {
            return fail("it is a single number for each block, and has no rows: read its blocks");
        }
        let mut blocks: Vec<&BlockRecord> = records.iter().filter(|record| record.level == 0).collect();
        blocks.sort_by_key(|record| record.key);
        let (mut rows, mut of_row, mut placed) = (0, None, Vec::new());
        for block in blocks {
            let extent = &block.extent;
            let Some((count, row)) = extent.shape().split_first() else { continue };
            if *of_row.get_or_insert(row) != row {
                return fail("its blocks differ beyond their first dimension: read them one by one");
            }
            let mut offset: Dims = extent.shape().iter().map(|_| 0).collect();
            if let Some(first) = offset.first_mut() {
                *first = rows;
            }
            rows += count;
            let extent =
                Extent::new(Some(&offset), extent.shape(), &extent.ghost_low(), &extent.ghost_high())?;
            placed.push(BlockRecord { extent, ..block.clone() });
        }
        let none = vec![0; usize::from(field.ndim) - 1];
        let shape = std::iter::once(&rows).chain(of_row.unwrap_or(&none)).copied().collect();
        Ok((Field { shape: Some(shape), ..field.clone() }, placed))
    }

    /// Which part of space each rank has that said so. `ErrorKind::NotCovered` if the reader's contract does not name them.
    pub fn rank_bounds(&self) -> Result<BTreeMap<u32, RankBounds>> {
        let (field, records) = self.in_rows(RANK_BOUNDS).map_err(|error| match error.kind {
            ErrorKind::NotFound => Error::new(
                ErrorKind::NotCovered,
                format!(
                    "{}: no rank says which part of space it has, or the contract does not name '{RANK_BOUNDS}'",
                    self.report().id
                ),
            ),
            _ => error,
        })?;
        let shape = field.shape.clone().unwrap_or_default();
        check_dtype(&field, Some(Dtype::F64))?;
        let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
        self.read_rows(RANK_BOUNDS, 0, &mut Target::of(&mut values, &shape)?)?;
        // Of each rank four rows.
        let of_rank = 4 * shape.last().copied().unwrap_or(0).max(1) as usize;
        let ranks = records.iter().map(|record| record.key.rank);
        Ok(ranks.zip(values.chunks_exact(of_rank).map(RankBounds::from_values)).collect())
    }
}
