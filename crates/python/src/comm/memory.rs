//! Memory of the caller's, as Python's buffer protocol shows it: contiguous, with or without dimensions.
#![allow(unsafe_code)]

use crate::errors::raise;
use forebay_client::comm::{Datatype, Memory};
use forebay_client::{Error, ErrorKind};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;

/// What a call may do with the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Reads,
    Writes,
}

/// Elements of one type: how many bytes each has, and what reductions can do with it, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) bytes: usize,
    pub(crate) datatype: Option<Datatype>,
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.datatype {
            Some(datatype) => write!(f, "{datatype:?}"),
            None => write!(f, "{} bytes", self.bytes),
        }
    }
}

/// Memory that stays where it is as long as this lives.
pub(crate) struct Held(Box<ffi::Py_buffer>);

// SAFETY: the view is released with the interpreter held, whichever thread does it; until then it is only read.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Held {
    /// The memory of an object. Python's own error says what it is not: no buffer, not contiguous, read-only.
    pub(crate) fn of(object: &Bound<'_, PyAny>, access: Access) -> PyResult<Held> {
        let mut view = Box::new(ffi::Py_buffer::new());
        let mut flags = ffi::PyBUF_FORMAT | ffi::PyBUF_ANY_CONTIGUOUS;
        if access == Access::Writes {
            flags |= ffi::PyBUF_WRITABLE;
        }
        // SAFETY: the view is filled by the object, which it keeps alive.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Held(view))
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.0.buf.cast()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len.unsigned_abs()
    }

    /// What it holds.
    pub(crate) fn element(&self) -> PyResult<Element> {
        let bytes = self.0.itemsize.unsigned_abs();
        if self.0.format.is_null() {
            return Ok(Element { bytes: 1, datatype: Some(Datatype::UInt8) });
        }
        // SAFETY: the object gives a string that lives as long as the view.
        let format = unsafe { CStr::from_ptr(self.0.format) };
        element_of(format.to_bytes(), bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Where the interpreter has ended there is nobody to give it back to.
        Python::try_attach(|_| {
            // SAFETY: it was filled, and is released once, with the interpreter held.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.0) }
        });
    }
}

/// The type of elements that a format of Python's `struct` describes, if each is one number.
fn element_of(format: &[u8], bytes: usize) -> PyResult<Element> {
    let (order, kind) = match format.split_first() {
        Some((order @ (b'@' | b'=' | b'<' | b'>' | b'!'), kind)) => (*order, kind),
        _ => (b'@', format),
    };
    if matches!(order, b'>' | b'!') && bytes > 1 {
        let shown = String::from_utf8_lossy(format);
        return Err(raise(Error::new(
            ErrorKind::TypeMismatch,
            format!(
                "elements of format '{shown}' are big-endian, this machine is not: send array.astype(array.dtype.newbyteorder('='))"
            ),
        )));
    }
    let datatype = match (kind, bytes) {
        (b"b", 1) => Some(Datatype::Int8),
        (b"B" | b"c", 1) => Some(Datatype::UInt8),
        (b"?", 1) => Some(Datatype::Bool),
        (b"h" | b"i" | b"l" | b"q" | b"n", 2) => Some(Datatype::Int16),
        (b"h" | b"i" | b"l" | b"q" | b"n", 4) => Some(Datatype::Int32),
        (b"h" | b"i" | b"l" | b"q" | b"n", 8) => Some(Datatype::Int64),
        (b"H" | b"I" | b"L" | b"Q" | b"N", 2) => Some(Datatype::UInt16),
        (b"H" | b"I" | b"L" | b"Q" | b"N", 4) => Some(Datatype::UInt32),
        (b"H" | b"I" | b"L" | b"Q" | b"N", 8) => Some(Datatype::UInt64),
        (b"e", 2) => Some(Datatype::Float16),
        (b"f", 4) => Some(Datatype::Float32),
        (b"d", 8) => Some(Datatype::Float64),
        (b"Zf", 8) => Some(Datatype::Complex64),
        (b"Zd", 16) => Some(Datatype::Complex128),
        _ => None,
    };
    Ok(Element { bytes: bytes.max(1), datatype })
}

/// Some of the memory that an object shows: so many elements of one type.
pub(crate) struct Part {
    held: Held,
    offset: usize,
    bytes: usize,
    pub(crate) element: Element,
}

impl Part {
    /// All of it.
    pub(crate) fn whole(held: Held) -> PyResult<Part> {
        let (element, bytes) = (held.element()?, held.bytes());
        Ok(Part { held, offset: 0, bytes, element })
    }

    /// These bytes of it, if there are so many.
    pub(crate) fn within(held: Held, offset: usize, bytes: usize, element: Element) -> PyResult<Part> {
        let all = held.bytes();
        if offset.checked_add(bytes).is_none_or(|end| end > all) {
            return Err(raise(Error::invalid(format!(
                "message: {bytes} bytes from byte {offset} on are asked for, the buffer has {all}"
            ))));
        }
        Ok(Part { held, offset, bytes, element })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many elements.
    pub(crate) fn count(&self) -> usize {
        self.bytes / self.element.bytes
    }

    fn start(&self) -> *mut u8 {
        self.held.start().wrapping_add(self.offset)
    }

    /// Whether two share bytes.
    pub(crate) fn overlaps(&self, other: &Part) -> bool {
        let ends = |part: &Part| (part.start().addr(), part.start().addr() + part.bytes);
        let ((a, a_end), (b, b_end)) = (ends(self), ends(other));
        self.bytes > 0 && other.bytes > 0 && a < b_end && b < a_end
    }

    pub(crate) fn slice(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the view keeps so many bytes where they are. Python code that writes to them meanwhile breaks what it was told of
        // every buffer that is being sent.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }

    pub(crate) fn slice_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: as above; it was asked for with `Access::Writes`.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) }
    }

    /// For an operation that goes on: whoever asks keeps this until that is over.
    pub(crate) fn memory(&self) -> Memory {
        self.memory_of_first(self.bytes)
    }

    /// The same of so many bytes of it, or of all if it has fewer.
    pub(crate) fn memory_of_first(&self, bytes: usize) -> Memory {
        // SAFETY: the request that it is given to keeps this part, and drops its operation first.
        unsafe { Memory::new(self.start(), bytes.min(self.bytes)) }
    }

    /// Fails unless another one, whose elements are reduced to these, is as long.
    pub(crate) fn check_length(&self, other: &Part) -> PyResult<()> {
        let (mine, theirs) = (self.bytes, other.bytes);
        if mine != theirs {
            return Err(raise(Error::invalid(format!(
                "message: {theirs} bytes are sent, there is room for {mine} of the result"
            ))));
        }
        Ok(())
    }

    /// Has the same bytes as another one.
    pub(crate) fn copy_from(&mut self, other: &Part) -> PyResult<()> {
        self.check_length(other)?;
        self.slice_mut().copy_from_slice(other.slice());
        Ok(())
    }
}

/// Memory of this process's own, for an operation that goes on.
pub(crate) fn own(bytes: &mut Vec<u8>) -> Memory {
    // SAFETY: the request that it is given to keeps the bytes, and drops its operation first.
    unsafe { Memory::new(bytes.as_mut_ptr(), bytes.len()) }
}
