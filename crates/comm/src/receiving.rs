//! Receiving one message.

use crate::channel::First;
use crate::hub::{Hub, HubState};
use crate::kind::Kind;
use crate::mail::{Envelope, ReceiveId, Received, Wanted};
use crate::target::Target;
use crate::task::Task;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::comm::Label;
use smallvec::SmallVec;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Which message is awaited.
#[derive(Debug, Clone, Copy)]
struct Awaited<'a> {
    hub: &'a Arc<Hub>,
    task: &'a Task,
    /// `None`: of any rank.
    source: Option<u32>,
    /// `None`: with any tag.
    tag: Option<u64>,
}

/// How often it is looked for a message that is awaited alone, before anybody is told that it is.
const GLANCES: u32 = 40;

/// A message that is received. Ready once it has come whole, or cannot come. Given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Receive<'a> {
    awaited: Awaited<'a>,
    stage: Stage,
    glances: u32,
    /// What was counted when it was last looked whether the message can come, and it could.
    looked: Option<u64>,
}

/// A message that is looked for, and left to be received. Ready once its beginning has come, or it cannot come.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    awaited: Awaited<'a>,
    /// Whether somebody waits for it.
    wants: bool,
}

#[derive(Debug)]
enum Stage {
    Fresh(Target),
    Posted(ReceiveId),
    /// It ended within it, in a collective: its rank, or who has ended that, tells why.
    Torn(Envelope),
    Over,
}

impl Awaited<'_> {
    fn wanted(&self) -> Wanted {
        Wanted { source: self.source, space: self.task.space.0, tag: self.tag }
    }

    /// Somebody begins to wait for it, or ends.
    fn want(&self, state: &mut HubState, begins: bool) {
        state.mail.want(self.task.comm, self.source, begins);
        if let Some(count) = self.source.map_or(Some(&mut state.awaited_any), |source| {
            let peer = state.comms.get_mut(&self.task.comm)?.member(source)?.peer;
            state.peers.get(peer).map(|peer| &mut peer.awaited)
        }) {
            *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        }
        self.hub.tell_of_room(state);
    }

    /// It has not come: why it will not, if that is so.
    fn look(&self, state: &mut HubState) -> Result<()> {
        match self.source {
            Some(source) => {
                self.check_kind(state, source)?;
                self.reach(state, source)?;
            }
            None => {
                // It may have been revoked here, where there is nobody else.
                self.hub.check(state, self.task, self.task.rank, self.tag)?;
                self.reach_any(state)?;
            }
        }
        if self.task.is_expired() { Err(self.late(state)) } else { Ok(()) }
    }

    /// Fails if the rank does something else in this collective.
    fn check_kind(&self, state: &HubState, source: u32) -> Result<()> {
        let task = self.task;
        if !task.is_collective() {
            return Ok(());
        }
        let Some(tag) = state.mail.next_tag_of(task.comm, task.space.0, source) else { return Ok(()) };
        let (theirs, rank) = (Kind::in_tag(tag), task.rank);
        let failed = |why: fmt::Arguments<'_>| Err(task.failed(ErrorKind::Invalid, self.tag, why));
        if theirs != task.kind {
            return failed(format_args!("rank {source} is in {theirs} there, rank {rank} in {}", task.kind));
        }
        if self.tag.is_some_and(|awaited| Kind::way_of(awaited) != Kind::way_of(tag)) {
            return failed(format_args!(
                "rank {source} goes another way about it than rank {rank} has reason to: do both give as many bytes?"
            ));
        }
        Ok(())
    }

    /// The same of any rank. One that has left in good order sends nothing more, but others may.
    fn reach_any(&self, state: &mut HubState) -> Result<()> {
        let (mut left, mut is_anybody_there) = (None, false);
        for rank in self.task.ranks.iter().copied().filter(|rank| *rank != self.task.rank) {
            let members = state.comms.get_mut(&self.task.comm);
            let gone = members.and_then(|members| members.member(rank)?.gone.as_ref());
            if gone.is_some_and(|gone| gone.has_left) {
                left = Some(rank);
            } else {
                self.reach(state, rank)?;
                is_anybody_there = true;
            }
        }
        match left {
            Some(rank) if !is_anybody_there => self.reach(state, rank),
            _ => Ok(()),
        }
    }

    /// Sees to it that a message can come from a rank, and that its end is noticed.
    fn reach(&self, state: &mut HubState, source: u32) -> Result<()> {
        self.hub.check(state, self.task, source, self.tag)?;
        if source != self.task.rank && self.hub.route(state, self.task, source)?.is_some() {
            self.hub.tell_waiting(state, self.task, source);
        }
        Ok(())
    }

    fn late(&self, state: &HubState) -> Error {
        let name = self.task.name(self.tag);
        let Some(source) = self.source else {
            return self.task.timed_out(format_args!("for {name} from any rank: nothing came"));
        };
        let from = self.hub.describe(state, self.task, source);
        if self.hub.is_connected(state, self.task, source) {
            self.task.timed_out(format_args!("for {name} from {from}: nothing came"))
        } else {
            self.task.timed_out(format_args!("for a connection to {from}, for {name}"))
        }
    }
}

impl<'a> Receive<'a> {
    /// From this rank, or any, with this tag, or any.
    pub(crate) fn new(
        hub: &'a Arc<Hub>,
        task: &'a Task,
        (source, tag): (Option<u32>, Option<u64>),
        target: Target,
    ) -> Receive<'a> {
        Receive {
            awaited: Awaited { hub, task, source, tag },
            stage: Stage::Fresh(target),
            glances: GLANCES,
            looked: None,
        }
    }

    /// Others are awaited at the same time.
    pub(crate) fn among_others(mut self) -> Receive<'a> {
        self.glances = 1;
        self
    }

    /// Receives what stands first in the memory that is shared with its rank, if that is what is wanted: so it goes through no list.
    fn receive_first(&mut self, state: &mut HubState) -> Option<Result<(Envelope, Target)>> {
        let Awaited { hub, task, source, tag } = self.awaited;
        let (Stage::Fresh(target), Some(source), Some(tag)) = (&mut self.stage, source, tag) else {
            return None;
        };
        if !state.mail.is_idle(task.comm, task.space.0) {
            return None;
        }
        let HubState { channels, comms, peers, .. } = state;
        let peer = comms.get_mut(&task.comm)?.member(source)?.peer;
        // Two that dialled at once have two connections, and may send on different ones.
        let links: SmallVec<[u64; 2]> = peers.get(peer)?.links.iter().map(|link| link.id).collect();
        let glances = if state.neighbours < hub.cores { self.glances } else { 1 };
        let label = Label { source, space: task.space.0, tag };
        for _ in 0..glances {
            for link in &links {
                match channels.get_mut(link)?.receive_first((task.comm, &label), target) {
                    First::Received(envelope) => {
                        let Stage::Fresh(target) = std::mem::replace(&mut self.stage, Stage::Over) else {
                            return None;
                        };
                        hub.tell_of_room(state);
                        return Some(Ok((envelope, target)));
                    }
                    First::Other => return None,
                    First::Nothing => {}
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    fn finish(&mut self, received: Received) -> Result<(Envelope, Target)> {
        self.stage = Stage::Over;
        let task = self.awaited.task;
        let (envelope, kind, why) = match received {
            Received::Whole(envelope, target) => {
                #[cfg(test)]
                if let Some(network) = &self.awaited.hub.network {
                    network.received(task.rank, &envelope.label);
                }
                return Ok((envelope, target));
            }
            Received::TooLong(Envelope { label, bytes }, room) if task.is_collective() => {
                let here = task.rank;
                let why =
                    format_args!("rank {} gives {bytes} bytes where rank {here} has {room}", label.source);
                return Err(task.failed(ErrorKind::Invalid, Some(label.tag), why));
            }
            Received::TooLong(envelope, _) => (envelope, ErrorKind::Invalid, "more than there is room for"),
            Received::NoMemory(envelope) => (envelope, ErrorKind::Full, "for which there is no memory"),
            Received::Broken(envelope) => (envelope, ErrorKind::Unreachable, "and has given up within it"),
        };
        let Envelope { label, bytes } = envelope;
        let why = format_args!("rank {} sent {bytes} bytes, {why}", label.source);
        Err(task.failed(kind, Some(label.tag), why))
    }

    /// Why a message has ended within it.
    fn look_why(&mut self, state: &mut HubState, envelope: Envelope) -> Poll<Result<(Envelope, Target)>> {
        let Awaited { hub, task, tag, .. } = self.awaited;
        let told = hub.check(state, task, envelope.label.source, tag);
        if told.is_ok() && !task.is_expired() {
            return Poll::Pending;
        }
        self.stage = Stage::Over;
        Poll::Ready(told.and_then(|()| self.finish(Received::Broken(envelope))))
    }

    fn look(&mut self, state: &mut HubState) -> Poll<Result<(Envelope, Target)>> {
        let comm = self.awaited.task.comm;
        if let Stage::Fresh(_) = self.stage
            && let Stage::Fresh(target) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            if !state.mail.is_open(comm) {
                return Poll::Ready(Err(closed(state)));
            }
            self.stage = Stage::Posted(state.mail.post(comm, self.awaited.wanted(), target));
            self.awaited.want(state, true);
        }
        if let Stage::Torn(envelope) = self.stage {
            return self.look_why(state, envelope);
        }
        let Stage::Posted(id) = self.stage else {
            return Poll::Ready(Err(Error::internal("a receive that has ended is looked at")));
        };
        if let Some(received) = state.mail.take(id) {
            self.awaited.want(state, false);
            if let Received::Broken(envelope) = received
                && self.awaited.task.is_collective()
            {
                self.stage = Stage::Torn(envelope);
                return self.look_why(state, envelope);
            }
            return Poll::Ready(self.finish(received));
        }
        if self.looked != Some(state.mail.alarms) || self.awaited.task.is_expired() {
            if let Err(error) = self.awaited.look(state) {
                return Poll::Ready(Err(error));
            }
            self.looked = Some(state.mail.alarms);
        }
        Poll::Pending
    }
}

impl<'a> Probe<'a> {
    /// From this rank, or any, with this tag, or any.
    pub(crate) fn new(
        hub: &'a Arc<Hub>,
        task: &'a Task,
        (source, tag): (Option<u32>, Option<u64>),
    ) -> Probe<'a> {
        Probe { awaited: Awaited { hub, task, source, tag }, wants: false }
    }

    /// The message, if it is there.
    pub(crate) fn now(&self) -> Result<Option<Envelope>> {
        let awaited = self.awaited;
        let mut state = awaited.hub.state.lock();
        let mut found = state.mail.probe(awaited.task.comm, &awaited.wanted());
        // What ends a receive stands before what comes after it; there may be some of these.
        for _ in 0..64 {
            if found.is_some() || !state.poll_all() {
                break;
            }
            awaited.hub.tell(&mut state);
            found = state.mail.probe(awaited.task.comm, &awaited.wanted());
        }
        if found.is_none() {
            awaited.look(&mut state)?;
        }
        Ok(found)
    }
}

impl Future for Probe<'_> {
    type Output = Result<Envelope>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<Envelope>> {
        let awaited = self.awaited;
        let mut state = awaited.hub.state.lock();
        if !std::mem::replace(&mut self.wants, true) {
            awaited.want(&mut state, true);
        }
        match state.mail.probe(awaited.task.comm, &awaited.wanted()) {
            Some(found) => Poll::Ready(Ok(found)),
            None => match awaited.look(&mut state) {
                Err(error) => Poll::Ready(Err(error)),
                Ok(()) => Poll::Pending,
            },
        }
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        if self.wants {
            self.awaited.want(&mut self.awaited.hub.state.lock(), false);
        }
    }
}

impl Future for Receive<'_> {
    type Output = Result<(Envelope, Target)>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let hub = self.awaited.hub;
        let mut state = hub.state.lock();
        match self.receive_first(&mut state) {
            Some(received) => Poll::Ready(received),
            None => self.look(&mut state),
        }
    }
}

impl Drop for Receive<'_> {
    fn drop(&mut self) {
        if let Stage::Posted(id) = self.stage {
            let mut state = self.awaited.hub.state.lock();
            state.mail.cancel(id);
            self.awaited.want(&mut state, false);
        }
    }
}

fn closed(state: &HubState) -> Error {
    state.check_open().err().unwrap_or_else(|| Error::new(ErrorKind::Closed, "this communicator was closed"))
}
