//! What a member knows of its group and of itself.

use crate::application::Application;
use crate::environment::Environment;
use crate::failure::ping::Pings;
use crate::failure::stall_guard::StallGuard;
use crate::failure::{SILENCE_MAX, SILENCE_MIN, ping, stall_guard, swim};
use crate::forming::FormedMember;
use crate::membership::{self, CurrentRoster, MembershipDriver, connection_file};
use crate::peers::{self, Inbound, Peers};
use crate::watched::Watched;
use forebay_core::ids::{Epoch, Lineage, ServerId};
use forebay_core::roster::Incarnation;
use forebay_wire::handshake::Secret;
use forebay_wire::peer::PeerMessage;
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// A server's part in its group.
#[derive(Debug)]
pub struct Cluster {
    /// This server.
    pub id: ServerId,
    /// The group.
    pub lineage: Lineage,
    /// The host, the clock and the way to other servers.
    pub environment: Arc<dyn Environment>,
    /// The roster in force. Locked after all else, for as long as it takes to copy a pointer.
    pub(crate) roster: RwLock<Arc<CurrentRoster>>,
    /// What agrees on the members.
    pub driver: MembershipDriver,
    /// What the members of the group prove that they know.
    pub secret: Secret,
    /// Where the connection file lies.
    pub connection_file: PathBuf,
    /// Where this server is reached.
    pub addresses: Vec<String>,
    /// The connections to the other servers.
    pub peers: Peers,
    /// What other servers of this host tell this one.
    pub(crate) inbound: Inbound,
    /// Whether this server has stood still.
    pub(crate) stall_guard: StallGuard,
    /// The members that are asked whether they are there.
    pub(crate) pings: Pings,
    /// Which process this server is.
    pub(crate) incarnation: Incarnation,
    /// How long another server may be silent.
    pub silence: Duration,
    /// What there is to be done for SWIM.
    pub(crate) swim: swim::Inbox,
    /// The epoch of the roster in force.
    pub epochs: Watched<Epoch>,
    /// The group is to end, with this server.
    pub shutdown: Notify,
    /// Servers that are gone for this one. Their ids are given to nobody else.
    gone: Mutex<BTreeSet<ServerId>>,
    /// Counts what [`Cluster::unique`] gives.
    counter: AtomicU64,
    application: Weak<dyn Application>,
    /// For tasks that outlive the call that starts them.
    pub(crate) me: Weak<Cluster>,
}

impl Cluster {
    /// The part of a server in the group of which it has become a member. `application` is told what becomes of the group.
    pub fn new(formed: FormedMember, application: Weak<dyn Application>) -> Arc<Cluster> {
        let FormedMember {
            environment,
            id,
            incarnation,
            secret,
            roster,
            witness,
            connection_file,
            addresses,
        } = formed;
        let silence = Duration::from_millis(roster.settings.silence_ms).clamp(SILENCE_MIN, SILENCE_MAX);
        let driver = MembershipDriver::new(id, roster.clone(), witness, incarnation.0, environment.clone());
        Arc::new_cyclic(|me| Cluster {
            id,
            lineage: roster.lineage,
            environment,
            roster: RwLock::new(Arc::new(CurrentRoster::new(roster))),
            driver,
            secret,
            connection_file,
            addresses,
            peers: Peers::default(),
            inbound: Inbound::default(),
            stall_guard: StallGuard::new(silence),
            pings: Pings::default(),
            incarnation,
            silence,
            swim: swim::Inbox::default(),
            epochs: Watched::default(),
            shutdown: Notify::new(),
            gone: Mutex::default(),
            counter: AtomicU64::new(1),
            application,
            me: me.clone(),
        })
    }

    /// Dials the other members. To be called when the application can be told what they answer.
    pub fn dial_all(self: &Arc<Cluster>) {
        let members: Vec<_> = self.standing().roster.members.iter().map(membership::entry).collect();
        peers::start(self, &members);
    }

    /// Begins to agree with the others and to watch them. `ports`: where this server listens for TCP.
    pub fn start(self: &Arc<Cluster>, ports: Vec<SocketAddr>) {
        tokio::spawn(membership::run(self.clone()));
        tokio::spawn(connection_file::look_now_and_then(self.clone()));
        tokio::spawn(ping::ask_in_turn(self.clone()));
        tokio::spawn(stall_guard::run(self.clone()));
        tokio::spawn(swim::run(self.clone(), ports));
    }

    /// The roster in force and what follows from it.
    pub fn standing(&self) -> Arc<CurrentRoster> {
        self.roster.read().clone()
    }

    /// The epoch of the roster in force.
    pub fn epoch(&self) -> Epoch {
        self.roster.read().view.epoch
    }

    /// A number that no other server gives.
    pub fn unique(&self) -> u64 {
        (u64::from(self.id.0) << 40) | self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a server is gone for this one: it is never spoken to again.
    pub(crate) fn is_gone(&self, server: ServerId) -> bool {
        self.gone.lock().contains(&server)
    }

    /// A member is gone for this server.
    pub(crate) fn peer_gone(&self, peer: ServerId) {
        self.gone.lock().insert(peer);
        self.tell(|application| application.on_peer_gone(peer));
    }

    /// Tells the server something; once it has ended, nothing is told any more.
    pub(crate) fn tell(&self, what: impl FnOnce(&dyn Application)) {
        if let Some(application) = self.application.upgrade() {
            what(&*application);
        }
    }

    /// Has the server take a message that it handles at once; gives back any other one.
    pub(crate) fn take_at_once(
        &self,
        from: ServerId,
        message: PeerMessage,
        file: Option<OwnedFd>,
    ) -> Option<PeerMessage> {
        self.application.upgrade()?.take_at_once(from, message, file)
    }

    /// Whether a server was a member and is none any more.
    pub(crate) fn has_left(&self, server: ServerId) -> bool {
        self.standing().roster.has_left(server)
    }

    /// Whether this server has given all that it had to the others. One that has ended has.
    pub(crate) fn has_drained(&self) -> bool {
        self.application.upgrade().is_none_or(|application| application.has_drained())
    }
}
