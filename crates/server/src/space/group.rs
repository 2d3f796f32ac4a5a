//! What the space needs to know of the group: from the components below it, which it neither knows nor changes.

use super::FieldAtStep;
use crate::context::Context;
use forebay_core::ids::ServerId;
use forebay_core::shards::Shards;
use forebay_core::tiles::TileMap;
use forebay_wire::peer::space::Message;

/// What the space asks of the rest of its server.
pub(crate) trait Group {
    /// Which servers own which tiles of a field of this shape, while they own these shards.
    fn tiles(&mut self, shards: &Shards, key: &FieldAtStep, shape: Option<&[u64]>) -> TileMap;

    /// The servers that hold what a dead server held in this arena, and the arenas in which they do.
    fn successors(&self, server: ServerId, arena: u32) -> Vec<(ServerId, u32)>;

    /// Whether every other member has told what follows from the view in force: what it holds and which arenas it stands
    /// for.
    fn all_reported(&self, cx: &Context<'_>) -> bool;

    /// A message waits until all members have told; `false` if too many wait already.
    fn defer(&mut self, from: ServerId, message: Message) -> bool;
}

/// Which servers own which tiles of a field as of the roster in force.
pub(super) fn tiles_now(
    cx: &Context<'_>,
    group: &mut dyn Group,
    key: &FieldAtStep,
    shape: Option<&[u64]>,
) -> TileMap {
    group.tiles(&cx.server.standing().roster.shards, key, shape)
}

/// The server that describes a field as of the roster in force.
pub(super) fn describer_of(cx: &Context<'_>, key: &FieldAtStep) -> ServerId {
    cx.server.standing().roster.shards.owner_of(key.hash()).unwrap_or(cx.me())
}
