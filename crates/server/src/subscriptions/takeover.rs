//! The coordinator of a stream has died: this server takes its place, and goes on with what others have kept of its subscriptions.

use super::Subscriptions;
use super::arrays::Arrays;
use super::copies::Key;
use super::subscription::Subscription;
use super::watch::Holder;
use crate::context::Context;
use crate::streams::users::Streams;
use forebay_core::contract::Needs;
use forebay_core::ids::StepNumber;
use forebay_core::steps::{AttachmentId, HeldStep, Start};
use forebay_query::SPACE;
use forebay_wire::subscription::{Completion, SubscriptionCopy};
use std::collections::BTreeMap;
use std::time::Duration;

impl Subscriptions {
    /// A server tells what it has kept of a subscription whose coordinator has died.
    pub(crate) fn on_take_over(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        stream: &str,
        copy: SubscriptionCopy,
    ) {
        let key = (stream.to_owned(), copy.definition.name.clone());
        if self.coordinated.contains_key(&key) {
            return;
        }
        let further = |known: &SubscriptionCopy| {
            (known.creation, known.state.counts.evaluated) >= (copy.creation, copy.state.counts.evaluated)
        };
        if !self.inherited.get(&key).is_some_and(further) {
            self.inherited.insert(key, copy);
        }
        if streams.have_all_told() {
            self.settle(cx, streams);
        }
    }

    /// A server tells when what a subscription watched in the space was complete.
    pub(crate) fn on_take_over_completed(
        &mut self,
        id: AttachmentId,
        steps: Vec<(StepNumber, Completion)>,
        is_ready: bool,
    ) {
        self.inherited_completed.entry(id).or_default().extend(steps, is_ready);
    }

    /// All servers have told what they kept: subscriptions whose coordinator has died go on.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) {
        let mut watches: BTreeMap<(String, AttachmentId), Vec<SubscriptionCopy>> = BTreeMap::new();
        for ((stream, _), copy) in std::mem::take(&mut self.inherited) {
            watches.entry((stream, copy.attachment)).or_default().push(copy);
        }
        let mut completed = std::mem::take(&mut self.inherited_completed);
        for ((stream, id), copies) in watches {
            self.go_on(cx, streams, (&stream, id), copies);
            let watch = self.watches.get(&id).filter(|watch| watch.stream == SPACE && watch.arrays.is_none());
            let user = watch.and_then(|watch| watch.users.first()).cloned();
            if let Some(found) = user.and_then(|name| self.coordinated.get(&(stream, name))) {
                let arrays = Arrays::new(&found.definition, completed.remove(&id).unwrap_or_default());
                self.watch_space(cx, id, arrays);
                self.tell_completed(cx, id);
            }
        }
    }

    /// Another server coordinates a stream.
    pub(crate) fn on_coordinated_elsewhere(&mut self, stream: &str) {
        self.inherited.retain(|(of, _), _| of != stream);
        if stream == SPACE {
            self.inherited_completed.clear();
        }
    }

    /// Subscriptions that need the same go on, after the last step that all of them have evaluated.
    fn go_on(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (stream, id): (&str, AttachmentId),
        copies: Vec<SubscriptionCopy>,
    ) {
        let last = copies.iter().map(|copy| copy.state.last).min().flatten();
        let last = last.filter(|_| stream != SPACE);
        let start = last.map_or(Start::Next, |(run, step)| Start::Rejoin(run, step.saturating_add(1)));
        let mut held: Vec<HeldStep> = Vec::new();
        for held_for in copies.iter().flat_map(|copy| &copy.held) {
            let step = HeldStep { run: held_for.run, step: held_for.step, pinned: false };
            if !held.contains(&step) {
                held.push(step);
            }
        }
        let needs = copies.first().map_or(Needs::all(1), |copy| copy.needs.clone());
        let joins = copies.iter().any(|copy| copy.definition.check().is_ok_and(|streams| streams.len() > 1));
        // The stand-in of this watch still holds the steps of events at which pipelines were still to run.
        for copy in &copies {
            let run_at = |(of, name): &Key| of == stream && *name == copy.definition.name;
            for (_, pipeline) in self.pipelines.iter().filter(|(key, _)| run_at(key)) {
                let events = copy.log.all();
                events.for_each(|event| streams.choose(stream, *pipeline, (event.run, event.step)));
            }
        }
        // Some of its subscriptions may have been told of before.
        if !self.watches.contains_key(&id)
            && let Err(error) = self.attach(cx, streams, (stream, id, joins), needs, (start, held))
        {
            tracing::warn!("subscriptions of stream '{stream}' are given up: {error}");
            return;
        }
        let now = cx.server.environment.now();
        for copy in copies {
            let key = (stream.to_owned(), copy.definition.name.clone());
            self.adopt(&key, id, copy, now);
            self.copies.known.remove(&key);
            self.order_feeds(&key);
            self.keep_elsewhere(cx, &key);
        }
        self.release_free(streams, id);
    }

    fn adopt(&mut self, key: &Key, id: AttachmentId, copy: SubscriptionCopy, now: Duration) {
        let name = &key.1;
        let mut subscription = Subscription::new(copy.creation, copy.definition, now);
        let hold = Duration::from_secs(subscription.definition.hold.into());
        (subscription.state, subscription.log) = (copy.state, copy.log);
        (subscription.finished, subscription.watch) = (copy.finished, id);
        // What was told of them to the coordinator before is told again.
        subscription.partners.iter_mut().for_each(|partner| partner.note_lost(now));
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.users.insert(name.clone());
            watch.looks_back = watch.looks_back.max(subscription.looks_back());
            for held in copy.held {
                let step = (held.run, held.step);
                match held.is_kept {
                    true => watch.hold(step, Holder::Kept(name.clone())),
                    false => watch.hold_for_event(step, name, now + hold),
                }
            }
        }
        self.coordinated.insert(key.clone(), subscription);
    }
}
