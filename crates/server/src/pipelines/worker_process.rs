//! The supervisor of a worker's process: starts it, reads what it prints, and starts it again when it dies. The server itself
//! never runs user code.

use super::local_worker::LINE_MAX;
use super::local_workers::{LocalWorkers, WorkerStart};
use crate::shared::Shared;
use forebay_wire::client::worker::Request;
use forebay_wire::execution::PipelineSpec;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

/// The shortest pause before a worker that has died is started again.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest one, of a worker that keeps dying.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A worker that has lived so long does not keep dying.
const LIVED: Duration = Duration::from_secs(60);
/// How long a worker that was asked to end may take, with its pipeline's `close`: a little more than it gives itself
/// (`_CLOSE_TIMEOUT` in `worker.py`).
const END_PATIENCE: Duration = Duration::from_secs(11);
/// How long a worker may linger that has lost its connection.
const LINGERS: Duration = Duration::from_secs(2);
/// How long what an ended worker has printed may take to be read.
const READ: Duration = Duration::from_millis(200);

/// The server beside which a worker runs, as the supervisor of its process needs it.
pub(crate) trait WorkerHost: Send + Sync + 'static {
    /// Who it is, where its group is, and what starts processes.
    fn server(&self) -> &Shared;

    /// Notes something about its workers.
    fn with_workers<T>(&self, note: impl FnOnce(&mut LocalWorkers) -> T) -> T;

    /// A worker says something, or its supervisor does for it.
    fn on_worker_request(&self, pipeline: &str, instance: u64, request: Request);
}

/// The supervisor of one worker.
struct Supervisor<H> {
    host: Arc<H>,
    spec: PipelineSpec,
    stop: Arc<Notify>,
}

/// Starts a worker's process again and again until it is stopped.
pub(crate) async fn keep_alive<H: WorkerHost>(host: Arc<H>, WorkerStart { spec, stop }: WorkerStart) {
    let supervisor = Supervisor { host, spec, stop };
    let mut pause = BACKOFF_MIN;
    loop {
        let started = Instant::now();
        if !supervisor.run_once().await {
            return;
        }
        if started.elapsed() > LIVED {
            pause = BACKOFF_MIN;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = supervisor.stop.notified() => return,
        }
        pause = (pause * 2).min(BACKOFF_MAX);
        let is_wanted =
            |workers: &mut LocalWorkers| workers.is_wanted(&supervisor.spec.name, &supervisor.stop);
        if !supervisor.host.with_workers(is_wanted) {
            return;
        }
    }
}

impl<H: WorkerHost> Supervisor<H> {
    /// Runs the worker's process until it has ended; `false` if it was stopped.
    async fn run_once(&self) -> bool {
        let server = self.host.server();
        let instance = server.unique();
        let name = &self.spec.name;
        let lost = self.host.with_workers(|workers| workers.begin_instance(name, &self.stop, instance));
        let error = match server.spawner.spawn(command(server, &self.spec, instance)).await {
            Ok(child) => match self.watch(child, &lost).await {
                Some(error) => error,
                None => return false,
            },
            // It may lack a descriptor, a process, memory or a directory now, and not later.
            Err(error) => {
                let error =
                    format!("cannot start {:?} in {}: {error}", self.spec.command, self.spec.directory);
                self.host.with_workers(|workers| workers.log(name, &self.stop, &error));
                error
            }
        };
        self.host.on_worker_request(name, instance, Request::Failed { error });
        true
    }

    /// Looks after a process until it has ended: how it did. `None` if it was stopped.
    async fn watch(&self, mut child: Child, lost: &Notify) -> Option<String> {
        let name = &self.spec.name;
        self.host.with_workers(|workers| workers.note_started(name, &self.stop, child.id()));
        let (host, stop) = (&self.host, &self.stop);
        let readers = [
            tokio::spawn(read_log(host.clone(), name.clone(), stop.clone(), child.stdout.take())),
            tokio::spawn(read_log(host.clone(), name.clone(), stop.clone(), child.stderr.take())),
        ];
        let status = tokio::select! {
            status = wait_for_end(&mut child, lost) => status,
            () = stop.notified() => {
                end(child).await;
                return None;
            }
        };
        for reader in readers {
            let _ = tokio::time::timeout(READ, reader).await;
        }
        let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        let last = host.with_workers(|workers| workers.note_ended(name, stop, &how));
        let lines: String = last.iter().map(|line| format!("\n  {line}")).collect();
        Some(format!("its process ended ({how}){lines}"))
    }
}

/// Waits until a worker's process has ended. One that lost its connection and lingers is ended.
async fn wait_for_end(child: &mut Child, lost: &Notify) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = lost.notified() => {}
    }
    if let Ok(status) = tokio::time::timeout(LINGERS, child.wait()).await {
        return status;
    }
    child.start_kill()?;
    child.wait().await
}

fn command(server: &Shared, spec: &PipelineSpec, instance: u64) -> std::io::Result<Command> {
    let (program, arguments) =
        spec.command.split_first().ok_or_else(|| std::io::Error::other("its command is empty"))?;
    let group = std::fs::canonicalize(&server.connection_file)
        .unwrap_or_else(|_| PathBuf::from(&server.connection_file));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg("--group")
        .arg(group)
        .args(["--server", &server.id.0.to_string(), "--pipeline", &spec.name, "--code", &spec.code])
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

/// Keeps what a worker prints.
async fn read_log<H: WorkerHost>(
    host: Arc<H>,
    name: String,
    stop: Arc<Notify>,
    stream: Option<impl tokio::io::AsyncRead + Unpin>,
) {
    let Some(stream) = stream else { return };
    let mut stream = BufReader::new(stream);
    while let Some(line) = next_line(&mut stream).await {
        let line = String::from_utf8_lossy(&line);
        host.with_workers(|workers| workers.log(&name, &stop, line.trim_end()));
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
