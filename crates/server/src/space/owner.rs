//! An owner of tiles: blocks that touch them are registered with it, found, and let go.
//!
//! - this module: what it knows, and registration;
//! - `field`: a field, as one of its owners knows it;
//! - [`search`]: finding blocks; `changes`: waiting for them; `leases`: what readers look at;
//! - [`removal`]: removing a field; `replacing`: putting an array in the place of another; `letting_go`: having the holders of
//!   blocks free them;
//! - `watchers`, `watching`: servers that are told of what is registered.

mod changes;
mod field;
mod free_requests;
mod leases;
mod letting_go;
pub(crate) mod removal;
mod replacing;
pub(crate) mod search;
mod watchers;
mod watching;

pub(crate) use changes::Change;

use super::group::{describer_of, tiles_now};
use super::{FieldAtStep, Group};
use crate::context::Context;
use changes::Changes;
use field::OwnedField;
use forebay_cluster::environment::HashMap;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, DescriptionNumber, ServerId, StepNumber};
use forebay_core::steps::FieldReport;
use forebay_core::{Error, Result};
use forebay_wire::peer::space::Message;
use free_requests::FreeRequests;
use leases::Leases;
use std::collections::BTreeMap;
use watchers::Watchers;

/// What this server knows as an owner.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// The fields that it owns tiles of, or describes.
    fields: BTreeMap<FieldAtStep, OwnedField>,
    /// The fields that this server, which describes them, just removes everywhere, with the registrations that wait for the
    /// end of that.
    removing: HashMap<FieldAtStep, Vec<(ServerId, Registration)>>,
    leases: Leases,
    free_requests: FreeRequests,
    changes: Changes,
    watchers: Watchers,
    /// Fields in whose place others were put, and that other servers know still, until [`Owner::take_replaced`].
    replaced: Vec<(FieldAtStep, OwnedField)>,
}

/// Blocks that a holder registers with this owner.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) token: u64,
    pub(crate) step: StepNumber,
    pub(crate) description: DescriptionNumber,
    pub(crate) report: FieldReport,
}

impl Registration {
    fn key(&self) -> FieldAtStep {
        FieldAtStep::new(&self.report.field.name, self.step)
    }

    /// The message in which it came.
    fn into_message(self) -> Message {
        let Registration { token, step, description, report } = self;
        Message::Register { token, step, description, report }
    }
}

/// Blocks of which a holder tells this owner since the owner that knew them is dead.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) step: StepNumber,
    pub(crate) description: DescriptionNumber,
    pub(crate) report: FieldReport,
}

impl Owner {
    /// A holder registers blocks with this owner of tiles that they touch, or asks it to describe their field.
    pub(super) fn on_register(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        from: ServerId,
        registration: Registration,
    ) {
        let (key, token) = (registration.key(), registration.token);
        let describes = describer_of(cx, &key) == cx.me();
        let wants_description = describes && registration.description == 0;
        if wants_description && !group.all_reported(cx) {
            // A server that is dead may have described the field, and the holders of its blocks are about to tell.
            if !group.defer(from, registration.into_message()) {
                let result = Err(Error::unreachable("too much is put while the group changes: try again"));
                cx.tell(from, Message::Registered { token, result });
            }
            return;
        }
        if let Some(waiting) = self.removing.get_mut(&key).filter(|_| wants_description) {
            waiting.push((from, registration));
            return;
        }
        let result = match registration.report.field.whole {
            true => self.register_whole(cx, group, &key, registration, describes),
            false => self.register(cx, group, from, &key, registration, describes),
        };
        self.note_changed(cx, &key);
        cx.tell(from, Message::Registered { token, result });
    }

    /// Takes blocks into the index: under which description, or 0 if the one that the holder knows is not in force.
    fn register(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        from: ServerId,
        key: &FieldAtStep,
        registration: Registration,
        describes: bool,
    ) -> Result<DescriptionNumber> {
        let Registration { description, report, .. } = registration;
        let Some(description) = self.description_for(cx, group, key, description, describes)? else {
            return Ok(0);
        };
        let is_single = tiles_now(cx, group, key, report.field.tiled_shape()).is_single();
        let field = || OwnedField::new(description, report.field.clone());
        let owned = self.fields.entry(key.clone()).or_insert_with(field);
        key.check_same(owned.field(), &report.field)?;
        if describes && !is_single {
            owned.add_registrant(from);
        }
        let standing = cx.server.standing();
        let some_are_gone = standing.roster.next_id.0 as usize > standing.view.members.len();
        let is_held = |location: &Location| {
            standing.view.members.contains(&location.server)
                || !group.successors(location.server, location.arena).is_empty()
        };
        let (replaced, result) = owned.insert(report.blocks, some_are_gone.then_some(&is_held));
        self.let_go(cx, group, key, replaced);
        result.map(|()| description)
    }

    /// Under which description blocks are registered whose holder knows this one, or 0 for none. `None` if that one is no
    /// longer in force.
    fn description_for(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        key: &FieldAtStep,
        given: DescriptionNumber,
        describes: bool,
    ) -> Result<Option<DescriptionNumber>> {
        let known = self.description_of(key);
        Ok(match known {
            Some(known) if given == 0 && describes => Some(known),
            // Later ones are greater, whichever server describes the field.
            None if given == 0 && describes => Some(new_description(cx)),
            _ if given == 0 => return Err(does_not_describe(cx, key)),
            // The server that describes the field knows best; at others a later description ends an earlier one.
            _ if describes && known != Some(given) => None,
            Some(known) if known > given => None,
            Some(known) if known < given => {
                self.forget(cx, group, key);
                Some(given)
            }
            _ => Some(given),
        })
    }

    /// The description under which this owner knows a field.
    fn description_of(&self, key: &FieldAtStep) -> Option<DescriptionNumber> {
        self.fields.get(key).map(OwnedField::description)
    }

    /// A holder tells of blocks that an owner knew which is dead: this server owns those tiles now, or describes the field.
    pub(super) fn on_hand_over(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        from: ServerId,
        hand_over: HandOver,
    ) {
        let HandOver { step, description, mut report } = hand_over;
        let key = FieldAtStep::new(&report.field.name, step);
        let known = self.description_of(&key);
        if known.is_some_and(|known| known < description) {
            self.forget(cx, group, &key);
        }
        let tells_of_blocks = !report.blocks.is_empty();
        let (blocks, mut refused) = self.without_removed(&key, report.blocks);
        if tells_of_blocks && blocks.is_empty() {
            // All of it was removed.
        } else if known.is_some_and(|known| known > description) {
            // It was removed, and put again.
            refused.extend(blocks.iter().map(|block| block.location));
        } else {
            report.blocks = blocks;
            refused.extend(self.take_over(cx, group, from, &key, description, report));
        }
        self.have_freed(cx, group, refused.into_iter().map(|location| (from, location)));
        self.note_changed(cx, &key);
    }

    /// Of blocks that a holder tells of, those that this owner has not let go of, and where those are that it has, and that
    /// no reader looks at.
    fn without_removed(
        &self,
        key: &FieldAtStep,
        blocks: Vec<BlockRecord>,
    ) -> (Vec<BlockRecord>, Vec<Location>) {
        let freed = self.free_requests.locations();
        let (freed, mut others): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| freed.contains(&block.location));
        // What readers still look at is let go of when they do not.
        others.retain(|block| !self.leases.hold_back(key, &block.location));
        (others, freed.into_iter().map(|block| block.location).collect())
    }

    /// Knows blocks that a dead owner knew. Returns where those are that do not fit.
    fn take_over(
        &mut self,
        cx: &Context<'_>,
        group: &mut dyn Group,
        from: ServerId,
        key: &FieldAtStep,
        description: DescriptionNumber,
        report: FieldReport,
    ) -> Vec<Location> {
        let is_single = tiles_now(cx, group, key, report.field.tiled_shape()).is_single();
        let field = || OwnedField::new(description, report.field.clone());
        let owned = self.fields.entry(key.clone()).or_insert_with(field);
        if !is_single {
            owned.add_registrant(from);
        }
        owned.take_over(key, report.blocks)
    }

    /// A put failed at its holder: this owner lets go of the blocks, if it knows them or not.
    pub(super) fn on_unregister(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        key: &FieldAtStep,
        blocks: &[(BlockKey, Location)],
    ) {
        if let Some(owned) = self.fields.get_mut(key) {
            owned.remove(blocks);
        }
        self.let_go(cx, group, key, blocks.iter().map(|(_, location)| *location).collect());
    }

    /// The fields that this server describes, and under which descriptions.
    pub(super) fn described(
        &self,
        cx: &Context<'_>,
    ) -> impl Iterator<Item = (&FieldAtStep, DescriptionNumber, &Field)> {
        let described = self.fields.iter().filter(|(key, _)| describer_of(cx, key) == cx.me());
        described.map(|(key, owned)| (key, owned.description(), owned.field()))
    }

    /// How many blocks this owner knows, and about how many bytes that takes.
    pub(super) fn size(&self) -> (u64, u64) {
        self.fields.values().map(OwnedField::size).fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
    }

    /// Checks what always holds between two events.
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        self.leases.sanity_check(|key| self.fields.contains_key(key))?;
        self.free_requests.sanity_check()?;
        let unnamed = self.fields.iter().find(|(key, owned)| key.field != owned.field().name);
        unnamed.map_or(Ok(()), |(key, owned)| Err(format!("{key} is known as '{}'", owned.field().name)))
    }
}

/// A number for a description: later ones are greater, whichever server describes the field.
fn new_description(cx: &Context<'_>) -> DescriptionNumber {
    u128::from(cx.server.epoch()) << 64 | u128::from(cx.server.unique())
}

/// The error of a server that does not describe a field: the holder knows a view already that this one does not, or the other
/// way round, and asks again.
fn does_not_describe(cx: &Context<'_>, key: &FieldAtStep) -> Error {
    let (me, epoch) = (cx.me(), cx.server.epoch());
    Error::unreachable(format!("{me} does not describe field '{}' as of epoch {epoch}", key.field))
}
