//! Errors as Python exceptions, and signals during waits.

use forebay_client::transport::blocking;
use forebay_client::{Error, Result};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// The exception that a signal raised during a wait of this thread (`KeyboardInterrupt`, most likely).
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// This thread frees an object, and nobody could be told of an exception: signals wait.
    static FREEING: Cell<bool> = const { Cell::new(false) };
    /// What this thread waits for ends with the interpreter.
    static ENDS_AT_EXIT: Cell<bool> = const { Cell::new(false) };
}

/// The interpreter is about to end.
static AT_EXIT: AtomicBool = AtomicBool::new(false);

/// What the calling thread waits for ends once the interpreter is about to end.
#[pyfunction]
pub(crate) fn end_waits_at_exit() {
    ENDS_AT_EXIT.set(true);
}

/// The interpreter is about to end: so do the waits of those threads, in a moment.
#[pyfunction]
pub(crate) fn end_waits() {
    AT_EXIT.store(true, Ordering::Relaxed);
}

/// Lets Ctrl-C end a wait.
pub(crate) fn watch_signals() {
    blocking::set_interrupt_check(|| {
        if ENDS_AT_EXIT.get() && AT_EXIT.load(Ordering::Relaxed) {
            return true;
        }
        if FREEING.get() {
            return false;
        }
        // Not while the interpreter ends: then there is nobody to tell.
        let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
        let given_up = raised.is_some();
        if given_up {
            RAISED.replace(raised);
        }
        given_up
    });
}

/// Calls what may wait, for a server or a lock, and lets other threads run meanwhile. What a signal raised in a
/// wait is raised here, whatever became of the call: it may have taken the end of the wait in its stride.
pub(crate) fn waiting<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let result = py.detach(call);
    blocking::forget_interrupt();
    match RAISED.take() {
        None => result.map_err(raise),
        Some(raised) => {
            drop(Freed::new(result));
            Err(raised)
        }
    }
}

/// What is freed when Python frees its object, and may then wait for a lock, or tell a server something: never
/// while it holds the interpreter, which whoever has that lock may be waiting for.
pub(crate) struct Freed<T: Send>(Option<T>);

impl<T: Send> Freed<T> {
    pub(crate) fn new(content: T) -> Freed<T> {
        Freed(Some(content))
    }
}

impl<T: Send> std::ops::Deref for Freed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.0 {
            Some(content) => content,
            None => unreachable!("it is taken only when it is dropped"),
        }
    }
}

impl<T: Send> Drop for Freed<T> {
    fn drop(&mut self) {
        let before = FREEING.replace(true);
        let content = &mut self.0;
        Python::try_attach(|py| py.detach(|| drop(content.take())));
        // Where the interpreter has ended nobody waits for it, and the content goes after this.
        FREEING.set(before);
    }
}

/// The Python exception for an error.
pub(crate) fn raise(error: Error) -> PyErr {
    Python::attach(|py| {
        let made = py.import("forebay._errors").and_then(|module| module.getattr("make")).and_then(|make| {
            let server = error.server().map(|server| server.0);
            make.call1((error.kind.code(), error.text, server))
        });
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(failure) => failure,
        }
    })
}
