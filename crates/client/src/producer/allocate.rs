//! Memory of a staged block, which the simulation computes into: given, then committed or given back.

use crate::connection::rpc::lock;
use crate::producer::block::{Allocation, Block, BlockPart};
use crate::producer::block_bytes::put_block;
use crate::producer::rank::Producer;
use crate::producer::state::{AllocatedBlock, no_step};
use crate::producer::stored_block::{BytesPlace, StoredBlock};
use crate::put_target::PutTarget;
use forebay_core::contract::Field;
use forebay_core::demand::BlockDemand;
use forebay_core::stats::StatsOfBlock;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::Mapping;
use forebay_store::stats::Accumulator;
use forebay_wire::client::block::{BytesLocation, Grant, PutBlock};
use std::sync::Arc;

/// Memory for a block: where it is held, the arena, and the range in it unless the block has no bytes.
type Memory = (Arc<PutTarget>, Arc<Mapping>, Option<Grant>);

impl Producer {
    /// Gives memory of a block to compute into, or `None` if nothing wants it (or there is no room and the
    /// policy is to go on). No copy is made when it is committed. Fails over TCP, where a put is as good.
    pub fn alloc(&self, block: &Block<'_>) -> Result<Option<Allocation>> {
        let (field, wanted) = self.admit(&mut *self.state()?, block, None)?;
        if wanted == BlockDemand::NOTHING {
            return Ok(None);
        }
        // Where it computes in place the whole block is there, and readers see their part of it, or its statistics.
        let whole = BlockPart::whole(block, &wanted);
        let allocated = self.through_home(|home| self.allocate(home, &whole, &field));
        let mut state = lock(&self.state);
        let (target, memory, grant) = match allocated {
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
                return self.on_staging_lost(&mut state, error).map(|()| None);
            }
        };
        let bytes = grant.map_or(0, |grant| grant.bytes);
        let id = state.next_allocation;
        state.next_allocation += 1;
        let put = put_block(&whole, BytesLocation::Inline(Box::default()), None);
        let open = state.open.as_mut().ok_or_else(|| no_step("an allocation"))?;
        let stats = if field.dtype.is_ordered() { whole.stats } else { StatsOfBlock::Nothing };
        open.allocations.insert(
            id,
            AllocatedBlock { target, grant, dtype: field.dtype, stats, of_field: whole.of_field, put },
        );
        // Memory of no bytes has an address of its own too, where no range begins.
        let nowhere = (id / 4095 * 4096 + 1 + id % 4095) % memory.len();
        let offset = grant.map_or(nowhere, |grant| grant.offset);
        Ok(Some(Allocation { id, bytes, memory, offset }))
    }

    /// Memory for a block at the server that is to hold it: the grant is `None` for a block without elements,
    /// the whole if there is no room and the policy is to go on.
    fn allocate(
        &self,
        home: &Arc<PutTarget>,
        block: &BlockPart<'_>,
        field: &Field,
    ) -> Result<Option<Memory>> {
        let bytes = block.extent.bytes(field.dtype)?;
        let target = if bytes == 0 { home.clone() } else { self.target_of(block, field, home)? };
        let Some(arena) = &target.arena else {
            return Err(Error::unsupported(
                "the server is on another host: use put, which sends from where the data lies",
            ));
        };
        let memory = arena.mapping.clone();
        if bytes == 0 {
            return Ok(Some((target, memory, None)));
        }
        let grant = match self.memory_at(&target, bytes) {
            Err(error) if self.on_target_lost(&target, home, &error) => {
                return self.allocate(home, block, field);
            }
            grant => grant?,
        };
        let Some(grant) = grant else { return Ok(None) };
        arena.populate(&grant);
        Ok(Some((target, memory, Some(grant))))
    }

    /// Publishes what `alloc` gave. The memory must not be written afterwards. Does not wait, unless a server
    /// that is not the home holds the block; reads the memory once if its statistics are wanted.
    pub fn commit(&self, id: u64) -> Result<()> {
        let AllocatedBlock { target, grant, dtype, stats, of_field, mut put } = self.take_allocation(id)?;
        if let (Some(grant), Some(arena)) = (grant, &target.arena)
            && stats != StatsOfBlock::Nothing
        {
            let mut computed = Accumulator::new(dtype, put.extent.interior_bytes(dtype), stats);
            let computed = arena.mapping.with_readable(grant.offset, grant.bytes, |bytes| {
                computed.add_interior(bytes, &put.extent);
                computed.finish(bytes, &put.extent)
            })?;
            put.stats = Some(Arc::new(computed));
            put.of_field = of_field;
        }
        let commit = |home: &Arc<PutTarget>| self.commit_at((&target, home), grant, &put);
        let committed = self.through_home(|home| match commit(home) {
            Err(error) if self.on_target_lost(&target, home, &error) => commit(home),
            committed => committed,
        });
        let mut state = lock(&self.state);
        match (committed, state.open.as_mut()) {
            (Ok(staged), Some(open)) => {
                open.blocks += u64::from(staged);
                open.dropped |= !staged;
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            (Err(error), _) => self.on_staging_lost(&mut state, error),
        }
    }

    /// Publishes what was written to memory of a server; if that is gone, a copy. `false` if there is no room for that, and
    /// the policy is to go on.
    fn commit_at(
        &self,
        (target, home): (&Arc<PutTarget>, &Arc<PutTarget>),
        grant: Option<Grant>,
        put: &PutBlock,
    ) -> Result<bool> {
        let put = put.clone();
        let Some(grant) = grant else {
            // A block without elements.
            self.publish(home, StoredBlock { put, place: BytesPlace::Message })?;
            return Ok(true);
        };
        let other = lock(&self.others).get(&target.server).cloned().flatten();
        if !Arc::ptr_eq(target, home) && !other.is_some_and(|other| Arc::ptr_eq(target, &other)) {
            let place = BytesPlace::Mapped(target.clone(), grant);
            let Some(again) = self.replay_block(home, StoredBlock { put, place })? else { return Ok(false) };
            self.note_stored(home, again)?;
            return Ok(true);
        }
        let (held, place) = self.hold((target, home), &grant)?;
        self.publish(home, StoredBlock { put: PutBlock { bytes: held, ..put }, place })?;
        Ok(true)
    }

    /// Gives back what `alloc` gave, unpublished. Does not wait.
    pub fn abort(&self, id: u64) -> Result<()> {
        let AllocatedBlock { target, grant, put, .. } = self.take_allocation(id)?;
        lock(&self.state).forget(&put.field, put.number);
        match grant.map_or(Ok(()), |grant| target.give_back(&grant)) {
            // The memory is gone with its server.
            Err(error) if error.kind != ErrorKind::Unreachable => Err(error),
            _ => Ok(()),
        }
    }

    fn take_allocation(&self, id: u64) -> Result<AllocatedBlock> {
        let mut state = self.state()?;
        let open = state.open.as_mut().ok_or_else(|| no_step("a commit"))?;
        open.allocations.remove(&id).ok_or_else(|| {
            Error::invalid("this memory was not allocated in this step, or is committed already")
        })
    }
}
