//! Handles in forked children: dead, not dangerous.
//!
//! Every call looks whether its process is still the one that made the handle, so that must not cost a call of the kernel. Forks are counted
//! instead: the C library calls a function in each child (pthread_atfork(3)).
#![allow(unsafe_code)]

use forebay_core::{Error, ErrorKind, Result};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many forks lie between the first process that asked and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Whether they are counted.
static ARE_COUNTED: AtomicBool = AtomicBool::new(false);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Remembers the process that made a handle.
#[derive(Debug, Clone, Copy)]
pub struct ForkGuard {
    process: u32,
    forks: u64,
}

impl ForkGuard {
    /// Of this process.
    #[allow(clippy::new_without_default, reason = "it depends on who calls it")]
    pub fn new() -> ForkGuard {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| {
            // SAFETY: the function does nothing but add to a number, which is allowed in a child of any process.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
            ARE_COUNTED.store(failed == 0, Ordering::Relaxed);
        });
        ForkGuard { process: std::process::id(), forks: FORKS.load(Ordering::Relaxed) }
    }

    /// The process that made the handle.
    pub fn process(self) -> u32 {
        self.process
    }

    /// Whether this is a child of that process.
    #[inline]
    pub fn is_child(self) -> bool {
        if ARE_COUNTED.load(Ordering::Relaxed) {
            self.forks != FORKS.load(Ordering::Relaxed)
        } else {
            self.process != std::process::id()
        }
    }

    /// Fails in a forked child. `what`: the handle, for people.
    #[inline]
    pub fn check(self, what: &str) -> Result<()> {
        if self.is_child() { Err(self.forked(what)) } else { Ok(()) }
    }

    #[cold]
    fn forked(self, what: &str) -> Error {
        let parent = self.process;
        let text = format!(
            "this {what} was opened by process {parent}, the parent: open one of its own in the child"
        );
        Error::new(ErrorKind::Forked, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_told_from_its_parent() {
        let guard = ForkGuard::new();
        assert!(guard.check("handle").is_ok() && guard.process() == std::process::id());
        // SAFETY: the child calls nothing but what is allowed there, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!guard.is_child() || ForkGuard::new().is_child())) };
        }
        let mut status = -1;
        // SAFETY: the status is this function's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(!guard.is_child());
    }
}
