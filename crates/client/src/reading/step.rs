//! A step as a reader holds it.

use crate::check_dtype::check_dtype;
use crate::connection::rpc::lock;
use crate::holes::Holes;
use crate::reading::assemble;
use crate::reading::block_bytes::BytesSource;
use crate::reading::block_lookup::{LookupCache, Records, find_records};
use crate::reading::block_view::{BlockBytes, BlockView};
use crate::reading::buffers::Buffer;
use crate::reading::held_steps::{HeldSteps, Hold, StepSource};
use crate::reading::seat::Seat;
use crate::reading::seen::{SeenBlock, check_needed, needed, seen_of};
use crate::reading::share::Share;
use crate::reading::statics::{RunStatics, StaticFields};
use forebay_core::attr::Attrs;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::{Epoch, StepId, StepNumber};
use forebay_core::region::Region;
use forebay_core::selection::Selection;
use forebay_core::stats::Stats;
use forebay_core::steps::{AttachmentId, FieldReport, StepReport};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::Element;
use forebay_store::strided::Target;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A closed step. Its blocks stay as they are while it, or a view of one of them, lives.
#[derive(Debug)]
pub struct Step {
    held: Arc<HeldSteps>,
    report: Arc<StepReport>,
    attrs: Arc<Attrs>,
    /// The static fields of its run.
    statics: Option<Arc<StaticFields>>,
    holds: Mutex<Option<Holds>>,
    /// Which rank of a parallel reader has it.
    pub(super) seat: Option<Arc<Seat>>,
    lookups: Mutex<LookupCache>,
}

/// What keeps the blocks of a step, and those of static fields.
#[derive(Debug, Clone)]
struct Holds {
    step: Arc<Hold>,
    statics: Arc<Hold>,
}

impl Step {
    pub(crate) fn new(
        hold: Arc<Hold>,
        mut report: StepReport,
        attrs: Arc<Attrs>,
        statics: Option<RunStatics>,
    ) -> Step {
        let attrs = match report.own_attrs.take() {
            Some(own) => Arc::new(attrs.with_those_of_step(&own)),
            None => attrs,
        };
        let held = hold.held().clone();
        let (statics, of_statics) = statics.map(|statics| (statics.fields, statics.hold)).unzip();
        let holds = Holds { statics: of_statics.flatten().unwrap_or_else(|| hold.clone()), step: hold };
        Step {
            held,
            report: Arc::new(report),
            attrs,
            statics,
            holds: Mutex::new(Some(holds)),
            seat: None,
            lookups: Mutex::default(),
        }
    }

    /// The same, of a rank of a parallel reader.
    pub(crate) fn with_seat(mut self, seat: Option<Arc<Seat>>) -> Step {
        self.seat = seat;
        self
    }

    /// Its number, as the producer gave it.
    pub fn number(&self) -> StepNumber {
        self.report.id.step
    }

    /// All that was told of it but for static fields, which belong to its run.
    pub fn report(&self) -> &StepReport {
        &self.report
    }

    /// The attributes of the step, of its run and of the run's fields, as far as they were set when the step was told.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// What keeps the blocks of one of its fields.
    pub(super) fn hold_of(&self, field: &Field) -> Result<Arc<Hold>> {
        let Holds { step, statics } = self.holds()?;
        Ok(if field.is_static { statics } else { step })
    }

    fn holds(&self) -> Result<Holds> {
        lock(&self.holds).clone().ok_or_else(|| {
            Error::new(
                ErrorKind::Closed,
                format!("{} was released: read it before you go on to the next", self.report.id),
            )
        })
    }

    /// Its fields, and the static ones of its run.
    pub fn fields(&self) -> impl Iterator<Item = &FieldReport> {
        let statics = self.statics.iter().flat_map(|statics| &statics.fields);
        self.report.fields.iter().chain(statics)
    }

    fn find(&self, name: &str) -> Result<&FieldReport> {
        self.fields().find(|found| found.field.name == name).ok_or_else(|| {
            let known: Vec<_> = self.fields().map(|found| &found.field.name[..]).collect();
            Error::not_found(format!(
                "field '{name}' is not part of {}; it has {}. Is the field in the contract, with a period that meets this \
                 step, and did a rank put it? (An event brings the fields that its text names.)",
                self.report.id,
                if known.is_empty() { "none".into() } else { known.join(", ") }
            ))
        })
    }

    /// A field of which the reader needs more than statistics.
    pub(super) fn find_data(&self, name: &str) -> Result<&FieldReport> {
        let found = self.find(name)?;
        if found.stats_alone {
            return Err(Error::new(
                ErrorKind::NotCovered,
                format!("field '{name}' at {}: this reader needs its statistics alone", self.report.id),
            ));
        }
        Ok(found)
    }

    /// The statistics of a whole field at this step, of all its blocks of level 0, if this reader needs them. Moves no data.
    pub fn stats(&self, name: &str) -> Result<Option<Stats>> {
        Ok(self.find(name)?.stats.as_deref().copied())
    }

    /// The error for statistics of a field that this reader has not asked for, or that it has none of.
    pub fn has_no_stats(&self, name: &str) -> Error {
        let text = format!(
            "field '{name}' at {}: there are no statistics of it; they are asked for in the contract, of the whole field, and \
             complex numbers have none",
            self.report.id
        );
        Error::new(ErrorKind::NotCovered, text)
    }

    /// A field as it is at this step.
    pub fn field(&self, name: &str) -> Result<&Field> {
        Ok(&self.find(name)?.field)
    }

    /// The records of a field's blocks, without their bytes: of what the reader needs, each cut to that. In runs of many ranks the
    /// servers that know them are asked, once for each step and field.
    pub fn records(&self, name: &str) -> Result<Records<'_>> {
        self.held.guard.check("consumer")?;
        let found = self.find_data(name)?;
        let records = self.lookup_needed(found)?;
        if found.part.is_none() {
            return Ok(records);
        }
        let element = found.field.dtype.size() as u64;
        let seen = seen_of(found, &records);
        Ok(Records::Asked(Arc::new(seen.iter().map(|block| block.as_record(element)).collect())))
    }

    /// Views of a field's blocks, each cut to what the reader needs. On the holder's host no byte is copied, unless what is needed
    /// of a block lies apart in it; over the network it is fetched. `only` chooses by record.
    pub fn blocks(&self, name: &str, only: impl Fn(&BlockRecord) -> bool) -> Result<Vec<BlockView>> {
        self.held.guard.check("consumer")?;
        let found = self.find_data(name)?;
        let hold = self.hold_of(&found.field)?;
        let records = self.lookup_needed(found)?;
        let seen = seen_of(found, &records);
        let chosen = seen.iter().filter(|block| only(block.record));
        chosen.map(|block| self.view(&found.field, block, &hold)).collect()
    }

    /// A view of one block of a field, by its place among the records.
    pub fn block(&self, name: &str, index: usize) -> Result<BlockView> {
        self.held.guard.check("consumer")?;
        let found = self.find_data(name)?;
        let hold = self.hold_of(&found.field)?;
        let records = self.lookup_needed(found)?;
        let seen = seen_of(found, &records);
        let block = seen.get(index).ok_or_else(|| {
            let count = seen.len();
            Error::not_found(format!("field '{name}' has no block {index}: it has {count}, counted from 0"))
        })?;
        self.view(&found.field, block, &hold)
    }

    /// In a worker: views of those of a field's blocks that are its share.
    pub fn own_blocks(&self, name: &str, share: &Share) -> Result<Vec<BlockView>> {
        self.held.guard.check("consumer")?;
        let found = self.find_data(name)?;
        let hold = self.hold_of(&found.field)?;
        let records = match share.beside_all {
            true => Records::Told(&found.blocks),
            false => self.lookup_needed(found)?,
        };
        let seen = seen_of(found, &records);
        let own = seen.iter().filter(|block| share.has(block.record.location.server));
        own.map(|block| self.view(&found.field, block, &hold)).collect()
    }

    /// A field, and the records of those of its blocks of which the reader may need something.
    pub(super) fn found_records(&self, name: &str) -> Result<(&FieldReport, Records<'_>)> {
        self.held.guard.check("consumer")?;
        let found = self.find_data(name)?;
        Ok((found, self.lookup_needed(found)?))
    }

    /// The records of those of a field's blocks of which the reader may need something.
    fn lookup_needed<'a>(&self, found: &'a FieldReport) -> Result<Records<'a>> {
        let span = needed(found).and_then(|needed| found.field.span_of(&needed).ok());
        self.lookup(found, span.as_ref())
    }

    /// The records of a field's blocks, or of those that meet a region: as they were told with the step, and
    /// as the owners of the field's tiles know them.
    fn lookup<'a>(&self, found: &'a FieldReport, region: Option<&Region>) -> Result<Records<'a>> {
        if found.registered == 0 {
            return Ok(Records::Told(&found.blocks));
        }
        // Only while it is held do the owners know it.
        let hold = self.hold_of(&found.field)?;
        let (id, lookups, _) = self.told_of(&found.field);
        if let Some(records) = lock(lookups).get(&found.field.name, region) {
            return Ok(Records::Asked(records));
        }
        let records = Arc::new(find_records(&self.held.pool, id, found, region)?);
        if region.is_none() {
            let asked: u64 = records.iter().map(|record| record.location.bytes).sum();
            hold.bytes.fetch_add(asked, Ordering::Relaxed);
        }
        lock(lookups).put(&found.field.name, region, records.clone());
        Ok(Records::Asked(records))
    }

    /// What a field is held under, what was asked of its blocks, and in which term it was told.
    fn told_of(&self, field: &Field) -> (&StepId, &Mutex<LookupCache>, Epoch) {
        match self.statics.as_deref().filter(|_| field.is_static) {
            Some(statics) => (&statics.id, &statics.lookups, statics.term),
            None => (&self.report.id, &self.lookups, self.report.term),
        }
    }

    pub(super) fn view(&self, field: &Field, block: &SeenBlock<'_>, hold: &Arc<Hold>) -> Result<BlockView> {
        let bytes = self.bytes_of(field, block, hold)?;
        Ok(BlockView { field: field.clone(), record: block.as_record(field.dtype.size() as u64), bytes })
    }

    /// Room for bytes that are copied.
    pub(super) fn buffer(&self, bytes: usize) -> Buffer {
        self.held.pool.buffers.take(bytes)
    }

    /// The bytes of what is seen of a block.
    pub(super) fn bytes_of(
        &self,
        field: &Field,
        block: &SeenBlock<'_>,
        hold: &Arc<Hold>,
    ) -> Result<BlockBytes> {
        let element = field.dtype.size() as u64;
        BytesSource { pool: &self.held.pool, term: self.told_of(field).2, hold, element }.bytes(block)
    }

    /// Whether a block lies in memory of this host.
    pub(super) fn is_here(&self, field: &Field, record: &BlockRecord) -> Result<bool> {
        Ok(self.held.pool.arena(&record.location, self.told_of(field).2)?.is_some())
    }

    /// The server that told a consumer of it, and as which attachment.
    pub(super) fn consumer_source(&self) -> Option<(StepSource, AttachmentId)> {
        let source = self.held.source();
        let attachment = source.attachment()?;
        Some((source, attachment))
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
        let found = self.find_data(name)?;
        let _hold = self.hold_of(&found.field)?;
        let records = self.lookup(found, Some(&found.field.span_of(selection)?))?;
        let from = self.source_of(&found.field);
        check_needed(&from.step, found, selection)?;
        let read = assemble::read(&from, &found.field, &records, selection, holes, target);
        read.map_err(|error| self.explained(error))
    }

    /// What the blocks of a field are read from.
    pub(super) fn source_of(&self, field: &Field) -> assemble::BlockSource<'_> {
        let (id, _, term) = self.told_of(field);
        assemble::BlockSource { pool: &self.held.pool, step: id.to_string(), term }
    }

    /// Says why something of a step was not put, where that is known.
    pub(super) fn explained(&self, mut error: Error) -> Error {
        if error.kind == ErrorKind::NotCovered {
            error.text += match self.report.torn {
                true => " (the step is torn: a rank died in it, or left it out)",
                false => " (no rank put it, or no contract of a reader that was there then asked for it)",
            };
        }
        error
    }

    /// As [`Step::read`], into new memory: dense, row-major.
    pub fn read_values<T: Element>(&self, name: &str, selection: &Selection) -> Result<Vec<T>> {
        // Before memory is made for it, the selection is known to lie in the field.
        let field = self.field(name)?;
        check_dtype(field, Some(T::DTYPE))?;
        field.span_of(selection)?;
        let mut values = vec![T::default(); selection.shape.iter().product::<u64>() as usize];
        self.read(name, selection, &mut Target::of(&mut values, &selection.shape)?)?;
        Ok(values)
    }

    /// Which of the selected elements of a field were put, as disjoint boxes of the selection. Moves no data.
    pub fn covered(&self, name: &str, selection: &Selection) -> Result<Vec<Region>> {
        self.held.guard.check("consumer")?;
        let found = self.find_data(name)?;
        let _hold = self.hold_of(&found.field)?;
        let records = self.lookup(found, Some(&found.field.span_of(selection)?))?;
        check_needed(&self.report.id.to_string(), found, selection)?;
        let parts = assemble::covered(&found.field, &records, selection)?;
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    /// Which part of a field this reader's contract asks for, if not all. Moves no data.
    pub fn needed(&self, name: &str) -> Result<Option<Selection>> {
        Ok(needed(self.find_data(name)?))
    }

    /// Whether all the selected elements of a field were put: an error says which were not. Moves no data.
    pub fn check_covered(&self, name: &str, selection: &Selection) -> Result<()> {
        self.held.guard.check("consumer")?;
        let found = self.find_data(name)?;
        let _hold = self.hold_of(&found.field)?;
        let records = self.lookup(found, Some(&found.field.span_of(selection)?))?;
        let (id, ..) = self.told_of(&found.field);
        check_needed(&id.to_string(), found, selection)?;
        let covered = assemble::parts(&id.to_string(), &found.field, &records, selection);
        covered.map(drop).map_err(|error| self.explained(error))
    }

    /// Has finished with the step: the next one may come. Views of its blocks stay valid while they live.
    /// Dropping the step does the same. Does not wait.
    pub fn release(&self) {
        if self.held.guard.is_child() {
            return;
        }
        let Some(Holds { step, statics }) = lock(&self.holds).take() else { return };
        let own = 1 + usize::from(Arc::ptr_eq(&step, &statics));
        if Arc::strong_count(&step) > own {
            step.pin();
        }
        // First the step: while a server knows that this reader has one of a run, it does not let go of that run's static fields.
        drop(step);
        drop(statics);
    }

    /// Releases the step, but has not finished with it: where readers share steps, another one is given it (or this one, if there is
    /// no other), told with `attempt`. Of others, the next of their name begins there (start 'resume'), unless this one finishes
    /// with a later step. Does not wait.
    pub fn give_back(&self) {
        if self.held.guard.is_child() {
            return;
        }
        if let Some(holds) = &*lock(&self.holds) {
            holds.step.give_back();
        }
        self.release();
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.give_back();
        } else {
            self.release();
        }
    }
}
