//! How much may be on its way on one connection: a sender waits when the peer does not read.
//!
//! An outbox does not say how much it still holds, but it asks for a payload's bytes just when it has sent
//! all before them. So each payload carries a [`Marker`] that returns what was taken since the last one.

use forebay_core::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

/// Bytes that may be on their way.
const WINDOW: usize = 4 << 20;
/// Bytes of short messages after which one is sent as a payload, for the sake of its marker.
const UNMARKED_MAX: usize = 64 << 10;

/// The window of one connection; shared by its senders.
#[derive(Debug, Default)]
pub(crate) struct Window {
    state: Mutex<WindowState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WindowState {
    taken: usize,
    /// Taken since the last marker.
    unmarked: usize,
    closed: bool,
}

/// How [`Window::take`] ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There was room; whether a marker must go along.
    Room {
        /// Whether a marker must go along.
        mark: bool,
    },
    /// There was none until the deadline.
    TimedOut,
}

impl Window {
    /// Waits for room. A long message always marks.
    pub(crate) fn take(&self, bytes: usize, long: bool, deadline: Instant) -> Result<Taken> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Err(Error::unreachable("the connection has ended"));
            }
            if state.taken == 0 || state.taken + bytes <= WINDOW {
                state.taken += bytes;
                state.unmarked += bytes;
                return Ok(Taken::Room { mark: long || state.unmarked > UNMARKED_MAX });
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Ok(Taken::TimedOut);
            }
        }
    }

    /// A marker for all that was taken since the last.
    pub(crate) fn mark(self: &Arc<Window>) -> Marker {
        let bytes = std::mem::take(&mut self.state.lock().unmarked);
        Marker { window: self.clone(), bytes }
    }

    /// The connection has ended: nobody waits any more.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

/// Returns its bytes to the window when it is dropped, whether they were sent or thrown away.
#[derive(Debug)]
pub(crate) struct Marker {
    window: Arc<Window>,
    bytes: usize,
}

impl Drop for Marker {
    fn drop(&mut self) {
        let mut state = self.window.state.lock();
        state.taken = state.taken.saturating_sub(self.bytes);
        drop(state);
        self.window.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn markers_return_what_was_taken() {
        let window = Arc::new(Window::default());
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(window.take(100, false, soon), Ok(Taken::Room { mark: false }));
        assert_eq!(window.take(WINDOW - 100, true, soon), Ok(Taken::Room { mark: true }));
        let marker = window.mark();
        assert_eq!(window.take(1, false, soon), Ok(Taken::TimedOut));
        drop(marker);
        assert_eq!(
            window.take(2 * WINDOW, true, soon),
            Ok(Taken::Room { mark: true }),
            "alone, any size passes"
        );
        window.close();
        assert!(window.take(1, false, soon).is_err());
    }
}
