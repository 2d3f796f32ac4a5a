//! Removing a field at a step everywhere: by the server that describes it.
//!
//! 1. It finds nothing of the field any more itself, and takes the description back from all servers that may register under
//!    it with other owners; each answers when nothing that it began is on its way.
//! 2. It has the other owners forget the field.
//! 3. What came meanwhile to be described anew is registered.

use super::field::OwnedField;
use super::{Change, FieldAtStep, Owner};
use crate::context::Context;
use crate::space::group::{Group, describer_of, tiles_now};
use crate::space::pending_answer::PendingAnswer;
use forebay_core::ids::{DescriptionNumber, ServerId};
use forebay_wire::peer::space::Message;

/// How a removal begins.
#[derive(Debug)]
pub(crate) enum RemovalStart {
    /// Another server describes the field.
    NotOwned,
    /// It was removed: there is nothing, or this server alone owns it.
    Done,
    /// Another removal of it has not ended: it is to be tried again after this change.
    Busy(Change),
    /// The description is taken back from these servers.
    Begun(Removal, Vec<PendingAnswer>),
}

/// A removal, and the answers that it waits for first.
pub(crate) type RemovalBegun = (Removal, Vec<PendingAnswer>);

/// A removal of a field that several servers own.
#[derive(Debug)]
pub(crate) struct Removal {
    key: FieldAtStep,
    description: DescriptionNumber,
    others: Vec<ServerId>,
}

impl Removal {
    /// This server, which describes a field, knows it no more: takes the description back from who may register under it
    /// with other owners. `None` if there are no others.
    pub(super) fn begin(
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        key: &FieldAtStep,
        owned: &OwnedField,
    ) -> Option<RemovalBegun> {
        let tiles = tiles_now(cx, group, key, owned.field().tiled_shape());
        if tiles.is_single() {
            return None;
        }
        let description = owned.description();
        let revoked = ask_all(cx, owned.registrants(), |token| Message::Revoke { token, description });
        let others = tiles.owners().into_iter().filter(|owner| *owner != cx.me()).collect();
        Some((Removal { key: key.clone(), description, others }, revoked))
    }

    /// What is removed.
    pub(crate) fn key(&self) -> &FieldAtStep {
        &self.key
    }
}

impl Owner {
    /// A field is to be removed at a step.
    pub(crate) fn begin_removal(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        key: &FieldAtStep,
    ) -> RemovalStart {
        if describer_of(cx, key) != cx.me() {
            return RemovalStart::NotOwned;
        }
        if self.removing.contains_key(key) {
            return RemovalStart::Busy(self.changes.next(key));
        }
        let Some(owned) = self.forget(cx, group, key) else { return RemovalStart::Done };
        let Some((removal, revoked)) = Removal::begin(cx, group, key, &owned) else {
            return RemovalStart::Done;
        };
        self.removing.insert(key.clone(), Vec::new());
        RemovalStart::Begun(removal, revoked)
    }

    /// Nothing more is registered under the description: the other owners are to forget the field.
    pub(crate) fn on_revoked(&self, cx: &mut Context<'_>, removal: &Removal) -> Vec<PendingAnswer> {
        let Removal { key, description, others } = removal;
        let forget = |token| {
            let (field, step) = (key.field.clone(), key.step);
            Message::Forget { token, field, step, description: *description }
        };
        ask_all(cx, others.iter().copied(), forget)
    }

    /// A removal has ended: registrations that came meanwhile are looked at again.
    pub(crate) fn end_removal(&mut self, cx: &mut Context<'_>, removal: &Removal) {
        let waiting = self.removing.remove(&removal.key).unwrap_or_default().into_iter();
        cx.common.queue_all(waiting.map(|(from, registration)| (from, registration.into_message().into())));
        self.changes.wake(&removal.key);
    }

    /// The server that describes a field removes what was registered under a description.
    pub(crate) fn on_forget(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        key: &FieldAtStep,
        description: DescriptionNumber,
    ) {
        if self.description_of(key) == Some(description) {
            self.forget(cx, group, key);
        }
    }
}

/// Asks several servers the same; those that are gone have nothing to say.
fn ask_all(
    cx: &mut Context<'_>,
    servers: impl Iterator<Item = ServerId>,
    question: impl Fn(u64) -> Message,
) -> Vec<PendingAnswer> {
    let asked = servers.filter_map(|server| {
        let (token, answer) = cx.ask(server, &question)?;
        Some(PendingAnswer { server, token, answer })
    });
    asked.collect()
}
