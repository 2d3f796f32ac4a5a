//! Pipelines: user code that is run on steps, in worker processes beside the servers.
//!
//! [`Pipelines`] is the whole of it at one server: the pipelines that this server coordinates, and the workers beside it. It is
//! told of events and changes nobody else's state. What it needs of streams it gets through [`Streams`], and they tell it of
//! steps by [`StreamEvent`].
//!
//! - [`pipeline`]: one pipeline, as its coordinator sees it;
//! - [`execution`]: an execution from the order to its end;
//! - [`driven`]: pipelines that ranks drive;
//! - [`members`]: servers with workers join, leave and die;
//! - [`history`]: what was run at a coordinator that has died;
//! - [`local_workers`]: the workers beside this server, and [`worker_process`], the supervisor of their processes.

mod driven;
mod execution;
mod history;
mod local_workers;
mod members;
mod pipeline;
mod streams;
#[cfg(test)]
mod tests;
mod worker_process;

pub(crate) use execution::WorkerOutcome;
pub(crate) use local_workers::{LocalWorkers, WorkerStart};
pub(crate) use streams::{StreamEvent, Streams};
pub(crate) use worker_process::{WorkerHost, keep_alive};

use crate::context::Context;
use driven::Asker;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber, check_name};
use forebay_core::{Error, Result};
use forebay_wire::drive::Drive;
use forebay_wire::execution::{CommMember, PipelineHistory, PipelineSpec};
use members::WorkerLoss;
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
    ended: VecDeque<EndedPipeline>,
    /// The workers beside it.
    workers: LocalWorkers,
}

/// A pipeline that could go on no longer.
#[derive(Debug)]
struct EndedPipeline {
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

/// What streams and ranks tell.
impl Pipelines {
    /// A stream tells a pipeline of a step, or that there will be none.
    pub(crate) fn on_stream_event(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        event: StreamEvent,
    ) {
        match event {
            StreamEvent::Step { pipeline, report } => {
                if let Some(found) = self.coordinated.get_mut(&pipeline) {
                    found.on_step(cx, streams, *report);
                }
            }
            StreamEvent::Attached { pipeline } => {
                let found = self.coordinated.get_mut(&pipeline).and_then(|found| found.driven.as_mut());
                found.into_iter().for_each(driven::DrivenSteps::end_takeover);
            }
            StreamEvent::Failed { pipeline, error } => self.end(cx, streams, &pipeline, &error),
        }
    }

    /// A rank wants something of a pipeline that it drives; its home is answered when that is done.
    pub(crate) fn on_drive(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (from, token): (ServerId, u64),
        drive: &Drive,
    ) {
        let (name, stream) = (&drive.pipeline, &drive.stream);
        let is_settled = streams.have_all_told();
        let found = self.coordinated.get_mut(name);
        match found.filter(|found| is_settled || found.inherited.is_none()) {
            Some(pipeline) => pipeline.on_drive(cx, streams, drive, Asker { server: from, token }),
            None => {
                let error = match is_settled {
                    true => Error::not_found(format!("there is no pipeline '{name}' on stream '{stream}'")),
                    false => {
                        Error::unreachable(format!("not all servers have told of pipeline '{name}' yet"))
                    }
                };
                driven::tell_driven(cx, from, token, Err(error));
            }
        }
    }

    /// Ranks of a stream may have left, or time has passed: its pipelines that are driven go on; of all streams without one.
    pub(crate) fn on_ranks_changed(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        stream: Option<&str>,
    ) {
        for pipeline in self.coordinated.values_mut() {
            let is_meant = stream.is_none_or(|stream| pipeline.spec.stream == stream);
            if is_meant && pipeline.driven.is_some() {
                pipeline.advance_driven(cx, streams, true);
            }
        }
    }
}

/// What servers with workers tell.
impl Pipelines {
    /// A server's worker is ready.
    pub(crate) fn on_worker_ready(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (pipeline, creation): (&str, u64),
        member: CommMember,
        needs: Option<Needs>,
    ) {
        if cx.members().stays(member.server, cx.me()) {
            self.tell(cx, streams, (pipeline, creation), |found, cx, streams| {
                found.on_worker_ready(cx, streams, member, needs)
            });
        }
    }

    /// A server's worker has died, or could not start.
    pub(crate) fn on_worker_gone(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: (&str, u64),
        from: ServerId,
        error: &str,
    ) {
        self.tell(cx, streams, id, |found, cx, streams| {
            found.on_worker_gone(cx, streams, from, WorkerLoss::Failed(error))
        });
    }

    /// A server leaves the group, and its worker is to run nothing more.
    pub(crate) fn on_worker_leaves(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: (&str, u64),
        from: ServerId,
    ) {
        self.tell(cx, streams, id, |found, cx, streams| found.on_worker_leaves(cx, streams, from));
    }

    /// A worker has ended an execution.
    pub(crate) fn on_executed(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (pipeline, from): (&str, ServerId),
        outcome: WorkerOutcome,
    ) {
        if let Some(found) = self.coordinated.get_mut(pipeline) {
            found.on_executed(cx, streams, from, outcome);
        }
    }

    /// A worker shows no memory of an execution's step any more.
    pub(crate) fn on_released(
        &mut self,
        streams: &mut dyn Streams,
        (pipeline, from): (&str, ServerId),
        execution: u64,
    ) {
        if let Some(found) = self.coordinated.get_mut(pipeline) {
            found.on_released(streams, from, Some(execution));
        }
    }

    /// A server has a worker of a pipeline whose coordinator has died, which this server is now.
    pub(crate) fn on_take_over(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        from: ServerId,
        (creation, spec): (u64, PipelineSpec),
        (member, history): (Option<CommMember>, PipelineHistory),
    ) {
        let (name, needs) = (spec.name.clone(), spec.needs.clone());
        let pipeline = self.coordinated.entry(name.clone());
        let pipeline = pipeline.or_insert_with(|| Pipeline::inherited(creation, spec));
        if pipeline.creation != creation {
            return;
        }
        if pipeline.attachment.is_none() {
            pipeline.on_inherited(from, member, history);
            if streams.have_all_told() {
                self.settle(cx, streams);
            }
        } else if let Some(member) = member.filter(|member| member.server == from) {
            // It has gone on without this one, which takes part once it is ready.
            self.on_worker_ready(cx, streams, (&name, creation), member, needs);
        }
    }
}

/// What becomes of the group.
impl Pipelines {
    /// All servers have told of the workers beside them: pipelines whose coordinator has died go on.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) {
        let inherited = self.coordinated.values().filter(|pipeline| pipeline.inherited.is_some());
        let inherited: Vec<(String, u64)> =
            inherited.map(|pipeline| (pipeline.spec.name.clone(), pipeline.creation)).collect();
        for (name, creation) in inherited {
            self.tell(cx, streams, (&name, creation), Pipeline::settle);
        }
    }

    /// Another server coordinates a stream, and is told of the pipelines that this one was about to take over.
    pub(crate) fn yield_to_another(&mut self, stream: &str) {
        self.coordinated.retain(|_, pipeline| pipeline.spec.stream != stream || pipeline.inherited.is_none());
    }

    /// Servers have joined: pipelines get workers there, and use them once they are ready.
    pub(crate) fn on_servers_joined(&self, cx: &mut Context<'_>, joined: &[ServerId]) {
        for pipeline in self.coordinated.values().filter(|pipeline| pipeline.created.is_none()) {
            joined.iter().for_each(|server| pipeline.tell_to_start(cx, *server));
        }
    }

    /// A server died, and its workers did too: pipelines go on without them.
    pub(crate) fn on_peer_gone(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, peer: ServerId) {
        for (name, creation) in self.names() {
            self.tell(cx, streams, (&name, creation), |found, cx, streams| {
                found.on_peer_gone(cx, streams, peer)
            });
        }
    }

    /// A server does not leave after all, maybe this one: pipelines go on, with a worker there.
    pub(crate) fn on_server_stays(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        server: ServerId,
    ) {
        for pipeline in self.coordinated.values_mut() {
            pipeline.on_server_stays(cx, server);
            pipeline.on_members_changed(cx, streams);
        }
    }

    /// This server leaves: tells the servers with workers what was run of its pipelines, of which none runs.
    pub(crate) fn tell_histories(&self, cx: &mut Context<'_>) {
        for pipeline in self.coordinated.values() {
            pipeline.servers.iter().for_each(|server| pipeline.tell_history(cx, *server));
        }
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
                self.ended.push_back(EndedPipeline { name: name.to_owned(), stream, error });
                if self.ended.len() > ENDED_MAX {
                    self.ended.pop_front();
                }
            }
        }
        tracing::warn!("pipeline '{name}' ends: {error}");
        pipeline.end(cx, streams, error);
    }
}
