//! Pipelines: user code that is run on steps, in worker processes beside the servers.
//!
//! [`Pipelines`] is the whole of it at one server: the pipelines that this server coordinates, and the workers beside it. It is
//! told of events and changes nobody else's state. What it needs of streams it gets through [`Streams`], and they tell it of
//! steps by [`crate::streams::users::StreamEvent`].
//!
//! - [`events`]: what streams, ranks and servers tell;
//! - [`pipeline`]: one pipeline, as its coordinator sees it;
//! - [`execution`]: an execution from the order to its end;
//! - [`driven`]: pipelines that ranks drive;
//! - [`members`]: servers with workers join, leave and die;
//! - [`history`]: what was run at a coordinator that has died;
//! - [`local_workers`]: the workers beside this server, and [`worker_process`], the supervisor of their processes.

mod driven;
mod driven_steps;
mod events;
mod execute;
mod execution;
mod history;
mod local_worker;
mod local_workers;
mod members;
mod pipeline;
#[cfg(test)]
pub(crate) mod tests;
mod worker_process;

pub(crate) use execution::WorkerOutcome;
pub(crate) use local_workers::{LocalWorkers, WorkerStart};
pub(crate) use worker_process::{WorkerHost, keep_alive};

use crate::context::Context;
use crate::streams::users::Streams;
use forebay_core::ids::{RunNumber, ServerId, StepNumber, check_name};
use forebay_core::steps::AttachmentId;
use forebay_core::{Error, Result};
use forebay_wire::execution::PipelineSpec;
use pipeline::Pipeline;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio::sync::oneshot;

/// How many pipelines that have ended by themselves are remembered.
const ENDED_MAX: usize = 32;

/// All pipelines that a server has to do with.
#[derive(Debug, Default)]
pub(crate) struct Pipelines {
    /// Those that it coordinates, by name.
    coordinated: BTreeMap<String, Pipeline>,
    /// Those of them that were ready and have ended by themselves, the latest last: for people to see why.
    ended: VecDeque<FailedPipeline>,
    /// The workers beside it.
    workers: LocalWorkers,
}

/// A pipeline that could go on no longer.
#[derive(Debug)]
struct FailedPipeline {
    name: String,
    stream: String,
    error: String,
}

/// Where an administrator waits for a pipeline to be ready, and which one of its name it is.
pub(crate) type Creation = (u64, oneshot::Receiver<Result<()>>);

/// What administrators ask for.
impl Pipelines {
    /// Creates a pipeline. The administrator is told when every worker is ready, or why the pipeline cannot be.
    pub(crate) fn create(&mut self, cx: &mut Context<'_>, spec: PipelineSpec) -> Result<Creation> {
        check_name("pipeline", &spec.name)?;
        check_name("stream", &spec.stream)?;
        if spec.driven && spec.on.is_some() {
            return Err(Error::invalid(
                "a pipeline runs when ranks say so, or at the events of a subscription, not both",
            ));
        }
        // A worker beside this server tells of pipelines that another one coordinates.
        if self.coordinated.contains_key(&spec.name) || self.workers.spec(&spec.name).is_some() {
            return Err(Error::conflict(format!(
                "there is a pipeline '{}' already: destroy it first, or choose another name",
                spec.name
            )));
        }
        self.ended.retain(|ended| ended.name != spec.name);
        let standing = cx.server.standing();
        let members = standing.view.members.iter().copied();
        let servers: BTreeSet<ServerId> = members.filter(|id| cx.members().stays(*id, cx.me())).collect();
        let creation = cx.server.unique();
        let (created, wait) = oneshot::channel();
        let mut pipeline = Pipeline::new(creation, spec, servers);
        pipeline.created = Some(created);
        for server in &pipeline.servers {
            pipeline.tell_to_start(cx, *server);
        }
        self.coordinated.insert(pipeline.spec.name.clone(), pipeline);
        Ok((creation, wait))
    }

    /// The servers for whose workers a pipeline waits, in words.
    pub(crate) fn awaited_workers(&self, name: &str, creation: u64) -> String {
        let Some(pipeline) = self.coordinated.get(name).filter(|found| found.creation == creation) else {
            return "and it is gone".to_owned();
        };
        let missing = pipeline.servers.iter().filter(|server| !pipeline.ready.contains_key(server));
        let missing: Vec<String> = missing.take(4).map(ToString::to_string).collect();
        format!(
            "{} of {} are, missing is {}",
            pipeline.ready.len(),
            pipeline.servers.len(),
            missing.join(", ")
        )
    }

    /// The administrator waits no more for a pipeline to be ready: it ends.
    pub(crate) fn on_given_up(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (name, creation): (&str, u64),
        error: &Error,
    ) {
        if self.coordinated.get(name).is_some_and(|pipeline| pipeline.creation == creation) {
            self.end(cx, streams, name, error);
        }
    }

    /// Ends a pipeline and its workers.
    pub(crate) fn destroy(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        name: &str,
    ) -> Result<()> {
        let ended = self.ended.len();
        self.ended.retain(|ended| ended.name != name);
        let Some(pipeline) = self.coordinated.remove(name) else {
            if self.ended.len() < ended {
                return Ok(());
            }
            let known: Vec<_> = self.coordinated.keys().cloned().collect();
            return Err(Error::not_found(format!(
                "there is no pipeline '{name}'; there are {}",
                if known.is_empty() { "none".into() } else { known.join(", ") }
            )));
        };
        pipeline.end(cx, streams, &Error::not_found(format!("pipeline '{name}' was destroyed")));
        Ok(())
    }

    /// What is known of a pipeline, for a rank that is to drive it: its stream, and whether ranks drive it.
    pub(crate) fn find(&self, name: &str) -> Result<(String, bool)> {
        let coordinated = self.coordinated.get(name).map(|pipeline| &pipeline.spec);
        let spec = coordinated.or_else(|| self.workers.spec(name));
        let spec = spec.ok_or_else(|| Error::not_found(format!("there is no pipeline '{name}'")))?;
        Ok((spec.stream.clone(), spec.driven))
    }

    /// What `status` shows; `is_known`: whether anything of a step of a stream is held, or expected.
    pub(crate) fn status(&self, is_known: impl Fn(&str, RunNumber, StepNumber) -> bool) -> Value {
        let coordinated = self.coordinated.values();
        let coordinated = coordinated
            .map(|pipeline| pipeline.status(|run, step| is_known(&pipeline.spec.stream, run, step)));
        let ended = self.ended.iter();
        let ended =
            ended.map(|ended| json!({ "name": ended.name, "stream": ended.stream, "ended": ended.error }));
        json!({
            "coordinated": coordinated.chain(ended).collect::<Vec<_>>(),
            "workers": self.workers.status(),
        })
    }

    /// The attachments of pipelines that run at events of subscriptions: by stream and subscription.
    pub(crate) fn run_at_events(&self) -> impl Iterator<Item = (&str, &str, AttachmentId)> {
        self.coordinated.values().filter_map(|pipeline| {
            Some((&pipeline.spec.stream[..], &pipeline.spec.on.as_ref()?[..], pipeline.attachment_id()))
        })
    }

    /// A pipeline that this server coordinates and that is running on a step.
    pub(crate) fn running(&self) -> Option<&String> {
        self.coordinated.iter().find(|(_, pipeline)| pipeline.running.is_some()).map(|(name, _)| name)
    }

    /// The workers beside this server.
    pub(crate) fn workers(&self) -> &LocalWorkers {
        &self.workers
    }

    /// The workers beside this server, for what their coordinators and processes say.
    pub(crate) fn workers_mut(&mut self) -> &mut LocalWorkers {
        &mut self.workers
    }

    /// What must hold after each event.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> std::result::Result<(), String> {
        for (name, pipeline) in &self.coordinated {
            if *name != pipeline.spec.name {
                return Err(format!("pipeline '{}' stands under '{name}'", pipeline.spec.name));
            }
            pipeline.sanity_check().map_err(|error| format!("pipeline '{name}': {error}"))?;
        }
        if self.ended.len() > ENDED_MAX {
            return Err(format!("{} pipelines that have ended are remembered", self.ended.len()));
        }
        self.workers.sanity_check()
    }
}

impl Pipelines {
    /// The pipelines that this server coordinates.
    fn names(&self) -> Vec<(String, u64)> {
        self.coordinated.iter().map(|(name, pipeline)| (name.clone(), pipeline.creation)).collect()
    }

    /// Tells a pipeline of an event; it ends if it cannot go on. Nothing is told to another one of that name.
    fn tell(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (name, creation): (&str, u64),
        event: impl FnOnce(&mut Pipeline, &mut Context<'_>, &mut dyn Streams) -> Result<()>,
    ) {
        let found = self.coordinated.get_mut(name).filter(|found| found.creation == creation);
        if let Some(Err(error)) = found.map(|found| event(found, cx, streams)) {
            self.end(cx, streams, name, &error);
        }
    }

    /// A pipeline cannot be, or can no longer be.
    fn end(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, name: &str, error: &Error) {
        let Some(mut pipeline) = self.coordinated.remove(name) else { return };
        match pipeline.created.take() {
            Some(created) => drop(created.send(Err(error.clone()))),
            // Nobody waits for it: who looks for it later is to find why it is not there.
            None => {
                let (stream, error) = (pipeline.spec.stream.clone(), error.to_string());
                self.ended.push_back(FailedPipeline { name: name.to_owned(), stream, error });
                if self.ended.len() > ENDED_MAX {
                    self.ended.pop_front();
                }
            }
        }
        tracing::warn!("pipeline '{name}' ends: {error}");
        pipeline.end(cx, streams, error);
    }
}
