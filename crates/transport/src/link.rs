//! The trait that every transport implements.

use forebay_core::{Error, ErrorKind, Result};
use rustix::fd::{BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

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

    /// The connection ends when nothing was heard of the other end for so long, or it has taken nothing that long, and not
    /// before: without this that is up to the system. A local one knows at once when its other end is gone.
    fn end_after(&self, _silence: Duration) -> io::Result<()> {
        Ok(())
    }

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

    /// The user whose process is at the other end, if it is on this host and the kernel vouches for it.
    fn peer_user(&self) -> Option<u32> {
        None
    }
}

/// Refuses a process of another user, where the kernel says whose it is. What follows the handshake is not
/// keyed there, and names of local sockets are free for anybody to take once their owner is gone.
pub(crate) fn check_user(link: &dyn Link) -> Result<()> {
    let me = rustix::process::geteuid().as_raw();
    link.peer_user().map_or(Ok(()), |user| check_user_is(user, me))
}

fn check_user_is(user: u32, me: u32) -> Result<()> {
    if user == me || user == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ConnectionFile,
        format!(
            "the process at the other end of the local socket belongs to user {user}, not to user {me} or root: on one \
             host a group is its owner's alone; if its servers are gone, start it again"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ones_own_processes_and_roots_are_trusted() {
        assert!(check_user_is(1000, 1000).is_ok());
        assert!(check_user_is(0, 1000).is_ok());
        for (user, me) in [(1000, 1001), (1000, 0), (65534, 1000)] {
            let error = check_user_is(user, me).unwrap_err();
            assert!(
                error.kind == ErrorKind::ConnectionFile && error.text.contains(&user.to_string()),
                "{error}"
            );
        }
    }
}
