//! What is needed of a stream.

use crate::admin::handle::Admin;
use crate::admin::status::told::StreamContracts;
use crate::connection::coordinator::CoordinatorAnswer;
use crate::connection::rpc::{Rpc, unexpected};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::admin::{Reply, Request};
use forebay_wire::connection::Role;
use std::time::{Duration, Instant};

impl Admin {
    /// What a stream's latest run offers, and what of it each reader and pipeline needs: which steps, which part, how many
    /// bytes. `docs/status.md` describes the members. `NotFound` if no server knows the stream. Waits for the server that
    /// coordinates it.
    pub fn contracts(&self, stream: &str) -> Result<StreamContracts> {
        let _ = self.group.refresh();
        let question = Request::Contracts { stream: stream.to_owned() };
        let ask = |rpc: &Rpc, left: Duration| match rpc
            .call_within(&question, None, left, "to tell the contracts of a stream")?
            .message
        {
            Reply::Redirect(server) => Ok(CoordinatorAnswer::Redirect(server)),
            Reply::Contracts(text) => Ok(CoordinatorAnswer::Answer(text)),
            other => Err(unexpected(&other)),
        };
        let deadline = Instant::now() + self.group.limit();
        match self.group.at_coordinator(stream, &Role::Admin, deadline, ask) {
            Ok((_, _, text)) => serde_json::from_str(&text)
                .map_err(|error| Error::protocol(format!("the contracts cannot be read: {error}"))),
            Err(error) if error.kind == ErrorKind::NotFound => Err(self.no_stream(stream)),
            Err(error) => Err(error),
        }
    }

    /// The error for a stream that no server knows.
    fn no_stream(&self, name: &str) -> Error {
        let known = self.status().unwrap_or_default();
        let known: Vec<&str> = known.streams.iter().map(|one| &one.name[..]).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::not_found(format!("there is no stream '{name}'; there are: {known}"))
    }
}

impl StreamContracts {
    /// As programs in all languages get it.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}
