//! What other servers keep of subscriptions, should this one die; and what this one keeps of theirs. (Design note 23.)

use super::Subscriptions;
use super::copies::{About, Key, Waiting};
use super::subscription::Subscription;
use super::watch::{Holder, Watch};
use super::work::ProgressOf;
use crate::context::Context;
use crate::streams::users::Streams;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::AttachmentId;
use forebay_core::view::hash_name;
use forebay_query::SPACE;
use forebay_wire::frame::encoded_bytes;
use forebay_wire::peer::subscriptions::Message;
use forebay_wire::subscription::{Completion, HeldFor, Progress, SubscriptionCopy};
use std::collections::BTreeSet;

/// How many other servers keep a subscription.
const HEIRS: usize = 2;
/// How long a message about what has come of subscriptions may be, in bytes.
const PART_BYTES: usize = 4 << 20;

impl Subscriptions {
    /// Has other servers keep all of a subscription.
    pub(super) fn keep_elsewhere(&mut self, cx: &mut Context<'_>, key: &Key) {
        let heirs = self.heirs_of(cx, &key.0);
        let Some(copy) = self.copy_of(key) else { return };
        let make = |token: u64| Message::Keep { token, stream: key.0.clone(), copy: Box::new(copy.clone()) };
        self.tell_heirs(cx, &heirs, About::Subscription(key.clone()), make);
    }

    /// A subscription has ended.
    pub(super) fn forget_elsewhere(&mut self, cx: &mut Context<'_>, key: &Key, creation: u64) {
        let (stream, name) = key.clone();
        for server in self.heirs_of(cx, &key.0) {
            cx.tell(server, Message::Forget { stream: stream.clone(), name: name.clone(), creation });
        }
    }

    /// Tells others how far subscriptions have come; the step is held until they know. Whether there are others. What does not fit into
    /// a message is told in several; that a step of the space is complete with the last.
    pub(super) fn tell_progress<'a>(
        &mut self,
        cx: &mut Context<'_>,
        (watch, step): (AttachmentId, (RunNumber, StepNumber)),
        (stream, completed): (&str, Option<(AttachmentId, StepNumber, Completion)>),
        progress: impl Iterator<Item = &'a ProgressOf>,
    ) -> bool {
        let of = |told: &ProgressOf| self.progress_of(stream, told);
        let all: Vec<Progress> = progress.filter_map(of).collect();
        if (all.is_empty() && completed.is_none()) || seeded(Bug::KeepsProgressToItself) {
            return false;
        }
        let heirs = self.heirs_of(cx, stream);
        let mut are_told = false;
        let mut parts = in_parts(all).into_iter().peekable();
        while let Some(all) = parts.next() {
            let completed = completed.clone().filter(|_| parts.peek().is_none());
            let make = |token: u64| Message::Progress {
                token,
                stream: stream.to_owned(),
                all: all.clone(),
                completed: completed.clone(),
            };
            are_told |= self.tell_heirs(cx, &heirs, About::Step(watch, step), make);
        }
        are_told
    }

    fn progress_of(&self, stream: &str, told: &ProgressOf) -> Option<Progress> {
        let found = self.coordinated.get(&(stream.to_owned(), told.name.clone()))?;
        Some(Progress {
            name: told.name.clone(),
            creation: found.creation,
            state: found.state.clone(),
            event: told.event.clone(),
            finished: found.finished,
            held: self.held_by(found, &told.name),
        })
    }

    fn held_by(&self, found: &Subscription, name: &str) -> Vec<HeldFor> {
        let watch = self.watches.get(&found.watch);
        let held = watch.map(|watch| watch.held_for_name(name, &found.listener_ids())).unwrap_or_default();
        held.into_iter().map(|(run, step, is_kept)| HeldFor { run, step, is_kept }).collect()
    }

    fn copy_of(&self, key: &Key) -> Option<SubscriptionCopy> {
        let found = self.coordinated.get(key)?;
        Some(SubscriptionCopy {
            creation: found.creation,
            definition: found.definition.clone(),
            state: found.state.clone(),
            log: found.log.clone(),
            finished: found.finished,
            attachment: found.watch,
            needs: self.watches.get(&found.watch)?.needs.clone(),
            held: self.held_by(found, &key.1),
        })
    }

    pub(super) fn tell_heirs(
        &mut self,
        cx: &mut Context<'_>,
        heirs: &[ServerId],
        about: About,
        make: impl Fn(u64) -> Message,
    ) -> bool {
        let token = cx.server.unique();
        let told = |server: &&ServerId| cx.tell(**server, make(token));
        let servers: BTreeSet<ServerId> = heirs.iter().filter(told).copied().collect();
        if servers.is_empty() {
            return false;
        }
        if let About::Step(watch, step) = &about
            && let Some(watch) = self.watches.get_mut(watch)
        {
            watch.hold(*step, Holder::Untold(token));
        }
        self.untold.waiting.insert(token, Waiting { servers, about });
        true
    }

    /// Whether those who are to keep a subscription do.
    pub(super) fn is_kept_elsewhere(&self, key: &Key) -> bool {
        let watch = self.coordinated.get(key).map(|found| About::Completed(found.watch));
        let of_it =
            |about: &About| *about == About::Subscription(key.clone()) || Some(about) == watch.as_ref();
        !self.untold.waiting.values().any(|waiting| of_it(&waiting.about))
    }

    /// The servers that would take this one's place for a stream. Those that are new are told all of its subscriptions first, and those
    /// that were to keep them and are not any more forget them.
    pub(super) fn heirs_of(&mut self, cx: &mut Context<'_>, stream: &str) -> Vec<ServerId> {
        let order = cx.server.standing().view.order_for(hash_name(stream));
        let others = order.into_iter().filter(|id| *id != cx.me() && cx.members().stays(*id, cx.me()));
        let heirs: Vec<ServerId> = others.take(HEIRS).collect();
        let now: BTreeSet<ServerId> = heirs.iter().copied().collect();
        let before = self.untold.heirs.insert(stream.to_owned(), now.clone()).unwrap_or_default();
        if before == now {
            return heirs;
        }
        let new: Vec<ServerId> = now.difference(&before).copied().collect();
        if stream == SPACE {
            self.tell_all_completed(cx, &new);
        }
        let keys: Vec<Key> = self.coordinated.keys().filter(|(of, _)| of == stream).cloned().collect();
        for key in keys {
            let Some(copy) = self.copy_of(&key) else { continue };
            let (name, creation) = (key.1, copy.creation);
            let keep =
                |token: u64| Message::Keep { token, stream: stream.to_owned(), copy: Box::new(copy.clone()) };
            self.tell_heirs(cx, &new, About::Subscription((stream.to_owned(), name.clone())), keep);
            for server in before.difference(&now) {
                cx.tell(*server, Message::Forget { stream: stream.to_owned(), name: name.clone(), creation });
            }
        }
        heirs
    }

    /// A server keeps what it was told to keep.
    pub(crate) fn on_kept(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        from: ServerId,
        token: u64,
    ) {
        let Some(waiting) = self.untold.waiting.get_mut(&token) else { return };
        waiting.servers.remove(&from);
        if waiting.servers.is_empty() {
            self.end_telling(cx, streams, token);
        }
    }

    fn end_telling(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, token: u64) {
        let Some(Waiting { about: About::Step(id, step), .. }) = self.untold.waiting.remove(&token) else {
            return;
        };
        let is_last = !self.untold.waiting.values().any(|waiting| waiting.about == About::Step(id, step));
        self.let_go(streams, id, |watch| watch.end(step, &Holder::Untold(token)));
        if is_last && self.watches.get(&id).is_some_and(Watch::tells_once_kept) {
            self.tell_kept(cx, streams, (id, step));
        }
    }

    /// A server is gone: nothing is awaited of it.
    pub(crate) fn on_server_gone(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        server: ServerId,
    ) {
        let told: Vec<u64> = self
            .untold
            .waiting
            .iter_mut()
            .filter_map(|(token, waiting)| {
                waiting.servers.remove(&server);
                waiting.servers.is_empty().then_some(*token)
            })
            .collect();
        told.into_iter().for_each(|token| self.end_telling(cx, streams, token));
        for arrays in self.watches.values_mut().filter_map(|watch| watch.arrays.as_mut()) {
            arrays.awaited.remove(&server);
        }
        self.look(cx);
    }

    /// The members are others, or one leaves: those that would take this one's place now keep all.
    pub(crate) fn on_members_changed(&mut self, cx: &mut Context<'_>) {
        let streams: BTreeSet<String> = self.coordinated.keys().map(|(stream, _)| stream.clone()).collect();
        for stream in streams {
            self.heirs_of(cx, &stream);
        }
        self.tell_new_members(cx);
    }
}

/// Cut where the next one would make a message too long. One part at least.
fn in_parts(all: Vec<Progress>) -> Vec<Vec<Progress>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
    for progress in all {
        let own = encoded_bytes(&progress).unwrap_or(PART_BYTES);
        if bytes + own > PART_BYTES && bytes > 0 {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += own;
        if let Some(part) = parts.last_mut() {
            part.push(progress);
        }
    }
    parts
}

/// What this server keeps of others.
impl Subscriptions {
    /// Another server has this one keep something.
    pub(crate) fn on_keep(&mut self, stream: String, copy: SubscriptionCopy) {
        self.copies.known.insert((stream, copy.definition.name.clone()), copy);
    }

    /// Subscriptions of another server have come so far.
    pub(crate) fn on_progress(&mut self, stream: &str, all: Vec<Progress>) {
        for Progress { name, creation, state, event, finished, held } in all {
            let known = self.copies.known.get_mut(&(stream.to_owned(), name));
            let Some(copy) = known.filter(|copy| copy.creation == creation) else { continue };
            (copy.state, copy.finished, copy.held) = (state, finished, held);
            event.into_iter().for_each(|event| copy.log.push(*event));
        }
    }

    /// What subscriptions of another server watch in the space was complete.
    pub(crate) fn on_completed(
        &mut self,
        attachment: AttachmentId,
        steps: Vec<(StepNumber, Completion)>,
        is_ready: bool,
    ) {
        self.copies.completed.entry(attachment).or_default().extend(steps, is_ready);
    }

    /// A subscription of another server has ended, or others keep it now.
    pub(crate) fn on_forget(&mut self, key: &Key, creation: u64) {
        if self.copies.known.get(key).is_some_and(|copy| copy.creation == creation) {
            self.copies.known.remove(key);
            let known = &self.copies.known;
            self.copies.completed.retain(|id, _| known.values().any(|copy| copy.attachment == *id));
        }
    }

    /// The streams of which this server keeps subscriptions, or coordinates them.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &String> {
        self.copies.known.keys().chain(self.coordinated.keys()).map(|(stream, _)| stream)
    }

    /// What this server keeps of when what subscriptions watch in the space was complete.
    pub(crate) fn copies_of_completed(
        &self,
    ) -> impl Iterator<Item = (AttachmentId, Vec<(StepNumber, Completion)>, bool)> + '_ {
        self.copies.completed.iter().map(|(id, completed)| (*id, completed.steps(), completed.is_ready))
    }

    /// What this server keeps of a stream's subscriptions.
    pub(crate) fn copies_of(&self, stream: &str) -> Vec<SubscriptionCopy> {
        let of_stream = self.copies.known.iter().filter(|((of, _), _)| of == stream);
        of_stream.map(|(_, copy)| copy.clone()).collect()
    }
}
