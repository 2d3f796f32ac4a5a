//! The space: blocks that were put to be kept until they are removed, found by field, step and region.
//!
//! A field is cut into tiles, each of which has an owner that knows the blocks there; one of the owners also
//! describes the field. The blocks are held by the servers that they were put to.
//!
//! - [`owner`]: what this server does as an owner: blocks are registered with it, found, and let go;
//! - [`holder`]: what it does as a holder: it registers the blocks that it holds with their owners, and frees them;
//! - `field_at_step`: what is put, found and removed;
//! - [`Group`]: what both roles ask of the rest of the server; [`PendingAnswer`]: of another one.
//!
//! Each role has its own state, and they tell each other messages, also where one server has both. What waits for answers
//! is at the server's level: `node/space`.

mod field_at_step;
mod group;
pub(crate) mod holder;
pub(crate) mod owner;
mod pending_answer;
#[cfg(test)]
mod tests;

pub(crate) use field_at_step::FieldAtStep;
pub(crate) use group::Group;
pub(crate) use pending_answer::PendingAnswer;

use crate::context::Context;
use crate::held::Held;
use crate::questions::Answer;
use forebay_core::ids::{BlockKey, Epoch, ServerId};
use forebay_wire::client::space::Listed;
use forebay_wire::peer::replication::{ReplicaUnit, SpaceBlock};
use forebay_wire::peer::space::Message;
use holder::Holder;
use owner::{HandOver, Owner, Registration};
use std::collections::BTreeMap;

/// What a server knows of the space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) owner: Owner,
    pub(crate) holder: Holder,
}

impl Space {
    /// A server says something about blocks of the space.
    pub(crate) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        from: ServerId,
        message: Message,
    ) {
        let Space { owner, holder } = self;
        match message {
            Message::Register { token, step, description, report } => {
                owner.on_register(cx, group, from, Registration { token, step, description, report });
            }
            Message::Registered { token, result } => holder.on_registered(cx, token, result),
            Message::HandOver { step, description, report } => {
                owner.on_hand_over(cx, group, from, HandOver { step, description, report });
            }
            Message::Unregister { field, step, blocks } => {
                owner.on_unregister(cx, group, &FieldAtStep { field, step }, &blocks);
            }
            Message::Revoke { token, description } => holder.on_revoke(cx, from, token, description),
            Message::Forget { token, field, step, description } => {
                owner.on_forget(cx, group, &FieldAtStep { field, step }, description);
                cx.tell(from, Message::Done { token });
            }
            Message::Done { token } => cx.common.questions.answer(token, Answer::Done(Ok(()))),
            Message::Free { token, locations } => holder.on_free(cx, group, (from, token), &locations),
            Message::Freed { token } => owner.on_freed(from, token),
        }
    }

    /// The blocks that this server holds and whose owners know them.
    pub(crate) fn held_units(&self) -> impl Iterator<Item = ReplicaUnit> {
        self.holder.registered().map(ReplicaUnit::Space)
    }

    /// Whether this server holds any block.
    pub(crate) fn holds_blocks(&self) -> bool {
        !self.holder.is_empty()
    }

    /// Whether a block is being put to this server.
    pub(crate) fn has_open_puts(&self) -> bool {
        self.holder.has_open_puts()
    }

    /// The range in which this server holds a block.
    pub(crate) fn range_of(&self, key: BlockKey) -> Option<Held> {
        self.holder.range_of(key)
    }

    /// What owners know of a block that this server holds.
    pub(crate) fn block_of(&self, unit: &ReplicaUnit) -> Option<SpaceBlock> {
        let ReplicaUnit::Space(key) = unit else { return None };
        self.holder.block_of(*key)
    }

    /// The holder of a block is dead, and this server holds it in that one's place since this epoch.
    pub(crate) fn take_over(&mut self, range: Held, block: SpaceBlock, epoch: Epoch) {
        self.holder.take_over(range, block, epoch);
    }

    /// The first arrays after this one that this server describes or holds blocks of. Looks at all that it knows.
    pub(crate) fn list(&self, cx: &Context<'_>, after: Option<&FieldAtStep>, most: usize) -> Vec<Listed> {
        let mut found: BTreeMap<FieldAtStep, Listed> = BTreeMap::new();
        let mut at = |key: &FieldAtStep, tell: &mut dyn FnMut(&mut Listed)| {
            let is_among = found.len() < most || found.last_key_value().is_some_and(|(last, _)| key <= last);
            if after.is_some_and(|after| key <= after) || !is_among {
                return;
            }
            let new =
                || Listed { name: key.field.clone(), step: key.step, described: None, held: Vec::new() };
            tell(found.entry(key.clone()).or_insert_with(new));
            if found.len() > most {
                found.pop_last();
            }
        };
        for (key, description, field) in self.owner.described(cx) {
            at(key, &mut |listed| listed.described = Some((description, field.clone())));
        }
        for (key, description, bytes) in self.holder.held() {
            at(key, &mut |listed| match listed.held.iter_mut().find(|held| held.0 == description) {
                Some((_, blocks, sum)) => (*blocks, *sum) = (*blocks + 1, *sum + bytes),
                None => listed.held.push((description, 1, bytes)),
            });
        }
        found.into_values().collect()
    }

    /// How many blocks this server knows as an owner, and about how many bytes that takes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.owner.size()
    }

    /// Checks what always holds between two events.
    #[cfg_attr(not(test), expect(dead_code, reason = "the simulation calls it"))]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        self.owner.sanity_check()?;
        self.holder.sanity_check()
    }
}
