//! A reader's connection: attaches to a stream, is told of steps, releases them; and reads blocks.

use super::client::{Client, log_unanswered};
use super::payload;
use super::reading::Reading;
use super::role_session::{RoleSession, not_spoken};
use crate::node::Node;
use crate::streams::attachments::Delivery;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber, check_name};
use forebay_core::steps::{Attachment, AttachmentId, Situation, StreamCoordinator};
use forebay_core::{Error, Result};
use forebay_wire::client::consumer::{Attach, Reply, Request};
use forebay_wire::frame::Frame;
use forebay_wire::protocol::Protocol;
use tokio::time::timeout;

/// A reader's session.
pub(super) struct Session {
    client: Client,
    /// With the streams that they are attached to.
    attachments: Vec<(AttachmentId, String)>,
    reading: Reading,
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
                let answer = self.on_request(frame.message()?).await;
                self.client.finish_reading(request, answer)?
            }
            Protocol::Reading => self.reading.on_frame(&self.client, &frame).await?,
            other => return Err(not_spoken("a consumer", other)),
        };
        log_unanswered(failed);
        Ok(())
    }

    async fn on_end(&mut self, dubious: bool) {
        let reads = self.client.shared_memory && self.stop_reading();
        self.client.until_memory_is_unused(reads || dubious).await;
        for (attachment, stream) in std::mem::take(&mut self.attachments) {
            self.client.node.detach(attachment, Some(stream));
        }
        self.reading.close_all(&self.client.node);
    }
}

impl Session {
    pub(super) fn new(client: Client) -> Session {
        Session { client, attachments: Vec::new(), reading: Reading::default() }
    }

    async fn on_request(&mut self, request: Request) -> Result<Option<Reply>> {
        match request {
            Request::Attach(attach) => self.attach(*attach).await.map(Some),
            Request::Release { attachment, run, step, pinned } => {
                self.release(attachment, run, step, pinned);
                Ok(None)
            }
            Request::Next { attachment, has_spare } => {
                self.ask_for_newest(attachment, has_spare);
                Ok(Some(Reply::Done))
            }
            Request::Look { attachment } => Ok(Some(Reply::Situation(Box::new(self.look(attachment))))),
            Request::Need { attachment, needs } => self.change_needs(attachment, *needs).await.map(Some),
            Request::Detach { attachment, held } => {
                self.close_attachment(attachment, &held);
                Ok(Some(Reply::Done))
            }
        }
    }

    /// Attaches to a stream that this server coordinates. Answers once it is agreed from which step on it takes part:
    /// steps that begin after that are for it.
    async fn attach(&mut self, attach: Attach) -> Result<Reply> {
        let Attach { stream, needs, window, start, follow, take, reader, held, back } = attach;
        check_name("stream", &stream)?;
        reader.check()?;
        let node = self.client.node.clone();
        let mut attachment = Attachment::new(needs, node.id, window).with_held_steps(held);
        (attachment.follow, attachment.take, attachment.reader) = (follow, take, Some(reader));
        // A reader that has given up meanwhile must not take the place that is kept for it: it comes once more.
        let elsewhere = tokio::select! {
            biased;
            () = self.client.left() => return Err(Error::unreachable("the reader has left")),
            elsewhere = self.find_told(&stream) => elsewhere?,
        };
        if let Some(server) = elsewhere {
            return Ok(Reply::Redirect(server));
        }
        let id = {
            let mut state = node.state.lock();
            // What named it at a coordinator before this one.
            let kept = |id: &AttachmentId| state.attachments.is_place_kept(&stream, *id);
            let id = back.filter(kept).unwrap_or_else(|| AttachmentId(node.unique()));
            let outbox = self.client.outbox.clone();
            state.attachments.add(id, Delivery::Consumer { outbox });
            match node.coordinator(&mut state, &stream).attach(id, attachment, start) {
                Ok(effects) => {
                    self.attachments.push((id, stream.clone()));
                    node.apply(&mut state, &stream, effects);
                    node.drain(&mut state);
                }
                Err(error) => {
                    state.attachments.remove(id);
                    node.forget_idle(&mut state, &stream);
                    return Err(error);
                }
            }
            id
        };
        if self.agreed(&stream, |stream| stream.is_start_agreed(id)).await {
            let from = node.coordinator(&mut node.state.lock(), &stream).active_from(id);
            return Ok(Reply::Attached { attachment: id, from });
        }
        self.attachments.retain(|(known, _)| *known != id);
        node.detach(id, Some(stream.clone()));
        Err(Error::timeout(format!(
            "the servers did not agree in time from which step of stream '{stream}' on a new reader takes part: one of \
             them stands still"
        )))
    }

    /// Changes the contract of an attachment. Answers once it is agreed from which step on that holds.
    async fn change_needs(&mut self, id: AttachmentId, needs: Needs) -> Result<Reply> {
        let Some((_, stream)) = self.attachments.iter().find(|(known, _)| *known == id) else {
            return Err(Error::not_found("the reader is not attached"));
        };
        let (stream, node) = (stream.clone(), self.client.node.clone());
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
    async fn agreed(&mut self, stream: &str, is_agreed: impl Fn(&StreamCoordinator) -> bool) -> bool {
        let node = self.client.node.clone();
        tokio::select! {
            biased;
            agreed = timeout(self.client.patience, node.until_agreed(stream, is_agreed)) => agreed.is_ok(),
            () = self.client.left() => false,
        }
    }

    /// The server that coordinates a stream, if it is another one; if it is this one, waits until it has been told all that
    /// the coordinator before it knew: else a reader would not be told of runs that are over.
    async fn find_told(&self, stream: &str) -> Result<Option<ServerId>> {
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
                "not all servers have told what they know of stream '{stream}', whose coordinator has gone: one stands still"
            )))
        })
    }

    /// The reader takes the newest step alone, and asks for it.
    fn ask_for_newest(&mut self, id: AttachmentId, has_spare: bool) {
        let Some((_, stream)) = self.attachments.iter().find(|(known, _)| *known == id) else { return };
        let node = &self.client.node;
        let mut state = node.state.lock();
        let effects = node.coordinator(&mut state, stream).on_asked(id, has_spare);
        node.apply(&mut state, stream, effects);
        node.drain(&mut state);
    }

    /// What the reader waits for.
    fn look(&self, id: AttachmentId) -> Situation {
        let found = self.attachments.iter().find(|(known, _)| *known == id);
        let state = self.client.node.state.lock();
        let coordinator = found.and_then(|(_, stream)| state.coordination.get(stream));
        coordinator.map(|stream| stream.situation_of(id)).unwrap_or_default()
    }

    /// Has finished with a step.
    fn release(&mut self, id: AttachmentId, run: RunNumber, step: StepNumber, pinned: bool) {
        let Some((_, stream)) = self.attachments.iter().find(|(known, _)| *known == id) else { return };
        let node = &self.client.node;
        let mut state = node.state.lock();
        let effects = node.coordinator(&mut state, stream).release(id, run, step, pinned);
        node.apply(&mut state, stream, effects);
        node.drain(&mut state);
    }

    /// Its handle is closed: it wants nothing more, but arrays of these steps live on.
    fn close_attachment(&mut self, id: AttachmentId, held: &[(RunNumber, StepNumber)]) {
        let Some((_, stream)) = self.attachments.iter().find(|(known, _)| *known == id) else { return };
        let node = &self.client.node;
        let mut state = node.state.lock();
        let effects = node.coordinator(&mut state, stream).close(id, held);
        node.apply(&mut state, stream, effects);
        node.drain(&mut state);
    }

    /// Tells the reader of no further steps; returns whether it may still look at some that it was told of.
    fn stop_reading(&mut self) -> bool {
        let node = self.client.node.clone();
        let mut reads = false;
        let mut state = node.state.lock();
        for (id, stream) in &self.attachments {
            let held = node.coordinator(&mut state, stream).held_by(*id);
            if !held.is_empty() {
                reads = true;
                let effects = node.coordinator(&mut state, stream).close(*id, &held);
                node.apply(&mut state, stream, effects);
            }
        }
        node.drain(&mut state);
        reads
    }
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

    /// An attachment is gone.
    pub(crate) fn detach(&self, id: AttachmentId, stream: Option<String>) {
        let mut state = self.state.lock();
        state.attachments.remove(id);
        if let Some(stream) = stream {
            let effects = self.coordinator(&mut state, &stream).detach(id);
            self.apply(&mut state, &stream, effects);
            self.drain(&mut state);
            self.forget_idle(&mut state, &stream);
        }
    }
}
