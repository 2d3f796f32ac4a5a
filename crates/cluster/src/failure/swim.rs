//! Members that fall silent: their process stands still, or their host is cut off. SWIM (Das, Gupta and Motivala, 2002), as
//! the library `foca` has it, hosted: it asks one member a second, has others ask where nobody answers, and gives up who has
//! not answered for long. It only suspects: each member then asks for itself ([`crate::failure::ping`]), and they agree on who
//! goes. (Design note 13.)
//!
//! What it says travels in datagrams, to the port on which a server listens for TCP; where none of a member come through,
//! over the connections between servers as well. Between servers of one host it always takes those: the host's network may
//! go away, and they live.

use crate::cluster::Cluster;
use crate::membership::entry;
use foca::{Config, Foca, Identity, Member, Notification, OwnedNotification, PostcardCodec, Runtime, Timer};
use forebay_core::Result;
use forebay_core::ids::ServerId;
use forebay_core::roster::Roster;
use forebay_transport::Address;
use forebay_wire::datagram::{self as wire, DatagramKey, ReplayWindow};
use forebay_wire::peer::cluster;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a server may be silent, unless told otherwise.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// The least time that can be asked for: below, a busy machine looks like a dead one.
pub const SILENCE_MIN: Duration = Duration::from_secs(1);
/// The longest: clients would have given up long before.
pub const SILENCE_MAX: Duration = Duration::from_secs(3600);
/// How often a member is asked, as a part of that.
const PROBES: u32 = 10;
/// No member is asked more seldom.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// After how many periods one that fell silent is greeted again.
const GREETED_AGAIN: u32 = 3;
/// The longest datagram that is sent: it fits into one packet of any network.
const SAID_MAX: usize = 1200;
/// The longest that is taken.
const DATAGRAM_MAX: usize = 2048;
/// What is yet to be done for others.
const WAITING_MAX: usize = 1024;

/// What there is to be done for whom watches.
#[derive(Debug)]
pub(crate) enum SwimAction {
    /// Another server said this over its connection.
    Hear(ServerId, Vec<u8>),
    /// A member is to be asked by datagram whether it is there: the question's number.
    Ask(ServerId, u64),
}

/// Where that waits.
#[derive(Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<SwimAction>,
    /// Until SWIM runs, which takes it.
    receiver: Mutex<Option<mpsc::Receiver<SwimAction>>>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Inbox { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Inbox {
    /// Something is to be done. If too much waits, it is lost, as datagrams may be.
    pub(crate) fn put(&self, to_do: SwimAction) {
        let _ = self.sender.try_send(to_do);
    }
}

/// What a datagram says.
#[derive(Debug, Serialize, Deserialize)]
enum Datagram {
    /// Something of foca's.
    Gossip(Vec<u8>),
    /// [`cluster::Message::Ping`].
    AreYouThere(u64),
    /// [`cluster::Message::Pong`].
    IAmThere(u64),
}

/// A member, as foca knows it: when one that was given up shows that it lives, it gets a new life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ProbedMember {
    id: ServerId,
    life: u32,
}

impl Identity for ProbedMember {
    type Addr = ServerId;

    fn renew(&self) -> Option<ProbedMember> {
        // The last life is that of servers which are members no more.
        (self.life < u32::MAX - 1).then(|| ProbedMember { life: self.life + 1, ..*self })
    }

    fn addr(&self) -> ServerId {
        self.id
    }

    fn win_addr_conflict(&self, adversary: &ProbedMember) -> bool {
        self.life > adversary.life
    }
}

/// What foca wants done.
#[derive(Debug, Default)]
struct FocaActions {
    said: Vec<(ServerId, Vec<u8>)>,
    timers: Vec<(Timer<ProbedMember>, Duration)>,
    noticed: Vec<OwnedNotification<ProbedMember>>,
}

impl Runtime<ProbedMember> for FocaActions {
    fn notify(&mut self, notification: Notification<'_, ProbedMember>) {
        self.noticed.push(notification.to_owned());
    }

    fn send_to(&mut self, to: ProbedMember, said: &[u8]) {
        self.said.push((to.id, said.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<ProbedMember>, after: Duration) {
        self.timers.push((event, after));
    }
}

/// What is known of a member's datagrams.
#[derive(Debug, Default)]
struct DatagramsOfMember {
    window: ReplayWindow,
    at: Option<Instant>,
}

struct Watch {
    cluster: Arc<Cluster>,
    foca: Foca<ProbedMember, PostcardCodec, SmallRng, foca::NoCustomBroadcast>,
    socket: Option<UdpSocket>,
    key: DatagramKey,
    /// Of the datagrams that this server has sent.
    counter: u64,
    /// What is to be done, by when; of one time, in the order in which it was asked for.
    due: BTreeMap<(Instant, u64), Timer<ProbedMember>>,
    timers: u64,
    roster: Arc<Roster>,
    addresses: HashMap<ServerId, SocketAddr>,
    heard: BTreeMap<ServerId, DatagramsOfMember>,
    period: Duration,
    /// The members that foca takes for down. It never asks them again by itself.
    down: BTreeMap<ServerId, ProbedMember>,
    greet_at: Instant,
}

/// How often a member is asked, and how long it may take to answer.
pub(crate) fn period(silence: Duration) -> Duration {
    (silence / PROBES).min(PROBE_MAX)
}

fn config(silence: Duration) -> Config {
    let period = period(silence);
    Config {
        probe_period: period,
        probe_rtt: period / 2,
        // Then it is asked once more by each member.
        suspect_to_down_after: silence / 2 - 2 * period,
        num_indirect_probes: NonZeroUsize::MIN.saturating_add(2),
        max_transmissions: NonZeroU8::MIN.saturating_add(9),
        max_packet_size: NonZeroUsize::MIN.saturating_add(SAID_MAX - 1),
        // One that was given up hears so, and shows that it lives.
        notify_down_members: true,
        ..Config::simple()
    }
}

/// Watches the other members until this server ends. `listening`: where it listens for TCP.
pub(crate) async fn run(cluster: Arc<Cluster>, listening: Vec<SocketAddr>) {
    let Some(mut inbox) = cluster.swim.receiver.lock().take() else { return };
    if let Err(error) = watch(cluster, listening, &mut inbox).await {
        tracing::error!("members that fall silent are not noticed: {error}");
    }
}

/// A socket for datagrams at the first of these addresses that has one.
async fn bind(addresses: Vec<SocketAddr>) -> Option<UdpSocket> {
    for address in addresses {
        match UdpSocket::bind(address).await {
            Ok(bound) => return Some(bound),
            Err(error) => tracing::info!("no datagrams at {address}: {error}"),
        }
    }
    None
}

async fn watch(
    cluster: Arc<Cluster>,
    listening: Vec<SocketAddr>,
    inbox: &mut mpsc::Receiver<SwimAction>,
) -> Result<()> {
    let socket = bind(listening).await;
    let seed = cluster.incarnation.0;
    let config = config(cluster.silence);
    let me = ProbedMember { id: cluster.id, life: 0 };
    let period = config.probe_period;
    let mut watch = Watch {
        key: DatagramKey::new(&cluster.secret, &cluster.lineage)?,
        foca: Foca::new(me, config, SmallRng::seed_from_u64(seed), PostcardCodec),
        socket,
        counter: 0,
        due: BTreeMap::new(),
        timers: 0,
        roster: cluster.standing().roster.clone(),
        addresses: HashMap::new(),
        heard: BTreeMap::new(),
        period,
        down: BTreeMap::new(),
        greet_at: Instant::now(),
        cluster: cluster.clone(),
    };
    let mut buffer = vec![0; DATAGRAM_MAX];
    watch.follow(cluster.standing().roster.clone(), true);
    loop {
        let due = watch.due.first_key_value().map(|((at, _), _)| *at);
        let due = due.into_iter().chain((!watch.down.is_empty()).then_some(watch.greet_at)).min();
        let known = watch.roster.epoch;
        let wake = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let datagram = async {
            match &watch.socket {
                Some(socket) => socket.recv_from(&mut buffer).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = wake => watch.tick(),
            _ = cluster.epochs.wait_for(|epoch| epoch > known) => watch.follow(cluster.standing().roster.clone(), false),
            received = datagram => match received {
                Ok((length, _)) => {
                    let datagram = buffer.get(..length).unwrap_or_default().to_vec();
                    watch.received(&datagram);
                }
                // An earlier datagram came to nobody, most likely.
                Err(error) => tracing::debug!("a datagram is not received: {error}"),
            },
            to_do = inbox.recv() => match to_do {
                Some(SwimAction::Hear(from, said)) => watch.on_datagram(from, &said),
                Some(SwimAction::Ask(member, number)) => watch.send(member, &Datagram::AreYouThere(number)),
                None => return Ok(()),
            },
        }
    }
}

impl Watch {
    /// Other servers are members now, or it is the first roster.
    fn follow(&mut self, roster: Arc<Roster>, first: bool) {
        let before: BTreeSet<ServerId> = self.roster.ids().filter(|_| !first).collect();
        let me = self.cluster.id;
        let came = roster.ids().filter(|id| *id != me && !before.contains(id));
        let left = before.iter().copied().filter(|id| *id != me && !roster.contains(*id));
        let updates: Vec<Member<ProbedMember>> = came
            .map(|id| Member::alive(ProbedMember { id, life: 0 }))
            .chain(left.map(|id| Member::down(ProbedMember { id, life: u32::MAX })))
            .collect();
        let elsewhere =
            roster.members.iter().map(entry).filter(|server| !self.cluster.environment.is_here(server));
        self.addresses = elsewhere.filter_map(|server| Some((server.id, udp(&server)?))).collect();
        self.heard.retain(|id, _| roster.contains(*id));
        self.down.retain(|id, _| roster.contains(*id));
        self.roster = roster;
        self.with(|foca, wanted| foca.apply_many(updates.into_iter(), false, wanted));
    }

    fn received(&mut self, datagram: &[u8]) {
        let Some((incarnation, counter, said)) = self.key.open(self.cluster.id, datagram) else { return };
        let Some(from) = self.roster.find(incarnation).map(|member| member.id) else { return };
        let heard = self.heard.entry(from).or_default();
        if !heard.window.take(counter) {
            return;
        }
        heard.at = Some(Instant::now());
        match wire::decode(&said) {
            Ok(Datagram::Gossip(said)) => self.on_datagram(from, &said),
            Ok(Datagram::AreYouThere(number)) => self.send(from, &Datagram::IAmThere(number)),
            Ok(Datagram::IAmThere(number)) => self.cluster.pings.on_answer(from, number),
            Err(error) => tracing::debug!("a datagram of {from} cannot be read: {error}"),
        }
    }

    /// Sends a datagram to a member to which there is a way. It may be lost.
    fn send(&mut self, to: ServerId, said: &Datagram) {
        let (Some(socket), Some(address)) = (&self.socket, self.addresses.get(&to)) else { return };
        self.counter += 1;
        let sealed = wire::encode(said)
            .and_then(|said| self.key.seal(self.cluster.incarnation, self.counter, to, &said));
        match sealed {
            // What finds no room is lost, as any datagram may be.
            Ok(datagram) => drop(socket.try_send_to(&datagram, *address)),
            Err(error) => tracing::warn!("{to} is sent no datagram: {error}"),
        }
    }

    fn on_datagram(&mut self, from: ServerId, said: &[u8]) {
        if self.roster.contains(from) {
            self.with(|foca, wanted| foca.handle_data(said, wanted));
        }
    }

    /// Does what is due.
    fn tick(&mut self) {
        let now = Instant::now();
        while let Some(next) = self.due.first_entry().filter(|next| next.key().0 <= now) {
            let timer = next.remove();
            self.with(|foca, wanted| foca.handle_timer(timer, wanted));
        }
        self.greet_silent_members(now);
    }

    /// Members that fell silent and were not given up may be there again, or silent once more: they are greeted, so that foca
    /// watches those that answer, and are asked whether they are there.
    fn greet_silent_members(&mut self, now: Instant) {
        if now < self.greet_at {
            return;
        }
        self.greet_at = now + GREETED_AGAIN * self.period;
        for (id, member) in self.down.clone() {
            self.with(|foca, wanted| foca.announce(member, wanted));
            self.cluster.check(id);
        }
    }

    fn with(
        &mut self,
        act: impl FnOnce(
            &mut Foca<ProbedMember, PostcardCodec, SmallRng, foca::NoCustomBroadcast>,
            &mut FocaActions,
        ) -> std::result::Result<(), foca::Error>,
    ) {
        let mut wanted = FocaActions::default();
        if let Err(error) = act(&mut self.foca, &mut wanted) {
            // What others say in a moment when both sides know other members; it will be said again.
            tracing::debug!("foca: {error}");
        }
        let now = Instant::now();
        for (timer, after) in wanted.timers {
            self.timers += 1;
            self.due.insert((now + after, self.timers), timer);
        }
        for (to, said) in wanted.said {
            self.gossip(to, said, now);
        }
        for noticed in wanted.noticed {
            match noticed {
                OwnedNotification::MemberDown(member) => {
                    self.cluster.fell_silent(member.id);
                    if self.roster.contains(member.id) {
                        if self.down.is_empty() {
                            self.greet_at = now + GREETED_AGAIN * self.period;
                        }
                        self.down.insert(member.id, member);
                    }
                }
                OwnedNotification::MemberUp(member) => {
                    self.down.remove(&member.id);
                    self.cluster.answers_again(member.id);
                }
                _ => {}
            }
        }
    }

    fn gossip(&mut self, to: ServerId, said: Vec<u8>, now: Instant) {
        let heard =
            self.heard.get(&to).and_then(|heard| heard.at).filter(|_| self.addresses.contains_key(&to));
        if heard.is_none_or(|at| now.duration_since(at) > 3 * self.period) {
            self.cluster.peers.send(to, cluster::Message::Swim(said.clone()));
        }
        self.send(to, &Datagram::Gossip(said));
    }
}

/// Where a server takes datagrams: where it listens for TCP.
fn udp(server: &forebay_transport::connection_file::ServerEntry) -> Option<SocketAddr> {
    let addresses = server.parsed().unwrap_or_default();
    addresses.into_iter().find_map(|address| match address {
        Address::Tcp(socket) => Some(socket),
        Address::Shm { .. } => None,
    })
}

impl Cluster {
    /// It is said that a member does not answer: whether that is so, each member sees for itself.
    fn fell_silent(&self, peer: ServerId) {
        if self.standing().view.members.contains(&peer) {
            tracing::info!("{peer} is said to be silent");
            self.check(peer);
        }
    }

    /// A member answers, maybe one that was to go.
    fn answers_again(&self, peer: ServerId) {
        if self.standing().view.members.contains(&peer) && !self.is_gone(peer) {
            self.at_membership(None, |membership, now| membership.on_reached(peer, now));
        }
    }
}
