//! Workers: the processes that run pipelines beside a server. The server itself never runs user code.

use crate::node::{Node, State};
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::worker::{Event, Request};
use forebay_wire::execution::{CommMember, Execute, OpenExecution, PipelineHistory, PipelineSpec};
use forebay_wire::peer::pipelines;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, mpsc, oneshot};

/// Lines of a worker's output that are kept.
const LOG_LINES: usize = 200;
/// The longest line that is kept whole.
const LINE_MAX: usize = 4096;
/// The longest traceback that is passed on whole.
const ERROR_MAX: usize = 64 << 10;
/// The longest pause before a worker that keeps dying is started again.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How long a worker that was asked to end may take, with its pipeline's `close`: a little more than it gives itself
/// (`_CLOSE_TIMEOUT` in `worker.py`).
const END_PATIENCE: Duration = Duration::from_secs(11);

/// A worker beside this server.
#[derive(Debug)]
pub(crate) struct LocalWorker {
    /// Which pipeline of that name it belongs to.
    pub(crate) creation: u64,
    pub(crate) spec: PipelineSpec,
    pub(crate) coordinator: ServerId,
    /// Its connection, once it is ready.
    outbox: Option<Arc<Outbox>>,
    /// Tells its process from earlier ones of the same pipeline.
    instance: u64,
    /// How the others reach it, once it is ready.
    member: Option<CommMember>,
    /// The execution that it takes part in.
    executing: Option<u64>,
    /// What it knows of the pipeline's executions: the last one that it was ordered to take part in is open.
    history: PipelineHistory,
    pid: Option<u32>,
    starts: u32,
    log: VecDeque<String>,
    stop: Arc<Notify>,
    /// The connection of the process of this instance ended: so will the process. One for each: what is noted
    /// of a process that has ended already must not be taken for its successor.
    lost: Arc<Notify>,
}

impl LocalWorker {
    pub(crate) fn status(&self) -> Value {
        json!({
            "pipeline": self.spec.name,
            "pid": self.pid,
            "starts": self.starts,
            "executing": self.executing.is_some(),
            "log": self.log,
        })
    }

    /// What it takes part in, if there is anything, ended here: without its process it has failed, as its coordinator says.
    fn has_ended(&mut self, failed: bool) {
        if self.executing.take().is_some()
            && let Some(open) = self.history.open.as_mut()
        {
            open.failed = Some(failed);
        }
    }

    fn log(&mut self, line: &str) {
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(line[..line.floor_char_boundary(LINE_MAX)].to_owned());
    }
}

impl Node {
    /// Starts a worker, and again whenever it dies, until it is stopped.
    pub(crate) fn start_worker(
        &self,
        state: &mut State,
        coordinator: ServerId,
        creation: u64,
        spec: PipelineSpec,
    ) {
        let stop = Arc::new(Notify::new());
        let worker = LocalWorker {
            creation,
            spec: spec.clone(),
            coordinator,
            outbox: None,
            instance: 0,
            member: None,
            executing: None,
            history: PipelineHistory::default(),
            pid: None,
            starts: 0,
            log: VecDeque::new(),
            stop: stop.clone(),
            lost: Arc::default(),
        };
        if let Some(old) = state.pipelines.workers.insert(spec.name.clone(), worker) {
            old.stop.notify_one();
        }
        if !self.standing().view.members.contains(&coordinator) {
            // It has died since it said so: the one that takes its place does not know of this worker yet.
            let to = self.coordinator_of(state, &spec.stream);
            self.tell_workers_again(state, &spec.stream, to);
        } else {
            self.note_place(state, &spec.stream, coordinator);
        }
        if let Some(node) = self.me.upgrade() {
            tokio::spawn(keep_alive(node, spec, stop));
        }
    }

    /// Ends a worker.
    pub(crate) fn stop_worker(&self, state: &mut State, name: &str, creation: u64) {
        if state.pipelines.workers.get(name).is_some_and(|worker| worker.creation == creation)
            && let Some(worker) = state.pipelines.workers.remove(name)
        {
            worker.stop.notify_one();
        }
    }

    /// A worker's process has connected. One that was replaced meanwhile is refused.
    pub(crate) fn worker_connected(&self, pipeline: &str, instance: u64, outbox: Arc<Outbox>) -> Result<()> {
        let mut state = self.state.lock();
        match state.pipelines.workers.get_mut(pipeline).filter(|worker| worker.instance == instance) {
            Some(worker) => {
                worker.outbox = Some(outbox);
                Ok(())
            }
            None => {
                Err(Error::unreachable(format!("this worker of pipeline '{pipeline}' is no longer wanted")))
            }
        }
    }

    /// A worker's connection ended: told at once, so that nobody waits for it.
    pub(crate) fn worker_disconnected(&self, pipeline: &str, outbox: &Arc<Outbox>) {
        let mut state = self.state.lock();
        let Some(worker) = state.pipelines.workers.get_mut(pipeline) else { return };
        if worker.outbox.as_ref().is_none_or(|current| !Arc::ptr_eq(current, outbox)) {
            return;
        }
        // Told with its exit status, once that is known.
        worker.outbox = None;
        worker.member = None;
        worker.has_ended(true);
        worker.lost.notify_one();
    }

    /// What a worker says of itself. One that was replaced by another of the same name is not heard.
    pub(crate) fn worker_said(&self, pipeline: &str, instance: u64, message: Request) {
        let mut state = self.state.lock();
        let worker = state.pipelines.workers.get_mut(pipeline);
        let Some(worker) = worker.filter(|worker| worker.instance == instance) else { return };
        let (coordinator, creation) = (worker.coordinator, worker.creation);
        let name = pipeline.to_owned();
        let short = |mut text: String| {
            text.truncate(text.floor_char_boundary(ERROR_MAX));
            text
        };
        let told = match message {
            Request::Ready { addresses, needs } => {
                let member = CommMember { server: self.id, addresses };
                worker.member = Some(member.clone());
                if worker.spec.needs.is_none() {
                    worker.spec.needs.clone_from(&needs);
                }
                pipelines::Message::WorkerReady { pipeline: name, creation, member, needs }
            }
            Request::Executed { execution, error, seconds } => {
                if worker.executing == Some(execution) {
                    worker.has_ended(error.is_some());
                }
                error.iter().flat_map(|error| error.lines()).for_each(|line| worker.log(line));
                pipelines::Message::Executed { pipeline: name, execution, error: error.map(short), seconds }
            }
            Request::Released { execution } => pipelines::Message::Released { pipeline: name, execution },
            Request::Failed { error } => {
                worker.outbox = None;
                worker.member = None;
                worker.has_ended(true);
                pipelines::Message::WorkerGone { pipeline: name, creation, error: short(error) }
            }
        };
        self.tell(&mut state, coordinator, told);
        self.drain(&mut state);
    }

    /// Orders the worker beside this server to run a step.
    pub(crate) fn order_worker(
        &self,
        state: &mut State,
        from: ServerId,
        pipeline: &str,
        mut order: Box<Execute>,
    ) {
        let execution = order.execution;
        state.directory.complete(&mut order.report);
        let worker = state.pipelines.workers.get_mut(pipeline);
        let sent = worker.is_some_and(|worker| {
            worker.executing = Some(execution);
            let open = OpenExecution {
                run: order.report.id.run,
                step: order.report.id.step,
                attempt: order.attempt,
                together: order.members.iter().map(|member| member.server).collect(),
                failed: None,
            };
            worker.history = PipelineHistory { done: order.done, counts: order.counts, open: Some(open) };
            let outbox = worker.outbox.as_ref();
            outbox.is_some_and(|outbox| outbox.push(self.header(0), &Event::Execute(order)).is_ok())
        });
        if !sent {
            state.pipelines.workers.get_mut(pipeline).into_iter().for_each(|worker| worker.has_ended(true));
            let error = Some("its process is not there".to_owned());
            let executed = pipelines::Message::Executed {
                pipeline: pipeline.to_owned(),
                execution,
                error,
                seconds: 0.0,
            };
            self.tell(state, from, executed);
        }
    }

    /// Another server coordinates a stream: it is told of the workers of its pipelines here.
    pub(crate) fn tell_workers_again(&self, state: &mut State, stream: &str, to: ServerId) {
        let (mut messages, epoch) = (Vec::new(), self.epoch());
        for worker in state.pipelines.workers.values_mut().filter(|worker| worker.spec.stream == stream) {
            worker.coordinator = to;
            messages.push(pipelines::Message::TakeOverPipeline {
                epoch,
                creation: worker.creation,
                spec: worker.spec.clone(),
                member: worker.member.clone(),
                history: worker.history.clone(),
            });
        }
        for message in messages {
            self.tell(state, to, message);
        }
    }

    /// The server that coordinates a pipeline tells what was run.
    pub(crate) fn pipeline_was(
        &self,
        state: &mut State,
        (pipeline, creation): (&str, u64),
        history: PipelineHistory,
    ) {
        // What it takes part in now it knows better.
        let is_news = |worker: &&mut LocalWorker| {
            worker.creation == creation && worker.history.counts.last <= history.counts.last
        };
        if let Some(worker) = state.pipelines.workers.get_mut(pipeline).filter(is_news) {
            worker.history = history;
        }
    }

    fn with_worker(&self, name: &str, stop: &Arc<Notify>, change: impl FnOnce(&mut LocalWorker)) {
        let mut state = self.state.lock();
        if let Some(worker) =
            state.pipelines.workers.get_mut(name).filter(|worker| Arc::ptr_eq(&worker.stop, stop))
        {
            change(worker);
        }
    }
}

/// Starts a worker's process again and again until it is stopped.
async fn keep_alive(node: Arc<Node>, spec: PipelineSpec, stop: Arc<Notify>) {
    let mut pause = Duration::from_millis(100);
    loop {
        let started = Instant::now();
        let instance = node.unique();
        let lost = Arc::new(Notify::new());
        node.with_worker(&spec.name, &stop, |worker| {
            worker.instance = instance;
            worker.lost = lost.clone();
        });
        match node.spawner.spawn(command(&node, &spec, instance)).await {
            Ok(child) => {
                if !watch(&node, &spec, &stop, &lost, instance, child).await {
                    return;
                }
            }
            // It may lack a descriptor, a process, memory or a directory now, and not later.
            Err(error) => {
                let error = format!("cannot start {:?} in {}: {error}", spec.command, spec.directory);
                node.with_worker(&spec.name, &stop, |worker| worker.log(&error));
                node.worker_said(&spec.name, instance, Request::Failed { error });
            }
        }
        if started.elapsed() > Duration::from_secs(60) {
            pause = Duration::from_millis(100);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.notified() => return,
        }
        pause = (pause * 2).min(BACKOFF_MAX);
        if !node
            .state
            .lock()
            .pipelines
            .workers
            .get(&spec.name)
            .is_some_and(|worker| Arc::ptr_eq(&worker.stop, &stop))
        {
            return;
        }
    }
}

/// Looks after a worker's process until it has ended; `false` if it was stopped.
async fn watch(
    node: &Arc<Node>,
    spec: &PipelineSpec,
    stop: &Arc<Notify>,
    lost: &Notify,
    instance: u64,
    mut child: Child,
) -> bool {
    node.with_worker(&spec.name, stop, |worker| {
        worker.pid = child.id();
        worker.starts += 1;
    });
    let readers = [
        tokio::spawn(read_log(node.clone(), spec.name.clone(), stop.clone(), child.stdout.take())),
        tokio::spawn(read_log(node.clone(), spec.name.clone(), stop.clone(), child.stderr.take())),
    ];
    let status = tokio::select! {
        status = ended(&mut child, lost) => status,
        () = stop.notified() => {
            end(child).await;
            return false;
        }
    };
    for reader in readers {
        let _ = tokio::time::timeout(Duration::from_millis(200), reader).await;
    }
    let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
    let mut last = Vec::new();
    node.with_worker(&spec.name, stop, |worker| {
        worker.pid = None;
        last = worker.log.iter().rev().take(12).cloned().collect();
        worker.log(&format!("the worker ended: {how}"));
    });
    let lines: String = last.iter().rev().map(|line| format!("\n  {line}")).collect();
    let error = format!("its process ended ({how}){lines}");
    node.worker_said(&spec.name, instance, Request::Failed { error });
    true
}

/// Waits until a worker's process has ended. One that lost its connection and lingers is ended.
async fn ended(child: &mut Child, lost: &Notify) -> std::io::Result<std::process::ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = lost.notified() => {}
    }
    if let Ok(status) = tokio::time::timeout(Duration::from_secs(2), child.wait()).await {
        return status;
    }
    child.start_kill()?;
    child.wait().await
}

/// Where workers are started. Always on the thread that runs the server, which ends last: the kernel tells a
/// worker of the end of the thread that started it (see `forebay_client::Worker::open`), and a thread of the
/// runtime may end before.
#[derive(Debug)]
pub(crate) struct Spawner(mpsc::Sender<Spawn>);

/// Workers that are to be started.
pub(crate) type Spawns = mpsc::Receiver<Spawn>;

/// A worker that is to be started, and where its process is wanted.
pub(crate) type Spawn = (Command, oneshot::Sender<std::io::Result<Child>>);

impl Spawner {
    pub(crate) fn new() -> (Spawner, Spawns) {
        let (sender, receiver) = mpsc::channel(16);
        (Spawner(sender), receiver)
    }

    async fn spawn(&self, command: std::io::Result<Command>) -> std::io::Result<Child> {
        let ends = |_| std::io::Error::other("the server ends");
        let (sender, receiver) = oneshot::channel();
        self.0.send((command?, sender)).await.map_err(|_| std::io::Error::other("the server ends"))?;
        receiver.await.map_err(ends)?
    }
}

/// Starts workers as they are asked for.
pub(crate) async fn spawn_all(mut spawns: Spawns) {
    while let Some((mut command, wanted)) = spawns.recv().await {
        // One that is not wanted any more is killed when it is dropped.
        let _ = wanted.send(command.spawn());
    }
}

fn command(node: &Node, spec: &PipelineSpec, instance: u64) -> std::io::Result<Command> {
    let (program, arguments) =
        spec.command.split_first().ok_or_else(|| std::io::Error::other("its command is empty"))?;
    let group = std::fs::canonicalize(&node.group).unwrap_or_else(|_| PathBuf::from(&node.group));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg("--group")
        .arg(group)
        .args(["--server", &node.id.0.to_string(), "--pipeline", &spec.name, "--code", &spec.code])
        .args(["--instance", &instance.to_string()])
        .env("FOREBAY_PIPELINE_CONFIG", &spec.config)
        .env("PYTHONUNBUFFERED", "1")
        .current_dir(&spec.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Ok(command)
}

async fn read_log(
    node: Arc<Node>,
    name: String,
    stop: Arc<Notify>,
    stream: Option<impl tokio::io::AsyncRead + Unpin>,
) {
    let Some(stream) = stream else { return };
    let mut stream = BufReader::new(stream);
    while let Some(line) = next_line(&mut stream).await {
        let line = String::from_utf8_lossy(&line);
        node.with_worker(&name, &stop, |worker| worker.log(line.trim_end()));
    }
}

/// The next line, or [`LINE_MAX`] bytes of one that does not end: what a worker prints is not this server's
/// to keep. `None` at the end.
async fn next_line(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = stream.take(LINE_MAX as u64).read_until(b'\n', &mut line).await;
    (read.is_ok() && !line.is_empty()).then_some(line)
}

/// Asks a process to end, and ends it if it does not.
async fn end(mut child: Child) {
    if let Some(pid) = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(END_PATIENCE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// The server ends: so do its workers.
pub(crate) async fn stop_all(node: &Arc<Node>) {
    let pids: Vec<u32> = {
        let mut state = node.state.lock();
        let workers = std::mem::take(&mut state.pipelines.workers);
        workers.values().for_each(|worker| worker.stop.notify_one());
        workers.values().filter_map(|worker| worker.pid).collect()
    };
    let deadline = Instant::now() + Duration::from_secs(3);
    let alive = |pid: &u32| crate::process::Process::watch(*pid).is_ok();
    while pids.iter().any(alive) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_does_not_end_is_read_in_bounds() {
        let mut given = b"short\n\n".to_vec();
        given.extend(vec![b'x'; 3 * LINE_MAX + 5]);
        let mut stream = &given[..];
        let mut lengths = Vec::new();
        while let Some(line) = next_line(&mut stream).await {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [6, 1, LINE_MAX, LINE_MAX, LINE_MAX, 5]);
    }
}
