//! Creating, finding and ending pipelines.

use crate::admin::handle::Admin;
use crate::connection::coordinator::CoordinatorAnswer;
use crate::connection::rpc::{Rpc, unexpected};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::admin::{Reply, Request};
use forebay_wire::connection::Role;
use forebay_wire::execution::PipelineSpec;
use std::time::{Duration, Instant};

/// How long a pipeline's workers may take to start unless somebody says otherwise: importing a rendering
/// library takes seconds, and from a file system that many share, minutes.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// What a group knows of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPipeline {
    /// The stream that it runs on.
    pub stream: String,
    /// Whether ranks drive it, with a [`crate::PipelineHandle`].
    pub driven: bool,
}

impl Admin {
    /// Creates a pipeline; waits until a worker on every server is ready. There is no such pipeline after an
    /// error, and neither after this wait was given up: its server notices that nobody waits any more.
    pub fn create_pipeline(&self, spec: &PipelineSpec) -> Result<()> {
        let patience = self.group.options().timeout.unwrap_or(START_PATIENCE);
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let create = Request::CreatePipeline { spec: Box::new(spec.clone()), patience_ms };
        // The server knows more about what is missing: it gives up first, and says so.
        let patience = patience.saturating_add(Duration::from_secs(1));
        let what = "to start a pipeline's workers";
        // Workers may take longer to start than servers to be found.
        let ask = |rpc: &Rpc, _| match rpc.call_within(&create, None, patience, what)?.message {
            Reply::Redirect(server) => Ok(CoordinatorAnswer::Redirect(server)),
            _ => Ok(CoordinatorAnswer::Answer(())),
        };
        let deadline = Instant::now() + self.group.limit();
        self.group.at_coordinator(&spec.stream, &Role::Admin, deadline, ask).map(drop)
    }

    /// Finds a pipeline. Waits for the servers, with one deadline; for one only if that knows it.
    pub fn find_pipeline(&self, name: &str) -> Result<FoundPipeline> {
        let find = Request::FindPipeline { name: name.to_owned() };
        match self.ask_who_knows(name, &find, "to find a pipeline")? {
            Reply::Pipeline { stream, driven } => Ok(FoundPipeline { stream, driven }),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends a pipeline.
    pub fn destroy_pipeline(&self, name: &str) -> Result<()> {
        let destroy = Request::DestroyPipeline { name: name.to_owned() };
        self.ask_who_knows(name, &destroy, "to end a pipeline").map(drop)
    }

    /// The answer of a server that knows a pipeline.
    fn ask_who_knows(&self, name: &str, question: &Request, what: &str) -> Result<Reply> {
        let _ = self.group.refresh();
        let members = self.group.known().view.members.clone();
        let answers = self.group.ask_all(members, question, what, Result::is_ok)?;
        let mut last = Error::not_found(format!("the group has no pipeline '{name}'"));
        for told in answers.into_values() {
            match told {
                Ok(answer) => return Ok(answer),
                // A server that did not answer may be the one that knows the pipeline.
                Err(error) if last.kind == ErrorKind::NotFound || error.kind != ErrorKind::NotFound => {
                    last = error;
                }
                Err(_) => {}
            }
        }
        Err(match last.kind {
            ErrorKind::NotFound => self.no_pipeline(name),
            _ => last,
        })
    }

    /// The error for a pipeline that no server knows.
    fn no_pipeline(&self, name: &str) -> Error {
        let known = self.status().unwrap_or_default();
        let known: Vec<&str> = known.pipelines.iter().map(|one| &one.name[..]).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::not_found(format!("there is no pipeline '{name}'; there are {known}"))
    }
}
