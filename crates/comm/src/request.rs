//! Operations that go on while their caller does something else.
//!
//! A request is a future that is put aside. It gets on whenever its process is in any call of its communicators, as with MPI: short messages
//! are on their way at once, and long ones of this host are read by their receivers.

use crate::comm::{Comm, Status};
use crate::hub::{Hub, Ongoing};
use crate::task::Task;
use forebay_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

/// What an operation has given, besides what it has written to its caller's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Done {
    /// Which message was received, if one was.
    pub status: Option<Status>,
    /// Its bytes, if there was no memory for them.
    pub bytes: Vec<u8>,
}

type Operation = Pin<Box<dyn Future<Output = Result<Done>> + Send>>;

enum State {
    Running(Operation),
    Over(Result<Done>),
    Taken,
}

/// One operation.
pub(crate) struct Pending {
    task: Arc<Task>,
    only_sends: bool,
    state: Mutex<State>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.task.name(None))
    }
}

impl Ongoing for Pending {
    /// One that another thread looks at is not waited for.
    fn advance(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        if let State::Running(operation) = &mut *state
            && let Poll::Ready(result) = operation.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            *state = State::Over(result);
        }
        !matches!(*state, State::Running(_))
    }

    fn only_sends(&self) -> bool {
        self.only_sends
    }
}

impl Pending {
    fn take(&self) -> Option<Result<Done>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Over(result) => Some(result),
            State::Taken => Some(Err(Error::new(ErrorKind::Closed, "this request was waited for before"))),
            running => {
                *state = running;
                None
            }
        }
    }
}

/// An operation that goes on. When it is dropped before it is over it is given up: nothing is written to its memory any more.
#[derive(Debug)]
pub struct Request {
    hub: Arc<Hub>,
    pending: Arc<Pending>,
}

impl Request {
    pub(crate) fn start(hub: &Arc<Hub>, task: Arc<Task>, only_sends: bool, operation: Operation) -> Request {
        let begun =
            hub.check_process().map_or_else(|error| State::Over(Err(error)), |()| State::Running(operation));
        let pending = Arc::new(Pending { task, only_sends, state: Mutex::new(begun) });
        if !pending.advance() {
            hub.requests.lock().push(pending.clone());
            // A connection may have come just before others knew of it.
            pending.advance();
        }
        Request { hub: hub.clone(), pending }
    }

    /// Waits until it is over, by the communicator's deadline, which counts from now: then it fails.
    pub fn wait(&self, comm: &Comm) -> Result<Done> {
        let task = comm.waiting();
        let result = self.hub.run(&task, poll_fn(|_| self.look(&task)));
        self.forget();
        result
    }

    fn look(&self, waiting: &Task) -> Poll<Result<Done>> {
        if waiting.is_expired() {
            self.pending.task.expired.store(true, Ordering::Relaxed);
        }
        self.pending.advance();
        self.pending.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// What it has given, if it is over. Does not wait.
    pub fn test(&self) -> Result<Option<Done>> {
        self.hub.check_process()?;
        self.hub.look_once();
        self.pending.advance();
        match self.pending.take() {
            None => Ok(None),
            Some(result) => {
                self.forget();
                result.map(Some)
            }
        }
    }

    /// Waits until one of these is over, by the communicator's deadline; its place among them, and what it has given.
    pub fn wait_any(requests: &[&Request], comm: &Comm) -> Result<(usize, Result<Done>)> {
        let task = comm.waiting();
        let (place, result) = comm.hub.run(
            &task,
            poll_fn(|_| {
                for (place, request) in requests.iter().enumerate() {
                    if let Poll::Ready(result) = request.look(&task) {
                        return Poll::Ready(Ok((place, result)));
                    }
                }
                Poll::Pending
            }),
        )?;
        requests[place].forget();
        Ok((place, result))
    }

    fn forget(&self) {
        let pending: Arc<dyn Ongoing> = self.pending.clone();
        self.hub.requests.lock().retain(|other| !Arc::ptr_eq(other, &pending));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.hub.is_of_parent() {
            return std::mem::forget((self.hub.clone(), self.pending.clone()));
        }
        self.forget();
        // Its memory is its caller's again, though another thread may look at it right now.
        *self.pending.state.lock() = State::Taken;
    }
}
