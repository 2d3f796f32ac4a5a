//! What `forebay status` shows of one server, as JSON.

use crate::node::Node;
use forebay_core::attr::{Attr, AttrValues, Attrs};
use forebay_core::steps::StreamCoordinator;
use serde_json::{Value, json};
use std::fs;

impl Node {
    /// This server's part of the status.
    pub(crate) fn status(&self) -> Value {
        let state = self.state.lock();
        let usage = self.store.lock().usage();
        let streams: Vec<_> = state.coordinators.values().map(stream_status).collect();
        // A block that touches tiles of several owners is counted at each of them.
        let coordinated = state.coordinators.values().map(StreamCoordinator::directory_size);
        let parts = coordinated.chain([state.space.size(), state.directory.size()]);
        let (blocks, directory_bytes) = parts.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        json!({
            "server": self.id.0,
            "pid": std::process::id(),
            "epoch": self.view.epoch,
            "members": self.view.members.len(),
            "gone": state.gone.iter().map(|id| id.0).collect::<Vec<_>>(),
            "addresses": self.addresses,
            "uptime_seconds": self.started.elapsed().as_secs_f64(),
            "rss_bytes": resident_bytes(),
            "budget_bytes": usage.budget,
            "staged_bytes": usage.staged,
            "peak_staged_bytes": usage.peak,
            "arena_bytes": usage.touched,
            "directory_bytes": directory_bytes,
            "blocks": blocks,
            "held_records_bytes": state.directory.held_bytes(),
            "connections": state.connections,
            "streams": streams,
            "pipelines": state.pipelines.status(),
        })
    }
}

/// A stream, with the attributes of its latest run.
fn stream_status(stream: &StreamCoordinator) -> Value {
    let mut status = serde_json::to_value(stream.status()).unwrap_or_default();
    let none = Attrs::default();
    let attrs = stream.attrs().unwrap_or(&none);
    let of = |field: Option<&str>| {
        let shown = attrs.of(field).map(|(key, attr)| (key.to_owned(), shown(attr)));
        Value::Object(shown.collect())
    };
    status["attrs"] = of(None);
    status["field_attrs"] = Value::Object(attrs.fields().map(|f| (f.to_owned(), of(Some(f)))).collect());
    status
}

/// An attribute as JSON. What is not finite becomes text, since JSON has no number for it.
fn shown(attr: &Attr) -> Value {
    let number = |value: &f64| if value.is_finite() { json!(value) } else { json!(value.to_string()) };
    let mut values: Vec<Value> = match &attr.values {
        AttrValues::Bool(values) => values.iter().map(|value| json!(value)).collect(),
        AttrValues::Int(values) => values.iter().map(|value| json!(value)).collect(),
        AttrValues::Float(values) => values.iter().map(number).collect(),
        AttrValues::Text(values) => values.iter().map(|value| json!(value)).collect(),
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
