//! Handles in forked children: dead, not dangerous.

use forebay_core::{Error, ErrorKind, Result};

/// Remembers the process that made a handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForkGuard(u32);

impl ForkGuard {
    pub(crate) fn new() -> ForkGuard {
        ForkGuard(std::process::id())
    }

    /// Whether this is a child of the process that made the handle.
    pub(crate) fn is_child(self) -> bool {
        self.0 != std::process::id()
    }

    /// Fails in a forked child.
    pub(crate) fn check(self, what: &str) -> Result<()> {
        if self.is_child() {
            return Err(Error::new(
                ErrorKind::Forked,
                format!(
                    "this {what} was opened by process {}, the parent: open one of its own in the child",
                    self.0
                ),
            ));
        }
        Ok(())
    }
}
