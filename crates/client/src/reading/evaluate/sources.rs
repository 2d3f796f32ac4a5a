//! Where the elements of a domain are, and what is gathered of them.

use super::needed::{Needed, first_of};
use crate::holes::Holes;
use crate::reading::assemble;
use crate::reading::block_lookup::Records;
use crate::reading::block_view::BlockBytes;
use crate::reading::seen::{SeenBlock, check_needed};
use crate::reading::step::Step;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::region::{Dims, MAX_NDIM};
use forebay_core::selection::Selection;
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::gather::{Gathered, Question};
use forebay_query::plan::{Aggregate, Plan};
use forebay_query::syntax::Level;
use forebay_store::evaluate::{FieldArray, Window, gather};
use forebay_store::strided::Target;
use std::sync::Arc;

/// The fields of a domain, and where their blocks are.
pub(super) struct Sources<'a> {
    step: &'a Step,
    /// By the place of the field in the plan: those of the domain.
    fields: Vec<Option<(&'a Field, Records<'a>)>>,
    /// The first of them.
    first: usize,
    level: Level,
    /// The elements of the domain; `None` of blocks without a place, and of all levels.
    all: Option<Selection>,
    /// The extents of the whole array at this level.
    shape: Option<Dims>,
}

/// Elements of a block of the first field.
pub(super) struct Part {
    pub(super) selection: Selection,
    record: usize,
}

/// The bytes of a field that hold the elements of a part, and where they lie among all.
struct Held {
    bytes: BlockBytes,
    dtype: Dtype,
    origin: [i64; MAX_NDIM],
    shape: Dims,
}

impl<'a> Sources<'a> {
    pub(super) fn find(step: &'a Step, plan: &Plan, aggregate: &Aggregate) -> Result<Sources<'a>> {
        let domain = &plan.domains[aggregate.domain];
        let mut fields = Vec::with_capacity(plan.fields.len());
        let (mut first, mut all, mut shape) = (None, None, None);
        for (index, planned) in plan.fields.iter().enumerate() {
            if planned.domain != aggregate.domain {
                fields.push(None);
                continue;
            }
            let (found, records) = step.found_records(&planned.field.name)?;
            if first.is_none() {
                first = Some(index);
                all = domain.selection(&found.field).map_err(|why| why.error())?;
                shape = domain.shape_of(&found.field).map_err(|why| why.error())?;
            }
            if let Some(all) = &all {
                check_needed(&step.report().id.to_string(), found, all)?;
            }
            fields.push(Some((&found.field, records)));
        }
        let first = first.ok_or_else(|| Error::internal("an aggregate of no field"))?;
        Ok(Sources { step, fields, first, level: domain.level, all, shape })
    }

    fn field(&self, index: usize) -> Result<(&'a Field, &Records<'a>)> {
        let found = self.fields.get(index).and_then(Option::as_ref);
        found
            .map(|(field, records)| (*field, records))
            .ok_or_else(|| Error::internal("a field of another domain"))
    }

    pub(super) fn all_volume(&self) -> u64 {
        self.all.as_ref().map_or(0, Selection::volume)
    }

    /// Which elements lie in which block of the first field.
    pub(super) fn parts(&self) -> Result<Vec<Part>> {
        let (field, records) = self.field(self.first)?;
        let of_level = |record: &BlockRecord| match self.level {
            Level::One(level) => record.level == level,
            Level::All => true,
        };
        let whole = |record: &BlockRecord| Selection::region(&record.extent.interior());
        match (&self.all, self.level) {
            (Some(all), Level::One(0)) => {
                let mut parts = Vec::new();
                for (block, region) in assemble::covered(field, records, all)? {
                    let record =
                        records.iter().position(|record| std::ptr::eq(record, block)).unwrap_or_default();
                    parts.push(Part { selection: all.part(&region), record });
                }
                Ok(parts)
            }
            (Some(all), Level::One(_)) => {
                let each = records.iter().enumerate().filter(|(_, record)| of_level(record));
                let part = |(index, record): (usize, &BlockRecord)| {
                    Some(Part { selection: all.cut_to(&record.extent.interior())?, record: index })
                };
                Ok(each.filter_map(part).collect())
            }
            (_, _) => {
                let each = records.iter().enumerate().filter(|(_, record)| of_level(record));
                Ok(each.map(|(record, block)| Part { selection: whole(block), record }).collect())
            }
        }
    }

    pub(super) fn gather(&self, aggregate: &Aggregate, question: &Question, part: &Part) -> Result<Gathered> {
        let (_, records) = self.field(self.first)?;
        let record = &records[part.record];
        // Of all levels, and of blocks without a place, no neighbours are taken.
        let shape = self.shape.clone().unwrap_or_else(|| record.extent.stored_shape());
        let mut held: Vec<Option<Held>> = Vec::with_capacity(self.fields.len());
        for index in 0..self.fields.len() {
            let is_needed = aggregate.program.fields().contains(&(index as u16));
            held.push(if is_needed {
                Some(self.held(index, part, record, aggregate, &shape)?)
            } else {
                None
            });
        }
        with_all(&held, Vec::new(), &mut |arrays| {
            let window = Window {
                part: part.selection.clone(),
                all: self.all.clone().unwrap_or_else(|| part.selection.clone()),
                shape: shape.clone(),
                arrays,
                level: record.level,
                block: (record.extent.offset().is_none()).then_some(record.key),
            };
            gather(aggregate, question, &window)
        })
    }

    /// The elements of a field where those of a part lie, and the neighbours of those that a program takes.
    fn held(
        &self,
        index: usize,
        part: &Part,
        first: &BlockRecord,
        aggregate: &Aggregate,
        shape: &Dims,
    ) -> Result<Held> {
        let (field, records) = self.field(index)?;
        let needed = Needed::of(&part.selection, aggregate, index as u16, field, shape);
        let is_of_part = |record: &&BlockRecord| match &self.all {
            Some(_) => record.level == first.level && needed.lies_in(&record.extent),
            // Of all levels the blocks of fields lie at the same places, of those without a place they have the same numbers.
            None if first.extent.offset().is_some() => {
                record.level == first.level && record.extent.interior() == first.extent.interior()
            }
            None => record.key.is_of_block(&first.key) && record.extent.shape() == first.extent.shape(),
        };
        if let Some(record) = records.iter().find(is_of_part) {
            let hold = self.step.hold_of(field)?;
            let bytes = self.step.bytes_of(field, &SeenBlock { record, cut: None }, &hold)?;
            let origin = first_of(&record.extent);
            return Ok(Held { bytes, dtype: field.dtype, origin, shape: record.extent.stored_shape() });
        }
        if self.all.is_none() {
            let text = format!(
                "field '{}' has no block as {} of field '{}'",
                field.name,
                first.key,
                self.field(self.first)?.0.name
            );
            return Err(Error::new(ErrorKind::NotCovered, text));
        }
        self.assembled(field, records, first, &needed)
    }

    /// Copies elements that lie in several blocks.
    fn assembled(
        &self,
        field: &Field,
        records: &[BlockRecord],
        first: &BlockRecord,
        needed: &Needed,
    ) -> Result<Held> {
        if first.level != 0 {
            let text =
                format!("field '{}' lies otherwise than the others at level {}", field.name, first.level);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let volume = needed.shape.iter().product::<u64>() as usize;
        let mut buffer = self.step.buffer(volume * field.dtype.size());
        let from = self.step.source_of(field);
        for (from_array, region) in needed.pieces(field.shape.as_deref().unwrap_or_default()) {
            let mut all =
                Target::from_slice(buffer.as_mut(), &needed.shape, field.dtype.size())?.typed(field.dtype)?;
            let read =
                assemble::read(&from, field, records, &from_array, Holes::Refused, &mut all.part(&region)?);
            read.map_err(|error| self.step.explained(error))?;
        }
        let bytes = BlockBytes::Owned(Arc::new(buffer));
        Ok(Held { bytes, dtype: field.dtype, origin: needed.origin, shape: needed.shape.clone() })
    }
}

/// Gives the arrays of all fields together.
fn with_all<R>(
    held: &[Option<Held>],
    arrays: Vec<Option<FieldArray<'_>>>,
    use_them: &mut dyn FnMut(Vec<Option<FieldArray<'_>>>) -> Result<R>,
) -> Result<R> {
    let Some((next, rest)) = held.split_first() else { return use_them(arrays) };
    let Some(next) = next else {
        return with_all(rest, arrays.into_iter().chain([None]).collect(), use_them);
    };
    next.bytes.with(|bytes| {
        let (dtype, origin, shape) = (next.dtype, next.origin, next.shape.clone());
        let array = Some(FieldArray { bytes, dtype, origin, shape });
        with_all(rest, arrays.iter().cloned().chain([array]).collect(), use_them)
    })?
}
