//! A value that others wait for. As `tokio::sync::watch`, but who waits is woken in the order in which they came: that one
//! wakes them in an order that chance chooses, and a simulation that failed could not be run again.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A value that changes now and then.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Watched<T> {
    /// Begins with this value.
    pub fn new(value: T) -> Watched<T> {
        Watched { value: Mutex::new(value), changed: Notify::new() }
    }

    /// What it is now.
    pub fn get(&self) -> T {
        *self.value.lock()
    }

    /// Changes it; returns what it was before.
    pub fn set(&self, value: T) -> T {
        let before = std::mem::replace(&mut *self.value.lock(), value);
        self.changed.notify_waiters();
        before
    }

    /// Waits until it is as wanted. The caller sets the deadline.
    pub async fn wait_for(&self, wanted: impl Fn(T) -> bool) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let value = self.get();
            if wanted(value) {
                return value;
            }
            changed.await;
        }
    }
}
