//! Producers.

use crate::arrays::Array;
use crate::buffers::WriteBuffer;
use crate::errors::{raise, waiting};
use crate::options::{FieldGiven, ProducerGiven};
use forebay_client::core::block::Extent;
use forebay_client::core::contract::Field;
use forebay_client::core::dtype::Dtype;
use forebay_client::core::region::Dims;
use forebay_client::{Attr, AttrValues, Block, Bounds, Choice, Outcome, RankBounds};
use pyo3::prelude::*;
use std::sync::Arc;

#[pyclass(frozen)]
pub(crate) struct Producer(pub(crate) Arc<forebay_client::Producer>);

/// A field from what Python gave.
pub(crate) fn field(name: &str, dtype: &str, ndim: usize, shape: Option<Vec<u64>>) -> PyResult<Field> {
    Ok(Field::new(name, Dtype::parse(dtype).map_err(raise)?, shape.as_deref(), ndim))
}

/// Ghost widths, low and high, of each dimension; none if there are none.
pub(crate) type Ghosts = Option<(Vec<u64>, Vec<u64>)>;

/// A block's box from what Python gave: the stored shape, and how much of it is ghosts.
pub(crate) fn extent(
    field: &str,
    offset: Option<Vec<u64>>,
    stored: &[u64],
    ghosts: Ghosts,
) -> PyResult<Extent> {
    let made = match ghosts {
        None => Extent::new(offset.as_deref(), stored, &[], &[]),
        Some((low, high)) => {
            // The package has checked that they are not wider than the array.
            let widths = low.iter().zip(&high).map(|(low, high)| low.saturating_add(*high));
            let interior: Vec<u64> =
                stored.iter().zip(widths).map(|(n, width)| n.saturating_sub(width)).collect();
            Extent::new(offset.as_deref(), &interior, &low, &high)
        }
    };
    made.map_err(|error| raise(error.during(format!("field '{field}'"))))
}

#[pymethods]
impl Producer {
    #[new]
    fn open(py: Python<'_>, stream: String, options: ProducerGiven) -> PyResult<Producer> {
        let options = options.options(stream)?;
        waiting(py, || forebay_client::Producer::open(&options)).map(|opened| Producer(Arc::new(opened)))
    }

    #[getter]
    fn run(&self) -> u64 {
        self.0.run()
    }

    #[getter]
    fn transport(&self) -> String {
        self.0.transport().to_string()
    }

    /// How many steps were begun while staging was given up.
    fn skipped(&self, py: Python<'_>) -> PyResult<u64> {
        waiting(py, || Ok(self.0.skipped()))
    }

    /// Why staging was given up and how many steps were skipped, or None.
    fn lost(&self, py: Python<'_>) -> PyResult<Option<(String, u64)>> {
        let lost = waiting(py, || Ok(self.0.lost()))?;
        Ok(lost.map(|(error, skipped)| (error.text, skipped)))
    }

    fn array(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        ndim: usize,
        shape: Option<Vec<u64>>,
        options: FieldGiven,
    ) -> PyResult<()> {
        let mut field = field(name, dtype, ndim, shape)?;
        options.apply(&mut field)?;
        waiting(py, || self.0.array(field))
    }

    /// Declares a particle species: name, dtype, dimensions and units of each field.
    fn particles(
        &self,
        py: Python<'_>,
        species: &str,
        fields: Vec<(String, String, usize, String)>,
        every: u32,
    ) -> PyResult<()> {
        let fields = fields.into_iter().map(|(name, dtype, ndim, units)| {
            let dtype = Dtype::parse(&dtype)?;
            Ok(Field { every, units, ..Field::new(&name, dtype, None, ndim) })
        });
        let fields = fields.collect::<forebay_client::Result<Vec<Field>>>().map_err(raise)?;
        waiting(py, || self.0.particles(species, fields))
    }

    fn rank_bounds(&self, py: Python<'_>, ndim: usize, every: u32) -> PyResult<()> {
        waiting(py, || self.0.rank_bounds(ndim, every))
    }

    fn put_rank_bounds(
        &self,
        py: Python<'_>,
        own: (Vec<f64>, Vec<f64>),
        with_ghosts: (Vec<f64>, Vec<f64>),
    ) -> PyResult<bool> {
        let bounds = |(low, high)| Bounds { low, high };
        let told = RankBounds { own: bounds(own), with_ghosts: bounds(with_ghosts) };
        Ok(waiting(py, || self.0.put_rank_bounds(&told))? == Outcome::Staged)
    }

    fn buffer(&self, py: Python<'_>, name: &str, every: u32) -> PyResult<()> {
        waiting(py, || self.0.buffer(name, every))
    }

    /// Sets an attribute; `kind` says of what type the values are.
    fn attr(
        &self,
        py: Python<'_>,
        field: Option<String>,
        key: &str,
        kind: &str,
        values: &Bound<'_, PyAny>,
        list: bool,
    ) -> PyResult<()> {
        let attr = attribute(kind, values, list)?;
        waiting(py, || self.0.attr(field.as_deref(), key, attr))
    }

    /// Sets an attribute of the open step.
    fn step_attr(&self, key: &str, kind: &str, values: &Bound<'_, PyAny>, list: bool) -> PyResult<()> {
        self.0.step_attr(key, attribute(kind, values, list)?).map_err(raise)
    }

    fn begin(&self, py: Python<'_>, step: u64, time: f64) -> PyResult<()> {
        waiting(py, || self.0.begin(step, time))
    }

    fn demanded(&self, py: Python<'_>, field: &str) -> PyResult<bool> {
        waiting(py, || self.0.demanded(field))
    }

    /// Puts an array; returns what became of it: "staged", "undemanded" or "dropped".
    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        py: Python<'_>,
        field: &str,
        array: &Bound<'_, PyAny>,
        dtype: &str,
        number: u64,
        level: u32,
        offset: Option<Vec<u64>>,
        ghosts: Ghosts,
        wait: bool,
    ) -> PyResult<&'static str> {
        let array = Array::of(array, Dtype::parse(dtype).map_err(raise)?)?;
        let block = Block { field, number, level, extent: extent(field, offset, array.shape(), ghosts)? };
        let put = if wait { forebay_client::Producer::put } else { forebay_client::Producer::put_async };
        let outcome = waiting(py, || put(&self.0, &block, &array.source()?))?;
        Ok(outcome.named().name)
    }

    /// Waits for what was put without waiting; how many blocks of it were dropped.
    fn wait(&self, py: Python<'_>) -> PyResult<u64> {
        waiting(py, || self.0.wait())
    }

    /// Memory of a block to compute into, with the number that commits it, or None.
    #[allow(clippy::too_many_arguments)]
    fn alloc(
        &self,
        py: Python<'_>,
        field: &str,
        number: u64,
        level: u32,
        offset: Option<Vec<u64>>,
        stored: Vec<u64>,
        ghosts: Ghosts,
    ) -> PyResult<Option<(u64, WriteBuffer)>> {
        let block = Block { field, number, level, extent: extent(field, offset, &stored, ghosts)? };
        let allocated = waiting(py, || self.0.alloc(&block))?;
        Ok(allocated.map(|allocation| (allocation.id, WriteBuffer { allocation })))
    }

    fn commit(&self, py: Python<'_>, allocation: u64) -> PyResult<()> {
        waiting(py, || self.0.commit(allocation))
    }

    fn abort(&self, py: Python<'_>, allocation: u64) -> PyResult<()> {
        waiting(py, || self.0.abort(allocation))
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || self.0.end())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || self.0.flush())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || self.0.close())
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || {
            self.0.abandon();
            Ok(())
        })
    }
}

/// Dimensions from Python.
pub(crate) fn dims(list: &[u64]) -> Dims {
    list.into()
}

/// An attribute; `kind` says of what type the values are.
fn attribute(kind: &str, values: &Bound<'_, PyAny>, list: bool) -> PyResult<Attr> {
    let values = match kind {
        "bool" => AttrValues::Bool(values.extract()?),
        "int" => AttrValues::Int(values.extract()?),
        "unsigned" => AttrValues::unsigned(values.extract()?),
        "float" => AttrValues::Float(values.extract()?),
        "complex" => AttrValues::Complex(values.extract()?),
        _ => AttrValues::Text(values.extract()?),
    };
    Ok(Attr { list, values })
}
