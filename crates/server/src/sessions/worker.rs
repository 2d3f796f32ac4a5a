//! The connection of a pipeline's worker beside this server.

use super::client::{Client, log_unanswered};
use super::payload;
use super::reading::Reading;
use super::role_session::{RoleSession, not_spoken};
use crate::pipelines::WorkerHost;
use forebay_core::Result;
use forebay_wire::client::worker::{Reply, Request};
use forebay_wire::frame::Frame;
use forebay_wire::protocol::Protocol;

/// A worker's session.
pub(super) struct Session {
    client: Client,
    pipeline: String,
    /// Which start of it.
    instance: u64,
    reading: Reading,
}

impl Session {
    pub(super) fn new(client: Client, pipeline: String, instance: u64) -> Session {
        Session { client, pipeline, instance, reading: Reading::default() }
    }
}

impl RoleSession for Session {
    fn client(&self) -> &Client {
        &self.client
    }

    fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    fn on_welcomed(&mut self) -> Result<()> {
        self.client.node.worker_connected(&self.pipeline, self.instance, self.client.outbox.clone())
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<()> {
        payload::check_none(&frame)?;
        let request = frame.header.request;
        let failed = match frame.protocol()? {
            Protocol::Worker => {
                self.client.node.on_worker_request(
                    &self.pipeline,
                    self.instance,
                    frame.message::<Request>()?,
                );
                self.client.finish(request, Ok(Some(Reply::Done)))?
            }
            Protocol::Reading => self.reading.on_frame(&self.client, &frame).await?,
            other => return Err(not_spoken("a worker", other)),
        };
        log_unanswered(failed);
        Ok(())
    }

    async fn on_end(&mut self, dubious: bool) {
        self.client.node.worker_disconnected(&self.pipeline, &self.client.outbox);
        self.client.until_memory_is_unused(dubious).await;
        self.reading.close_all(&self.client.node);
    }
}
