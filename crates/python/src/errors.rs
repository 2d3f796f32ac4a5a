//! Errors as Python exceptions, and signals during waits.

use forebay_client::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The exception that a signal raised during a wait (`KeyboardInterrupt`, most likely).
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

/// Lets Ctrl-C end a wait.
pub(crate) fn watch_signals() {
    forebay_client::transport::blocking::set_interrupt_check(|| {
        Python::attach(|py| match py.check_signals() {
            Ok(()) => false,
            Err(error) => {
                *RAISED.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                true
            }
        })
    });
}

/// The Python exception for an error.
pub(crate) fn raise(error: Error) -> PyErr {
    if let Some(raised) = RAISED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return raised;
    }
    Python::attach(|py| {
        let made = py
            .import("forebay._errors")
            .and_then(|module| module.getattr("make"))
            .and_then(|make| make.call1((error.kind.code(), error.text.clone())));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(failure) => failure,
        }
    })
}

/// A time-out that a user gave.
pub(crate) fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|e| PyValueError::new_err(format!("timeout={value}: {e}")))
}
