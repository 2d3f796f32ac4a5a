//! `forebay watch`: a line for each step of a stream.

use crate::Common;
use crate::completion;
use crate::live::Live;
use crate::output::{Output, bytes};
use clap_complete::ArgValueCompleter;
use forebay_client::core::contract::{Need, Needs, Statistics, Terms};
use forebay_client::core::stats::Stats;
use forebay_client::core::steps::Start;
use forebay_client::{Consumer, ConsumerOptions, Error, ErrorKind, Result, Step};
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Print a line for each step of a stream, as it is closed
///
/// With its number, its time, the seconds since the one before, its bytes, and
/// minimum, maximum and mean of each field. Ends with the run: exit status 0,
/// or 1 if it crashed; --timeout also bounds the wait for each step. It is a
/// reader for which the simulation counts its fields, and hands over nothing.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Watch {
    /// The stream, which may not exist yet
    #[arg(add = ArgValueCompleter::new(completion::streams))]
    stream: String,
    /// The fields [default: all]
    #[arg(add = ArgValueCompleter::new(completion::fields))]
    fields: Vec<String>,
    /// Only every so many of the steps
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    every: u32,
    /// End after so many steps
    #[arg(long, value_name = "STEPS")]
    count: Option<u64>,
    /// Go on with the next run when one ends
    #[arg(long)]
    follow: bool,
}

pub(crate) fn watch(common: &Common, watch: &Watch, output: &Output) -> Result<ExitCode> {
    let terms = Terms { statistics: Statistics::Alone, ..Terms::every(watch.every) };
    let need = |field: &String| Need { terms: terms.clone(), ..Need::new(field) };
    let consumer = Consumer::open(&ConsumerOptions {
        needs: match watch.fields.is_empty() {
            true => Needs::All(terms.clone()),
            false => Needs::Fields(watch.fields.iter().map(need).collect()),
        },
        start: Start::Next,
        follow: watch.follow,
        group: common.group_options()?,
        ..ConsumerOptions::new(&watch.stream)
    })?;
    let mut live = Live::lines(output.is_json());
    let (mut before, mut shown) = (None::<Instant>, 0);
    while watch.count.is_none_or(|count| shown < count) {
        let step = match consumer.next_step(common.timeout) {
            Ok(step) => step,
            Err(error) if error.kind == ErrorKind::Ended => {
                output.remark(&error.text);
                break;
            }
            Err(error) => return Err(late(error, watch)),
        };
        let now = Instant::now();
        let line = Line::of(&step, before.replace(now).map(|before| now - before))?;
        match output.is_json() {
            true => live.line(&line.to_json(&watch.stream)),
            false => live.show(&[line.to_text()]),
        }
        shown += 1;
        if live.is_broken() {
            break;
        }
    }
    consumer.close()?;
    Ok(ExitCode::SUCCESS)
}

/// The error of a watch that began after the end: what can be done here.
fn late(mut error: Error, watch: &Watch) -> Error {
    if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Crashed) && !watch.follow {
        error.text += ". Here --follow waits for its next run, and `forebay get` shows what is kept";
    }
    error
}

/// What is shown of a step.
struct Line {
    run: u64,
    number: u64,
    time: Option<f64>,
    since: Option<Duration>,
    missed: u64,
    torn: bool,
    fields: Vec<FieldLine>,
}

/// What is shown of a field at a step.
struct FieldLine {
    name: String,
    bytes: u64,
    /// Of dtypes that have an order.
    stats: Option<Stats>,
}

impl Line {
    fn of(step: &Step, since: Option<Duration>) -> Result<Line> {
        let report = step.report();
        let fields = report.fields.iter().map(|field| FieldLine::of(step, &field.field.name));
        Ok(Line {
            run: report.id.run,
            number: step.number(),
            time: Some(report.time).filter(|time| !time.is_nan()),
            since,
            missed: report.missed,
            torn: report.torn,
            fields: fields.collect::<Result<_>>()?,
        })
    }

    fn to_json(&self, stream: &str) -> Value {
        let fields: Map<String, Value> =
            self.fields.iter().map(|field| (field.name.clone(), field.to_json())).collect();
        json!({
            "stream": stream, "run": self.run, "step": self.number, "time": self.time,
            "seconds": self.since.map(|since| since.as_secs_f64()),
            "bytes": self.bytes(), "missed": self.missed, "torn": self.torn, "fields": fields,
        })
    }

    fn bytes(&self) -> u64 {
        self.fields.iter().map(|field| field.bytes).sum()
    }

    fn to_text(&self) -> String {
        let mut text = format!("step {}", self.number);
        if let Some(time) = self.time {
            text += &format!("  time {}", significant(time));
        }
        if let Some(since) = self.since {
            text += &format!("  +{:.3} s", since.as_secs_f64());
        }
        text += &format!("  {}", bytes(self.bytes()));
        if self.missed > 0 {
            text += &format!("  missed {}", self.missed);
        }
        if self.torn {
            text += "  torn";
        }
        for field in &self.fields {
            text += &format!("  {}", field.to_text());
        }
        text
    }
}

impl FieldLine {
    fn of(step: &Step, name: &str) -> Result<FieldLine> {
        let (field, stats) = (step.field(name)?, step.stats(name)?);
        let counted = stats.map_or(0, |stats| (stats.count + stats.nan) * field.dtype.size() as u64);
        Ok(FieldLine { name: name.to_owned(), bytes: field.bytes().unwrap_or(counted), stats })
    }

    fn to_json(&self) -> Value {
        let mut told = crate::summary::json(self.stats.as_ref());
        told["bytes"] = json!(self.bytes);
        told
    }

    fn to_text(&self) -> String {
        let mut text = self.name.clone();
        let Some(stats) = &self.stats else { return text };
        if stats.count > 0 {
            text += &format!(
                " min {} max {} mean {}",
                significant(stats.min()),
                significant(stats.max()),
                significant(stats.mean())
            );
        }
        if stats.nan > 0 {
            text += &format!(" ({} NaN)", stats.nan);
        }
        text
    }
}

/// A number for people: six digits that count.
pub(crate) fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-4..1e7).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    rounded.to_string()
}
