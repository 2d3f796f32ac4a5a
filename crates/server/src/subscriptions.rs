//! Subscriptions: texts that are watched from step to step, and who is told of events.
//!
//! [`Subscriptions`] is the whole of it at one server: those of streams that this server coordinates, and what it keeps of those
//! that others do. It is told of events and changes nobody else's state. What it needs of streams it gets through [`Streams`].
//!
//! - this module: what subscribers ask for;
//! - [`subscription`]: one subscription;
//! - [`watch`]: the steps of a stream, for the subscriptions that need the same of it; [`needs`]: what that is; [`watching`]: when
//!   steps are let go of;
//! - [`evaluating`]: what is to be evaluated at a step, and what comes of it ([`work`]);
//! - [`partner`]: a further stream, where a text names several; [`partners`]: what is told of those;
//! - [`space`]: what is put into the space; [`watched_fields`]: what servers are told of that; [`arrays`]: what a watch knows;
//!   [`completed`]: what was complete; [`search`], [`readers`]: looking for it;
//! - [`listener`]: a subscriber;
//! - [`heirs`]: what other servers keep of all that, and this one of theirs ([`copies`]);
//! - [`takeover`]: the coordinator of a stream has died.

mod arrays;
mod completed;
mod copies;
mod ended;
mod evaluating;
mod heirs;
mod listener;
mod needs;
mod partner;
mod partners;
mod readers;
mod search;
mod space;
mod status;
mod subscription;
mod takeover;
mod watch;
mod watched_fields;
mod watching;
mod work;

pub(crate) use listener::Listener;
pub(crate) use partner::FeedOrder;
pub(crate) use readers::{Asked, Leases, SpaceReader, SpaceReaders};
pub(crate) use search::{FoundArrays, SearchOrder, in_space};
pub(crate) use work::{Done, Due, Work};

use crate::context::Context;
use crate::streams::users::Streams;
use completed::Completed;
use copies::{Copies, Key, Untold};
use ended::Ended;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::AttachmentId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::in_words;
use forebay_query::subscription::Definition;
use forebay_wire::subscription::{Change, From, Listen, SubscriptionCopy};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use subscription::Subscription;
use watch::Watch;
use watched_fields::WatchedFields;

/// How many subscriptions a server coordinates at most.
const SUBSCRIPTIONS_MAX: usize = 20_000;
/// How long a subscription that is not to be kept goes on without anybody who listens: one whose connection has broken may come back.
const ALONE: Duration = Duration::from_secs(30);

/// A subscription as it is when it is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subscribed {
    /// Tells it from earlier ones of the same name.
    pub(crate) creation: u64,
    /// Whether it was there before.
    pub(crate) existed: bool,
    /// The number of its last event.
    pub(crate) last: u64,
    /// The number of the last event with which a subscriber has finished.
    pub(crate) finished: u64,
}

/// All subscriptions that a server has to do with.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// Those of streams that it coordinates.
    coordinated: BTreeMap<Key, Subscription>,
    watches: BTreeMap<AttachmentId, Watch>,
    /// Where each subscriber listens.
    listeners: BTreeMap<AttachmentId, Key>,
    /// Subscribers whose subscription has ended, and that still have steps of these watches.
    after_end: BTreeMap<AttachmentId, AttachmentId>,
    /// Those that have ended.
    ended: Ended,
    /// What is to be evaluated as soon as this event is over.
    work: VecDeque<Work>,
    /// What is to be told of further streams as soon as this event is over.
    feeds: VecDeque<FeedOrder>,
    /// What servers were told of fields in the space.
    watched: WatchedFields,
    /// Steps of the space that are to be looked for as soon as this event is over.
    searches: VecDeque<SearchOrder>,
    /// Texts that did not fit the fields of the step that their watch evaluates.
    failed_at_once: Vec<(AttachmentId, Done)>,
    /// What others have kept of subscriptions whose coordinator has died, until all have told.
    inherited: BTreeMap<Key, SubscriptionCopy>,
    /// The same of what was complete in the space, by the attachment that watched.
    inherited_completed: BTreeMap<AttachmentId, Completed>,
    /// Pipelines that run at events: their attachments, by the subscription.
    pipelines: Vec<(Key, AttachmentId)>,
    /// What others were told to keep, and have not answered yet.
    untold: Untold,
    /// What this server keeps of others.
    copies: Copies,
}

/// What subscribers ask for.
impl Subscriptions {
    /// Makes a subscription, for the connection of this number, unless there is one that is the same.
    pub(crate) fn subscribe(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        stream: &str,
        definition: Definition,
        connection: u64,
    ) -> Result<Subscribed> {
        if definition.stream()? != stream {
            return Err(Error::protocol("a subscription of another stream"));
        }
        let key = (stream.to_owned(), definition.name.clone());
        if let Some(known) = self.coordinated.get_mut(&key) {
            if !known.definition.is_same(&definition) {
                return Err(Error::conflict(format!(
                    "there is a subscription '{}' of {} already, which watches for: {}. Remove it first, or choose another name",
                    definition.name,
                    in_words(stream),
                    known.definition.text
                )));
            }
            known.connections.insert(connection);
            let (creation, last, finished) = (known.creation, known.log.last_number(), known.finished);
            return Ok(Subscribed { creation, existed: true, last, finished });
        }
        if self.coordinated.len() >= SUBSCRIPTIONS_MAX {
            let text =
                format!("this server has {SUBSCRIPTIONS_MAX} subscriptions already: remove some first");
            return Err(Error::new(ErrorKind::Full, text));
        }
        let creation = cx.server.unique();
        let mut made = Subscription::new(creation, definition, cx.server.environment.now());
        made.connections.insert(connection);
        // What is known to be wrong is said at once; before its stream is there, it is checked when that is.
        if let Some(coordinator) = streams.coordinator(stream) {
            let (fields, may_grow) = coordinator.offered();
            let fields: Vec<_> = fields.cloned().collect();
            if !fields.is_empty() && made.partners.is_empty() {
                match made.check(&[(stream.to_owned(), fields)]) {
                    Err(error) if error.kind == ErrorKind::NotFound && may_grow => {}
                    checked => drop(checked?),
                }
            }
        }
        made.watch = self.watch_for(cx, streams, stream, &made)?;
        if let Some(watch) = self.watches.get_mut(&made.watch) {
            watch.looks_back = watch.looks_back.max(made.looks_back());
            made.state.from = watch.comes_from().filter(|_| watch.arrays.is_none());
        }
        self.coordinated.insert(key.clone(), made);
        self.order_feeds(&key);
        self.keep_elsewhere(cx, &key);
        Ok(Subscribed { creation, existed: false, last: 0, finished: 0 })
    }

    /// A subscriber listens to a subscription from now on. Returns what tells it from earlier ones of its name, and the number of the
    /// last event before those that it is told of.
    pub(crate) fn listen(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        stream: &str,
        (mut listen, id): (Listen, AttachmentId),
        listener: Listener,
    ) -> Result<(u64, u64)> {
        let key = (stream.to_owned(), listen.name.clone());
        if !self.coordinated.contains_key(&key) {
            if let Some(ended) = listen.creation.and_then(|creation| self.ended.get(creation)) {
                return Err(Error::new(ErrorKind::Ended, ended.to_owned()));
            }
            let Some(definition) = listen.definition else {
                return Err(self.not_found(stream, &listen.name));
            };
            self.subscribe(cx, streams, stream, *definition, id.0)?;
            listen.from = From::First;
        }
        let Some(found) = self.coordinated.get_mut(&key) else {
            return Err(self.not_found(stream, &listen.name));
        };
        let creation = found.creation;
        if listen.creation.is_some_and(|known| known != creation) {
            // It is another one, whose events are counted anew.
            listen.from = From::First;
        }
        let held = listener.held();
        let last = found.add_listener(id, listener, listen.from);
        let watch = found.watch;
        found.tell_reasons(cx, id);
        self.listeners.insert(id, key.clone());
        if let Some(watch) = self.watches.get_mut(&watch) {
            held.into_iter().for_each(|step| watch.hold_for_listener(step, id));
        }
        self.deliver(cx, streams, &key);
        self.end_if_over(cx, streams, &key);
        Ok((creation, last))
    }

    /// A subscriber has finished with a step; `pinned` says that arrays of it live on.
    pub(crate) fn release(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: AttachmentId,
        step: (RunNumber, StepNumber),
        pinned: bool,
    ) {
        let Some(key) = self.listeners.get(&id).cloned() else {
            if !pinned {
                self.release_after_end(cx, streams, id, Some(step));
            }
            return;
        };
        let Some(found) = self.coordinated.get_mut(&key) else { return };
        found.on_released(id, step);
        let watch = found.watch;
        if !pinned {
            self.let_go(streams, watch, |watch| watch.end_listening(step, id));
        }
        self.deliver(cx, streams, &key);
        self.end_if_over(cx, streams, &key);
    }

    /// A subscriber listens no more.
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, id: AttachmentId) {
        let Some(key) = self.listeners.remove(&id) else {
            return self.release_after_end(cx, streams, id, None);
        };
        let Some(found) = self.coordinated.get_mut(&key) else { return };
        let now = cx.server.environment.now();
        let listener = found.remove_listener(id, now);
        // Whoever listens next is told again of the events with which it has not finished.
        let is_left = |step| {
            listener.as_ref().is_some_and(|listener| listener.is_open() && listener.is_unfinished(step))
        };
        let is_last = !found.has_open_listeners();
        let (watch, until) = (found.watch, now + Duration::from_secs(found.definition.hold.into()));
        for step in self.watches.get(&watch).map(|watch| watch.held_for(id)).unwrap_or_default() {
            self.let_go(streams, watch, |watch| {
                if is_last && is_left(step) {
                    watch.hold_for_event(step, &key.1, until);
                }
                watch.end_listening(step, id);
            });
        }
    }

    /// A subscriber wants to be told of nothing more, and still holds steps.
    pub(crate) fn stop_telling(&mut self, id: AttachmentId) {
        let found = self.listeners.get(&id).and_then(|key| self.coordinated.get_mut(key));
        if let Some(listener) = found.and_then(|found| found.listener_mut(id)) {
            listener.close();
        }
    }

    /// A connection that has made subscriptions has ended.
    pub(crate) fn on_connection_ended(&mut self, cx: &Context<'_>, connection: u64) {
        let now = cx.server.environment.now();
        for subscription in self.coordinated.values_mut() {
            subscription.remove_connection(connection, now);
        }
    }

    /// Pauses, resumes or removes a subscription.
    pub(crate) fn change(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (stream, name): (&str, &str),
        change: Change,
    ) -> Result<()> {
        let key = (stream.to_owned(), name.to_owned());
        let Some(found) = self.coordinated.get_mut(&key) else { return Err(self.not_found(stream, name)) };
        match change {
            Change::Pause => found.state.is_paused = true,
            Change::Resume => found.state.is_paused = false,
            Change::Remove => {
                self.end(cx, streams, &key, &format!("subscription '{name}' was removed"));
                return Ok(());
            }
        }
        self.keep_elsewhere(cx, &key);
        Ok(())
    }

    /// Time has passed: what is over ends, and steps are let go of that nobody has taken.
    pub(crate) fn on_time(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) {
        let (now, clock) = (cx.server.environment.now(), cx.server.environment.wall_clock());
        let mut over = Vec::new();
        for (key, subscription) in &mut self.coordinated {
            let name = &key.1;
            if subscription.is_expired(clock) && subscription.is_done_with(clock) {
                over.push((key.clone(), format!("subscription '{name}' has expired")));
            } else if !subscription.definition.keep && subscription.is_alone_for(now) > ALONE {
                over.push((key.clone(), format!("nobody has listened to subscription '{name}'")));
            }
        }
        for (key, why) in over {
            self.end(cx, streams, &key, &why);
        }
        self.give_up_lost(cx, streams);
        let watches: Vec<AttachmentId> = self.watches.keys().copied().collect();
        for id in watches {
            self.let_go(streams, id, |watch| watch.end_waiting(now));
        }
        self.look_at_others(cx);
    }

    /// These pipelines run at events of subscriptions.
    pub(crate) fn set_pipelines<'a>(&mut self, all: impl Iterator<Item = (&'a str, &'a str, AttachmentId)>) {
        self.pipelines.clear();
        self.pipelines.extend(all.map(|(stream, name, id)| ((stream.to_owned(), name.to_owned()), id)));
    }

    /// What a subscription needs of its stream: the region that it watches, once the stream's fields are known.
    pub(crate) fn needs_of(&mut self, streams: &dyn Streams, stream: &str, name: &str) -> Result<Needs> {
        let key = (stream.to_owned(), name.to_owned());
        let Some(found) = self.coordinated.get_mut(&key) else { return Err(self.not_found(stream, name)) };
        if found.partners.is_empty()
            && let Some(coordinator) = streams.coordinator(stream)
        {
            let fields = coordinator.offered().0.cloned().collect();
            // What is wrong with the text its subscribers are told.
            let is_new = found.check(&[(stream.to_owned(), fields)]).unwrap_or(false);
            if let Some(watch) = self.watches.get_mut(&found.watch) {
                watch.has_new_plans |= is_new;
            }
        }
        found.needs(stream)
    }

    /// The attachment through which a subscription is told of steps.
    pub(crate) fn attachment_of(&self, stream: &str, name: &str) -> Result<AttachmentId> {
        let found = self.coordinated.get(&(stream.to_owned(), name.to_owned()));
        found.map(|found| found.watch).ok_or_else(|| self.not_found(stream, name))
    }

    /// From which step on a subscription watches, if that is another one than that of its attachment.
    pub(crate) fn start_of(&self, stream: &str, name: &str) -> Option<(RunNumber, StepNumber)> {
        self.coordinated.get(&(stream.to_owned(), name.to_owned()))?.state.from
    }

    fn not_found(&self, stream: &str, name: &str) -> Error {
        let of_stream = self.coordinated.keys().filter(|(of, _)| of == stream).map(|(_, name)| &name[..]);
        let known: Vec<&str> = of_stream.take(8).collect();
        let known = if known.is_empty() {
            "there is none".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        Error::not_found(format!("{} has no subscription '{name}'; {known}", in_words(stream)))
    }

    /// A subscription ends: those who listen are told why.
    fn end(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, key: &Key, why: &str) {
        let Some(subscription) = self.coordinated.remove(key) else { return };
        let error = Error::new(ErrorKind::Ended, why.to_owned());
        self.ended.note(subscription.creation, why);
        subscription.partners.iter().for_each(|partner| partner.end(cx));
        let watch = self.watches.get(&subscription.watch);
        let reads = |id: &AttachmentId| watch.is_some_and(|watch| !watch.held_for(*id).is_empty());
        let still: Vec<AttachmentId> =
            subscription.listeners().map(|(id, _)| *id).filter(|id| reads(id)).collect();
        self.after_end.extend(still.into_iter().map(|id| (id, subscription.watch)));
        for (id, listener) in subscription.listeners() {
            self.listeners.remove(id);
            listener.tell_ended(cx, *id, error.clone());
        }
        self.forget_elsewhere(cx, key, subscription.creation);
        self.leave_watch(cx, streams, subscription.watch, &key.1);
    }

    /// Whether this server coordinates a subscription, or keeps it for who does.
    #[cfg(test)]
    pub(crate) fn knows(&self, stream: &str, name: &str) -> bool {
        let key = (stream.to_owned(), name.to_owned());
        self.coordinated.contains_key(&key) || self.copies.known.contains_key(&key)
    }

    /// A subscriber whose subscription has ended has finished with a step, or with all.
    fn release_after_end(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: AttachmentId,
        step: Option<(RunNumber, StepNumber)>,
    ) {
        let Some(watch) = self.after_end.get(&id).copied() else { return };
        let held = self.watches.get(&watch).map(|watch| watch.held_for(id)).unwrap_or_default();
        let (finished, left): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|held| step.is_none_or(|step| step == *held));
        for step in finished {
            self.let_go(streams, watch, |watch| watch.end_listening(step, id));
        }
        if left.is_empty() {
            self.after_end.remove(&id);
        }
        self.end_unused(cx, streams, watch);
    }

    /// What must hold after each event.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> std::result::Result<(), String> {
        for ((stream, name), subscription) in &self.coordinated {
            let Some(watch) = self.watches.get(&subscription.watch) else {
                return Err(format!("subscription '{name}' of stream '{stream}' is told of no steps"));
            };
            if watch.stream != *stream || !watch.users.contains(name) {
                return Err(format!("subscription '{name}' of stream '{stream}' is told of other steps"));
            }
        }
        for (id, watch) in &self.watches {
            if let Some(name) = watch.users.iter().find(|name| {
                let key = (watch.stream.clone(), (*name).clone());
                self.coordinated.get(&key).is_none_or(|subscription| subscription.watch != *id)
            }) {
                return Err(format!("subscription '{name}' is told of steps, and is not there"));
            }
            if watch.users.is_empty() && !watch.is_read() {
                return Err("steps are watched for nobody".to_owned());
            }
            watch.sanity_check()?;
        }
        Ok(())
    }

    /// The names of subscriptions that are told of the same steps.
    fn users_of(&self, watch: AttachmentId) -> BTreeSet<String> {
        self.watches.get(&watch).map(|watch| watch.users.clone()).unwrap_or_default()
    }
}
