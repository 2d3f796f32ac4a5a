//! All that an endpoint knows, under one lock: messages, comms, peers. Nothing here waits but by [`Hub::changed`].

use crate::channel::{Channel, Reading};
use crate::mail::{Admission, Envelope, Mail, Stray, StreamId};
use crate::members::{Gone, Member, Members};
use crate::peers::{Link, PeerId, Peers};
use crate::shared::{Bell, Probe};
use crate::spare::Spare;
use crate::task::{Space, Task};
use forebay_core::ids::Lineage;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::fork::ForkGuard;
use forebay_wire::comm::CommMessage;
use forebay_wire::handshake::{Prologue, Secret};
use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How many of those who wait are remembered.
const WAITING_MAX: usize = 1024;

/// What this side of a connection knows of the other one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    /// Who it is, once it has said so.
    pub(crate) peer: Option<PeerId>,
    /// Whether the other end has dialled.
    pub(crate) has_accepted: bool,
    /// Whether it is known how messages go.
    pub(crate) is_settled: bool,
}

/// An operation that goes on while its caller does something else.
pub(crate) trait Ongoing: Send + Sync + std::fmt::Debug {
    /// Gets on; whether it is over. Does not wait.
    fn advance(&self) -> bool;
    /// Whether it only sends: any thread may have it get on, since no function of a user is called.
    fn only_sends(&self) -> bool;
}

/// Shared by the endpoint, its comms and its thread.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) state: Mutex<HubState>,
    /// Something that a caller may wait for has happened, for those that do not look themselves.
    pub(crate) changed: Condvar,
    /// The same for the one that does, and sleeps.
    pub(crate) bell: Bell,
    /// What others map to ring it.
    pub(crate) bell_file: OwnedFd,
    /// Operations that were put aside.
    pub(crate) requests: Mutex<Vec<Arc<dyn Ongoing>>>,
    /// By which others find out whether they can read this process's memory.
    pub(crate) probe: Probe,
    /// There may be room for messages that wait to be read.
    pub(crate) room: Notify,
    /// A connection has ended.
    pub(crate) unlinked: Notify,
    /// The thread's runtime.
    pub(crate) runtime: Handle,
    pub(crate) secret: Secret,
    pub(crate) lineage: Lineage,
    pub(crate) name: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) seal_payload: AtomicBool,
    /// The process that made all of this: a child that it forks has no thread here, and not this memory.
    pub(crate) guard: ForkGuard,
    /// Counts what a caller may wait for. It is changed under the lock of the state.
    pub(crate) version: AtomicU64,
    /// Memory that operations need on the way.
    pub(crate) spare: Spare,
    /// How many calls there were.
    pub(crate) calls: AtomicU64,
    /// Whether any comm, or a part of one, was revoked.
    pub(crate) has_revoked: AtomicBool,
    /// On how many cores this process and its neighbours run.
    pub(crate) cores: usize,
    /// How many this host has: the same number for all its processes.
    pub(crate) host_cores: usize,
    /// By which its messages go in a test of many ranks.
    #[cfg(test)]
    pub(crate) network: Option<Arc<crate::simulation::Network>>,
}

/// What the lock protects.
#[derive(Debug, Default)]
pub(crate) struct HubState {
    pub(crate) mail: Mail,
    pub(crate) comms: BTreeMap<u64, Members>,
    pub(crate) peers: Peers,
    /// The memory that is shared with processes of this host, by connection.
    pub(crate) channels: BTreeMap<u64, Channel>,
    /// Messages that are being read where they lie.
    pub(crate) readings: Vec<Reading>,
    /// How many of this process wait for something from anybody.
    pub(crate) awaited_any: usize,
    /// Sends to this process itself that wait for room, the oldest first.
    pub(crate) waiting_own: VecDeque<u64>,
    /// With how many other processes memory is shared: with one there may be two connections.
    pub(crate) neighbours: usize,
    pub(crate) scratch: Vec<u8>,
    /// Somebody looks into that memory, or sleeps until there is something.
    pub(crate) is_watched: bool,
    /// How many wait for that one to tell them.
    pub(crate) followers: usize,
    /// Who waits for this endpoint in a comm that it has not opened: it may never be told to.
    waiting: Vec<(PeerId, u64)>,
    pub(crate) closed: bool,
}

impl HubState {
    /// Fails when the endpoint was closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed {
            return Err(Error::new(ErrorKind::Closed, "the endpoint of this communicator was closed"));
        }
        Ok(())
    }

    /// Numbers grow: comms below this one that are not open here never will be, which those hear who wait in them.
    fn turn_away(&mut self, opened: u64) {
        let HubState { waiting, peers, .. } = self;
        for (peer, comm) in waiting.extract_if(.., |(_, comm)| *comm <= opened) {
            if let Some(link) = peers.sending(peer).filter(|_| comm < opened) {
                link.say(&CommMessage::Left { comm });
            }
        }
    }

    /// A connection has come or gone.
    pub(crate) fn count_neighbours(&mut self) {
        self.neighbours = self.peers.count_sharing();
    }

    /// A collective has ended here: well, or for this reason, which all are told unless that is known.
    pub(crate) fn end_collective(&mut self, task: &Task, failure: Option<&Error>) {
        self.mail.end(task.comm, task.space, failure.is_none().then_some(task.kind));
        if let Some(error) = failure {
            let members = self.comms.get(&task.comm);
            if members.is_some_and(|members| members.why_hopeless(task).is_none()) {
                self.spread(task.comm, (Some(task.space.part()), task.rank), &error.text);
            }
        }
        self.spread_strays();
    }

    /// Ranks that do something else in a collective than was done here are told of, to all.
    fn spread_strays(&mut self) {
        for Stray { comm, space, source, theirs, here } in self.mail.take_strays() {
            let number = Space(space).number();
            let rank = self.comms.get(&comm).map_or(0, |members| members.rank);
            let why = format!(
                "rank {source} is in {theirs}, collective {number} of communicator {comm}, where rank {rank} was in {here}"
            );
            self.spread(comm, (Some(Space(space).part()), source), &why);
        }
    }

    /// Tells all members that are connected that collectives with this rank cannot succeed, in a part of the comm or in any, once.
    pub(crate) fn spread(&mut self, comm: u64, (part, rank): (Option<u32>, u32), why: &str) {
        let Some(members) =
            self.comms.get_mut(&comm).filter(|members| !members.broken.contains_key(&(part, rank)))
        else {
            return;
        };
        members.broken.insert((part, rank), why.to_owned());
        self.tell_members(comm, &CommMessage::Gone { comm, part, rank, why: why.to_owned() });
    }

    /// Tells all members that are connected that nothing in a part of the comm can succeed any more, once.
    fn spread_revocation(&mut self, comm: u64, part: u32, (rank, why): (u32, &str)) {
        let Some(members) =
            self.comms.get_mut(&comm).filter(|members| !members.revoked.contains_key(&(part, rank)))
        else {
            return;
        };
        members.revoked.insert((part, rank), why.to_owned());
        self.tell_members(comm, &CommMessage::Revoked { comm, part, rank, why: why.to_owned() });
    }

    fn tell_members(&mut self, comm: u64, message: &CommMessage) {
        self.mail.alarms += 1;
        for (_, member) in self.comms.get(&comm).iter().flat_map(|members| members.others()) {
            if let Some(link) = self.peers.sending(member.peer) {
                link.say(message);
            }
        }
    }
}

impl Hub {
    /// Whether this is a forked child of the process that made this. It must neither wait for a lock here nor free anything.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.guard.is_child()
    }

    /// Fails in a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.guard.check("communicator")
    }

    /// Something has happened that a caller may wait for.
    pub(crate) fn tell(&self, state: &mut HubState) {
        state.spread_strays();
        state.mail.alarms += 1;
        self.count_change();
        self.changed.notify_all();
        self.bell.ring();
    }

    /// Tells all members, and those of this process, that collectives with a rank that is gone cannot succeed.
    pub(crate) fn spread_end(&self, state: &mut HubState, comm: u64, rank: u32, why: &str) {
        state.spread(comm, (None, rank), why);
        self.tell(state);
    }

    /// The same of those in the part in which one has failed here.
    pub(crate) fn spread_failure(&self, task: &Task, why: &str) {
        let mut state = self.state.lock();
        state.spread(task.comm, (Some(task.space.part()), task.rank), why);
        self.tell(&mut state);
    }

    /// Nothing in a part of a comm can succeed any more, on any rank.
    pub(crate) fn revoke(&self, comm: u64, part: u32, (rank, why): (u32, &str)) {
        let mut state = self.state.lock();
        self.has_revoked.store(true, Ordering::Relaxed);
        state.spread_revocation(comm, part, (rank, why));
        self.tell(&mut state);
    }

    /// Callers look again. The state is locked.
    pub(crate) fn count_change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// There may be room for messages that were not admitted.
    pub(crate) fn tell_of_room(&self, state: &mut HubState) {
        if state.mail.has_refused() {
            self.room.notify_waiters();
        }
    }

    /// The prologue of a handshake with an endpoint of the same group that listens at this address.
    pub(crate) fn prologue<'a>(&'a self, address: &'a str) -> Prologue<'a> {
        Prologue { secret: &self.secret, lineage: &self.lineage, name: address }
    }

    /// The endpoint's first message on every connection.
    pub(crate) fn hello(&self) -> CommMessage {
        CommMessage::Hello { addresses: self.addresses.clone(), name: self.name.clone() }
    }

    /// Opens a comm.
    pub(crate) fn open(&self, id: u64, rank: u32, members: Vec<Vec<String>>) -> Result<()> {
        let bad = |why: String| Err(Error::invalid(format!("communicator {id}: {why}")));
        let size = members.len();
        if rank as usize >= size || u32::try_from(size).is_err() {
            return bad(format!("rank {rank} is none of its {size} members"));
        }
        let mut state = self.state.lock();
        state.check_open()?;
        if state.mail.is_open(id) || state.mail.is_past(id) {
            return bad("its number was used before: numbers must grow".to_owned());
        }
        let mut list: Vec<Member> = Vec::with_capacity(size);
        for (other, addresses) in members.into_iter().enumerate() {
            let itself = other == rank as usize;
            // Oneself is no peer: it is never dialled.
            let peer = if itself { 0 } else { state.peers.find(&addresses) };
            let twice = list.iter().position(|member| member.peer == peer);
            let twice = if !itself && addresses.iter().any(|a| self.addresses.contains(a)) {
                Some(rank as usize)
            } else {
                twice
            };
            if let Some(twice) = twice {
                list.iter().for_each(|member| state.peers.prune(member.peer));
                state.peers.prune(peer);
                return bad(format!("ranks {twice} and {other} are at one address, {addresses:?}"));
            }
            list.push(Member { peer, addresses, gone: None, told: false });
        }
        for member in &list {
            if let Some(peer) = state.peers.get(member.peer) {
                peer.comms += 1;
            }
        }
        state
            .comms
            .insert(id, Members { rank, members: list, broken: BTreeMap::new(), revoked: BTreeMap::new() });
        state.mail.open(id);
        state.turn_away(id);
        drop(state);
        self.room.notify_waiters();
        Ok(())
    }

    /// Closes a comm, and tells those who may wait for something from here.
    pub(crate) fn close(&self, id: u64) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.mail.close(id);
        let Some(members) = state.comms.remove(&id) else { return };
        for (_, member) in members.others() {
            if let Some(link) = state.peers.sending(member.peer) {
                link.say(&CommMessage::Left { comm: id });
            }
            if let Some(peer) = state.peers.get(member.peer) {
                peer.comms -= 1;
            }
            state.peers.prune(member.peer);
        }
        self.tell(state);
        self.room.notify_waiters();
    }

    /// A part of a comm that was split off is closed.
    pub(crate) fn close_part(&self, comm: u64, part: u32) {
        let mut state = self.state.lock();
        state.mail.close_part(comm, part);
        self.tell(&mut state);
        self.room.notify_waiters();
    }

    /// A peer is gone: everything that involves it fails from now on, in the comms that are open.
    pub(crate) fn lose(&self, state: &mut HubState, peer: PeerId, gone: &Gone) {
        let name = state.peers.describe(peer);
        let lost: Vec<_> = state
            .comms
            .iter_mut()
            .filter_map(|(comm, members)| Some((*comm, members.lose(peer, gone)?)))
            .collect();
        for (comm, rank) in lost {
            state.spread(comm, (None, rank), &format!("rank {rank} ({name}) {}", gone.why));
        }
        state.peers.prune(peer);
        self.tell(state);
    }

    /// Looks for peers whose last connection has ended.
    pub(crate) fn bury(&self, state: &mut HubState) {
        for peer in state.peers.ended() {
            self.lose(state, peer, &Gone::new("is gone: its process or its endpoint has ended"));
        }
        self.tell(state);
    }

    /// A connection has ended, in whatever way. Returns the peer's others.
    pub(crate) fn unlink(&self, side: &Side, link: &Arc<Link>) -> Vec<Arc<Link>> {
        link.close();
        let mut state = self.state.lock();
        state.end_channel(link.id);
        let others = match (side.peer, side.is_settled) {
            (Some(peer), true) => state.peers.unlink(peer, link),
            _ if side.has_accepted => {
                state.peers.unnamed -= 1;
                Vec::new()
            }
            (Some(peer), false) => {
                if let Some(peer) = state.peers.get(peer) {
                    peer.dialling = false;
                }
                self.lose(&mut state, peer, &Gone::new("is gone: it ended while a connection was made"));
                Vec::new()
            }
            (None, _) => Vec::new(),
        };
        state.count_neighbours();
        self.bury(&mut state);
        self.unlinked.notify_waiters();
        others
    }

    /// The rest of a message that came in pieces through shared memory will not come.
    pub(crate) fn abandon(&self, link: &Link, number: u32) {
        let mut state = self.state.lock();
        let HubState { channels, mail, .. } = &mut *state;
        if let Some(channel) = channels.get_mut(&link.id) {
            channel.abandon(mail, number);
        }
        self.tell(&mut state);
    }

    /// A message begins to come over a socket: waits until there is room for it. `None`: nobody wants it.
    pub(crate) async fn begin(&self, comm: u64, envelope: Envelope) -> Option<StreamId> {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.closed {
                    return None;
                }
                match state.mail.begin(comm, envelope) {
                    Ok(stream) => {
                        self.tell(&mut state);
                        return Some(stream);
                    }
                    Err(Admission::Wait) => {}
                    Err(_) => return None,
                }
            }
            room.await;
        }
    }

    /// The next bytes of a message.
    pub(crate) fn more(&self, stream: StreamId, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.mail.more(stream, bytes);
        self.tell(&mut state);
    }

    /// The rest of a message will not come.
    pub(crate) fn fail(&self, stream: StreamId) {
        let mut state = self.state.lock();
        state.mail.fail(stream);
        self.tell(&mut state);
        self.room.notify_waiters();
    }

    /// Waits until all that has come by now through the memory that is shared with a process was taken: what it said after that over
    /// its socket is looked at then. What it writes meanwhile stays where it is.
    pub(crate) async fn drained(&self, link: &Link) {
        let end = self.state.lock().channels.get(&link.id).map(Channel::come_by_now);
        let Some(Ok(end)) = end else { return };
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let mut state = self.state.lock();
                while state.poll_until(end, link.id) {
                    self.tell(&mut state);
                }
                let channel = state.channels.get(&link.id);
                if state.closed || channel.is_none_or(|channel| channel.is_taken(end)) {
                    return;
                }
            }
            room.await;
        }
    }

    /// What a peer said about a comm.
    pub(crate) fn heard(&self, peer: PeerId, message: &CommMessage) {
        let mut state = self.state.lock();
        let state = &mut *state;
        match message {
            CommMessage::Wait { comm } => {
                let mut answers = Vec::new();
                match state.comms.get(comm) {
                    Some(Members { broken, revoked, .. }) => {
                        answers.extend(broken.iter().map(|((part, rank), why)| CommMessage::Gone {
                            comm: *comm,
                            part: *part,
                            rank: *rank,
                            why: why.clone(),
                        }));
                        answers.extend(revoked.iter().map(|((part, rank), why)| CommMessage::Revoked {
                            comm: *comm,
                            part: *part,
                            rank: *rank,
                            why: why.clone(),
                        }));
                    }
                    None if state.mail.is_past(*comm) => answers.push(CommMessage::Left { comm: *comm }),
                    None if state.waiting.len() < WAITING_MAX && !state.waiting.contains(&(peer, *comm)) => {
                        state.waiting.push((peer, *comm));
                    }
                    None => {}
                }
                if let Some(link) = state.peers.sending(peer) {
                    answers.iter().for_each(|answer| link.say(answer));
                }
            }
            CommMessage::Left { comm } => {
                if let Some(members) = state.comms.get_mut(comm) {
                    members.lose(peer, &Gone::left());
                    self.tell(state);
                }
            }
            CommMessage::Gone { comm, part, rank, why } => {
                state.spread(*comm, (*part, *rank), why);
                self.tell(state);
            }
            CommMessage::Revoked { comm, part, rank, why } => {
                self.has_revoked.store(true, Ordering::Relaxed);
                state.spread_revocation(*comm, *part, (*rank, why));
                self.tell(state);
            }
            _ => {}
        }
    }
}
