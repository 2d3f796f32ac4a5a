//! Taking turns at what may last: a lock that is waited for until a deadline.

use forebay_core::{Error, Result};
use forebay_transport::blocking;
use parking_lot::{Mutex, MutexGuard};
use std::fmt::Display;
use std::time::Instant;

/// What one thread uses at a time, perhaps for long; `()` if it is nothing but the turn.
#[derive(Debug, Default)]
pub(crate) struct Turn<T = ()>(Mutex<T>);

impl<T> Turn<T> {
    pub(crate) fn new(used: T) -> Turn<T> {
        Turn(Mutex::new(used))
    }

    /// The turn, if it is nobody's. Does not wait.
    pub(crate) fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Waits for the turn, which lasts until the result is dropped, no longer than until a deadline. `what` says in errors
    /// what is waited for: what the one does whose turn it is.
    pub(crate) fn take(&self, deadline: Instant, what: impl Display) -> Result<MutexGuard<'_, T>> {
        if let Some(turn) = self.try_take() {
            return Ok(turn);
        }
        loop {
            // No signal ends the wait for a lock.
            if let Some(turn) = self.0.try_lock_until(deadline.min(Instant::now() + blocking::LOOK)) {
                return Ok(turn);
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
    fn who_waits_for_a_turn_gives_up_at_a_deadline() {
        let turn: Turn = Turn::default();
        let held = turn.take(Instant::now(), "nobody").unwrap();
        let error =
            turn.take(Instant::now() + Duration::from_millis(1), "another thread to end").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert!(error.text.contains("another thread to end"), "{error}");
        drop(held);
        drop(turn.take(Instant::now(), "nobody").unwrap());
    }
}
