//! Types of elements, and operations on them, as Python names them.
#![allow(unsafe_code)]

use super::given::part;
use super::memory::{Access, Element, Held};
use crate::errors::{raise, waiting};
use forebay_client::comm::{Datatype as Kind, Function, Operation, Reduction};
use forebay_client::{Error, ErrorKind};
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::Arc;

/// A type of elements.
#[pyclass(frozen, subclass)]
pub(crate) struct Datatype(pub(crate) Element);

/// What a reduction does.
#[pyclass(frozen, subclass)]
pub(crate) struct Op(What);

enum What {
    BuiltIn(Operation),
    Function(Py<PyAny>),
    /// It is none of buffers.
    Other(String),
}

macro_rules! named {
    ($given:expr, $type:ident: $($name:ident),*) => {
        match $given {
            $(stringify!($name) => Some($type::$name),)*
            _ => None,
        }
    };
}

#[pymethods]
impl Datatype {
    /// Elements of so many bytes; of this kind, if reductions are to know them.
    #[new]
    fn new(bytes: usize, kind: &str) -> Datatype {
        let datatype = named!(kind, Kind: Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64,
            Complex64, Complex128, Bool, Float16, BFloat16, Float32Int, Float64Int, Int64Int, Int32Int, Int16Int);
        Datatype(Element { bytes, datatype })
    }

    /// What a buffer holds.
    #[staticmethod]
    fn of(buffer: &Bound<'_, PyAny>) -> PyResult<Datatype> {
        Held::of(buffer, Access::Reads)?.element().map(Datatype)
    }

    /// Bytes of an element.
    #[getter]
    fn size(&self) -> usize {
        self.0.bytes
    }

    /// What reductions know it as; empty if they do not.
    #[getter]
    fn kind(&self) -> String {
        self.0.datatype.map_or(String::new(), |kind| format!("{kind:?}"))
    }
}

#[pymethods]
impl Op {
    /// An operation that is built in, by its name, or a function of two buffers, which replaces what is in the second.
    #[new]
    fn new(name: &str, function: Option<Py<PyAny>>) -> Op {
        let operation = named!(name, Operation: Sum, Product, Min, Max, LogicalAnd, LogicalOr, LogicalXor, BitAnd,
            BitOr, BitXor, MinLocation, MaxLocation);
        Op(match (function, operation) {
            (Some(function), _) => What::Function(function),
            (None, Some(operation)) => What::BuiltIn(operation),
            (None, None) => What::Other(name.to_owned()),
        })
    }

    /// Combines the elements of two buffers within this process: the second become the first with them.
    fn combine(&self, py: Python<'_>, first: &Bound<'_, PyAny>, second: &Bound<'_, PyAny>) -> PyResult<()> {
        let (first, mut second) = (part(first, Access::Reads)?, part(second, Access::Writes)?);
        let reduction = self.of(py, second.element)?;
        waiting(py, || reduction.apply(first.slice(), second.slice_mut()))
    }
}

impl Op {
    /// The same on elements of this type.
    pub(crate) fn of(&self, py: Python<'_>, element: Element) -> PyResult<Reduction> {
        let reduction = match &self.0 {
            What::BuiltIn(operation) => match element.datatype {
                Some(datatype) => Reduction::new(datatype, *operation),
                None => Err(Error::new(
                    ErrorKind::TypeMismatch,
                    format!(
                        "{operation:?} of elements of {} bytes that are no number is not defined",
                        element.bytes
                    ),
                )),
            },
            What::Function(function) => Reduction::by(element.bytes, called(function.clone_ref(py), element)),
            What::Other(name) => Err(Error::invalid(format!("the operation '{name}' is none on buffers"))),
        };
        reduction.map_err(raise)
    }
}

/// A Python function on the elements of two ranks.
fn called(function: Py<PyAny>, element: Element) -> Arc<Function> {
    Arc::new(move |_, lower, higher| {
        let called = Python::try_attach(|py| {
            // The first is only read, whatever the function does with it.
            let lower = shown(py, lower.as_ptr().cast_mut(), lower.len(), ffi::PyBUF_READ)?;
            let higher = shown(py, higher.as_mut_ptr(), higher.len(), ffi::PyBUF_WRITE)?;
            let kind = element.datatype.map_or(String::new(), |kind| format!("{kind:?}"));
            let called = function.call1(py, (&lower, &higher, kind, element.bytes));
            // Views that the function has kept are of no use any more, and say so; one that is in use keeps this from ending well.
            let released = lower.call_method0("release").and(higher.call_method0("release"));
            called.and(released.map(Bound::unbind)).map(drop)
        });
        match called {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(Error::invalid(format!("the function of a reduction raised {error}"))),
            None => Err(Error::new(ErrorKind::Closed, "the interpreter has ended")),
        }
    })
}

fn shown<'py>(py: Python<'py>, start: *mut u8, bytes: usize, flags: i32) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: so many bytes are there until the view is released, before the caller returns.
    unsafe {
        let view = ffi::PyMemoryView_FromMemory(start.cast(), bytes as isize, flags);
        Bound::from_owned_ptr_or_err(py, view)
    }
}
