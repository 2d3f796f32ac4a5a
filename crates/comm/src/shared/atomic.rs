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
    /// What this thread wrote before is seen by others before it reads what comes after.
    fn fence();
}

impl Atomic for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
    fn set(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
    fn set_if(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    fn fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// What the kernel waits on has 32 bits.
impl Atomic for AtomicU32 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire).into()
    }
    fn set(&self, value: u64) {
        self.store(value as u32, Ordering::Release);
    }
    fn set_if(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current as u32, new as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    fn fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}
