//! Links between hosts: TCP without delay, with vectored reads and writes.

use crate::link::{Kind, Link};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::Duration;

/// One end of a TCP connection.
#[derive(Debug)]
pub struct TcpLink {
    socket: OwnedFd,
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

impl TcpLink {
    /// Wraps a connected, non-blocking socket.
    pub fn new(socket: OwnedFd) -> io::Result<TcpLink> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        // A peer whose host vanished is noticed even when nothing is sent.
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, Duration::from_secs(10))?;
        sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(5))?;
        sockopt::set_tcp_keepcnt(&socket, 3)?;
        Ok(TcpLink { socket })
    }

    /// Begins to connect; when the socket can be written to, it is connected or has failed.
    pub fn begin(address: &SocketAddr) -> io::Result<TcpLink> {
        let socket = rustix::net::socket_with(family(address), SocketType::STREAM, FLAGS, None)?;
        match rustix::net::connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS) => TcpLink::new(socket),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects, waiting no longer than `patience`.
    pub fn connect(address: &SocketAddr, patience: Duration) -> io::Result<TcpLink> {
        let link = TcpLink::begin(address)?;
        let timeout = Timespec::try_from(patience).unwrap_or(Timespec { tv_sec: 30, tv_nsec: 0 });
        let mut waiting = [PollFd::new(&link.socket, PollFlags::OUT)];
        if rustix::event::poll(&mut waiting, Some(&timeout))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sockopt::socket_error(&link.socket)??;
        Ok(link)
    }
}

/// Listens on an address; port 0 lets the system choose. Returns the address it got.
pub fn listen(address: &SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = rustix::net::socket_with(family(address), SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, 1024)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// Accepts one connection.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<TcpLink> {
    TcpLink::new(rustix::net::accept_with(listener, FLAGS)?)
}

impl Link for TcpLink {
    fn kind(&self) -> Kind {
        Kind::Tcp
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn end_after(&self, silence: Duration) -> io::Result<()> {
        // Holds for what is sent as well as for keepalives, whatever their count.
        let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        Ok(sockopt::set_tcp_user_timeout(&self.socket, milliseconds)?)
    }

    fn try_send(&self, bytes: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        if !descriptors.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "TCP carries no descriptors"));
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
