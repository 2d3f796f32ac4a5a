//! Pipelines, at the server that coordinates their stream: one execution at a time, on closed steps, on all
//! servers whose workers are ready.

use crate::handle::worker_gone;
use crate::node::{Attached, Node, State};
use crate::workers::LocalWorker;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber, check_name};
use forebay_core::steps::{Attachment, AttachmentId, Start, StepReport};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::frame::{BODY_MAX, encoded_bytes};
use forebay_wire::message::{CommMember, Execute, PipelineCounts, PipelineSpec};
use forebay_wire::peer::PeerMessage;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;
use tokio::sync::oneshot;

/// How many steps may wait inside a pipeline; more wait in the stream, under its policy.
const WINDOW: u32 = 1;

/// How much there may be to tell of a step, encoded: it goes to every worker in one message, with the members.
const REPORT_MAX: usize = BODY_MAX - (1 << 20);

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
    /// Whether servers with workers have told of it, since the one that coordinated it has died; what each of their workers
    /// has run last.
    inherited: Option<BTreeMap<ServerId, Option<(RunNumber, StepNumber)>>>,
    counts: PipelineCounts,
    last_step: Option<(RunNumber, StepNumber)>,
    last_seconds: f64,
    last_error: Option<String>,
}

/// A step that is to be run.
#[derive(Debug)]
struct Waiting {
    report: StepReport,
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
            counts: PipelineCounts::default(),
            last_step: None,
            last_seconds: 0.0,
            last_error: None,
        }
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

    /// What `status` shows.
    pub(crate) fn status(&self) -> Value {
        let coordinated = self.coordinated.values().map(|p| {
            json!({
                "name": p.spec.name,
                "stream": p.spec.stream,
                "code": p.spec.code,
                "ended": null,
                "workers_ready": p.ready.len(),
                "workers_expected": p.servers.len(),
                "running_step": p.running.as_ref().map(|e| e.step),
                "executed": p.counts.executed,
                "failed": p.counts.failed,
                "repeated": p.counts.repeated,
                "missed": p.counts.missed,
                "last_step": p.last_step.map(|(_, step)| step),
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

impl State {
    /// Whether pipelines may have workers on a server: it is there, and does not leave.
    fn may_have_workers(&self, server: ServerId, this: ServerId) -> bool {
        let leaves =
            if server == this { self.leaving.this_one() } else { self.leaving.others.contains(&server) };
        !leaves && !self.gone.contains(&server)
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
        let servers: BTreeSet<ServerId> =
            standing.view.members.iter().copied().filter(|id| state.may_have_workers(*id, self.id)).collect();
        let creation = self.unique();
        for server in &servers {
            let spec = spec.clone();
            self.tell(&mut state, *server, PeerMessage::StartPipeline { creation, spec });
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
        let Some(pipeline) = state.pipelines.coordinated.remove(name) else {
            if state.pipelines.ended.len() < ended {
                return Ok(());
            }
            let known: Vec<_> = state.pipelines.coordinated.keys().cloned().collect();
            return Err(Error::not_found(format!(
                "there is no pipeline '{name}'; there are {}",
                if known.is_empty() { "none".into() } else { known.join(", ") }
            )));
        };
        for server in pipeline.servers {
            let stop = PeerMessage::StopPipeline { name: name.to_owned(), creation: pipeline.creation };
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
    pub(crate) fn handle_pipeline(&self, state: &mut State, from: ServerId, message: PeerMessage) {
        match message {
            PeerMessage::StartPipeline { creation, spec } => self.start_worker(state, from, creation, spec),
            PeerMessage::StopPipeline { name, creation } => self.stop_worker(state, &name, creation),
            PeerMessage::WorkerReady { pipeline, creation, member, needs } if member.server == from => {
                let wanted = state.may_have_workers(from, self.id);
                let found = state.pipelines.coordinated.get_mut(&pipeline);
                if let Some(found) = found.filter(|found| wanted && found.creation == creation) {
                    // One that has just joined takes part now that it can.
                    found.servers.insert(member.server);
                    found.ready.insert(member.server, member);
                    if found.spec.needs.is_none() {
                        found.spec.needs = needs;
                    }
                    if found.ready.len() == found.servers.len() {
                        self.pipeline_ready(state, &pipeline);
                    }
                }
            }
            PeerMessage::WorkerGone { pipeline, creation, error } => {
                let found = state.pipelines.coordinated.get(&pipeline);
                if found.is_some_and(|found| found.creation == creation) {
                    self.pipeline_worker_gone(state, &pipeline, from, &error);
                }
            }
            PeerMessage::WorkerLeaves { pipeline, creation } => {
                let found = state.pipelines.coordinated.get_mut(&pipeline);
                if let Some(found) = found.filter(|found| found.creation == creation) {
                    found.leaving.insert(from);
                    self.let_workers_leave(state, &pipeline);
                }
            }
            PeerMessage::Execute { pipeline, order } => self.order_worker(state, from, &pipeline, order),
            PeerMessage::Released { pipeline, execution } => {
                self.pipeline_released(state, &pipeline, from, Some(execution));
            }
            PeerMessage::Executed { pipeline, execution, error, seconds } => {
                self.pipeline_executed(state, &pipeline, from, execution, error, seconds);
            }
            PeerMessage::PipelinePauses { pipeline, creation, done, counts } => {
                self.pipeline_pauses(state, (&pipeline, creation), done, counts);
            }
            PeerMessage::InheritPipeline { creation, spec, member, done, counts } => {
                self.inherit_pipeline(state, from, (creation, spec), member, (done, counts));
            }
            _ => {}
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
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return Ok(()) };
        if pipeline.attachment.is_some() {
            return Ok(());
        }
        // A step that not all have run is run again.
        let done = pipeline.inherited.take().into_iter().flat_map(BTreeMap::into_values).flatten().min();
        let start = done.map_or(Start::Next, |(run, step)| Start::From(run, step.saturating_add(1)));
        let needs = pipeline.spec.needs.clone().unwrap_or(Needs::All { every: 1 });
        let stream = pipeline.spec.stream.clone();
        let id = attachment_of(pipeline.creation);
        pipeline.attachment = Some(id);
        let mut attachment = Attachment::new(needs, self.id, WINDOW);
        attachment.takes_torn = false;
        // Steps go on to workers, which come and go.
        attachment.remembers_attrs = false;
        attachment.follow = true;
        state.attachments.insert(id, Attached::Pipeline { name: name.to_owned() });
        let effects = self.coordinator(state, &stream).attach(id, attachment, start)?;
        self.apply(state, &stream, effects);
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
        if let Some(attachment) = pipeline.attachment {
            state.attachments.remove(&attachment);
            let effects = self.coordinator(state, &pipeline.spec.stream).detach(attachment);
            self.apply(state, &pipeline.spec.stream, effects);
        }
        for server in pipeline.servers {
            let stop = PeerMessage::StopPipeline { name: name.to_owned(), creation: pipeline.creation };
            self.tell(state, server, stop);
        }
    }

    /// A closed step for a pipeline.
    pub(crate) fn pipeline_step(&self, state: &mut State, name: &str, report: StepReport) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        pipeline.counts.missed = pipeline.counts.missed.saturating_add(report.missed);
        let bytes = encoded_bytes(&report).unwrap_or(usize::MAX);
        if bytes > REPORT_MAX {
            // It cannot be told to a worker: counted as failed, and nobody waits for it.
            pipeline.counts.ran(true);
            pipeline.last_error = Some(format!(
                "{}: what there is to tell of its blocks takes {bytes} bytes, more than the limit of \
                 {REPORT_MAX}: put fewer blocks a step, or larger ones",
                report.id
            ));
            let (attachment, stream) = (pipeline.attachment, pipeline.spec.stream.clone());
            if let Some(attachment) = attachment {
                let effects = self.coordinator(state, &stream).release(
                    attachment,
                    report.id.run,
                    report.id.step,
                    false,
                );
                self.apply(state, &stream, effects);
            }
            return;
        }
        pipeline.waiting.push_back(Waiting { report, again: false });
        self.pipeline_next(state, name);
    }

    /// Runs the next step, if all workers are ready and none runs.
    fn pipeline_next(&self, state: &mut State, name: &str) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        if pipeline.running.is_some() || pipeline.ready.len() < pipeline.servers.len() {
            return;
        }
        if pipeline.servers.is_empty() || state.leaving.pauses() {
            return;
        }
        let Some(Waiting { report, again }) = pipeline.waiting.pop_front() else { return };
        pipeline.counts.last = pipeline.counts.last.saturating_add(1);
        let (number, counts) = (pipeline.counts.last, pipeline.counts);
        let members: Vec<CommMember> = pipeline.ready.values().cloned().collect();
        let view = &self.standing().view;
        let has_worker = |id: &ServerId| pipeline.ready.contains_key(id);
        let beside_all = state.answers.is_empty() && view.members.iter().all(has_worker);
        pipeline.running = Some(Execution {
            number,
            run: report.id.run,
            step: report.id.step,
            waiting_for: pipeline.servers.clone(),
            holders: pipeline.servers.clone(),
            report: (!again).then(|| report.clone()),
            lost_worker: false,
            errors: Vec::new(),
            started: Instant::now(),
        });
        for (rank, member) in members.iter().enumerate() {
            let order = Execute {
                execution: number,
                counts,
                members: members.clone(),
                rank: rank as u32,
                beside_all,
                report: report.clone(),
            };
            let message = PeerMessage::Execute { pipeline: name.to_owned(), order: Box::new(order) };
            self.tell(state, member.server, message);
        }
    }

    fn pipeline_executed(
        &self,
        state: &mut State,
        name: &str,
        from: ServerId,
        execution: u64,
        error: Option<String>,
        seconds: f64,
    ) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        let Some(running) = pipeline.running.as_mut().filter(|running| running.number == execution) else {
            return;
        };
        running.waiting_for.remove(&from);
        if let Some(error) = error {
            match running.errors.iter_mut().find(|(known, _)| *known == error) {
                Some((_, servers)) => servers.push(from),
                None => running.errors.push((error, vec![from])),
            }
        }
        pipeline.last_seconds =
            seconds.max(if running.waiting_for.is_empty() { 0.0 } else { pipeline.last_seconds });
        if !running.waiting_for.is_empty() {
            return;
        }
        let Some(mut done) = pipeline.running.take() else { return };
        // Before the next step is begun: there may always be one that waits.
        done.holders.retain(|server| !pipeline.leaving.contains(server));
        self.let_workers_leave(state, name);
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        if done.lost_worker
            && let Some(report) = done.report
        {
            pipeline.counts.repeated = pipeline.counts.repeated.saturating_add(1);
            pipeline.last_error = Some(format!("step {}, run again: {}", done.step, told(&done.errors)));
            if !done.holders.is_empty() {
                let kept = Kept { run: done.run, step: done.step, holders: done.holders };
                pipeline.kept.insert(done.number, kept);
            }
            pipeline.waiting.push_front(Waiting { report, again: true });
            return self.pipeline_next(state, name);
        }
        pipeline.last_step = Some((done.run, done.step));
        pipeline.last_seconds = done.started.elapsed().as_secs_f64();
        pipeline.counts.ran(!done.errors.is_empty());
        if !done.errors.is_empty() {
            let mut text = format!("step {}: {}", done.step, told(&done.errors));
            text.truncate(text.floor_char_boundary(64 << 10));
            pipeline.last_error = Some(text);
        }
        let (attachment, stream) = (pipeline.attachment, pipeline.spec.stream.clone());
        if !done.holders.is_empty() {
            let kept = Kept { run: done.run, step: done.step, holders: done.holders };
            pipeline.kept.insert(done.number, kept);
        }
        let pinned = pipeline.uses(done.run, done.step);
        if let Some(attachment) = attachment {
            let effects = self.coordinator(state, &stream).release(attachment, done.run, done.step, pinned);
            self.apply(state, &stream, effects);
        }
        self.pipeline_next(state, name);
    }

    /// Workers whose servers leave take part in nothing more, unless they still run a step.
    fn let_workers_leave(&self, state: &mut State, name: &str) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        if pipeline.running.is_some() {
            return;
        }
        for server in std::mem::take(&mut pipeline.leaving) {
            self.pipeline_released(state, name, server, None);
            let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
            pipeline.servers.remove(&server);
            pipeline.ready.remove(&server);
            let stop = PeerMessage::StopPipeline { name: name.to_owned(), creation: pipeline.creation };
            self.tell(state, server, stop);
        }
        let pipeline = state.pipelines.coordinated.get(name);
        if pipeline.is_some_and(|pipeline| pipeline.ready.len() == pipeline.servers.len()) {
            self.pipeline_ready(state, name);
        }
    }

    /// This server leaves: tells who has workers of pipelines that it coordinates, of which none runs, what was run.
    pub(crate) fn pipelines_pause(&self, state: &mut State) {
        let pipelines = state.pipelines.coordinated.iter();
        let told: Vec<(ServerId, PeerMessage)> = pipelines
            .flat_map(|(name, pipeline)| {
                let (creation, done, counts) = (pipeline.creation, pipeline.last_step, pipeline.counts);
                let pauses = PeerMessage::PipelinePauses { pipeline: name.clone(), creation, done, counts };
                pipeline.servers.iter().map(move |server| (*server, pauses.clone()))
            })
            .collect();
        for (server, pauses) in told {
            self.tell(state, server, pauses);
        }
    }

    /// A server does not leave after all, maybe this one: pipelines go on, with a worker there.
    pub(crate) fn pipelines_stay(&self, state: &mut State, server: ServerId) {
        let mut without = Vec::new();
        for pipeline in state.pipelines.coordinated.values_mut() {
            pipeline.leaving.remove(&server);
            if pipeline.created.is_none() && !pipeline.servers.contains(&server) {
                without.push((pipeline.creation, pipeline.spec.clone()));
            }
        }
        for (creation, spec) in without {
            self.tell(state, server, PeerMessage::StartPipeline { creation, spec });
        }
        let names: Vec<String> = state.pipelines.coordinated.keys().cloned().collect();
        names.iter().for_each(|name| self.pipeline_next(state, name));
    }

    /// A worker shows no memory of an execution's step any more; of none, if it is gone.
    fn pipeline_released(&self, state: &mut State, name: &str, from: ServerId, execution: Option<u64>) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        let meant = |number: u64| execution.is_none_or(|execution| execution == number);
        if let Some(running) = pipeline.running.as_mut().filter(|running| meant(running.number)) {
            running.holders.remove(&from);
        }
        let mut free = Vec::new();
        pipeline.kept.retain(|number, kept| {
            if meant(*number) {
                kept.holders.remove(&from);
            }
            if kept.holders.is_empty() {
                free.push((kept.run, kept.step));
            }
            !kept.holders.is_empty()
        });
        free.retain(|(run, step)| !pipeline.uses(*run, *step));
        let (attachment, stream) = (pipeline.attachment, pipeline.spec.stream.clone());
        if let Some(attachment) = attachment {
            for (run, step) in free {
                let effects = self.coordinator(state, &stream).release(attachment, run, step, false);
                self.apply(state, &stream, effects);
            }
        }
    }

    fn pipeline_worker_gone(&self, state: &mut State, name: &str, from: ServerId, error: &str) {
        self.pipeline_released(state, name, from, None);
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        pipeline.ready.remove(&from);
        pipeline.last_error = Some(worker_gone(name, from, error).text);
        if pipeline.created.is_some() {
            // It never was ready: most likely its code is wrong, and starting it again will not help.
            let failure = Error::new(ErrorKind::PipelineFailed, worker_gone(name, from, error).text);
            return self.pipeline_failed(state, name, &failure);
        }
        let running = pipeline.running.as_ref().filter(|running| running.waiting_for.contains(&from));
        if let Some(execution) = running.map(|running| running.number) {
            let text = worker_gone(name, from, error).text;
            self.pipeline_executed(state, name, from, execution, Some(text), 0.0);
        }
    }

    /// A server died: its worker did too, and pipelines go on without it.
    pub(crate) fn pipelines_peer_gone(&self, state: &mut State, peer: ServerId) {
        let names: Vec<String> = state.pipelines.coordinated.keys().cloned().collect();
        for name in names {
            // What it took part in is run again without it.
            let running = state.pipelines.coordinated.get_mut(&name).and_then(|p| p.running.as_mut());
            if let Some(running) = running.filter(|running| running.waiting_for.contains(&peer)) {
                running.lost_worker = true;
            }
            self.pipeline_worker_gone(state, &name, peer, "its server died");
            if let Some(pipeline) = state.pipelines.coordinated.get_mut(&name) {
                pipeline.servers.remove(&peer);
            }
            self.pipeline_next(state, &name);
        }
    }

    /// Servers have joined: pipelines get workers there, and use them once they are ready.
    pub(crate) fn pipelines_grow(&self, state: &mut State, came: &[ServerId]) {
        let coordinated = state.pipelines.coordinated.values().filter(|pipeline| pipeline.created.is_none());
        let known: Vec<(u64, PipelineSpec)> =
            coordinated.map(|pipeline| (pipeline.creation, pipeline.spec.clone())).collect();
        for (creation, spec) in known {
            for server in came {
                self.tell(state, *server, PeerMessage::StartPipeline { creation, spec: spec.clone() });
            }
        }
    }

    /// A server has a worker of a pipeline whose coordinator has died.
    fn inherit_pipeline(
        &self,
        state: &mut State,
        from: ServerId,
        (creation, spec): (u64, PipelineSpec),
        member: Option<CommMember>,
        (done, counts): (Option<(RunNumber, StepNumber)>, PipelineCounts),
    ) {
        let (name, needs) = (spec.name.clone(), spec.needs.clone());
        let pipeline = state.pipelines.coordinated.entry(name.clone()).or_insert_with(|| {
            let servers = BTreeSet::new();
            Pipeline { inherited: Some(BTreeMap::new()), ..Pipeline::new(creation, spec, servers) }
        });
        if pipeline.creation != creation {
            return;
        }
        if pipeline.attachment.is_some() {
            // It has gone on without this one, which takes part once it is ready.
            if let Some(member) = member {
                let ready = PeerMessage::WorkerReady { pipeline: name, creation, member, needs };
                self.handle_pipeline(state, from, ready);
            }
            return;
        }
        pipeline.servers.insert(from);
        pipeline.ready.extend(member.map(|member| (from, member)));
        pipeline.inherited.get_or_insert_default().insert(from, done);
        // An execution that not all have finished is run again.
        let finished = |counts: &PipelineCounts| Reverse(counts.executed.saturating_add(counts.failed));
        if (counts.last, finished(&counts)) > (pipeline.counts.last, finished(&pipeline.counts)) {
            pipeline.counts = counts;
        }
        if self.all_told(state) {
            self.settle_pipelines(state);
        }
    }

    /// All servers have told of the workers beside them: pipelines whose coordinator has died go on.
    pub(crate) fn settle_pipelines(&self, state: &mut State) {
        let told = state.pipelines.coordinated.iter().filter(|(_, pipeline)| pipeline.inherited.is_some());
        let told: Vec<String> = told.map(|(name, _)| name.clone()).collect();
        for name in told {
            let Some(pipeline) = state.pipelines.coordinated.get(&name) else { continue };
            let all_ready = pipeline.ready.len() == pipeline.servers.len();
            let (stream, id) = (&pipeline.spec.stream, attachment_of(pipeline.creation));
            // Steps wait for it even if a worker that has just joined, or died, is still to be ready.
            let was_attached = state.known_attachments.contains(stream, id) || !pipeline.ready.is_empty();
            if all_ready {
                self.pipeline_ready(state, &name);
            } else if was_attached && let Err(error) = self.attach_pipeline(state, &name) {
                self.pipeline_failed(state, &name, &error);
            }
        }
    }
}
