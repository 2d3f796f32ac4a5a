//! A step as a reader holds it.

use crate::check_dtype::check_dtype;
use crate::connection::rpc::lock;
use crate::holes::Holes;
use crate::reading::assemble;
use crate::reading::block_lookup::{LookupCache, Records, find_records};
use crate::reading::block_view::{BlockBytes, BlockView, MappedBytes};
use crate::reading::buffers::Buffer;
use crate::reading::held_steps::{HeldSteps, Hold};
use crate::reading::selection::Selection;
use crate::reading::share::Share;
use forebay_core::attr::Attrs;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::StepNumber;
use forebay_core::region::{Dims, Region};
use forebay_core::steps::{FieldReport, StepReport};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::Element;
use forebay_store::strided::Target;
use forebay_wire::client::reading::Part;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A closed step. Its blocks stay as they are while it, or a view of one of them, lives.
#[derive(Debug)]
pub struct Step {
    held: Arc<HeldSteps>,
    report: Arc<StepReport>,
    attrs: Arc<Attrs>,
    hold: Mutex<Option<Arc<Hold>>>,
    lookups: Mutex<LookupCache>,
}

impl Step {
    pub(crate) fn new(held: Arc<HeldSteps>, report: StepReport, attrs: Arc<Attrs>) -> Step {
        let blocks = report.fields.iter().flat_map(|field| &field.blocks);
        let bytes = blocks.map(|block| block.location.bytes).sum();
        let hold = Hold::new(held.clone(), report.id.run, report.id.step, bytes);
        Step {
            held,
            report: Arc::new(report),
            attrs,
            hold: Mutex::new(Some(Arc::new(hold))),
            lookups: Mutex::default(),
        }
    }

    /// Its number, as the producer gave it.
    pub fn number(&self) -> StepNumber {
        self.report.id.step
    }

    /// All that was told of it.
    pub fn report(&self) -> &StepReport {
        &self.report
    }

    /// The attributes of its run and the run's fields, as far as they were set when the step was told.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn hold(&self) -> Result<Arc<Hold>> {
        lock(&self.hold).clone().ok_or_else(|| {
            Error::new(
                ErrorKind::Closed,
                format!("{} was released: read it before you go on to the next", self.report.id),
            )
        })
    }

    fn find(&self, name: &str) -> Result<&FieldReport> {
        self.report.fields.iter().find(|found| found.field.name == name).ok_or_else(|| {
            let known: Vec<_> = self.report.fields.iter().map(|found| &found.field.name[..]).collect();
            Error::not_found(format!(
                "field '{name}' is not part of {}; it has {}. Is the field in the contract, with a period that meets this \
                 step, and did a rank put it?",
                self.report.id,
                if known.is_empty() { "none".into() } else { known.join(", ") }
            ))
        })
    }

    /// A field as it is at this step.
    pub fn field(&self, name: &str) -> Result<&Field> {
        Ok(&self.find(name)?.field)
    }

    /// The records of a field's blocks, without their bytes. In runs of many ranks the servers that know them
    /// are asked, once for each step and field.
    pub fn records(&self, name: &str) -> Result<Records<'_>> {
        self.held.guard.check("consumer")?;
        self.lookup(self.find(name)?, None)
    }

    /// Views of a field's blocks. On the holder's host no byte is copied; over the network the block is fetched.
    /// `only` chooses by record.
    pub fn blocks(&self, name: &str, only: impl Fn(&BlockRecord) -> bool) -> Result<Vec<BlockView>> {
        self.held.guard.check("consumer")?;
        let hold = self.hold()?;
        let found = self.find(name)?;
        let records = self.lookup(found, None)?;
        let chosen = records.iter().filter(|record| only(record));
        chosen.map(|record| self.view(&found.field, record, &hold)).collect()
    }

    /// A view of one block of a field, by its place among the records.
    pub fn block(&self, name: &str, index: usize) -> Result<BlockView> {
        self.held.guard.check("consumer")?;
        let hold = self.hold()?;
        let found = self.find(name)?;
        let records = self.lookup(found, None)?;
        let record = records.get(index).ok_or_else(|| {
            let count = records.len();
            Error::not_found(format!("field '{name}' has no block {index}: it has {count}, counted from 0"))
        })?;
        self.view(&found.field, record, &hold)
    }

    /// In a worker: views of those of a field's blocks that are its share.
    pub fn own_blocks(&self, name: &str, share: &Share) -> Result<Vec<BlockView>> {
        self.held.guard.check("consumer")?;
        let hold = self.hold()?;
        let found = self.find(name)?;
        let records = match share.beside_all {
            true => Records::Told(&found.blocks),
            false => self.lookup(found, None)?,
        };
        let own = records.iter().filter(|record| share.has(record.location.server));
        own.map(|record| self.view(&found.field, record, &hold)).collect()
    }

    /// The records of a field's blocks, or of those that meet a region: as they were told with the step, and
    /// as the owners of the field's tiles know them.
    fn lookup<'a>(&self, found: &'a FieldReport, region: Option<&Region>) -> Result<Records<'a>> {
        if found.registered == 0 {
            return Ok(Records::Told(&found.blocks));
        }
        // Only while the step is held do the owners know it.
        let _hold = self.hold()?;
        if let Some(records) = lock(&self.lookups).get(&found.field.name, region) {
            return Ok(Records::Asked(records));
        }
        let records = Arc::new(find_records(&self.held.pool, &self.report.id, found, region)?);
        if region.is_none() {
            let hold = self.hold()?;
            let asked: u64 = records.iter().map(|record| record.location.bytes).sum();
            hold.bytes.fetch_add(asked, Ordering::Relaxed);
        }
        lock(&self.lookups).put(&found.field.name, region, records.clone());
        Ok(Records::Asked(records))
    }

    fn view(&self, field: &Field, record: &BlockRecord, hold: &Arc<Hold>) -> Result<BlockView> {
        let (field, record) = (field.clone(), record.clone());
        if let Some(inline) = &record.inline {
            let bytes = BlockBytes::Owned(Arc::new(Buffer::own(inline.to_vec())));
            return Ok(BlockView { field, record, bytes });
        }
        let (offset, bytes) = (record.location.offset, record.location.bytes);
        let pool = &self.held.pool;
        if let Some(arena) = pool.arena(&record.location, self.report.term)? {
            if pool.pins.must_copy(hold.bytes.load(Ordering::Relaxed)) {
                let mut copy = pool.buffers.take(bytes as usize);
                let (mapping, start) = arena.show_all(offset, bytes)?;
                mapping.read(start, copy.as_mut())?;
                return Ok(BlockView { field, record, bytes: BlockBytes::Owned(Arc::new(copy)) });
            }
            let (mapping, offset) = arena.show(offset, bytes)?;
            let mapped = MappedBytes { mapping, offset, bytes, _arena: arena, _hold: hold.clone() };
            return Ok(BlockView { field, record, bytes: BlockBytes::Mapped(Arc::new(mapped)) });
        }
        let stored = record.extent.stored_shape();
        let zero: Dims = stored.iter().map(|_| 0).collect();
        let one: Dims = stored.iter().map(|_| 1).collect();
        let part = Part { offset: zero, shape: stored.clone(), step: one };
        let mut fetched = pool.buffers.take(bytes as usize);
        pool.fetch(&record.location, &stored, field.dtype.size(), part, fetched.as_mut())?;
        Ok(BlockView { field, record, bytes: BlockBytes::Owned(Arc::new(fetched)) })
    }

    /// Copies exactly the selected elements of a field into `target`, or fails and says what is missing.
    pub fn read(&self, name: &str, selection: &Selection, target: &mut Target<'_>) -> Result<()> {
        self.read_with(name, selection, Holes::Refused, target)
    }

    /// The same; `holes` says what is done where nothing was put.
    pub fn read_with(
        &self,
        name: &str,
        selection: &Selection,
        holes: Holes,
        target: &mut Target<'_>,
    ) -> Result<()> {
        self.held.guard.check("consumer")?;
        let _hold = self.hold()?;
        let found = self.find(name)?;
        let records = self.lookup(found, Some(&selection.span(&found.field)?))?;
        let (step, term) = (self.report.id.to_string(), self.report.term);
        let from = assemble::BlockSource { pool: &self.held.pool, step, term };
        let read = assemble::read(&from, &found.field, &records, selection, holes, target);
        read.map_err(|error| self.explained(error))
    }

    /// Says why something of a step was not put, where that is known.
    fn explained(&self, mut error: Error) -> Error {
        if error.kind == ErrorKind::NotCovered && self.report.torn {
            error.text += " (the step is torn: a rank died in it, or left it out)";
        }
        error
    }

    /// As [`Step::read`], into new memory: dense, row-major.
    pub fn read_values<T: Element>(&self, name: &str, selection: &Selection) -> Result<Vec<T>> {
        // Before memory is made for it, the selection is known to lie in the field.
        let field = self.field(name)?;
        check_dtype(field, Some(T::DTYPE))?;
        selection.span(field)?;
        let mut values = vec![T::default(); selection.shape.iter().product::<u64>() as usize];
        self.read(name, selection, &mut Target::of(&mut values, &selection.shape)?)?;
        Ok(values)
    }

    /// Which of the selected elements of a field were put, as disjoint boxes of the selection. Moves no data.
    pub fn covered(&self, name: &str, selection: &Selection) -> Result<Vec<Region>> {
        self.held.guard.check("consumer")?;
        let _hold = self.hold()?;
        let found = self.find(name)?;
        let records = self.lookup(found, Some(&selection.span(&found.field)?))?;
        let parts = assemble::covered(&found.field, &records, selection)?;
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    /// Whether all the selected elements of a field were put: an error says which were not. Moves no data.
    pub fn check_covered(&self, name: &str, selection: &Selection) -> Result<()> {
        self.held.guard.check("consumer")?;
        let _hold = self.hold()?;
        let found = self.find(name)?;
        let records = self.lookup(found, Some(&selection.span(&found.field)?))?;
        let covered = assemble::parts(&self.report.id.to_string(), &found.field, &records, selection);
        covered.map(drop).map_err(|error| self.explained(error))
    }

    /// Has finished with the step: the next one may come. Views of its blocks stay valid while they live.
    /// Dropping the step does the same. Does not wait.
    pub fn release(&self) {
        if self.held.guard.is_child() {
            return;
        }
        if let Some(hold) = lock(&self.hold).take()
            && Arc::strong_count(&hold) > 1
        {
            hold.pin();
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.release();
    }
}
