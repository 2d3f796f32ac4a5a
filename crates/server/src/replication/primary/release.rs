//! What is needed no more: its memory is free when no backup holds it any more.

use super::unneeded::{Release, Unneeded};
use super::{Consequence, Primary};
use crate::context::Context;
use forebay_core::ids::ServerId;
use forebay_core::seeded::{Bug, seeded};
use forebay_wire::peer::replication::{Message, ReplicaUnit};

impl Primary {
    /// A unit is needed no more, here or where it has copies. Its memory is free when its backups have heard so: a backup that
    /// had not, and answered for it after this server's death, would answer with what was put there since.
    pub(crate) fn release(&mut self, cx: &mut Context<'_>, unit: ReplicaUnit, unneeded: Unneeded) {
        self.shared.remove(&unit);
        let held_by = self.units.remove(&unit).map(|unit| unit.asked).unwrap_or_default();
        if held_by.is_empty() {
            return self.free(cx, unneeded);
        }
        let token = cx.server.unique();
        for backup in held_by.iter().filter(|_| !seeded(Bug::FreesOnlyItsOwn)) {
            cx.tell(*backup, Message::Release { token, unit: unit.clone() });
        }
        if !unneeded.held.is_empty() {
            self.releases.insert(token, Release { unneeded, held_by });
        }
    }

    /// A backup holds something no more that this server has released.
    pub(crate) fn on_released(&mut self, cx: &Context<'_>, from: ServerId, token: u64) {
        let Some(release) = self.releases.get_mut(&token) else { return };
        release.held_by.remove(&from);
        if release.is_over()
            && let Some(Release { unneeded, .. }) = self.releases.remove(&token)
        {
            self.free(cx, unneeded);
        }
    }

    /// These servers hold nothing any more.
    pub(super) fn release_without(&mut self, cx: &Context<'_>, left: &[ServerId]) {
        let over = self.releases.extract_if(|_, release| {
            release.held_by.retain(|backup| !left.contains(backup));
            release.is_over()
        });
        for (_, Release { unneeded, .. }) in over.collect::<Vec<_>>() {
            self.free(cx, unneeded);
        }
    }

    /// Nobody else holds it any more.
    fn free(&mut self, cx: &Context<'_>, unneeded: Unneeded) {
        let Unneeded { held, unseen_before, asked_to_free } = unneeded;
        cx.server.free_unseen(held, unseen_before);
        let freed = asked_to_free.into_iter().map(|(server, token)| Consequence::Freed(server, token));
        self.consequences.extend(freed);
    }
}
