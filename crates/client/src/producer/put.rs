//! Putting blocks: checked, given memory by the server that is to hold them, copied once, and told to the
//! rank's home.

use super::{Allocated, Allocation, Block, Outcome, Producer, State, WhereBytes, Written, no_step};
use crate::check_dtype::check_dtype;
use crate::connection::rpc::{Payload, lock, unexpected};
use crate::put_target::PutTarget;
use forebay_core::block::{Extent, INLINE_MAX, Location, Stats};
use forebay_core::contract::Field;
use forebay_core::directory::check_block_fits;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{BlockKey, ServerId, StepNumber};
use forebay_core::steps::Policy;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Source;
use forebay_store::{Element, Mapping, stats};
use forebay_wire::client::block::{Bytes, Grant, PutBlock};
use forebay_wire::client::placement::{Reply, Request};
use forebay_wire::client::producer;
use forebay_wire::connection::Role;
use std::borrow::Cow;
use std::sync::Arc;

/// Memory for a block: where it is held, the arena, and the range in it unless the block has no bytes.
type Memory = (Arc<PutTarget>, Arc<Mapping>, Option<Grant>);

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

    /// As [`Producer::put`], of dense values in row-major order, ghosts included.
    pub fn put_values<T: Element>(&self, block: &Block<'_>, values: &[T]) -> Result<Outcome> {
        self.put(block, &Source::of(values, &block.extent.stored_shape())?)
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
        loop {
            let home = self.home();
            match self.stage_through(&home, block, field, source) {
                Err(error) => self.go_on_elsewhere(&home, error)?,
                staged => return staged,
            }
        }
    }

    /// Stages a block; this home is told of it.
    fn stage_through(
        &self,
        home: &Arc<PutTarget>,
        block: &Block<'_>,
        field: &Field,
        source: &Source<'_>,
    ) -> Result<Outcome> {
        let bytes = block.extent.bytes(field.dtype)?;
        if bytes <= INLINE_MAX as u64 {
            let mut counted = Counted::new(field, block);
            let inline = source.to_vec(counted.while_copied()).into_boxed_slice();
            let statistics = counted.done(&inline);
            let put = put_block(block, Bytes::Inline(inline), statistics);
            self.publish(home, Written { put, bytes: WhereBytes::Told })?;
            return Ok(Outcome::Staged);
        }
        let storage = self.storage_for(block, home)?;
        match self.stage_at(&storage, home, block, field, source) {
            Err(error) if self.is_gone(&storage, home, &error) => {
                self.stage_at(home, home, block, field, source)
            }
            staged => staged,
        }
    }

    /// Whether an error means that a server is gone that was to hold a block and is not the home. From then on the home
    /// does in its place.
    pub(super) fn is_gone(&self, storage: &Arc<PutTarget>, home: &Arc<PutTarget>, error: &Error) -> bool {
        let gone = error.kind == ErrorKind::Unreachable && !Arc::ptr_eq(storage, home);
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

    /// Stages a block of more than a few bytes at a server; the home is told of it.
    fn stage_at(
        &self,
        storage: &Arc<PutTarget>,
        home: &Arc<PutTarget>,
        block: &Block<'_>,
        field: &Field,
        source: &Source<'_>,
    ) -> Result<Outcome> {
        let bytes = block.extent.bytes(field.dtype)?;
        let mut counted = Counted::new(field, block);
        let Some(arena) = &storage.arena else {
            let dense = gather(source, counted.while_copied());
            return match self.send((storage, home), block, &dense, counted.done(&dense)) {
                Ok(()) => Ok(Outcome::Staged),
                Err(error) if error.kind == ErrorKind::Full && self.drops() => Ok(Outcome::Dropped),
                Err(error) => Err(error),
            };
        };
        let Some(grant) = self.grant(storage, bytes)? else { return Ok(Outcome::Dropped) };
        let placed = storage.copy_in(arena, grant, source, counted.while_copied())?;
        let statistics =
            arena.mapping.with_readable(placed.offset, placed.bytes, |bytes| counted.done(bytes))?;
        let (held, bytes) = self.hold((storage, home), &placed)?;
        self.publish(home, Written { put: put_block(block, held, statistics), bytes })?;
        Ok(Outcome::Staged)
    }

    /// Whether what finds no room is dropped.
    pub(super) fn drops(&self) -> bool {
        self.policy != Policy::Block
    }

    /// Sends a block's bytes over the network to the server that is to hold it, and waits until it does.
    fn send(
        &self,
        (storage, home): (&Arc<PutTarget>, &Arc<PutTarget>),
        block: &Block<'_>,
        dense: &[u8],
        stats: Option<Stats>,
    ) -> Result<()> {
        if Arc::ptr_eq(storage, home) {
            let written = self.send_to(home, put_block(block, Bytes::Payload, stats), dense)?;
            return self.note_written(home, written);
        }
        let step = self.place_on(storage)?;
        let place = Request::Place { step, size: dense.len() as u64, bytes: Bytes::Payload };
        let (rpc, payload) = (&storage.rpc, Some(Payload(dense)));
        let location = placed(rpc.call_within(&place, payload, rpc.patience(), "to hold a block")?.message)?;
        // Answered like a put to the home: over the network what was only sent may be lost.
        let message = producer::Request::Put(put_block(block, Bytes::Placed(location), stats));
        home.rpc.call(&message, "to know of a block")?;
        let producer::Request::Put(put) = message else { return Err(Error::internal("not a put")) };
        self.note_written(home, Written { put, bytes: WhereBytes::Told })
    }

    /// A range that was granted holds a block now: what its home is told of where the bytes are, and where they are if
    /// that is the home.
    fn hold(
        &self,
        (storage, home): (&Arc<PutTarget>, &Arc<PutTarget>),
        grant: &Grant,
    ) -> Result<(Bytes, WhereBytes)> {
        let granted =
            Bytes::Granted { arena: grant.arena, offset: grant.offset, generation: grant.generation };
        if Arc::ptr_eq(storage, home) {
            return Ok((granted, WhereBytes::Mapped(storage.clone(), *grant)));
        }
        let step = self.place_on(storage)?;
        let place = Request::Place { step, size: grant.bytes, bytes: granted };
        let location = placed(storage.rpc.call(&place, "to hold a block")?.message)?;
        Ok((Bytes::Placed(location), WhereBytes::Told))
    }

    /// Notes that blocks of the open step go to a server that is not the home.
    fn place_on(&self, storage: &Arc<PutTarget>) -> Result<StepNumber> {
        let mut state = lock(&self.state);
        let open = state.open.as_mut().ok_or_else(|| no_step("a put"))?;
        open.elsewhere.entry(storage.server).or_insert_with(|| storage.clone());
        Ok(open.step)
    }

    /// The server that is to hold a block, connected to at first use; the home in the place of one that is gone.
    pub(crate) fn storage_for(&self, block: &Block<'_>, home: &Arc<PutTarget>) -> Result<Arc<PutTarget>> {
        let key = BlockKey { rank: self.rank, number: block.number };
        let members = lock(&self.state).open.as_ref().and_then(|open| open.members.clone());
        let known = members.unwrap_or_else(|| self.group.known());
        // Called without the lock: it may take its time.
        let placement = lock(&self.placement).clone();
        let server =
            placement.server_of((&known.view, known.ever()), home.server, block.field, key, &block.extent)?;
        if server == home.server {
            return Ok(home.clone());
        }
        let mut others = lock(&self.others);
        if let Some(known) = others.get(&server) {
            return Ok(known.clone().unwrap_or_else(|| home.clone()));
        }
        let storage = match self.open_storage(server) {
            Ok(storage) => Some(Arc::new(storage)),
            Err(error) if error.kind == ErrorKind::Unreachable => None,
            Err(error) => return Err(error),
        };
        others.insert(server, storage.clone());
        Ok(storage.unwrap_or_else(|| home.clone()))
    }

    fn open_storage(&self, server: ServerId) -> Result<PutTarget> {
        let rpc = Arc::new(self.group.connect(server, Role::Placement)?);
        let (stream, run, rank, policy) = (self.stream.clone(), self.run, self.rank, self.policy);
        let (copies, durability) = (self.options.copies(), self.options.durability);
        let open = Request::Open { stream, run, rank, policy, copies, durability };
        PutTarget::open(server, rpc, &open, |opened| match opened {
            Reply::Opened(arena) => Some(*arena),
            _ => None,
        })
    }

    /// A range of this size: one that came with the step's beginning, or a new one.
    fn grant(&self, storage: &Arc<PutTarget>, bytes: u64) -> Result<Option<Grant>> {
        let mut state = lock(&self.state);
        let open = state.open.as_mut().ok_or_else(|| no_step("a put"))?;
        open.needs_memory = true;
        let at_hand = open.grants.iter().position(|grant| grant.bytes == bytes);
        if let Some(index) = at_hand.filter(|_| Arc::ptr_eq(storage, &self.home())) {
            let grant = open.grants.swap_remove(index);
            state.ended.written_over(&grant);
            return Ok(Some(grant));
        }
        drop(state);
        let grant = storage.reserve(bytes)?;
        if let Some(grant) = grant.filter(|_| Arc::ptr_eq(storage, &self.home())) {
            lock(&self.state).ended.written_over(&grant);
        }
        Ok(grant)
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
        let allocated = loop {
            let home = self.home();
            match self.allocate(&home, block, &field) {
                Err(error) => {
                    if let Err(error) = self.go_on_elsewhere(&home, error) {
                        break Err(error);
                    }
                }
                allocated => break allocated,
            }
        };
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
    fn allocate(&self, home: &Arc<PutTarget>, block: &Block<'_>, field: &Field) -> Result<Option<Memory>> {
        let bytes = block.extent.bytes(field.dtype)?;
        let storage = if bytes == 0 { home.clone() } else { self.storage_for(block, home)? };
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
            Err(error) if self.is_gone(&storage, home, &error) => return self.allocate(home, block, field),
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
        let committed = loop {
            let home = self.home();
            match self.commit_at((&storage, &home), grant, &put) {
                Err(error) if self.is_gone(&storage, &home, &error) => {}
                Err(error) => {
                    if let Err(error) = self.go_on_elsewhere(&home, error) {
                        break Err(error);
                    }
                }
                committed => break committed,
            }
        };
        let mut state = lock(&self.state);
        match (committed, state.open.as_mut()) {
            (Ok(staged), Some(open)) => {
                open.blocks += u64::from(staged);
                open.dropped |= !staged;
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            (Err(error), _) => self.survive(&mut state, error),
        }
    }

    /// Publishes what was written to memory of a server; if that is gone, a copy. `false` if there is no room for that, and
    /// the policy is to go on.
    fn commit_at(
        &self,
        (storage, home): (&Arc<PutTarget>, &Arc<PutTarget>),
        grant: Option<Grant>,
        put: &PutBlock,
    ) -> Result<bool> {
        let put = put.clone();
        let Some(grant) = grant else {
            // A block without elements.
            self.publish(home, Written { put, bytes: WhereBytes::Told })?;
            return Ok(true);
        };
        let other = lock(&self.others).get(&storage.server).cloned().flatten();
        if !Arc::ptr_eq(storage, home) && !other.is_some_and(|other| Arc::ptr_eq(storage, &other)) {
            let bytes = WhereBytes::Mapped(storage.clone(), grant);
            let Some(written) = self.put_again(home, Written { put, bytes })? else { return Ok(false) };
            self.note_written(home, written)?;
            return Ok(true);
        }
        let (held, bytes) = self.hold((storage, home), &grant)?;
        self.publish(home, Written { put: PutBlock { bytes: held, ..put }, bytes })?;
        Ok(true)
    }

    /// Gives back what `alloc` gave, unpublished. Does not wait.
    pub fn abort(&self, id: u64) -> Result<()> {
        let Allocated { storage, grant, put, .. } = self.take_allocation(id)?;
        lock(&self.state).forget(&put.field, put.number);
        match grant.map_or(Ok(()), |grant| storage.give_back(&grant)) {
            // The memory is gone with its server.
            Err(error) if error.kind != ErrorKind::Unreachable => Err(error),
            _ => Ok(()),
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
fn placed(answer: Reply) -> Result<Location> {
    match answer {
        Reply::Placed(location) => Ok(location),
        other => Err(unexpected(&other)),
    }
}
