//! A worker beside this server.

use crate::context::Context;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::worker::Event;
use forebay_wire::execution::{CommMember, Execute, OpenExecution, PipelineHistory, PipelineSpec};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// Lines of a worker's output that are kept.
pub(super) const LOG_LINES: usize = 200;
/// The longest line that is kept whole.
pub(super) const LINE_MAX: usize = 4096;

/// A worker beside this server.
#[derive(Debug)]
pub(super) struct LocalWorker {
    /// Which pipeline of that name it belongs to.
    pub(super) creation: u64,
    pub(super) spec: PipelineSpec,
    pub(super) coordinator: ServerId,
    /// Its connection, once it is ready.
    pub(super) outbox: Option<Arc<Outbox>>,
    /// Tells its process from earlier ones of the same pipeline.
    pub(super) instance: u64,
    /// How the others reach it, once it is ready.
    pub(super) member: Option<CommMember>,
    /// The execution that it takes part in.
    pub(super) executing: Option<u64>,
    /// What it knows of the pipeline's executions: the last one that it was ordered to take part in is open.
    pub(super) history: PipelineHistory,
    pub(super) pid: Option<u32>,
    pub(super) starts: u32,
    pub(super) log: VecDeque<String>,
    /// The run of which it was told a step last.
    run: Option<RunNumber>,
    /// It is to end. Names this worker, too, where another one may have taken its place.
    pub(super) stop: Arc<Notify>,
    /// The connection of the process of this instance ended: so will the process. One for each: what is noted
    /// of a process that has ended already must not be taken for its successor.
    pub(super) lost: Arc<Notify>,
}

impl LocalWorker {
    pub(super) fn new(coordinator: ServerId, creation: u64, spec: PipelineSpec) -> LocalWorker {
        LocalWorker {
            creation,
            spec,
            coordinator,
            outbox: None,
            instance: 0,
            member: None,
            executing: None,
            history: PipelineHistory::default(),
            pid: None,
            starts: 0,
            log: VecDeque::new(),
            run: None,
            stop: Arc::default(),
            lost: Arc::default(),
        }
    }

    pub(super) fn status(&self) -> Value {
        json!({
            "pipeline": self.spec.name,
            "pid": self.pid,
            "starts": self.starts,
            "executing": self.executing.is_some(),
            "log": self.log,
        })
    }

    /// What it takes part in, if there is anything, ended here: without its process it has failed, as its coordinator says.
    pub(super) fn end_execution(&mut self, failed: bool) {
        if self.executing.take().is_some()
            && let Some(open) = self.history.open.as_mut()
        {
            open.failed = Some(failed);
        }
    }

    /// Its process is not there any more, or does not listen.
    pub(super) fn disconnect(&mut self) {
        self.outbox = None;
        self.member = None;
        self.end_execution(true);
    }

    pub(super) fn log(&mut self, line: &str) {
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(line[..line.floor_char_boundary(LINE_MAX)].to_owned());
    }

    /// Notes an order to run a step, and passes it on to the process. `false` if that is not there.
    pub(super) fn pass_on(&mut self, cx: &Context<'_>, order: Box<Execute>) -> bool {
        self.executing = Some(order.execution);
        let (run, step) = (order.report.id.run, order.report.id.step);
        if self.run.replace(run) != Some(run) {
            self.log(&format!(
                "run {run} of stream '{}' is running: its step {step} is the first here",
                self.spec.stream
            ));
        }
        let open = OpenExecution {
            run,
            step,
            attempt: order.attempt,
            together: order.members.iter().map(|member| member.server).collect(),
            failed: None,
        };
        self.history = PipelineHistory { done: order.done, counts: order.counts, open: Some(open) };
        let outbox = self.outbox.as_ref();
        let sent =
            outbox.is_some_and(|outbox| outbox.push(cx.server.header(0), &Event::Execute(order)).is_ok());
        if !sent {
            self.end_execution(true);
        }
        sent
    }
}
