//! The communicator of one execution.

use crate::errors::waiting;
use crate::timeout::Timeout;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[pyclass(frozen)]
pub(crate) struct Comm(pub(crate) forebay_client::comm::Comm);

#[pymethods]
impl Comm {
    #[getter]
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    #[getter]
    fn size(&self) -> u32 {
        self.0.size()
    }

    fn set_timeout(&self, timeout: Timeout) -> PyResult<()> {
        self.0.set_timeout(timeout.wait()?);
        Ok(())
    }

    fn send(&self, py: Python<'_>, dest: u32, tag: u64, bytes: &[u8]) -> PyResult<()> {
        waiting(py, || self.0.send(dest, tag, bytes))
    }

    fn recv<'py>(&self, py: Python<'py>, source: u32, tag: u64) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = waiting(py, || self.0.recv(source, tag))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || self.0.barrier())
    }

    fn broadcast<'py>(&self, py: Python<'py>, root: u32, bytes: Vec<u8>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = waiting(py, || self.0.broadcast(root, bytes))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn gather<'py>(
        &self,
        py: Python<'py>,
        root: u32,
        bytes: &[u8],
    ) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let gathered = waiting(py, || self.0.gather(root, bytes))?;
        Ok(gathered.map(|all| all.iter().map(|bytes| PyBytes::new(py, bytes)).collect()))
    }

    fn allgather<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let gathered = waiting(py, || self.0.allgather(bytes))?;
        Ok(gathered.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }
}
