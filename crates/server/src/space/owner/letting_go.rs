//! An owner lets go of blocks: it tells their holders to free them, and knows until they have that it did.

use super::field::OwnedField;
use super::free_requests::FreeRequest;
use super::{FieldAtStep, Owner};
use crate::context::Context;
use crate::space::Group;
use forebay_core::block::Location;
use forebay_core::ids::ServerId;
use forebay_wire::peer::space::Message;
use std::collections::BTreeMap;

/// Blocks that one message frees: more would not fit into it.
const FREED_AT_ONCE: usize = 1 << 18;

impl Owner {
    /// Whether holders have freed all that this owner has let go of.
    #[cfg(test)]
    pub(crate) fn has_freed_all(&self) -> bool {
        self.free_requests.0.is_empty()
    }

    /// A reader has finished with the blocks that it was told of.
    pub(crate) fn on_release(&mut self, cx: &mut Context<'_>, group: &mut dyn Group, lease: u64) {
        if let Some((_, locations)) = self.leases.end(lease) {
            self.free(cx, group, locations);
        }
    }

    /// Nobody finds a field at a step at this owner any more.
    pub(super) fn forget(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        key: &FieldAtStep,
    ) -> Option<OwnedField> {
        let owned = self.fields.remove(key)?;
        self.note_gone(cx, key, owned.description());
        self.let_go(cx, group, key, owned.locations());
        Some(owned)
    }

    /// This owner needs these blocks no longer, once no reader does.
    pub(super) fn let_go(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        key: &FieldAtStep,
        locations: Vec<Location>,
    ) {
        let locations = self.leases.on_removed(key, locations);
        self.free(cx, group, locations);
    }

    /// Has all servers free these blocks that may hold them now: others have nothing there.
    fn free(&mut self, cx: &mut Context<'_>, group: &mut dyn Group, locations: Vec<Location>) {
        let mut at = Vec::new();
        for location in locations {
            let successors = group.successors(location.server, location.arena);
            at.extend(successors.into_iter().map(|(server, _)| (server, location)));
            at.push((location.server, location));
        }
        self.have_freed(cx, group, at);
    }

    /// Tells servers to free blocks that they hold.
    pub(super) fn have_freed(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        at: impl IntoIterator<Item = (ServerId, Location)>,
    ) {
        let mut by_holder: BTreeMap<ServerId, Vec<Location>> = BTreeMap::new();
        for (holder, location) in at {
            by_holder.entry(holder).or_default().push(location);
        }
        if by_holder.is_empty() {
            return;
        }
        let standing = cx.server.standing();
        let all_have_told = group.all_reported(cx);
        for (holder, locations) in by_holder {
            for part in locations.chunks(FREED_AT_ONCE) {
                let (token, locations) = (cx.server.unique(), part.to_vec());
                // Of what a server held that has gone, others tell until all have.
                if !all_have_told || standing.view.members.contains(&holder) {
                    self.free_requests.0.insert(token, FreeRequest { holder, locations: locations.clone() });
                }
                cx.tell(holder, Message::Free { token, locations });
            }
        }
    }

    /// A holder has freed what this owner has let go of.
    pub(crate) fn on_freed(&mut self, from: ServerId, token: u64) {
        if self.free_requests.0.get(&token).is_some_and(|request| request.holder == from) {
            self.free_requests.0.remove(&token);
        }
    }

    /// All members have told what they hold in the place of those that have gone: no copy of that comes back any more.
    pub(crate) fn on_all_reported(&mut self, cx: &Context<'_>) {
        let standing = cx.server.standing();
        self.free_requests.0.retain(|_, request| standing.view.members.contains(&request.holder));
    }
}
