//! How much of earlier steps a reader may keep in the servers' memory by holding on to arrays of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a reader's arrays may pin by default.
pub(crate) const PIN_BYTES: u64 = 1 << 30;

/// Steps that were released while arrays of them live: servers cannot use their memory again.
#[derive(Debug)]
pub(crate) struct Pins {
    limit: u64,
    pinned: AtomicU64,
}

impl Pins {
    pub(crate) fn new(limit: u64) -> Pins {
        Pins { limit, pinned: AtomicU64::new(0) }
    }

    /// Whether arrays of a step of this many bytes must be copies, since those of earlier steps pin so much
    /// already. A step is never copied because of its own size alone.
    pub(crate) fn must_copy(&self, step: u64) -> bool {
        let pinned = self.pinned.load(Ordering::Relaxed);
        pinned > 0 && pinned.saturating_add(step) > self.limit
    }

    /// A step of this many bytes was released, but arrays of it live.
    pub(crate) fn pin(&self, bytes: u64) {
        self.pinned.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The last array of a pinned step is gone.
    pub(crate) fn unpin(&self, bytes: u64) {
        self.pinned.fetch_sub(bytes, Ordering::Relaxed);
    }
}
