//! Communicators of processes that meet by name, outside of pipelines.

use crate::connection::coordinator::CoordinatorAnswer;
use crate::connection::group::Group;
use crate::connection::rpc::Rpc;
use crate::group_options::GroupOptions;
use crate::seconds::deadline_after;
use forebay_comm::{Comm, Endpoint, EndpointOptions};
use forebay_core::ids::{Lineage, check_name};
use forebay_core::{Error, Result};
use forebay_transport::Address;
use forebay_wire::client::meeting::{Reply, Request, SIZE_MAX, place_of};
use forebay_wire::connection::Role;
use forebay_wire::handshake::Secret;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// How much longer this process waits than the server, which says what is missing.
const GRACE: Duration = Duration::from_secs(1);

/// Opens a communicator by its name, as one of its ranks. Every rank calls it once, with the same size, within the timeout of the
/// options; this waits for all. No rank's memory is known to the server: it only tells them where they are.
///
/// `Timeout` names the ranks that did not come, `Conflict` who has come as the same rank, or with another size. Afterwards the name is
/// free again: who opens it once more meets others who do.
pub fn open_comm(options: &GroupOptions, name: &str, rank: u32, size: u32) -> Result<Comm> {
    check_name("communicator", name)?;
    if size == 0 || size > SIZE_MAX {
        return Err(Error::invalid(format!("size={size}: a communicator has 1 to {SIZE_MAX} ranks")));
    }
    if rank >= size {
        return Err(Error::invalid(format!("rank={rank}: ranks are 0 to {} with size={size}", size - 1)));
    }
    let deadline = deadline_after(options.patience());
    let group = Group::find(options)?;
    let known = group.known();
    let endpoint = Endpoint::new(EndpointOptions {
        secret: known.file.secret.clone(),
        lineage: known.file.lineage,
        tcp: address_beside(&group).map(|address| SocketAddr::new(address, 0)),
        name: format!("{} in communicator '{name}'", group.identity()),
    })?;
    let addresses = endpoint.addresses();
    let come = |rpc: &Rpc, left: Duration| {
        let patience_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let (name, addresses) = (name.to_owned(), addresses.clone());
        let request = Request::Come { name, rank, size, addresses, patience_ms };
        let answer =
            rpc.call_within(&request, None, left.saturating_add(GRACE), "the other ranks to come")?;
        Ok(match answer.message {
            Reply::Redirect(server) => CoordinatorAnswer::Redirect(server),
            Reply::Met { id, members } => CoordinatorAnswer::Answer((id, members)),
        })
    };
    let (_, _, (id, members)) = group.at_coordinator(&place_of(name), &Role::Meeting, deadline, come)?;
    endpoint.into_comm(id, rank, members)
}

/// Where others reach this process: the address by which it would reach a server. `None` if no server listens on a network.
fn address_beside(group: &Group) -> Option<IpAddr> {
    let known = group.known();
    let addresses = known.file.servers.iter().filter_map(|server| server.parsed().ok()).flatten();
    let mut servers = addresses.filter_map(|address| match address {
        Address::Tcp(address) => Some(address),
        Address::Shm { .. } => None,
    });
    servers.find_map(|server| {
        // Nothing is sent: the system only chooses the way.
        let any: IpAddr = match server {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(server).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

/// A communicator of this process alone, of which no server knows.
pub fn comm_alone() -> Result<Comm> {
    let options = EndpointOptions {
        secret: Secret(random()?),
        lineage: Lineage(random()?),
        tcp: None,
        name: format!("process {}", std::process::id()),
    };
    let endpoint = Endpoint::new(options)?;
    let members = vec![endpoint.addresses()];
    endpoint.into_comm(1, 0, members)
}

/// Bytes that nobody guesses.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|e| Error::io("cannot read random numbers", &e))?;
    Ok(bytes)
}
