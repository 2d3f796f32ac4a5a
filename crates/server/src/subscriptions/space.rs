//! Subscriptions in the space: they are told of a step when the last block of what they watch is put.
//!
//! Owners tell of each block that is registered of a field that is watched ([`on_known`](Subscriptions::on_known)). Then the step is looked
//! for as a reader does, until all is there, and the blocks are held while it is evaluated. (Design note 24.)

use super::Subscriptions;
use super::arrays::{Arrays, Outcome};
use super::completed::Completed;
use super::copies::{About, Key};
use super::search::{FoundArrays, SearchOrder, in_space};
use crate::context::Context;
use crate::streams::users::Streams;
use forebay_core::contract::Field;
use forebay_core::ids::{DescriptionNumber, ServerId, StepNumber};
use forebay_core::region::Region;
use forebay_core::steps::AttachmentId;
use forebay_query::SPACE;
use forebay_wire::peer::subscriptions::Message;
use forebay_wire::subscription::Completion;
use std::collections::BTreeSet;

/// How many steps are looked for at once, for all who watch.
const SEARCHES_MAX: usize = 1024;
/// How many of them make room for others in a while, if others wait.
const PUT_BACK: usize = 64;

impl Subscriptions {
    /// A watch looks at the space from now on. All servers are told which fields are watched.
    pub(super) fn watch_space(&mut self, cx: &mut Context<'_>, id: AttachmentId, arrays: Arrays) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        let (is_ready, names) = (arrays.completed.is_ready, arrays.fields.clone());
        watch.arrays = Some(arrays);
        self.watched.fields.extend(names.iter().cloned());
        for server in members_there(cx) {
            let token = self.tell_watched(cx, server, names.clone());
            if !is_ready {
                self.watched.for_one.insert(token);
            }
            if let Some(arrays) = self.watches.get_mut(&id).and_then(|watch| watch.arrays.as_mut())
                && !is_ready
            {
                arrays.awaited.insert(server, token);
            }
        }
    }

    /// Tells a server which fields are watched; what it knows of some it tells again.
    fn tell_watched(&mut self, cx: &mut Context<'_>, server: ServerId, again: Vec<String>) -> u64 {
        let token = cx.server.unique();
        let fields = self.watched.fields.iter().cloned().collect();
        self.watched.servers.insert(server);
        cx.tell(server, Message::WatchSpace { token, fields, again });
        token
    }

    /// The members are others: those that have come are told which fields are watched.
    pub(super) fn tell_new_members(&mut self, cx: &mut Context<'_>) {
        let members = members_there(cx);
        self.watched.servers.retain(|server| members.contains(server));
        if self.watched.fields.is_empty() {
            return;
        }
        for server in members {
            if self.watched.servers.contains(&server) {
                continue;
            }
            let again = self.watched.fields.iter().cloned().collect();
            let token = self.tell_watched(cx, server, again);
            let arrays = self.watches.values_mut().filter_map(|watch| watch.arrays.as_mut());
            for arrays in arrays.filter(|arrays| !arrays.completed.is_ready) {
                arrays.awaited.insert(server, token);
            }
        }
    }

    /// A watch has ended: fields that nobody watches any more are told no more.
    pub(super) fn stop_watching_space(&mut self, cx: &mut Context<'_>) {
        let arrays = self.watches.values().filter_map(|watch| watch.arrays.as_ref());
        let fields: BTreeSet<String> = arrays.flat_map(|arrays| arrays.fields.iter().cloned()).collect();
        if fields == self.watched.fields {
            return;
        }
        self.watched.fields = fields;
        for server in self.watched.servers.clone() {
            self.tell_watched(cx, server, Vec::new());
        }
    }

    /// A server has told all that it knows.
    pub(crate) fn on_watching(&mut self, cx: &mut Context<'_>, from: ServerId, token: u64) {
        for watch in self.watches.values_mut() {
            if let Some(arrays) = &mut watch.arrays {
                arrays.awaited.retain(|server, awaited| (*server, *awaited) != (from, token));
            }
        }
        self.watched.for_one.remove(&token);
        self.look(cx);
    }

    /// An owner tells of blocks that were registered.
    pub(crate) fn on_known(
        &mut self,
        cx: &mut Context<'_>,
        (from, token): (ServerId, u64),
        field: &str,
        steps: &[(StepNumber, DescriptionNumber)],
    ) {
        let for_one = self.watched.for_one.contains(&token);
        let watching = self.watches.values_mut().filter_map(|watch| watch.arrays.as_mut());
        for arrays in watching.filter(|arrays| arrays.fields.iter().any(|name| name == field)) {
            if for_one && arrays.awaited.get(&from) != Some(&token) {
                continue;
            }
            steps.iter().for_each(|(step, description)| arrays.note(from, *step, *description));
        }
        self.look(cx);
    }

    /// An owner tells of a field that is removed.
    pub(crate) fn on_gone(
        &mut self,
        cx: &mut Context<'_>,
        (field, step): (&str, StepNumber),
        description: DescriptionNumber,
    ) {
        let watching = self.watches.values_mut().filter_map(|watch| watch.arrays.as_mut());
        for arrays in watching.filter(|arrays| arrays.fields.iter().any(|name| name == field)) {
            arrays.note_gone(step, description);
        }
        self.look(cx);
    }

    /// Begins to look for steps, as many as may be at once.
    pub(super) fn look(&mut self, cx: &mut Context<'_>) {
        let arrays = |watch: &super::watch::Watch| watch.arrays.as_ref().map_or(0, Arrays::searching);
        let mut room = SEARCHES_MAX.saturating_sub(self.watches.values().map(arrays).sum());
        let mut ready = Vec::new();
        for (id, watch) in &mut self.watches {
            let Some(arrays) = &mut watch.arrays else { continue };
            while room > 0
                && let Some((step, is_first)) = arrays.next()
            {
                let number = cx.server.unique();
                let over = arrays.begin(step, number, is_first);
                let fields = arrays.fields.clone();
                self.searches.push_back(SearchOrder {
                    watch: *id,
                    number,
                    step,
                    fields,
                    waits: !is_first,
                    over,
                });
                room -= 1;
            }
            if arrays.becomes_ready() {
                ready.push(*id);
            }
        }
        for id in ready {
            self.tell_completed(cx, id);
        }
    }

    /// Time has passed: where many steps are looked for that do not come, others have their turn.
    pub(super) fn look_at_others(&mut self, cx: &mut Context<'_>) {
        let arrays = || self.watches.values().filter_map(|watch| watch.arrays.as_ref());
        let waits = arrays().any(Arrays::has_waiting);
        if waits && arrays().map(Arrays::searching).sum::<usize>() >= SEARCHES_MAX {
            let arrays = self.watches.values_mut().filter_map(|watch| watch.arrays.as_mut());
            arrays.for_each(|arrays| (0..PUT_BACK).for_each(|_| arrays.put_back()));
        }
        self.look(cx);
    }

    /// What is to be looked for from now on.
    pub(crate) fn take_search_order(&mut self) -> Option<SearchOrder> {
        self.searches.pop_front()
    }

    /// Which parts of each of these fields must be there at a step. None of a field of which no text that watches can take anything: what
    /// is wrong is told when it is evaluated. Nothing if nobody watches any more.
    pub(crate) fn regions(&mut self, watch: AttachmentId, fields: &[Field]) -> Option<Vec<Vec<Region>>> {
        let streams = [(SPACE.to_owned(), fields.to_vec())];
        let mut all: Vec<Vec<Region>> = vec![Vec::new(); fields.len()];
        let mut is_used = false;
        for name in self.users_of(watch) {
            let Some(found) = self.coordinated.get_mut(&(SPACE.to_owned(), name)) else { continue };
            is_used = true;
            if found.check(&streams).is_err() {
                continue;
            }
            let Some(text) = found.text() else { continue };
            for (known, field) in all.iter_mut().zip(fields) {
                for region in text.plan.regions_of(field).unwrap_or_default() {
                    if !known.iter().any(|known| known.contains(&region)) {
                        known.push(region);
                    }
                }
            }
        }
        is_used.then_some(all)
    }

    /// A search has ended; with nothing if it was not to wait.
    pub(crate) fn on_searched(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        order: &SearchOrder,
        found: Option<FoundArrays>,
    ) {
        let Some(watch) = self.watches.get_mut(&order.watch) else { return };
        let Some(arrays) = &mut watch.arrays else { return };
        let (fields, found) = match found {
            Some(FoundArrays { fields, completion, leases }) => (fields, Some((completion, leases))),
            None => (Vec::new(), None),
        };
        if arrays.end((order.step, order.number), found) == Outcome::Evaluate {
            watch.push(in_space(order.step, fields));
            self.advance(cx, streams, order.watch);
        }
        self.look(cx);
    }

    /// A step of the space was evaluated: what whoever takes this server's place must know of that.
    pub(super) fn take_completed(
        &mut self,
        cx: &mut Context<'_>,
        id: AttachmentId,
        step: StepNumber,
    ) -> Option<(AttachmentId, StepNumber, Completion)> {
        let completion = self.watches.get_mut(&id)?.arrays.as_mut()?.complete(step)?;
        self.look(cx);
        Some((id, step, completion))
    }

    /// Tells those who keep subscriptions of the space when what a watch watches was complete.
    pub(super) fn tell_completed(&mut self, cx: &mut Context<'_>, id: AttachmentId) {
        let heirs = self.heirs_of(cx, SPACE);
        let Some(completed) = self.completed_of(id).cloned() else { return };
        let (steps, is_ready) = (completed.steps(), completed.is_ready);
        let make = |token: u64| Message::Completed { token, attachment: id, steps: steps.clone(), is_ready };
        self.tell_heirs(cx, &heirs, About::Completed(id), make);
    }

    /// What is known of when what a watch watches in the space was complete.
    fn completed_of(&self, id: AttachmentId) -> Option<&Completed> {
        Some(&self.watches.get(&id)?.arrays.as_ref()?.completed)
    }

    /// Tells servers that have come to keep subscriptions of the space all of that.
    pub(super) fn tell_all_completed(&mut self, cx: &mut Context<'_>, servers: &[ServerId]) {
        let of_space = self.watches.iter().filter(|(_, watch)| watch.arrays.is_some());
        let ids: Vec<AttachmentId> = of_space.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(completed) = self.completed_of(id).cloned() else { continue };
            let (steps, is_ready) = (completed.steps(), completed.is_ready);
            let make =
                |token: u64| Message::Completed { token, attachment: id, steps: steps.clone(), is_ready };
            self.tell_heirs(cx, servers, About::Completed(id), make);
        }
    }

    /// Whether it is known what was there before a subscription was made.
    pub(super) fn is_space_ready(&self, key: &Key) -> bool {
        let found = self.coordinated.get(key);
        let arrays = found.and_then(|found| self.watches.get(&found.watch)?.arrays.as_ref());
        arrays.is_none_or(|arrays| arrays.completed.is_ready)
    }
}

/// The members that are not known to have gone.
fn members_there(cx: &Context<'_>) -> Vec<ServerId> {
    let standing = cx.server.standing();
    standing.view.members.iter().copied().filter(|server| !cx.members().is_gone(*server)).collect()
}
