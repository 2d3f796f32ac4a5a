//! Accepting connections, whatever the transport.

use crate::address::Address;
use crate::link::Link;
use crate::{host, shm, tcp};
use forebay_core::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::net::SocketAddr;

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: Address,
}

impl Listener {
    /// Listens on a new abstract name on this host.
    pub fn shm(name: &str) -> Result<Listener> {
        let socket = shm::listen(name)
            .map_err(|e| Error::io(format!("cannot listen on the local name '{name}'"), &e))?;
        Ok(Listener { socket, address: Address::Shm { host: host::this_host(), name: name.to_owned() } })
    }

    /// Listens on a TCP address; port 0 lets the system choose.
    pub fn tcp(address: &SocketAddr) -> Result<Listener> {
        let (socket, bound) =
            tcp::listen(address).map_err(|e| Error::io(format!("cannot listen on tcp {address}"), &e))?;
        Ok(Listener { socket, address: Address::Tcp(bound) })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What to wait for.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Accepts one connection; never blocks.
    pub fn try_accept(&self) -> io::Result<Box<dyn Link>> {
        Ok(match self.address {
            Address::Shm { .. } => Box::new(shm::accept(self.socket.as_fd())?),
            Address::Tcp(_) => Box::new(tcp::accept(self.socket.as_fd())?),
        })
    }
}
