//! Administration: status, pipelines, ending a group.

use crate::group::{Group, GroupOptions, look_again};
use crate::rpc::{Rpc, unexpected};
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_transport::group_file::ServerEntry;
use forebay_wire::message::{PipelineSpec, Role, ToClient, ToServer};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a pipeline's workers may take to start unless somebody says otherwise: importing a rendering
/// library takes seconds, and from a file system that many share, minutes.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// How long servers may take to tell their status unless somebody says otherwise. One that stands still never does.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

/// How long the connection file may take to tell of a server that has left.
const LEFT: Duration = Duration::from_secs(2);

/// Looks after a group.
#[derive(Debug)]
pub struct Admin {
    group: Group,
}

/// What a group knows of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPipeline {
    /// The stream that it runs on.
    pub stream: String,
    /// Whether ranks drive it, with a [`crate::PipelineHandle`].
    pub driven: bool,
}

impl Admin {
    /// Finds the group. Connects at each call.
    pub fn open(options: &GroupOptions) -> Result<Admin> {
        Ok(Admin { group: Group::find(options)? })
    }

    /// For a group that was found.
    pub(crate) fn of(group: Group) -> Admin {
        Admin { group }
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The status of the group: what each server says of itself, or why it cannot be reached, and the streams and
    /// pipelines of all, by name. `docs/status.md` describes the members. Waits for all servers, three seconds if no
    /// timeout was given.
    pub fn status(&self) -> Result<Value> {
        // Without it, of those that were known before.
        let _ = self.group.refresh();
        let known = self.group.known();
        let file = &known.file;
        let ids = file.servers.iter().map(|entry| entry.id);
        let patience = self.group.options().timeout.unwrap_or(STATUS_PATIENCE);
        let what = "to tell its status";
        let mut answers = self.group.ask_all_within(patience, ids, &ToServer::Status, what, |_| false)?;
        let mut servers = Vec::new();
        for entry in &file.servers {
            let missing = || Err(Error::not_found("it is listed twice"));
            let told = answers.remove(&entry.id).unwrap_or_else(missing).and_then(|answer| match answer {
                ToClient::Status(text) => serde_json::from_str::<Value>(&text)
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

    /// Creates a pipeline; waits until a worker on every server is ready. There is no such pipeline after an
    /// error, and neither after this wait was given up: its server notices that nobody waits any more.
    pub fn create_pipeline(&self, spec: &PipelineSpec) -> Result<()> {
        let patience = self.group.options().timeout.unwrap_or(START_PATIENCE);
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let create = ToServer::CreatePipeline { spec: spec.clone(), patience_ms };
        // The server knows more about what is missing: let it be the one that says so.
        let patience = patience.saturating_add(Duration::from_secs(1));
        let what = "to start a pipeline's workers";
        // Workers may take longer to start than servers to be found.
        let ask = |rpc: &Rpc, _| Ok(rpc.call_within(&create, None, patience, what)?.message);
        self.group.at_coordinator(&spec.stream, Instant::now() + self.group.limit(), ask).map(drop)
    }

    /// Finds a pipeline. Waits for the servers, with one deadline; for one only if that knows it.
    pub fn find_pipeline(&self, name: &str) -> Result<FoundPipeline> {
        let find = ToServer::FindPipeline { name: name.to_owned() };
        match self.ask_who_knows(name, &find, "to find a pipeline")? {
            ToClient::PipelineIs { stream, driven } => Ok(FoundPipeline { stream, driven }),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends a pipeline.
    pub fn destroy_pipeline(&self, name: &str) -> Result<()> {
        let destroy = ToServer::DestroyPipeline { name: name.to_owned() };
        self.ask_who_knows(name, &destroy, "to end a pipeline").map(drop)
    }

    /// The answer of a server that knows a pipeline.
    fn ask_who_knows(&self, name: &str, question: &ToServer, what: &str) -> Result<ToClient> {
        let _ = self.group.refresh();
        let members = self.group.known().view.members.clone();
        let answers = self.group.ask_all(members, question, what, Result::is_ok)?;
        let mut last = Error::not_found(format!("the group has no pipeline '{name}'"));
        for told in answers.into_values() {
            match told {
                Ok(answer) => return Ok(answer),
                // One that did not answer may be the one that knows it.
                Err(error) if last.kind == ErrorKind::NotFound || error.kind != ErrorKind::NotFound => {
                    last = error;
                }
                Err(_) => {}
            }
        }
        Err(match last.kind {
            ErrorKind::NotFound => self.no_pipeline(name),
            _ => last,
        })
    }

    /// The error for a pipeline that no server knows.
    fn no_pipeline(&self, name: &str) -> Error {
        let known = self.status().unwrap_or_default();
        let known =
            known["pipelines"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str());
        let known: Vec<&str> = known.collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::not_found(format!("there is no pipeline '{name}'; there are {known}"))
    }

    /// Has a server leave the group: its ranks, workers and steps go to the others, which answer for them from then on; then
    /// it ends. Waits until the group has agreed, no longer than the deadline; after an error the server stays. The last
    /// server that holds something is refused unless `discard`, which gives up what no other can hold.
    pub fn remove_server(&self, server: ServerId, discard: bool) -> Result<ServerId> {
        let _ = self.group.refresh();
        let known = self.group.known();
        if !known.view.members.contains(&server) {
            let names: Vec<String> = known.view.members.iter().map(ToString::to_string).collect();
            return Err(Error::not_found(format!(
                "the group has no {server}; there are {}",
                names.join(", ")
            )));
        }
        let patience = self.group.options().patience();
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let deadline = Instant::now() + patience;
        let rpc = self.group.connect(server, Role::Consumer)?;
        let leave = ToServer::LeaveGroup { discard, patience_ms };
        // The server says what it waited for.
        match rpc.call_within(
            &leave,
            None,
            patience.saturating_add(Duration::from_secs(1)),
            "to leave the group",
        ) {
            // It may end before its answer is sent.
            Err(error) if error.kind != ErrorKind::Unreachable => Err(error),
            answer => {
                let error = answer.err();
                let unanswered = error.is_some();
                let server = self.wait_until_left(server, error, deadline)?;
                match unanswered && self.was_given_up(server) {
                    true => Err(Error::new(
                        ErrorKind::Lost,
                        format!(
                            "the group has given up {server} before it could leave: what it alone held is lost, unless it \
                             comes back"
                        ),
                    )),
                    false => Ok(server),
                }
            }
        }
    }

    /// Whether a server is none any more since the others gave it up, as far as they say.
    fn was_given_up(&self, server: ServerId) -> bool {
        let lost = self.status().ok().and_then(|status| status["lost"].as_array().cloned());
        lost.into_iter().flatten().any(|lost| lost["server"] == server.0)
    }

    /// Waits until the connection file tells that a server has left.
    fn wait_until_left(&self, server: ServerId, error: Option<Error>, deadline: Instant) -> Result<ServerId> {
        let deadline = deadline.max(Instant::now() + LEFT);
        while self.group.refresh().is_ok() && self.group.known().view.members.contains(&server) {
            if Instant::now() >= deadline || blocking::interrupted() {
                let late =
                    || Error::timeout(format!("{server} has left, but the connection file does not tell so"));
                return Err(error.unwrap_or_else(late));
            }
            look_again();
        }
        Ok(server)
    }

    /// Goes on with those servers of the group that answer, where they are half of them or fewer and so cannot agree on
    /// that by themselves: returns them, and those that are given up. Only says which they are unless `force`. None of those
    /// given up may still run: what it acknowledges would be lost; one that is seen later comes back as a new member.
    pub fn heal(&self, force: bool) -> Result<(Vec<ServerId>, Vec<ServerId>)> {
        let _ = self.group.refresh();
        let members = self.group.known().view.members.clone();
        let answers = self.group.ask_all(members, &ToServer::Status, "to say that it is there", |_| false)?;
        let reach = |answer: &ToClient| match answer {
            ToClient::Status(text) => {
                serde_json::from_str::<Value>(text).ok()?["gone"].as_array().map(Vec::len)
            }
            _ => None,
        };
        let lost =
            answers.iter().filter_map(|(server, answer)| Some((reach(answer.as_ref().ok()?)?, *server)));
        // It goes on with those that it reaches: one that has lost others, which reach each other, is the last to ask.
        let one = lost.min().map(|(_, server)| server);
        let nobody = || Error::unreachable("no server of the group answers: `forebay up` starts a new group");
        let rpc = self.group.connect(one.ok_or_else(nobody)?, Role::Consumer)?;
        match rpc.call(&ToServer::Heal { force }, "to find out which servers are there")?.message {
            ToClient::Healed { kept, given_up } => Ok((kept, given_up)),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends every server of the group; tells how many. Servers that are gone already count as ended; one that
    /// does not answer is an error, after all others were told: those tell it, too, so that one which stands still ends when
    /// it goes on.
    pub fn shutdown(&self) -> Result<usize> {
        let _ = self.group.refresh();
        let known = self.group.known();
        let members = known.view.members.clone();
        let answers = self.group.ask_all(members, &ToServer::Shutdown, "to end", |_| false)?;
        let ended = answers.values().filter(|answer| answer.is_ok()).count();
        let failed = |(id, answer): (ServerId, Result<ToClient>)| Some((id, answer.err()?));
        let silent: Vec<(ServerId, Error)> = answers
            .into_iter()
            .filter_map(failed)
            .filter(|(_, error)| error.kind != ErrorKind::Unreachable)
            .collect();
        let Some((_, error)) = silent.first() else { return Ok(ended) };
        if ended == 0 {
            return Err(error.clone());
        }
        let is_silent = |server: &&ServerEntry| silent.iter().any(|(id, _)| *id == server.id);
        let servers = known.file.servers.iter().filter(is_silent);
        let names: Vec<String> =
            servers.map(|server| format!("{} (process {})", server.id, server.pid)).collect();
        let names = names.join(", ");
        Err(Error::new(
            error.kind,
            format!(
                "the deadline passed while waiting for {names} to end. The other servers end and tell so: each of these ends \
                 when it goes on; to end one now, kill its process"
            ),
        ))
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

/// Takes off each server's answer which members the group has given up, and returns what the one says that knows most.
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
            // It has just begun or ended, between the answers of two servers.
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
