//! What agrees on the group's members, hosted: its messages travel with those of other servers, its votes to the witness,
//! and what it decides changes this server's view.

use crate::node::{Node, Shared};
use crate::peers;
use crate::process::Process;
use crate::surroundings::{HashMap, Surroundings, off_thread};
use crate::watched::Watched;
use forebay_core::agreement::Question;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::membership::{Effect, Evidence, Membership, Message};
use forebay_core::roster::{Candidate, Change, Incarnation, Member, Roster};
use forebay_core::view::View;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::Outbox;
use forebay_transport::group_file::{ConnectionFile, ServerEntry};
use forebay_transport::witness::Witness;
use forebay_wire::frame::Header;
use forebay_wire::peer::cluster;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How many servers may wait to be told that they are members.
const JOINING_MAX: usize = 256;
/// How often a member that has lost others looks whether the group has gone on without it, and one that is not the first
/// whether the connection file tells of the roster in force.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// After so many looks at which nothing was left of the group, it has ended.
pub(crate) const LOOKS: u32 = 3;
/// How long to wait for who writes the connection file before it is removed.
const REMOVAL: Duration = Duration::from_secs(10);
/// How long, and how often, it is waited until all is handled that a server had said which is gone.
const HEARD_LOOK: Duration = Duration::from_millis(100);
const HEARD_LOOKS: u32 = 100;
/// Within this, a server hears that the group ends from who tells it so to all.
const TOLD: Duration = Duration::from_secs(1);
/// How long one server is asked for its roster.
const ASK: Duration = Duration::from_secs(5);

/// The roster in force, as this server knows it, and what follows from it.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) roster: Arc<Roster>,
    pub(crate) view: View,
}

impl Standing {
    pub(crate) fn new(roster: Arc<Roster>) -> Standing {
        Standing { view: roster.view(), roster }
    }
}

/// A server's part in the agreement, with what it needs around it.
#[derive(Debug)]
pub(crate) struct Hosted {
    pub(crate) membership: Mutex<Membership>,
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
    pub(crate) out: Watched<bool>,
    /// Enough others know that roster.
    pub(crate) released: Notify,
    /// The group has ended without this server.
    pub(crate) abandoned: Notify,
}

/// What the clock says, and what it said when this server began.
#[derive(Debug)]
struct Clock {
    around: Arc<dyn Surroundings>,
    began: Duration,
}

impl Clock {
    fn start(around: Arc<dyn Surroundings>) -> Clock {
        Clock { began: around.now(), around }
    }

    fn elapsed(&self) -> Duration {
        self.around.now().saturating_sub(self.began)
    }
}

impl Hosted {
    pub(crate) fn new(
        me: ServerId,
        roster: Arc<Roster>,
        witness: Witness,
        seed: u64,
        around: Arc<dyn Surroundings>,
    ) -> Hosted {
        Hosted {
            membership: Mutex::new(Membership::new(me, roster, seed, Duration::ZERO)),
            changed: Notify::new(),
            lease: Notify::new(),
            clock: Clock::start(around),
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
pub(crate) fn entry(member: &Member) -> ServerEntry {
    ServerEntry { id: member.id, pid: member.server.pid, addresses: member.server.addresses.clone() }
}

impl Shared {
    /// The roster in force and what follows from it.
    pub(crate) fn standing(&self) -> Arc<Standing> {
        self.standing.read().clone()
    }

    /// The epoch of the roster in force.
    pub(crate) fn epoch(&self) -> Epoch {
        self.standing.read().view.epoch
    }
}

impl Node {
    /// Does something at this server's part in the agreement, then what it wants done. What is for a server to which
    /// nothing can be sent goes over `from`'s own connection, if it is that one.
    pub(crate) fn at_membership(
        &self,
        from: Option<(ServerId, &Outbox)>,
        act: impl FnOnce(&mut Membership, Duration),
    ) {
        let mut membership = self.hosted.membership.lock();
        act(&mut membership, self.hosted.clock.elapsed());
        self.perform(&mut membership, from);
        drop(membership);
        self.hosted.changed.notify_one();
        self.hosted.lease.notify_waiters();
    }

    /// Whether this server may acknowledge something now; asks for its lease if it is time.
    pub(crate) fn use_lease(&self) -> bool {
        let mut membership = self.hosted.membership.lock();
        let held = membership.use_lease(self.hosted.clock.elapsed());
        self.perform(&mut membership, None);
        held
    }

    /// The roster of the group if it is healed with these members.
    pub(crate) fn healed(&self, answering: &BTreeSet<ServerId>) -> Result<Roster> {
        self.hosted.membership.lock().healed(answering)
    }

    /// What the group's servers share beside the connection file.
    pub(crate) fn witness(&self) -> Arc<Witness> {
        self.hosted.witness.clone()
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
                Effect::Check(member) => {
                    // What the check finds is told to the agreement, whose lock is held now.
                    let Some(node) = self.me.upgrade() else { return };
                    tokio::spawn(async move { node.check(member) });
                }
                Effect::InForce(roster) => self.adopt_in_turn(roster),
                Effect::Out(roster) => self.is_out(&roster),
                Effect::Released => self.hosted.released.notify_one(),
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
        let (witness, lineage) = (self.hosted.witness.clone(), self.lineage);
        let Some(node) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            let asked = off_thread(move || witness.answer(lineage, epoch, question));
            match asked.await.flatten() {
                Ok(Some(answer)) => node.at_membership(None, |membership, now| {
                    membership.witness_answered(epoch, answer, now);
                }),
                Ok(None) => {}
                Err(error) => tracing::warn!("the group's next members cannot be agreed on: {error}"),
            }
        });
    }

    /// A server wants to be a member: it is told on this connection when it is one.
    pub(crate) fn wants_to_join(&self, candidate: Candidate, outbox: Arc<Outbox>) -> Result<()> {
        let incarnation = candidate.incarnation;
        {
            let mut joining = self.hosted.joining.lock();
            joining.retain(|_, outbox| !outbox.is_closed());
            if joining.len() >= JOINING_MAX {
                return Err(Error::conflict(format!(
                    "{JOINING_MAX} servers are joining the group: try again"
                )));
            }
            joining.insert(incarnation, outbox);
        }
        self.at_membership(None, |membership, now| membership.wish(Change::Join(candidate), now));
        self.tell_joined();
        Ok(())
    }

    /// A server that wanted to be a member is gone before it was one.
    pub(crate) fn wants_no_more(&self, candidate: &Candidate) {
        if self.hosted.joining.lock().remove(&candidate.incarnation).is_some() {
            self.at_membership(None, |membership, _| membership.withdraw(&Change::Join(candidate.clone())));
        }
    }

    /// Tells those that are members now.
    fn tell_joined(&self) {
        let roster = self.standing().roster.clone();
        self.hosted.joining.lock().retain(|incarnation, outbox| {
            let joined = roster.find(*incarnation).is_some();
            if joined {
                let _ = outbox.push(Header::default(), &cluster::Message::Admission(Ok(roster.clone())));
            }
            !joined
        });
    }

    /// The connection to a server has ended, or its process: it is gone for this one, and is to go.
    pub(crate) fn lost(&self, peer: ServerId, proven: bool) {
        let standing = self.standing();
        if !standing.view.members.contains(&peer) {
            // One that is yet to be a member here may have had this one keep something.
            if standing.roster.has_left(peer) {
                self.unguard(peer);
            }
            return;
        }
        self.peer_gone(peer);
        self.doubts(peer, if proven { Evidence::Dead } else { Evidence::Lost });
    }

    /// Another roster is in force: here, too, when all is handled that those had said who are gone.
    fn adopt_in_turn(&self, roster: Arc<Roster>) {
        let mut adopting = self.hosted.adopting.lock();
        if adopting.is_empty() && !self.hearing.may_lack(&self.gone_by(&roster)) {
            return self.adopt(roster);
        }
        adopting.push_back(roster);
        let Some(node) = self.me.upgrade().filter(|_| adopting.len() == 1) else { return };
        tokio::spawn(async move {
            let next = || node.hosted.adopting.lock().front().cloned();
            while let Some(roster) = next() {
                let gone = node.gone_by(&roster);
                if !node.has_heard_all_of(&gone).await {
                    tracing::warn!("not all was handled in time that {gone:?} had said");
                }
                let mut adopting = node.hosted.adopting.lock();
                // What this server is none of it tells nothing of.
                if !node.hosted.out.get() {
                    node.adopt(roster);
                }
                adopting.pop_front();
            }
        });
    }

    /// Waits until all is handled that servers had said, but not for ever. While this server stands still no time passes
    /// but a little.
    async fn has_heard_all_of(&self, servers: &[ServerId]) -> bool {
        let heard = self.hearing.all_of(servers);
        tokio::pin!(heard);
        for _ in 0..HEARD_LOOKS {
            if tokio::time::timeout(HEARD_LOOK, &mut heard).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// The members that a roster does not have.
    fn gone_by(&self, roster: &Roster) -> Vec<ServerId> {
        self.standing().roster.ids().filter(|id| !roster.contains(*id)).collect()
    }

    /// Another roster is in force.
    fn adopt(&self, roster: Arc<Roster>) {
        let Some(node) = self.me.upgrade() else { return };
        let before = self.standing();
        let standing = Arc::new(Standing::new(roster.clone()));
        let new = |id: &ServerId| !before.view.members.contains(id);
        let came: Vec<ServerEntry> =
            roster.members.iter().filter(|member| new(&member.id)).map(entry).collect();
        let left = self.gone_by(&roster);
        tracing::info!(
            "epoch {}: {} servers, {} new, {} gone",
            roster.epoch,
            roster.members.len(),
            came.len(),
            left.len()
        );
        // While it is still known what they coordinated.
        left.iter().for_each(|id| self.peer_gone(*id));
        self.checking.keep_members(&roster);
        peers::start(&node, &came);
        {
            let mut state = self.state.lock();
            let mut guarded = BTreeSet::new();
            for server in &left {
                guarded.extend(self.guarded_streams(&state, *server));
                self.take_guarded(&mut state, *server, &standing.view);
            }
            if !state.common.members.gone().iter().any(|id| standing.view.members.contains(id)) {
                self.space_gone_since(&mut state, roster.epoch);
            }
            state.answers.forget(&left);
            state.common.members.keep_members(&standing.view.members);
            let orphans = self.streams_coordinated_by(&state, &left);
            self.keep_places(&mut state, &standing.view);
            state.locations.on_view(&left);
            *self.standing.write() = standing.clone();
            self.epochs.set(roster.epoch);
            for server in &came {
                state.coordination.on_server_joined(server.id);
            }
            if before.roster.seats != roster.seats {
                self.register_again(&mut state, &before.roster.seats);
            }
            if !left.is_empty() {
                self.space_register_again(&mut state, &before.roster.seats);
            }
            orphans.iter().for_each(|stream| self.tell_again(&mut state, stream));
            guarded.retain(|stream| !orphans.contains(stream));
            self.tell_guarded(&mut state, &guarded);
            // This server hears itself before the others may have told all.
            self.drain(&mut state);
            self.tell_places(&mut state, &standing.view);
            self.keep_again(&mut state, &left);
            for server in &came {
                self.tell_of_attachments(&mut state, server.id);
            }
            self.pipelines_grow(&mut state, &came.iter().map(|server| server.id).collect::<Vec<_>>());
            self.drain(&mut state);
        }
        self.tell_joined();
        let first = roster.ids().next() == Some(self.id);
        if first {
            self.write_file(roster);
        }
    }

    /// The members are others, and this server is none of them.
    fn is_out(&self, roster: &Arc<Roster>) {
        if roster.lost.iter().any(|lost| lost.id == self.id) {
            self.does_not_go();
        }
        let wanted = self.state.lock().common.members.goes();
        match (self.hosted.out.set(true), wanted) {
            (true, _) => {}
            (false, true) => tracing::info!("epoch {}: this server has left", roster.epoch),
            (false, false) => {
                tracing::warn!("epoch {}: the group goes on without this server", roster.epoch);
            }
        }
        // Those that gave it up have closed their connections.
        self.dial_members(roster, !wanted);
    }

    /// Dials the members of the roster without this server: those that it does not reach, or all anew.
    fn dial_members(&self, roster: &Roster, all: bool) {
        let Some(node) = self.me.upgrade() else { return };
        for member in &roster.members {
            if all || !self.peers.reaches(member.id) {
                self.peers.remove(member.id);
                peers::start(&node, &[entry(member)]);
            }
        }
    }

    /// Watches the process of a server on this host, which the kernel vouches for: it proves its death, too.
    pub(crate) fn watch(&self, id: ServerId, process: u32) {
        let me = self.me.clone();
        match Process::watch(process) {
            Ok(process) => drop(tokio::spawn(async move {
                process.ended().await;
                if let Some(node) = me.upgrade()
                    && node.goes_on().await
                {
                    node.lost(id, true);
                }
            })),
            Err(error) if error.kind == ErrorKind::NotFound => self.lost(id, true),
            // Its connection will tell.
            Err(error) => tracing::info!("{id} is not watched: {error}"),
        }
    }

    /// Writes the connection file, in the background.
    fn write_file(&self, roster: Arc<Roster>) {
        let (witness, path) = (self.hosted.witness.clone(), self.group.clone());
        let file = ConnectionFile::of(&roster, self.secret.clone());
        tokio::spawn(off_thread(move || {
            let written = file.replace_earlier(&path, &witness).map(drop);
            if let Err(error) = written.or_else(|e| if path.exists() { Err(e) } else { Ok(()) }) {
                tracing::warn!("the connection file does not tell of epoch {}: {error}", file.epoch);
            }
        }));
    }

    /// Tells all other members that the group ends. Not all may have been told to: one that stands still is told by nobody
    /// who waits for its answer.
    pub(crate) fn tell_that_group_ends(&self) {
        for id in self.standing().roster.ids().filter(|id| *id != self.id) {
            let _ = self.peers.send(id, cluster::Message::GroupEnds);
        }
    }

    /// Another server says that the group was told to end. A member has the right to. This one is being told, too, most likely,
    /// by who waits for its answer.
    pub(crate) fn group_ends(&self, from: ServerId) {
        let is_member = from != self.id && self.standing().view.members.contains(&from);
        let Some(node) = self.me.upgrade().filter(|_| is_member) else { return };
        tracing::info!("{from} says that the group ends");
        tokio::spawn(async move {
            tokio::time::sleep(TOLD).await;
            node.shutdown.notify_one();
        });
    }

    /// Whether no other member is there any more.
    pub(crate) async fn is_last(&self) -> bool {
        let others =
            self.standing().roster.members.iter().filter(|member| member.id != self.id).map(entry).collect();
        !crate::forming::one_listens(&*self.around, others).await
    }

    /// Removes the connection file, if it is still this group's.
    pub(crate) fn remove_file(&self) {
        let removed = self.hosted.witness.locked_within(REMOVAL, || {
            crate::forming::remove_file(&self.group, &self.lineage, self.epoch());
            Ok(())
        });
        if let Err(error) = removed {
            tracing::warn!("the connection file is not removed: {error}");
        }
    }
}

/// Looks now and then whether the group has gone on without this server. Apart from all else: a file system may hang.
pub(crate) async fn look_now_and_then(node: Arc<Node>) {
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut nothing_left = 0;
    while nothing_left < LOOKS {
        looks.tick().await;
        look(&node).await;
        nothing_left = if is_abandoned(&node).await { nothing_left + 1 } else { 0 };
    }
    tracing::warn!("this server ends: its group, of {}, has ended without it", node.group.display());
    node.hosted.abandoned.notify_one();
}

/// Whether this server is out, or has lost all others, or so many that those which are left cannot go on by themselves, and what
/// they shared is gone, too, or another group's: one that was cut off when its group was ended is to end as well.
async fn is_abandoned(node: &Arc<Node>) -> bool {
    let members = node.standing().view.members.clone();
    let stuck = {
        let state = node.state.lock();
        let gone = members.iter().filter(|id| state.common.members.is_gone(**id)).count();
        let alone = gone > 0 && gone + 1 == members.len();
        alone || 2 * gone > members.len() || node.hosted.out.get()
    };
    if !stuck {
        return false;
    }
    crate::forming::has_ended(&node.group, node.lineage).await
}

/// Calls the agreement when it is time.
pub(crate) async fn run(node: Arc<Node>) {
    loop {
        let changed = node.hosted.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let wake_at = node.hosted.membership.lock().wake_at();
        let wake = async {
            match wake_at {
                Some(at) => tokio::time::sleep(at.saturating_sub(node.hosted.clock.elapsed())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = wake => node.at_membership(None, Membership::tick),
            () = changed => {}
        }
    }
}

/// Whether the connection file and this server tell of the same roster; whichever is behind is told.
async fn look(node: &Arc<Node>) {
    let standing = node.standing();
    let gone: Vec<ServerId> = {
        let state = node.state.lock();
        standing.view.members.iter().filter(|id| state.common.members.is_gone(**id)).copied().collect()
    };
    if !gone.is_empty() {
        // Those that were told may not have heard it; this server will never speak to them again.
        gone.iter().for_each(|id| node.doubts(*id, Evidence::Lost));
    }
    if node.hosted.out.get() {
        let roster = node.hosted.membership.lock().roster().clone();
        node.dial_members(&roster, false);
    }
    // Those whom it is to tell of the roster without it may have gone, too: then a later one lets it end.
    let asks = !gone.is_empty() || node.hosted.out.get();
    // The first looks in any case: one that was stopped as it wrote the file may have written what was true long ago.
    let first = standing.roster.ids().next() == Some(node.id);
    if !asks && !first && node.hosted.filed.load(Ordering::Relaxed) == standing.view.epoch {
        return;
    }
    let path = node.group.clone();
    let Ok(Ok(file)) = off_thread(move || ConnectionFile::read(&path)).await else { return };
    if file.lineage != node.lineage {
        return;
    }
    if file.epoch < standing.view.epoch {
        return node.write_file(standing.roster.clone());
    }
    if file.epoch == standing.view.epoch {
        node.hosted.filed.store(file.epoch, Ordering::Relaxed);
    }
    if file.epoch == standing.view.epoch || !asks {
        return;
    }
    for server in &file.servers {
        match tokio::time::timeout(ASK, crate::forming::ask_roster(&*node.around, server, &file)).await {
            Ok(Ok(roster)) => return node.heard_of_members(server.id, Message::InForce(roster), None),
            Ok(Err(error)) if error.kind == ErrorKind::Unreachable => {}
            Ok(Err(error)) => tracing::info!("{} does not tell its roster: {error}", server.id),
            Err(_) => {}
        }
    }
}
