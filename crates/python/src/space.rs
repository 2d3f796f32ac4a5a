//! The space.

use crate::arrays::Array;
use crate::consumer::describe;
use crate::errors::{raise, seconds};
use crate::group_options;
use crate::producer::{dims, extent, field};
use forebay_client::core::region::Region;
use forebay_client::{Selection, SpacePut};
use pyo3::prelude::*;
use pyo3::types::PyDict;

#[pyclass(frozen)]
pub(crate) struct Space(forebay_client::Space);

#[pymethods]
impl Space {
    #[new]
    fn open(py: Python<'_>, group: Option<String>, timeout: Option<f64>, transport: &str) -> PyResult<Space> {
        let options = group_options(group, transport, timeout)?;
        py.detach(|| forebay_client::Space::open(&options)).map(Space).map_err(raise)
    }

    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        global: Option<Vec<u64>>,
        step: u64,
        offset: Option<Vec<u64>>,
        address: usize,
        shape: Vec<u64>,
        strides: Vec<i64>,
        element: usize,
    ) -> PyResult<()> {
        let (none, ndim) = (Vec::new, shape.len());
        let field =
            field(name, dtype, ndim, global, 1, "cell", Vec::new(), none(), none(), String::new(), false)?;
        let put = SpacePut { field, step, extent: extent(offset, &shape, &[], &[])? };
        let array = Array { address, shape, strides, element };
        py.detach(|| self.0.put(&put, &array.source()?)).map_err(raise)
    }

    /// Describes a field at a step once the region is covered, then fills what `make` gives for it.
    #[allow(clippy::too_many_arguments)]
    fn get(
        &self,
        py: Python<'_>,
        name: &str,
        step: u64,
        region: Option<(Vec<u64>, Vec<u64>)>,
        timeout: f64,
        make: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let timeout = seconds(timeout)?;
        let region = region.map(|(offset, shape)| Region::new(&offset, &shape)).transpose().map_err(raise)?;
        let found = py.detach(|| self.0.find(name, step, region.as_ref(), timeout)).map_err(raise)?;
        let described: Bound<'_, PyDict> = describe(py, found.field())?;
        let made = make.call1((described,))?;
        type Made = (Vec<u64>, Vec<u64>, Vec<u64>, usize, Vec<i64>, usize);
        let (offset, shape, every, address, strides, element): Made = made.extract()?;
        let selection = Selection { offset: dims(&offset), shape: dims(&shape), step: dims(&every) };
        let mut array = Array { address, shape, strides, element };
        py.detach(|| found.read(&selection, &mut array.target()?)).map_err(raise)
    }

    fn remove(&self, py: Python<'_>, name: &str, step: u64) -> PyResult<()> {
        py.detach(|| self.0.remove(name, step)).map_err(raise)
    }
}
