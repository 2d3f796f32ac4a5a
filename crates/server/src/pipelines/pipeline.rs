//! One pipeline, as the server sees it that coordinates it.
//!
//! A function that fails has found that the pipeline cannot go on: whoever called it ends the pipeline with that error.

use super::driven_steps::DrivenSteps;
use super::execution::Execution;
use crate::context::Context;
use crate::streams::users::{StreamUser, Streams};
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::{Attachment, AttachmentId, Delivery, Start, StepReport};
use forebay_core::{Error, Result};
use forebay_wire::drive::DRIVEN_WINDOW;
use forebay_wire::execution::{CommMember, OpenExecution, PipelineCounts, PipelineHistory, PipelineSpec};
use forebay_wire::peer::pipelines::Message;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio::sync::oneshot;

/// How many steps may wait inside a pipeline; more wait in the stream, under its policy.
const WINDOW: u32 = 1;

/// A pipeline that this server coordinates.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// Tells it from earlier ones of the same name, whose workers may still be heard of.
    pub(super) creation: u64,
    pub(super) spec: PipelineSpec,
    /// The workers that are ready, by their servers.
    pub(super) ready: BTreeMap<ServerId, CommMember>,
    /// The servers that must have a worker.
    pub(super) servers: BTreeSet<ServerId>,
    /// Those of them that leave the group: their workers end as soon as no step is being run.
    pub(super) leaving: BTreeSet<ServerId>,
    /// Its attachment to the stream, from when all workers were ready for the first time.
    pub(super) attachment: Option<AttachmentId>,
    pub(super) queue: VecDeque<QueuedStep>,
    pub(super) running: Option<Execution>,
    /// Steps that were run, but of which workers still show memory, by the number of their execution.
    pub(super) held: BTreeMap<u64, HeldStep>,
    /// Where the administrator waits who creates it.
    pub(super) created: Option<oneshot::Sender<Result<()>>>,
    /// Of a pipeline whose coordinator has died: what each server with a worker has told of it, until it goes on here.
    pub(super) inherited: Option<BTreeMap<ServerId, PipelineHistory>>,
    /// An execution at the coordinator before, until it is known whether that was over: it is in no count yet.
    pub(super) open: Option<OpenExecution>,
    /// The steps that ranks have activated, if they drive it.
    pub(super) driven: Option<DrivenSteps>,
    pub(super) counts: PipelineCounts,
    pub(super) last_step: Option<(RunNumber, StepNumber)>,
    pub(super) last_seconds: f64,
    pub(super) last_error: Option<String>,
}

/// A step that is to be run.
#[derive(Debug)]
pub(super) struct QueuedStep {
    pub(super) report: StepReport,
    /// The how many-th time, if ranks ask for it; else 0.
    pub(super) attempt: u32,
    /// Whether it was run before, and lost a worker.
    pub(super) again: bool,
}

/// A step that was run, and of which workers still show memory.
#[derive(Debug)]
pub(super) struct HeldStep {
    pub(super) step: (RunNumber, StepNumber),
    pub(super) holders: BTreeSet<ServerId>,
}

impl QueuedStep {
    pub(super) fn step(&self) -> (RunNumber, StepNumber) {
        (self.report.id.run, self.report.id.step)
    }
}

impl Pipeline {
    pub(super) fn new(creation: u64, spec: PipelineSpec, servers: BTreeSet<ServerId>) -> Pipeline {
        Pipeline {
            creation,
            driven: spec.driven.then(DrivenSteps::default),
            spec,
            ready: BTreeMap::new(),
            servers,
            leaving: BTreeSet::new(),
            attachment: None,
            queue: VecDeque::new(),
            running: None,
            held: BTreeMap::new(),
            created: None,
            inherited: None,
            open: None,
            counts: PipelineCounts::default(),
            last_step: None,
            last_seconds: 0.0,
            last_error: None,
        }
    }

    /// What names it among the attachments of its stream: the same wherever that is coordinated.
    pub(super) fn attachment_id(&self) -> AttachmentId {
        AttachmentId(self.creation)
    }

    /// Whether every server that must have a worker has one that is ready.
    pub(super) fn are_all_ready(&self) -> bool {
        self.ready.len() == self.servers.len()
    }

    /// Whether a step is still to be run, or held by a worker that ran it.
    pub(super) fn uses(&self, step: (RunNumber, StepNumber)) -> bool {
        self.queue.iter().any(|queued| queued.step() == step)
            || self.is_running(step)
            || self.held.values().any(|held| held.step == step)
    }

    /// Whether a step is being run.
    pub(super) fn is_running(&self, step: (RunNumber, StepNumber)) -> bool {
        self.running.as_ref().is_some_and(|running| running.step == step)
    }

    /// The pipeline has finished with a step, but for memory that its workers still show if it is `pinned`.
    pub(super) fn release(&self, streams: &mut dyn Streams, step: (RunNumber, StepNumber), pinned: bool) {
        if let Some(attachment) = self.attachment {
            streams.release(&self.spec.stream, attachment, step, pinned);
        }
    }

    /// All workers are ready, for the first time or again.
    pub(super) fn on_all_ready(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) -> Result<()> {
        self.attach(cx, streams)?;
        if let Some(created) = self.created.take() {
            let _ = created.send(Ok(()));
        }
        self.run_next(cx, streams);
        Ok(())
    }

    /// The pipeline is told of its stream's steps from now on, or from the one after the last that all have run.
    pub(super) fn attach(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) -> Result<()> {
        // While it is inherited other servers may know more of it.
        if self.attachment.is_some() || (self.inherited.is_some() && !streams.have_all_told()) {
            return Ok(());
        }
        self.adopt_history();
        let id = self.attachment_id();
        let start = self.start(streams);
        let needs = self.spec.needs.clone().or_else(|| self.spec.otherwise_needs.clone());
        let needs = needs.unwrap_or(Needs::all(1));
        let (window, takes) = match self.spec.driven {
            true => (DRIVEN_WINDOW as u32, Delivery::All),
            false => (WINDOW, Delivery::Whole),
        };
        let mut attachment = Attachment::new(needs, cx.me(), window);
        attachment.delivery = takes;
        attachment.pipeline = Some(self.spec.name.clone());
        attachment.is_chosen_for = self.spec.on.is_some();
        // Steps go on to workers, which come and go.
        attachment.remembers_run = false;
        attachment.follow = true;
        self.attachment = Some(id);
        self.driven.iter_mut().for_each(DrivenSteps::begin_takeover);
        let user = StreamUser::Pipeline(self.spec.name.clone());
        streams.attach(cx, &self.spec.stream, user, id, attachment, start)
    }

    /// With which step the pipeline begins, here or in the place of a coordinator that has died.
    fn start(&self, streams: &dyn Streams) -> Start {
        let coordinator = streams.coordinator(&self.spec.stream);
        let id = self.attachment_id();
        // It may have found no room since: then it is past, and is to be counted once.
        let is_dropped = |(run, step)| coordinator.is_some_and(|stream| stream.has_dropped(id, run, step));
        let open = self.open.as_ref().map(|open| (open.run, open.step));
        match (open, self.last_step) {
            // Whatever was activated at the coordinator before, whether it was run or not.
            _ if self.driven.as_ref().is_some_and(DrivenSteps::is_inherited) => Start::Oldest,
            (Some((run, step)), _) if is_dropped((run, step)) => Start::Rejoin(run, step.saturating_add(1)),
            // It is run again if it is still there.
            (Some((run, step)), _) => Start::Rejoin(run, step),
            (None, Some((run, step))) => Start::Rejoin(run, step.saturating_add(1)),
            (None, None) => Start::Next,
        }
    }

    /// The pipeline ends, and its workers; whoever waits for one of its steps is told why.
    pub(super) fn end(mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, why: &Error) {
        self.refuse_all_waiting(cx, why);
        if let Some(attachment) = self.attachment {
            streams.detach(&self.spec.stream, attachment);
        }
        for server in &self.servers {
            self.tell_to_stop(cx, *server);
        }
    }

    /// A server's worker is to end.
    pub(super) fn tell_to_stop(&self, cx: &mut Context<'_>, server: ServerId) {
        cx.tell(server, Message::StopWorker { pipeline: self.spec.name.clone(), creation: self.creation });
    }

    /// A server is to start a worker.
    pub(super) fn tell_to_start(&self, cx: &mut Context<'_>, server: ServerId) {
        cx.tell(server, Message::StartWorker { creation: self.creation, spec: self.spec.clone() });
    }

    /// A server with a worker is told what was run.
    pub(super) fn tell_history(&self, cx: &mut Context<'_>, server: ServerId) {
        let (pipeline, creation) = (self.spec.name.clone(), self.creation);
        cx.tell(server, Message::History { pipeline, creation, history: self.history() });
    }

    /// What `status` shows; `is_known`: whether anything of a step is held, or expected.
    pub(super) fn status(&self, is_known: impl Fn(RunNumber, StepNumber) -> bool) -> Value {
        let (last_step, counts) = self.seen(is_known);
        json!({
            "name": self.spec.name,
            "stream": self.spec.stream,
            "code": self.spec.code,
            "driven": self.spec.driven,
            "on": self.spec.on,
            "active_steps": self.driven.as_ref().map(DrivenSteps::active),
            "ended": null,
            "workers_ready": self.ready.len(),
            "workers_expected": self.servers.len(),
            "running_step": self.running.as_ref().map(|running| running.step.1),
            "executed": counts.executed,
            "failed": counts.failed,
            "repeated": counts.repeated,
            "missed": counts.missed,
            "last_step": last_step.map(|(_, step)| step),
            "last_seconds": self.last_seconds,
            "last_error": self.last_error,
        })
    }

    /// What must hold after each event.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        let is_expected = |server: &&ServerId| !self.servers.contains(server);
        if let Some(server) = self.ready.keys().find(is_expected) {
            return Err(format!("the worker on {server} is ready, which must have none"));
        }
        if self.attachment.is_some_and(|id| id != self.attachment_id()) {
            return Err("it is attached as another one".to_owned());
        }
        if self.attachment.is_some() && self.inherited.is_some() {
            return Err("it goes on, but servers are still to tell of it".to_owned());
        }
        if self.attachment.is_some() && self.created.is_some() {
            return Err("it is attached, but the administrator was not told".to_owned());
        }
        if self.attachment.is_none() && (self.running.is_some() || !self.queue.is_empty()) {
            return Err("it has steps although it is not attached".to_owned());
        }
        if let Some((number, _)) = self.held.iter().find(|(_, held)| held.holders.is_empty()) {
            return Err(format!("the step of execution {number} is held by nobody"));
        }
        let last = self.counts.last;
        let running = self.running.as_ref().map(|running| running.number);
        if let Some(number) = running.into_iter().chain(self.held.keys().copied()).find(|one| *one > last) {
            return Err(format!("execution {number} is after the last one, {last}"));
        }
        if self.driven.is_some() != self.spec.driven {
            return Err("whether ranks drive it is not what was asked for".to_owned());
        }
        self.running.as_ref().map_or(Ok(()), Execution::sanity_check)?;
        self.driven.as_ref().map_or(Ok(()), DrivenSteps::sanity_check)
    }
}
