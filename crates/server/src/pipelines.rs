//! Pipelines, at the server that coordinates their stream: they are created, told of closed steps, and end.

mod driven;
mod execution;
mod history;
mod members;

use crate::node::{Node, State};
use crate::questions::Answer;
use crate::streams::attachments::Delivery;
use crate::workers::LocalWorker;
use driven::Driven;
use execution::WorkerGone;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber, check_name};
use forebay_core::steps::{Attachment, AttachmentId, Start, StepReport, Takes};
use forebay_core::{Error, Result};
use forebay_wire::drive::DRIVEN_WINDOW;
use forebay_wire::execution::{CommMember, OpenExecution, PipelineCounts, PipelineHistory, PipelineSpec};
use forebay_wire::peer::pipelines;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;
use tokio::sync::oneshot;

/// How many steps may wait inside a pipeline; more wait in the stream, under its policy.
const WINDOW: u32 = 1;

/// How many pipelines that have ended by themselves are remembered.
const ENDED_MAX: usize = 32;

/// All pipelines that a server has to do with.
#[derive(Debug, Default)]
pub(crate) struct Pipelines {
    /// Those that it coordinates.
    coordinated: BTreeMap<String, Pipeline>,
    /// Those of them that were ready and have ended by themselves, the latest last: for people to see why.
    ended: VecDeque<Ended>,
    /// The workers beside it.
    pub(crate) workers: BTreeMap<String, LocalWorker>,
}

/// A pipeline that could go on no longer.
#[derive(Debug)]
struct Ended {
    name: String,
    stream: String,
    error: String,
}

/// A pipeline, as its coordinator sees it.
#[derive(Debug)]
struct Pipeline {
    /// Tells it from earlier ones of the same name, whose workers may still be heard of.
    creation: u64,
    spec: PipelineSpec,
    /// The workers that are ready.
    ready: BTreeMap<ServerId, CommMember>,
    /// The servers that must have a worker.
    servers: BTreeSet<ServerId>,
    /// Those of them that leave the group: their workers go when they run nothing.
    leaving: BTreeSet<ServerId>,
    attachment: Option<AttachmentId>,
    waiting: VecDeque<Waiting>,
    running: Option<Execution>,
    /// Steps that were run, but of which workers still keep views.
    kept: BTreeMap<u64, Kept>,
    created: Option<oneshot::Sender<Result<()>>>,
    /// Whether servers with workers have told of it, since the one that coordinated it has died; what each of them knows.
    inherited: Option<BTreeMap<ServerId, PipelineHistory>>,
    /// An execution at the coordinator before, until it is known whether that was over: it is in no count yet.
    open: Option<OpenExecution>,
    /// The steps that ranks have activated, if they drive it.
    driven: Option<Driven>,
    counts: PipelineCounts,
    last_step: Option<(RunNumber, StepNumber)>,
    last_seconds: f64,
    last_error: Option<String>,
}

/// A step that is to be run.
#[derive(Debug)]
struct Waiting {
    report: StepReport,
    /// The how many-th time, if ranks ask for it; else 0.
    attempt: u32,
    /// Whether it was run before, and lost a worker.
    again: bool,
}

/// A step that was run and is still held.
#[derive(Debug)]
struct Kept {
    run: RunNumber,
    step: StepNumber,
    holders: BTreeSet<ServerId>,
}

#[derive(Debug)]
struct Execution {
    number: u64,
    run: RunNumber,
    step: StepNumber,
    attempt: u32,
    waiting_for: BTreeSet<ServerId>,
    /// Workers that show memory of the step.
    holders: BTreeSet<ServerId>,
    /// The step, as long as it may be run again if this loses a worker.
    report: Option<StepReport>,
    /// Whether it lost a worker with its server.
    lost_worker: bool,
    /// What went wrong, and at which workers' servers.
    errors: Vec<(String, Vec<ServerId>)>,
    started: Instant,
}

/// What went wrong at which servers, once for all that say the same.
fn told(errors: &[(String, Vec<ServerId>)]) -> String {
    let line = |(error, servers): &(String, Vec<ServerId>)| {
        let servers: Vec<String> = servers.iter().map(ServerId::to_string).collect();
        format!("{}: {error}", servers.join(", "))
    };
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What names a pipeline among the attachments of its stream: the same wherever that is coordinated.
fn attachment_of(creation: u64) -> AttachmentId {
    AttachmentId(creation)
}

impl Pipeline {
    fn new(creation: u64, spec: PipelineSpec, servers: BTreeSet<ServerId>) -> Pipeline {
        Pipeline {
            creation,
            driven: spec.driven.then(Driven::default),
            spec,
            ready: BTreeMap::new(),
            servers,
            leaving: BTreeSet::new(),
            attachment: None,
            waiting: VecDeque::new(),
            running: None,
            kept: BTreeMap::new(),
            created: None,
            inherited: None,
            open: None,
            counts: PipelineCounts::default(),
            last_step: None,
            last_seconds: 0.0,
            last_error: None,
        }
    }

    /// The workers that are to run a step; `None` while one of them is not ready. Of a step that is driven, those that were
    /// there when it was activated and are still, or all if none is.
    fn members(&self, run: RunNumber, step: StepNumber) -> Option<Vec<CommMember>> {
        let fixed = self.driven.as_ref().and_then(|driven| driven.workers_of(run, step));
        let left = fixed.map(|(workers, alone)| {
            (workers.intersection(&self.servers).copied().collect::<BTreeSet<ServerId>>(), alone)
        });
        let servers = match &left {
            Some((left, alone)) if !left.is_empty() || *alone => left,
            _ => &self.servers,
        };
        let ready = servers.iter().map(|server| self.ready.get(server).cloned());
        ready.collect::<Option<Vec<_>>>().filter(|ready| !ready.is_empty())
    }

    /// Whether a step is still to be run, or held by a worker that ran it.
    fn uses(&self, run: RunNumber, step: StepNumber) -> bool {
        let waiting =
            self.waiting.iter().any(|waiting| (waiting.report.id.run, waiting.report.id.step) == (run, step));
        let running = self.running.as_ref().is_some_and(|running| (running.run, running.step) == (run, step));
        waiting || running || self.kept.values().any(|kept| (kept.run, kept.step) == (run, step))
    }
}

impl Pipelines {
    /// One of those that this server coordinates which runs a step.
    pub(crate) fn running(&self) -> Option<&String> {
        self.coordinated.iter().find(|(_, pipeline)| pipeline.running.is_some()).map(|(name, _)| name)
    }

    /// Another server coordinates a stream: it is told of the pipelines that this one was about to take over.
    pub(crate) fn yield_to_another(&mut self, stream: &str) {
        self.coordinated.retain(|_, pipeline| pipeline.spec.stream != stream || pipeline.inherited.is_none());
    }

    /// What `status` shows; `known`: whether anything of a step of a stream is held, or expected.
    pub(crate) fn status(&self, known: impl Fn(&str, RunNumber, StepNumber) -> bool) -> Value {
        let coordinated = self.coordinated.values().map(|p| {
            let (last_step, counts) = p.seen(|run, step| known(&p.spec.stream, run, step));
            json!({
                "name": p.spec.name,
                "stream": p.spec.stream,
                "code": p.spec.code,
                "driven": p.spec.driven,
                "active_steps": p.driven.as_ref().map(Driven::active),
                "ended": null,
                "workers_ready": p.ready.len(),
                "workers_expected": p.servers.len(),
                "running_step": p.running.as_ref().map(|e| e.step),
                "executed": counts.executed,
                "failed": counts.failed,
                "repeated": counts.repeated,
                "missed": counts.missed,
                "last_step": last_step.map(|(_, step)| step),
                "last_seconds": p.last_seconds,
                "last_error": p.last_error,
            })
        });
        let workers = self.workers.values().map(LocalWorker::status);
        let ended = self
            .ended
            .iter()
            .map(|ended| json!({ "name": ended.name, "stream": ended.stream, "ended": ended.error }));
        json!({
            "coordinated": coordinated.chain(ended).collect::<Vec<_>>(),
            "workers": workers.collect::<Vec<_>>(),
        })
    }
}

impl Node {
    /// Creates a pipeline: which one of that name it is, and who is told when every worker is ready, or why not.
    pub(crate) fn create_pipeline(&self, spec: PipelineSpec) -> Result<(u64, oneshot::Receiver<Result<()>>)> {
        check_name("pipeline", &spec.name)?;
        check_name("stream", &spec.stream)?;
        let mut state = self.state.lock();
        // A worker beside this server tells of pipelines that another one coordinates.
        if state.pipelines.coordinated.contains_key(&spec.name)
            || state.pipelines.workers.contains_key(&spec.name)
        {
            return Err(Error::conflict(format!(
                "there is a pipeline '{}' already: destroy it first, or choose another name",
                spec.name
            )));
        }
        state.pipelines.ended.retain(|ended| ended.name != spec.name);
        let (created, wait) = oneshot::channel();
        let standing = self.standing();
        let servers: BTreeSet<ServerId> = standing
            .view
            .members
            .iter()
            .copied()
            .filter(|id| state.common.members.stays(*id, self.id))
            .collect();
        let creation = self.unique();
        for server in &servers {
            let spec = spec.clone();
            self.tell(&mut state, *server, pipelines::Message::StartWorker { creation, spec });
        }
        let mut pipeline = Pipeline::new(creation, spec.clone(), servers);
        pipeline.created = Some(created);
        state.pipelines.coordinated.insert(spec.name, pipeline);
        self.drain(&mut state);
        Ok((creation, wait))
    }

    /// The servers for whose workers a pipeline waits, in words.
    pub(crate) fn awaited_workers(&self, name: &str, creation: u64) -> String {
        let state = self.state.lock();
        let Some(pipeline) = state.pipelines.coordinated.get(name).filter(|p| p.creation == creation) else {
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

    /// Nobody waits any more for a pipeline to be ready: it ends.
    pub(crate) fn pipeline_given_up(&self, name: &str, creation: u64, error: &Error) {
        let mut state = self.state.lock();
        if state.pipelines.coordinated.get(name).is_some_and(|pipeline| pipeline.creation == creation) {
            self.pipeline_failed(&mut state, name, error);
            self.drain(&mut state);
        }
    }

    /// Ends a pipeline and its workers.
    pub(crate) fn destroy_pipeline(&self, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        let ended = state.pipelines.ended.len();
        state.pipelines.ended.retain(|ended| ended.name != name);
        let Some(mut pipeline) = state.pipelines.coordinated.remove(name) else {
            if state.pipelines.ended.len() < ended {
                return Ok(());
            }
            let known: Vec<_> = state.pipelines.coordinated.keys().cloned().collect();
            return Err(Error::not_found(format!(
                "there is no pipeline '{name}'; there are {}",
                if known.is_empty() { "none".into() } else { known.join(", ") }
            )));
        };
        self.driven_ends(
            &mut state,
            &mut pipeline,
            &Error::not_found(format!("pipeline '{name}' was destroyed")),
        );
        for server in pipeline.servers {
            let stop =
                pipelines::Message::StopWorker { pipeline: name.to_owned(), creation: pipeline.creation };
            self.tell(&mut state, server, stop);
        }
        self.drain(&mut state);
        drop(state);
        if let Some(attachment) = pipeline.attachment {
            self.detach(attachment, Some(pipeline.spec.stream));
        }
        Ok(())
    }

    /// A message about pipelines.
    pub(crate) fn on_pipelines(&self, state: &mut State, from: ServerId, message: pipelines::Message) {
        match message {
            pipelines::Message::StartWorker { creation, spec } => {
                self.start_worker(state, from, creation, spec)
            }
            pipelines::Message::StopWorker { pipeline, creation } => {
                self.stop_worker(state, &pipeline, creation)
            }
            pipelines::Message::WorkerReady { pipeline, creation, member, needs }
                if member.server == from =>
            {
                let wanted = state.common.members.stays(from, self.id);
                let found = state.pipelines.coordinated.get_mut(&pipeline);
                if let Some(found) = found.filter(|found| wanted && found.creation == creation) {
                    // One that has just joined takes part now that it can.
                    found.servers.insert(member.server);
                    found.ready.insert(member.server, member);
                    if found.spec.needs.is_none() {
                        found.spec.needs = needs;
                    }
                    if found.attachment.is_some() {
                        let history = found.history();
                        let was =
                            pipelines::Message::History { pipeline: pipeline.clone(), creation, history };
                        self.tell(state, from, was);
                    }
                    let Some(found) = state.pipelines.coordinated.get(&pipeline) else { return };
                    if found.ready.len() == found.servers.len() {
                        self.pipeline_ready(state, &pipeline);
                    } else {
                        // What is to be run may not need all.
                        self.pipeline_next(state, &pipeline);
                    }
                }
            }
            pipelines::Message::WorkerGone { pipeline, creation, error } => {
                let found = state.pipelines.coordinated.get(&pipeline);
                if found.is_some_and(|found| found.creation == creation) {
                    self.pipeline_worker_gone(state, &pipeline, from, WorkerGone::Failed(&error));
                }
            }
            pipelines::Message::WorkerLeaves { pipeline, creation } => {
                let found = state.pipelines.coordinated.get_mut(&pipeline);
                if let Some(found) = found.filter(|found| found.creation == creation) {
                    found.leaving.insert(from);
                    self.let_workers_leave(state, &pipeline);
                }
            }
            pipelines::Message::Execute { pipeline, order } => {
                self.order_worker(state, from, &pipeline, order)
            }
            pipelines::Message::Released { pipeline, execution } => {
                self.pipeline_released(state, &pipeline, from, Some(execution));
            }
            pipelines::Message::Executed { pipeline, execution, error, seconds } => {
                self.pipeline_executed(state, &pipeline, from, execution, error, seconds);
            }
            pipelines::Message::History { pipeline, creation, history } => {
                self.pipeline_was(state, (&pipeline, creation), history);
            }
            pipelines::Message::TakeOverPipeline { epoch, creation, spec, member, history } => {
                self.inherit_pipeline(state, (from, epoch), (creation, spec), member, history);
            }
            pipelines::Message::Drive { token, drive } => self.handle_drive(state, from, token, drive),
            pipelines::Message::Driven { token, result } => {
                state.common.questions.answer(token, Answer::Driven(result));
            }
            pipelines::Message::Redirect { token, server } => {
                state.common.questions.answer(token, Answer::Redirect(server));
            }
            // Of another server's worker than the sender's.
            pipelines::Message::WorkerReady { .. } => {}
        }
    }

    /// All workers are ready, for the first time or again.
    fn pipeline_ready(&self, state: &mut State, name: &str) {
        if let Err(error) = self.attach_pipeline(state, name) {
            return self.pipeline_failed(state, name, &error);
        }
        if let Some(created) = state.pipelines.coordinated.get_mut(name).and_then(|p| p.created.take()) {
            let _ = created.send(Ok(()));
        }
        self.pipeline_next(state, name);
    }

    /// A pipeline is told of its stream's steps from now on, or from the one after the last that all have run.
    fn attach_pipeline(&self, state: &mut State, name: &str) -> Result<()> {
        let Some(pipeline) = state.pipelines.coordinated.get(name) else { return Ok(()) };
        // While it is inherited others may know more of it.
        if pipeline.attachment.is_some() || (pipeline.inherited.is_some() && !self.all_told(state)) {
            return Ok(());
        }
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return Ok(()) };
        if let Some(told) = pipeline.inherited.take() {
            let history = history::merged(&told);
            (pipeline.last_step, pipeline.counts, pipeline.open) =
                (history.done, history.counts, history.open);
        }
        let open = pipeline.open.as_ref().map(|open| (open.run, open.step));
        let (stream, id) = (pipeline.spec.stream.clone(), attachment_of(pipeline.creation));
        let coordinator = state.coordination.get(&stream);
        // It may have found no room since: then it is past, and is to be counted once.
        let dropped = |(run, step)| coordinator.is_some_and(|stream| stream.has_dropped(id, run, step));
        let start = match (open, pipeline.last_step) {
            // Whatever was activated at the coordinator before, whether it was run or not.
            _ if pipeline.driven.as_mut().is_some_and(Driven::takes_over) => Start::Oldest,
            (Some((run, step)), _) if dropped((run, step)) => Start::From(run, step.saturating_add(1)),
            // It is run again if it is still there.
            (Some((run, step)), _) => Start::From(run, step),
            (None, Some((run, step))) => Start::From(run, step.saturating_add(1)),
            (None, None) => Start::Next,
        };
        let needs = pipeline.spec.needs.clone().unwrap_or(Needs::All { every: 1 });
        pipeline.attachment = Some(id);
        let (window, takes) = match pipeline.spec.driven {
            true => (DRIVEN_WINDOW as u32, Takes::All),
            false => (WINDOW, Takes::Whole),
        };
        let mut attachment = Attachment::new(needs, self.id, window);
        attachment.takes = takes;
        // Steps go on to workers, which come and go.
        attachment.remembers_attrs = false;
        attachment.follow = true;
        state.attachments.add(id, Delivery::Pipeline { name: name.to_owned() });
        let effects = self.coordinator(state, &stream).attach(id, attachment, start)?;
        self.apply(state, &stream, effects);
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return Ok(()) };
        pipeline.driven.iter_mut().for_each(Driven::has_taken_over);
        Ok(())
    }

    /// The pipeline cannot be, or can no longer be.
    pub(crate) fn pipeline_failed(&self, state: &mut State, name: &str, error: &Error) {
        let Some(mut pipeline) = state.pipelines.coordinated.remove(name) else { return };
        match pipeline.created.take() {
            Some(created) => drop(created.send(Err(error.clone()))),
            // Nobody waits for it: who looks for it later is to find why it is not there.
            None => {
                let (stream, error) = (pipeline.spec.stream.clone(), error.to_string());
                let ended = &mut state.pipelines.ended;
                ended.push_back(Ended { name: name.to_owned(), stream, error });
                if ended.len() > ENDED_MAX {
                    ended.pop_front();
                }
            }
        }
        tracing::warn!("pipeline '{name}' ends: {error}");
        self.driven_ends(state, &mut pipeline, error);
        if let Some(attachment) = pipeline.attachment {
            state.attachments.remove(attachment);
            let effects = self.coordinator(state, &pipeline.spec.stream).detach(attachment);
            self.apply(state, &pipeline.spec.stream, effects);
        }
        for server in pipeline.servers {
            let stop =
                pipelines::Message::StopWorker { pipeline: name.to_owned(), creation: pipeline.creation };
            self.tell(state, server, stop);
        }
    }
}
