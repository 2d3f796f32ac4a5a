//! What the tests share: groups of endpoints in threads.
#![allow(dead_code, reason = "each test uses some of it")]

use forebay_comm::{Comm, Endpoint, EndpointOptions};
use forebay_core::ids::Lineage;
use forebay_wire::handshake::Secret;
use std::time::Duration;

pub(crate) const SECRET: Secret = Secret([5; 32]);
pub(crate) const LINEAGE: Lineage = Lineage([6; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Shm,
    Tcp,
}

pub(crate) fn endpoint(name: &str) -> Endpoint {
    let tcp = Some("127.0.0.1:0".parse().unwrap());
    Endpoint::new(EndpointOptions { secret: SECRET, lineage: LINEAGE, tcp, name: name.to_owned() }).unwrap()
}

/// Endpoints `w0`, `w1` ... and the addresses by which they find each other.
pub(crate) fn group(size: usize, over: Over) -> (Vec<Endpoint>, Vec<Vec<String>>) {
    let endpoints: Vec<_> = (0..size).map(|rank| endpoint(&format!("w{rank}"))).collect();
    let members = endpoints.iter().map(|endpoint| only(endpoint.addresses(), over)).collect();
    (endpoints, members)
}

pub(crate) fn only(addresses: Vec<String>, over: Over) -> Vec<String> {
    let prefix = if over == Over::Shm { "shm:" } else { "tcp:" };
    addresses.into_iter().filter(|address| address.starts_with(prefix)).collect()
}

pub(crate) fn comms(endpoints: &[Endpoint], members: &[Vec<String>], id: u64) -> Vec<Comm> {
    let open = |(rank, endpoint): (usize, &Endpoint)| {
        let comm = endpoint.comm(id, rank as u32, members.to_vec()).unwrap();
        comm.set_timeout(Duration::from_secs(20));
        comm
    };
    endpoints.iter().enumerate().map(open).collect()
}

/// Runs the same on every rank, each in a thread of its own; the results by rank.
pub(crate) fn on_all<T: Send>(comms: &[Comm], work: impl Fn(&Comm) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms.iter().map(|comm| scope.spawn(|| work(comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(crate) fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + (i >> 11) * 7 + seed * 101) as u8).collect()
}
