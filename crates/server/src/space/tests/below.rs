//! What is below the space in these tests.

use crate::context::Context;
use crate::space::{FieldAtStep, Group};
use forebay_core::ids::ServerId;
use forebay_core::shards::Shards;
use forebay_core::tiles::{TileCache, TileMap};
use forebay_wire::peer::space::Message;

/// What the components below the space say.
#[derive(Debug, Default)]
pub(super) struct Below {
    tiles: TileCache,
    pub(super) some_have_not_told: bool,
    pub(super) deferred: Vec<(ServerId, Message)>,
}

impl Group for Below {
    fn tiles(&mut self, shards: &Shards, key: &FieldAtStep, shape: Option<&[u64]>) -> TileMap {
        self.tiles.map(shards, key.hash(), shape)
    }

    fn successors(&self, _: ServerId, _: u32) -> Vec<(ServerId, u32)> {
        // There are no copies.
        Vec::new()
    }

    fn all_reported(&self, _: &Context<'_>) -> bool {
        !self.some_have_not_told
    }

    fn defer(&mut self, from: ServerId, message: Message) -> bool {
        self.deferred.push((from, message));
        true
    }
}
