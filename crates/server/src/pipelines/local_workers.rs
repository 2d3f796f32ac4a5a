//! The workers beside this server: what it knows of them, whoever coordinates their pipelines.

use super::local_worker::LocalWorker;
use crate::context::Context;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::steps::RunSummary;
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::worker::Request;
use forebay_wire::execution::{CommMember, Execute, PipelineHistory, PipelineSpec};
use forebay_wire::peer::pipelines::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The longest traceback that is passed on whole.
const ERROR_MAX: usize = 64 << 10;
/// How many of the last lines are told with the end of a worker.
const LAST_LINES: usize = 12;

/// The workers beside this server, by their pipelines' names.
#[derive(Debug, Default)]
pub(crate) struct LocalWorkers {
    workers: BTreeMap<String, LocalWorker>,
}

/// A worker that is to be started, and kept alive until `stop`.
#[derive(Debug)]
pub(crate) struct WorkerStart {
    pub(crate) spec: PipelineSpec,
    pub(crate) stop: Arc<Notify>,
}

/// What pipelines' coordinators and this server want of workers.
impl LocalWorkers {
    /// A pipeline's coordinator wants a worker here.
    pub(crate) fn on_start(
        &mut self,
        coordinator: ServerId,
        creation: u64,
        spec: PipelineSpec,
    ) -> WorkerStart {
        let worker = LocalWorker::new(coordinator, creation, spec.clone());
        let stop = worker.stop.clone();
        if let Some(old) = self.workers.insert(spec.name.clone(), worker) {
            old.stop.notify_one();
        }
        WorkerStart { spec, stop }
    }

    /// A pipeline's coordinator wants no worker here any more.
    pub(crate) fn on_stop(&mut self, pipeline: &str, creation: u64) {
        if self.workers.get(pipeline).is_some_and(|worker| worker.creation == creation)
            && let Some(worker) = self.workers.remove(pipeline)
        {
            worker.stop.notify_one();
        }
    }

    /// A pipeline's coordinator orders the worker here to run a step.
    pub(crate) fn on_execute(
        &mut self,
        cx: &mut Context<'_>,
        from: ServerId,
        pipeline: String,
        order: Box<Execute>,
    ) {
        let execution = order.execution;
        let sent = self.workers.get_mut(&pipeline).is_some_and(|worker| worker.pass_on(cx, order));
        if !sent {
            let error = Some("its process is not there".to_owned());
            cx.tell(from, Message::Executed { pipeline, execution, error, seconds: 0.0 });
        }
    }

    /// The server that coordinates a pipeline tells what was run.
    pub(crate) fn on_history(&mut self, pipeline: &str, creation: u64, history: PipelineHistory) {
        // What it takes part in now it knows better.
        let is_news = |worker: &&mut LocalWorker| {
            worker.creation == creation && worker.history.counts.last <= history.counts.last
        };
        if let Some(worker) = self.workers.get_mut(pipeline).filter(is_news) {
            worker.history = history;
        }
    }

    /// Another server coordinates a stream: it is told of the workers of the stream's pipelines here.
    pub(crate) fn tell_again(&mut self, cx: &mut Context<'_>, stream: &str, to: ServerId) {
        let epoch = cx.server.epoch();
        for worker in self.workers.values_mut().filter(|worker| worker.spec.stream == stream) {
            worker.coordinator = to;
            let told = Message::TakeOverPipeline {
                epoch,
                creation: worker.creation,
                spec: worker.spec.clone(),
                member: worker.member.clone(),
                history: worker.history.clone(),
            };
            cx.tell(to, told);
        }
    }

    /// This server leaves the group: its workers are to run nothing more.
    pub(crate) fn announce_leaving(&self, cx: &mut Context<'_>) {
        for (pipeline, worker) in &self.workers {
            let (pipeline, creation) = (pipeline.clone(), worker.creation);
            cx.tell(worker.coordinator, Message::WorkerLeaves { pipeline, creation });
        }
    }

    /// The server ends: so do its workers. The processes that are to end.
    pub(crate) fn stop_all(&mut self) -> Vec<u32> {
        let workers = std::mem::take(&mut self.workers);
        workers.values().for_each(|worker| worker.stop.notify_one());
        workers.values().filter_map(|worker| worker.pid).collect()
    }

    /// The streams of the pipelines that have workers here.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &String> {
        self.workers.values().map(|worker| &worker.spec.stream)
    }

    /// Pipelines that have workers here.
    pub(crate) fn pipelines(&self) -> impl Iterator<Item = &String> {
        self.workers.keys()
    }

    /// What a worker here runs.
    pub(super) fn spec(&self, pipeline: &str) -> Option<&PipelineSpec> {
        self.workers.get(pipeline).map(|worker| &worker.spec)
    }

    pub(super) fn status(&self) -> Vec<Value> {
        self.workers.values().map(LocalWorker::status).collect()
    }

    /// What must hold after each event.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        for (name, worker) in &self.workers {
            if *name != worker.spec.name {
                return Err(format!("the worker of pipeline '{}' stands under '{name}'", worker.spec.name));
            }
            if worker.log.len() > super::local_worker::LOG_LINES {
                return Err(format!("{} lines are kept of what '{name}' printed", worker.log.len()));
            }
            if worker.executing.is_some() && worker.history.open.is_none() {
                return Err(format!("the worker of '{name}' runs a step of which no history tells"));
            }
        }
        Ok(())
    }
}

/// What streams say.
impl LocalWorkers {
    /// A run of a stream is over: the logs of the pipelines that read it say so.
    pub(crate) fn on_run_over(&mut self, stream: &str, run: RunNumber, summary: &RunSummary) {
        let line = format!("run {run} of stream '{stream}' {} ({})", summary.to_text(), summary.at);
        let readers = self.workers.values_mut().filter(|worker| worker.spec.stream == stream);
        readers.for_each(|worker| worker.log(&line));
    }
}

/// What workers' connections say.
impl LocalWorkers {
    /// A worker's process has connected. One that was replaced meanwhile is refused.
    pub(crate) fn on_connected(&mut self, pipeline: &str, instance: u64, outbox: Arc<Outbox>) -> Result<()> {
        let worker = self.workers.get_mut(pipeline).filter(|worker| worker.instance == instance);
        let unwanted = || format!("this worker of pipeline '{pipeline}' is no longer wanted");
        worker.ok_or_else(|| Error::unreachable(unwanted()))?.outbox = Some(outbox);
        Ok(())
    }

    /// A worker's connection ended: what it runs ends at once, so that nobody waits for it. It is told with the exit status of
    /// its process, once that is known.
    pub(crate) fn on_disconnected(&mut self, pipeline: &str, outbox: &Arc<Outbox>) {
        let is_its = |worker: &&mut LocalWorker| {
            worker.outbox.as_ref().is_some_and(|current| Arc::ptr_eq(current, outbox))
        };
        if let Some(worker) = self.workers.get_mut(pipeline).filter(is_its) {
            worker.disconnect();
            worker.lost.notify_one();
        }
    }

    /// What a worker says of itself. One that was replaced by another of the same name is not heard.
    pub(crate) fn on_request(
        &mut self,
        cx: &mut Context<'_>,
        pipeline: &str,
        instance: u64,
        request: Request,
    ) {
        let worker = self.workers.get_mut(pipeline);
        let Some(worker) = worker.filter(|worker| worker.instance == instance) else { return };
        let (coordinator, creation) = (worker.coordinator, worker.creation);
        let pipeline = pipeline.to_owned();
        let told = match request {
            Request::Ready { addresses, needs } => {
                let member = CommMember { server: cx.me(), addresses };
                worker.member = Some(member.clone());
                if worker.spec.needs.is_none() {
                    worker.spec.needs.clone_from(&needs);
                }
                Message::WorkerReady { pipeline, creation, member, needs }
            }
            Request::Executed { execution, error, seconds } => {
                if worker.executing == Some(execution) {
                    worker.end_execution(error.is_some());
                }
                error.iter().flat_map(|error| error.lines()).for_each(|line| worker.log(line));
                Message::Executed { pipeline, execution, error: error.map(shortened), seconds }
            }
            Request::Released { execution } => Message::Released { pipeline, execution },
            Request::Failed { error } => {
                worker.disconnect();
                Message::WorkerGone { pipeline, creation, error: shortened(error) }
            }
        };
        cx.tell(coordinator, told);
    }
}

/// What the supervisor of a worker's process notes; `stop` names the worker, of which it may be that it is not wanted any more.
impl LocalWorkers {
    fn of(&mut self, pipeline: &str, stop: &Arc<Notify>) -> Option<&mut LocalWorker> {
        self.workers.get_mut(pipeline).filter(|worker| Arc::ptr_eq(&worker.stop, stop))
    }

    /// Whether a worker is still wanted.
    pub(super) fn is_wanted(&self, pipeline: &str, stop: &Arc<Notify>) -> bool {
        self.workers.get(pipeline).is_some_and(|worker| Arc::ptr_eq(&worker.stop, stop))
    }

    /// A process is about to be started: where it will be told that its connection has ended.
    pub(super) fn begin_instance(
        &mut self,
        pipeline: &str,
        stop: &Arc<Notify>,
        instance: u64,
    ) -> Arc<Notify> {
        let lost = Arc::<Notify>::default();
        if let Some(worker) = self.of(pipeline, stop) {
            worker.instance = instance;
            worker.lost = lost.clone();
        }
        lost
    }

    /// A process was started.
    pub(super) fn note_started(&mut self, pipeline: &str, stop: &Arc<Notify>, pid: Option<u32>) {
        if let Some(worker) = self.of(pipeline, stop) {
            worker.pid = pid;
            worker.starts += 1;
        }
    }

    /// A process has ended, `how` says its exit status: the last lines that it printed.
    pub(super) fn note_ended(&mut self, pipeline: &str, stop: &Arc<Notify>, how: &str) -> Vec<String> {
        let Some(worker) = self.of(pipeline, stop) else { return Vec::new() };
        worker.pid = None;
        let first = worker.log.len().saturating_sub(LAST_LINES);
        let last = worker.log.range(first..).cloned().collect();
        worker.log(&format!("the worker ended: {how}"));
        last
    }

    /// A worker printed a line, or its supervisor has something to tell.
    pub(super) fn log(&mut self, pipeline: &str, stop: &Arc<Notify>, line: &str) {
        if let Some(worker) = self.of(pipeline, stop) {
            worker.log(line);
        }
    }
}

/// A traceback as it is passed on.
fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(ERROR_MAX));
    text
}
