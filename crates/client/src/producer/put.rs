//! Putting blocks: checked, given memory by the server that is to hold them, copied once, and told to the
//! rank's home.

use super::{Allocated, Allocation, Block, Outcome, Producer, State, no_step};
use crate::rpc::{Payload, lock, unexpected};
use crate::storage::{GRACE, Storage};
use crate::typed::check_dtype;
use forebay_core::block::{Extent, INLINE_MAX, Location, Stats};
use forebay_core::contract::Field;
use forebay_core::directory::check_block_fits;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{BlockKey, ServerId, StepNumber};
use forebay_core::steps::{Durability, Policy};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Source;
use forebay_store::{Mapping, stats};
use forebay_wire::message::{Bytes, Grant, PutBlock, Role, ToClient, ToServer};
use std::borrow::Cow;
use std::sync::Arc;

/// Memory for a block: where it is held, the arena, and the range in it unless the block has no bytes.
type Memory = (Arc<Storage>, Arc<Mapping>, Option<Grant>);

impl Producer {
    /// Checks a block, and the array it is put from, against its field and what was put before; `None` if
    /// nothing wants it.
    fn admit(
        &self,
        state: &mut State,
        block: &Block<'_>,
        source: Option<&Source<'_>>,
    ) -> Result<Option<Arc<Field>>> {
        let field = self.find(state, block.field)?.clone();
        if let Some(source) = source {
            check_dtype(&field, source.dtype())?;
        }
        let name = format_args!("block {} of rank {}", block.number, self.rank);
        check_block_fits(&field, name, block.level, &block.extent)?;
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
    /// ghosts included, and says its dtype, which must be the field's. An undemanded field costs one check. Over
    /// TCP it waits until the server has it.
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
        if bytes <= INLINE_MAX as u64 {
            let mut counted = Counted::new(field, block);
            let inline = source.to_vec(counted.while_copied()).into_boxed_slice();
            let statistics = counted.done(&inline);
            self.publish(put_block(block, Bytes::Inline(inline), statistics))?;
            return Ok(Outcome::Staged);
        }
        let storage = self.storage_for(block)?;
        match self.stage_at(&storage, block, field, source) {
            Err(error) if self.is_gone(&storage, &error) => self.stage_at(&self.home(), block, field, source),
            staged => staged,
        }
    }

    /// Whether an error means that a server is gone that was to hold a block and is not the home. From then on the home
    /// does in its place.
    pub(super) fn is_gone(&self, storage: &Arc<Storage>, error: &Error) -> bool {
        let home = self.home();
        let gone = error.kind == ErrorKind::Unreachable && !Arc::ptr_eq(storage, &home);
        if !gone || home.rpc.is_broken() {
            return false;
        }
        tracing::info!(
            "stream '{}': blocks for {} go to {}: {error}",
            self.stream,
            storage.server,
            home.server
        );
        lock(&self.others).insert(storage.server, None);
        true
    }

    /// Stages a block of more than a few bytes at a server.
    fn stage_at(
        &self,
        storage: &Arc<Storage>,
        block: &Block<'_>,
        field: &Field,
        source: &Source<'_>,
    ) -> Result<Outcome> {
        let bytes = block.extent.bytes(field.dtype)?;
        let mut counted = Counted::new(field, block);
        let Some(arena) = &storage.arena else {
            let dense = gather(source, counted.while_copied());
            return match self.send(storage, block, &dense, counted.done(&dense)) {
                Ok(()) => Ok(Outcome::Staged),
                Err(error) if error.kind == ErrorKind::Full && self.policy != Policy::Block => {
                    Ok(Outcome::Dropped)
                }
                Err(error) => Err(error),
            };
        };
        let Some(grant) = self.grant(storage, bytes)? else { return Ok(Outcome::Dropped) };
        let placed = storage.copy_in(arena, grant, source, counted.while_copied())?;
        let statistics =
            arena.mapping.with_readable(placed.offset, placed.bytes, |bytes| counted.done(bytes))?;
        let held = self.hold(storage, &placed)?;
        self.publish(put_block(block, held, statistics))?;
        Ok(Outcome::Staged)
    }

    /// Tells the home of a block, at the latest when the step ends: a step's blocks are told of together. Where a put is to
    /// be safe when it returns, waits until it is.
    fn publish(&self, put: PutBlock) -> Result<()> {
        let (home, put) = (self.home(), ToServer::Put(put));
        match self.options.durability {
            Durability::Replicated if self.options.copies() > 0 => {
                let patience = home.rpc.patience() + GRACE;
                home.rpc.call_within(&put, None, patience, "to hold copies").map(drop)
            }
            _ => home.rpc.queue(&put),
        }
    }

    /// Sends a block's bytes over the network to the server that is to hold it, and waits until it does.
    fn send(
        &self,
        storage: &Arc<Storage>,
        block: &Block<'_>,
        dense: &[u8],
        stats: Option<Stats>,
    ) -> Result<()> {
        let rpc = &storage.rpc;
        let ask = |question: &ToServer| {
            rpc.call_within(question, Some(Payload(dense)), rpc.patience(), "to hold a block")
        };
        if Arc::ptr_eq(storage, &self.home()) {
            return ask(&ToServer::Put(put_block(block, Bytes::Payload, stats))).map(drop);
        }
        let step = self.place_on(storage)?;
        let place = ToServer::Place { step, size: dense.len() as u64, bytes: Bytes::Payload };
        let location = placed(ask(&place)?.message)?;
        // Answered like a put to the home: over the network what was only sent may be lost.
        let put = ToServer::Put(put_block(block, Bytes::Placed(location), stats));
        self.home().rpc.call(&put, "to know of a block").map(drop)
    }

    /// A range that was granted holds a block now: what its home is told of where the bytes are.
    fn hold(&self, storage: &Arc<Storage>, grant: &Grant) -> Result<Bytes> {
        let granted =
            Bytes::Granted { arena: grant.arena, offset: grant.offset, generation: grant.generation };
        if Arc::ptr_eq(storage, &self.home()) {
            return Ok(granted);
        }
        let step = self.place_on(storage)?;
        let place = ToServer::Place { step, size: grant.bytes, bytes: granted };
        Ok(Bytes::Placed(placed(storage.rpc.call(&place, "to hold a block")?.message)?))
    }

    /// Notes that blocks of the open step go to a server that is not the home.
    fn place_on(&self, storage: &Arc<Storage>) -> Result<StepNumber> {
        let mut state = lock(&self.state);
        let open = state.open.as_mut().ok_or_else(|| no_step("a put"))?;
        open.elsewhere.entry(storage.server).or_insert_with(|| storage.clone());
        Ok(open.step)
    }

    /// The server that is to hold a block, connected to at first use; the home in the place of one that is gone.
    pub(crate) fn storage_for(&self, block: &Block<'_>) -> Result<Arc<Storage>> {
        let key = BlockKey { rank: self.rank, number: block.number };
        let known = self.group.known();
        // Called without the lock: it may take its time.
        let placement = lock(&self.placement).clone();
        let server = placement.server_of(&known.view, self.home().server, block.field, key, &block.extent)?;
        if server == self.home().server {
            return Ok(self.home());
        }
        let mut others = lock(&self.others);
        if let Some(known) = others.get(&server) {
            return Ok(known.clone().unwrap_or_else(|| self.home()));
        }
        let storage = match self.open_storage(server) {
            Ok(storage) => Some(Arc::new(storage)),
            Err(error) if error.kind == ErrorKind::Unreachable => None,
            Err(error) => return Err(error),
        };
        others.insert(server, storage.clone());
        Ok(storage.unwrap_or_else(|| self.home()))
    }

    fn open_storage(&self, server: ServerId) -> Result<Storage> {
        let rpc = Arc::new(self.group.connect(server, Role::Producer)?);
        let (stream, run, rank, policy) = (self.stream.clone(), self.run, self.rank, self.policy);
        let (copies, durability) = (self.options.copies(), self.options.durability);
        Storage::open(server, rpc, &ToServer::Store { stream, run, rank, policy, copies, durability })
    }

    /// A range of this size: one that came with the step's beginning, or a new one.
    fn grant(&self, storage: &Arc<Storage>, bytes: u64) -> Result<Option<Grant>> {
        let mut state = lock(&self.state);
        let open = state.open.as_mut().ok_or_else(|| no_step("a put"))?;
        open.needs_memory = true;
        let at_hand = open.grants.iter().position(|grant| grant.bytes == bytes);
        if let Some(index) = at_hand.filter(|_| Arc::ptr_eq(storage, &self.home())) {
            return Ok(Some(open.grants.swap_remove(index)));
        }
        drop(state);
        storage.reserve(bytes)
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
        let allocated = self.allocate(block, &field);
        let mut state = lock(&self.state);
        let (storage, memory, grant) = match allocated {
            Ok(Some(allocated)) => allocated,
            Ok(None) => {
                state.forget(block.field, block.number);
                if let Some(open) = state.open.as_mut() {
                    open.dropped = true;
                }
                return Ok(None);
            }
            Err(error) => {
                state.forget(block.field, block.number);
                return self.survive(&mut state, error).map(|()| None);
            }
        };
        let bytes = grant.map_or(0, |grant| grant.bytes);
        let id = state.next_allocation;
        state.next_allocation += 1;
        let put = put_block(block, Bytes::Inline(Box::default()), None);
        let open = state.open.as_mut().ok_or_else(|| no_step("an allocation"))?;
        let stats = field.stats && stats::supported(field.dtype);
        open.allocations.insert(id, Allocated { storage, grant, dtype: field.dtype, stats, put });
        // Memory of no bytes has an address of its own too, where no range begins.
        let nowhere = (id / 4095 * 4096 + 1 + id % 4095) % memory.len();
        let offset = grant.map_or(nowhere, |grant| grant.offset);
        Ok(Some(Allocation { id, bytes, memory, offset }))
    }

    /// Memory for a block at the server that is to hold it: the grant is `None` for a block without elements,
    /// the whole if there is no room and the policy is to go on.
    fn allocate(&self, block: &Block<'_>, field: &Field) -> Result<Option<Memory>> {
        let bytes = block.extent.bytes(field.dtype)?;
        let storage = if bytes == 0 { self.home() } else { self.storage_for(block)? };
        let Some(arena) = &storage.arena else {
            return Err(Error::unsupported(
                "the server is on another host: use put, which sends from where the data lies",
            ));
        };
        let memory = arena.mapping.clone();
        if bytes == 0 {
            return Ok(Some((storage, memory, None)));
        }
        let grant = match self.grant(&storage, bytes) {
            Err(error) if self.is_gone(&storage, &error) => return self.allocate(block, field),
            grant => grant?,
        };
        let Some(grant) = grant else { return Ok(None) };
        arena.populate(&grant);
        Ok(Some((storage, memory, Some(grant))))
    }

    /// Publishes what `alloc` gave. The memory must not be written afterwards. Does not wait, unless a server
    /// that is not the home holds the block; reads the memory once if the field has statistics.
    pub fn commit(&self, id: u64) -> Result<()> {
        let Allocated { storage, grant, dtype, stats, mut put } = self.take_allocation(id)?;
        if let (true, Some(grant), Some(arena)) = (stats, grant, &storage.arena) {
            let mut computed = Stats::EMPTY;
            arena.mapping.with_readable(grant.offset, grant.bytes, |bytes| {
                stats::accumulate_interior(&mut computed, dtype, bytes, &put.extent);
            })?;
            put.stats = Some(Box::new(computed));
        }
        let held = grant.map_or(Ok(Bytes::Inline(Box::default())), |grant| self.hold(&storage, &grant));
        let sent = held.and_then(|bytes| self.publish(PutBlock { bytes, ..put }));
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
        let Allocated { storage, grant, put, .. } = self.take_allocation(id)?;
        lock(&self.state).forget(&put.field, put.number);
        match grant.map_or(Ok(()), |grant| storage.give_back(&grant)) {
            Ok(()) => Ok(()),
            Err(error) => self.survive(&mut lock(&self.state), error),
        }
    }

    fn take_allocation(&self, id: u64) -> Result<Allocated> {
        let mut state = self.state()?;
        let open = state.open.as_mut().ok_or_else(|| no_step("a commit"))?;
        open.allocations.remove(&id).ok_or_else(|| {
            Error::invalid("this memory was not allocated in this step, or is committed already")
        })
    }
}

/// The statistics that a block is to have, if any. They are computed while it is copied, or from the copy if it has
/// ghosts: those take no part.
pub(crate) struct Counted<'a> {
    stats: Option<Stats>,
    dtype: Dtype,
    extent: &'a Extent,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(field: &Field, block: &'a Block<'_>) -> Counted<'a> {
        let stats = (field.stats && stats::supported(field.dtype)).then_some(Stats::EMPTY);
        Counted { stats, dtype: field.dtype, extent: &block.extent }
    }

    /// For what copies the block: where the elements are to be counted on the way.
    pub(crate) fn while_copied(&mut self) -> Option<(Dtype, &mut Stats)> {
        self.stats.as_mut().filter(|_| !self.extent.has_ghosts()).map(|stats| (self.dtype, stats))
    }

    /// The block is copied, and these are its bytes.
    pub(crate) fn done(mut self, bytes: &[u8]) -> Option<Stats> {
        if let Some(stats) = self.stats.as_mut().filter(|_| self.extent.has_ghosts()) {
            stats::accumulate_interior(stats, self.dtype, bytes, self.extent);
        }
        self.stats
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

/// Where a server holds what was placed there.
fn placed(answer: ToClient) -> Result<Location> {
    match answer {
        ToClient::Placed(location) => Ok(location),
        other => Err(unexpected(&other)),
    }
}
