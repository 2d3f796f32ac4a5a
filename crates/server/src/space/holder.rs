//! A holder of blocks: it registers the blocks that are put to it with their owners, and frees them when no owner knows them
//! any more.
//!
//! - this module: the blocks, and freeing them;
//! - [`registration`]: registering blocks; `descriptions`: under which descriptions;
//! - `hand_over`: telling new owners of blocks that a dead owner knew.

mod descriptions;
mod hand_over;
pub(crate) mod registration;

use super::{FieldAtStep, Group};
use crate::context::Context;
use crate::held::Held;
use descriptions::Descriptions;
use forebay_cluster::environment::HashMap;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, DescriptionNumber, Epoch, ServerId};
use forebay_core::{Error, Result};
use forebay_wire::peer::replication::SpaceBlock;
use forebay_wire::peer::space::Message;
use std::sync::Arc;

/// What this server knows as a holder.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    blocks: HashMap<Held, HeldBlock>,
    /// The range of each block.
    ranges: HashMap<BlockKey, Held>,
    /// How many blocks are not free yet that an owner asked this server to free, by that owner and its question's token.
    unfreed: HashMap<(ServerId, u64), usize>,
    descriptions: Descriptions,
    /// Blocks that no owner knows any more, until [`Holder::take_unused`].
    unused: Vec<UnusedBlock>,
}

/// A block that this server holds.
#[derive(Debug)]
struct HeldBlock {
    /// The owners that it is registered with, or is being.
    owners: Vec<ServerId>,
    field: Arc<Field>,
    key: FieldAtStep,
    record: BlockRecord,
    /// Under which description it is registered; 0 until it is.
    description: DescriptionNumber,
    /// Whether its put has not been acknowledged yet.
    is_put: bool,
    /// The epoch since which an owner is gone that may have told readers of it, who may look at it still; 0 if none is, the
    /// highest number while that is being agreed.
    unseen_before: Epoch,
    /// Owners that have let go of it and are told when it is free, with their questions' tokens.
    asked_to_free: Vec<(ServerId, u64)>,
}

/// A block that no owner knows any more: nobody needs its copies, and its memory is free when nobody holds them.
#[derive(Debug)]
pub(crate) struct UnusedBlock {
    pub(crate) key: BlockKey,
    pub(crate) range: Held,
    /// Who was told of it before this epoch may look at it still.
    pub(crate) unseen_before: Epoch,
    /// Of whom [`Holder::on_block_freed`] is to be told then.
    pub(crate) asked_to_free: Vec<(ServerId, u64)>,
}

impl HeldBlock {
    fn new(field: Arc<Field>, key: FieldAtStep, record: BlockRecord) -> HeldBlock {
        HeldBlock {
            owners: Vec::new(),
            field,
            key,
            record,
            description: 0,
            is_put: false,
            unseen_before: 0,
            asked_to_free: Vec::new(),
        }
    }
}

impl Holder {
    /// A block is being put to this server, which holds it in this range. If it was put before by a client that had no
    /// answer, returns what has become of that, and the range is not needed.
    pub(crate) fn begin_put(
        &mut self,
        range: Held,
        field: Arc<Field>,
        key: FieldAtStep,
        record: BlockRecord,
    ) -> Option<Result<()>> {
        let name = record.key;
        let Some(before) = self.ranges.get(&name).and_then(|range| self.blocks.get(range)) else {
            self.hold(range, HeldBlock { is_put: true, ..HeldBlock::new(field, key, record) });
            return None;
        };
        let is_same = before.record.extent == record.extent && *before.field == *field;
        Some(match before.is_put {
            _ if !is_same => Err(Error::conflict(format!("{name} was already put with other content"))),
            true => Err(Error::unreachable(format!("{name} is still being put: try again"))),
            false => Ok(()),
        })
    }

    /// The put of a block has ended: it stays if an owner knows it.
    pub(crate) fn end_put(&mut self, range: Held) {
        if let Some(block) = self.blocks.get_mut(&range) {
            block.is_put = false;
        }
        self.let_go_if_unknown(range);
    }

    /// The holder of a block is dead, and this server holds it in that one's place. Its owners are told when shards pass on.
    pub(super) fn take_over(&mut self, range: Held, block: SpaceBlock, epoch: Epoch) {
        let SpaceBlock { field, step, description, record } = block;
        let key = FieldAtStep::new(&field.name, step);
        let block = HeldBlock::new(field, key, record);
        self.hold(range, HeldBlock { description, unseen_before: epoch, ..block });
    }

    fn hold(&mut self, range: Held, block: HeldBlock) {
        self.ranges.insert(block.record.key, range);
        self.blocks.insert(range, block);
    }

    /// An owner has let go of these blocks, and is told when nobody holds them any more: then no copy comes back after this
    /// server's death.
    pub(super) fn on_free(
        &mut self,
        cx: &mut Context<'_>,
        group: &dyn Group,
        (owner, token): (ServerId, u64),
        locations: &[Location],
    ) {
        let mut unfreed = 0;
        for location in locations {
            // What it holds in the place of a dead server lies in arenas of its own.
            let successors = group.successors(location.server, location.arena).into_iter();
            let here = successors.chain([(location.server, location.arena)]).filter(|(by, _)| *by == cx.me());
            let ranges: Vec<Held> = here.map(|(_, arena)| Held { arena, ..range_at(location) }).collect();
            for range in ranges {
                let Some(block) = self.blocks.get_mut(&range) else { continue };
                block.asked_to_free.push((owner, token));
                unfreed += 1;
                self.let_go(owner, range);
            }
        }
        if unfreed == 0 {
            cx.tell(owner, Message::Freed { token });
        } else {
            *self.unfreed.entry((owner, token)).or_default() += unfreed;
        }
    }

    /// The memory of a block is free that an owner had asked this server to free.
    pub(crate) fn on_block_freed(&mut self, cx: &mut Context<'_>, (owner, token): (ServerId, u64)) {
        let Some(left) = self.unfreed.get_mut(&(owner, token)) else { return };
        *left -= 1;
        if *left == 0 {
            self.unfreed.remove(&(owner, token));
            cx.tell(owner, Message::Freed { token });
        }
    }

    /// An owner does not know a block any more.
    pub(crate) fn let_go(&mut self, owner: ServerId, range: Held) {
        let Some(block) = self.blocks.get_mut(&range) else { return };
        if let Some(at) = block.owners.iter().position(|known| *known == owner) {
            block.owners.swap_remove(at);
        }
        self.let_go_if_unknown(range);
    }

    /// A block that no owner knows is held no more, unless it is still being put.
    fn let_go_if_unknown(&mut self, range: Held) {
        let is_unknown = |block: &HeldBlock| block.owners.is_empty() && !block.is_put;
        if !self.blocks.get(&range).is_some_and(is_unknown) {
            return;
        }
        if let Some(block) = self.blocks.remove(&range) {
            let HeldBlock { record: BlockRecord { key, .. }, unseen_before, asked_to_free, .. } = block;
            self.ranges.remove(&key);
            self.unused.push(UnusedBlock { key, range, unseen_before, asked_to_free });
        }
    }

    /// The blocks that no owner knows any more since this was called last: the caller has their copies forgotten, and frees
    /// them.
    pub(crate) fn take_unused(&mut self) -> Vec<UnusedBlock> {
        std::mem::take(&mut self.unused)
    }

    /// A server is dead: it counts as an owner no more where another owner knows the block as well. What it alone knew stays
    /// until its successor is told of it; readers that it told may still look at its blocks.
    pub(crate) fn on_server_gone(&mut self, server: ServerId) {
        for block in self.blocks.values_mut().filter(|block| block.owners.contains(&server)) {
            block.unseen_before = Epoch::MAX;
            if block.owners.iter().any(|owner| *owner != server) {
                block.owners.retain(|owner| *owner != server);
            }
        }
    }

    /// A view is in force without all servers that are gone: none of an earlier view tells readers of blocks.
    pub(crate) fn on_gone_agreed(&mut self, epoch: Epoch) {
        let undecided = self.blocks.values_mut().filter(|block| block.unseen_before == Epoch::MAX);
        undecided.for_each(|block| block.unseen_before = epoch);
    }

    /// The blocks that their owners know.
    pub(super) fn registered(&self) -> impl Iterator<Item = BlockKey> {
        self.blocks.values().filter(|block| block.description > 0).map(|block| block.record.key)
    }

    /// The blocks that their owners know: of which field, under which description, and how many bytes.
    pub(super) fn held(&self) -> impl Iterator<Item = (&FieldAtStep, DescriptionNumber, u64)> {
        let registered = self.blocks.values().filter(|block| block.description > 0 && !block.is_put);
        registered.map(|block| (&block.key, block.description, block.record.location.bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn has_open_puts(&self) -> bool {
        self.blocks.values().any(|block| block.is_put)
    }

    pub(super) fn range_of(&self, key: BlockKey) -> Option<Held> {
        self.ranges.get(&key).copied()
    }

    /// What owners know of a block.
    pub(super) fn block_of(&self, key: BlockKey) -> Option<SpaceBlock> {
        let block = self.blocks.get(&self.range_of(key)?)?;
        let (field, record) = (block.field.clone(), block.record.clone());
        Some(SpaceBlock { field, step: block.key.step, description: block.description, record })
    }

    /// Checks what always holds between two events.
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        if self.ranges.len() != self.blocks.len() {
            return Err(format!("{} keys of {} blocks", self.ranges.len(), self.blocks.len()));
        }
        let mut unfreed: HashMap<(ServerId, u64), usize> = HashMap::default();
        for (range, block) in &self.blocks {
            let key = block.record.key;
            if self.ranges.get(&key) != Some(range) {
                return Err(format!("{key} is held at {range:?}, not at {:?}", self.ranges.get(&key)));
            }
            if block.owners.is_empty() && !block.is_put {
                return Err(format!("{key} is held for no owner"));
            }
            block.asked_to_free.iter().for_each(|asked| *unfreed.entry(*asked).or_default() += 1);
        }
        let known = |asked| self.unfreed.get(asked).copied().unwrap_or(0);
        if let Some((asked, n)) = unfreed.iter().find(|(asked, n)| known(asked) < **n) {
            return Err(format!("{n} blocks are to be freed for {asked:?}, {} are counted", known(asked)));
        }
        if let Some(asked) = self.unfreed.iter().find_map(|(asked, n)| (*n == 0).then_some(asked)) {
            return Err(format!("{asked:?} was not told that all is free"));
        }
        if !self.unused.is_empty() {
            return Err(format!("{} unused blocks were not freed", self.unused.len()));
        }
        self.descriptions.sanity_check()
    }
}

/// The range at which a server holds what is at a place.
fn range_at(location: &Location) -> Held {
    Held { arena: location.arena, offset: location.offset, generation: location.generation }
}
