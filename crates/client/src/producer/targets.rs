//! Which server holds a block, and which memory of it the block gets.

use crate::connection::rpc::{lock, unexpected};
use crate::producer::block::BlockPart;
use crate::producer::rank::Producer;
use crate::producer::stored_block::BytesPlace;
use crate::put_target::PutTarget;
use forebay_core::block::Location;
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, ServerId, StepNumber};
use forebay_core::{ErrorKind, Result};
use forebay_wire::client::block::{BytesLocation, Grant};
use forebay_wire::client::placement::{Reply, Request};
use forebay_wire::connection::Role;
use std::sync::Arc;

impl Producer {
    /// The server that is to hold a block, connected to at first use; the home server in the place of one that is gone, and of
    /// what belongs to no step.
    pub(super) fn target_of(
        &self,
        block: &BlockPart<'_>,
        field: &Field,
        home: &Arc<PutTarget>,
    ) -> Result<Arc<PutTarget>> {
        if field.is_static {
            return Ok(home.clone());
        }
        let key = BlockKey { part: block.part, ..BlockKey::whole(self.rank(), block.number) };
        let members = lock(&self.state).open.as_ref().and_then(|open| open.members.clone());
        let known = members.unwrap_or_else(|| self.group.known());
        // A user's function is called without the lock: it may take its time.
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
        let target = match self.open_target(server) {
            Ok(target) => Some(Arc::new(target)),
            Err(error) if error.kind == ErrorKind::Unreachable => None,
            Err(error) => return Err(error),
        };
        others.insert(server, target.clone());
        Ok(target.unwrap_or_else(|| home.clone()))
    }

    fn open_target(&self, server: ServerId) -> Result<PutTarget> {
        let rpc = Arc::new(self.group.connect(server, Role::Placement)?);
        let (stream, run, rank, policy) =
            (self.stream.clone(), self.run, self.rank(), self.joining.options.policy);
        let (copies, durability) = (self.joining.options.copies(), self.joining.options.durability);
        let open = Request::Open { stream, run, rank, policy, copies, durability };
        PutTarget::open(server, rpc, &open, |opened| match opened {
            Reply::Opened(arena) => Some(*arena),
            _ => None,
        })
    }

    /// A range of this size: one that came with the step's beginning, or a new one. `None` if there is no room and the policy
    /// is to go on.
    pub(super) fn memory_at(&self, target: &Arc<PutTarget>, bytes: u64) -> Result<Option<Grant>> {
        let mut state = lock(&self.state);
        let open = state.open_for("a put")?;
        open.needs_memory = true;
        let at_hand = open.grants.iter().position(|grant| grant.bytes == bytes);
        if let Some(index) = at_hand.filter(|_| Arc::ptr_eq(target, &self.home())) {
            let grant = open.grants.swap_remove(index);
            state.replay_log.overwrite(&grant);
            return Ok(Some(grant));
        }
        drop(state);
        let grant = target.reserve(bytes)?;
        if let Some(grant) = grant.filter(|_| Arc::ptr_eq(target, &self.home())) {
            lock(&self.state).replay_log.overwrite(&grant);
        }
        Ok(grant)
    }

    /// A range that was granted holds a block now: what the home server is told of where the bytes are, and where they are for
    /// this rank.
    pub(super) fn hold(
        &self,
        (target, home): (&Arc<PutTarget>, &Arc<PutTarget>),
        grant: &Grant,
    ) -> Result<(BytesLocation, BytesPlace)> {
        let granted =
            BytesLocation::Granted { arena: grant.arena, offset: grant.offset, generation: grant.generation };
        if Arc::ptr_eq(target, home) {
            return Ok((granted, BytesPlace::Mapped(target.clone(), *grant)));
        }
        let step = self.note_elsewhere(target)?;
        let place = Request::Place { step, size: grant.bytes, bytes: granted };
        let location = location_in(target.rpc.call(&place, "to hold a block")?.message)?;
        Ok((BytesLocation::Placed(location), BytesPlace::Message))
    }

    /// Notes that blocks of the open step go to a server that is not the home; that step.
    pub(super) fn note_elsewhere(&self, target: &Arc<PutTarget>) -> Result<StepNumber> {
        let mut state = lock(&self.state);
        let open = state.open_for("a put")?;
        open.elsewhere.entry(target.server).or_insert_with(|| target.clone());
        Ok(open.step)
    }
}

/// Where a server holds what was placed there.
pub(super) fn location_in(answer: Reply) -> Result<Location> {
    match answer {
        Reply::Placed(location) => Ok(location),
        other => Err(unexpected(&other)),
    }
}
