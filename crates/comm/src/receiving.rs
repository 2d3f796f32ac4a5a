//! Receiving one message.

use crate::hub::{Hub, HubState};
use crate::mail::{Envelope, ReceiveId, Received, Wanted};
use crate::target::Target;
use crate::task::Task;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::comm::CommMessage;
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

/// A message that is received. Ready once it has come whole, or cannot come. Given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Receive<'a> {
    awaited: Awaited<'a>,
    stage: Stage,
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
    Over,
}

impl Awaited<'_> {
    fn wanted(&self) -> Wanted {
        Wanted { source: self.source, space: self.task.space.0, tag: self.tag }
    }

    /// Somebody begins to wait for it, or ends.
    fn want(&self, state: &mut HubState, begins: bool) {
        state.mail.want(self.task.comm, self.source, begins);
        self.hub.room.notify_waiters();
    }

    /// It has not come: why it will not, if that is so.
    fn look(&self, state: &mut HubState) -> Result<()> {
        match self.source {
            Some(source) => {
                self.check_kind(state, source)?;
                self.reach(state, source)?;
            }
            None => {
                let mut others = self.task.ranks.iter().filter(|rank| **rank != self.task.rank);
                others.try_for_each(|rank| self.reach(state, *rank))?;
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
        match state.mail.kind_of(task.comm, task.space.0, source).filter(|kind| *kind != task.kind) {
            None => Ok(()),
            Some(theirs) => {
                let why =
                    format_args!("rank {source} is in {theirs} there, rank {} in {}", task.rank, task.kind);
                Err(task.failed(ErrorKind::Invalid, self.tag, why))
            }
        }
    }

    /// Sees to it that a message can come from a rank, and that its end is noticed.
    fn reach(&self, state: &mut HubState, source: u32) -> Result<()> {
        self.hub.check(state, self.task, source, self.tag)?;
        if source != self.task.rank
            && let Some(link) = self.hub.route(state, self.task, source)?
        {
            tell(state, self.task, source, &link);
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
        Receive { awaited: Awaited { hub, task, source, tag }, stage: Stage::Fresh(target) }
    }

    fn finish(&mut self, received: Received) -> Result<(Envelope, Target)> {
        self.stage = Stage::Over;
        let task = self.awaited.task;
        let (envelope, kind, why) = match received {
            Received::Whole(envelope, target) => return Ok((envelope, target)),
            Received::TooLong(envelope) => (envelope, ErrorKind::Invalid, "more than there is room for"),
            Received::NoMemory(envelope) => (envelope, ErrorKind::Full, "for which there is no memory"),
            Received::Broken(envelope) => (envelope, ErrorKind::Unreachable, "and has given up within it"),
        };
        let Envelope { label, bytes } = envelope;
        let why = format_args!("rank {} sent {bytes} bytes, {why}", label.source);
        Err(task.failed(kind, Some(label.tag), why))
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
        let Stage::Posted(id) = self.stage else {
            return Poll::Ready(Err(Error::internal("a receive that has ended is looked at")));
        };
        if let Some(received) = state.mail.take(id) {
            self.awaited.want(state, false);
            return Poll::Ready(self.finish(received));
        }
        match self.awaited.look(state) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(()) => Poll::Pending,
        }
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
        state.poll();
        let found = state.mail.probe(awaited.task.comm, &awaited.wanted());
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
        self.look(&mut hub.state.lock())
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

/// Lets a rank know that it is waited for, once.
fn tell(state: &mut HubState, task: &Task, source: u32, link: &crate::peers::Link) {
    let member = state.comms.get_mut(&task.comm).and_then(|members| members.member(source));
    if let Some(member) = member.filter(|member| !member.told) {
        member.told = true;
        link.say(&CommMessage::Wait { comm: task.comm });
    }
}
