//! Servers that watch fields are told what is registered of those.

use super::{FieldAtStep, Owner};
use crate::context::Context;
use forebay_core::ids::{DescriptionNumber, ServerId, StepNumber};
use forebay_wire::peer::subscriptions::Message;

/// How many steps one message tells of.
const TOLD_AT_ONCE: usize = 4096;

impl Owner {
    /// A server watches fields of these names, and no others. It is told what this owner knows of some.
    pub(crate) fn on_watch(
        &mut self,
        cx: &mut Context<'_>,
        (from, token): (ServerId, u64),
        fields: Vec<String>,
        again: &[String],
    ) {
        for field in again {
            let first = FieldAtStep::new(field, 0);
            let of_name = self.fields.range(first..).take_while(|(key, _)| key.field == *field);
            let known: Vec<(StepNumber, DescriptionNumber)> =
                of_name.map(|(key, owned)| (key.step, owned.description())).collect();
            for steps in known.chunks(TOLD_AT_ONCE) {
                cx.tell(from, Message::Known { token, field: field.clone(), steps: steps.to_vec() });
            }
        }
        self.watchers.set(from, fields.into_iter().collect());
        cx.tell(from, Message::Watching { token });
    }

    /// A server is gone: it watches nothing any more.
    pub(crate) fn on_watcher_gone(&mut self, server: ServerId) {
        self.watchers.remove(server);
    }

    /// Something of a field has changed: those who wait for it are woken, and those who watch it told.
    pub(super) fn note_changed(&self, cx: &mut Context<'_>, key: &FieldAtStep) {
        self.changes.wake(key);
        let Some(description) = self.description_of(key) else { return };
        for server in self.watchers.of(&key.field) {
            let steps = vec![(key.step, description)];
            cx.tell(server, Message::Known { token: 0, field: key.field.clone(), steps });
        }
    }

    /// A field is known at a step no more: those who watch it are told.
    pub(super) fn note_gone(&self, cx: &mut Context<'_>, key: &FieldAtStep, description: DescriptionNumber) {
        for server in self.watchers.of(&key.field) {
            let (field, step) = (key.field.clone(), key.step);
            cx.tell(server, Message::Gone { field, step, description });
        }
    }
}
