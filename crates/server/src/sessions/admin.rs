//! An administrator's connection.

use super::client::{Client, log_unanswered};
use super::payload;
use super::role_session::{PATIENCE_MAX, RoleSession, not_spoken};
use crate::status::contracts;
use forebay_cluster::membership::Healed;
use forebay_core::ids::check_name;
use forebay_core::{Error, Result};
use forebay_wire::client::admin::{Reply, Request};
use forebay_wire::execution::PipelineSpec;
use forebay_wire::frame::Frame;
use forebay_wire::protocol::Protocol;
use std::time::Duration;

/// An administrator's session.
pub(super) struct Session {
    client: Client,
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
        if frame.protocol()? != Protocol::Admin {
            return Err(not_spoken("an administrator", frame.protocol()?));
        }
        let request = frame.header.request;
        let answer = self.on_request(request, frame.message()?).await;
        log_unanswered(self.client.finish_reading(request, answer)?);
        Ok(())
    }

    async fn on_end(&mut self, _dubious: bool) {}
}

impl Session {
    pub(super) fn new(client: Client) -> Session {
        Session { client }
    }

    async fn on_request(&mut self, number: u64, request: Request) -> Result<Option<Reply>> {
        let node = self.client.node.clone();
        match request {
            Request::Status => Ok(Some(Reply::Status(node.status().to_string()))),
            Request::CreatePipeline { spec, patience_ms } => {
                self.create_pipeline(*spec, Duration::from_millis(patience_ms)).await.map(Some)
            }
            Request::DestroyPipeline { name } => {
                node.destroy_pipeline(&name)?;
                Ok(Some(Reply::Done))
            }
            Request::FindPipeline { name } => {
                let (stream, driven) = node.state.lock().pipelines.find(&name)?;
                Ok(Some(Reply::Pipeline { stream, driven }))
            }
            Request::Contracts { stream } => self.contracts(&stream).await.map(Some),
            Request::Subscriptions { skip } => {
                let (list, more) = node.state.lock().subscriptions.status(node.id, skip);
                Ok(Some(Reply::Subscriptions { list: list.to_string(), more }))
            }
            Request::LeaveGroup { discard, patience_ms } => {
                let patience = Duration::from_millis(patience_ms).min(PATIENCE_MAX);
                node.leave(discard, patience, self.client.left()).await?;
                // The server ends when this is answered.
                self.client.reply(number, Ok(Reply::Done))?;
                Ok(None)
            }
            Request::Heal { force } => {
                let Healed { kept, given_up } = node.heal(force).await?;
                Ok(Some(Reply::Healed { kept, given_up }))
            }
            Request::Shutdown => {
                node.shutdown.notify_one();
                Ok(Some(Reply::Done))
            }
        }
    }

    /// What is needed of a stream.
    async fn contracts(&mut self, stream: &str) -> Result<Reply> {
        check_name("stream", stream)?;
        if let Some(server) = self.client.find_elsewhere(stream).await? {
            return Ok(Reply::Redirect(server));
        }
        let state = self.client.node.state.lock();
        let known = state.coordination.get(stream);
        let known = known.ok_or_else(|| Error::not_found(format!("there is no stream '{stream}'")))?;
        Ok(Reply::Contracts(contracts::shown(stream, &known.matching()).to_string()))
    }

    /// Creates a pipeline, or leaves none: not if its workers take too long, nor if who asked has gone.
    async fn create_pipeline(&mut self, spec: PipelineSpec, patience: Duration) -> Result<Reply> {
        check_name("stream", &spec.stream)?;
        if let Some(server) = self.client.find_elsewhere(&spec.stream).await? {
            return Ok(Reply::Redirect(server));
        }
        let node = self.client.node.clone();
        let name = spec.name.clone();
        let (creation, created) = node.create_pipeline(spec)?;
        let error = tokio::select! {
            created = created => match created {
                Ok(result) => return result.map(|()| Reply::Done),
                Err(_) => {
                    return Err(Error::not_found(format!("pipeline '{name}' was destroyed before it was ready")));
                }
            },
            () = tokio::time::sleep(patience) => Error::timeout(format!(
                "the workers of pipeline '{name}' were not ready within {patience:?}, {}: does its code wait for \
                 something when it is imported or made? It may take longer with another timeout",
                node.state.lock().pipelines.awaited_workers(&name, creation)
            )),
            said = self.client.receiver.next() => match said {
                Ok(Some(_)) => Error::protocol("a message while a pipeline was being created"),
                Ok(None) => Error::unreachable(format!("it gave pipeline '{name}' up")),
                Err(error) => error,
            },
        };
        node.pipeline_given_up(&name, creation, &error);
        Err(error)
    }
}
