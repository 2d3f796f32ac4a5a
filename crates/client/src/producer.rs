//! Producers: one rank of a simulation.

use crate::fork::ForkGuard;
use crate::group::{Group, GroupOptions};
use crate::particles::Species;
use crate::pending::Pending;
use crate::rpc::{Payload, Rpc, lock, unexpected};
use crate::typed::check_dtype;
use forebay_core::block::{Extent, INLINE_MAX, Stats};
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::directory::check_block_fits;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{Policy, RunOptions};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::ranges::RangeSet;
use forebay_store::strided::Source;
use forebay_store::{Access, Mapping, stats};
use forebay_wire::message::{Bytes, Grant, PutBlock, Role, ToClient, ToServer};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What a producer does when its servers are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// Goes on without staging, and counts the steps that were not staged. The default.
    #[default]
    Skip,
    /// Fails.
    Fail,
}

/// How to open a producer.
#[derive(Debug, Clone)]
pub struct ProducerOptions {
    /// The group.
    pub group: GroupOptions,
    /// The stream's name.
    pub stream: String,
    /// This rank.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// What happens to steps when readers or memory cannot keep up.
    pub policy: Policy,
    /// Closed steps to keep although nobody reads them.
    pub keep: u32,
    /// Bytes of closed steps that may wait for readers before the policy drops some; `None`: 1 GiB.
    pub queue_bytes: Option<u64>,
    /// The run, and the last step of it that is still true, that this one continues.
    pub continues: Option<(RunNumber, StepNumber)>,
    /// What to do when the servers are gone.
    pub on_loss: OnLoss,
}

impl ProducerOptions {
    /// One rank of one, with all defaults.
    pub fn new(stream: &str) -> ProducerOptions {
        ProducerOptions {
            group: GroupOptions::default(),
            stream: stream.to_owned(),
            rank: 0,
            size: 1,
            policy: Policy::default(),
            keep: 0,
            queue_bytes: None,
            continues: None,
            on_loss: OnLoss::default(),
        }
    }
}

/// A block that is put: its field, number and box.
#[derive(Debug, Clone)]
pub struct Block<'a> {
    /// The field.
    pub field: &'a str,
    /// Tells apart several blocks of one rank, field and step.
    pub number: u64,
    /// Refinement level.
    pub level: u32,
    /// Its box.
    pub extent: Extent,
}

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is held by a server, and survives this process.
    Staged,
    /// Nothing wants it: it was not copied.
    Undemanded,
    /// There was no room, and the stream's policy is to go on: the step is counted as dropped.
    Dropped,
}

/// Memory of a staged block, to compute into. Dense, row-major, ghosts included.
#[derive(Debug)]
pub struct Allocation {
    /// Names it in `commit` and `abort`.
    pub id: u64,
    /// Its length in bytes.
    pub bytes: u64,
    memory: Arc<Mapping>,
    offset: u64,
}

impl Allocation {
    /// The address of its first byte. The address stays valid while this lives, but the memory is the caller's
    /// to write only until it is committed or aborted.
    pub fn address(&self) -> Result<*mut u8> {
        self.memory.address_mut(self.offset, self.bytes)
    }
}

/// One rank of a simulation. Puts may come from many threads; begin and end from one.
#[derive(Debug)]
pub struct Producer {
    guard: ForkGuard,
    pub(crate) rpc: Rpc,
    stream: String,
    run: RunNumber,
    rank: u32,
    on_loss: OnLoss,
    pub(crate) arena: Option<WritableArena>,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct WritableArena {
    number: u32,
    mapping: Arc<Mapping>,
    /// What this process has brought into its mapping.
    populated: Mutex<RangeSet>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    fields: BTreeMap<String, Field>,
    pub(crate) species: Species,
    demand: Demand,
    pub(crate) open: Option<Open>,
    last: Option<StepNumber>,
    /// Why the servers were given up, if they were.
    pub(crate) lost: Option<Error>,
    skipped: u64,
    next_allocation: u64,
    closed: bool,
}

#[derive(Debug)]
pub(crate) struct Open {
    step: StepNumber,
    grants: Vec<Grant>,
    /// Field and number of each block, so that a mistake is told at once.
    pub(crate) keys: HashSet<(String, u64)>,
    pub(crate) blocks: u64,
    pub(crate) dropped: bool,
    allocations: HashMap<u64, Allocated>,
    /// The count of each species and number, and the field that said so first.
    pub(crate) counts: HashMap<(String, u64), (u64, String)>,
    /// Puts that the server has not answered yet.
    pub(crate) pending: Pending,
}

/// Memory that was given and not yet committed.
#[derive(Debug)]
struct Allocated {
    /// `None` for a block without elements.
    grant: Option<Grant>,
    dtype: Dtype,
    stats: bool,
    put: PutBlock,
}

impl Producer {
    /// Joins a stream as one rank. Waits for a few answers of the home server.
    pub fn open(options: &ProducerOptions) -> Result<Producer> {
        let group = Group::find(&options.group)?;
        let run_options = RunOptions {
            size: options.size,
            policy: options.policy,
            keep: options.keep,
            queue_bytes: options.queue_bytes.unwrap_or(1 << 30),
            continues: options.continues,
        };
        run_options.check(options.rank)?;
        let rpc = group.connect(group.home_of(options.rank)?, Role::Producer)?;
        let produce =
            ToServer::Produce { stream: options.stream.clone(), rank: options.rank, options: run_options };
        let answer = rpc.call(&produce, "to join the stream")?;
        let ToClient::Producing { run, arena } = answer.message else {
            return Err(unexpected(&answer.message));
        };
        let arena = match (arena, answer.descriptors.first()) {
            (Some((number, bytes)), Some(file)) => {
                let mapping = Arc::new(Mapping::new(file.as_fd(), bytes, Access::Write)?);
                Some(WritableArena { number, mapping, populated: Mutex::default() })
            }
            _ => None,
        };
        Ok(Producer {
            guard: ForkGuard::new(),
            rpc,
            stream: options.stream.clone(),
            run,
            rank: options.rank,
            on_loss: options.on_loss,
            arena,
            state: Mutex::default(),
        })
    }

    /// The run that was joined.
    pub fn run(&self) -> RunNumber {
        self.run
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Why staging was given up, and how many steps were skipped since; `None` while all is well.
    pub fn lost(&self) -> Option<(Error, u64)> {
        if let Err(forked) = self.guard.check("producer") {
            return Some((forked, 0));
        }
        let state = lock(&self.state);
        state.lost.clone().map(|error| (error, state.skipped))
    }

    /// Which transport is used.
    pub fn transport(&self) -> forebay_transport::Kind {
        self.rpc.kind()
    }

    /// Servers that are gone are survived, if that is what was asked for.
    pub(crate) fn survive(&self, state: &mut State, error: Error) -> Result<()> {
        if error.kind == ErrorKind::Unreachable && self.on_loss == OnLoss::Skip {
            tracing::warn!("stream '{}': staging ends: {error}", self.stream);
            state.lost.get_or_insert(error);
            return Ok(());
        }
        Err(error)
    }

    /// The state, if the handle can be used. A forked child is told before it could wait for a lock that was
    /// held in its parent when it was forked.
    pub(crate) fn state(&self) -> Result<MutexGuard<'_, State>> {
        self.guard.check("producer")?;
        let state = lock(&self.state);
        if state.closed {
            return Err(Error::new(
                ErrorKind::Closed,
                format!("the producer of stream '{}' was closed", self.stream),
            ));
        }
        Ok(state)
    }

    /// Adds a field to the output contract, or changes its global shape from the next step on. Waits for an
    /// answer.
    pub fn array(&self, field: Field) -> Result<()> {
        let mut state = self.state()?;
        field.check()?;
        if state.open.is_some() {
            return Err(Error::step_order(format!("field '{}' cannot be defined within a step", field.name)));
        }
        if state.lost.is_none()
            && let Err(error) = self.rpc.call(&ToServer::Define(field.clone()), "to take a field")
        {
            self.survive(&mut state, error)?;
        }
        state.fields.insert(field.name.clone(), field);
        Ok(())
    }

    /// Begins a step. Waits for one answer of the home server.
    pub fn begin(&self, step: StepNumber, time: f64) -> Result<()> {
        let mut state = self.state()?;
        if let Some(open) = &state.open {
            return Err(Error::step_order(format!("step {} is begun, end it before step {step}", open.step)));
        }
        if let Some(last) = state.last.filter(|last| step <= *last) {
            return Err(Error::step_order(format!(
                "step {step} after step {last}: numbers must grow within a run; after a restart open the stream again \
                 (with `continues`)"
            )));
        }
        let mut grants = Vec::new();
        if state.lost.is_none() {
            let patience = self.rpc.patience();
            let begin = ToServer::Begin {
                step,
                time,
                known: state.demand.version,
                patience_ms: patience.as_millis() as u64,
            };
            // The server gives up first, and says what it was waiting for.
            let answer =
                self.rpc.call_within(&begin, None, patience + Duration::from_secs(2), "to begin a step");
            match answer.map(|answer| answer.message) {
                Ok(ToClient::Begun { demand, grants: given, trouble }) => {
                    if let Some(demand) = demand {
                        state.demand = demand;
                    }
                    grants = given;
                    if let Some(error) = trouble {
                        // The step is begun at the server: end it there, so that the next one can begin.
                        self.rpc.tell(&ToServer::End { step, blocks: 0, dropped: true })?;
                        state.last = Some(step);
                        return Err(error);
                    }
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => self.survive(&mut state, error)?,
            }
        }
        if state.lost.is_some() {
            state.skipped += 1;
        }
        state.last = Some(step);
        state.open = Some(Open {
            step,
            grants,
            keys: HashSet::new(),
            blocks: 0,
            dropped: false,
            allocations: HashMap::new(),
            counts: HashMap::new(),
            pending: Pending::default(),
        });
        Ok(())
    }

    /// Whether something wants this field at the current step. Never waits.
    pub fn demanded(&self, field: &str) -> Result<bool> {
        let state = self.state()?;
        let step = state.open.as_ref().ok_or_else(|| no_step("asking for demand"))?.step;
        Ok(state.lost.is_none() && state.demand.wants(self.find(&state, field)?, step))
    }

    pub(crate) fn find<'a>(&self, state: &'a State, name: &str) -> Result<&'a Field> {
        state.fields.get(name).ok_or_else(|| {
            let known: Vec<_> = state.fields.keys().map(String::as_str).collect();
            Error::not_found(format!(
                "stream '{}' has no field '{name}'; this rank offers {}: declare it with array()",
                self.stream,
                if known.is_empty() { "none".into() } else { known.join(", ") }
            ))
        })
    }

    /// Checks a block, and the array it is put from, against its field and what was put before; `None` if
    /// nothing wants it.
    fn admit(
        &self,
        state: &mut State,
        block: &Block<'_>,
        source: Option<&Source<'_>>,
    ) -> Result<Option<Field>> {
        let field = self.find(state, block.field)?.clone();
        if let Some(source) = source {
            check_dtype(&field, source.dtype())?;
        }
        let name = format!("block {} of rank {}", block.number, self.rank);
        check_block_fits(&field, &name, block.extent.offset(), block.extent.shape())?;
        let wanted = |step| state.lost.is_none() && state.demand.wants(&field, step);
        let Some(open) = state.open.as_ref() else { return Err(no_step("a put")) };
        let wanted = wanted(open.step);
        if let Some(open) = state.open.as_mut() {
            state.species.check(open, block)?;
        }
        let key = (block.field.to_owned(), block.number);
        if let Some(open) = state.open.as_mut()
            && !open.keys.insert(key)
        {
            return Err(Error::conflict(format!(
                "{name} of field '{}' was already put at step {}; give each block of a step its own number",
                block.field, open.step
            )));
        }
        Ok(wanted.then_some(field))
    }

    /// Stages one block by one copy; the array is the caller's again on return. `source` has the stored shape,
    /// ghosts included, and says its dtype, which must be the field's. An undemanded field costs one check. Over TCP it waits until the server has it.
    pub fn put(&self, block: &Block<'_>, source: &Source<'_>) -> Result<Outcome> {
        self.put_by(block, source, |field| self.stage(block, field, source))
    }

    /// Checks a block, stages it in the way that is given, and keeps account of what became of it.
    pub(crate) fn put_by(
        &self,
        block: &Block<'_>,
        source: &Source<'_>,
        stage: impl FnOnce(&Field) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let field = {
            let mut state = self.state()?;
            match self.admit(&mut state, block, Some(source))? {
                Some(field) => field,
                None => return Ok(Outcome::Undemanded),
            }
        };
        let stored = block.extent.stored_shape();
        if source.shape() != &stored[..] {
            return Err(Error::out_of_bounds(format!(
                "field '{}': the array has shape {:?}, the block with its ghosts {:?}",
                block.field,
                source.shape(),
                &stored[..]
            )));
        }
        let result = stage(&field);
        let mut state = lock(&self.state);
        match result {
            Ok(outcome) => {
                if let Some(open) = state.open.as_mut() {
                    open.blocks += u64::from(outcome == Outcome::Staged);
                    open.dropped |= outcome == Outcome::Dropped;
                }
                Ok(outcome)
            }
            Err(error) => {
                state.forget(block.field, block.number);
                self.survive(&mut state, error).map(|()| Outcome::Dropped)
            }
        }
    }

    pub(crate) fn stage(&self, block: &Block<'_>, field: &Field, source: &Source<'_>) -> Result<Outcome> {
        let bytes = block.extent.bytes(field.dtype)?;
        let mut statistics = (field.stats && stats::supported(field.dtype)).then_some(Stats::EMPTY);
        let wanted = statistics.as_mut().map(|stats| (field.dtype, stats));
        if bytes as usize <= INLINE_MAX && bytes <= INLINE_MAX as u64 {
            let inline = source.to_vec(wanted).into_boxed_slice();
            let put = put_block(block, Bytes::Inline(inline), statistics);
            self.rpc.tell(&ToServer::Put(put))?;
            return Ok(Outcome::Staged);
        }
        let Some(arena) = &self.arena else {
            let dense = gather(source, wanted);
            let put = ToServer::Put(put_block(block, Bytes::Payload, statistics));
            let answer =
                self.rpc.call_within(&put, Some(Payload(&dense)), self.rpc.patience(), "to hold a block");
            return match answer {
                Ok(_) => Ok(Outcome::Staged),
                Err(error) if error.kind == ErrorKind::Full => Ok(Outcome::Dropped),
                Err(error) => Err(error),
            };
        };
        let Some(grant) = self.grant(bytes)? else { return Ok(Outcome::Dropped) };
        arena.populate(&grant);
        if let Err(error) = source.copy_to_mapping(&arena.mapping, grant.offset, wanted) {
            self.give_back(&grant)?;
            return Err(error);
        }
        let granted =
            Bytes::Granted { arena: grant.arena, offset: grant.offset, generation: grant.generation };
        // Not answered: once the message is on its way, the block survives this process.
        self.rpc.tell(&ToServer::Put(put_block(block, granted, statistics)))?;
        Ok(Outcome::Staged)
    }

    /// A range of this size: one that came with the step's beginning, or a new one.
    fn grant(&self, bytes: u64) -> Result<Option<Grant>> {
        {
            let mut state = lock(&self.state);
            let open = state.open.as_mut().ok_or_else(|| no_step("a put"))?;
            if let Some(index) = open.grants.iter().position(|grant| grant.bytes == bytes) {
                return Ok(Some(open.grants.swap_remove(index)));
            }
        }
        let patience = self.rpc.patience();
        let reserve = ToServer::Reserve { bytes, patience_ms: patience.as_millis() as u64 };
        let answer =
            self.rpc.call_within(&reserve, None, patience + Duration::from_secs(2), "to find room")?;
        match answer.message {
            ToClient::Granted(grant) => Ok(grant),
            other => Err(unexpected(&other)),
        }
    }

    fn give_back(&self, grant: &Grant) -> Result<()> {
        self.rpc.tell(&ToServer::Abort {
            arena: grant.arena,
            offset: grant.offset,
            generation: grant.generation,
        })
    }

    /// Gives memory of a block to compute into, or `None` if nothing wants it (or there is no room and the
    /// policy is to go on). No copy is made when it is committed. Fails over TCP, where a put is as good.
    pub fn alloc(&self, block: &Block<'_>) -> Result<Option<Allocation>> {
        let field = {
            let mut state = self.state()?;
            match self.admit(&mut state, block, None)? {
                Some(field) => field,
                None => return Ok(None),
            }
        };
        let bytes = block.extent.bytes(field.dtype)?;
        let Some(arena) = &self.arena else {
            lock(&self.state).forget(block.field, block.number);
            return Err(Error::unsupported(
                "the server is on another host: use put, which sends from where the data lies",
            ));
        };
        let granted = if bytes == 0 { Ok(None) } else { self.grant(bytes) };
        if let Ok(Some(grant)) = &granted {
            arena.populate(grant);
        }
        let mut state = lock(&self.state);
        let grant = match granted {
            Ok(None) if bytes > 0 => {
                state.forget(block.field, block.number);
                if let Some(open) = state.open.as_mut() {
                    open.dropped = true;
                }
                return Ok(None);
            }
            Ok(grant) => grant,
            Err(error) => {
                state.forget(block.field, block.number);
                return self.survive(&mut state, error).map(|()| None);
            }
        };
        let id = state.next_allocation;
        state.next_allocation += 1;
        let granted = grant.map_or(Bytes::Inline(Box::default()), |grant| Bytes::Granted {
            arena: grant.arena,
            offset: grant.offset,
            generation: grant.generation,
        });
        let put = put_block(block, granted, None);
        let open = state.open.as_mut().ok_or_else(|| no_step("an allocation"))?;
        let stats = field.stats && stats::supported(field.dtype);
        open.allocations.insert(id, Allocated { grant, dtype: field.dtype, stats, put });
        // Memory of no bytes has an address of its own too, where no range begins.
        let nowhere = (id / 4095 * 4096 + 1 + id % 4095) % arena.mapping.len();
        let offset = grant.map_or(nowhere, |grant| grant.offset);
        Ok(Some(Allocation { id, bytes, memory: arena.mapping.clone(), offset }))
    }

    /// Publishes what `alloc` gave. The memory must not be written afterwards. Does not wait; reads the memory
    /// once if the field has statistics.
    pub fn commit(&self, id: u64) -> Result<()> {
        let Allocated { grant, dtype, stats, mut put } = self.take_allocation(id)?;
        if let (true, Some(grant), Some(arena)) = (stats, grant, &self.arena) {
            let mut computed = Stats::EMPTY;
            arena.mapping.with_readable(grant.offset, grant.bytes, |bytes| {
                stats::accumulate(&mut computed, dtype, bytes);
            })?;
            put.stats = Some(Box::new(computed));
        }
        let sent = self.rpc.tell(&ToServer::Put(put));
        let mut state = lock(&self.state);
        match sent {
            Ok(()) => {
                if let Some(open) = state.open.as_mut() {
                    open.blocks += 1;
                }
                Ok(())
            }
            Err(error) => self.survive(&mut state, error),
        }
    }

    /// Gives back what `alloc` gave, unpublished. Does not wait.
    pub fn abort(&self, id: u64) -> Result<()> {
        let Allocated { grant, put, .. } = self.take_allocation(id)?;
        let mut state = lock(&self.state);
        state.forget(&put.field, put.number);
        match grant.map_or(Ok(()), |grant| self.give_back(&grant)) {
            Ok(()) => Ok(()),
            Err(error) => self.survive(&mut state, error),
        }
    }

    fn take_allocation(&self, id: u64) -> Result<Allocated> {
        let mut state = self.state()?;
        let open = state.open.as_mut().ok_or_else(|| no_step("a commit"))?;
        open.allocations.remove(&id).ok_or_else(|| {
            Error::invalid("this memory was not allocated in this step, or is committed already")
        })
    }

    /// Ends the step of this rank. Memory that was allocated and not committed is given back. Waits only for
    /// the answers to what was put with [`Producer::put_async`]; if one says what failed, that is returned, and
    /// the step is ended all the same and counted as dropped.
    pub fn end(&self) -> Result<()> {
        let mut state = self.state()?;
        let waited = self.wait_for_all(&mut state).map(drop);
        let Some(mut open) = state.open.take() else { return Err(no_step("an end")) };
        open.pending.forget(&self.rpc);
        if state.lost.is_some() {
            return waited;
        }
        open.dropped |= waited.is_err();
        let end = ToServer::End { step: open.step, blocks: open.blocks, dropped: open.dropped };
        match self.rpc.tell(&end) {
            Ok(()) => waited,
            Err(error) => self.survive(&mut state, error).and(waited),
        }
    }

    /// Waits until the home server holds all that was put, or says what failed.
    pub fn flush(&self) -> Result<()> {
        let mut state = self.state()?;
        self.wait_for_all(&mut state)?;
        if state.lost.is_some() {
            return Ok(());
        }
        match self.rpc.call(&ToServer::Flush, "to hold what was put") {
            Ok(_) => Ok(()),
            Err(error) => self.survive(&mut state, error),
        }
    }

    /// Ends the stream for this rank; an open step is left torn. Later calls fail. Closing twice is harmless.
    pub fn close(&self) -> Result<()> {
        if self.guard.is_child() {
            return Ok(());
        }
        let mut state = lock(&self.state);
        if state.closed {
            return Ok(());
        }
        state.closed = true;
        if state.lost.is_some() {
            return Ok(());
        }
        let flushed = self.rpc.call(&ToServer::Flush, "to hold what was put");
        let left = self.rpc.call(&ToServer::Leave, "to let this rank go");
        match flushed.and(left) {
            Ok(_) => Ok(()),
            Err(error) => self.survive(&mut state, error),
        }
    }
}

impl State {
    /// A block was not put after all: its number may be used again.
    pub(crate) fn forget(&mut self, field: &str, number: u64) {
        if let Some(open) = self.open.as_mut() {
            open.keys.remove(&(field.to_owned(), number));
            self.species.forget(open, field, number);
        }
    }
}

impl WritableArena {
    /// Brings a range into this mapping in one go, if it is not there.
    fn populate(&self, grant: &Grant) {
        let mut populated = lock(&self.populated);
        let (start, end) = (grant.offset, grant.offset + forebay_store::pages(grant.bytes));
        if grant.fresh {
            populated.remove(start, end);
        }
        if populated.contains(start, end) {
            return;
        }
        self.mapping.populate(grant.offset, grant.bytes);
        populated.insert(start, end);
        debug_assert_eq!(grant.arena, self.number);
    }
}

/// A source's elements, dense: where they lie if they are, else (or for their statistics) a copy.
pub(crate) fn gather<'a>(source: &Source<'a>, stats: Option<(Dtype, &mut Stats)>) -> Cow<'a, [u8]> {
    match source.as_dense() {
        Some(dense) if stats.is_none() => Cow::Borrowed(dense),
        _ => Cow::Owned(source.to_vec(stats)),
    }
}

pub(crate) fn put_block(block: &Block<'_>, bytes: Bytes, stats: Option<Stats>) -> PutBlock {
    PutBlock {
        field: block.field.to_owned(),
        number: block.number,
        level: block.level,
        extent: block.extent.clone(),
        stats: stats.map(Box::new),
        bytes,
    }
}

pub(crate) fn no_step(what: &str) -> Error {
    Error::step_order(format!("{what} outside a step: begin one first"))
}
