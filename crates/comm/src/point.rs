//! One message from one rank to another: the waits of the caller's thread.

use crate::dial::{self, Failed};
use crate::hub::{Hub, HubState};
use crate::members::Members;
use crate::peers::Link;
use crate::window::Taken;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::Payload;
use forebay_wire::comm::{Bytes, CHUNK, CommMessage, INLINE_MAX, Label};
use forebay_wire::frame::Header;
use parking_lot::MutexGuard;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How soon a peer whose backlog is full is dialled again.
const AGAIN: Duration = Duration::from_millis(5);
/// What a short message takes of a window besides its bytes.
const FRAME: usize = 64;

/// What a caller is about, for deadlines and texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) comm: u64,
    pub(crate) rank: u32,
    /// `message`, or a collective's name.
    pub(crate) what: &'static str,
    /// 0 for the user's messages, else the collective's number.
    pub(crate) space: u64,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
}

impl Task {
    fn label(&self, source: u32, tag: u64) -> Label {
        Label { source, space: self.space, tag }
    }

    fn timed_out(&self, what: impl fmt::Display) -> Error {
        Error::timeout(format!("rank {} waited {:?} {what}", self.rank, self.timeout))
    }

    fn failed(&self, kind: ErrorKind, tag: u64, why: impl fmt::Display) -> Error {
        Error::new(kind, format!("{} failed at rank {}: {why}", self.name(tag), self.rank))
    }

    fn name(&self, tag: u64) -> String {
        let Task { comm, what, space, .. } = self;
        match space {
            0 => format!("a {what} with tag {tag} in communicator {comm}"),
            _ => format!("the {what} (collective {space} of communicator {comm})"),
        }
    }
}

/// As long as it lives, the rank that is waited for is read even when there is no room.
struct Wanted<'a>(&'a Hub, u64, u32);

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.state.lock().mail.want(self.1, self.2, false);
    }
}

impl Hub {
    /// Receives what this rank was sent. Waits until it has come; copies nothing.
    pub(crate) fn receive(self: &Arc<Hub>, task: &Task, source: u32, tag: u64) -> Result<Vec<u8>> {
        let label = task.label(source, tag);
        let mut wanted = None;
        let mut state = self.state.lock();
        let result = loop {
            if let Some(message) = state.mail.take(task.comm, label) {
                self.room.notify_waiters();
                break Ok(message);
            }
            if let Err(error) = self.check(&mut state, task, source, tag) {
                break Err(error);
            }
            if wanted.is_none() {
                state.mail.want(task.comm, source, true);
                wanted = Some(Wanted(self, task.comm, source));
                self.room.notify_waiters();
            }
            if source != task.rank {
                match self.link(&mut state, task, source, tag) {
                    Ok(None) => continue,
                    Ok(Some(link)) => tell(&mut state, task, source, &link),
                    Err(error) => break Err(error),
                }
            }
            if self.changed.wait_until(&mut state, task.deadline).timed_out() {
                let from = describe(&state, task, source);
                break Err(task.timed_out(format_args!("for {} from {from}: nothing came", task.name(tag))));
            }
        };
        drop(state);
        drop(wanted);
        result
    }

    /// Sends. Waits for a connection, and while much is on its way already; copies once.
    pub(crate) fn send(self: &Arc<Hub>, task: &Task, dest: u32, tag: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        if dest == task.rank {
            return self.keep(&mut state, task, tag, bytes);
        }
        let link = loop {
            self.check(&mut state, task, dest, tag)?;
            if let Some(link) = self.link(&mut state, task, dest, tag)? {
                break link;
            }
        };
        drop(state);
        let (comm, label) = (task.comm, task.label(task.rank, tag));
        let number = link.next_number.fetch_add(1, Ordering::Relaxed);
        let first = |inline| CommMessage::Data {
            comm,
            label,
            number,
            bytes: bytes.len() as u64,
            inline: Bytes(inline),
        };
        let long = bytes.len() > INLINE_MAX;
        // What is short and needs no marker goes in one frame; the rest as payloads.
        for (index, chunk) in chunks(bytes).enumerate() {
            let mark = match link.window.take(chunk.len() + FRAME, long, task.deadline) {
                Ok(Taken::Room { mark }) => mark,
                Ok(Taken::TimedOut) => {
                    if index > 0 {
                        link.say(&CommMessage::Abandon { number });
                    }
                    let to = describe(&self.state.lock(), task, dest);
                    let size = bytes.len();
                    return Err(task.timed_out(format_args!(
                        "to send {size} bytes of {} to {to}: it does not receive what was sent before",
                        task.name(tag)
                    )));
                }
                Err(error) => return Err(self.broken_link(task, dest, tag, &error)),
            };
            let pushed = match (index, mark) {
                (0, false) => link.outbox.push(Header::default(), &first(chunk.to_vec())),
                (0, true) => self.push(&link, &first(Vec::new()), chunk),
                _ => self.push(&link, &CommMessage::More { number }, chunk),
            };
            pushed.map_err(|error| self.broken_link(task, dest, tag, &error))?;
            if index % 8 == 7 {
                self.check(&mut self.state.lock(), task, dest, tag)?;
            }
        }
        Ok(())
    }

    /// Sends a payload. The one copy is here: the outbox sends from what it is given.
    fn push(&self, link: &Link, message: &CommMessage, chunk: &[u8]) -> Result<()> {
        let mut given = Some((chunk.to_vec(), link.window.mark()));
        let generator = Box::new(move |out: &mut Vec<u8>| {
            if let Some((bytes, marker)) = given.take() {
                *out = bytes;
                drop(marker);
            }
            Ok(())
        });
        let header =
            Header { sealed_payload: self.seal_payload.load(Ordering::Relaxed), ..Header::default() };
        let payload = Payload::Generated { generator, bytes: chunk.len() as u64 };
        link.outbox.push_with(header, message, Vec::new(), Some(payload))
    }

    /// A message to oneself.
    fn keep(&self, state: &mut HubState, task: &Task, tag: u64, bytes: &[u8]) -> Result<()> {
        self.check(state, task, task.rank, tag)?;
        if state.mail.admit(task.comm, task.rank, bytes.len() as u64) != crate::mailbox::Admission::Take {
            let why = format_args!("{} bytes to itself, while too much is not yet received", bytes.len());
            return Err(task.failed(ErrorKind::Full, tag, why));
        }
        state.mail.deliver(task.comm, task.label(task.rank, tag), bytes.to_vec());
        self.changed.notify_all();
        Ok(())
    }

    /// Fails if this rank is gone, or a collective has no hope.
    pub(crate) fn check(&self, state: &mut HubState, task: &Task, other: u32, tag: u64) -> Result<()> {
        state.check_open()?;
        let Some(members) = state.comms.get_mut(&task.comm) else { return Ok(()) };
        if let Some(gone) = members.member(other).and_then(|member| member.gone.clone()) {
            let why = format!("{} {}", describe(state, task, other), gone.why);
            if task.space != 0 {
                state.spread(task.comm, other, &why);
            }
            return Err(task.failed(gone.kind, tag, why));
        }
        match &members.broken {
            Some((_, why)) if task.space != 0 => Err(task.failed(ErrorKind::Unreachable, tag, why)),
            _ => Ok(()),
        }
    }

    /// The connection to send on; `None` after a wait for one: look again.
    fn link(
        self: &Arc<Hub>,
        state: &mut MutexGuard<'_, HubState>,
        task: &Task,
        other: u32,
        tag: u64,
    ) -> Result<Option<Arc<Link>>> {
        let Some(member) = state.comms.get_mut(&task.comm).and_then(|members| members.member(other)) else {
            return Err(task.failed(ErrorKind::Invalid, tag, format_args!("there is no rank {other}")));
        };
        let (id, addresses) = (member.peer, member.addresses.clone());
        if let Some(link) = state.peers.sending(id) {
            return Ok(Some(link.clone()));
        }
        let mut until = task.deadline;
        if let Some(peer) = state.peers.get(id).filter(|peer| !peer.dialling && !peer.ending) {
            peer.dialling = true;
            let connected = MutexGuard::unlocked(state, || dial::connect(&addresses, task.deadline));
            match connected {
                Ok(link) => drop(self.runtime.spawn(dial::handshake(self.clone(), id, link))),
                Err(failed) => {
                    if let Some(peer) = state.peers.get(id) {
                        peer.dialling = false;
                    }
                    self.changed.notify_all();
                    match failed {
                        Failed::Gone(gone) => {
                            self.lose(state, id, &gone);
                            return Ok(None);
                        }
                        Failed::Busy => until = until.min(Instant::now() + AGAIN),
                        Failed::TimedOut => {}
                    }
                }
            }
        }
        // What has happened while the lock was away is seen before anything is waited for.
        if state.peers.sending(id).is_none()
            && state.peers.get(id).is_some_and(|peer| peer.dialling || until < task.deadline || peer.ending)
        {
            self.changed.wait_until(state, until);
        }
        if Instant::now() >= task.deadline {
            let to = describe(state, task, other);
            return Err(task.timed_out(format_args!("for a connection to {to}, for {}", task.name(tag))));
        }
        Ok(None)
    }

    /// A connection failed under a message: why, if that is known already.
    fn broken_link(&self, task: &Task, dest: u32, tag: u64, error: &Error) -> Error {
        let mut state = self.state.lock();
        match self.check(&mut state, task, dest, tag) {
            Err(known) => known,
            Ok(()) => {
                let why = format!("{} is gone: {}", describe(&state, task, dest), error.text);
                if task.space != 0 {
                    state.spread(task.comm, dest, &why);
                }
                task.failed(ErrorKind::Unreachable, tag, why)
            }
        }
    }
}

/// A message's parts; an empty one has one.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(CHUNK).chain(bytes.is_empty().then_some(bytes))
}

/// Lets a rank know that it is waited for, once.
fn tell(state: &mut HubState, task: &Task, source: u32, link: &Link) {
    let member = state.comms.get_mut(&task.comm).and_then(|members: &mut Members| members.member(source));
    if let Some(member) = member.filter(|member| !member.told) {
        member.told = true;
        link.say(&CommMessage::Wait { comm: task.comm });
    }
}

/// A rank and its name.
fn describe(state: &HubState, task: &Task, rank: u32) -> String {
    let member = state.comms.get(&task.comm).and_then(|members| members.members.get(rank as usize));
    match member {
        Some(member) if rank != task.rank => format!("rank {rank} ({})", state.peers.describe(member.peer)),
        _ => format!("rank {rank}"),
    }
}
