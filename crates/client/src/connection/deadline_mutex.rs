//! A lock that is waited for until a deadline: for what one thread may use for long.

use forebay_core::{Error, Result};
use forebay_transport::blocking;
use parking_lot::{Mutex, MutexGuard};
use std::fmt::Display;
use std::time::Instant;

/// What one thread uses at a time, perhaps for long; `()` where the lock protects an action and no value.
#[derive(Debug, Default)]
pub(crate) struct DeadlineMutex<T = ()>(Mutex<T>);

impl<T> DeadlineMutex<T> {
    pub(crate) fn new(value: T) -> DeadlineMutex<T> {
        DeadlineMutex(Mutex::new(value))
    }

    /// Locks it if no other thread has. Does not wait.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Locks it, and waits for other threads until a deadline. `what` says in errors what the thread does that holds it.
    pub(crate) fn lock_until(&self, deadline: Instant, what: impl Display) -> Result<MutexGuard<'_, T>> {
        if let Some(guard) = self.try_lock() {
            return Ok(guard);
        }
        loop {
            // No signal ends the wait for a lock: this thread looks for one now and then.
            if let Some(guard) = self.0.try_lock_until(deadline.min(Instant::now() + blocking::LOOK)) {
                return Ok(guard);
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while(what));
            }
            if Instant::now() >= deadline {
                return Err(Error::timeout(format!("the deadline passed while waiting for {what}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;
    use std::time::Duration;

    #[test]
    fn a_thread_that_waits_gives_up_at_its_deadline() {
        let mutex: DeadlineMutex = DeadlineMutex::default();
        let held = mutex.lock_until(Instant::now(), "nobody").unwrap();
        let error =
            mutex.lock_until(Instant::now() + Duration::from_millis(1), "another thread to end").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert!(error.text.contains("another thread to end"), "{error}");
        drop(held);
        drop(mutex.lock_until(Instant::now(), "nobody").unwrap());
    }
}
