//! `forebay top`: streams, readers and servers, shown again and again, the busiest first.

use crate::Common;
use crate::duration::patience;
use crate::live::{Live, Next};
use crate::output::{Output, bytes};
use crate::status::rate;
use crate::table::Table;
use forebay_client::status::{GroupStatus, StreamStatus};
use forebay_client::{Admin, Result};
use std::cmp::Ordering;
use std::process::ExitCode;
use std::time::Duration;

/// Show what streams and servers do, again and again
///
/// On a terminal s chooses by what streams are sorted, r turns the order
/// around, q ends it. Elsewhere it prints a line for each stream.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Top {
    /// How long to wait before it is shown again [default: 1]
    #[arg(long, value_name = "DURATION", default_value = "1", hide_default_value = true, value_parser = patience)]
    every: Duration,
    /// How often to show it [default: until q or Ctrl-C]
    #[arg(long, value_name = "TIMES")]
    count: Option<u64>,
}

/// By what streams are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Rate,
    Held,
    Lag,
    Name,
}

impl Sort {
    fn next(self) -> Sort {
        match self {
            Sort::Rate => Sort::Held,
            Sort::Held => Sort::Lag,
            Sort::Lag => Sort::Name,
            Sort::Name => Sort::Rate,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Held => "bytes held",
            Sort::Lag => "lag",
            Sort::Name => "name",
        }
    }

    /// The order of two streams: the largest first, names as in a dictionary.
    fn order(self, a: &StreamStatus, b: &StreamStatus) -> Ordering {
        let by_size = match self {
            Sort::Rate => speed(b).total_cmp(&speed(a)),
            Sort::Held => b.held.bytes.cmp(&a.held.bytes),
            Sort::Lag => lag(b).cmp(&lag(a)),
            Sort::Name => Ordering::Equal,
        };
        by_size.then_with(|| a.name.cmp(&b.name))
    }
}

pub(crate) fn top(common: &Common, top: &Top, output: &Output) -> Result<ExitCode> {
    let admin = Admin::open(&common.group_options()?)?;
    let mut live = Live::new(output.is_json(), top.every);
    let (mut sort, mut turned, mut shown) = (Sort::Rate, false, 0);
    let mut last = admin.status()?;
    let mut trouble = None;
    loop {
        let mut streams: Vec<&StreamStatus> = last.streams.iter().collect();
        streams.sort_by(|a, b| sort.order(a, b));
        if turned {
            streams.reverse();
        }
        match (output.is_json(), live.has_screen()) {
            (true, _) => live.line(&last.to_json()),
            (false, true) => live.show(&screen(&last, &streams, sort, trouble.as_deref())),
            (false, false) => live.show(&streams.iter().map(|stream| plain(stream)).collect::<Vec<_>>()),
        }
        shown += 1;
        if top.count.is_some_and(|count| shown >= count) {
            return Ok(ExitCode::SUCCESS);
        }
        match live.wait() {
            Next::Over => return Ok(ExitCode::SUCCESS),
            Next::Key(b's') => sort = sort.next(),
            Next::Key(b'r') => turned = !turned,
            Next::Key(_) | Next::Again => {}
        }
        match admin.status() {
            Ok(status) => (last, trouble) = (status, None),
            Err(error) if live.has_screen() => trouble = Some(error.text),
            Err(error) => output.remark(&error.text),
        }
    }
}

fn speed(stream: &StreamStatus) -> f64 {
    stream.steps_per_second.unwrap_or(0.0)
}

/// How many closed steps wait for the slowest of its readers.
fn lag(stream: &StreamStatus) -> u64 {
    stream.readers.iter().map(|reader| reader.waiting).max().unwrap_or(0)
}

fn shown_step(step: Option<u64>) -> String {
    step.map_or("-".to_owned(), |step| step.to_string())
}

/// All that has room on a terminal.
fn screen(status: &GroupStatus, streams: &[&StreamStatus], sort: Sort, trouble: Option<&str>) -> Vec<String> {
    let of = |told: fn(&forebay_client::status::ServerStatus) -> Option<u64>| -> u64 {
        status.servers.iter().filter_map(told).sum()
    };
    let silent = status.servers.iter().filter(|server| server.error.is_some()).count();
    let count = status.servers.len();
    let mut head = format!(
        "{count} server{}, {} of {} staged",
        if count == 1 { "" } else { "s" },
        bytes(of(|server| server.staged_bytes)),
        bytes(of(|server| server.budget_bytes))
    );
    if silent > 0 {
        head += &format!(", {silent} do not answer");
    }
    let mut lines = vec![format!("{head}   (s: sorted by {}, r: turn around, q: end)", sort.name())];
    lines.extend(trouble.map(|trouble| format!("As it was last: {trouble}")));
    lines.push(String::new());
    let mut table =
        Table::new(["STREAM", "PHASE", ">STEP", ">RATE", ">HELD", ">DROPPED", ">READERS", ">LAG"]);
    for stream in streams {
        table.row([
            stream.name.clone(),
            stream.phase.clone(),
            shown_step(stream.running_step.or(stream.reached)),
            stream.steps_per_second.map_or("-".to_owned(), rate),
            bytes(stream.held.bytes),
            stream.steps.dropped.to_string(),
            stream.attached.to_string(),
            lag(stream).to_string(),
        ]);
    }
    lines.extend(table.lines());
    let pipelines = crate::status::pipelines(&status.pipelines);
    if !pipelines.is_empty() {
        lines.push(String::new());
        lines.extend(pipelines);
    }
    lines
}

/// A stream on one line, for a log.
fn plain(stream: &StreamStatus) -> String {
    format!(
        "{}: {}, step {}, {}, {} held, {} dropped, {} readers, lag {}",
        stream.name,
        stream.phase,
        shown_step(stream.running_step.or(stream.reached)),
        stream.steps_per_second.map_or("no rate".to_owned(), rate),
        bytes(stream.held.bytes),
        stream.steps.dropped,
        stream.attached,
        lag(stream)
    )
}
