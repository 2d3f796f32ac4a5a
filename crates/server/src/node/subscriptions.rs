//! Subscriptions within a server: which of its events they are told of, and what follows from them for its streams.

use super::streams_at_hand::StreamsAtHand;
use super::{Components, Evaluating, Node};
use crate::context::Context;
use crate::evaluation::facts;
use crate::subscriptions::{Done, Due, Subscriptions, Work};
use forebay_core::ids::ServerId;
use forebay_core::steps::StepReport;
use forebay_core::view::hash_name;
use forebay_query::{Evaluation, SPACE};
use forebay_wire::evaluation::Cost;
use forebay_wire::peer::streams::Message as StreamsMessage;
use forebay_wire::peer::subscriptions::Message;
use std::sync::Arc;
use std::time::Duration;

impl Node {
    /// Tells subscriptions of an event, and then does what follows for streams, and begins what is to be evaluated.
    pub(crate) fn with_subscriptions<T>(
        &self,
        state: &mut Components,
        event: impl FnOnce(&mut Subscriptions, &mut Context<'_>, &mut StreamsAtHand<'_>) -> T,
    ) -> T {
        let result = self.with_streams(state, |users, cx, streams| {
            users.subscriptions.set_pipelines(users.pipelines.run_at_events());
            event(users.subscriptions, cx, streams)
        });
        while let Some(work) = state.subscriptions.take_work() {
            self.begin_work(work);
        }
        while let Some(order) = state.subscriptions.take_feed_order() {
            self.begin_feed(order);
        }
        while let Some(order) = state.subscriptions.take_search_order() {
            self.begin_search(order);
        }
        result
    }

    /// A message about subscriptions.
    pub(super) fn on_subscriptions(&self, state: &mut Components, from: ServerId, message: Message) {
        match message {
            Message::Keep { token, stream, copy } => {
                state.subscriptions.on_keep(stream, *copy);
                self.tell(state, from, Message::Kept { token });
            }
            Message::Progress { token, stream, all, completed } => {
                state.subscriptions.on_progress(&stream, all);
                if let Some((attachment, step, completion)) = completed {
                    let steps = vec![(step, completion)];
                    state.subscriptions.on_completed(attachment, steps, false);
                }
                self.tell(state, from, Message::Kept { token });
            }
            Message::Kept { token } => {
                self.with_subscriptions(state, |all, cx, streams| all.on_kept(cx, streams, from, token));
            }
            Message::WatchSpace { token, fields, again } => {
                self.with_space(state, |space, cx, _| {
                    space.owner.on_watch(cx, (from, token), fields, &again);
                });
            }
            Message::Watching { token } => {
                self.with_subscriptions(state, |all, cx, _| all.on_watching(cx, from, token));
            }
            Message::Known { token, field, steps } => {
                self.with_subscriptions(state, |all, cx, _| all.on_known(cx, (from, token), &field, &steps));
            }
            Message::Gone { field, step, description } => {
                self.with_subscriptions(state, |all, cx, _| all.on_gone(cx, (&field, step), description));
            }
            Message::Completed { token, attachment, steps, is_ready } => {
                state.subscriptions.on_completed(attachment, steps, is_ready);
                self.tell(state, from, Message::Kept { token });
            }
            Message::TakeOverCompleted { epoch, attachment, steps, is_ready } => {
                if self.elsewhere(state, epoch, SPACE).is_none() {
                    state.subscriptions.on_take_over_completed(attachment, steps, is_ready);
                }
            }
            Message::Forget { stream, name, creation } => {
                state.subscriptions.on_forget(&(stream, name), creation);
            }
            Message::TakeOverSubscription { epoch, stream, copy } => {
                if let Some(server) = self.elsewhere(state, epoch, &stream) {
                    self.tell(state, from, StreamsMessage::CoordinatedBy { stream, server });
                    return;
                }
                state.locations.note_heard_of(epoch);
                self.with_subscriptions(state, |all, cx, streams| {
                    all.on_take_over(cx, streams, &stream, *copy);
                });
            }
        }
    }

    /// Another server coordinates a stream: it is told what this one has kept of the stream's subscriptions.
    pub(crate) fn tell_copies_again(&self, state: &mut Components, stream: &str, to: ServerId) {
        let epoch = self.epoch();
        if stream == SPACE {
            let completed: Vec<Message> = state
                .subscriptions
                .copies_of_completed()
                .map(|(attachment, steps, is_ready)| Message::TakeOverCompleted {
                    epoch,
                    attachment,
                    steps,
                    is_ready,
                })
                .collect();
            for message in completed {
                self.tell(state, to, message);
            }
        }
        for copy in state.subscriptions.copies_of(stream) {
            let (stream, copy) = (stream.to_owned(), Box::new(copy));
            self.tell(state, to, Message::TakeOverSubscription { epoch, stream, copy });
        }
    }

    /// All servers have told what they kept.
    pub(crate) fn settle_subscriptions(&self, state: &mut Components) {
        self.with_subscriptions(state, |all, cx, streams| all.settle(cx, streams));
    }

    /// A server died.
    pub(crate) fn subscriptions_peer_gone(&self, state: &mut Components, peer: ServerId) {
        self.with_subscriptions(state, |all, cx, streams| {
            all.on_server_gone(cx, streams, peer);
            all.on_members_changed(cx);
        });
    }

    /// The members are others, or one leaves.
    pub(crate) fn subscriptions_members_changed(&self, state: &mut Components) {
        self.with_subscriptions(state, |all, cx, _| all.on_members_changed(cx));
    }

    /// Time has passed.
    pub(super) fn look_at_subscriptions(&self) {
        let mut state = self.state.lock();
        self.with_subscriptions(&mut state, |all, cx, streams| all.on_time(cx, streams));
        self.drain(&mut state);
    }

    /// Texts are evaluated at a step.
    fn begin_work(&self, work: Work) {
        let Some(node) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            let Work { watch, report, partners, due, began } = work;
            let reports: Vec<&StepReport> =
                [&report].into_iter().chain(&partners).map(|report| &**report).collect();
            let done = evaluated(&node, &reports, due, began).await;
            let mut state = node.state.lock();
            node.with_subscriptions(&mut state, |all, cx, streams| {
                all.on_evaluated(cx, streams, watch, &report, done);
            });
            node.drain(&mut state);
        });
    }
}

/// How many aggregates are asked together: an inquiry numbers its questions in 16 bits.
const ASKED_TOGETHER: usize = 60_000;

/// Evaluates texts at a step, of which these are the reports of all streams, the first one first.
async fn evaluated(
    node: &Arc<Node>,
    reports: &[&StepReport],
    mut due: Vec<Due>,
    began: Duration,
) -> Vec<Done> {
    let mut done = Vec::with_capacity(due.len());
    while !due.is_empty() {
        let mut aggregates = 0;
        let fits = |due: &&Due| {
            aggregates += 1 + due.text.plan.aggregates.len();
            aggregates <= ASKED_TOGETHER
        };
        let together = due.iter().take_while(fits).count().max(1);
        let later = due.split_off(together);
        done.extend(evaluated_together(node, reports, due, began).await);
        due = later;
    }
    done
}

/// The same, of so few that one inquiry asks for all.
async fn evaluated_together(
    node: &Arc<Node>,
    reports: &[&StepReport],
    due: Vec<Due>,
    began: Duration,
) -> Vec<Done> {
    let Some(report) = reports.first() else { return Vec::new() };
    let root = due.first().map_or(0, |due| hash_name(&due.name));
    let (mut evaluating, mut whose) = (Vec::with_capacity(due.len()), Vec::with_capacity(due.len()));
    for Due { name, creation, text, mut watch } in due {
        let evaluation = Evaluation::new(text.plan.clone(), facts(&text.plan, reports), Some(&mut watch));
        evaluating.push(Evaluating { text, evaluation, state: Some(watch) });
        whose.push((name, creation));
    }
    let cost = node.evaluate(&report.id, reports, &mut evaluating, root).await;
    // What several ask together is counted for each in equal parts.
    let share = 1.0 / whose.len().max(1) as f64;
    let cost = Cost { seconds: cost.seconds * share, read: (cost.read as f64 * share) as u64, ..cost };
    let done = |(Evaluating { evaluation, state, .. }, (name, creation))| Done {
        name,
        creation,
        evaluation: Ok(evaluation),
        watch: state,
        cost,
        began,
    };
    evaluating.into_iter().zip(whose).map(done).collect()
}
