//! What is written of steps that were read: text, CSV, JSON, NumPy's files, or bytes.

use super::values::{csv, number};
use super::{Array, Get, ReadStep};
use crate::output::{Output, text};
use forebay_client::core::dtype::Dtype;
use forebay_client::{Error, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use zip::write::{SimpleFileOptions, ZipWriter};

/// How many elements are printed on a terminal before they are shortened, and then of each dimension at either end.
const ELEMENTS_SHOWN: usize = 1000;
const EDGE: usize = 3;

/// How steps are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Text,
    Csv,
    Json,
    Npy,
    Npz,
    Raw,
}

/// How the steps are to be written, or why they cannot be.
pub(super) fn chosen(get: &Get, output: &Output) -> Result<Format> {
    let extension = get.output.as_ref().map(|path| path.extension().unwrap_or_default());
    let by_name = extension.map(|extension| match &*extension.to_string_lossy() {
        "txt" => Format::Text,
        "csv" => Format::Csv,
        "json" => Format::Json,
        "npz" => Format::Npz,
        "raw" | "bin" => Format::Raw,
        _ => Format::Npy,
    });
    let printed = if output.is_json() { Format::Json } else { Format::Text };
    let format = get.format.or(by_name).unwrap_or(printed);
    let is_one_array = matches!(format, Format::Npy | Format::Raw);
    if is_one_array && get.fields.len() > 1 {
        return Err(Error::invalid(
            "npy and raw hold one field: write several with --format npz, or -o FILE.npz",
        ));
    }
    let is_binary = is_one_array || format == Format::Npz;
    if is_binary && get.output.is_none() && io::stdout().is_terminal() {
        return Err(Error::invalid(
            "npy, npz and raw are not for a terminal: write them to a file with -o FILE",
        ));
    }
    Ok(format)
}

/// Writes the steps to the file that is named, or to standard output.
pub(super) fn write(get: &Get, format: Format, steps: &[ReadStep], output: &Output) -> Result<()> {
    let Some(path) = &get.output else {
        let mut out = BufWriter::new(io::stdout().lock());
        let written = write_to(&mut out, get, format, steps).and_then(|()| Ok(out.flush()?));
        return match written {
            // A closed pipe (`| head`) is no failure.
            Err(WriteError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(error.about("cannot write")),
            Ok(()) => Ok(()),
        };
    };
    let what = format!("cannot write {}", path.display());
    // What there was is kept if this cannot take its place.
    if matches!(format, Format::Npy | Format::Npz) {
        let fit = get.fields.iter().try_for_each(|name| Stacked::of(get, steps, name).map(drop));
        fit.map_err(|error| error.about(&what))?;
    }
    let file = File::create(path).map_err(|error| Error::io(&what, &error))?;
    let mut out = BufWriter::new(file);
    let written = write_to(&mut out, get, format, steps).and_then(|()| Ok(out.flush()?));
    written.map_err(|error| error.about(&what))?;
    let told: Vec<Value> =
        steps.iter().flat_map(|step| step.arrays.iter().map(|array| described(get, step, array))).collect();
    let mut value = if let [one] = &told[..] { one.clone() } else { json!({ "arrays": told }) };
    value["file"] = json!(path);
    output.result(&value, |_| {
        let line = |step: &ReadStep, array: &Array| {
            let (number, shape, dtype) = (step.number, &array.shape, array.dtype);
            let name = if get.fields.len() > 1 { format!("{} ", array.name) } else { String::new() };
            format!("step {number}: {name}{shape:?} of {dtype} in {}", path.display())
        };
        steps.iter().flat_map(|step| step.arrays.iter().map(move |array| line(step, array))).collect()
    });
    Ok(())
}

/// Why something could not be written.
enum WriteError {
    Io(io::Error),
    /// It cannot be written in this way.
    Unfit(Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        WriteError::Io(error)
    }
}

impl WriteError {
    fn about(self, what: &str) -> Error {
        match self {
            WriteError::Io(error) => Error::io(what, &error),
            WriteError::Unfit(error) => error,
        }
    }
}

type Written = std::result::Result<(), WriteError>;

fn write_to(out: &mut impl Write, get: &Get, format: Format, steps: &[ReadStep]) -> Written {
    let arrays = || steps.iter().flat_map(|step| step.arrays.iter().map(move |array| (step, array)));
    let is_alone = arrays().count() == 1;
    match format {
        Format::Text => {
            let shortens = get.format.is_none() && get.output.is_none() && io::stdout().is_terminal();
            arrays().try_for_each(|(step, array)| write_text(out, get, step, array, shortens))
        }
        Format::Csv => arrays().try_for_each(|(step, array)| {
            if !is_alone {
                writeln!(out, "# {}", title(get, step, array))?;
            }
            write_csv(out, array)
        }),
        Format::Json => {
            let all: Vec<Value> = arrays().map(|(step, array)| with_values(get, step, array)).collect();
            match &all[..] {
                [one] if !is_range(get) => writeln!(out, "{one:#}")?,
                _ => writeln!(out, "{:#}", Value::Array(all))?,
            }
            Ok(())
        }
        Format::Raw => Ok(arrays().try_for_each(|(_, array)| out.write_all(&array.data))?),
        Format::Npy => {
            let name = get.fields.first().map_or("", String::as_str);
            Ok(write_npy(out, &Stacked::of(get, steps, name)?)?)
        }
        Format::Npz => write_npz(out, get, steps),
    }
}

/// What an array is, as JSON.
fn described(get: &Get, step: &ReadStep, array: &Array) -> Value {
    let time = Some(step.time).filter(|time| !time.is_nan());
    json!({
        "stream": get.stream, "field": array.name, "step": step.number, "time": time,
        "dtype": array.dtype.name(), "shape": array.shape,
    })
}

fn with_values(get: &Get, step: &ReadStep, array: &Array) -> Value {
    let mut value = described(get, step, array);
    value["values"] = Value::Array(elements(array).map(|bytes| number(array.dtype, bytes)).collect());
    value
}

fn elements(array: &Array) -> impl Iterator<Item = &[u8]> {
    array.data.chunks_exact(array.dtype.size())
}

/// What an array is, for people.
fn title(get: &Get, step: &ReadStep, array: &Array) -> String {
    let mut text = format!("step {}", step.number);
    if !step.time.is_nan() {
        text += &format!(", time {}", rounded(step.time));
    }
    if get.fields.len() > 1 {
        text += &format!(", {}", array.name);
    }
    text + &format!(", shape {:?}, {}", array.shape, array.dtype)
}

/// A time for people, without the last digits that sums of many steps leave.
fn rounded(time: f64) -> f64 {
    format!("{time:.9e}").parse().unwrap_or(time)
}

/// The elements, a row of the last dimension on each line.
fn write_text(out: &mut impl Write, get: &Get, step: &ReadStep, array: &Array, shortens: bool) -> Written {
    writeln!(out, "{}", title(get, step, array))?;
    let row = array.shape.last().map_or(1, |n| *n as usize).max(1);
    let all: Vec<&[u8]> = elements(array).collect();
    let shortens = shortens && all.len() > ELEMENTS_SHOWN;
    let shown = |bytes: &&[u8]| text(&number(array.dtype, bytes));
    let rows: Vec<&[&[u8]]> = all.chunks(row).collect();
    for (index, row) in rows.iter().enumerate() {
        let is_edge = |index: usize, count: usize| index < EDGE || index + EDGE >= count;
        if shortens && !is_edge(index, rows.len()) {
            if index == EDGE {
                writeln!(out, "...")?;
            }
            continue;
        }
        let line = match shortens && row.len() > 2 * EDGE {
            true => {
                let ends: Vec<String> =
                    row[..EDGE].iter().chain(&row[row.len() - EDGE..]).map(shown).collect();
                format!("{} ... {}", ends[..EDGE].join(" "), ends[EDGE..].join(" "))
            }
            false => row.iter().map(shown).collect::<Vec<_>>().join(" "),
        };
        writeln!(out, "{line}")?;
    }
    if shortens {
        writeln!(out, "(shortened: --format text prints all {} elements)", all.len())?;
    }
    Ok(())
}

/// The elements as numbers between commas, a row of the last dimension on each line: as `numpy.loadtxt` reads them.
fn write_csv(out: &mut impl Write, array: &Array) -> Written {
    let row = array.shape.last().map_or(1, |n| *n as usize).max(1);
    let all: Vec<&[u8]> = elements(array).collect();
    for row in all.chunks(row) {
        let line: Vec<String> = row.iter().map(|bytes| csv(array.dtype, bytes)).collect();
        writeln!(out, "{}", line.join(","))?;
    }
    Ok(())
}

/// An array as a file of NumPy's holds it: of several steps, which are its first dimension.
struct Stacked<'a> {
    descr: String,
    shape: Vec<u64>,
    parts: Vec<&'a [u8]>,
}

impl Stacked<'_> {
    fn of<'a>(get: &Get, steps: &'a [ReadStep], name: &str) -> std::result::Result<Stacked<'a>, WriteError> {
        let arrays: Vec<(&ReadStep, &Array)> = steps
            .iter()
            .flat_map(|step| step.arrays.iter().map(move |array| (step, array)))
            .filter(|(_, array)| array.name == name)
            .collect();
        let Some((_, first)) = arrays.first() else {
            return Err(WriteError::Unfit(Error::not_found(format!("no step has field '{name}'"))));
        };
        let differs =
            arrays.iter().find(|(_, array)| (&array.shape, array.dtype) != (&first.shape, first.dtype));
        if let Some((step, array)) = differs {
            return Err(WriteError::Unfit(Error::invalid(format!(
                "field '{name}' has shape {:?} at step {}, and {:?} before: write such steps one by one, or choose a \
                 --region that all have",
                array.shape, step.number, first.shape
            ))));
        }
        let mut shape = first.shape.clone();
        if is_range(get) {
            shape.insert(0, arrays.len() as u64);
        }
        let parts = arrays.iter().map(|(_, array)| &array.data[..]).collect();
        Ok(Stacked { descr: descr(first.dtype), shape, parts })
    }
}

/// Whether several steps were asked for, though there may be but one.
fn is_range(get: &Get) -> bool {
    matches!(get.step, super::StepChoice::Range { .. })
}

/// How NumPy names a dtype.
fn descr(dtype: Dtype) -> String {
    match dtype {
        Dtype::Bool => "|b1".to_owned(),
        Dtype::I8 => "|i1".to_owned(),
        Dtype::U8 => "|u1".to_owned(),
        Dtype::I16 | Dtype::I32 | Dtype::I64 => format!("<i{}", dtype.size()),
        // NumPy has no bfloat16: its bits are kept.
        Dtype::U16 | Dtype::U32 | Dtype::U64 | Dtype::Bf16 => format!("<u{}", dtype.size()),
        Dtype::F16 | Dtype::F32 | Dtype::F64 => format!("<f{}", dtype.size()),
        Dtype::C64 | Dtype::C128 => format!("<c{}", dtype.size()),
    }
}

/// Writes NumPy's format, version 1.0 (numpy.lib.format).
fn write_npy(out: &mut impl Write, array: &Stacked<'_>) -> io::Result<()> {
    let dims: String = array.shape.iter().map(|n| format!("{n},")).collect();
    let mut header = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({dims}), }}", array.descr);
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    array.parts.iter().try_for_each(|part| out.write_all(part))
}

/// Writes all fields, and the numbers and times of the steps, as `numpy.load` reads them: an archive of arrays that are not
/// compressed (numpy.savez).
fn write_npz(out: &mut impl Write, get: &Get, steps: &[ReadStep]) -> Written {
    let numbers: Vec<u8> = steps.iter().flat_map(|step| step.number.to_le_bytes()).collect();
    let times: Vec<u8> = steps.iter().flat_map(|step| step.time.to_le_bytes()).collect();
    let shape = if is_range(get) { vec![steps.len() as u64] } else { Vec::new() };
    let of_steps = |dtype, data| Stacked { descr: descr(dtype), shape: shape.clone(), parts: vec![data] };
    let mut arrays = Vec::new();
    for name in &get.fields {
        arrays.push((name.as_str(), Stacked::of(get, steps, name)?));
    }
    for (name, told) in
        [("step", of_steps(Dtype::U64, &numbers[..])), ("time", of_steps(Dtype::F64, &times[..]))]
    {
        // A field of this name is what was asked for.
        if !get.fields.iter().any(|field| field == name) {
            arrays.push((name, told));
        }
    }
    let mut archive = ZipWriter::new_stream(out);
    for (name, array) in arrays {
        let options = SimpleFileOptions::default().large_file(true);
        let begun = archive.start_file(format!("{name}.npy"), options);
        begun.map_err(io::Error::from)?;
        write_npy(&mut archive, &array)?;
    }
    archive.finish().map_err(io::Error::from)?;
    Ok(())
}
