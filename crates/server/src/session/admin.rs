//! What an administrator's connection does.

use super::{PATIENCE_MAX, Session, left};
use forebay_core::ids::check_name;
use forebay_core::{Error, Result};
use forebay_wire::message::{PipelineSpec, ToClient, ToServer};
use std::time::Duration;

impl Session {
    pub(super) async fn admin(&mut self, message: ToServer) -> Result<Option<ToClient>> {
        match message {
            ToServer::Status => Ok(Some(ToClient::Status(self.node.status().to_string()))),
            ToServer::CreatePipeline { spec, patience_ms } => {
                self.create_pipeline(spec, Duration::from_millis(patience_ms)).await.map(Some)
            }
            ToServer::DestroyPipeline { name } => {
                self.node.destroy_pipeline(&name)?;
                Ok(Some(ToClient::Done))
            }
            _ => {
                self.node.shutdown.notify_one();
                Ok(Some(ToClient::Done))
            }
        }
    }

    /// The server leaves its group. It ends when this is answered.
    pub(super) async fn leave_group(
        &mut self,
        request: u64,
        discard: bool,
        patience: Duration,
    ) -> Result<Option<ToClient>> {
        let given_up = left(&self.receiver, self.process.as_deref());
        self.node.leave(discard, patience.min(PATIENCE_MAX), given_up).await?;
        self.reply(request, ToClient::Done)?;
        Ok(None)
    }

    /// Creates a pipeline, or leaves none: not if its workers take too long, nor if who asked has gone.
    async fn create_pipeline(&mut self, spec: PipelineSpec, patience: Duration) -> Result<ToClient> {
        check_name("stream", &spec.stream)?;
        if let Some(server) = self.find_elsewhere(&spec.stream).await? {
            return Ok(ToClient::AskInstead(server));
        }
        let name = spec.name.clone();
        let (creation, created) = self.node.create_pipeline(spec)?;
        let error = tokio::select! {
            created = created => match created {
                Ok(result) => return result.map(|()| ToClient::Done),
                Err(_) => {
                    return Err(Error::not_found(format!("pipeline '{name}' was destroyed before it was ready")));
                }
            },
            () = tokio::time::sleep(patience) => Error::timeout(format!(
                "the workers of pipeline '{name}' were not ready within {patience:?}, {}: does its code wait for \
                 something when it is imported or made? It may take longer with another timeout",
                self.node.awaited_workers(&name, creation)
            )),
            said = self.receiver.next() => match said {
                Ok(Some(_)) => Error::protocol("a message while a pipeline was being created"),
                Ok(None) => Error::unreachable(format!("it gave pipeline '{name}' up")),
                Err(error) => error,
            },
        };
        self.node.pipeline_given_up(&name, creation, &error);
        Err(error)
    }
}
