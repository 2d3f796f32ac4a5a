//! What an administrator's connection does.

use super::Session;
use forebay_core::{Error, Result};
use forebay_wire::message::{ToClient, ToServer};
use std::time::Duration;

/// How long a pipeline's workers may take to start: importing a rendering library takes seconds.
const START_PATIENCE: Duration = Duration::from_secs(120);

impl Session {
    pub(super) async fn admin(&mut self, message: ToServer) -> Result<Option<ToClient>> {
        match message {
            ToServer::Status => Ok(Some(ToClient::Status(self.node.status().to_string()))),
            ToServer::CreatePipeline(spec) => {
                let name = spec.name.clone();
                let created = self.node.create_pipeline(spec)?;
                match tokio::time::timeout(START_PATIENCE, created).await {
                    Ok(Ok(result)) => result.map(|()| Some(ToClient::Done)),
                    Ok(Err(_)) => {
                        Err(Error::not_found(format!("pipeline '{name}' was destroyed before it was ready")))
                    }
                    Err(_) => Err(Error::timeout(format!(
                        "the workers of pipeline '{name}' were not ready within {START_PATIENCE:?}; see `forebay status`"
                    ))),
                }
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
}
