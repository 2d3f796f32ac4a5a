//! The connection of a user of the space: puts, finds and removes arrays; writes and reads blocks.

use super::client::{Client, log_unanswered};
use super::evaluations::Evaluations;
use super::payload;
use super::reading::Reading;
use super::role_session::{RoleSession, not_spoken};
use super::searches::Searches;
use super::writing::Writing;
use crate::held::Held;
use crate::space::FieldAtStep;
use crate::subscriptions::in_space;
use forebay_core::directory::check_block_fits;
use forebay_core::steps::check_replicas;
use forebay_core::{Error, Result};
use forebay_wire::client::block::{BytesLocation, Grant, PutBlock};
use forebay_wire::client::space::{Reply, Request, SpacePut};
use forebay_wire::client::writing;
use forebay_wire::frame::{Frame, Header};
use forebay_wire::protocol::Protocol;

/// A session of a user of the space.
pub(super) struct Session {
    client: Client,
    /// Where it writes, once it has asked for that.
    writing: Option<Writing>,
    /// What it looks for, and holds.
    searches: Searches,
    evaluations: Evaluations,
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
        let header = frame.header;
        let failed = match frame.protocol()? {
            Protocol::Space => {
                let request = payload::message(&frame, |request| matches!(request, Request::Put(_)))?;
                let answer = self.on_request(&header, request).await;
                self.client.finish_reading(header.request, answer)?
            }
            Protocol::Writing => {
                let answer = self.on_writing(payload::message(&frame, |_| false)?);
                self.client.finish_reading(header.request, answer)?
            }
            Protocol::Reading => {
                payload::check_none(&frame)?;
                self.reading.on_frame(&self.client, &frame).await?
            }
            other => return Err(not_spoken("the space", other)),
        };
        log_unanswered(failed);
        Ok(())
    }

    async fn on_end(&mut self, dubious: bool) {
        self.searches.on_client_gone();
        let writing = self.writing.take();
        let writes = writing.as_ref().is_some_and(|writing| !writing.is_idle());
        self.client.until_memory_is_unused(writes || self.searches.hold_something() || dubious).await;
        let node = &self.client.node;
        if let Some(writing) = writing {
            writing.close(node);
        }
        self.searches.release_all(node);
        self.reading.close_all(node);
    }
}

impl Session {
    pub(super) fn new(client: Client) -> Session {
        let (searches, evaluations) = (Searches::default(), Evaluations::default());
        Session { client, writing: None, searches, evaluations, reading: Reading::default() }
    }

    async fn on_request(&mut self, header: &Header, request: Request) -> Result<Option<Reply>> {
        match request {
            Request::Open => {
                let writing = Writing::open(&self.client.node, self.client.shared_memory)?;
                let told = writing.share(&self.client, header.request, Reply::Opened);
                if let Some(before) = self.writing.replace(writing) {
                    before.close(&self.client.node);
                }
                told
            }
            Request::Put(put) => self.put(header, *put).await,
            Request::Find(search) => self.searches.find(&self.client, header.request, *search).await,
            Request::Release { request } => {
                self.searches.release(&self.client.node, request);
                Ok(None)
            }
            Request::Evaluate { step, text, fields } => {
                let asked = (in_space(step, fields), text);
                self.evaluations.begin(&self.client, header.request, asked, Reply::Evaluated)
            }
            Request::List { after } => {
                let (arrays, more) = self.client.node.space_list(after);
                Ok(Some(Reply::Listed { arrays, more }))
            }
            Request::Remove { field, step } => {
                if !self.client.node.space_remove(&FieldAtStep { field, step }).await? {
                    return Ok(Some(Reply::NotOwned));
                }
                self.client.may_acknowledge(header.request).await?;
                Ok(Some(Reply::Done))
            }
        }
    }

    fn on_writing(&mut self, request: writing::Request) -> Result<Option<writing::Reply>> {
        let node = self.client.node.clone();
        match request {
            writing::Request::Reserve { bytes, .. } => {
                // Nothing of the space goes by itself: there is nothing to wait for.
                let granted: Option<Grant> = self.writing()?.try_reserve(&node, bytes)?;
                let granted = granted.ok_or_else(|| node.space_full(bytes))?;
                Ok(Some(writing::Reply::Granted(Some(granted))))
            }
            writing::Request::Abort { offset, generation, .. } => {
                self.writing()?.abort(&node, offset, generation);
                Ok(None)
            }
        }
    }

    fn writing(&mut self) -> Result<&mut Writing> {
        self.writing.as_mut().ok_or_else(|| Error::step_order("ask for an arena to write to first"))
    }

    /// Puts a block to be kept.
    async fn put(&mut self, header: &Header, put: SpacePut) -> Result<Option<Reply>> {
        let (field, block) = (&put.field, &put.block);
        let checked = field.check().and_then(|()| {
            let name = format!("block {}", block.number);
            check_block_fits(field, &name, block.level, &block.extent)?;
            check_replicas(put.replicas)?;
            block.extent.bytes(field.dtype)
        });
        let node = self.client.node.clone();
        let leaves = node.leaves.get();
        let bytes = match checked {
            Ok(bytes) if !leaves => bytes,
            refused => {
                payload::refuse(&mut self.client, self.writing.as_mut(), header, &block.bytes).await?;
                return refused.map(|_| Some(Reply::LetGo));
            }
        };
        let held = match &block.bytes {
            BytesLocation::Granted { arena, offset, generation } => {
                let held = Held { arena: *arena, offset: *offset, generation: *generation };
                self.writing()?.commit(&node, held, bytes)?;
                held
            }
            _ => self.take(header, block, bytes).await?,
        };
        let put = match node.space_put(put, bytes, held, self.client.patience).await {
            Ok(()) => self.client.may_acknowledge(header.request).await,
            failed => failed,
        };
        put.map(|()| Some(Reply::Done))
    }

    /// Takes the bytes of a block that come over the connection.
    async fn take(&mut self, header: &Header, block: &PutBlock, bytes: u64) -> Result<Held> {
        let sent = match &block.bytes {
            BytesLocation::Inline(given) => given.len() as u64,
            _ => header.payload,
        };
        if sent != bytes {
            self.client.receiver.discard_payload(header).await?;
            return Err(Error::protocol(format!("{sent} bytes for a block of {bytes}")));
        }
        let node = self.client.node.clone();
        let (held, fresh) = match node.space_reserve(bytes) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.client.receiver.discard_payload(header).await?;
                return Err(error);
            }
        };
        let filled = match &block.bytes {
            BytesLocation::Inline(given) => {
                let mapping = node.store.lock().mapping(held.arena);
                mapping.and_then(|mapping| mapping.write(held.offset, given))
            }
            _ => payload::take_into(&mut self.client, header, held, fresh).await,
        };
        let committed =
            filled.and_then(|()| node.store.lock().commit(held.arena, held.offset, held.generation, bytes));
        if let Err(error) = committed {
            node.free([held]);
            return Err(error);
        }
        Ok(held)
    }
}
