//! Descriptors that tokio can wait for.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets tokio wait until a descriptor can be read, or is at its end.
pub fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(descriptor, Interest::READABLE)
}

/// Lets tokio wait until a descriptor can be written, or will never be.
pub(crate) fn writable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(descriptor, Interest::WRITABLE)
}

fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open and the same until the AsyncFd that owns it is dropped.
    #[allow(unsafe_code)]
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(io::Error::from)
}
