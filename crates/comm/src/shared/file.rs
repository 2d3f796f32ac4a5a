//! Memory files that two processes share: of a size that neither can change, so that no access is a fatal signal.

use forebay_core::{Error, Result};
use forebay_store::{Access, Mapping};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// No end of it can be cut off.
fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// A new one.
pub(crate) fn new(name: &str, bytes: u64) -> Result<OwnedFd> {
    let failed = |call: &str, e: Errno| {
        Error::io(format!("cannot make memory for messages of one host ({call})"), &e.into())
    };
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|e| failed("memfd_create", e))?;
    rustix::fs::ftruncate(&file, bytes).map_err(|e| failed("ftruncate", e))?;
    rustix::fs::fcntl_add_seals(&file, seals()).map_err(|e| failed("fcntl", e))?;
    Ok(file)
}

/// Whether a file that somebody else made is one.
pub(crate) fn check(file: BorrowedFd<'_>, bytes: u64) -> Result<()> {
    let sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|sealed| sealed.contains(SealFlags::SHRINK));
    let size = rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64);
    if !sealed || size != bytes {
        return Err(Error::protocol("memory for messages of one host was passed that its maker can cut off"));
    }
    Ok(())
}

/// Maps it.
pub(crate) fn map(file: impl AsFd, bytes: u64) -> Result<Mapping> {
    Mapping::new(file.as_fd(), bytes, Access::Write)
}
