//! Asks all servers of a group for their status, and puts together what they answer.

use crate::admin::handle::Admin;
use crate::admin::status::told::{
    GroupStatus, LostServer, PipelineStatus, ServerStatus, StreamStatus, WorkerStatus,
};
use crate::connection::rpc::unexpected;
use forebay_core::{Error, Result};
use forebay_wire::client::admin::{Reply, Request};
use serde::Deserialize;
use std::time::Duration;

/// How long servers may take to tell their status unless somebody says otherwise. One that stands still never does.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

/// What one server answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    #[serde(flatten)]
    server: ServerStatus,
    /// The members that the group has given up, as this server knows.
    lost: Vec<LostServer>,
    /// The streams that it coordinates.
    streams: Vec<StreamStatus>,
    /// How many of those had no room.
    streams_left_out: u64,
    /// How far the ranks have come whose home it is.
    progress: Vec<Progress>,
    pipelines: Pipelines,
}

/// How far the ranks of a run have come that have one home.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Progress {
    stream: String,
    run: u64,
    step: Option<u64>,
    steps_per_second: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pipelines {
    coordinated: Vec<PipelineStatus>,
    workers: Vec<WorkerStatus>,
}

impl Admin {
    /// The status of the group: what each server says of itself, or why it cannot be reached, and the streams and
    /// pipelines of all, by name. `docs/status.md` describes the members. Waits for all servers, three seconds if no
    /// timeout was given.
    pub fn status(&self) -> Result<GroupStatus> {
        // If the file cannot be read, this asks the servers that it named before.
        let _ = self.group.refresh();
        let known = self.group.known();
        let file = &known.file;
        let ids = file.servers.iter().map(|entry| entry.id);
        let patience = self.group.options().timeout.unwrap_or(STATUS_PATIENCE);
        let what = "to tell its status";
        let mut told = self.group.ask_all_within(patience, ids, &Request::Status, what, |_| false)?;
        let mut answers = Vec::new();
        for entry in &file.servers {
            let missing = || Err(Error::not_found("it is listed twice"));
            let answer = told.remove(&entry.id).unwrap_or_else(missing).and_then(|answer| match answer {
                Reply::Status(text) => serde_json::from_str::<Answer>(&text)
                    .map_err(|e| Error::protocol(format!("its status cannot be read: {e}"))),
                other => Err(unexpected(&other)),
            });
            answers.push(answer.unwrap_or_else(|error| Answer {
                server: ServerStatus {
                    server: entry.id.0.into(),
                    pid: entry.pid.into(),
                    error: Some(error.to_string()),
                    ..ServerStatus::default()
                },
                ..Answer::default()
            }));
        }
        let (lineage, size) = (file.lineage.to_string(), file.servers.len() as u64);
        Ok(GroupStatus { lineage, epoch: file.epoch, size, ..gathered(answers) })
    }
}

impl GroupStatus {
    /// A stream, by its name.
    pub fn stream(&self, name: &str) -> Option<&StreamStatus> {
        self.streams.iter().find(|stream| stream.name == name)
    }

    /// As programs in all languages get it.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl StreamStatus {
    /// Whether its latest run has ended, in whichever way.
    pub fn is_over(&self) -> bool {
        matches!(&self.phase[..], "finished" | "crashed")
    }
}

/// The streams and pipelines of all servers beside what each says of itself.
fn gathered(answers: Vec<Answer>) -> GroupStatus {
    let mut status = GroupStatus::default();
    let (mut progress, mut workers) = (Vec::new(), Vec::new());
    let mut lost = (0, Vec::new());
    for answer in answers {
        let Answer { server, lost: told_lost, streams, streams_left_out, progress: told, pipelines } = answer;
        let (id, epoch) = (server.server, server.epoch.unwrap_or(0));
        if server.error.is_none() && epoch >= lost.0 {
            lost = (epoch, told_lost);
        }
        status.streams.extend(streams.into_iter().map(|stream| StreamStatus { server: id, ..stream }));
        status.streams_left_out += streams_left_out;
        let of_server = pipelines.coordinated.into_iter();
        status.pipelines.extend(of_server.map(|one| PipelineStatus { server: Some(id), ..one }));
        workers.extend(pipelines.workers.into_iter().map(|one| WorkerStatus { server: id, ..one }));
        progress.extend(told);
        status.servers.push(server);
    }
    status.lost = lost.1;
    status.streams.iter_mut().for_each(|stream| note_progress(stream, &progress));
    workers.into_iter().for_each(|worker| note_worker(&mut status, worker));
    status.streams.sort_by(|a, b| a.name.cmp(&b.name));
    status.pipelines.sort_by(|a, b| a.name.cmp(&b.name));
    status
}

/// How far the ranks of a stream's run have come, and how fast: the furthest of those that their homes tell of.
fn note_progress(stream: &mut StreamStatus, progress: &[Progress]) {
    let of_it = || progress.iter().filter(|told| told.stream == stream.name && told.run == stream.run);
    let step = of_it().filter_map(|told| told.step).max();
    let rate = of_it().filter_map(|told| told.steps_per_second).reduce(f64::max);
    (stream.running_step, stream.steps_per_second) = (step, rate);
    stream.reached = stream.reached.max(step);
}

/// A worker, shown with its pipeline.
fn note_worker(status: &mut GroupStatus, worker: WorkerStatus) {
    let one_is_silent = status.servers.iter().any(|server| server.error.is_some());
    let known = status.pipelines.iter_mut().find(|pipeline| pipeline.name == worker.pipeline);
    match known {
        Some(pipeline) => pipeline.workers.push(worker),
        None if one_is_silent => status.pipelines.push(PipelineStatus {
            name: worker.pipeline.clone(),
            error: Some("the server that coordinates it does not answer".to_owned()),
            workers: vec![worker],
            ..PipelineStatus::default()
        }),
        // The pipeline has just begun or ended, between the answers of two servers.
        None => {}
    }
}
