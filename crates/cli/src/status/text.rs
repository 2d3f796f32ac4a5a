//! A status for people: tables of servers, streams with their readers, and pipelines.

use super::lost;
use crate::output::bytes;
use crate::table::Table;
use forebay_client::core::ids::Timestamp;
use forebay_client::status::{
    ConnectionStatus, FieldNeed, GroupStatus, PipelineStatus, ReaderStatus, ServerStatus, StreamStatus,
};

/// How many readers of a stream are shown.
const READERS_SHOWN: usize = 8;
/// How many handles that have names are shown of a server.
const HANDLES_SHOWN: usize = 8;
/// Beneath a table in which counts are marked.
const COUNTED: &str = "* since another server began to look after the stream";

/// All of it.
pub(super) fn lines(status: &GroupStatus) -> Vec<String> {
    let mut lines = servers(&status.servers);
    lines.extend(status.lost.iter().map(lost));
    lines.extend(remedy(status));
    for section in [streams(status), pipelines(&status.pipelines)] {
        if !section.is_empty() {
            lines.push(String::new());
            lines.extend(section);
        }
    }
    lines
}

/// A step's number, or a dash where there is none.
fn step(step: Option<u64>) -> String {
    step.map_or("-".to_owned(), |step| step.to_string())
}

/// What helps where too few servers answer for the group to go on.
fn remedy(status: &GroupStatus) -> Option<String> {
    let servers = status.servers.len();
    let silent = status.servers.iter().filter(|server| server.error.is_some()).count();
    let advice = if silent == servers {
        "No server answers. If the group is gone, start it again:\nforebay up"
    } else if 2 * silent >= servers {
        "Too few servers answer for the group to go on. If the others are gone for good:\nforebay heal --force"
    } else {
        return None;
    };
    Some(advice.into())
}

fn servers(servers: &[ServerStatus]) -> Vec<String> {
    // Of one version, they need not say it.
    let versions: Vec<&str> = servers.iter().filter_map(|server| server.version.as_deref()).collect();
    let differ = versions.iter().any(|version| *version != versions[0]);
    let mut table = Table::new(["SERVER", ">PROCESS", ">STAGED / BUDGET", ">PEAK", ">RSS"]);
    for server in servers {
        let name = format!("server{}", server.server);
        let pid = server.pid.to_string();
        if let Some(error) = &server.error {
            let none = String::new;
            table.row([name, pid, none(), none(), none()]);
            table.beneath([
                "    does not answer, so streams that it looks after are not shown:".to_owned(),
                format!("    {error}"),
            ]);
            continue;
        }
        let of = |told: Option<u64>| bytes(told.unwrap_or(0));
        let staged = format!("{} / {}", of(server.staged_bytes), of(server.budget_bytes));
        table.row([name, pid, staged, of(server.peak_staged_bytes), of(server.rss_bytes)]);
        let version = server.version.as_ref().filter(|_| differ);
        table.beneath(version.map(|version| format!("    version {version}")));
        // Readers are shown with their streams.
        let named = server.named.iter().flatten().filter(|named| named.role != "consumers");
        let named: Vec<String> = named.map(handle).collect();
        table.beneath(named.iter().take(HANDLES_SHOWN).cloned());
        let more = named.len().saturating_sub(HANDLES_SHOWN);
        table.beneath((more > 0).then(|| format!("    and {more} more handles with names")));
    }
    table.lines()
}

/// A handle that has a name and is connected to a server.
fn handle(named: &ConnectionStatus) -> String {
    let ConnectionStatus { role, name, host, pid } = named;
    let place = if host.is_empty() { String::new() } else { format!(" (process {pid} on {host})") };
    format!("    {} '{name}'{place}", role.strip_suffix('s').unwrap_or(role))
}

fn streams(status: &GroupStatus) -> Vec<String> {
    let mut table = Table::new([
        "STREAM", ">RUN", ">RANKS", ">CLOSED", ">DROPPED", ">TORN", ">LATEST", ">HELD", ">READERS",
    ]);
    for stream in &status.streams {
        table.row(counts(stream));
        let crash = stream.why.as_ref().filter(|_| stream.is_over());
        let why = crash.map(|why| format!(": {why}")).unwrap_or_default();
        table.beneath([format!("    {}{why}", phase(stream))]);
        table.beneath(stream.readers.iter().take(READERS_SHOWN).flat_map(reader));
        let more = stream.attached.saturating_sub(READERS_SHOWN as u64);
        table.beneath((more > 0).then(|| format!("    and {more} more readers")));
    }
    let mut lines = if status.streams.is_empty() { Vec::new() } else { table.lines() };
    lines.extend(status.streams.iter().any(is_counted_since).then(|| COUNTED.to_owned()));
    let left_out = status.streams_left_out;
    lines.extend((left_out > 0).then(|| format!("and {left_out} more streams")));
    lines
}

/// Whether its steps are counted only since another server had coordinated it.
fn is_counted_since(stream: &StreamStatus) -> bool {
    stream.counted_since_epoch > 0
}

/// Whether a stream is running or how it ended, since when, and how far it is.
pub(crate) fn phase(stream: &StreamStatus) -> String {
    let phase = if stream.phase.is_empty() { "unknown" } else { &stream.phase };
    let since = stream.since.map(|since| format!(" since {}", Timestamp((since * 1000.0) as u64)));
    let place = if phase == "finished" { "after" } else { "at" };
    let reached = stream.reached.map(|step| format!(", {place} step {step}"));
    let speed = stream.steps_per_second.filter(|_| phase == "running");
    let speed = speed.map(|speed| format!(", {}", rate(speed)));
    let awaited = stream.awaited_readers.map(|count| {
        let names = if count == 1 { "a reader with a name" } else { "readers with different names" };
        format!(", its first step waits for {names} ({count})")
    });
    let without = stream.why.as_ref().filter(|_| !stream.is_over());
    let without = without.map(|why| format!("; its steps are torn: {why}"));
    let parts = [since, reached, speed, awaited, without];
    parts.into_iter().flatten().fold(phase.to_owned(), |text, part| text + &part)
}

/// A rate for people: three digits that count.
pub(crate) fn rate(rate: f64) -> String {
    let rounded = match rate {
        100.0.. => format!("{rate:.0}"),
        10.0.. => format!("{rate:.1}"),
        _ => format!("{rate:.2}"),
    };
    format!("{rounded} steps/s")
}

/// A reader, for people: who it is, what it needs, and how it keeps up.
fn reader(reader: &ReaderStatus) -> Vec<String> {
    let named = reader.name.as_ref().map(|name| format!(" '{name}'")).unwrap_or_default();
    let pid = reader.pid.unwrap_or(0);
    let several = if reader.ranks > 1 { format!("{} readers, one is ", reader.ranks) } else { String::new() };
    let place = reader.host.as_ref().map(|host| format!(" ({several}process {pid} on {host})"));
    let every = |every: u64| if every == 1 { String::new() } else { format!(" every {every}") };
    let fields = reader.needs.fields.iter().flatten();
    let region = |need: &FieldNeed| need.region.as_deref().unwrap_or_default().to_owned();
    let fields: Vec<String> =
        fields.map(|need| format!("{}{}{}", need.field, region(need), every(need.every))).collect();
    let needs = match fields.is_empty() {
        true => format!("all fields{}", every(reader.needs.every.unwrap_or(1))),
        false => fields.join(", "),
    };
    let line = format!(
        "    {}{named}{}: {needs}; holds {} of {}, {} wait, {} missed, last {}",
        reader.kind,
        place.unwrap_or_default(),
        reader.held,
        reader.window,
        reader.waiting,
        reader.missed,
        step(reader.last)
    );
    let unmatched = reader.unmatched.as_ref().map(|text| format!("        {text}"));
    [Some(line), unmatched].into_iter().flatten().collect()
}

fn counts(stream: &StreamStatus) -> [String; 9] {
    let mark = if is_counted_since(stream) { "*" } else { "" };
    [
        stream.name.clone(),
        stream.run.to_string(),
        format!("{}/{}", stream.ranks.open, stream.ranks.size),
        format!("{}{mark}", stream.steps.closed),
        stream.steps.dropped.to_string(),
        stream.steps.torn.to_string(),
        step(stream.latest),
        bytes(stream.held.bytes),
        stream.attached.to_string(),
    ]
}

/// A table of pipelines; nothing if there are none.
pub(crate) fn pipelines(all: &[PipelineStatus]) -> Vec<String> {
    let mut table = Table::new([
        "PIPELINE",
        "STREAM",
        "STATE",
        ">WORKERS",
        ">EXECUTED",
        ">FAILED",
        ">MISSED",
        ">LATEST",
        ">SECONDS",
    ]);
    for pipeline in all {
        table.row(pipeline_row(pipeline));
        let why = pipeline.ended.as_ref().or(pipeline.error.as_ref());
        table.beneath(why.into_iter().flat_map(|why| indented(why)));
        if let (None, Some(error)) = (why, &pipeline.last_error) {
            let name = &pipeline.name;
            table.beneath([format!("  last error (see also `forebay pipeline log {name}`):")]);
            table.beneath(indented(error));
        }
    }
    if all.is_empty() { Vec::new() } else { table.lines() }
}

fn pipeline_row(pipeline: &PipelineStatus) -> [String; 9] {
    let ready = (pipeline.workers_ready.unwrap_or(0), pipeline.workers_expected.unwrap_or(0));
    let state = match pipeline {
        PipelineStatus { ended: Some(_), .. } => "ended",
        PipelineStatus { error: Some(_), .. } => "unknown",
        _ if ready.0 < ready.1 => "starting",
        PipelineStatus { running_step: None, .. } => "waiting",
        _ => "running",
    };
    let name = pipeline.name.clone();
    let stream = pipeline.stream.clone().unwrap_or_default();
    if pipeline.ended.is_some() || pipeline.error.is_some() {
        return std::array::from_fn(|column| match column {
            0 => name.clone(),
            1 => stream.clone(),
            2 => state.to_owned(),
            _ => String::new(),
        });
    }
    let count = |told: Option<u64>| told.unwrap_or(0).to_string();
    [
        name,
        stream,
        state.to_owned(),
        format!("{}/{}", ready.0, ready.1),
        count(pipeline.executed),
        count(pipeline.failed),
        count(pipeline.missed),
        step(pipeline.last_step),
        format!("{:.3}", pipeline.last_seconds.unwrap_or(0.0)),
    ]
}

fn indented(text: &str) -> Vec<String> {
    text.lines().map(|line| format!("    {line}")).collect()
}
