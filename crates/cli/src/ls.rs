//! `forebay ls`: which streams there are, which fields, and what is held of them.
//!
//! - [`held`]: what is held: the steps, and the blocks of the latest one;
//! - [`space`]: the arrays that the space keeps.

mod held;
mod space;

use crate::Common;
use crate::completion;
use crate::output::{Output, bytes};
use crate::status::{of_reachable, phase};
use crate::table::Table;
use crate::watch::significant;
use clap_complete::ArgValueCompleter;
use forebay_client::status::{FieldStatus, StreamStatus};
use forebay_client::{Admin, Error, Result};
use glob::Pattern;
use held::{HeldBlock, HeldField, HeldStep};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// List streams, the fields of some, or the space
///
/// What is held is looked at without a word to the simulation.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Ls {
    /// Streams, as in 'gray*', or fields of theirs, as in 'gray*/U'; with
    /// --space the names of arrays
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(completion::streams))]
    pattern: Option<String>,
    /// More of each: bytes, steps that are held, readers; of fields minimum and
    /// maximum at the latest step that is held (statistics of the producer, or
    /// else of fields of up to 64 MiB)
    #[arg(long, short)]
    long: bool,
    /// Attributes
    #[arg(long, short)]
    attributes: bool,
    /// Blocks of the latest step that is held: rank, server, box, bytes,
    /// minimum and maximum
    #[arg(long, short = 'D')]
    decomposition: bool,
    /// Steps that are held, and their times
    #[arg(long, short)]
    times: bool,
    /// List the arrays that the space keeps
    #[arg(long)]
    space: bool,
}

impl Ls {
    /// Whether what is held is to be shown.
    fn looks_at_data(&self) -> bool {
        self.decomposition || self.times || (self.long && self.pattern.is_some())
    }
}

/// A stream of which some fields are listed.
struct Listed<'a> {
    stream: &'a StreamStatus,
    fields: Vec<&'a FieldStatus>,
    /// Of the latest step that is held.
    latest: Option<HeldStep>,
    values: Vec<HeldField>,
    blocks: Vec<HeldBlock>,
    steps: Vec<HeldStep>,
}

pub(crate) fn ls(common: &Common, ls: &Ls, output: &Output) -> Result<ExitCode> {
    if ls.space {
        return space::list(common, ls.pattern.as_deref(), output);
    }
    let status = of_reachable(&Admin::open(&common.group_options()?)?, output)?;
    let mut listed = chosen(&status.streams, ls.pattern.as_deref())?;
    if ls.looks_at_data() {
        let members: Vec<u64> = status.servers.iter().map(|server| server.server).collect();
        for one in &mut listed {
            held::look(common, ls, &members, one)?;
        }
    }
    let is_one = ls.pattern.as_ref().is_some_and(|name| status.stream(name).is_some());
    let told = match (&listed[..], is_one) {
        ([one], true) if !ls.looks_at_data() => json!(one.fields),
        ([one], true) => json(one, ls),
        _ => Value::Array(listed.iter().map(|one| json(one, ls)).collect()),
    };
    output.result(&told, |_| match ls.pattern.is_none() && !ls.looks_at_data() {
        true => streams(&listed, ls),
        false => {
            let parts: Vec<Vec<String>> = listed.iter().map(|one| lines(one, ls, is_one)).collect();
            parts.join(&String::new())
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// The streams and fields that are named.
fn chosen<'a>(streams: &'a [StreamStatus], wanted: Option<&str>) -> Result<Vec<Listed<'a>>> {
    let listed = |stream: &'a StreamStatus, fields: Vec<&'a FieldStatus>| {
        let (latest, values, blocks, steps) = Default::default();
        Listed { stream, fields, latest, values, blocks, steps }
    };
    let whole = |stream: &'a StreamStatus| listed(stream, stream.fields.iter().collect());
    let Some(wanted) = wanted else { return Ok(streams.iter().map(whole).collect()) };
    if let Some(stream) = streams.iter().find(|stream| stream.name == wanted) {
        return Ok(vec![whole(stream)]);
    }
    let pattern = Pattern::new(wanted);
    let pattern = pattern.map_err(|error| Error::invalid(format!("'{wanted}' is no pattern: {error}")))?;
    let some = |stream: &'a StreamStatus| {
        if pattern.matches(&stream.name) {
            return Some(whole(stream));
        }
        let matches = |field: &&FieldStatus| pattern.matches(&format!("{}/{}", stream.name, field.name));
        let fields: Vec<&FieldStatus> = stream.fields.iter().filter(matches).collect();
        (!fields.is_empty()).then(|| listed(stream, fields))
    };
    let found: Vec<Listed<'a>> = streams.iter().filter_map(some).collect();
    if found.is_empty() {
        let known: Vec<&str> = streams.iter().map(|stream| &stream.name[..]).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        return Err(Error::not_found(format!("there is no stream '{wanted}'; there are: {known}")));
    }
    Ok(found)
}

/// Streams for people: one a line.
fn streams(listed: &[Listed<'_>], ls: &Ls) -> Vec<String> {
    let mut lines = Vec::new();
    if ls.long {
        let mut table = Table::new([
            "STREAM",
            "PHASE",
            ">STEPS HELD",
            ">LATEST",
            ">BYTES HELD",
            ">DROPPED",
            ">READERS",
            ">FIELDS",
        ]);
        for Listed { stream, .. } in listed {
            table.row([
                stream.name.clone(),
                stream.phase.clone(),
                stream.held.steps.to_string(),
                stream.latest.map_or("-".to_owned(), |step| step.to_string()),
                bytes(stream.held.bytes),
                stream.steps.dropped.to_string(),
                stream.attached.to_string(),
                stream.fields.len().to_string(),
            ]);
            table.beneath(attributes(&stream.attrs).into_iter().filter(|_| ls.attributes));
            table.beneath(left_out(stream));
        }
        return if listed.is_empty() { lines } else { table.lines() };
    }
    for Listed { stream, .. } in listed {
        lines.push(format!("{} ({})", stream.name, phase(stream)));
        lines.extend(attributes(&stream.attrs).into_iter().filter(|_| ls.attributes));
        lines.extend(left_out(stream));
    }
    lines
}

/// A stream with its fields, and with what is held of it.
fn lines(listed: &Listed<'_>, ls: &Ls, is_one: bool) -> Vec<String> {
    let Listed { stream, fields, latest, values, blocks, steps } = listed;
    let mut lines = Vec::new();
    if !is_one || ls.looks_at_data() {
        lines.push(format!("{} ({})", stream.name, phase(stream)));
    }
    if ls.long {
        let readers = format!("{} reader{}", stream.attached, if stream.attached == 1 { "" } else { "s" });
        let lost = |latest: &HeldStep| if latest.lost { ", of which a part is lost" } else { "" };
        let step = latest.as_ref().map(|latest| format!("; below, step {}{}", latest.number, lost(latest)));
        let (held, size) = (stream.held.steps, bytes(stream.held.bytes));
        let steps = if held == 1 { "step" } else { "steps" };
        lines.push(format!("{held} {steps} held, {size}, {readers}{}", step.unwrap_or_default()));
    }
    if ls.attributes {
        lines.extend(attributes(&stream.attrs));
    }
    lines.extend(field_table(fields, values, ls));
    if ls.times {
        let mut table = Table::new([">STEP", ">TIME", ">BYTES", ">BLOCKS", ""]);
        for step in steps {
            let marks = [(step.torn, "torn"), (step.lost, "lost")];
            let marks: Vec<&str> = marks.into_iter().filter(|mark| mark.0).map(|mark| mark.1).collect();
            let time = step.time.map_or("-".to_owned(), significant);
            let (size, blocks) = (bytes(step.bytes), step.blocks.to_string());
            table.row([step.number.to_string(), time, size, blocks, marks.join(", ")]);
        }
        lines.push(String::new());
        lines.extend(if steps.is_empty() { vec!["No step is held.".to_owned()] } else { table.lines() });
    }
    if ls.decomposition {
        lines.push(String::new());
        lines.extend(block_table(blocks));
    }
    lines.extend(left_out(stream));
    lines
}

/// Fields for people: one a line.
fn field_table(fields: &[&FieldStatus], values: &[HeldField], ls: &Ls) -> Vec<String> {
    let shape = |field: &FieldStatus| match &field.shape {
        None => format!("{}-d, unplaced", field.ndim),
        Some(shape) => format!("({})", joined(shape, ", ")),
    };
    let every = |field: &FieldStatus| match field.is_static {
        true => "static".to_owned(),
        false => field.every.to_string(),
    };
    if !ls.long {
        let mut table = Table::new(["FIELD", "DTYPE", "SHAPE", "EVERY", "DIMS", "UNITS"]);
        for field in fields {
            let (every, dims) = (every(field), field.dims.join(","));
            let (name, dtype) = (field.name.clone(), field.dtype.clone());
            table.row([name, dtype, shape(field), every, dims, field.units.clone()]);
            table.beneath(attributes(&field.attrs).into_iter().filter(|_| ls.attributes));
        }
        return table.lines();
    }
    let titles = ["FIELD", "DTYPE", "SHAPE", ">EVERY", "UNITS", ">BYTES", ">BLOCKS", ">MIN", ">MAX"];
    let mut table = Table::new(titles);
    for field in fields {
        let value = values.iter().find(|value| value.name == field.name);
        let number = |number: Option<f64>| number.map_or("-".to_owned(), significant);
        table.row([
            field.name.clone(),
            field.dtype.clone(),
            shape(field),
            every(field),
            field.units.clone(),
            value.map_or("-".to_owned(), |value| bytes(value.bytes)),
            value.map_or("-".to_owned(), |value| value.blocks.to_string()),
            number(value.and_then(|value| value.min)),
            number(value.and_then(|value| value.max)),
        ]);
        table.beneath(attributes(&field.attrs).into_iter().filter(|_| ls.attributes));
    }
    table.lines()
}

/// Blocks for people: one a line.
fn block_table(blocks: &[HeldBlock]) -> Vec<String> {
    if blocks.is_empty() {
        return vec!["No block of it is held.".to_owned()];
    }
    let mut table = Table::new(["FIELD", ">RANK", ">BLOCK", "SERVER", "BOX", ">BYTES", ">MIN", ">MAX"]);
    for block in blocks {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), significant);
        table.row([
            block.field.clone(),
            block.rank.to_string(),
            block.number.to_string(),
            format!("server{}", block.server),
            block.region(),
            bytes(block.bytes),
            number(block.min),
            number(block.max),
        ]);
    }
    table.lines()
}

fn joined(numbers: &[u64], mark: &str) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(mark)
}

/// A stream as programs get it.
fn json(listed: &Listed<'_>, ls: &Ls) -> Value {
    let mut told = json!(listed.stream);
    told["fields"] = json!(listed.fields);
    if ls.long {
        for field in told["fields"].as_array_mut().into_iter().flatten() {
            let name = field["name"].as_str().unwrap_or_default();
            let value = listed.values.iter().find(|value| value.name == name);
            field["latest"] = value.map_or(Value::Null, HeldField::to_json);
        }
    }
    if ls.times {
        told["held_steps"] = listed.steps.iter().map(HeldStep::to_json).collect();
    }
    if ls.decomposition {
        told["blocks"] = listed.blocks.iter().map(HeldBlock::to_json).collect();
    }
    told
}

/// A note for people if a stream's fields and attributes had no room in the status.
fn left_out(stream: &StreamStatus) -> Vec<String> {
    let note =
        "  (its fields and attributes are not shown: those of all streams are too long for one status)";
    stream.details_left_out.then(|| note.to_owned()).into_iter().collect()
}

/// Attributes for people, one a line and indented.
fn attributes(attrs: &Map<String, Value>) -> Vec<String> {
    const WIDTH: usize = 78;
    let line = |(key, value): (&String, &Value)| {
        let line = format!("  {key} = {value}");
        if line.chars().count() <= WIDTH {
            return line;
        }
        line.chars().take(WIDTH - 3).chain("...".chars()).collect()
    };
    attrs.iter().map(line).collect()
}
