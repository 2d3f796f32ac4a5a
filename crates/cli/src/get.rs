//! `forebay get`: fields of steps, from the command line.
//!
//! - [`find`]: the steps that are asked for;
//! - [`region`]: the part of a field;
//! - [`values`]: elements, as JSON and for people;
//! - [`format`]: what is written, and where.

mod find;
mod format;
mod region;
mod values;

use crate::Common;
use crate::completion;
use crate::output::Output;
use clap_complete::ArgValueCompleter;
pub(crate) use find::{StepChoice, Wanted, each};
use forebay_client::core::dtype::Dtype;
use forebay_client::store::strided::Target;
use forebay_client::{Error, ErrorKind, Result, Selection, Step};
use format::Format;
use std::path::PathBuf;
use std::process::ExitCode;

/// Read fields of one step, or of several: prints them, or writes a file
///
/// On a terminal long arrays are shortened; --format text prints all of them.
/// With --json complex numbers are pairs, and what JSON has no numbers for is
/// text: "inf", "-inf", "nan".
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Get {
    /// The stream
    #[arg(add = ArgValueCompleter::new(completion::streams))]
    stream: String,
    /// The fields
    #[arg(required = true, value_name = "FIELD", add = ArgValueCompleter::new(completion::fields))]
    fields: Vec<String>,
    /// Which step: its number, or oldest, latest or next, or several of those
    /// that are held, as A:B or A:B:STEP, without B. A number that has not come
    /// yet is waited for, and so is next; if no step is held, oldest and latest
    /// are the next one
    #[arg(long, default_value = "latest", value_name = "STEP", value_parser = StepChoice::parse)]
    step: StepChoice,
    /// Which part: a:b, a:b:step or a single index for each dimension, such as
    /// '10:20, :, 32' or '::2'; negative ones count from the end, steps are
    /// positive [default: all]
    #[arg(long, allow_hyphen_values = true)]
    region: Option<String>,
    /// How: text, csv, json, npy, npz or raw (the bytes alone). Several steps
    /// become the first dimension in npy, npz and raw; npz has several fields,
    /// and the arrays step and time [default: as FILE ends, else text]
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    format: Option<Format>,
    /// Write to this file instead of printing
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What was read of a step.
struct ReadStep {
    number: u64,
    time: f64,
    arrays: Vec<Array>,
}

/// A field, or a part of it, at one step: dense and row-major.
struct Array {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    data: Vec<u8>,
}

pub(crate) fn get(common: &Common, get: &Get, output: &Output) -> Result<ExitCode> {
    let format = format::chosen(get, output)?;
    let mut steps = Vec::new();
    let wanted = Wanted { stream: get.stream.clone(), fields: get.fields.clone(), step: get.step };
    each(common, &wanted, output, |step| {
        steps.push(read(&step, get)?);
        Ok(())
    })?;
    format::write(get, format, &steps, output)?;
    Ok(ExitCode::SUCCESS)
}

fn read(step: &Step, get: &Get) -> Result<ReadStep> {
    let arrays = get.fields.iter().map(|name| read_field(step, name, get.region.as_deref()));
    Ok(ReadStep { number: step.number(), time: step.report().time, arrays: arrays.collect::<Result<_>>()? })
}

fn read_field(step: &Step, name: &str, region: Option<&str>) -> Result<Array> {
    let field = step.field(name)?;
    let selection = region::parse_region(field, region)?;
    let element = field.dtype.size();
    // First: what is not there needs no memory.
    step.check_covered(name, &selection)?;
    let mut data = room(&selection, element)?;
    let target = Target::from_slice(&mut data, &selection.shape, element)?;
    step.read(name, &selection, &mut target.typed(field.dtype)?)?;
    Ok(Array { name: name.to_owned(), dtype: field.dtype, shape: selection.shape.to_vec(), data })
}

/// Memory for what was selected.
fn room(selection: &Selection, element: usize) -> Result<Vec<u8>> {
    let count = selection.shape.iter().try_fold(element as u64, |bytes, n| bytes.checked_mul(*n));
    let mut data = Vec::new();
    let fits =
        count.and_then(|bytes| usize::try_from(bytes).ok()).filter(|n| data.try_reserve_exact(*n).is_ok());
    let Some(bytes) = fits else {
        return Err(Error::new(
            ErrorKind::OverBudget,
            format!(
                "{:?} elements of {element} bytes are more than there is memory: choose fewer with --region",
                &selection.shape[..]
            ),
        ));
    };
    data.resize(bytes, 0);
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_memory_is_refused() {
        for shape in [&[1 << 62, 8][..], &[1 << 62][..], &[1 << 60][..]] {
            let selection = Selection { offset: shape.into(), shape: shape.into(), step: shape.into() };
            assert_eq!(room(&selection, 8).unwrap_err().kind, ErrorKind::OverBudget, "{shape:?}");
        }
    }
}
