//! Numbers that two processes change: the standard ones, or those of a model that tries every interleaving.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An atomic number. What was written before `set` is seen by who has read that value with `get`.
pub(crate) trait Atomic {
    /// Reads it.
    fn get(&self) -> u64;
    /// Writes it.
    fn set(&self, value: u64);
    /// Writes `new` if it is still `current`.
    fn set_if(&self, current: u64, new: u64) -> bool;
    /// Adds one.
    fn count(&self);
    /// What this thread wrote before is seen by others before it reads what comes after.
    fn fence();
}

macro_rules! atomic {
    ($number:ty, $value:ty) => {
        impl Atomic for $number {
            fn get(&self) -> u64 {
                u64::from(self.load(Ordering::Acquire))
            }
            fn set(&self, value: u64) {
                self.store(value as $value, Ordering::Release);
            }
            fn set_if(&self, current: u64, new: u64) -> bool {
                let (current, new) = (current as $value, new as $value);
                self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
            }
            fn count(&self) {
                self.fetch_add(1, Ordering::AcqRel);
            }
            fn fence() {
                std::sync::atomic::fence(Ordering::SeqCst);
            }
        }
    };
}

atomic!(AtomicU64, u64);
// What the kernel waits on has 32 bits.
atomic!(AtomicU32, u32);
