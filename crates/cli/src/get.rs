//! `forebay get`: a field of one step, from the command line.

use crate::Common;
use crate::completion;
use crate::ls::name;
use crate::output::{Output, list, text};
use clap_complete::ArgValueCompleter;
use forebay_client::core::contract::{Field, Need, Needs};
use forebay_client::core::dtype::Dtype;
use forebay_client::core::ids::StepNumber;
use forebay_client::core::region::Dims;
use forebay_client::core::steps::Start;
use forebay_client::store::strided::Target;
use forebay_client::{Admin, Consumer, ConsumerOptions, Error, ErrorKind, Result, Selection, Step};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a step may be waited for unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// Read a field of one step: prints it, or writes a .npy file.
///
/// With --json complex numbers are pairs, and what JSON has no numbers for is
/// text: "inf", "-inf", "nan".
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Get {
    /// The stream
    #[arg(add = ArgValueCompleter::new(completion::streams))]
    stream: String,
    /// The field
    #[arg(add = ArgValueCompleter::new(completion::fields))]
    field: String,
    /// Which step: its number, or oldest, latest or next. A number that has not
    /// come yet is waited for, and so is next; if no step is kept, oldest and
    /// latest are the next one
    #[arg(long, default_value = "oldest", value_name = "STEP", value_parser = which)]
    step: StepChoice,
    /// Which part: a:b, a:b:step or a single index for each dimension, such as
    /// '10:20, :, 32' or '::2'; negative ones count from the end, steps are
    /// positive [default: all]
    #[arg(long, allow_hyphen_values = true)]
    region: Option<String>,
    /// Write to this .npy file instead of printing
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Which step is read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum StepChoice {
    Oldest,
    Latest,
    Next,
    Number(StepNumber),
}

fn which(text: &str) -> std::result::Result<StepChoice, String> {
    match text {
        "oldest" => Ok(StepChoice::Oldest),
        "latest" => Ok(StepChoice::Latest),
        "next" => Ok(StepChoice::Next),
        number => number
            .parse()
            .map(StepChoice::Number)
            .map_err(|_| format!("'{number}' is no step: write a number, oldest, latest or next")),
    }
}

pub(crate) fn get(common: &Common, get: &Get, output: &Output) -> Result<ExitCode> {
    let step = find(common, get, output)?;
    let field = step.field(&get.field)?.clone();
    let selection = parse_region(&field, get.region.as_deref())?;
    let element = field.dtype.size();
    // First: what is not there needs no memory.
    step.check_covered(&get.field, &selection)?;
    let mut data = room(&selection, element)?;
    let target = Target::from_slice(&mut data, &selection.shape, element)?;
    step.read(&get.field, &selection, &mut target.typed(field.dtype)?)?;
    let mut value = json!({
        "stream": get.stream, "field": get.field, "step": step.number(), "time": step.report().time,
        "dtype": field.dtype.name(), "shape": &selection.shape[..],
    });
    if let Some(path) = &get.output {
        write_npy(path, &field, &selection.shape, &data)?;
        value["file"] = json!(path);
        output.result(&value, |_| {
            vec![format!(
                "step {}: {:?} of {} in {}",
                step.number(),
                &selection.shape[..],
                field.dtype,
                path.display()
            )]
        });
        return Ok(ExitCode::SUCCESS);
    }
    let values = data.chunks_exact(element).map(|bytes| number(field.dtype, bytes));
    value["values"] = Value::Array(values.collect());
    output.result(&value, |value| {
        let numbers: Vec<String> = value["values"].as_array().into_iter().flatten().map(text).collect();
        let row = selection.shape.last().map_or(1, |n| *n as usize).max(1);
        let mut lines = vec![format!(
            "step {}, time {}, shape {:?}, {}",
            step.number(),
            rounded(step.report().time),
            &selection.shape[..],
            field.dtype
        )];
        lines.extend(numbers.chunks(row).map(|row| row.join(" ")));
        lines
    });
    Ok(ExitCode::SUCCESS)
}

/// The step that is asked for. Waits for one that has not come yet.
fn find(common: &Common, get: &Get, output: &Output) -> Result<Step> {
    let group = common.group_options()?;
    let status = Admin::open(&group)?.status()?;
    let stream = list(&status["streams"]).find(|stream| name(stream) == get.stream);
    if get.step != StepChoice::Next
        && let Some(stream) = stream
    {
        check_offered(stream, get)?;
    }
    let patience = common.timeout.unwrap_or(PATIENCE);
    if stream.is_none() {
        output.remark(&format!(
            "nobody has opened stream '{}' yet: waiting, {patience:.0?} at most",
            get.stream
        ));
    }
    let run = stream.and_then(|stream| stream["run"].as_u64()).unwrap_or(0);
    let wanted = match get.step {
        StepChoice::Latest => stream.and_then(|stream| latest(stream, &get.field)),
        StepChoice::Number(number) => Some(number),
        StepChoice::Oldest | StepChoice::Next => None,
    };
    let consumer = Consumer::open(&ConsumerOptions {
        needs: Needs::Fields(vec![Need { field: get.field.clone(), dtype: None, every: 1 }]),
        start: if get.step == StepChoice::Next { Start::Next } else { Start::Oldest },
        // One may be looked at while the next is asked for.
        window: 2,
        group,
        ..ConsumerOptions::new(&get.stream)
    })?;
    let deadline = Instant::now() + patience;
    let mut before = None;
    loop {
        let step = match consumer.next_step(Some(deadline.saturating_duration_since(Instant::now()))) {
            Ok(step) => step,
            // Nothing later came: what was there is the latest.
            Err(error) if get.step == StepChoice::Latest => return before.ok_or(error),
            Err(error) => return Err(error),
        };
        // Of an earlier run there may be steps that somebody still holds.
        if step.report().id.run < run {
            continue;
        }
        match (get.step, wanted) {
            (StepChoice::Number(number), _) if step.number() > number => {
                return Err(Error::not_found(format!(
                    "step {number} of stream '{}' is not kept, or does not have field '{}': the first that can be \
                     read after it is {}",
                    get.stream,
                    get.field,
                    step.number()
                )));
            }
            (_, Some(number)) if step.number() < number => before = Some(step),
            _ => return Ok(step),
        }
    }
}

/// An error if it is known that nothing can be read, so that nobody waits for it.
fn check_offered(stream: &Value, get: &Get) -> Result<()> {
    let phase = stream["phase"].as_str().unwrap_or_default();
    if matches!(phase, "finished" | "crashed") && stream["held"]["blocks"] == 0 {
        return Err(Error::not_found(format!(
            "stream '{}' has {phase}, and keeps none of its steps: open its producers with keep=1, or more, to look \
             at it afterwards",
            get.stream
        )));
    }
    if is_not_offered(stream, &get.field) {
        let offered: Vec<&str> = list(&stream["fields"]).map(name).collect();
        return Err(Error::not_found(format!(
            "stream '{}' has no field '{}'; it has {}",
            get.stream,
            get.field,
            offered.join(", ")
        )));
    }
    Ok(())
}

/// Whether a run is known not to have this field: when a step has been closed all fields are known.
fn is_not_offered(stream: &Value, field: &str) -> bool {
    let begun = stream["steps"]["closed"].as_u64().is_some_and(|closed| closed > 0);
    begun && stream["details_left_out"] == false && !list(&stream["fields"]).any(|known| name(known) == field)
}

/// The latest step of a stream that should have this field.
fn latest(stream: &Value, field: &str) -> Option<StepNumber> {
    let latest = stream["latest"].as_u64()?;
    let every = list(&stream["fields"]).find(|known| name(known) == field)?["every"].as_u64()?;
    latest.checked_sub(latest.checked_rem(every)?)
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

/// One element as JSON: exactly, or with as many digits as tell it from its neighbours. Complex numbers are
/// pairs; what is no number in JSON is text.
fn number(dtype: Dtype, bytes: &[u8]) -> Value {
    /// The bytes of an element of a plain type.
    fn of<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
    match dtype {
        Dtype::Bool => json!(bytes[0] != 0),
        Dtype::I8 => json!(i8::from_le_bytes(of(bytes))),
        Dtype::U8 => json!(bytes[0]),
        Dtype::I16 => json!(i16::from_le_bytes(of(bytes))),
        Dtype::U16 => json!(u16::from_le_bytes(of(bytes))),
        Dtype::I32 => json!(i32::from_le_bytes(of(bytes))),
        Dtype::U32 => json!(u32::from_le_bytes(of(bytes))),
        Dtype::I64 => json!(i64::from_le_bytes(of(bytes))),
        Dtype::U64 => json!(u64::from_le_bytes(of(bytes))),
        Dtype::F16 => single(f32::from(half::f16::from_le_bytes(of(bytes)))),
        Dtype::Bf16 => single(f32::from(half::bf16::from_le_bytes(of(bytes)))),
        Dtype::F32 => single(f32::from_le_bytes(of(bytes))),
        Dtype::F64 => double(f64::from_le_bytes(of(bytes))),
        Dtype::C64 => json!([number(Dtype::F32, &bytes[..4]), number(Dtype::F32, &bytes[4..])]),
        Dtype::C128 => json!([number(Dtype::F64, &bytes[..8]), number(Dtype::F64, &bytes[8..])]),
    }
}

/// With the digits of a single, not those of the double that is as large.
fn single(value: f32) -> Value {
    double(value.to_string().parse().unwrap_or(f64::from(value)))
}

fn double(value: f64) -> Value {
    if value.is_nan() {
        return json!("nan");
    }
    // JSON has no infinity.
    serde_json::Number::from_f64(value).map_or_else(|| json!(value.to_string()), Value::Number)
}

/// A time for people, without the last digits that sums of many steps leave.
fn rounded(time: f64) -> f64 {
    format!("{time:.9e}").parse().unwrap_or(time)
}

/// Parses `a:b:c, i, :` against a field's shape. A single index keeps its dimension, with extent 1.
fn parse_region(field: &Field, text: Option<&str>) -> Result<Selection> {
    let global = field.shape.as_deref().ok_or_else(|| {
        Error::invalid(format!("field '{}' has no global shape; read its blocks from Python", field.name))
    })?;
    let bad = |part: &str| {
        Error::invalid(format!(
            "--region '{part}' is not understood: write a:b, a:b:step with a step from 1, i or :"
        ))
    };
    let outside = |index: i128, d: usize, extent: u64| {
        Error::out_of_bounds(format!(
            "--region: index {index} is outside dimension {d} of field '{}', which has {extent}",
            field.name
        ))
    };
    let text = text.unwrap_or("").trim().trim_start_matches('[').trim_end_matches(']');
    let parts: Vec<&str> =
        if text.is_empty() { Vec::new() } else { text.split(',').map(str::trim).collect() };
    if parts.len() > global.len() {
        return Err(Error::out_of_bounds(format!(
            "--region has {} dimensions, field '{}' {}",
            parts.len(),
            field.name,
            global.len()
        )));
    }
    let (mut offset, mut shape, mut step) = (Dims::new(), Dims::new(), Dims::new());
    for (d, extent) in global.iter().enumerate() {
        let part = parts.get(d).copied().unwrap_or(":");
        let fields: Vec<&str> = part.split(':').map(str::trim).collect();
        let index = |text: &str, default: u64| -> Result<u64> {
            if text.is_empty() {
                return Ok(default);
            }
            let value: i128 = text.parse().map_err(|_| bad(part))?;
            let counted = if value < 0 { value + i128::from(*extent) } else { value };
            u64::try_from(counted).map_err(|_| outside(value, d, *extent))
        };
        let single = |text: &str| match index(text, 0)? {
            found if found < *extent && !text.is_empty() => Ok(found),
            _ if text.is_empty() => Err(bad(part)),
            found => Err(outside(i128::from(found), d, *extent)),
        };
        let (first, end, every) = match fields[..] {
            [one] => (single(one)?, single(one)? + 1, 1),
            [first, end] => (index(first, 0)?, index(end, *extent)?.min(*extent), 1),
            [first, end, every] => {
                let every = if every.is_empty() { Ok(1) } else { every.parse() };
                (index(first, 0)?, index(end, *extent)?.min(*extent), every.map_err(|_| bad(part))?)
            }
            _ => return Err(bad(part)),
        };
        if every == 0 {
            return Err(bad(part));
        }
        offset.push(first);
        shape.push(end.saturating_sub(first).div_ceil(every));
        step.push(every);
    }
    Ok(Selection { offset, shape, step })
}

/// Writes NumPy's format, version 1.0 (numpy.lib.format).
fn write_npy(path: &PathBuf, field: &Field, shape: &[u64], data: &[u8]) -> Result<()> {
    let descr = match field.dtype {
        Dtype::Bool => "|b1".to_owned(),
        Dtype::I8 => "|i1".to_owned(),
        Dtype::U8 => "|u1".to_owned(),
        Dtype::I16 | Dtype::I32 | Dtype::I64 => format!("<i{}", field.dtype.size()),
        // NumPy has no bfloat16: its bits are kept.
        Dtype::U16 | Dtype::U32 | Dtype::U64 | Dtype::Bf16 => format!("<u{}", field.dtype.size()),
        Dtype::F16 | Dtype::F32 | Dtype::F64 => format!("<f{}", field.dtype.size()),
        Dtype::C64 | Dtype::C128 => format!("<c{}", field.dtype.size()),
    };
    let dims: String = shape.iter().map(|n| format!("{n},")).collect();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let write = || {
        let mut file = std::fs::File::create(path)?;
        file.write_all(b"\x93NUMPY\x01\x00")?;
        file.write_all(&(header.len() as u16).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        file.write_all(data)
    };
    write().map_err(|e| Error::io(format!("cannot write {}", path.display()), &e))
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

    #[test]
    fn numbers_are_exact() {
        let shown = |dtype, bytes: &[u8]| text(&number(dtype, bytes));
        assert_eq!(shown(Dtype::I64, &((1i64 << 53) + 1).to_le_bytes()), "9007199254740993");
        assert_eq!(shown(Dtype::U64, &u64::MAX.to_le_bytes()), "18446744073709551615");
        assert_eq!(shown(Dtype::I8, &[0x80]), "-128");
        assert_eq!(shown(Dtype::F32, &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(shown(Dtype::F16, &[0, 0xfc]), "-inf");
        assert_eq!(shown(Dtype::Bf16, &[0xc0, 0x3f]), "1.5");
        assert_eq!(shown(Dtype::F64, &(-0.0f64).to_le_bytes()), "-0.0");
        assert_eq!(shown(Dtype::F64, &f64::NAN.to_le_bytes()), "nan");
        assert_eq!(shown(Dtype::F64, &f64::NEG_INFINITY.to_le_bytes()), "-inf");
        let complex = [3f32.to_le_bytes(), (-4f32).to_le_bytes()].concat();
        assert_eq!(number(Dtype::C64, &complex), json!([3.0, -4.0]));
        assert_eq!(shown(Dtype::C64, &complex), "3.0-4.0j");
        assert_eq!(shown(Dtype::Bool, &[1]), "true");
    }

    #[test]
    fn regions_are_parsed_as_in_numpy() {
        let field = Field::new("U", Dtype::F64, Some(&[10, 7, 5]), 3);
        let parse = |text: &str| {
            parse_region(&field, Some(text)).map(|s| (s.offset.to_vec(), s.shape.to_vec(), s.step.to_vec()))
        };
        assert_eq!(parse("2:4, :, -1").unwrap(), (vec![2, 0, 4], vec![2, 7, 1], vec![1, 1, 1]));
        assert_eq!(parse("1:100:4").unwrap(), (vec![1, 0, 0], vec![3, 7, 5], vec![4, 1, 1]));
        assert_eq!(parse("").unwrap().1, [10, 7, 5]);
        for bad in ["a", "1:2:0", "1:2:3:4", ":,:,:,:", "1,,2"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for (outside, told) in [("-11", "index -11"), (":, 7", "index 7"), ("10", "dimension 0")] {
            let error = parse(outside).unwrap_err();
            assert!(error.kind == ErrorKind::OutOfBounds && error.text.contains(told), "{error}");
        }
    }
}
