//! Which endpoints are known, and the connections with each.
//!
//! Whoever first needs a connection dials it, and both sides send on it; two that dial at once have two,
//! and each side keeps sending on the first that it had, so that messages stay in order. A peer is gone
//! when its last connection has ended: what it said on any of them was read by then.

use crate::shared::{Bell, Direction, LOANS, Writer};
use crate::window::Window;
use forebay_transport::asynchronous::Outbox;
use forebay_transport::{Address, host};
use forebay_wire::comm::CommMessage;
use forebay_wire::frame::Header;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// An endpoint, as far as this one knows it.
pub(crate) type PeerId = u64;

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// Its own, of all of this process.
    pub(crate) id: u64,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) window: Arc<Window>,
    pub(crate) next_number: AtomicU64,
    /// The memory through which messages go to a process of this host.
    pub(crate) shared: OnceLock<Shared>,
    /// Sends that have not begun for want of room, the oldest first: a later one does not overtake them.
    pub(crate) waiting: Mutex<VecDeque<u64>>,
}

/// The writing end of the memory that is shared with a process.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) writer: Mutex<Writer<Direction>>,
    pub(crate) outward: Direction,
    /// Wakes that process.
    pub(crate) bell: Bell,
    /// Whether it can read this process's memory.
    pub(crate) reads: AtomicBool,
    pub(crate) loans: Mutex<Loans>,
}

/// The places of loans.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    turns: [u32; LOANS],
    taken: [bool; LOANS],
}

impl Loans {
    /// A place that is free, and which loan it is there.
    pub(crate) fn take(&mut self) -> Option<(u32, u32)> {
        let place = self.taken.iter().position(|taken| !taken)?;
        self.taken[place] = true;
        self.turns[place] = self.turns[place].wrapping_add(1);
        Some((place as u32, self.turns[place]))
    }

    pub(crate) fn free(&mut self, place: u32) {
        if let Some(taken) = self.taken.get_mut(place as usize) {
            *taken = false;
        }
    }
}

impl Link {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Arc<Link> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Arc::new(Link {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            outbox,
            window: Arc::new(Window::default()),
            next_number: AtomicU64::new(0),
            shared: OnceLock::new(),
            waiting: Mutex::default(),
        })
    }

    /// Messages go through this memory from now on.
    pub(crate) fn share(&self, outward: Direction, bell: Bell) {
        let _ = self.shared.set(Shared {
            writer: Mutex::new(Writer::new(outward.clone())),
            outward,
            bell,
            reads: AtomicBool::new(false),
            loans: Mutex::default(),
        });
    }

    /// Says something short. That it cannot be said any more is noticed by who reads the connection.
    pub(crate) fn say(&self, message: &CommMessage) {
        let _ = self.outbox.push(Header::default(), message);
    }

    /// Nobody listens in this comm here any more.
    pub(crate) fn refuse(&self, comm: u64) {
        self.say(&CommMessage::Left { comm });
    }

    /// Says what is queued, then ends the connection for both sides.
    pub(crate) fn close(&self) {
        self.window.close();
        self.outbox.close();
    }
}

/// What is known of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) name: Option<String>,
    pub(crate) addresses: Vec<String>,
    /// The first is the one to send on.
    pub(crate) links: Vec<Arc<Link>>,
    pub(crate) dialling: bool,
    /// Sends that wait for the first connection, the oldest first.
    pub(crate) waiting: VecDeque<u64>,
    /// One connection has ended: the others are about to.
    pub(crate) ending: bool,
    /// How many of this process wait for something from it.
    pub(crate) awaited: usize,
    /// Open comms that it is a member of.
    pub(crate) comms: usize,
}

/// The number of a send that waits while there is no connection that numbers it. Those do so from 0 on.
pub(crate) fn next_ticket() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1 << 63);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Peer {
    /// A send waits for the first connection: under which number.
    pub(crate) fn wait_for_link(&mut self) -> u64 {
        let number = next_ticket();
        self.waiting.push_back(number);
        number
    }

    /// It waits no more, even if there is a connection by now.
    pub(crate) fn stop_waiting(&mut self, number: u64) {
        self.waiting.retain(|other| *other != number);
        self.links.iter().for_each(|link| link.waiting.lock().retain(|other| *other != number));
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: BTreeMap<PeerId, Peer>,
    by_address: HashMap<String, PeerId>,
    next: PeerId,
    /// Connections that were accepted and whose other side has not said who it is.
    pub(crate) unnamed: usize,
}

impl Peers {
    /// The peer that listens at one of these addresses; a new one if none is known.
    pub(crate) fn find(&mut self, addresses: &[String]) -> PeerId {
        // Shared memory names are unique; a TCP port might be another process's by now.
        let known = |shm: bool| {
            addresses
                .iter()
                .filter(|a| a.starts_with("shm:") == shm)
                .find_map(|a| self.by_address.get(a).copied())
        };
        let id = known(true).or_else(|| known(false)).unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        let peer = self.peers.entry(id).or_default();
        for address in addresses {
            if !self.by_address.contains_key(address) {
                self.by_address.insert(address.clone(), id);
                peer.addresses.push(address.clone());
            }
        }
        id
    }

    pub(crate) fn get(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(&id)
    }

    /// How to call it in a text for people.
    pub(crate) fn describe(&self, id: PeerId) -> String {
        match self.peers.get(&id) {
            Some(Peer { name: Some(name), .. }) => format!("'{name}'"),
            Some(peer) => format!("at {}", peer.addresses.first().map_or("no address", String::as_str)),
            None => "unknown".to_owned(),
        }
    }

    /// The connection to send on.
    pub(crate) fn sending(&self, id: PeerId) -> Option<&Arc<Link>> {
        self.peers.get(&id).filter(|peer| !peer.ending)?.links.first()
    }

    /// Takes out a connection that has ended; the ones that are left are returned, to end soon.
    pub(crate) fn unlink(&mut self, id: PeerId, link: &Arc<Link>) -> Vec<Arc<Link>> {
        let Some(peer) = self.peers.get_mut(&id) else { return Vec::new() };
        peer.links.retain(|other| !Arc::ptr_eq(other, link));
        peer.ending = true;
        peer.links.clone()
    }

    /// Those whose last connection has ended, once nobody can still turn out to be one of them.
    pub(crate) fn ended(&mut self) -> Vec<PeerId> {
        if self.unnamed > 0 {
            return Vec::new();
        }
        let done = |peer: &&mut Peer| peer.ending && peer.links.is_empty();
        let ended: Vec<_> =
            self.peers.iter_mut().map(|(id, peer)| (*id, peer)).filter(|(_, peer)| done(peer)).collect();
        ended
            .into_iter()
            .map(|(id, peer)| {
                peer.ending = false;
                id
            })
            .collect()
    }

    /// Forgets a peer that nothing refers to.
    pub(crate) fn prune(&mut self, id: PeerId) {
        if self.peers.get(&id).is_some_and(|p| p.comms == 0 && p.links.is_empty() && !p.dialling && !p.ending)
        {
            self.peers.remove(&id);
            self.by_address.retain(|_, other| *other != id);
        }
    }

    /// With how many memory is shared.
    pub(crate) fn count_sharing(&self) -> usize {
        let shares = |peer: &&Peer| peer.links.iter().any(|link| link.shared.get().is_some());
        self.peers.values().filter(shares).count()
    }

    /// Every connection.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.peers.values().flat_map(|peer| &peer.links)
    }
}

/// The addresses of what a peer says of itself that mean it here: a loopback port of another host is one
/// of this host's own.
pub(crate) fn meaningful(addresses: Vec<String>) -> Vec<String> {
    let here = host::this_host();
    let parsed: Vec<Option<Address>> = addresses.iter().map(|a| a.parse().ok()).collect();
    let local = parsed.iter().flatten().any(|a| matches!(a, Address::Shm { host, .. } if *host == here));
    let means_it = |address: &Option<Address>| match address {
        Some(Address::Tcp(socket)) => local || !socket.ip().is_loopback(),
        Some(Address::Shm { .. }) => true,
        None => false,
    };
    addresses
        .into_iter()
        .zip(parsed)
        .filter(|(_, parsed)| means_it(parsed))
        .map(|(address, _)| address)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(addresses: &[&str]) -> Vec<String> {
        addresses.iter().map(|a| (*a).to_owned()).collect()
    }

    #[test]
    fn a_peer_is_known_by_any_of_its_addresses_and_forgotten() {
        let mut peers = Peers::default();
        let one = peers.find(&texts(&["tcp:127.0.0.1:5"]));
        assert_eq!(peers.find(&texts(&["shm:h/a", "tcp:127.0.0.1:5"])), one);
        assert_eq!(peers.find(&texts(&["shm:h/a"])), one);
        let two = peers.find(&texts(&["shm:h/b"]));
        assert_ne!(one, two);
        assert_eq!(peers.describe(two), "at shm:h/b");
        peers.prune(one);
        assert_ne!(peers.find(&texts(&["shm:h/a"])), one);
        assert!(peers.by_address.len() == 2 && peers.peers.len() == 2);
    }

    #[test]
    fn foreign_loopback_ports_mean_nothing_here() {
        let far = texts(&["shm:elsewhere/a", "tcp:127.0.0.1:5", "tcp:10.0.0.1:5", "nonsense"]);
        assert_eq!(meaningful(far), texts(&["shm:elsewhere/a", "tcp:10.0.0.1:5"]));
        let near = texts(&[&format!("shm:{}/a", host::this_host().0), "tcp:127.0.0.1:5"]);
        assert_eq!(meaningful(near.clone()), near);
    }
}
