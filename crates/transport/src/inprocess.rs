//! Links within one process, for tests: no network, no descriptors.

use crate::link::{Kind, Link};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, IoSlice, IoSliceMut};

/// One end of a pair.
#[derive(Debug)]
pub struct InProcessLink {
    socket: OwnedFd,
}

/// Two connected ends.
pub fn pair() -> io::Result<(InProcessLink, InProcessLink)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok((InProcessLink { socket: a }, InProcessLink { socket: b }))
}

impl Link for InProcessLink {
    fn kind(&self) -> Kind {
        Kind::InProcess
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn try_send(&self, bytes: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        if !descriptors.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "in-process links carry no descriptors"));
        }
        let mut none = rustix::net::SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(&self.socket, bytes, &mut none, rustix::net::SendFlags::NOSIGNAL)?)
    }

    fn try_receive(
        &self,
        bytes: &mut [IoSliceMut<'_>],
        _descriptors: &mut Vec<OwnedFd>,
    ) -> io::Result<usize> {
        Ok(rustix::io::readv(&self.socket, bytes)?)
    }
}
