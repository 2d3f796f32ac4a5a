//! What the package hands over that is more than a number: groups, choices, contracts, places.

use crate::errors::raise;
use crate::timeout::Timeout;
use forebay_client::core::contract::{Index, Need, Needs, Period, Slice, Slices, Terms};
use forebay_client::core::dtype::Dtype;
use forebay_client::core::steps;
use forebay_client::{Choice, Error, GroupOptions, Result, ServerId, TransportChoice};
use pyo3::prelude::*;
use std::sync::Arc;

/// How to find a group and reach its servers, and what the handle is called.
pub(crate) fn group(
    group: Option<String>,
    transport: &str,
    timeout: Option<Timeout>,
    name: Option<String>,
) -> PyResult<GroupOptions> {
    let transport = choice::<TransportChoice>(transport)?;
    let timeout = timeout.map(Timeout::patience).transpose()?;
    Ok(GroupOptions { group, transport, timeout, name })
}

/// The value of this name.
pub(crate) fn choice<T: Choice>(name: &str) -> PyResult<T> {
    T::of_name(name).map_err(raise)
}

/// Start, stop and step of a dimension; negative ones count from the end.
type SliceGiven = (Option<i64>, Option<i64>, u64);
/// Of the first dimensions, and of the last ones.
type PartGiven = (Vec<SliceGiven>, Vec<SliceGiven>);

/// Field, dtype, period, part, first step, whether it may be missing, and statistics, of each; nothing for all.
pub(crate) type Fields = Option<Vec<NeedGiven>>;
type NeedGiven = (String, Option<String>, Option<u32>, Option<PartGiven>, Option<u64>, bool, String);

/// What is needed; `every` is the period of what has none of its own.
pub(crate) fn needs(fields: Fields, every: u32) -> PyResult<Needs> {
    let Some(fields) = fields else { return Ok(Needs::all(every)) };
    let needs =
        fields.into_iter().map(|(field, dtype, own, part, first, optional, statistics): NeedGiven| {
            let dtype = dtype.map(|name| Dtype::parse(&name)).transpose()?;
            let period = Period { every: own.unwrap_or(every), first };
            let statistics = Choice::of_name(&statistics)?;
            let terms = Terms { period, part: part.map(slices).transpose()?, statistics };
            Ok(Need { field, terms, dtype, optional })
        });
    Ok(Needs::Fields(needs.collect::<Result<Vec<Need>>>().map_err(raise)?))
}

fn slices((first, last): PartGiven) -> Result<Slices> {
    let index = |index: i64| match index {
        0.. => Index::FromStart(index.unsigned_abs()),
        _ => Index::FromEnd(index.unsigned_abs()),
    };
    let slice =
        |(start, stop, step): SliceGiven| Slice { start: start.map(index), stop: stop.map(index), step };
    Slices::new(first.into_iter().map(slice).collect(), last.into_iter().map(slice).collect())
}

/// With which step to begin.
#[derive(FromPyObject)]
pub(crate) enum Start {
    Name(String),
    Cursor((u64, u64)),
}

impl Start {
    pub(crate) fn made(self) -> PyResult<steps::Start> {
        match self {
            Start::Cursor((run, step)) => Ok(steps::Start::Cursor(run, step)),
            Start::Name(name) => match &name[..] {
                "next" => Ok(steps::Start::Next),
                "oldest" => Ok(steps::Start::Oldest),
                "latest" => Ok(steps::Start::Latest),
                "run" => Ok(steps::Start::Run),
                "held" => Ok(steps::Start::HELD),
                "resume" => Ok(steps::Start::Resume),
                _ => Err(raise(Error::invalid(format!(
                    "start '{name}' is not known: use next, oldest, latest, run, held, resume, or a reader's cursor"
                )))),
            },
        }
    }
}

/// Which server holds a block: a name, or a function of field, rank, number, offset, shape and the numbers of the servers,
/// which gives the number of one.
#[derive(FromPyObject)]
pub(crate) enum Placement {
    Name(String),
    Function(Py<PyAny>),
}

impl Placement {
    pub(crate) fn made(self) -> PyResult<forebay_client::Placement> {
        use forebay_client::Placement as Made;
        let function = match self {
            Placement::Function(function) => function,
            Placement::Name(name) => {
                return match &name[..] {
                    "nearest" => Ok(Made::Nearest),
                    "by-block" => Ok(Made::ByBlock),
                    _ => Err(raise(Error::invalid(format!(
                        "placement '{name}' is not known: use nearest, by-block or a function"
                    )))),
                };
            }
        };
        Ok(Made::Function(Arc::new(move |block| {
            Python::attach(|py| {
                let offset = block.extent.offset().map(<[u64]>::to_vec);
                let shape = block.extent.shape().to_vec();
                let servers: Vec<u32> = block.servers.iter().map(|server| server.0).collect();
                let arguments = (block.field, block.key.rank, block.key.number, offset, shape, servers);
                function.call1(py, arguments)?.extract::<u32>(py).map(ServerId)
            })
            .map_err(|error| Error::invalid(format!("the placement function failed: {error}")))
        })))
    }
}
