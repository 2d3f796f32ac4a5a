//! The space among the other components: what it needs of them, what follows for them from its events, and what waits for it.
//!
//! - this module: the space is told of events;
//! - `put`, `registration`, `replace`: putting a block; `find`: finding blocks; `list`: which there are; `remove`: removing a field.

mod find;
mod list;
mod put;
mod registration;
mod remove;
mod replace;

use super::{Components, Node};
use crate::context::Context;
use crate::replication::primary::Unneeded;
use crate::replication::successors::Successors;
use crate::space::holder::UnusedBlock;
use crate::space::{FieldAtStep, Group, Space};
use crate::streams::locations::Locations;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::shards::Shards;
use forebay_core::tiles::{TileCache, TileMap};
use forebay_core::{Error, Result};
use forebay_wire::peer::replication::ReplicaUnit;
use forebay_wire::peer::space::Message;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long the owners of a field may take to register a block, or to remove one.
const OWNERS_PATIENCE: Duration = Duration::from_secs(20);

/// The components that the space asks.
struct Below<'a> {
    tiles: &'a mut TileCache,
    successors: &'a Successors,
    locations: &'a mut Locations,
}

impl Group for Below<'_> {
    fn tiles(&mut self, shards: &Shards, key: &FieldAtStep, shape: Option<&[u64]>) -> TileMap {
        self.tiles.map(shards, key.hash(), shape)
    }

    fn successors(&self, server: ServerId, arena: u32) -> Vec<(ServerId, u32)> {
        self.successors.of_arena((server, arena))
    }

    fn all_reported(&self, cx: &Context<'_>) -> bool {
        self.locations.all_told(&cx.server.standing().view, cx.me(), |id| cx.members().is_gone(id))
    }

    fn defer(&mut self, from: ServerId, message: Message) -> bool {
        self.locations.defer(from, message)
    }
}

impl Node {
    /// The space handles an event, and what follows from it for other components is done.
    pub(crate) fn with_space<R>(
        &self,
        state: &mut Components,
        event: impl FnOnce(&mut Space, &mut Context<'_>, &mut dyn Group) -> R,
    ) -> R {
        let Components { common, space, tiles, replication, locations, .. } = &mut *state;
        let cx = &mut Context { server: &self.shared, common };
        let below = &mut Below { tiles, successors: &replication.successors, locations };
        let result = event(space, cx, below);
        for (removal, revoked) in space.owner.take_replaced(cx, below) {
            self.space_forget_replaced(removal, revoked);
        }
        for UnusedBlock { key, range, unseen_before, asked_to_free } in space.holder.take_unused() {
            let unneeded = Unneeded { held: vec![range], unseen_before, asked_to_free };
            self.release(state, ReplicaUnit::Space(key), unneeded);
        }
        result
    }

    /// As `with_space`, for who does not have the state locked; what is queued then is handled.
    fn in_space<R>(&self, event: impl FnOnce(&mut Space, &mut Context<'_>, &mut dyn Group) -> R) -> R {
        let mut state = self.state.lock();
        let result = self.with_space(&mut state, event);
        self.drain(&mut state);
        result
    }

    /// Another server is dead.
    pub(crate) fn space_peer_gone(&self, state: &mut Components, peer: ServerId) {
        state.space.holder.on_server_gone(peer);
        state.space.owner.on_watcher_gone(peer);
    }

    /// A view is in force without all servers that are gone.
    pub(crate) fn space_gone_since(&self, state: &mut Components, epoch: Epoch) {
        state.space.holder.on_gone_agreed(epoch);
    }

    /// Shards have passed on: other servers held them before.
    pub(crate) fn space_register_again(&self, state: &mut Components, before: &Shards) {
        self.with_space(state, |space, cx, group| space.holder.on_shards_reassigned(cx, group, before));
    }

    /// All members have told what follows from the view in force.
    pub(crate) fn space_told_by_all(&self, state: &mut Components) {
        self.with_space(state, |space, cx, _| space.owner.on_all_reported(cx));
    }

    /// The memory of a block is free that an owner had asked this server to free, with the question of this token.
    pub(crate) fn space_tell_freed(&self, state: &mut Components, asked: (ServerId, u64)) {
        self.with_space(state, |space, cx, _| space.holder.on_block_freed(cx, asked));
    }

    /// Waits until the blocks are known that owners knew which have gone.
    async fn space_known(&self, key: &FieldAtStep, deadline: Instant) -> Result<()> {
        let late = || {
            let FieldAtStep { field, step } = key;
            Error::timeout(format!(
                "what there is of field '{field}' at step {step} is not known in time: a server stands still"
            ))
        };
        timeout_at(deadline, self.told_by_all()).await.map_err(|_| late())
    }
}
