//! Buffers: bytes of arenas, as Python's buffer protocol shows them. NumPy arrays made of them keep them,
//! and so the memory that they show, alive.
#![allow(unsafe_code)]

use crate::errors::{Freed, raise};
use forebay_client::{Allocation, BlockBytes};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};

/// Read-only bytes of a block.
#[pyclass(frozen)]
pub(crate) struct ReadBuffer(pub(crate) Freed<BlockBytes>);

/// Writable bytes of a block that is being computed.
#[pyclass(frozen)]
pub(crate) struct WriteBuffer {
    pub(crate) allocation: Allocation,
}

#[pymethods]
impl ReadBuffer {
    fn __len__(&self) -> PyResult<usize> {
        self.0.as_raw().map(|(_, length)| length).map_err(raise)
    }

    /// # Safety
    /// Called by Python's buffer protocol with a valid view.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (address, length) = slf.get().0.as_raw().map_err(raise)?;
        // SAFETY: the bytes stay where and as they are while this object lives, and the view holds it.
        unsafe { fill(view, slf.as_ptr(), address.cast_mut().cast(), length, true, flags) }
    }
}

#[pymethods]
impl WriteBuffer {
    fn __len__(&self) -> usize {
        self.allocation.bytes as usize
    }

    /// # Safety
    /// Called by Python's buffer protocol with a valid view.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let allocation = &slf.get().allocation;
        let address = allocation.address().map_err(raise)?;
        // SAFETY: the mapping lives as long as this object, and the view holds it.
        unsafe { fill(view, slf.as_ptr(), address.cast(), allocation.bytes as usize, false, flags) }
    }
}

unsafe fn fill(
    view: *mut ffi::Py_buffer,
    owner: *mut ffi::PyObject,
    address: *mut c_void,
    length: usize,
    readonly: bool,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no view was given"));
    }
    // SAFETY: the view is valid, and the address holds `length` bytes, as the callers say.
    let result = unsafe {
        ffi::PyBuffer_FillInfo(view, owner, address, length as isize, c_int::from(readonly), flags)
    };
    if result != 0 { Err(Python::attach(PyErr::fetch)) } else { Ok(()) }
}
