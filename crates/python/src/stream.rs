//! Looking at streams from outside.

use crate::consumer::Step;
use crate::errors::{Freed, waiting};
use crate::options::AdminGiven;
use forebay_client::{GroupOptions, StepInfo, Stream};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A stream, looked at from outside.
#[pyclass(frozen, name = "Stream")]
pub(crate) struct Looked {
    options: GroupOptions,
    name: String,
}

/// The steps that are held, one after the other.
#[pyclass(frozen)]
pub(crate) struct HeldSteps(Freed<Mutex<forebay_client::HeldSteps>>);

type Info = (u64, u64, Option<f64>, Vec<String>, u64, u64, bool);

fn step(step: forebay_client::Step) -> Step {
    Step { step: Freed::new(step), share: None }
}

fn info(info: StepInfo) -> Info {
    (info.run, info.number, info.time, info.fields, info.bytes, info.blocks, info.torn)
}

#[pymethods]
impl Looked {
    #[new]
    fn open(py: Python<'_>, name: String, options: AdminGiven) -> PyResult<Looked> {
        let options = options.options()?;
        waiting(py, || Stream::open(&options, &name).map(drop))?;
        Ok(Looked { options, name })
    }

    fn steps(&self, py: Python<'_>) -> PyResult<Vec<Info>> {
        Ok(waiting(py, || self.stream()?.steps())?.into_iter().map(info).collect())
    }

    fn held(&self, py: Python<'_>) -> PyResult<HeldSteps> {
        let held = waiting(py, || self.stream()?.held())?;
        Ok(HeldSteps(Freed::new(Mutex::new(held))))
    }

    fn latest(&self, py: Python<'_>) -> PyResult<Step> {
        waiting(py, || self.stream()?.latest()).map(step)
    }

    fn at(&self, py: Python<'_>, run: Option<u64>, number: u64) -> PyResult<Step> {
        waiting(py, || self.stream()?.at(run, number)).map(step)
    }
}

impl Looked {
    fn stream(&self) -> forebay_client::Result<Stream> {
        Stream::open(&self.options, &self.name)
    }
}

#[pymethods]
impl HeldSteps {
    fn next_step(&self, py: Python<'_>) -> PyResult<Option<Step>> {
        let next = || self.0.lock().unwrap_or_else(PoisonError::into_inner).next().transpose();
        Ok(waiting(py, next)?.map(step))
    }
}
