//! What a reader's connection does as a subscriber: it makes subscriptions, and is told of their events.

use super::consumer::{Attached, Session};
use crate::subscriptions::{Listener, Subscribed};
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::AttachmentId;
use forebay_core::{Error, Result};
use forebay_query::subscription::Definition;
use forebay_query::{check_watched, in_words};
use forebay_wire::client::consumer::{Attach, Reply};
use forebay_wire::subscription::{Change, Listen};
use std::time::Duration;
use tokio::time::timeout;

/// How often it is looked at whether a subscription is told of all its streams.
const LOOKED_AT: Duration = Duration::from_millis(5);

impl Session {
    /// Makes a subscription.
    pub(super) async fn subscribe(&mut self, stream: String, definition: Definition) -> Result<Reply> {
        definition.check()?;
        if let Some(server) = self.find_told(&stream).await? {
            return Ok(Reply::Redirect(server));
        }
        let node = self.client.node.clone();
        let connection = *self.subscribes_as.get_or_insert_with(|| node.unique());
        let mut state = node.state.lock();
        let made = node.with_subscriptions(&mut state, |all, cx, streams| {
            all.subscribe(cx, streams, &stream, definition, connection)
        });
        node.drain(&mut state);
        let Subscribed { creation, existed, last, finished } = made?;
        Ok(Reply::Subscribed { creation, existed, last, finished })
    }

    /// Pauses, resumes or removes a subscription.
    pub(super) async fn change_subscription(
        &mut self,
        stream: &str,
        name: &str,
        change: Change,
    ) -> Result<Reply> {
        check_watched(stream)?;
        if let Some(server) = self.find_told(stream).await? {
            return Ok(Reply::Redirect(server));
        }
        let node = self.client.node.clone();
        let mut state = node.state.lock();
        let changed = node.with_subscriptions(&mut state, |all, cx, streams| {
            all.change(cx, streams, (stream, name), change)
        });
        node.drain(&mut state);
        changed.map(|()| Reply::Done)
    }

    /// Waits until it is agreed from which step on a subscription watches.
    pub(super) async fn await_subscription(&mut self, stream: String, name: String) -> Result<Reply> {
        check_watched(&stream)?;
        if let Some(server) = self.find_told(&stream).await? {
            return Ok(Reply::Redirect(server));
        }
        let node = self.client.node.clone();
        let id = node.state.lock().subscriptions.attachment_of(&stream, &name)?;
        let fed = async {
            while !node.state.lock().subscriptions.is_in_force(&stream, &name) {
                tokio::time::sleep(LOOKED_AT).await;
            }
        };
        if timeout(self.client.patience, fed).await.is_ok()
            && self.agreed(&stream, |stream| stream.is_start_agreed(id)).await
        {
            let mut state = node.state.lock();
            let of_its_own = state.subscriptions.start_of(&stream, &name);
            let from = of_its_own.or_else(|| node.coordinator(&mut state, &stream).active_from(id));
            return Ok(Reply::Needed { from });
        }
        Err(Error::timeout(format!(
            "the servers did not agree in time from which step of {} on subscription '{name}' watches: one of them stands still",
            in_words(&stream)
        )))
    }

    /// Listens to a subscription from now on.
    pub(super) async fn listen(&mut self, attach: Attach, listen: Listen) -> Result<Reply> {
        let node = self.client.node.clone();
        let id = AttachmentId(node.unique());
        let listener = Listener::new(self.client.outbox.clone(), attach.window, attach.held);
        let stream = attach.stream;
        let attached = Attached { id, stream: stream.clone(), rank: None, listens: true, is_followed: false };
        let mut state = node.state.lock();
        let listened = node.with_subscriptions(&mut state, |all, cx, streams| {
            all.listen(cx, streams, &stream, (listen, id), listener)
        });
        node.drain(&mut state);
        let (creation, last) = listened?;
        self.attachments.push(attached);
        Ok(Reply::Listening { attachment: id, creation, last })
    }

    /// Whether an attachment is a subscriber.
    pub(super) fn listens(&self, id: AttachmentId) -> bool {
        self.find(id).is_some_and(|attached| attached.listens)
    }

    /// The subscriber has finished with the step of an event.
    pub(super) fn finish_event(&self, id: AttachmentId, step: (RunNumber, StepNumber), pinned: bool) {
        let node = &self.client.node;
        let mut state = node.state.lock();
        node.with_subscriptions(&mut state, |all, cx, streams| all.release(cx, streams, id, step, pinned));
        node.drain(&mut state);
    }

    /// The subscriber listens no more; what it still holds (`holds_nothing` otherwise) it may go on reading.
    pub(super) fn stop_listening(&mut self, id: AttachmentId, holds_nothing: bool) {
        let node = &self.client.node;
        let mut state = node.state.lock();
        node.with_subscriptions(&mut state, |all, cx, streams| match holds_nothing {
            true => all.leave(cx, streams, id),
            false => all.stop_telling(id),
        });
        node.drain(&mut state);
        drop(state);
        if holds_nothing {
            self.attachments.retain(|attached| attached.id != id);
        }
    }

    /// The connection has ended.
    pub(super) fn end_subscribing(&mut self) {
        let Some(connection) = self.subscribes_as.take() else { return };
        let node = &self.client.node;
        let mut state = node.state.lock();
        node.with_subscriptions(&mut state, |all, cx, _| all.on_connection_ended(cx, connection));
    }
}
