//! `forebay status`.

use crate::output::{Output, bytes, list};
use crate::{Common, UNREACHED};
use forebay_client::core::ids::Timestamp;
use forebay_client::{Admin, Error, Result};
use serde_json::Value;
use std::process::ExitCode;

pub(crate) fn status(common: &Common, output: &Output) -> Result<ExitCode> {
    let status = Admin::open(&common.group_options()?)?.status()?;
    output.result(&status, text);
    let silent = list(&status["servers"]).all(|server| !server["error"].is_null());
    Ok(if silent { UNREACHED.into() } else { ExitCode::SUCCESS })
}

/// The status of those servers that answer. The others are named on standard error: what they coordinate is not in
/// it. An error if none answers.
pub(crate) fn of_reachable(admin: &Admin, output: &Output) -> Result<Value> {
    let status = admin.status()?;
    let silent: Vec<String> = list(&status["servers"]).filter_map(silence).collect();
    if silent.len() == list(&status["servers"]).count() {
        return Err(Error::unreachable(format!("no server of the group answers: {}", silent.join("; "))));
    }
    for server in list(&status["lost"]) {
        output.remark(&lost(server));
    }
    for server in silent {
        output.remark(&format!("{server}; streams and pipelines that it coordinates are not known"));
    }
    Ok(status)
}

/// That the group has given up a server.
fn lost(server: &Value) -> String {
    let name = format!("server{} (process {})", number(&server["server"]), number(&server["pid"]));
    match server["back_as"].as_u64() {
        Some(id) => format!("{name} was given up, and has come back as server{id}"),
        None => format!("{name} was lost, with what only it held"),
    }
}

/// That a server does not answer, and why, if it is so.
fn silence(server: &Value) -> Option<String> {
    let error = server["error"].as_str()?;
    Some(format!(
        "server{} (process {}) does not answer: {error}",
        number(&server["server"]),
        number(&server["pid"])
    ))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// A step's number, or a dash where there is none.
fn step(value: &Value) -> String {
    value.as_u64().map_or("-".to_owned(), |step| step.to_string())
}

const SERVERS: &str = "SERVER     PROCESS        STAGED / BUDGET        PEAK         RSS";
const STREAMS: &str = "STREAM            RUN   RANKS    CLOSED DROPPED  TORN  LATEST       HELD READERS";
/// Beneath a table in which counts are marked.
const COUNTED: &str = "* since another server began to look after the stream";
const PIPELINES: &str = "PIPELINE     STREAM       STATE    WORKERS EXECUTED FAILED MISSED LATEST SECONDS";

/// What helps where too few servers answer for the group to go on.
fn remedy(status: &Value) -> Option<String> {
    let servers = list(&status["servers"]).count();
    let silent = list(&status["servers"]).filter(|server| !server["error"].is_null()).count();
    let advice = if silent == servers {
        "No server answers. If the group is gone, start it again:\nforebay up"
    } else if 2 * silent >= servers {
        "Too few servers answer for the group to go on. If the others are gone for good:\nforebay heal --force"
    } else {
        return None;
    };
    Some(advice.into())
}

fn text(status: &Value) -> Vec<String> {
    let mut lines = vec![SERVERS.to_owned()];
    lines.extend(list(&status["servers"]).flat_map(server));
    lines.extend(list(&status["lost"]).map(lost));
    lines.extend(remedy(status));
    let mut section = |header: &str, rows: Vec<String>| {
        if !rows.is_empty() {
            lines.extend([String::new(), header.to_owned()]);
            lines.extend(rows);
        }
    };
    let mut streams: Vec<String> = list(&status["streams"]).flat_map(stream).collect();
    if list(&status["streams"]).any(is_counted_since) {
        streams.push(COUNTED.to_owned());
    }
    let left_out = number(&status["streams_left_out"]);
    if left_out > 0 {
        streams.push(format!("and {left_out} more streams"));
    }
    section(STREAMS, streams);
    section(PIPELINES, list(&status["pipelines"]).flat_map(pipeline).collect());
    lines
}

/// A table of pipelines; nothing if there are none.
pub(crate) fn pipelines(all: &[Value]) -> Vec<String> {
    let header = (!all.is_empty()).then(|| PIPELINES.to_owned());
    header.into_iter().chain(all.iter().flat_map(pipeline)).collect()
}

fn server(server: &Value) -> Vec<String> {
    let name = format!("server{}", number(&server["server"]));
    let pid = number(&server["pid"]);
    if let Some(error) = server["error"].as_str() {
        return vec![
            format!("{name:<9} {pid:>8} does not answer, so streams that it looks after are not shown:"),
            format!("    {error}"),
        ];
    }
    let staged =
        format!("{} / {}", bytes(number(&server["staged_bytes"])), bytes(number(&server["budget_bytes"])));
    let (peak, rss) = (bytes(number(&server["peak_staged_bytes"])), bytes(number(&server["rss_bytes"])));
    vec![format!("{name:<9} {pid:>8} {staged:>22} {peak:>11} {rss:>11}")]
}

/// Whether its steps are counted only since another server had coordinated it.
fn is_counted_since(stream: &Value) -> bool {
    number(&stream["counted_since_epoch"]) > 0
}

/// Whether a stream is running or how it ended, since when, and how far it is.
pub(crate) fn phase(stream: &Value) -> String {
    let phase = stream["phase"].as_str().unwrap_or("unknown");
    let since =
        stream["since"].as_f64().map(|since| format!(" since {}", Timestamp((since * 1000.0) as u64)));
    let place = if phase == "finished" { "after" } else { "at" };
    let reached = stream["reached"].as_u64().map(|step| format!(", {place} step {step}"));
    let rate = stream["steps_per_second"].as_f64().filter(|_| phase == "running");
    let rate = rate.map(|rate| format!(", {} steps/s", rounded(rate)));
    format!("{phase}{}{}{}", since.unwrap_or_default(), reached.unwrap_or_default(), rate.unwrap_or_default())
}

/// A rate for people: three digits that count.
fn rounded(rate: f64) -> String {
    match rate {
        100.0.. => format!("{rate:.0}"),
        10.0.. => format!("{rate:.1}"),
        _ => format!("{rate:.2}"),
    }
}

/// A reader, for people: who it is, what it needs, and how it keeps up.
fn reader(reader: &Value) -> String {
    let named = reader["name"].as_str().map(|name| format!(" '{name}'")).unwrap_or_default();
    let place =
        reader["host"].as_str().map(|host| format!(" (process {} on {host})", number(&reader["pid"])));
    let every = |every: &Value| match number(every) {
        1 => String::new(),
        every => format!(" every {every}"),
    };
    let needs = &reader["needs"];
    let fields: Vec<String> = list(&needs["fields"])
        .map(|need| format!("{}{}", word(&need["field"]), every(&need["every"])))
        .collect();
    let needs =
        if fields.is_empty() { format!("all fields{}", every(&needs["every"])) } else { fields.join(", ") };
    format!(
        "    {}{named}{}: {needs}; holds {} of {}, {} wait, {} missed, last {}",
        word(&reader["kind"]),
        place.unwrap_or_default(),
        number(&reader["held"]),
        number(&reader["window"]),
        number(&reader["waiting"]),
        number(&reader["missed"]),
        step(&reader["last"])
    )
}

/// A stream, and beneath it whether it runs or how it ended.
fn stream(stream: &Value) -> Vec<String> {
    let why = stream["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    let about = [counts(stream), format!("    {}{why}", phase(stream))];
    about
        .into_iter()
        .chain(list(&stream["readers"]).take(READERS_SHOWN).map(reader))
        .chain(unseen(stream))
        .collect()
}

/// How many readers of a stream are shown to people.
const READERS_SHOWN: usize = 8;

/// That there are more readers than are shown.
fn unseen(stream: &Value) -> Option<String> {
    let more = number(&stream["attached"]).saturating_sub(READERS_SHOWN as u64);
    (more > 0).then(|| format!("    and {more} more readers"))
}

fn counts(stream: &Value) -> String {
    let ranks = format!("{}/{}", number(&stream["ranks"]["open"]), number(&stream["ranks"]["size"]));
    let mark = if is_counted_since(stream) { "*" } else { "" };
    format!(
        "{:<16} {:>4} {ranks:>7} {:>9} {:>7} {:>5} {:>7} {:>10} {:>7}",
        word(&stream["name"]),
        number(&stream["run"]),
        format!("{}{mark}", number(&stream["steps"]["closed"])),
        number(&stream["steps"]["dropped"]),
        number(&stream["steps"]["torn"]),
        step(&stream["latest"]),
        bytes(number(&stream["held"]["bytes"])),
        number(&stream["attached"])
    )
}

/// A pipeline, and beneath it the last error of its code, or why it has ended.
fn pipeline(pipeline: &Value) -> Vec<String> {
    let (name, on) = (word(&pipeline["name"]), word(&pipeline["stream"]));
    if let Some(error) = pipeline["ended"].as_str() {
        return [vec![format!("{name:<12} {on:<12} ended")], indented(error)].concat();
    }
    if let Some(error) = pipeline["error"].as_str() {
        return [vec![format!("{name:<12} {on:<12} unknown")], indented(error)].concat();
    }
    let (ready, expected) = (number(&pipeline["workers_ready"]), number(&pipeline["workers_expected"]));
    let state = match (ready < expected, pipeline["running_step"].is_null()) {
        (true, _) => "starting",
        (_, true) => "waiting",
        (_, false) => "running",
    };
    let row = format!(
        "{name:<12} {on:<12} {state:<8} {:>7} {:>8} {:>6} {:>6} {:>6} {:>7.3}",
        format!("{ready}/{expected}"),
        number(&pipeline["executed"]),
        number(&pipeline["failed"]),
        number(&pipeline["missed"]),
        step(&pipeline["last_step"]),
        pipeline["last_seconds"].as_f64().unwrap_or(0.0)
    );
    let error = pipeline["last_error"].as_str().map(|error| {
        let hint = format!("  last error (see also `forebay pipeline log {name}`):");
        [vec![hint], indented(error)].concat()
    });
    [vec![row], error.unwrap_or_default()].concat()
}

fn indented(text: &str) -> Vec<String> {
    text.lines().map(|line| format!("    {line}")).collect()
}
