//! Pipelines that ranks drive themselves.

use crate::errors::waiting;
use crate::options::AdminGiven;
use crate::producer::Producer;
use crate::timeout::Timeout;
use forebay_client::{Admin, DriveOutcome, ServerId};
use pyo3::prelude::*;

/// The stream of a pipeline, and whether it is driven.
#[pyfunction]
pub(crate) fn find_pipeline(py: Python<'_>, options: AdminGiven, name: String) -> PyResult<(String, bool)> {
    let options = options.options()?;
    let found = waiting(py, || Admin::open(&options)?.find_pipeline(&name))?;
    Ok((found.stream, found.driven))
}

#[pyclass(frozen)]
pub(crate) struct PipelineHandle(forebay_client::PipelineHandle);

/// What was asked for; waited for later.
#[pyclass(frozen)]
pub(crate) struct PipelineRequest(forebay_client::PipelineRequest);

/// What a wait gives: the servers whose workers take part, or whether they ran and for how long.
type Outcome = (Option<Vec<u32>>, bool, f64);

fn outcome(driven: DriveOutcome) -> Outcome {
    match driven {
        DriveOutcome::Activated(servers) => {
            (Some(servers.iter().map(|server| server.0).collect()), false, 0.0)
        }
        DriveOutcome::Executed { ran, seconds } => (None, ran, seconds),
    }
}

#[pymethods]
impl PipelineHandle {
    #[new]
    fn open(
        py: Python<'_>,
        producer: &Producer,
        pipeline: String,
        server: Option<u32>,
    ) -> PyResult<PipelineHandle> {
        let producer = producer.0.clone();
        let open = || forebay_client::PipelineHandle::open(producer.clone(), &pipeline, server.map(ServerId));
        waiting(py, open).map(PipelineHandle)
    }

    fn activate(&self, py: Python<'_>, step: u64, time: f64) -> PyResult<Vec<u32>> {
        let servers = waiting(py, || self.0.activate(step, time))?;
        Ok(servers.iter().map(|server| server.0).collect())
    }

    fn activate_async(&self, py: Python<'_>, step: u64, time: f64) -> PyResult<PipelineRequest> {
        waiting(py, || self.0.activate_async(step, time)).map(PipelineRequest)
    }

    fn execute(&self, py: Python<'_>, step: u64, timeout: Option<Timeout>) -> PyResult<Outcome> {
        let timeout = timeout.map(Timeout::wait).transpose()?;
        waiting(py, || self.0.execute(step, timeout)).map(outcome)
    }

    fn execute_async(&self, py: Python<'_>, step: u64) -> PyResult<PipelineRequest> {
        waiting(py, || self.0.execute_async(step)).map(PipelineRequest)
    }

    fn deactivate(&self, py: Python<'_>, step: u64) -> PyResult<()> {
        waiting(py, || self.0.deactivate(step))
    }

    fn active(&self) -> Vec<u64> {
        self.0.active()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || self.0.close())
    }
}

#[pymethods]
impl PipelineRequest {
    fn wait(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Outcome> {
        let timeout = timeout.map(Timeout::wait).transpose()?;
        waiting(py, || self.0.wait(timeout)).map(outcome)
    }
}
