//! `forebay ls`: which streams there are, and which fields.

use crate::Common;
use crate::output::{Output, list, text};
use crate::status::{of_reachable, phase};
use forebay_client::{Admin, Error, Result};
use serde_json::{Value, json};
use std::process::ExitCode;

/// List streams, or the fields of one.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Ls {
    /// The stream
    stream: Option<String>,
}

pub(crate) fn ls(common: &Common, ls: &Ls, output: &Output) -> Result<ExitCode> {
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
    let header = ["FIELD", "DTYPE", "SHAPE", "EVERY", "DIMS", "UNITS"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(header).chain(fields.iter().map(row)).collect();
    let widths: Vec<usize> =
        (0..6).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let beneath = std::iter::once(Vec::new()).chain(fields.iter().map(|field| attributes(&field["attrs"])));
    rows.iter().zip(beneath).flat_map(|(row, attrs)| [vec![line(row)], attrs].concat()).collect()
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
