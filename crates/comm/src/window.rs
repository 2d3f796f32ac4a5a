//! How much may be on its way on one socket: a sender waits when the peer does not read.
//!
//! An outbox does not say how much it still holds, but it asks for a payload's bytes just when it has sent
//! all before them. So each payload carries a [`Marker`] that returns what was taken since the last one.

use forebay_core::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// Bytes that may be on their way.
const WINDOW: usize = 4 << 20;
/// Bytes of short messages after which one is sent as a payload, for the sake of its marker.
const UNMARKED_MAX: usize = 64 << 10;

/// The window of one connection; shared by its senders.
#[derive(Debug, Default)]
pub(crate) struct Window {
    state: Mutex<WindowState>,
}

#[derive(Debug, Default)]
struct WindowState {
    taken: usize,
    /// Taken since the last marker.
    unmarked: usize,
    closed: bool,
}

/// There was room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Whether a marker must go along.
    pub(crate) mark: bool,
}

impl Window {
    /// Takes room, if there is any. A long message always marks.
    pub(crate) fn take(&self, bytes: usize, long: bool) -> Result<Option<Room>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::unreachable("the connection has ended"));
        }
        if state.taken > 0 && state.taken + bytes > WINDOW {
            return Ok(None);
        }
        state.taken += bytes;
        state.unmarked += bytes;
        Ok(Some(Room { mark: long || state.unmarked > UNMARKED_MAX }))
    }

    /// A marker for all that was taken since the last. `told` is called when its room is free again.
    pub(crate) fn mark(self: &Arc<Window>, told: impl FnOnce() + Send + 'static) -> Marker {
        let bytes = std::mem::take(&mut self.state.lock().unmarked);
        Marker { window: self.clone(), bytes, told: Some(Box::new(told)) }
    }

    /// The connection has ended: nobody sends any more.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }
}

/// Returns its bytes to the window when it is dropped, whether they were sent or thrown away.
pub(crate) struct Marker {
    window: Arc<Window>,
    bytes: usize,
    told: Option<Box<dyn FnOnce() + Send>>,
}

impl Drop for Marker {
    fn drop(&mut self) {
        let mut state = self.window.state.lock();
        state.taken = state.taken.saturating_sub(self.bytes);
        drop(state);
        if let Some(told) = self.told.take() {
            told();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_return_what_was_taken() {
        let window = Arc::new(Window::default());
        assert_eq!(window.take(100, false), Ok(Some(Room { mark: false })));
        assert_eq!(window.take(WINDOW - 100, true), Ok(Some(Room { mark: true })));
        let marker = window.mark(|| {});
        assert_eq!(window.take(1, false), Ok(None));
        drop(marker);
        assert_eq!(window.take(2 * WINDOW, true), Ok(Some(Room { mark: true })), "alone, any size passes");
        window.close();
        assert!(window.take(1, false).is_err());
    }
}
