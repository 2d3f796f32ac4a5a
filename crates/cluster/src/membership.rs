//! What agrees on the group's members, hosted: its messages travel with those of other servers, its votes to the witness,
//! and what it decides changes this server's roster.
//!
//! - this module: the driver of the agreement, and the roster in force;
//! - [`lease`]: what this server may promise;
//! - [`admission`]: servers that want to be members;
//! - [`adoption`]: another roster comes into force;
//! - [`connection_file`]: the connection file, kept as the group goes on;
//! - [`heal`]: going on where most members are gone for good;
//! - [`ending`]: the end of the whole group.

mod admission;
mod adoption;
pub(crate) mod connection_file;
mod ending;
mod heal;
mod lease;

pub use adoption::RosterChange;
pub(crate) use connection_file::{LOOK, LOOKS};
pub use heal::Healed;

use crate::cluster::Cluster;
use crate::environment::{Environment, HashMap, off_thread};
use crate::watched::Watched;
use forebay_core::Result;
use forebay_core::agreement::Question;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::membership::{Effect, Membership, Message};
use forebay_core::roster::{Incarnation, Member, Roster};
use forebay_core::view::View;
use forebay_transport::asynchronous::Outbox;
use forebay_transport::connection_file::ServerEntry;
use forebay_transport::witness::Witness;
use forebay_wire::frame::Header;
use forebay_wire::peer::cluster;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::Notify;

/// The roster in force, as this server knows it, and what follows from it.
#[derive(Debug)]
pub struct CurrentRoster {
    /// The roster.
    pub roster: Arc<Roster>,
    /// What servers and clients see of it.
    pub view: View,
}

impl CurrentRoster {
    pub(crate) fn new(roster: Arc<Roster>) -> CurrentRoster {
        CurrentRoster { view: roster.view(), roster }
    }
}

/// A server's part in the agreement, with what it needs around it.
#[derive(Debug)]
pub struct MembershipDriver {
    /// The agreement itself.
    pub membership: Mutex<Membership>,
    /// When it is to be called next may have changed.
    changed: Notify,
    /// Whether this server may acknowledge something may have changed.
    pub(crate) lease: Notify,
    /// Its clock.
    clock: Clock,
    witness: Arc<Witness>,
    /// Servers that want to be members, and where they wait to be told.
    joining: Mutex<HashMap<Incarnation, Arc<Outbox>>>,
    /// Rosters that are to come into force here when all is heard that those had said who are gone.
    adopting: Mutex<VecDeque<Arc<Roster>>>,
    /// The epoch of which the connection file is known to tell.
    filed: AtomicU64,
    /// Whether a later roster leaves this server out.
    pub out: Watched<bool>,
    /// Enough others know that roster.
    pub released: Notify,
    /// The group has ended without this server.
    pub abandoned: Notify,
}

/// What the clock says, and what it said when this server began.
#[derive(Debug)]
struct Clock {
    environment: Arc<dyn Environment>,
    began: Duration,
}

impl Clock {
    fn start(environment: Arc<dyn Environment>) -> Clock {
        Clock { began: environment.now(), environment }
    }

    fn elapsed(&self) -> Duration {
        self.environment.now().saturating_sub(self.began)
    }
}

impl MembershipDriver {
    pub(crate) fn new(
        me: ServerId,
        roster: Arc<Roster>,
        witness: Witness,
        seed: u64,
        environment: Arc<dyn Environment>,
    ) -> MembershipDriver {
        MembershipDriver {
            membership: Mutex::new(Membership::new(me, roster, seed, Duration::ZERO)),
            changed: Notify::new(),
            lease: Notify::new(),
            clock: Clock::start(environment),
            witness: Arc::new(witness),
            joining: Mutex::default(),
            adopting: Mutex::default(),
            filed: AtomicU64::new(0),
            out: Watched::new(false),
            released: Notify::new(),
            abandoned: Notify::new(),
        }
    }

    /// What this server's clock says.
    pub(crate) fn now(&self) -> Duration {
        self.clock.elapsed()
    }
}

/// How a member is reached.
pub fn entry(member: &Member) -> ServerEntry {
    ServerEntry { id: member.id, pid: member.server.pid, addresses: member.server.addresses.clone() }
}

impl Cluster {
    /// Does something at this server's part in the agreement, then what it wants done. What is for a server to which
    /// nothing can be sent goes over `from`'s own connection, if it is that one.
    pub fn at_membership(
        &self,
        from: Option<(ServerId, &Outbox)>,
        act: impl FnOnce(&mut Membership, Duration),
    ) {
        let mut membership = self.driver.membership.lock();
        act(&mut membership, self.driver.clock.elapsed());
        self.perform(&mut membership, from);
        drop(membership);
        self.driver.changed.notify_one();
        self.driver.lease.notify_waiters();
    }

    /// Whether this server may acknowledge something now; asks for its lease if it is time.
    pub(crate) fn use_lease(&self) -> bool {
        let mut membership = self.driver.membership.lock();
        let held = membership.use_lease(self.driver.clock.elapsed());
        self.perform(&mut membership, None);
        held
    }

    /// The roster of the group if it is healed with these members.
    pub(crate) fn healed(&self, answering: &BTreeSet<ServerId>) -> Result<Roster> {
        self.driver.membership.lock().healed(answering)
    }

    /// What the group's servers share beside the connection file.
    pub(crate) fn witness(&self) -> Arc<Witness> {
        self.driver.witness.clone()
    }

    /// Does what the agreement wants done, under its lock, so that rosters come into force one after the other.
    fn perform(&self, membership: &mut Membership, from: Option<(ServerId, &Outbox)>) {
        for effect in membership.effects() {
            match effect {
                Effect::Send(to, message) => {
                    let message = cluster::Message::Agreement(message);
                    match from {
                        Some((asker, outbox)) if asker == to && !self.peers.reaches(to) => {
                            let _ = outbox.push(Header::default(), &message);
                        }
                        _ => drop(self.peers.send(to, message)),
                    }
                }
                Effect::AskWitness(epoch, question) => self.ask_witness(epoch, question),
                Effect::Ping(member) => {
                    // What the check finds is told to the agreement, whose lock is held now.
                    let Some(cluster) = self.me.upgrade() else { return };
                    tokio::spawn(async move { cluster.check(member) });
                }
                Effect::InForce(roster) => self.adopt_in_turn(roster),
                Effect::Out(roster) => self.is_out(&roster),
                Effect::Released => self.driver.released.notify_one(),
            }
        }
    }

    /// Another server, or one that wants to know, has told something about the members.
    pub(crate) fn heard_of_members(&self, from: ServerId, message: Message, outbox: Option<&Outbox>) {
        if let Err(error) = message.check() {
            return tracing::error!("{from} is not believed: {error}");
        }
        self.at_membership(outbox.map(|outbox| (from, outbox)), |membership, now| {
            membership.receive(from, message, now);
        });
    }

    fn ask_witness(&self, epoch: Epoch, question: Question<Arc<Roster>>) {
        let (witness, lineage) = (self.driver.witness.clone(), self.lineage);
        let Some(cluster) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            let asked = off_thread(&*cluster.environment, move || witness.answer(lineage, epoch, question));
            match asked.await.flatten() {
                Ok(Some(answer)) => cluster.at_membership(None, |membership, now| {
                    membership.on_witness_answer(epoch, answer, now);
                }),
                Ok(None) => {}
                Err(error) => tracing::warn!("the group's next members cannot be agreed on: {error}"),
            }
        });
    }
}

/// Calls the agreement when it is time.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    loop {
        let changed = cluster.driver.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let wake_at = cluster.driver.membership.lock().wake_at();
        let wake = async {
            match wake_at {
                Some(at) => tokio::time::sleep(at.saturating_sub(cluster.driver.clock.elapsed())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = wake => cluster.at_membership(None, Membership::tick),
            () = changed => {}
        }
    }
}
