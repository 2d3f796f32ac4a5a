//! Putting blocks: checked, given memory by the server that is to hold them, copied once, and told to the
//! rank's home server.

use crate::check_dtype::check_dtype;
use crate::connection::rpc::{Payload, lock};
use crate::outcome::Outcome;
use crate::producer::block::{Block, BlockPart};
use crate::producer::block_bytes::{StatsOnTheWay, gather, put_block, stats_of};
use crate::producer::rank::Producer;
use crate::producer::state::{ProducerState, no_step};
use crate::producer::stored_block::{BytesPlace, StoredBlock};
use crate::producer::targets::location_in;
use crate::put_target::PutTarget;
use crate::rank_bounds::{RANK_BOUNDS, RankBounds};
use forebay_core::block::{Extent, INLINE_MAX};
use forebay_core::contract::Field;
use forebay_core::demand::BlockDemand;
use forebay_core::directory::check_block_fits;
use forebay_core::parts::Wanted;
use forebay_core::stats::{BlockStats, Stats};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::Element;
use forebay_store::strided::Source;
use forebay_wire::client::block::BytesLocation;
use forebay_wire::client::placement::Request;
use forebay_wire::client::producer;
use std::sync::Arc;

impl Producer {
    /// Stages one block by one copy; the array is the caller's again on return. `source` has the stored shape,
    /// ghosts included, and says its dtype, which must be the field's. An undemanded field costs one check. Over
    /// TCP it waits until the server has it.
    pub fn put(&self, block: &Block<'_>, source: &Source<'_>) -> Result<Outcome> {
        self.put_by(block, source, |part, field, source| self.stage(part, field, source))
    }

    /// As [`Producer::put`], of dense values in row-major order, ghosts included.
    pub fn put_values<T: Element>(&self, block: &Block<'_>, values: &[T]) -> Result<Outcome> {
        self.put(block, &Source::of(values, &block.extent.stored_shape())?)
    }

    /// Says which part of space this rank has at the open step. Otherwise as [`Producer::put`] of a few numbers.
    pub fn put_rank_bounds(&self, bounds: &RankBounds) -> Result<Outcome> {
        let values = bounds.to_values()?;
        let extent = Extent::new(None, &[4, values.len() as u64 / 4], &[], &[])?;
        self.put_values(&Block { field: RANK_BOUNDS, number: 0, level: 0, extent }, &values)
    }

    /// Checks a block, stages what is wanted of it in the way that is given, and keeps account of what became of it.
    pub(super) fn put_by(
        &self,
        block: &Block<'_>,
        source: &Source<'_>,
        stage: impl Fn(&BlockPart<'_>, &Field, &Source<'_>) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let (field, wanted) = self.admit(&mut *self.state()?, block, Some(source))?;
        if wanted == BlockDemand::NOTHING {
            return Ok(Outcome::Undemanded);
        }
        let stored = block.extent.stored_shape();
        if source.shape() != &stored[..] {
            return Err(Error::out_of_bounds(format!(
                "field '{}': the array has shape {:?}, the block with its ghosts {:?}",
                block.field,
                source.shape(),
                &stored[..]
            )));
        }
        // Those of a block that is staged as it is come with it.
        let counted = match wanted.stats_of_field && wanted.data != Wanted::Whole {
            true => Some(stats_of(&field, &block.extent, source)?),
            false => None,
        };
        let (mut staged, mut dropped, mut failed) = (0, false, None);
        for (part, elements) in BlockPart::wanted_of(block, source, &wanted)? {
            match stage(&part, &field, &elements) {
                Ok(Outcome::Staged) => staged += 1,
                Ok(_) => dropped = true,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mut state = lock(&self.state);
        if let Some(open) = state.open.as_mut() {
            open.blocks += staged;
            open.dropped |= dropped;
            if let Some(counted) = counted.filter(|_| failed.is_none()) {
                open.stats.entry(block.field.to_owned()).or_insert(Stats::EMPTY).merge(&counted);
            }
        }
        match failed {
            None if dropped => Ok(Outcome::Dropped),
            None => Ok(Outcome::Staged),
            Some(error) => {
                // Of what is there in parts the servers know.
                if staged == 0 {
                    state.forget(block.field, block.number);
                }
                self.on_staging_lost(&mut state, error).map(|()| Outcome::Dropped)
            }
        }
    }

    /// Checks a block, and the array that it is put from, against its field and what was put before. Returns the field, and
    /// what is wanted of the block.
    pub(super) fn admit(
        &self,
        state: &mut ProducerState,
        block: &Block<'_>,
        source: Option<&Source<'_>>,
    ) -> Result<(Arc<Field>, BlockDemand)> {
        let field = state.field(&self.stream, block.field)?.clone();
        if let Some(source) = source {
            check_dtype(&field, source.dtype())?;
        }
        let name = format_args!("block {} of rank {}", block.number, self.rank());
        check_block_fits(&field, name, block.level, &block.extent)?;
        let ProducerState { open, species, staging, demand, counts, .. } = state;
        let open = open.as_mut().ok_or_else(|| no_step("a put"))?;
        if field.is_static && counts.begun > 1 {
            return Err(Error::step_order(format!(
                "field '{}' is static: it is put once, in the first step of this rank, and not at step {}",
                block.field, open.step
            )));
        }
        species.check(&mut open.counts, block)?;
        if !open.keys.insert((block.field.to_owned(), block.number)) {
            return Err(Error::conflict(format!(
                "{name} of field '{}' was already put at step {}; give each block of a step its own number",
                block.field, open.step
            )));
        }
        let wanted = match staging.is_active() {
            true => demand.of_block(&field, open.step, block.level, &block.extent),
            false => BlockDemand::NOTHING,
        };
        Ok((field, wanted))
    }

    /// Stages a block through the home server; through the next one where that dies.
    pub(super) fn stage(&self, block: &BlockPart<'_>, field: &Field, source: &Source<'_>) -> Result<Outcome> {
        self.through_home(|home| self.stage_through(home, block, field, source))
    }

    /// Stages a block; this home server is told of it.
    fn stage_through(
        &self,
        home: &Arc<PutTarget>,
        block: &BlockPart<'_>,
        field: &Field,
        source: &Source<'_>,
    ) -> Result<Outcome> {
        let bytes = block.extent.bytes(field.dtype)?;
        if bytes <= INLINE_MAX as u64 {
            let mut stats = StatsOnTheWay::new(field, block);
            let inline = source.to_vec(stats.while_copied()).into_boxed_slice();
            let stats = stats.done(&inline);
            let put = put_block(block, BytesLocation::Inline(inline), stats);
            self.publish(home, StoredBlock { put, place: BytesPlace::Message })?;
            return Ok(Outcome::Staged);
        }
        let target = self.target_of(block, field, home)?;
        match self.stage_at((&target, home), block, field, source) {
            Err(error) if self.on_target_lost(&target, home, &error) => {
                self.stage_at((home, home), block, field, source)
            }
            staged => staged,
        }
    }

    /// Stages a block of more than a few bytes at a server; the home server is told of it.
    fn stage_at(
        &self,
        (target, home): (&Arc<PutTarget>, &Arc<PutTarget>),
        block: &BlockPart<'_>,
        field: &Field,
        source: &Source<'_>,
    ) -> Result<Outcome> {
        let bytes = block.extent.bytes(field.dtype)?;
        let mut stats = StatsOnTheWay::new(field, block);
        let Some(arena) = &target.arena else {
            let dense = gather(source, stats.while_copied());
            return match self.send((target, home), block, &dense, stats.done(&dense)) {
                Ok(()) => Ok(Outcome::Staged),
                Err(error) if error.kind == ErrorKind::Full && self.drops() => Ok(Outcome::Dropped),
                Err(error) => Err(error),
            };
        };
        let Some(grant) = self.memory_at(target, bytes)? else { return Ok(Outcome::Dropped) };
        let placed = target.copy_in(arena, grant, source, stats.while_copied())?;
        let stats = arena.mapping.with_readable(placed.offset, placed.bytes, |bytes| stats.done(bytes))?;
        let (held, place) = self.hold((target, home), &placed)?;
        self.publish(home, StoredBlock { put: put_block(block, held, stats), place })?;
        Ok(Outcome::Staged)
    }

    /// Sends a block's bytes over the network to the server that is to hold it, and waits until it does.
    fn send(
        &self,
        (target, home): (&Arc<PutTarget>, &Arc<PutTarget>),
        block: &BlockPart<'_>,
        dense: &[u8],
        stats: Option<BlockStats>,
    ) -> Result<()> {
        if Arc::ptr_eq(target, home) {
            let sent = self.send_with_bytes(home, put_block(block, BytesLocation::Payload, stats), dense)?;
            return self.note_stored(home, sent);
        }
        let step = self.note_elsewhere(target)?;
        let place = Request::Place { step, size: dense.len() as u64, bytes: BytesLocation::Payload };
        let (rpc, payload) = (&target.rpc, Some(Payload(dense)));
        let answer = rpc.call_within(&place, payload, rpc.patience(), "to hold a block")?;
        let location = location_in(answer.message)?;
        // The home answers, as to a put to it: over the network what was only sent may be lost.
        let message = producer::Request::Put(put_block(block, BytesLocation::Placed(location), stats));
        home.rpc.call(&message, "to know of a block")?;
        let producer::Request::Put(put) = message else { return Err(Error::internal("not a put")) };
        self.note_stored(home, StoredBlock { put, place: BytesPlace::Message })
    }
}
