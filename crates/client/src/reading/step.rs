//! A step as a reader holds it, and zero-copy views of its blocks.

use crate::assemble::{self, Selection};
use crate::buffers::Buffer;
use crate::consumer::Shared;
use crate::holder::ReadableArena;
use crate::lookup::{self, Asked, Records};
use crate::rpc::lock;
use forebay_core::attr::Attrs;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::region::{Dims, Region};
use forebay_core::steps::{FieldReport, StepReport};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::Mapping;
use forebay_store::strided::Target;
use forebay_wire::client::reading::Part;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A closed step. Its blocks stay as they are while it, or a view of one of them, lives.
#[derive(Debug)]
pub struct Step {
    shared: Arc<Shared>,
    report: Arc<StepReport>,
    attrs: Arc<Attrs>,
    hold: Mutex<Option<Arc<Hold>>>,
    asked: Mutex<Asked>,
}

/// Keeps a step's blocks: released when the last view is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    shared: Arc<Shared>,
    run: RunNumber,
    step: StepNumber,
    /// Bytes of the blocks that it keeps, as far as they are known.
    bytes: AtomicU64,
    /// What is counted as pinned, once the step was released while views of it live.
    pinned: AtomicU64,
}

impl Hold {
    /// The step is released, but views of it live.
    fn pin(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.pinned.store(bytes, Ordering::Relaxed);
        self.shared.holders.pins.pin(bytes);
        self.shared.pin(self.run, self.step);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there.
        if self.shared.guard.is_child() {
            return;
        }
        self.shared.holders.pins.unpin(self.pinned.load(Ordering::Relaxed));
        self.shared.release(self.run, self.step);
    }
}

/// One block of a step, with a view of its bytes: dense, row-major, ghosts included, read-only.
#[derive(Debug, Clone)]
pub struct BlockView {
    /// Its field, as it is at this step.
    pub field: Field,
    /// Its box and the rest.
    pub record: BlockRecord,
    /// Its bytes.
    pub bytes: BlockBytes,
}

/// The bytes of a block. Cloning copies nothing.
#[derive(Debug, Clone)]
pub enum BlockBytes {
    /// In an arena, mapped: no copy was made.
    Mapped(Arc<MappedBytes>),
    /// In this process: small, fetched over the network, or copied since earlier steps pin too much.
    Owned(Arc<Buffer>),
}

/// A range of a mapped arena and the hold on it.
#[derive(Debug)]
pub struct MappedBytes {
    mapping: Arc<Mapping>,
    offset: u64,
    bytes: u64,
    _arena: Arc<ReadableArena>,
    _hold: Arc<Hold>,
}

/// Which blocks of a step are a worker's: those of the server beside it, and an equal share of what servers hold that have
/// no worker, since it has just come, is ending, or the server is gone and others answer for it.
#[derive(Debug, Clone)]
pub struct Share {
    pub(crate) own: ServerId,
    /// The servers of all workers that take part, in the order of their ranks.
    pub(crate) servers: Vec<ServerId>,
    /// Whether all blocks are on these: then nobody needs to be asked for any.
    pub(crate) beside_all: bool,
}

impl Share {
    fn has(&self, holder: ServerId) -> bool {
        let takes = match self.servers.contains(&holder) {
            true => Some(holder),
            false => self.servers.get(holder.0 as usize % self.servers.len().max(1)).copied(),
        };
        takes == Some(self.own)
    }
}

impl BlockBytes {
    /// The address of the first byte and the length. The address is valid, and the bytes stay as they are,
    /// while this or a clone of it lives.
    pub fn as_raw(&self) -> Result<(*const u8, usize)> {
        match self {
            BlockBytes::Mapped(mapped) => {
                Ok((mapped.mapping.address(mapped.offset, mapped.bytes)?, mapped.bytes as usize))
            }
            BlockBytes::Owned(bytes) => Ok((bytes.as_ptr(), bytes.len())),
        }
    }
}

impl Step {
    pub(crate) fn new(shared: Arc<Shared>, report: StepReport, attrs: Arc<Attrs>) -> Step {
        lock(&shared.held).insert((report.id.run, report.id.step), false);
        let blocks = report.fields.iter().flat_map(|field| &field.blocks);
        let bytes = blocks.map(|block| block.location.bytes).sum();
        let hold = Hold {
            shared: shared.clone(),
            run: report.id.run,
            step: report.id.step,
            bytes: AtomicU64::new(bytes),
            pinned: AtomicU64::new(0),
        };
        Step {
            shared,
            report: Arc::new(report),
            attrs,
            hold: Mutex::new(Some(Arc::new(hold))),
            asked: Mutex::default(),
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
        self.shared.guard.check("consumer")?;
        self.lookup(self.find(name)?, None)
    }

    /// Views of a field's blocks. On the holder's host no byte is copied; over the network the block is fetched.
    /// `only` chooses by record.
    pub fn blocks(&self, name: &str, only: impl Fn(&BlockRecord) -> bool) -> Result<Vec<BlockView>> {
        self.shared.guard.check("consumer")?;
        let hold = self.hold()?;
        let found = self.find(name)?;
        let records = self.lookup(found, None)?;
        let chosen = records.iter().filter(|record| only(record));
        chosen.map(|record| self.view(&found.field, record, &hold)).collect()
    }

    /// A view of one block of a field, by its place among the records.
    pub fn block(&self, name: &str, index: usize) -> Result<BlockView> {
        self.shared.guard.check("consumer")?;
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
        self.shared.guard.check("consumer")?;
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
        if let Some(records) = lock(&self.asked).get(&found.field.name, region) {
            return Ok(Records::Asked(records));
        }
        let records = Arc::new(lookup::records(&self.shared.holders, &self.report.id, found, region)?);
        if region.is_none() {
            let hold = self.hold()?;
            let asked: u64 = records.iter().map(|record| record.location.bytes).sum();
            hold.bytes.fetch_add(asked, Ordering::Relaxed);
        }
        lock(&self.asked).put(&found.field.name, region, records.clone());
        Ok(Records::Asked(records))
    }

    fn view(&self, field: &Field, record: &BlockRecord, hold: &Arc<Hold>) -> Result<BlockView> {
        let (field, record) = (field.clone(), record.clone());
        if let Some(inline) = &record.inline {
            let bytes = BlockBytes::Owned(Arc::new(Buffer::own(inline.to_vec())));
            return Ok(BlockView { field, record, bytes });
        }
        let (offset, bytes) = (record.location.offset, record.location.bytes);
        let holders = &self.shared.holders;
        if let Some(arena) = holders.arena(&record.location, self.report.term)? {
            if holders.pins.must_copy(hold.bytes.load(Ordering::Relaxed)) {
                let mut copy = holders.buffers.take(bytes as usize);
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
        let mut fetched = holders.buffers.take(bytes as usize);
        holders.fetch(&record.location, &stored, field.dtype.size(), part, fetched.as_mut())?;
        Ok(BlockView { field, record, bytes: BlockBytes::Owned(Arc::new(fetched)) })
    }

    /// Copies exactly the selected elements of a field into `target`, or fails and says what is missing.
    pub fn read(&self, name: &str, selection: &Selection, target: &mut Target<'_>) -> Result<()> {
        self.shared.guard.check("consumer")?;
        let _hold = self.hold()?;
        let found = self.find(name)?;
        let records = self.lookup(found, Some(&selection.span(&found.field)?))?;
        let (step, term) = (self.report.id.to_string(), self.report.term);
        let from = assemble::Origin { holders: &self.shared.holders, step, term };
        let read = assemble::read(&from, &found.field, &records, selection, target);
        read.map_err(|error| match error.kind {
            ErrorKind::NotCovered if self.report.torn => {
                let text = format!("{} (the step is torn: a rank died in it, or left it out)", error.text);
                Error { text, ..error }
            }
            _ => error,
        })
    }

    /// Whether all the selected elements of a field were put: an error says which were not. Moves no data.
    pub fn check_covered(&self, name: &str, selection: &Selection) -> Result<()> {
        self.shared.guard.check("consumer")?;
        let _hold = self.hold()?;
        let found = self.find(name)?;
        let records = self.lookup(found, Some(&selection.span(&found.field)?))?;
        assemble::parts(&self.report.id.to_string(), &found.field, &records, selection).map(drop)
    }

    /// Has finished with the step: the next one may come. Views of its blocks stay valid while they live.
    /// Dropping the step does the same. Does not wait.
    pub fn release(&self) {
        if self.shared.guard.is_child() {
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
