//! A reader's connection: attaches to a stream, is told of steps, releases them; and reads blocks. What it does as a subscriber is in
//! `subscriber`.

use super::client::{Client, log_unanswered};
use super::evaluations::Evaluations;
use super::payload;
use super::reading::Reading;
use super::role_session::{RoleSession, not_spoken};
use crate::node::{Components, Node};
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber, check_name};
use forebay_core::steps::{
    Arrival, Attachment, AttachmentId, CohortRank, Coming, Effect, Sharer, Situation, Start, StepReport,
    StreamCoordinator,
};
use forebay_core::{Error, Result};
use forebay_query::{check_watched, in_words};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::consumer::{Attach, Reply, Request};
use forebay_wire::frame::Frame;
use forebay_wire::protocol::Protocol;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A reader's session.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) attachments: Vec<Attached>,
    evaluations: Evaluations,
    /// Names this connection among those that have made subscriptions, if it has.
    pub(super) subscribes_as: Option<u64>,
    reading: Reading,
}

/// An attachment of a session.
#[derive(Debug, Clone)]
pub(super) struct Attached {
    pub(super) id: AttachmentId,
    pub(super) stream: String,
    /// Which rank of a cohort it is, if it is one; which of the readers that share steps, if it is one of these.
    pub(super) rank: Option<u32>,
    /// Whether it is a subscriber: it is told of events, and of steps with these.
    pub(super) listens: bool,
    /// Whether others go on in its place if its connection ends.
    pub(super) is_followed: bool,
}

impl RoleSession for Session {
    fn client(&self) -> &Client {
        &self.client
    }

    fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<()> {
        payload::check_none(&frame)?;
        let request = frame.header.request;
        let failed = match frame.protocol()? {
            Protocol::Consumer => {
                let answer = self.on_request(request, frame.message()?).await;
                self.client.finish_reading(request, answer)?
            }
            Protocol::Reading => self.reading.on_frame(&self.client, &frame).await?,
            other => return Err(not_spoken("a consumer", other)),
        };
        log_unanswered(failed);
        Ok(())
    }

    async fn on_end(&mut self, dubious: bool) {
        self.end_subscribing();
        self.note_stops();
        let reads = self.client.shared_memory && self.stop_reading();
        self.client.until_memory_is_unused(reads || dubious).await;
        for attached in std::mem::take(&mut self.attachments) {
            self.client.node.end_attachment(&attached, &self.client.outbox);
        }
        self.reading.close_all(&self.client.node);
    }
}

impl Session {
    pub(super) fn new(client: Client) -> Session {
        let (evaluations, reading) = (Evaluations::default(), Reading::default());
        Session { client, attachments: Vec::new(), evaluations, subscribes_as: None, reading }
    }

    async fn on_request(&mut self, number: u64, request: Request) -> Result<Option<Reply>> {
        match request {
            Request::Attach(attach) => self.attach(*attach).await.map(Some),
            Request::Release { attachment, run, step, pinned, gives_back: false } => {
                self.release(attachment, run, step, pinned);
                Ok(None)
            }
            Request::Release { attachment, run, step, pinned, gives_back: true } => {
                self.tell_coordinator(attachment, |coordinator, rank| {
                    coordinator.give_back(attachment, rank, (run, step), pinned)
                });
                Ok(None)
            }
            Request::Next { attachment, has_spare, after } => {
                self.ask_for_step(attachment, has_spare, after);
                Ok(Some(Reply::Done))
            }
            Request::Look { attachment } => Ok(Some(Reply::Situation(Box::new(self.look(attachment))))),
            Request::Need { attachment, needs } => self.change_needs(attachment, *needs).await.map(Some),
            Request::Evaluate { attachment, run, step, text } => {
                let report = self.report_of(attachment, run, step)?;
                self.evaluations.begin(&self.client, number, (report, text), Reply::Evaluated)
            }
            Request::Subscribe { stream, definition } => self.subscribe(stream, *definition).await.map(Some),
            Request::AwaitSubscription { stream, name } => {
                self.await_subscription(stream, name).await.map(Some)
            }
            Request::ChangeSubscription { stream, name, change } => {
                self.change_subscription(&stream, &name, change).await.map(Some)
            }
            Request::Detach { attachment, held, failed } => {
                self.close_attachment(attachment, &held, failed);
                Ok(Some(Reply::Done))
            }
        }
    }

    /// Attaches to a stream that this server coordinates. Answers once it is agreed from which step on it takes part:
    /// steps that begin after that are for it. A rank of a cohort waits for the others before.
    async fn attach(&mut self, attach: Attach) -> Result<Reply> {
        let stream = attach.stream.clone();
        match attach.listen {
            Some(_) => check_watched(&stream)?,
            None => check_name("stream", &stream)?,
        }
        attach.reader.check()?;
        // A reader that has given up meanwhile must not take the place that is kept for it: it comes once more.
        let elsewhere = tokio::select! {
            biased;
            () = self.client.left() => return Err(Error::unreachable("the reader has left")),
            elsewhere = self.find_told(&stream) => elsewhere?,
        };
        if let Some(server) = elsewhere {
            return Ok(Reply::Redirect(server));
        }
        let node = self.client.node.clone();
        if let Some(listen) = attach.listen.clone() {
            return self.listen(attach, listen).await;
        }
        let shares = attach.sharer.is_some();
        let attached = match (attach.cohort.clone(), attach.sharer.clone()) {
            (None, None) => self.attach_alone(attach)?,
            (Some(rank), None) => self.attach_rank(attach, rank).await?,
            (None, Some(sharer)) => self.attach_sharer(attach, sharer)?,
            (Some(_), Some(_)) => {
                return Err(Error::invalid("a rank of a parallel reader shares no steps with other readers"));
            }
        };
        let (id, number) = (attached.id, attached.rank.filter(|_| shares));
        if self.agreed(&stream, |stream| stream.is_start_agreed(id)).await {
            let mut state = node.state.lock();
            let coordinator = node.coordinator(&mut state, &stream);
            let (from, hosts) = (coordinator.active_from(id), coordinator.hosts_of(id));
            return Ok(Reply::Attached { attachment: id, from, hosts, number });
        }
        self.attachments.retain(|known| known.id != id);
        node.end_attachment(&attached, &self.client.outbox);
        Err(Error::timeout(format!(
            "the servers did not agree in time from which step of stream '{stream}' on a new reader takes part: one of \
             them stands still"
        )))
    }

    fn attach_alone(&mut self, attach: Attach) -> Result<Attached> {
        let (node, stream, start) = (self.client.node.clone(), attach.stream.clone(), attach.start);
        let mut state = node.state.lock();
        let id = place_of(&node, &state, &attach);
        let is_followed = attach.is_followed;
        let attached = Attached { id, stream: stream.clone(), rank: None, listens: false, is_followed };
        state.attachments.add_rank(id, 0, self.client.outbox.clone());
        learn_cursor(&node, &mut state, &attach);
        match node.coordinator(&mut state, &stream).attach(id, attachment_of(&node, attach), start) {
            Ok(effects) => {
                self.attachments.push(attached.clone());
                node.apply(&mut state, &stream, effects);
                node.drain(&mut state);
                Ok(attached)
            }
            Err(error) => {
                state.attachments.remove(id);
                node.forget_idle(&mut state, &stream);
                Err(error)
            }
        }
    }

    /// A reader comes that shares steps with others.
    fn attach_sharer(&mut self, attach: Attach, sharer: Sharer) -> Result<Attached> {
        let (node, stream, start) = (self.client.node.clone(), attach.stream.clone(), attach.start);
        let comes_back = attach.back.is_some();
        let mut state = node.state.lock();
        let id = place_of(&node, &state, &attach);
        learn_cursor(&node, &mut state, &attach);
        let attachment = attachment_of(&node, attach);
        let coordinator = node.coordinator(&mut state, &stream);
        let shared = coordinator.share(id, comes_back, sharer, attachment, start);
        let (id, number, effects) = shared.inspect_err(|_| node.forget_idle(&mut state, &stream))?;
        let attached =
            Attached { id, stream: stream.clone(), rank: Some(number), listens: false, is_followed: false };
        state.attachments.add_rank(id, number, self.client.outbox.clone());
        self.attachments.push(attached.clone());
        node.apply(&mut state, &stream, effects);
        node.drain(&mut state);
        Ok(attached)
    }

    /// A rank of a cohort comes, and waits until all have.
    async fn attach_rank(&mut self, attach: Attach, rank: CohortRank) -> Result<Attached> {
        let (node, stream, number) = (self.client.node.clone(), attach.stream.clone(), rank.rank);
        let name = attach.reader.name.clone().unwrap_or_default();
        let patience = self.client.patience.min(heard_within(attach.patience_ms));
        let token = node.unique();
        let attached = {
            let mut state = node.state.lock();
            let (comes_back, start) = (attach.back.is_some(), attach.start);
            let id = place_of(&node, &state, &attach);
            learn_cursor(&node, &mut state, &attach);
            let coming = Coming { rank, token, attachment: attachment_of(&node, attach), start };
            let come = node.coordinator(&mut state, &stream).come(id, comes_back, coming);
            let (id, effects) = come.inspect_err(|_| node.forget_idle(&mut state, &stream))?;
            state.attachments.add_rank(id, number, self.client.outbox.clone());
            node.apply(&mut state, &stream, effects);
            node.drain(&mut state);
            Attached { id, stream: stream.clone(), rank: Some(number), listens: false, is_followed: false }
        };
        let id = attached.id;
        let waits = |stream: &StreamCoordinator| stream.arrival(id, number, token) == Arrival::Waits;
        // The last one to come wakes the others.
        if !waits(node.coordinator(&mut node.state.lock(), &stream)) {
            node.agreed.notify_waiters();
        }
        let all_have_come = node.until_agreed(&stream, |stream| !waits(stream));
        tokio::select! {
            biased;
            _ = timeout(patience, all_have_come) => {}
            () = self.client.left() => {}
        }
        let mut state = node.state.lock();
        let error = match node.coordinator(&mut state, &stream).arrival(id, number, token) {
            Arrival::Attached => {
                self.attachments.push(attached.clone());
                return Ok(attached);
            }
            Arrival::Refused(error) => error,
            Arrival::Waits => Error::timeout(format!(
                "the readers '{name}' of stream '{stream}' begin once all have come: {} in time",
                node.coordinator(&mut state, &stream).who_lacks(id)
            )),
        };
        node.coordinator(&mut state, &stream).give_up_coming(id, number, token);
        state.attachments.remove_rank(id, number, &self.client.outbox);
        node.forget_idle(&mut state, &stream);
        Err(error)
    }

    pub(super) fn find(&self, id: AttachmentId) -> Option<&Attached> {
        self.attachments.iter().find(|attached| attached.id == id)
    }

    /// Changes the contract of an attachment. Answers once it is agreed from which step on that holds.
    async fn change_needs(&mut self, id: AttachmentId, needs: Needs) -> Result<Reply> {
        let Some(attached) = self.find(id) else {
            return Err(Error::not_found("the reader is not attached"));
        };
        let (stream, node) = (attached.stream.clone(), self.client.node.clone());
        {
            let mut state = node.state.lock();
            let effects = node.coordinator(&mut state, &stream).change_needs(id, needs)?;
            node.apply(&mut state, &stream, effects);
            node.drain(&mut state);
        }
        if self.agreed(&stream, |stream| stream.are_needs_agreed(id)).await {
            let from = node.coordinator(&mut node.state.lock(), &stream).needs_hold_from(id);
            return Ok(Reply::Needed { from });
        }
        Err(Error::timeout(format!(
            "the servers did not agree in time from which step of stream '{stream}' on the new contract holds, one of them \
             stands still: it holds later, and may be asked for once more"
        )))
    }

    /// Waits until something about a stream is agreed; `false` if that takes too long, or the reader leaves.
    pub(super) async fn agreed(
        &mut self,
        stream: &str,
        is_agreed: impl Fn(&StreamCoordinator) -> bool,
    ) -> bool {
        let node = self.client.node.clone();
        tokio::select! {
            biased;
            agreed = timeout(self.client.patience, node.until_agreed(stream, is_agreed)) => agreed.is_ok(),
            () = self.client.left() => false,
        }
    }

    /// The server that coordinates a stream, if it is another one; if it is this one, waits until it has been told all that
    /// the coordinator before it knew: else a reader would not be told of runs that are over.
    pub(super) async fn find_told(&self, stream: &str) -> Result<Option<ServerId>> {
        let told = async {
            loop {
                let elsewhere = self.client.find_elsewhere(stream).await?;
                if elsewhere.is_some() || self.client.node.until_settled(stream).await {
                    return Ok(elsewhere);
                }
            }
        };
        timeout(self.client.patience, told).await.unwrap_or_else(|_| {
            Err(Error::timeout(format!(
                "not all servers have told what they know of {}, whose coordinator has gone: one stands still",
                in_words(stream)
            )))
        })
    }

    /// The reader takes the newest step alone, or those that it asks for, and asks for one.
    fn ask_for_step(&mut self, id: AttachmentId, has_spare: bool, after: Option<(RunNumber, StepNumber)>) {
        self.tell_coordinator(id, |coordinator, rank| match rank {
            None => coordinator.on_asked(id, has_spare),
            Some(rank) => coordinator.on_asked_by(id, rank, after),
        });
    }

    /// What the reader waits for.
    fn look(&self, id: AttachmentId) -> Situation {
        let found = self.find(id);
        let state = self.client.node.state.lock();
        let coordinator = found.and_then(|attached| state.coordination.get(&attached.stream));
        let reader = found.and_then(|attached| attached.rank);
        coordinator.map(|stream| stream.situation_of(id, reader)).unwrap_or_default()
    }

    /// A step that the reader holds.
    fn report_of(&self, id: AttachmentId, run: RunNumber, step: StepNumber) -> Result<StepReport> {
        let attached = self.find(id).ok_or_else(|| Error::not_found("the reader is not attached"))?;
        let state = self.client.node.state.lock();
        let gone = || Error::not_found(format!("nothing is known of stream '{}'", attached.stream));
        state.coordination.get(&attached.stream).ok_or_else(gone)?.report_of(id, run, step)
    }

    /// Has finished with a step.
    fn release(&mut self, id: AttachmentId, run: RunNumber, step: StepNumber, pinned: bool) {
        if self.listens(id) {
            return self.finish_event(id, (run, step), pinned);
        }
        self.tell_coordinator(id, |coordinator, rank| match rank {
            None => coordinator.release(id, run, step, pinned),
            Some(rank) => coordinator.release_by(id, rank, (run, step), pinned),
        });
    }

    /// Its handle is closed: it wants nothing more, but arrays of these steps live on.
    fn close_attachment(&mut self, id: AttachmentId, held: &[(RunNumber, StepNumber)], failed: bool) {
        if self.listens(id) {
            return self.stop_listening(id, held.is_empty());
        }
        self.tell_coordinator(id, |coordinator, rank| match rank {
            None => {
                let mut effects = coordinator.on_stop(id, if failed { &[] } else { held });
                effects.extend(coordinator.close(id, held));
                effects
            }
            Some(rank) => coordinator.leave(id, rank, held, failed),
        });
    }

    /// Tells the coordinator of the stream what an attachment does, or a rank of one that is a cohort.
    fn tell_coordinator(
        &self,
        id: AttachmentId,
        event: impl FnOnce(&mut StreamCoordinator, Option<u32>) -> Vec<Effect>,
    ) {
        let Some(Attached { stream, rank, .. }) = self.find(id).filter(|attached| !attached.listens) else {
            return;
        };
        let node = &self.client.node;
        let mut state = node.state.lock();
        let effects = event(node.coordinator(&mut state, stream), *rank);
        node.apply(&mut state, stream, effects);
        node.drain(&mut state);
    }

    /// The reader is gone: the next of its name goes on with what it had not finished with.
    fn note_stops(&self) {
        let alone = self.attachments.iter().filter(|attached| attached.rank.is_none() && !attached.listens);
        for Attached { id, .. } in alone {
            self.tell_coordinator(*id, |coordinator, _| coordinator.on_stop(*id, &[]));
        }
    }

    /// Tells the reader of no further steps; returns whether it may still look at some that it was told of.
    fn stop_reading(&mut self) -> bool {
        let node = self.client.node.clone();
        let mut reads = self.attachments.iter().any(|attached| attached.listens);
        let mut state = node.state.lock();
        for Attached { id, stream, rank, .. } in self.attachments.iter().filter(|attached| !attached.listens)
        {
            let coordinator = node.coordinator(&mut state, stream);
            let held = match rank {
                None => coordinator.held_by(*id),
                Some(rank) => coordinator.held_by_rank(*id, *rank),
            };
            reads |= !held.is_empty();
            let effects = match rank {
                None if held.is_empty() => continue,
                None => coordinator.close(*id, &held),
                // The others are told at once.
                Some(rank) => coordinator.leave(*id, *rank, &held, true),
            };
            node.apply(&mut state, stream, effects);
        }
        node.drain(&mut state);
        reads
    }
}

/// A reader goes on where the last one of its name has stopped: the stream's coordinator is told where that was.
fn learn_cursor(node: &Node, state: &mut Components, attach: &Attach) {
    let Some(name) = attach.reader.name.as_ref().filter(|_| attach.start == Start::Resume) else { return };
    if let Some(cursor) = state.attachments.cursor(&attach.stream, name) {
        node.coordinator(state, &attach.stream).learn_cursor(name, cursor);
    }
}

/// How long a server waits for others where its client waits so long for it: it hears why nothing has come of that.
fn heard_within(patience_ms: u64) -> Duration {
    let patience = Duration::from_millis(patience_ms);
    patience - (patience / 10).min(Duration::from_secs(1))
}

/// What names an attachment: as a coordinator before this one has named it, or anew.
fn place_of(node: &Node, state: &Components, attach: &Attach) -> AttachmentId {
    let kept = |id: &AttachmentId| state.attachments.is_place_kept(&attach.stream, *id);
    attach.back.filter(kept).unwrap_or_else(|| AttachmentId(node.unique()))
}

fn attachment_of(node: &Node, attach: Attach) -> Attachment {
    let Attach { needs, window, follow, take, reader, held, given_back, .. } = attach;
    let mut attachment = Attachment::new(needs, node.id, window).with_held_steps(held);
    (attachment.follow, attachment.take, attachment.reader) = (follow, take, Some(reader));
    attachment.given_back = given_back;
    attachment
}

impl Node {
    /// Waits while others are telling of a stream, which this server coordinates in the place of another one; `false` if it
    /// had to, so that it may not be this one any more. The caller sets the deadline.
    async fn until_settled(&self, stream: &str) -> bool {
        let mut at_once = true;
        loop {
            let settled = self.agreed.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if !self.state.lock().coordination.is_taking_over(stream) {
                return at_once;
            }
            at_once = false;
            settled.await;
        }
    }

    /// Waits until something about a stream that this server coordinates is agreed. The caller sets the deadline.
    async fn until_agreed(&self, stream: &str, is_agreed: impl Fn(&StreamCoordinator) -> bool) {
        loop {
            let decided = self.agreed.notified();
            tokio::pin!(decided);
            decided.as_mut().enable();
            if is_agreed(self.coordinator(&mut self.state.lock(), stream)) {
                return;
            }
            decided.await;
        }
    }

    /// A session's attachment is gone.
    fn end_attachment(&self, attached: &Attached, outbox: &Arc<Outbox>) {
        let Attached { id, stream, rank, listens, is_followed } = attached;
        let mut state = self.state.lock();
        if *listens {
            self.with_subscriptions(&mut state, |all, cx, streams| all.leave(cx, streams, *id));
            return self.drain(&mut state);
        }
        let coordinator = self.coordinator(&mut state, stream);
        let effects = match rank {
            None if *is_followed => coordinator.await_back(*id),
            None => coordinator.detach(*id),
            Some(rank) => coordinator.leave(*id, *rank, &[], true),
        };
        state.attachments.remove_rank(*id, rank.unwrap_or(0), outbox);
        self.apply(&mut state, stream, effects);
        self.drain(&mut state);
        self.forget_idle(&mut state, stream);
    }
}
