//! Links on one host: Unix sockets, which carry descriptors of shared memory (`SCM_RIGHTS`).

use crate::link::{Kind, Link};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Pid;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// One end of a Unix socket.
#[derive(Debug)]
pub struct ShmLink {
    socket: OwnedFd,
    /// Process and user at the other end. The process is not known if this one's namespace does not have it.
    peer: Option<(Option<u32>, u32)>,
    lost_descriptors: AtomicBool,
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
const DESCRIPTORS: usize = forebay_wire::frame::DESCRIPTORS_MAX;

impl ShmLink {
    /// Wraps a connected, non-blocking Unix stream socket.
    pub fn new(socket: OwnedFd) -> ShmLink {
        let peer = rustix::net::sockopt::socket_peercred(&socket).ok().map(|peer| {
            let process = u32::try_from(Pid::as_raw(Some(peer.pid))).ok().filter(|process| *process > 0);
            (process, peer.uid.as_raw())
        });
        ShmLink { socket, peer, lost_descriptors: AtomicBool::new(false) }
    }

    /// Connects to an abstract name. On one host this never waits.
    pub fn connect(name: &str) -> io::Result<ShmLink> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(ShmLink::new(socket))
    }
}

/// Listens on an abstract name.
pub fn listen(name: &str) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, 1024)?;
    Ok(socket)
}

/// Accepts one connection.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<ShmLink> {
    Ok(ShmLink::new(rustix::net::accept_with(listener, FLAGS)?))
}

impl Link for ShmLink {
    fn kind(&self) -> Kind {
        Kind::Shm
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn try_send(&self, bytes: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors in one message"));
        }
        Ok(rustix::net::sendmsg(&self.socket, bytes, &mut ancillary, SendFlags::NOSIGNAL)?)
    }

    fn try_receive(&self, bytes: &mut [IoSliceMut<'_>], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(&self.socket, bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            self.lost_descriptors.store(true, Ordering::Relaxed);
        }
        Ok(received.bytes)
    }

    fn lost_descriptors(&self) -> bool {
        self.lost_descriptors.swap(false, Ordering::Relaxed)
    }

    fn peer_process(&self) -> Option<u32> {
        self.peer?.0
    }

    fn peer_user(&self) -> Option<u32> {
        Some(self.peer?.1)
    }
}
