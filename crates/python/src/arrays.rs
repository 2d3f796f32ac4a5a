//! Arrays of the caller's, as Python's buffer protocol shows them: address, shape, strides.
#![allow(unsafe_code)]

use forebay_client::core::dtype::Dtype;
use forebay_client::store::strided::{Source, Target};
use forebay_client::{Error, Result};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::intern;
use pyo3::prelude::*;

/// An array of the caller's, which stays where it is as long as this lives.
pub(crate) struct Array {
    buffer: PyUntypedBuffer,
    shape: Vec<u64>,
    strides: Vec<i64>,
    dtype: Dtype,
}

impl Array {
    /// An array whose elements have this dtype, as the package has checked.
    pub(crate) fn of(object: &Bound<'_, PyAny>, dtype: Dtype) -> PyResult<Array> {
        // A buffer without dimensions has no shape, which PyO3 refuses.
        let scalar = object.getattr(intern!(object.py(), "ndim"))?.extract::<usize>()? == 0;
        let shown = if scalar { &object.call_method1("reshape", (1,))? } else { object };
        let buffer = PyUntypedBuffer::get(shown)?;
        let ndim = if scalar { 0 } else { buffer.dimensions() };
        let shape = buffer.shape().iter().take(ndim).map(|n| *n as u64).collect();
        let strides = buffer.strides().iter().take(ndim).map(|n| *n as i64).collect();
        Ok(Array { buffer, shape, strides, dtype })
    }

    /// The shape that is stored: ghosts included.
    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape
    }

    fn check(&self) -> Result<()> {
        if self.buffer.item_size() == self.dtype.size() {
            return Ok(());
        }
        Err(Error::internal(format!("elements of {} bytes for {}", self.buffer.item_size(), self.dtype)))
    }

    /// Whether no two elements share memory, as far as strides tell: each dimension steps over all that the finer
    /// ones span.
    fn elements_are_apart(&self) -> bool {
        let long = self.shape.iter().zip(&self.strides).filter(|(n, _)| **n > 1);
        let mut dimensions: Vec<(u64, u64)> = long.map(|(n, stride)| (stride.unsigned_abs(), *n)).collect();
        dimensions.sort_unstable();
        let mut spanned = self.dtype.size() as u64;
        self.shape.contains(&0)
            || dimensions.into_iter().all(|(stride, n)| {
                let apart = stride >= spanned;
                spanned = spanned.saturating_add(stride.saturating_mul(n - 1));
                apart
            })
    }

    /// To be read.
    pub(crate) fn source(&self) -> Result<Source<'_>> {
        self.check()?;
        let address = self.buffer.buf_ptr().cast_const().cast();
        // SAFETY: the buffer keeps the array, and says where its elements are.
        let source = unsafe { Source::new(address, &self.shape, Some(&self.strides), self.dtype.size()) };
        source?.typed(self.dtype)
    }

    /// To be written.
    pub(crate) fn target(&mut self) -> Result<Target<'_>> {
        self.check()?;
        if self.buffer.readonly() {
            return Err(Error::internal("an array that is read-only cannot be read into"));
        }
        if !self.elements_are_apart() {
            return Err(Error::invalid(
                "out: its elements share memory, so that it cannot hold what is read",
            ));
        }
        let address = self.buffer.buf_ptr().cast();
        // SAFETY: as above; it may be written, and no two of its elements overlap.
        let target = unsafe { Target::new(address, &self.shape, Some(&self.strides), self.dtype.size()) };
        target?.typed(self.dtype)
    }
}
