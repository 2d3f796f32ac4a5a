//! Operations of a communicator that go on while Python does something else.

use super::memory::Part;
use crate::errors::{raise, waiting};
use forebay_client::comm::{self, Done};
use forebay_client::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// What is done once an operation is over: bytes go where they belong.
pub(super) type Then = Box<dyn FnOnce() + Send>;

/// An operation with the memory that it uses. That is dropped after it.
pub(super) struct Going {
    request: comm::Request,
    then: Option<Then>,
    _parts: Vec<Part>,
    _own: Vec<Vec<u8>>,
}

/// Operations whose Python objects are gone: they go on.
pub(super) type Left = Arc<Mutex<Vec<Going>>>;

/// One operation.
#[pyclass(frozen)]
pub(crate) struct Request {
    going: Mutex<Option<Box<Going>>>,
    comm: Arc<comm::Comm>,
    left: Left,
}

/// Source, tag and length of the message that was received, and its bytes if there was no memory for them.
type Told<'py> = (Option<(u32, u64, u64)>, Option<Bound<'py, PyBytes>>);

impl Going {
    pub(super) fn new(request: comm::Request, parts: Vec<Part>, own: Vec<Vec<u8>>) -> Going {
        Going { request, then: None, _parts: parts, _own: own }
    }

    pub(super) fn then(self, then: Then) -> Going {
        Going { then: Some(then), ..self }
    }
}

/// Those whose Python objects are gone get on, and are dropped once they are over.
pub(super) fn tidy(left: &Left) {
    // Others may leave theirs meanwhile: a function of Python's may be called here, and objects of Python's go.
    let mut those = std::mem::take(&mut *left.lock());
    those.retain(|going| matches!(going.request.test(), Ok(None)));
    left.lock().append(&mut those);
}

impl Request {
    pub(super) fn new(comm: Arc<comm::Comm>, left: Left, going: Going) -> Request {
        Request { going: Mutex::new(Some(Box::new(going))), comm, left }
    }

    /// Uses the operation, which is over if `end` has a result.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        end: impl FnOnce(&comm::Request) -> Result<Option<T>> + Send,
    ) -> PyResult<Option<T>> {
        waiting(py, || {
            let mut slot = self.going.try_lock().ok_or_else(busy)?;
            let Some(going) = slot.as_ref() else { return Err(over()) };
            let ended = end(&going.request);
            if !matches!(ended, Ok(None)) {
                finish(&mut slot, ended.is_ok());
            }
            ended
        })
    }
}

fn busy() -> Error {
    Error::invalid("another thread waits for this request")
}

fn over() -> Error {
    Error::new(ErrorKind::Closed, "this request is over")
}

/// An operation is over.
fn finish(slot: &mut Option<Box<Going>>, has_succeeded: bool) {
    let Some(mut going) = slot.take() else { return };
    if let Some(then) = going.then.take().filter(|_| has_succeeded) {
        then();
    }
}

/// Waits for an operation that only this call knows.
pub(super) fn run(py: Python<'_>, comm: &comm::Comm, going: Going) -> PyResult<Done> {
    waiting(py, move || {
        let mut going = Some(Box::new(going));
        let ended = going.as_ref().map(|going| going.request.wait(comm)).transpose();
        finish(&mut going, ended.is_ok());
        ended.map(Option::unwrap_or_default)
    })
}

fn told(py: Python<'_>, done: Done) -> Told<'_> {
    let status = done.status.map(|status| (status.source, status.tag, status.bytes));
    let bytes = done.status.map(|_| PyBytes::new(py, &done.bytes));
    (status, bytes)
}

#[pymethods]
impl Request {
    /// Waits until it is over.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Told<'py>> {
        let done = self.with(py, |request| request.wait(&self.comm).map(Some))?;
        Ok(told(py, done.unwrap_or_default()))
    }

    /// What it has given, if it is over. Does not wait.
    fn test<'py>(&self, py: Python<'py>) -> PyResult<Option<Told<'py>>> {
        let done = self.with(py, comm::Request::test)?;
        Ok(done.map(|done| told(py, done)))
    }

    /// Gives it up: nothing is written to its memory any more. What it has given, if it is over.
    fn cancel<'py>(&self, py: Python<'py>) -> PyResult<Option<Told<'py>>> {
        if let Some(done) = self.with(py, comm::Request::test)? {
            return Ok(Some(told(py, done)));
        }
        let slot = self.going.try_lock().ok_or_else(busy).map_err(raise)?.take();
        py.detach(|| drop(slot));
        Ok(None)
    }

    /// Whether it is, and was told of.
    fn is_over(&self) -> bool {
        self.going.try_lock().is_some_and(|slot| slot.is_none())
    }

    /// Waits until one of them is over: which, and what it has given. None of them may be over already.
    #[staticmethod]
    fn wait_any<'py>(py: Python<'py>, requests: Vec<PyRef<'py, Request>>) -> PyResult<(usize, Told<'py>)> {
        let requests: Vec<&Request> = requests.iter().map(|request| &**request).collect();
        let (place, done) = waiting(py, || {
            let mut slots = Vec::with_capacity(requests.len());
            for request in &requests {
                slots.push(request.going.try_lock().ok_or_else(busy)?);
            }
            let going: Vec<&comm::Request> = slots
                .iter()
                .map(|slot| slot.as_ref().map(|going| &going.request).ok_or_else(over))
                .collect::<Result<_>>()?;
            let first = requests.first().ok_or_else(|| Error::invalid("there is no request to wait for"))?;
            let (place, done) = comm::Request::wait_any(&going, &first.comm)?;
            finish(&mut slots[place], done.is_ok());
            Ok((place, done?))
        })?;
        Ok((place, told(py, done)))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(going) = self.going.get_mut().take() {
            self.left.lock().push(*going);
        }
    }
}
