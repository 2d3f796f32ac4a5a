//! Consumers and their steps.

use crate::arrays::Array;
use crate::buffers::ReadBuffer;
use crate::errors::{Freed, raise, waiting};
use crate::given;
use crate::options::ConsumerGiven;
use crate::producer::dims;
use crate::timeout::Timeout;
use forebay_client::core::block::BlockRecord;
use forebay_client::core::contract::Field;
use forebay_client::core::dtype::Dtype;
use forebay_client::core::stats::{Stats, Sum, Value};
use forebay_client::query::value::{Number, Place, Scalar};
use forebay_client::{AttrValues, Bounds, Choice, Holes, Selection, Share};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyDict, PyList, PyTuple};

#[pyclass(frozen)]
pub(crate) struct Consumer(Freed<forebay_client::Consumer>);

#[pyclass(frozen)]
pub(crate) struct Step {
    pub(crate) step: Freed<forebay_client::Step>,
    /// In a worker: which blocks are its own.
    pub(crate) share: Option<Share>,
}

#[pymethods]
impl Consumer {
    #[new]
    fn open(py: Python<'_>, stream: String, options: ConsumerGiven) -> PyResult<Consumer> {
        let options = options.options(stream)?;
        waiting(py, || forebay_client::Consumer::open(&options)).map(|opened| Consumer(Freed::new(opened)))
    }

    fn next_step(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Step> {
        let timeout = timeout.map(Timeout::wait).transpose()?;
        let step = waiting(py, || self.0.next_step(timeout))?;
        Ok(Step { step: Freed::new(step), share: None })
    }

    fn poll(&self, py: Python<'_>) -> PyResult<Option<Step>> {
        let step = waiting(py, || self.0.poll())?;
        Ok(step.map(|step| Step { step: Freed::new(step), share: None }))
    }

    fn need(&self, py: Python<'_>, fields: given::Fields, every: u32) -> PyResult<Option<(u64, u64)>> {
        let needs = given::needs(fields, every)?;
        waiting(py, || self.0.need(&needs))
    }

    fn cursor(&self) -> PyResult<Option<(u64, u64)>> {
        self.0.cursor().map_err(raise)
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

/// What Python knows of a field.
pub(crate) fn describe<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("name", &field.name)?;
    told.set_item("dtype", field.dtype.name())?;
    told.set_item("ndim", field.ndim)?;
    told.set_item("shape", field.shape.as_deref().map(|shape| PyTuple::new(py, shape)).transpose()?)?;
    told.set_item("every", field.every)?;
    told.set_item("association", field.association.named().name)?;
    told.set_item("dims", PyTuple::new(py, &field.dims)?)?;
    told.set_item("spacing", PyTuple::new(py, &field.spacing)?)?;
    told.set_item("origin", PyTuple::new(py, &field.origin)?)?;
    told.set_item("units", &field.units)?;
    told.set_item("periodic", PyTuple::new(py, &field.periodic)?)?;
    told.set_item("refinement", PyTuple::new(py, &field.refinement)?)?;
    told.set_item("static", field.is_static)?;
    Ok(told)
}

/// Minimum, maximum, sum, count, NaN and variance: integers as such.
fn describe_stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyTuple>> {
    let value = |value: Value| match value {
        Value::Int(value) => value.into_bound_py_any(py),
        Value::Unsigned(value) => value.into_bound_py_any(py),
        Value::Float(value) => value.into_bound_py_any(py),
    };
    let none = Value::Float(f64::NAN);
    let (min, max) = stats.bounds.unwrap_or((none, none));
    let sum = match stats.sum {
        Sum::Int(sum) => sum.into_bound_py_any(py)?,
        Sum::Float(high, _) => high.into_bound_py_any(py)?,
    };
    (value(min)?, value(max)?, sum, stats.count, stats.nan, stats.variance()).into_pyobject(py)
}

/// A number, a condition, or a place as its index, level, rank and block; `None` of what is not known.
pub(crate) fn scalar<'py>(py: Python<'py>, value: &Scalar) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Scalar::Number(Number::Integer(number)) => number.into_bound_py_any(py),
        Scalar::Number(number) => number.to_f64().into_bound_py_any(py),
        Scalar::Condition(condition) => condition.into_bound_py_any(py),
        Scalar::Place(place) => place.as_ref().map(place_parts).into_bound_py_any(py),
        Scalar::Unknown(_) => py.None().into_bound_py_any(py),
    }
}

/// Index, level, and the block's rank and number.
pub(crate) fn place_parts(place: &Place) -> (Vec<u64>, u32, Option<u32>, Option<u64>) {
    let block = place.block;
    (place.index.to_vec(), place.level, block.map(|block| block.rank), block.map(|block| block.number))
}

fn describe_block<'py>(py: Python<'py>, record: &BlockRecord) -> PyResult<Bound<'py, PyDict>> {
    let (told, extent) = (PyDict::new(py), &record.extent);
    told.set_item("rank", record.key.rank)?;
    told.set_item("number", record.key.number)?;
    told.set_item("level", record.level)?;
    told.set_item("server", record.location.server.0)?;
    told.set_item("offset", extent.offset().map(|offset| PyTuple::new(py, offset)).transpose()?)?;
    told.set_item("shape", PyTuple::new(py, extent.shape())?)?;
    told.set_item("step", PyTuple::new(py, &extent.selection().step)?)?;
    told.set_item("ghost_low", PyTuple::new(py, &*extent.ghost_low())?)?;
    told.set_item("ghost_high", PyTuple::new(py, &*extent.ghost_high())?)?;
    told.set_item("stored", PyTuple::new(py, &*extent.stored_shape())?)?;
    let whole = record.stats.as_ref().and_then(|stats| stats.whole());
    told.set_item("stats", whole.map(|stats| describe_stats(py, &stats)).transpose()?)?;
    let tiles = record.stats.as_ref().filter(|_| whole.is_some());
    told.set_item("tiles", tiles.map(|stats| PyBytes::new(py, &stats.tiles)))?;
    Ok(told)
}

fn describe_place<'py>(
    py: Python<'py>,
    record: &BlockRecord,
    host: Option<String>,
) -> PyResult<Bound<'py, PyDict>> {
    let (told, extent) = (PyDict::new(py), &record.extent);
    told.set_item("rank", record.key.rank)?;
    told.set_item("number", record.key.number)?;
    told.set_item("level", record.level)?;
    told.set_item("offset", extent.offset().map(|offset| PyTuple::new(py, offset)).transpose()?)?;
    told.set_item("shape", PyTuple::new(py, extent.shape())?)?;
    told.set_item("nbytes", record.location.bytes)?;
    told.set_item("host", host)?;
    Ok(told)
}

/// The lowest and the highest places.
type PyBounds = (Vec<f64>, Vec<f64>);
type PyBlock<'py> = (Bound<'py, PyDict>, ReadBuffer);

#[pymethods]
impl Step {
    #[getter]
    fn run(&self) -> u64 {
        self.step.report().id.run
    }

    #[getter]
    fn stream(&self) -> &str {
        &self.step.report().id.stream
    }

    #[getter]
    fn number(&self) -> u64 {
        self.step.number()
    }

    #[getter]
    fn time(&self) -> f64 {
        self.step.report().time
    }

    #[getter]
    fn missed(&self) -> u64 {
        self.step.report().missed
    }

    #[getter]
    fn rewound(&self) -> bool {
        self.step.report().rewound
    }

    #[getter]
    fn torn(&self) -> bool {
        self.step.report().torn
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.step.report().attempt
    }

    fn fields(&self) -> Vec<String> {
        self.step.fields().map(|report| report.field.name.clone()).collect()
    }

    fn field<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        describe(py, self.step.field(name).map_err(raise)?)
    }

    /// The statistics of a whole field, if the contract asks for them.
    fn stats<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let stats = self.step.stats(name).map_err(raise)?;
        stats.map(|stats| describe_stats(py, &stats)).transpose()
    }

    /// The attributes of the stream, or of a field.
    fn attrs<'py>(&self, py: Python<'py>, field: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        for (key, attr) in self.step.attrs().of(field) {
            let values = match &attr.values {
                AttrValues::Bool(values) => PyList::new(py, values)?,
                AttrValues::Int(values) => PyList::new(py, values)?,
                AttrValues::Float(values) => PyList::new(py, values)?,
                AttrValues::Text(values) => PyList::new(py, values)?,
                AttrValues::Unsigned(values) => PyList::new(py, values)?,
                AttrValues::Complex(values) => {
                    PyList::new(py, values.iter().map(|[re, im]| PyComplex::from_doubles(py, *re, *im)))?
                }
            };
            if attr.list { told.set_item(key, values)? } else { told.set_item(key, values.get_item(0)?)? }
        }
        Ok(told)
    }

    /// Each block with its bytes; in a worker those of its share, unless `all_servers`.
    fn blocks<'py>(&self, py: Python<'py>, name: &str, all_servers: bool) -> PyResult<Vec<PyBlock<'py>>> {
        let mine = self.share.as_ref().filter(|_| !all_servers);
        let views = waiting(py, || match mine {
            Some(share) => self.step.own_blocks(name, share),
            None => self.step.blocks(name, |_| true),
        })?;
        views
            .into_iter()
            .map(|view| Ok((describe_block(py, &view.record)?, ReadBuffer(Freed::new(view.bytes)))))
            .collect()
    }

    /// One block with its bytes, by its place among the field's.
    fn block<'py>(&self, py: Python<'py>, name: &str, place: usize) -> PyResult<PyBlock<'py>> {
        let view = waiting(py, || self.step.block(name, place))?;
        Ok((describe_block(py, &view.record)?, ReadBuffer(Freed::new(view.bytes))))
    }

    /// Of a parallel reader: each of this rank's blocks with its bytes.
    fn mine<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<PyBlock<'py>>> {
        let views = waiting(py, || self.step.mine(name))?;
        views
            .into_iter()
            .map(|view| Ok((describe_block(py, &view.record)?, ReadBuffer(Freed::new(view.bytes)))))
            .collect()
    }

    /// Of a parallel reader: this rank's slab, as offset, shape and step.
    fn mine_region(&self, name: &str) -> PyResult<(Vec<u64>, Vec<u64>, Vec<u64>)> {
        let Selection { offset, shape, step } = self.step.mine_region(name).map_err(raise)?;
        Ok((offset.to_vec(), shape.to_vec(), step.to_vec()))
    }

    /// What is known of each block before it is read, for those who assign them.
    fn places<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let records = waiting(py, || self.step.records(name))?;
        let hosts = self.step.hosts_of_blocks(name).map_err(raise)?;
        let hosts = hosts.into_iter().chain(std::iter::repeat(None));
        records.iter().zip(hosts).map(|(record, host)| describe_place(py, record, host)).collect()
    }

    /// The ranks that read, with their hosts, and which of them this one is.
    fn readers(&self) -> (Vec<(u32, String)>, u32) {
        self.step.readers()
    }

    fn row_count(&self, py: Python<'_>, name: &str) -> PyResult<u64> {
        waiting(py, || self.step.row_count(name))
    }

    /// Fills an array of the caller's with rows.
    fn read_rows(
        &self,
        py: Python<'_>,
        name: &str,
        first: u64,
        out: &Bound<'_, PyAny>,
        dtype: &str,
    ) -> PyResult<()> {
        let mut array = Array::of(out, Dtype::parse(dtype).map_err(raise)?)?;
        waiting(py, || self.step.read_rows(name, first, &mut array.target()?))
    }

    /// The bounds of all ranks that said so: of what is theirs, and with their ghosts.
    fn rank_bounds(&self, py: Python<'_>) -> PyResult<Vec<(u32, PyBounds, PyBounds)>> {
        let bounds = |Bounds { low, high }| (low, high);
        let told = waiting(py, || self.step.rank_bounds())?.into_iter();
        Ok(told.map(|(rank, told)| (rank, bounds(told.own), bounds(told.with_ghosts))).collect())
    }

    /// The box in space that elements of a field fill, with so many ghosts around them.
    #[allow(clippy::too_many_arguments)]
    fn bounds(
        &self,
        name: &str,
        offset: Vec<u64>,
        shape: Vec<u64>,
        step: Vec<u64>,
        level: u32,
        ghost_low: Vec<u64>,
        ghost_high: Vec<u64>,
    ) -> PyResult<PyBounds> {
        let elements = Selection { offset: dims(&offset), shape: dims(&shape), step: dims(&step) };
        let field = self.step.field(name).map_err(raise)?;
        let Bounds { low, high } =
            field.bounds_of(&elements, level, (&ghost_low, &ghost_high)).map_err(raise)?;
        Ok((low, high))
    }

    /// Fills an array of the caller's with the selected elements.
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        name: &str,
        offset: Vec<u64>,
        shape: Vec<u64>,
        step: Vec<u64>,
        out: &Bound<'_, PyAny>,
        dtype: &str,
        filled: bool,
    ) -> PyResult<()> {
        let selection = Selection { offset: dims(&offset), shape: dims(&shape), step: dims(&step) };
        let mut array = Array::of(out, Dtype::parse(dtype).map_err(raise)?)?;
        let holes = if filled { Holes::Left } else { Holes::Refused };
        waiting(py, || self.step.read_with(name, &selection, holes, &mut array.target()?))
    }

    /// The part of a field that the reader needs, if not all: of each dimension the first element, how many, and how far apart.
    fn needed(&self, py: Python<'_>, name: &str) -> PyResult<Option<Vec<[u64; 3]>>> {
        let part = waiting(py, || self.step.needed(name))?;
        let of_dimension = |part: &Selection, d: usize| [part.offset[d], part.shape[d], part.step[d]];
        Ok(part.map(|part| (0..part.offset.len()).map(|d| of_dimension(&part, d)).collect()))
    }

    /// What an expression gives: a number, a condition, or a place as its index, level, rank and block.
    fn evaluate<'py>(&self, py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
        match waiting(py, || self.step.evaluate(text))? {
            // A step that is held says why.
            Scalar::Unknown(why) => Err(raise(why.error())),
            value => scalar(py, &value),
        }
    }

    /// Which of the selected elements were put: offset and shape of disjoint boxes of the selection.
    fn covered(
        &self,
        py: Python<'_>,
        name: &str,
        offset: Vec<u64>,
        shape: Vec<u64>,
        step: Vec<u64>,
    ) -> PyResult<Vec<(Vec<u64>, Vec<u64>)>> {
        let selection = Selection { offset: dims(&offset), shape: dims(&shape), step: dims(&step) };
        let parts = waiting(py, || self.step.covered(name, &selection))?;
        Ok(parts.iter().map(|part| (part.offset().to_vec(), part.shape().to_vec())).collect())
    }

    /// The shape of a field's elements: of one of its blocks without the first dimension.
    fn element_shape(&self, py: Python<'_>, name: &str) -> PyResult<Vec<u64>> {
        let shape_of = |records: &[BlockRecord]| {
            records.first().and_then(|record| record.extent.shape().get(1..)).unwrap_or_default().to_vec()
        };
        waiting(py, || Ok(shape_of(&self.step.records(name)?)))
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || {
            self.step.release();
            Ok(())
        })
    }

    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || {
            self.step.give_back();
            Ok(())
        })
    }
}
