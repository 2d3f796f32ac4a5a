//! Which watch a subscription has, and when steps of it are let go of.

use super::Subscriptions;
use super::arrays::Arrays;
use super::completed::Completed;
use super::needs::{together, whole_fields};
use super::subscription::Subscription;
use super::watch::Watch;
use crate::context::Context;
use crate::streams::users::{StreamUser, Streams};
use forebay_core::Result;
use forebay_core::contract::Needs;
use forebay_core::steps::{Attachment, AttachmentId, Delivery, HeldStep, Start};
use forebay_query::SPACE;
use forebay_query::subscription::Definition;

/// How many watches of a stream there are before subscriptions share those that need whole fields: each is told of each step.
const WATCHES_MAX: usize = 32;

impl Subscriptions {
    /// The watch for a subscription that needs this: one that is there already, or a new one.
    pub(super) fn watch_for(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        stream: &str,
        made: &Subscription,
    ) -> Result<AttachmentId> {
        let (needs, joins, name) = (made.needs(stream)?, !made.partners.is_empty(), &made.definition.name);
        if made.definition.is_in_space() {
            return self.watch_for_space(cx, streams, needs, &made.definition);
        }
        let of_stream = self.watches.values().filter(|watch| watch.stream == stream).count();
        let needs = if of_stream < WATCHES_MAX { needs } else { whole_fields(needs) };
        // One that waits for other streams keeps nobody else waiting.
        let fits = |watch: &Watch| !joins && !watch.joins && watch.stream == stream && watch.needs == needs;
        if let Some((id, watch)) = self.watches.iter_mut().find(|(_, watch)| fits(watch)) {
            watch.users.insert(name.clone());
            return Ok(*id);
        }
        let id = AttachmentId(cx.server.unique());
        self.attach(cx, streams, (stream, id, joins), needs, (Start::Next, Vec::new()))?;
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.users.insert(name.clone());
        }
        Ok(id)
    }

    /// The watch for a subscription in the space: those share one that wait for the same elements.
    fn watch_for_space(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        needs: Needs,
        definition: &Definition,
    ) -> Result<AttachmentId> {
        let arrays = Arrays::new(definition, Completed::default());
        let fits = |watch: &Watch| {
            watch.needs == needs && watch.arrays.as_ref().is_some_and(|known| known.is_same(&arrays))
        };
        if let Some((id, watch)) = self.watches.iter_mut().find(|(_, watch)| fits(watch)) {
            watch.users.insert(definition.name.clone());
            return Ok(*id);
        }
        let id = AttachmentId(cx.server.unique());
        self.attach(cx, streams, (SPACE, id, false), needs, (Start::Next, Vec::new()))?;
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.users.insert(definition.name.clone());
        }
        self.watch_space(cx, id, arrays);
        Ok(id)
    }

    /// Attaches to a stream. To the space as to one that has no steps: so it has a coordinator, and another one when that dies.
    pub(super) fn attach(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (stream, id, joins): (&str, AttachmentId, bool),
        needs: Needs,
        (start, held): (Start, Vec<HeldStep>),
    ) -> Result<()> {
        let watch = Watch::new(stream, needs.clone(), joins);
        let window = watch.window() as u32;
        let mut attachment = Attachment::new(needs, cx.me(), window).with_held_steps(held);
        attachment.delivery = Delivery::Torn;
        attachment.is_of_subscriptions = true;
        attachment.remembers_run = false;
        attachment.follow = true;
        streams.attach(cx, stream, StreamUser::Subscriptions(id), id, attachment, start)?;
        self.watches.insert(id, watch);
        Ok(())
    }

    /// A subscription that came before its stream needs all of each field that it names; now that the fields are known it is known which
    /// region that is, and which statistics decide.
    pub(super) fn need_what_plans_need(&mut self, streams: &mut dyn Streams, id: AttachmentId) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        if !std::mem::take(&mut watch.has_new_plans) || watch.arrays.is_some() {
            return;
        }
        let mut all: Option<Needs> = None;
        for name in &watch.users {
            let found = self.coordinated.get(&(watch.stream.clone(), name.clone()));
            let Some(Ok(needs)) = found.map(|found| found.needs(&watch.stream)) else { return };
            all = Some(match all {
                Some(known) => together(known, needs),
                None => needs,
            });
        }
        let Some(needs) = all.filter(|needs| *needs != watch.needs) else { return };
        if streams.change_needs(&watch.stream, id, needs.clone()).is_ok() {
            watch.needs = needs;
        }
    }

    /// A subscription is told of a watch's steps no more.
    pub(super) fn leave_watch(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: AttachmentId,
        name: &str,
    ) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        watch.remove_user(name);
        self.release_free(streams, id);
        self.end_unused(cx, streams, id);
    }

    /// A watch ends that has no subscription, and of which no subscriber has a step.
    pub(super) fn end_unused(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, id: AttachmentId) {
        let is_unused = |watch: &&Watch| watch.users.is_empty() && !watch.is_read();
        if let Some(watch) = self.watches.get(&id).filter(is_unused) {
            streams.detach(&watch.stream, id);
            self.watches.remove(&id);
            self.stop_watching_space(cx);
        }
    }

    /// Something is over for which steps were held: those are let go of that nothing needs any more.
    pub(super) fn let_go(
        &mut self,
        streams: &mut dyn Streams,
        id: AttachmentId,
        end: impl FnOnce(&mut Watch),
    ) {
        if let Some(watch) = self.watches.get_mut(&id) {
            end(watch);
            self.release_free(streams, id);
        }
    }

    /// Lets go of the steps of a watch that nothing needs any more; so many others may be told.
    pub(super) fn release_free(&mut self, streams: &mut dyn Streams, id: AttachmentId) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        let (free, window) = (watch.take_free(), watch.take_window());
        if watch.arrays.is_some() {
            return;
        }
        for step in free {
            streams.release(&watch.stream, id, step, false);
        }
        if let Some(window) = window {
            streams.set_window(&watch.stream, id, window as u32);
        }
    }
}
