//! What all servers of a group say of themselves, and of their streams and pipelines.

use crate::admin::handle::Admin;
use crate::connection::rpc::unexpected;
use forebay_core::{Error, Result};
use forebay_wire::client::admin::{Reply, Request};
use serde_json::{Value, json};
use std::time::Duration;

/// How long servers may take to tell their status unless somebody says otherwise. One that stands still never does.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

impl Admin {
    /// The status of the group: what each server says of itself, or why it cannot be reached, and the streams and
    /// pipelines of all, by name. `docs/status.md` describes the members. Waits for all servers, three seconds if no
    /// timeout was given.
    pub fn status(&self) -> Result<Value> {
        // If the file cannot be read, this asks the servers that it named before.
        let _ = self.group.refresh();
        let known = self.group.known();
        let file = &known.file;
        let ids = file.servers.iter().map(|entry| entry.id);
        let patience = self.group.options().timeout.unwrap_or(STATUS_PATIENCE);
        let what = "to tell its status";
        let mut answers = self.group.ask_all_within(patience, ids, &Request::Status, what, |_| false)?;
        let mut servers = Vec::new();
        for entry in &file.servers {
            let missing = || Err(Error::not_found("it is listed twice"));
            let told = answers.remove(&entry.id).unwrap_or_else(missing).and_then(|answer| match answer {
                Reply::Status(text) => serde_json::from_str::<Value>(&text)
                    .map_err(|e| Error::protocol(format!("its status cannot be read: {e}"))),
                other => Err(unexpected(&other)),
            });
            servers.push(match told {
                Ok(status) => status,
                Err(error) => json!({ "server": entry.id.0, "pid": entry.pid, "error": error.to_string() }),
            });
        }
        let mut status = gathered(servers);
        status["lineage"] = json!(file.lineage.to_string());
        status["epoch"] = json!(file.epoch);
        status["size"] = json!(file.servers.len());
        Ok(status)
    }
}

/// What is told of every pipeline, if only by null.
const PIPELINE: [&str; 15] = [
    "stream",
    "server",
    "code",
    "error",
    "ended",
    "workers_ready",
    "workers_expected",
    "running_step",
    "executed",
    "failed",
    "missed",
    "last_step",
    "last_seconds",
    "last_error",
    "workers",
];

/// How far the ranks of a stream's run have come, and how fast: the furthest of those that their homes tell of.
fn note_progress(stream: &mut Value, progress: &[Value]) {
    let is_of_it = |told: &&Value| told["stream"] == stream["name"] && told["run"] == stream["run"];
    let of_it: Vec<&Value> = progress.iter().filter(is_of_it).collect();
    let step = of_it.iter().filter_map(|told| told["step"].as_u64()).max();
    let rates = of_it.iter().filter_map(|told| told["steps_per_second"].as_f64());
    stream["running_step"] = json!(step);
    stream["steps_per_second"] = json!(rates.reduce(f64::max));
    if let Some(step) = step {
        stream["reached"] = json!(stream["reached"].as_u64().map_or(step, |reached| reached.max(step)));
    }
}

/// Takes the members that the group has given up out of each server's answer, and returns those of the answer with the latest
/// epoch.
fn take_lost(servers: &mut [Value]) -> Value {
    let mut latest = (0, json!([]));
    for server in servers.iter_mut().filter_map(Value::as_object_mut) {
        let epoch = server.get("epoch").and_then(Value::as_u64).unwrap_or(0);
        if let Some(lost) = server.remove("lost").filter(|_| epoch >= latest.0) {
            latest = (epoch, lost);
        }
    }
    latest.1
}

/// The streams and pipelines of all servers beside what each says of itself.
fn gathered(mut servers: Vec<Value>) -> Value {
    let lost = take_lost(&mut servers);
    let (mut streams, mut pipelines, mut workers) = (Vec::new(), Vec::new(), Vec::new());
    let mut left_out = 0;
    for server in servers.iter_mut().filter_map(Value::as_object_mut) {
        let id = server.get("server").cloned().unwrap_or_default();
        let take = |told: Option<Value>, all: &mut Vec<Value>| {
            let Some(Value::Array(told)) = told else { return };
            all.extend(told.into_iter().map(|mut one| {
                one["server"] = id.clone();
                one
            }));
        };
        take(server.remove("streams"), &mut streams);
        let mut of_server = server.remove("pipelines").unwrap_or_default();
        take(Some(of_server["coordinated"].take()), &mut pipelines);
        take(Some(of_server["workers"].take()), &mut workers);
        left_out += server.remove("streams_left_out").and_then(|n| n.as_u64()).unwrap_or(0);
    }
    let mut progress = Vec::new();
    for server in servers.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(Value::Array(told)) = server.remove("progress") {
            progress.extend(told);
        }
    }
    streams.iter_mut().for_each(|stream| note_progress(stream, &progress));
    let known = |pipelines: &[Value], worker: &Value| {
        pipelines.iter().position(|pipeline| pipeline["name"] == worker["pipeline"])
    };
    let one_is_silent = servers.iter().any(|server| !server["error"].is_null());
    for worker in workers {
        let index = match known(&pipelines, &worker) {
            Some(index) => index,
            None if one_is_silent => {
                let error = "the server that coordinates it does not answer";
                pipelines.push(json!({ "name": worker["pipeline"], "error": error }));
                pipelines.len() - 1
            }
            // The pipeline has just begun or ended, between the answers of two servers.
            None => continue,
        };
        let of_it = &mut pipelines[index]["workers"];
        if of_it.is_null() {
            *of_it = json!([]);
        }
        of_it.as_array_mut().into_iter().for_each(|of_it| of_it.push(worker.clone()));
    }
    for pipeline in &mut pipelines {
        for member in PIPELINE {
            if pipeline[member].is_null() {
                pipeline[member] = Value::Null;
            }
        }
        if pipeline["workers"].is_null() {
            pipeline["workers"] = json!([]);
        }
    }
    for all in [&mut streams, &mut pipelines] {
        all.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    }
    json!({ "servers": servers, "lost": lost, "streams": streams, "streams_left_out": left_out, "pipelines": pipelines })
}
