//! Where a server listens, and what it tells others of that.

use crate::ClusterOptions;
use crate::forming::random;
use forebay_core::{Error, Result};
use forebay_transport::readiness::readable;
use forebay_transport::{Address, Listener};
use rustix::fd::{AsFd, OwnedFd};
use std::net::SocketAddr;
use tokio::io::unix::AsyncFd;

pub(super) fn listen(options: &ClusterOptions) -> Result<Vec<Listener>> {
    let token: [u8; 8] = random()?;
    let name: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut listeners = vec![Listener::shm(&format!("forebay-{}-{name}", std::process::id()))?];
    for ip in &options.bind {
        let (first, last) = options.ports.unwrap_or((0, 0));
        let bound = (first..=last).map(|port| Listener::tcp(&SocketAddr::new(*ip, port)));
        let mut result = Err(Error::invalid(format!("no port between {first} and {last}")));
        for attempt in bound {
            result = attempt;
            if result.is_ok() {
                break;
            }
        }
        listeners.push(result?);
    }
    Ok(listeners)
}

pub(super) fn advertised(options: &ClusterOptions, listeners: &[Listener]) -> Vec<String> {
    let told = listeners.iter().map(|listener| match (listener.address(), options.advertise) {
        (Address::Tcp(bound), Some(ip)) => Address::Tcp(SocketAddr::new(ip, bound.port())),
        (address, _) => address.clone(),
    });
    told.map(|address| address.to_string()).collect()
}

/// A listener that tokio can wait for.
pub fn pollable(listener: &Listener) -> Result<AsyncFd<OwnedFd>> {
    let copy = listener.descriptor().as_fd().try_clone_to_owned();
    copy.and_then(readable).map_err(|e| Error::io("cannot listen", &e))
}
