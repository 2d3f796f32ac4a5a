//! The worker's side of a pipeline.

use crate::comm::Comm;
use crate::consumer::Step;
use crate::errors::{Freed, waiting};
use crate::given::{self, needs};
use crate::timeout::Timeout;
use forebay_client::core::ids::ServerId;
use pyo3::prelude::*;

#[pyclass(frozen)]
pub(crate) struct Worker(forebay_client::Worker);

#[pymethods]
impl Worker {
    #[new]
    fn open(py: Python<'_>, group: String, server: u32, pipeline: &str, instance: u64) -> PyResult<Worker> {
        let options = given::group(Some(group), "auto", None, None)?;
        let open = || forebay_client::Worker::open(&options, ServerId(server), pipeline, instance);
        waiting(py, open).map(Worker)
    }

    fn ready(&self, py: Python<'_>, fields: given::Fields, every: u32) -> PyResult<()> {
        // Code that says nothing gets what the pipeline was created for.
        let needs = fields.is_some().then(|| needs(fields, every)).transpose()?;
        waiting(py, || self.0.ready(needs))
    }

    fn failed(&self, py: Python<'_>, traceback: &str) -> PyResult<()> {
        waiting(py, || self.0.failed(traceback))
    }

    /// The next order as (execution, step, comm), or None after `timeout`.
    fn next_order(
        &self,
        py: Python<'_>,
        timeout: Timeout,
        comm_timeout: Timeout,
    ) -> PyResult<Option<(u64, Step, Comm)>> {
        let (timeout, comm_timeout) = (timeout.wait()?, comm_timeout.wait()?);
        let order = waiting(py, || self.0.next_order(timeout, comm_timeout))?;
        Ok(order.map(|order| {
            (
                order.execution,
                Step { step: Freed::new(order.step), share: Some(order.share) },
                Comm::new(order.comm),
            )
        }))
    }

    fn done(&self, py: Python<'_>, execution: u64, error: Option<String>, seconds: f64) -> PyResult<()> {
        waiting(py, || self.0.done(execution, error, seconds))
    }
}
