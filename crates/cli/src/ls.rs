//! `forebay ls`: which streams there are, and which fields.

use crate::Common;
use crate::completion;
use crate::output::{self, Output, list, text};
use crate::status::{of_reachable, phase};
use clap_complete::ArgValueCompleter;
use forebay_client::{Admin, Error, Result, Space, SpaceArray, SpaceOptions};
use serde_json::{Value, json};
use std::process::ExitCode;

/// List streams, or the fields of one, or the space.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Ls {
    /// The stream; with --space the names of arrays, as in 'T*'
    #[arg(add = ArgValueCompleter::new(completion::streams))]
    stream: Option<String>,
    /// List the arrays that the space keeps
    #[arg(long)]
    space: bool,
}

pub(crate) fn ls(common: &Common, ls: &Ls, output: &Output) -> Result<ExitCode> {
    if ls.space {
        return ls_space(common, ls.stream.as_deref(), output);
    }
    let status = of_reachable(&Admin::open(&common.group_options()?)?, output)?;
    let streams = status["streams"].as_array().map_or(&[][..], Vec::as_slice);
    match &ls.stream {
        None => output.result(&json!(streams), |_| {
            let lines = |stream: &Value| {
                let title = format!("{} ({})", name(stream), phase(stream));
                [vec![title], attributes(&stream["attrs"]), left_out(stream)].concat()
            };
            streams.iter().flat_map(lines).collect()
        }),
        Some(wanted) => {
            let Some(stream) = streams.iter().find(|stream| name(stream) == *wanted) else {
                let known: Vec<&str> = streams.iter().map(name).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(Error::not_found(format!("there is no stream '{wanted}'; there are: {known}")));
            };
            let fields = stream["fields"].as_array().map_or(&[][..], Vec::as_slice);
            output.result(&stream["fields"], |_| [table(fields), left_out(stream)].concat());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the arrays of the space whose names match.
fn ls_space(common: &Common, pattern: Option<&str>, out: &Output) -> Result<ExitCode> {
    let options = SpaceOptions::new(common.group_options()?);
    let pattern = pattern.map(glob::Pattern::new).transpose();
    let pattern = pattern.map_err(|error| Error::invalid(format!("the pattern of names: {error}")))?;
    let matches = |name: &str| pattern.as_ref().is_none_or(|pattern| pattern.matches(name));
    let arrays: Vec<SpaceArray> =
        Space::open(&options)?.list()?.into_iter().filter(|array| matches(&array.field.name)).collect();
    let told: Vec<Value> = arrays.iter().map(SpaceArray::to_json).collect();
    out.result(&json!(told), |_| {
        let row = |array: &SpaceArray| {
            let SpaceArray { field, step, blocks, bytes } = array;
            let shape = field.shape.as_deref().unwrap_or_default();
            let shape = shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            [
                field.name.clone(),
                step.to_string(),
                field.dtype.to_string(),
                format!("({shape})"),
                blocks.to_string(),
                output::bytes(*bytes),
            ]
        };
        output::table(["ARRAY", "STEP", "DTYPE", "SHAPE", "BLOCKS", "SIZE"], arrays.iter().map(row))
    });
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn name(stream: &Value) -> &str {
    stream["name"].as_str().unwrap_or("")
}

/// Fields for people: one a line, with its attributes beneath.
fn table(fields: &[Value]) -> Vec<String> {
    let joined = |value: &Value, mark: &str| list(value).map(text).collect::<Vec<_>>().join(mark);
    let row = |field: &Value| {
        let shape = match &field["shape"] {
            Value::Null => format!("{}-d, unplaced", field["ndim"]),
            shape => format!("({})", joined(shape, ", ")),
        };
        [
            name(field).to_owned(),
            text(&field["dtype"]),
            shape,
            text(&field["every"]),
            joined(&field["dims"], ","),
            text(&field["units"]),
        ]
    };
    let header = ["FIELD", "DTYPE", "SHAPE", "EVERY", "DIMS", "UNITS"];
    let rows = output::table(header, fields.iter().map(row));
    let beneath = std::iter::once(Vec::new()).chain(fields.iter().map(|field| attributes(&field["attrs"])));
    rows.into_iter().zip(beneath).flat_map(|(row, attrs)| [vec![row], attrs].concat()).collect()
}

/// A note for people if a stream's fields and attributes had no room in the status.
fn left_out(stream: &Value) -> Vec<String> {
    let left_out = stream["details_left_out"].as_bool() == Some(true);
    let note =
        "  (its fields and attributes are not shown: those of all streams are too long for one status)";
    left_out.then(|| note.to_owned()).into_iter().collect()
}

/// Attributes for people, one a line and indented.
fn attributes(attrs: &Value) -> Vec<String> {
    const WIDTH: usize = 78;
    let line = |(key, value): (&String, &Value)| {
        let line = format!("  {key} = {value}");
        if line.chars().count() <= WIDTH {
            return line;
        }
        line.chars().take(WIDTH - 3).chain("...".chars()).collect()
    };
    attrs.as_object().into_iter().flatten().map(line).collect()
}
