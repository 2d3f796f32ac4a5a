//! The trait that every transport implements.

use rustix::fd::{BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

/// Which transport a link is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Same host: control over a Unix socket, data in shared memory.
    Shm,
    /// Any host.
    Tcp,
    /// Same process, for tests.
    InProcess,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Shm => "shm",
            Kind::Tcp => "tcp",
            Kind::InProcess => "in-process",
        })
    }
}

/// One end of a connected, ordered, reliable byte stream. Calls never block: they return
/// `ErrorKind::WouldBlock`, and [`Link::descriptor`] can be waited for.
pub trait Link: Send + Sync + fmt::Debug {
    /// Which transport it is of.
    fn kind(&self) -> Kind;

    /// What to wait for.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Sends some of `bytes` (not none) and, with the first of them, all `descriptors`; returns how many
    /// bytes were taken. Descriptors are an error where the transport carries none.
    fn try_send(&self, bytes: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize>;

    /// Receives some bytes and appends descriptors that came with them; 0 means that the peer has closed.
    fn try_receive(&self, bytes: &mut [IoSliceMut<'_>], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize>;

    /// Whether descriptors were sent since this was last asked that this process had no room for. They are gone.
    fn lost_descriptors(&self) -> bool {
        false
    }

    /// Whether control messages need to be sealed: whether they can be read or changed on their way.
    fn is_exposed(&self) -> bool {
        self.kind() == Kind::Tcp
    }

    /// The process at the other end, if it is on this host and the kernel vouches for it.
    fn peer_process(&self) -> Option<u32> {
        None
    }
}
