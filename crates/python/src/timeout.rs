//! How long a user lets something wait: a number of seconds.

use crate::errors::raise;
use forebay_client::Error;
use pyo3::prelude::*;
use std::time::Duration;

/// As it was given.
pub(crate) struct Timeout(f64);

impl FromPyObject<'_, '_> for Timeout {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Timeout> {
        let number = given.extract::<f64>().map_err(|_| {
            let shown = given.repr().map_or_else(|_| "it".to_owned(), |shown| shown.to_string());
            raise(Error::invalid(format!("timeout={shown}: a number of seconds is needed")))
        });
        number.map(Timeout)
    }
}

impl Timeout {
    /// Of one wait: zero, too.
    pub(crate) fn wait(self) -> PyResult<Duration> {
        forebay_client::seconds(self.0, "timeout").map_err(raise)
    }

    /// Of all waits of a handle.
    pub(crate) fn patience(self) -> PyResult<Duration> {
        forebay_client::patience(self.0, "timeout").map_err(raise)
    }
}
