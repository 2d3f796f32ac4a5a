//! What `forebay status` shows of one server, as JSON; in [`contracts`], what `forebay contracts` shows of a stream.

pub(crate) mod contracts;

use crate::node::{Components, Node};
use forebay_core::attr::{Attr, AttrValues, Attrs};
use forebay_core::contract::{Field, Need, Needs, Slices};
use forebay_core::roster::Lost;
use forebay_core::steps::{
    Policy, ReaderStatus, RunOutcome, StreamCoordinator, StreamPhase, StreamStatus, Take,
};
use forebay_query::SPACE;
use serde_json::{Value, json};
use std::fs;
use tokio::time::Instant;

/// How many bytes of JSON the fields and attributes of all streams may take: a status travels in one message.
const DETAILS_MAX: usize = 8 << 20;
/// How many readers of a stream are shown.
const READERS_MAX: usize = 1000;
/// How many bytes of JSON all else that is shown of streams may take.
const STREAMS_MAX: usize = 4 << 20;

impl Node {
    /// This server's part of the status.
    pub(crate) fn status(&self) -> Value {
        let state = self.state.lock();
        let standing = self.standing();
        let usage = self.store.lock().usage();
        let coordinated = state.coordination.all().filter(|(name, _)| *name != SPACE);
        let (streams, streams_left_out) = streams_status(coordinated.map(|(_, stream)| stream));
        // A block that touches tiles of several owners is counted at each of them.
        let coordinated =
            state.coordination.all().map(|(_, stream)| stream).map(StreamCoordinator::directory_size);
        let parts = coordinated.chain([state.space.size(), state.directory.owner.size()]);
        let (blocks, directory_bytes) = parts.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let (replicated, lacking) = state.replication.primary.status();
        json!({
            "server": self.id.0,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "epoch": standing.view.epoch,
            "members": standing.view.members.len(),
            "gone": standing.view.members.iter().filter(|id| state.common.members.is_gone(**id)).map(|id| id.0).collect::<Vec<_>>(),
            "lost": standing.roster.lost.iter().map(lost).collect::<Vec<_>>(),
            "addresses": self.addresses,
            "silence_seconds": self.silence.as_secs_f64(),
            "encrypts_bulk_data": self.seal_payload,
            "uptime_seconds": self.started.elapsed().as_secs_f64(),
            "rss_bytes": resident_bytes(),
            "budget_bytes": usage.budget,
            "staged_bytes": usage.staged,
            "peak_staged_bytes": usage.peak,
            "arena_bytes": usage.touched,
            "directory_bytes": directory_bytes,
            "blocks": blocks,
            "held_records_bytes": state.directory.holder.bytes(),
            "replicated_steps": replicated,
            "steps_lacking_copies": lacking,
            "backup_steps": state.replication.backups.len(),
            "connections": state.connections.counts(),
            "named": state.connections.named(),
            "progress": progress(&state),
            "streams": streams,
            "streams_left_out": streams_left_out,
            "pipelines": state.pipelines.status(|stream, run, step| {
                state.coordination.get(stream).is_some_and(|coordinator| coordinator.has_step(run, step))
            }),
        })
    }
}

impl Node {
    /// Looks how far the ranks whose home this server is have come.
    pub(crate) fn look_at_progress(&self) {
        let mut state = self.state.lock();
        let begun = state.ranks.begun();
        state.progress.look(Instant::now(), begun);
    }
}

/// How far the ranks whose home this server is have come, of each run, and how fast.
fn progress(state: &Components) -> Vec<Value> {
    let now = Instant::now();
    let shown = state.ranks.begun().into_iter().map(|(key, step)| {
        let rate = state.progress.rate(&key, now, step);
        let (stream, run) = key;
        json!({ "stream": stream, "run": run, "step": step, "steps_per_second": rate })
    });
    shown.collect()
}

/// A consumer or a pipeline.
fn reader_status(reader: &ReaderStatus) -> Value {
    let ReaderStatus { needs, take, window, held, waiting, missed, last, unmatched, .. } = reader;
    let mut told = who(reader);
    told["needs"] = needed(needs);
    told["take"] = json!(if *take == Take::Latest { "latest" } else { "all" });
    told["window"] = json!(window);
    told["held"] = json!(held);
    told["waiting"] = json!(waiting);
    told["missed"] = json!(missed);
    told["last"] = json!(last.map(|(_, step)| step));
    told["unmatched"] = json!(unmatched);
    told
}

/// A contract as it was given.
fn needed(needs: &Needs) -> Value {
    let of = |need: &Need| {
        json!({
            "field": need.field,
            "every": need.terms.period.every,
            "first": need.terms.period.first,
            "region": need.terms.part.as_ref().map(Slices::to_string),
            "optional": need.optional,
        })
    };
    match needs {
        Needs::All(terms) => json!({ "every": terms.period.every }),
        Needs::Fields(fields) => json!({ "fields": fields.iter().map(of).collect::<Vec<_>>() }),
    }
}

/// Which consumer or pipeline it is.
fn who(reader: &ReaderStatus) -> Value {
    let who = reader.who.as_ref();
    json!({
        "kind": match who {
            Some(_) => "consumer",
            None if reader.is_of_subscriptions => "subscriptions",
            None => "pipeline",
        },
        "name": who.and_then(|who| who.name.clone()).or(reader.pipeline.clone()),
        "host": who.map(|who| &who.host),
        "pid": who.map(|who| who.pid),
        "ranks": reader.ranks,
        "server": reader.server.0,
    })
}

/// A member that was given up.
fn lost(lost: &Lost) -> Value {
    json!({ "server": lost.id.0, "pid": lost.pid, "epoch": lost.epoch, "back_as": lost.back_as.map(|id| id.0) })
}

/// What is shown of streams, by name, and how many are left out. Those in use come first where not all has room; of
/// the others, first the fields and attributes go.
fn streams_status<'a>(streams: impl Iterator<Item = &'a StreamCoordinator>) -> (Vec<Value>, usize) {
    let (idle, used): (Vec<_>, Vec<_>) = streams.partition(|stream| stream.is_idle());
    let (mut details_room, mut room) = (DETAILS_MAX, STREAMS_MAX);
    let (mut shown, mut left_out) = (Vec::new(), 0);
    for stream in used.into_iter().chain(idle) {
        let mut status = stream_status(stream);
        let details = ["fields", "attrs"].map(|key| (key, status[key].take()));
        let Some(left) = room.checked_sub(status.to_string().len()) else {
            left_out += 1;
            continue;
        };
        room = left;
        let bytes = details.iter().map(|(_, value)| value.to_string().len()).sum();
        let shows_details = details_room.checked_sub(bytes);
        details_room = shows_details.unwrap_or(details_room);
        for (key, value) in details {
            status[key] = match (shows_details, value) {
                (Some(_), value) => value,
                (None, Value::Array(_)) => json!([]),
                (None, _) => json!({}),
            };
        }
        status["details_left_out"] = json!(shows_details.is_none());
        shown.push(status);
    }
    shown.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    (shown, left_out)
}

/// A stream, with the fields and the attributes of its latest run.
fn stream_status(stream: &StreamCoordinator) -> Value {
    let StreamStatus {
        name,
        run,
        ranks,
        steps,
        counted_since,
        latest,
        last_closed,
        held_steps,
        held,
        readers,
        policy,
        phase,
        reached,
    } = stream.status();
    let policy = policy.map(|policy| match policy {
        Policy::DropOldest => "drop-oldest",
        Policy::Block => "block",
        Policy::Latest => "latest",
    });
    let (phase, since, why) = match &phase {
        StreamPhase::Awaited => ("awaited", None, None),
        StreamPhase::Running(since, without) => ("running", Some(since.0), without.clone()),
        StreamPhase::Over(summary) => match &summary.outcome {
            RunOutcome::Finished => ("finished", Some(summary.at.0), None),
            RunOutcome::Crashed(why) => ("crashed", Some(summary.at.0), Some(why.clone())),
        },
    };
    let none = Attrs::default();
    let attrs = stream.attrs().unwrap_or(&none);
    let of = |field: Option<&str>| {
        let shown = attrs.of(field).map(|(key, attr)| (key.to_owned(), shown(attr)));
        Value::Object(shown.collect())
    };
    let field = |field: &Field| {
        json!({
            "name": field.name,
            "dtype": field.dtype.name(),
            "shape": field.shape.as_deref(),
            "ndim": field.ndim,
            "static": field.is_static,
            "every": field.every,
            "dims": field.dims,
            "units": field.units,
            "attrs": of(Some(&field.name)),
        })
    };
    json!({
        "name": name,
        "run": run,
        "ranks": { "size": ranks.0, "open": ranks.1 },
        "steps": { "closed": steps.closed, "dropped": steps.dropped, "torn": steps.torn },
        "counted_since_epoch": counted_since,
        "latest": latest,
        "last_closed": last_closed,
        "held": { "steps": held_steps, "bytes": held.0, "blocks": held.1 },
        "attached": readers.len(),
        "readers": readers.iter().take(READERS_MAX).map(reader_status).collect::<Vec<_>>(),
        "policy": policy,
        "awaited_readers": stream.awaited_readers(),
        "phase": phase,
        "since": since.filter(|since| *since > 0).map(|since| since as f64 / 1000.0),
        "reached": reached,
        "why": why,
        "fields": stream.contract().map(field).collect::<Vec<_>>(),
        "attrs": of(None),
    })
}

/// An attribute as JSON. What is not finite becomes text, since JSON has no number for it.
fn shown(attr: &Attr) -> Value {
    let number = |value: &f64| if value.is_finite() { json!(value) } else { json!(value.to_string()) };
    let mut values: Vec<Value> = match &attr.values {
        AttrValues::Bool(values) => values.iter().map(|value| json!(value)).collect(),
        AttrValues::Int(values) => values.iter().map(|value| json!(value)).collect(),
        AttrValues::Float(values) => values.iter().map(number).collect(),
        AttrValues::Text(values) => values.iter().map(|value| json!(value)).collect(),
        AttrValues::Unsigned(values) => values.iter().map(|value| json!(value)).collect(),
        AttrValues::Complex(values) => {
            values.iter().map(|[re, im]| json!({"real": number(re), "imag": number(im)})).collect()
        }
    };
    if attr.list { Value::Array(values) } else { values.pop().unwrap_or_default() }
}

/// What this process itself occupies: its anonymous memory, without the arenas that it has mapped.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    1024 * (kib("RssAnon:").unwrap_or(0) + kib("RssFile:").unwrap_or(0))
}
