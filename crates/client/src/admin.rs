//! Administration: status, pipelines, ending a group.

use crate::group::{Group, GroupOptions};
use crate::rpc::{Rpc, unexpected};
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_wire::message::{PipelineSpec, Role, ToClient, ToServer};
use serde_json::{Value, json};
use std::time::Duration;

/// Looks after a group.
#[derive(Debug)]
pub struct Admin {
    group: Group,
}

impl Admin {
    /// Finds the group. Connects at each call.
    pub fn open(options: &GroupOptions) -> Result<Admin> {
        Ok(Admin { group: Group::find(options)? })
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    fn connect(&self, server: ServerId) -> Result<Rpc> {
        self.group.connect(server, Role::Consumer)
    }

    /// The status of the group: what each server says of itself, or why it cannot be reached.
    pub fn status(&self) -> Result<Value> {
        let mut servers = Vec::new();
        for entry in &self.group.file().servers {
            let told = self.connect(entry.id).and_then(|rpc| {
                let answer = rpc.call(&ToServer::Status, "to tell its status")?;
                match answer.message {
                    ToClient::Status(text) => serde_json::from_str::<Value>(&text)
                        .map_err(|e| Error::protocol(format!("its status cannot be read: {e}"))),
                    other => Err(unexpected(&other)),
                }
            });
            servers.push(match told {
                Ok(status) => status,
                Err(error) => json!({ "server": entry.id.0, "pid": entry.pid, "error": error.to_string() }),
            });
        }
        let file = self.group.file();
        Ok(
            json!({ "lineage": file.lineage.to_string(), "epoch": file.epoch, "size": file.size, "servers": servers }),
        )
    }

    /// Creates a pipeline; waits until a worker on every server is ready.
    pub fn create_pipeline(&self, spec: &PipelineSpec) -> Result<()> {
        let rpc = self.connect(self.group.coordinator_of(&spec.stream)?)?;
        let patience = Duration::from_secs(150);
        let create = ToServer::CreatePipeline(spec.clone());
        rpc.call_within(&create, None, patience, "to start a pipeline's workers").map(drop)
    }

    /// Ends a pipeline.
    pub fn destroy_pipeline(&self, name: &str) -> Result<()> {
        let mut last = Error::not_found(format!("there is no pipeline '{name}'"));
        for server in &self.group.view().members {
            let told = self.connect(*server).and_then(|rpc| {
                rpc.call(&ToServer::DestroyPipeline { name: name.to_owned() }, "to end a pipeline").map(drop)
            });
            match told {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Ends every server of the group. Servers that are gone already count as ended.
    pub fn shutdown(&self) -> Result<()> {
        let mut result = Ok(());
        for server in self.group.view().members.iter().rev() {
            if let Ok(rpc) = self.connect(*server) {
                result = rpc.call(&ToServer::Shutdown, "to end").map(drop).and(result);
            }
        }
        result
    }
}
