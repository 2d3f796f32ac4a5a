//! What Python gives a communicator to send from and to write to.

use super::memory::{Access, Element, Held, Part};
use super::types::Datatype;
use crate::errors::raise;
use forebay_client::Error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// Part of a buffer as the package has made it out: object, offset in bytes, length in bytes, type.
type Explicit<'py> = (Bound<'py, PyAny>, usize, usize, PyRef<'py, Datatype>);

/// The memory of an object, or the part of it that a tuple tells. What is written to must be writable.
pub(super) fn part(given: &Bound<'_, PyAny>, access: Access) -> PyResult<Part> {
    if let Ok(given) = given.cast::<PyTuple>() {
        let (object, offset, bytes, datatype): Explicit<'_> = given.extract()?;
        return Part::within(Held::of(&object, access)?, offset, bytes, datatype.0);
    }
    if given.is_instance_of::<PyList>() {
        return Err(PyTypeError::new_err("a list is no buffer"));
    }
    Part::whole(Held::of(given, access)?)
}

/// The same, unless it is `None`.
pub(super) fn part_if_any(given: &Bound<'_, PyAny>, access: Access) -> PyResult<Option<Part>> {
    if given.is_none() { Ok(None) } else { part(given, access).map(Some) }
}

/// Fails where two are of different types, as far as these are known.
pub(super) fn check_same(sent: Element, received: Element) -> PyResult<()> {
    match (sent.datatype, received.datatype) {
        (Some(sent), Some(received)) if sent != received && sent.size() != received.size() => {
            Err(raise(Error::invalid(format!("{sent:?} is sent, {received:?} is to be received"))))
        }
        _ => Ok(()),
    }
}

/// Fails where elements of one type are to be combined into those of another.
pub(super) fn check_equal(sent: Element, received: Element) -> PyResult<()> {
    if sent == received {
        return Ok(());
    }
    let text =
        format!("elements of {sent} are combined into elements of {received}: they must be of one type");
    Err(raise(Error::invalid(text)))
}

/// Fails where what is sent is written to as well.
pub(super) fn check_apart(sent: Option<&Part>, received: &Part) -> PyResult<()> {
    if sent.is_some_and(|sent| sent.overlaps(received)) {
        let text =
            "what is sent and what is received share memory: pass MPI.IN_PLACE in the place of what is sent";
        return Err(raise(Error::invalid(text)));
    }
    Ok(())
}
