//! The space.

use crate::arrays::Array;
use crate::consumer::{describe, scalar};
use crate::errors::{Freed, raise, waiting};
use crate::options::SpaceGiven;
use crate::producer::{dims, extent, field};
use crate::timeout::Timeout;
use forebay_client::core::contract::Field;
use forebay_client::core::dtype::Dtype;
use forebay_client::{ErrorKind, Selection, SpaceArray, SpacePut};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

#[pyclass(frozen)]
pub(crate) struct Space {
    space: forebay_client::Space,
    /// Fields as they were last seen, so that reading one more step of them is one question.
    fields: Mutex<HashMap<String, Field>>,
}

/// How many fields are remembered.
const FIELDS_MAX: usize = 1024;
/// How often a field may be replaced, by one of another shape and back, while it is read.
const REPLACED_MAX: u32 = 100;

impl Space {
    fn remember(&self, name: &str, field: Field) {
        let mut fields = self.fields.lock().unwrap_or_else(PoisonError::into_inner);
        if fields.len() >= FIELDS_MAX {
            fields.clear();
        }
        fields.insert(name.to_owned(), field);
    }
}

#[pymethods]
impl Space {
    #[new]
    fn open(py: Python<'_>, options: SpaceGiven) -> PyResult<Space> {
        let options = options.options()?;
        let space = waiting(py, || forebay_client::Space::open(&options))?;
        Ok(Space { space, fields: Mutex::default() })
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
        array: &Bound<'_, PyAny>,
        replace: bool,
    ) -> PyResult<()> {
        let array = Array::of(array, Dtype::parse(dtype).map_err(raise)?)?;
        let field = Field { whole: replace, ..field(name, dtype, array.shape().len(), global)? };
        let put = SpacePut { field, step, extent: extent(name, offset, array.shape(), None)? };
        waiting(py, || self.space.put(&put, &array.source()?))
    }

    /// Describes a field at a step to `make`, which says what to read to where, and reads it once it is covered.
    /// The field is described as it was last seen; if it has another shape now, `make` is asked again.
    fn get(
        &self,
        py: Python<'_>,
        name: &str,
        step: u64,
        timeout: Timeout,
        make: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        type Made = (Vec<u64>, Vec<u64>, Vec<u64>, Py<PyAny>);
        let (began, timeout) = (Instant::now(), timeout.wait()?);
        let left = || timeout.saturating_sub(began.elapsed());
        // Before a lock is waited for that the parent's threads may have held.
        self.space.check_process().map_err(raise)?;
        let mut replaced = 0;
        let mut known = self.fields.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        loop {
            let field = match known {
                Some(field) => field,
                None => waiting(py, || self.space.field(name, step, left()))?,
            };
            let made = make.call1((describe(py, &field)?,)).and_then(|made| made.extract::<Made>());
            let (offset, shape, every, out) = match made {
                Ok(made) => made,
                Err(error) if !error.is_instance_of::<PyException>(py) => return Err(error),
                // What does not fit the field as it was once may fit it as it is at this step.
                Err(error) => match waiting(py, || self.space.field(name, step, left()))? {
                    now if now != field => {
                        known = Some(now);
                        continue;
                    }
                    _ => return Err(error),
                },
            };
            let selection = Selection { offset: dims(&offset), shape: dims(&shape), step: dims(&every) };
            let found = waiting(py, || {
                let found =
                    field.span_of(&selection).and_then(|span| self.space.find(name, step, &span, left()));
                match found {
                    Ok(found) if found.field() != &field => Ok(Err(found.field().clone())),
                    Ok(found) => Ok(Ok(found)),
                    // Who does not answer tells no shape either.
                    Err(error) if error.is_retryable() => Err(error),
                    // The shape may be another one at this step.
                    Err(error) => match self.space.field(name, step, left()) {
                        Ok(now) if now != field => Ok(Err(now)),
                        // It was replaced by one of another shape, and that by one of the first shape again.
                        Ok(now) if error.kind == ErrorKind::OutOfBounds && replaced < REPLACED_MAX => {
                            replaced += 1;
                            Ok(Err(now))
                        }
                        _ => Err(error),
                    },
                }
            })?;
            let found = match found {
                Ok(found) => Freed::new(found),
                Err(now) => {
                    known = Some(now);
                    continue;
                }
            };
            let mut array = Array::of(out.bind(py), field.dtype)?;
            self.remember(name, field);
            return waiting(py, || found.read(&selection, &mut array.target()?));
        }
    }

    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        step: u64,
        timeout: Timeout,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout = timeout.wait()?;
        let value = waiting(py, || self.space.evaluate(text, step, timeout))?;
        scalar(py, &value)
    }

    fn remove(&self, py: Python<'_>, name: &str, step: u64) -> PyResult<()> {
        waiting(py, || self.space.remove(name, step))
    }

    /// Name, step, dtype, shape, count of blocks and bytes of each array.
    #[allow(clippy::type_complexity)]
    fn list(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, String, Vec<u64>, u64, u64)>> {
        let arrays = waiting(py, || self.space.list())?;
        let told = arrays.into_iter().map(|SpaceArray { field, step, blocks, bytes }| {
            let shape = field.shape.as_deref().unwrap_or_default().to_vec();
            (field.name, step, field.dtype.to_string(), shape, blocks, bytes)
        });
        Ok(told.collect())
    }
}
