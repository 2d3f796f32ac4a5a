//! What `forebay status` shows of one server, as JSON.

use crate::node::Node;
use forebay_core::steps::StreamCoordinator;
use serde_json::{Value, json};
use std::fs;

impl Node {
    /// This server's part of the status.
    pub(crate) fn status(&self) -> Value {
        let state = self.state.lock();
        let usage = self.store.lock().usage();
        let streams: Vec<_> = state
            .coordinators
            .values()
            .map(|stream| serde_json::to_value(stream.status()).unwrap_or_default())
            .collect();
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

/// What this process itself occupies: its anonymous memory, without the arenas that it has mapped.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    1024 * (kib("RssAnon:").unwrap_or(0) + kib("RssFile:").unwrap_or(0))
}
