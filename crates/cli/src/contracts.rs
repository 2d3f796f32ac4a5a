//! `forebay contracts`: what a stream offers, and what of it each reader needs.

use crate::Common;
use crate::completion;
use crate::output::{Output, bytes};
use crate::table::Table;
use clap_complete::ArgValueCompleter;
use forebay_client::status::{FieldMatch, ReaderContract, StreamContracts};
use forebay_client::{Admin, Result};
use std::process::ExitCode;

/// Show what a stream offers, and what of it each reader needs
///
/// Steps are numbers of the simulation: FROM is the first, APART how far two
/// are from each other.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Contracts {
    /// The stream
    #[arg(add = ArgValueCompleter::new(completion::streams))]
    stream: String,
}

pub(crate) fn contracts(common: &Common, contracts: &Contracts, output: &Output) -> Result<ExitCode> {
    let told = Admin::open(&common.group_options()?)?.contracts(&contracts.stream)?;
    output.result(&told.to_json(), |_| lines(&told));
    Ok(ExitCode::SUCCESS)
}

fn lines(told: &StreamContracts) -> Vec<String> {
    let run = told.run.map_or(" has had no run yet".to_owned(), |run| format!(", run {run}"));
    let closed = told.last_closed.map(|step| format!(", closed up to step {step}"));
    let mut lines = vec![format!("{}{run}{}", told.stream, closed.unwrap_or_default())];
    if !told.fields.is_empty() {
        lines.push(String::new());
        lines.extend(offered(told));
    }
    for reader in &told.readers {
        lines.push(String::new());
        lines.extend(reader_lines(reader));
    }
    if told.readers_left_out > 0 {
        lines.extend([String::new(), format!("and {} more readers", told.readers_left_out)]);
    }
    if told.readers.is_empty() {
        lines.extend([String::new(), "Nobody is attached.".to_owned()]);
    }
    lines
}

/// What is offered, and what is staged of it for all together.
fn offered(told: &StreamContracts) -> Vec<String> {
    let titles = ["FIELD", "DTYPE", ">FROM", ">APART", ">BYTES", ">READERS", ">LAST STAGED", ">BYTES"];
    let mut table = Table::new(titles);
    for field in &told.fields {
        table.row([
            field.field.clone(),
            field.dtype.clone(),
            if field.is_static { "static".to_owned() } else { number(field.first) },
            number(field.apart),
            size(field.bytes),
            field.readers.to_string(),
            number(field.last_staged),
            size(field.staged_bytes),
        ]);
    }
    table.lines()
}

fn reader_lines(reader: &ReaderContract) -> Vec<String> {
    let mut lines = vec![format!("{} needs", identity(reader))];
    if !reader.matches.is_empty() {
        let mut table = Table::new(["  FIELD", ">EVERY", ">FROM", ">APART", "PART", ">BYTES", ">LAST"]);
        reader.matches.iter().for_each(|found| table.row(row(found)));
        lines.extend(table.lines());
    }
    let every = reader.needs.every.filter(|_| reader.matches.is_empty());
    lines.extend(every.map(|every| match every {
        1 => "  all fields; none is offered yet".to_owned(),
        every => format!("  every {every}. step of all fields; none is offered yet"),
    }));
    if !reader.missing.is_empty() {
        let and = if reader.matches.is_empty() { "" } else { "and " };
        lines.push(format!("  {and}{}, which are not offered", reader.missing.join(", ")));
    }
    lines.extend(reader.unmatched.as_ref().map(|text| format!("  {text}")));
    lines
}

/// Who reads; of several that read as one, how many, and one of them.
fn identity(reader: &ReaderContract) -> String {
    let named = reader.name.as_ref().map(|name| format!(" '{name}'")).unwrap_or_default();
    let pid = reader.pid.unwrap_or(0);
    let several = if reader.ranks > 1 { format!("{} readers, one is ", reader.ranks) } else { String::new() };
    let place = reader.host.as_ref().map(|host| format!(" ({several}process {pid} on {host})"));
    format!("{}{named}{}", reader.kind, place.unwrap_or_default())
}

fn row(found: &FieldMatch) -> [String; 7] {
    let part = found.region.clone().unwrap_or_else(|| "all".to_owned());
    [
        format!("  {}", found.field),
        if found.is_static { "static".to_owned() } else { found.every.to_string() },
        number(found.first),
        number(found.apart),
        match found.statistics.as_deref() {
            Some("alone") => "statistics".to_owned(),
            Some(_) => format!("{part}, statistics"),
            None => part,
        },
        size(found.bytes),
        number(found.last),
    ]
}

fn number(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

fn size(size: Option<u64>) -> String {
    size.map_or("-".to_owned(), bytes)
}
