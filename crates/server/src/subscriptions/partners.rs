//! Which steps of further streams subscriptions are told of, and what follows.

use super::Subscriptions;
use super::copies::Key;
use super::partner::{FeedOrder, Joined, Partner, joined};
use super::watch::Watch;
use crate::context::Context;
use crate::streams::users::Streams;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{AttachmentId, StepReport};
use forebay_transport::asynchronous::Outbox;
use std::sync::Arc;
use std::time::Duration;

/// How long a stream waits for steps of another one over a connection that has to be made anew.
const LOST_MAX: Duration = Duration::from_secs(30);

/// Those who feed subscriptions with steps of further streams.
impl Subscriptions {
    /// A subscription is to be told of its further streams from now on.
    pub(super) fn order_feeds(&mut self, key: &Key) {
        let Some(found) = self.coordinated.get(key) else { return };
        self.feeds.extend(found.partners.iter().map(|partner| partner.order(key, found.creation)));
    }

    /// Whether the steps of other streams are there with which the next one of a watch is evaluated.
    pub(super) fn joined_at(&self, watch: &Watch, id: (RunNumber, StepNumber), waiting: usize) -> Joined {
        let of = |name: &String| self.coordinated.get(&(watch.stream.clone(), name.clone()));
        let partners =
            watch.users.iter().filter(|_| watch.joins).find_map(of).map(|found| &found.partners[..]);
        joined(partners.unwrap_or_default(), id, waiting)
    }

    /// What is to be fed from now on.
    pub(crate) fn take_feed_order(&mut self) -> Option<FeedOrder> {
        self.feeds.pop_front()
    }

    /// Whether somebody needs the steps of this order.
    pub(crate) fn wants(&mut self, order: &FeedOrder) -> bool {
        self.partner(order).is_some()
    }

    /// How the next feed begins: behind what was told.
    pub(crate) fn told_until(&mut self, order: &FeedOrder) -> (Option<(RunNumber, StepNumber)>, bool) {
        self.partner(order).map_or((None, false), |partner| (partner.last, partner.over_for.is_some()))
    }

    /// The steps of an order come over this connection from now on.
    pub(crate) fn on_connected(&mut self, order: &FeedOrder, feed: Arc<Outbox>) {
        if let Some(partner) = self.partner(order) {
            partner.feed = Some(feed);
        }
    }

    /// It is agreed from which step on they come.
    pub(crate) fn on_fed(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        order: &FeedOrder,
        attachment: AttachmentId,
    ) {
        let Some(partner) = self.partner(order) else { return };
        partner.note_fed(attachment);
        self.advance_joined(cx, streams, order);
    }

    /// They come over no connection.
    pub(crate) fn on_feed_lost(&mut self, order: &FeedOrder, now: Duration) {
        if let Some(partner) = self.partner(order) {
            partner.note_lost(now);
        }
    }

    /// Steps of further streams that were lost are awaited no longer.
    pub(super) fn give_up_lost(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) {
        let now = cx.server.environment.now();
        let mut waiting = Vec::new();
        for found in self.coordinated.values_mut() {
            for partner in &mut found.partners {
                if partner.lost_at.take_if(|lost| *lost + LOST_MAX < now).is_some() {
                    waiting.push(found.watch);
                }
            }
        }
        waiting.into_iter().for_each(|watch| self.advance(cx, streams, watch));
    }

    /// A step of a further stream is told.
    pub(crate) fn on_partner_step(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        order: &FeedOrder,
        (attachment, report): (AttachmentId, StepReport),
    ) {
        let awaited = self.awaited(&order.key);
        let Some(partner) = self.partner(order) else { return };
        partner.push(cx, (attachment, report), awaited);
        self.advance_joined(cx, streams, order);
    }

    /// The run of a further stream is over.
    pub(crate) fn on_partner_over(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        order: &FeedOrder,
    ) {
        let found = self.coordinated.get(&order.key);
        let waits = found.and_then(|found| self.watches.get(&found.watch)).and_then(Watch::run);
        let run = waits.or_else(|| found?.state.last.map(|(run, _)| run));
        let Some(partner) = self.partner(order) else { return };
        // A run of the first stream that has not begun counts from 1.
        (partner.over_for, partner.lost_at) = (Some(run.unwrap_or(0)), None);
        self.advance_joined(cx, streams, order);
    }

    /// Whether a subscription watches, and would go on at another server: its further streams are fed; of one in the space it is known
    /// what was there before.
    pub(crate) fn is_in_force(&self, stream: &str, name: &str) -> bool {
        let key = (stream.to_owned(), name.to_owned());
        let found = self.coordinated.get(&key);
        let are_fed =
            found.is_none_or(|found| found.partners.iter().all(|partner| !partner.attachments.is_empty()));
        are_fed && self.is_space_ready(&key) && self.is_kept_elsewhere(&key)
    }

    /// A step was evaluated: what waited with it in other streams is let go of.
    pub(super) fn let_partners_go(&mut self, cx: &Context<'_>, key: &Key, step: StepNumber) {
        let awaited = self.awaited(key);
        let Some(found) = self.coordinated.get_mut(key) else { return };
        for partner in &mut found.partners {
            partner.let_go_up_to(cx, step);
            partner.trim(cx, awaited);
        }
    }

    /// The step of the first stream that is joined next, or is evaluated.
    fn awaited(&self, key: &Key) -> Option<StepNumber> {
        let found = self.coordinated.get(key)?;
        self.watches.get(&found.watch)?.awaited()
    }

    fn advance_joined(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, order: &FeedOrder) {
        if let Some(watch) = self.coordinated.get(&order.key).map(|found| found.watch) {
            self.advance(cx, streams, watch);
        }
    }

    fn partner(&mut self, order: &FeedOrder) -> Option<&mut Partner> {
        let found = self.coordinated.get_mut(&order.key)?;
        let partners = found.partners.iter_mut().filter(|_| found.creation == order.creation);
        partners.into_iter().find(|partner| partner.stream == order.stream)
    }
}
