//! Sending one message.

use crate::hub::{Hub, HubState};
use crate::mail::{Admission, Envelope};
use crate::peers::{Link, Peer, Shared, next_ticket};
use crate::shared::{HEAD, Head, Kind, LINE, PIECE};
use crate::target::Source;
use crate::task::Task;
use crate::window::Room;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::Payload;
use forebay_wire::comm::{Bytes, CHUNK, CommMessage, INLINE_MAX};
use forebay_wire::frame::Header;
use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// What a short message takes of a window besides its bytes.
const FRAME: usize = 64;
/// How little room for a piece is worth while.
const WORTH: usize = 4 << 10;

/// A message on its way. Ready when its bytes may be used again. Given up when it is dropped: then none of it comes.
#[derive(Debug)]
pub(crate) struct Send<'a> {
    hub: &'a Arc<Hub>,
    task: &'a Task,
    dest: u32,
    tag: u64,
    source: Source,
    stage: Stage,
    /// If it is longer it is read by its receiver where it lies, if that can.
    lent_beyond: usize,
    /// Whether it waits for room even if it goes to its own process.
    may_wait: bool,
    /// What was counted when it was last looked whether it makes sense to wait, and it did.
    looked: Option<u64>,
}

#[derive(Debug)]
enum Stage {
    Fresh,
    /// It waits for a connection, or for room in its own process, under this number.
    Unlinked(u64),
    /// It waits for its turn and room, under this number.
    Queued(Arc<Link>, u64),
    /// So much of it was sent.
    Begun(Arc<Link>, u64, usize),
    Lent(Arc<Link>, u32, u32),
    Over,
}

impl<'a> Send<'a> {
    pub(crate) fn new(hub: &'a Arc<Hub>, task: &'a Task, dest: u32, tag: u64, source: Source) -> Send<'a> {
        Send {
            hub,
            task,
            dest,
            tag,
            source,
            stage: Stage::Fresh,
            lent_beyond: PIECE,
            may_wait: false,
            looked: None,
        }
    }

    /// The same, but if it is longer than so many bytes its receiver reads it where it lies, if it can: fewer copies, but this waits for it.
    pub(crate) fn lent_beyond(mut self, bytes: usize) -> Send<'a> {
        self.lent_beyond = bytes;
        self
    }

    /// The same, which is put aside: its process may receive meanwhile.
    pub(crate) fn put_aside(mut self) -> Send<'a> {
        self.may_wait = true;
        self
    }

    /// Whether it has ended, in whatever way.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// It begins, or waits for a connection: which one it goes over, once there is one.
    fn begin(&mut self, ticket: Option<u64>) -> ControlFlow<Poll<Result<()>>, Arc<Link>> {
        let hub = self.hub;
        let mut state = hub.state.lock();
        if self.dest == self.task.rank {
            return ControlFlow::Break(self.keep(&mut state, ticket));
        }
        #[cfg(test)]
        if let Some(network) = &hub.network {
            drop(state);
            self.stage = Stage::Over;
            let carried = network.carry(self.task, self.dest, self.tag, self.source.slice());
            return ControlFlow::Break(Poll::Ready(carried));
        }
        match (self.find_link(&mut state), ticket) {
            (Ok(Some(link)), None) => ControlFlow::Continue(link),
            (Ok(Some(link)), Some(number)) => {
                // Its place among those that wait has become one on this connection.
                self.stage = Stage::Queued(link.clone(), number);
                ControlFlow::Continue(link)
            }
            (Ok(None), _) => {
                if ticket.is_none() {
                    let peer = hub.peer_of(&mut state, self.task, self.dest);
                    self.stage = Stage::Unlinked(peer.map_or(0, Peer::wait_for_link));
                }
                ControlFlow::Break(Poll::Pending)
            }
            (Err(error), _) => ControlFlow::Break(Poll::Ready(Err(error))),
        }
    }

    fn look(&mut self) -> Poll<Result<()>> {
        let begun = match &self.stage {
            Stage::Fresh => self.begin(None),
            Stage::Unlinked(number) => self.begin(Some(*number)),
            Stage::Queued(link, _) | Stage::Begun(link, ..) | Stage::Lent(link, ..) => {
                ControlFlow::Continue(link.clone())
            }
            Stage::Over => return Poll::Ready(Err(Error::internal("a send that has ended is looked at"))),
        };
        let link = match begun {
            ControlFlow::Continue(link) => link,
            ControlFlow::Break(ended) => return ended,
        };
        let went = match link.shared.get() {
            Some(shared) => self.go_shared(&link, shared),
            None => self.go_by_socket(&link),
        };
        match went {
            Ok(true) => {
                self.stage = Stage::Over;
                Poll::Ready(Ok(()))
            }
            Ok(false) => {
                let hub = self.hub;
                let mut state = hub.state.lock();
                if self.looked == Some(state.mail.alarms) && !self.task.is_expired() {
                    return Poll::Pending;
                }
                // Who has taken a message may have gone since it was looked for that.
                if self.hub.is_hopeless(&state, self.task, self.dest) && self.is_back() {
                    drop(state);
                    return self.look();
                }
                match self.check(&mut state) {
                    Err(error) => Poll::Ready(Err(error)),
                    Ok(()) => {
                        self.looked = Some(state.mail.alarms);
                        Poll::Pending
                    }
                }
            }
            Err(error) => {
                // What it says makes no sense, or nothing goes any more: it is as good as gone.
                let told = self.broken(&error);
                link.close();
                Poll::Ready(Err(told))
            }
        }
    }

    fn find_link(&self, state: &mut HubState) -> Result<Option<Arc<Link>>> {
        self.hub.check(state, self.task, self.dest, Some(self.tag))?;
        let found = self.hub.route(state, self.task, self.dest)?;
        if found.is_none() && self.task.is_expired() {
            let to = self.hub.describe(state, self.task, self.dest);
            let name = self.task.name(Some(self.tag));
            return Err(self.task.timed_out(format_args!("for a connection to {to}, for {name}")));
        }
        Ok(found)
    }

    /// Whether it still makes sense to wait.
    fn check(&self, state: &mut HubState) -> Result<()> {
        self.hub.check(state, self.task, self.dest, Some(self.tag))?;
        if self.dest != self.task.rank {
            self.hub.tell_waiting(state, self.task, self.dest);
        }
        if self.task.is_expired() {
            let to = self.hub.describe(state, self.task, self.dest);
            let (size, name) = (self.source.len(), self.task.name(Some(self.tag)));
            let why = match self.stage {
                Stage::Lent(..) => "it does not receive it",
                _ => "it does not receive what was sent before",
            };
            return Err(self.task.timed_out(format_args!("to send {size} bytes of {name} to {to}: {why}")));
        }
        Ok(())
    }

    /// A message to oneself.
    fn keep(&mut self, state: &mut HubState, ticket: Option<u64>) -> Poll<Result<()>> {
        if let Err(error) = self.hub.check(state, self.task, self.task.rank, Some(self.tag)) {
            return Poll::Ready(Err(error));
        }
        let bytes = self.source.slice();
        let envelope = Envelope { label: self.task.label(self.tag), bytes: bytes.len() as u64 };
        let fill = |space: &mut [u8]| {
            space.copy_from_slice(bytes);
            Ok::<(), Infallible>(())
        };
        let is_turn = state.waiting_own.front().is_none_or(|front| Some(*front) == ticket);
        let admission =
            if is_turn { state.mail.whole(self.task.comm, envelope, fill) } else { Ok(Admission::Wait) };
        match admission {
            // One that is put aside waits until something is received; nothing is, while its process waits for this.
            Ok(Admission::Wait) if self.may_wait && !self.task.is_expired() => {
                if ticket.is_none() {
                    let number = next_ticket();
                    state.waiting_own.push_back(number);
                    self.stage = Stage::Unlinked(number);
                }
                return Poll::Pending;
            }
            Ok(Admission::Take) => state.waiting_own.retain(|number| Some(*number) != ticket),
            _ => {
                let why = format_args!("{} bytes to itself, while too much is not yet received", bytes.len());
                return Poll::Ready(Err(self.task.failed(ErrorKind::Full, Some(self.tag), why)));
            }
        }
        self.stage = Stage::Over;
        self.hub.tell(state);
        Poll::Ready(Ok(()))
    }

    /// Takes its place behind those that wait for room on this connection. Whether it is its turn.
    fn may_begin(&mut self, link: &Arc<Link>) -> bool {
        let waiting = link.waiting.lock();
        match self.stage {
            // One that is not there any more has waited for a connection that is gone.
            Stage::Queued(_, number) => {
                waiting.front().is_none_or(|front| *front == number) || !waiting.contains(&number)
            }
            Stage::Fresh => waiting.is_empty(),
            _ => true,
        }
    }

    fn queue(&mut self, link: &Arc<Link>) {
        if matches!(self.stage, Stage::Fresh) {
            let number = link.next_number.fetch_add(1, Ordering::Relaxed);
            link.waiting.lock().push_back(number);
            self.stage = Stage::Queued(link.clone(), number);
        }
    }

    /// It has begun: the next one may.
    fn leave_queue(&mut self) {
        if let Stage::Queued(link, number) = &self.stage {
            link.waiting.lock().retain(|other| other != number);
            // Others of this process may wait for their turn.
            self.hub.tell(&mut self.hub.state.lock());
        }
    }

    // ---- through shared memory ----------------------------------------------------------------------------

    fn head(&self, kind: Kind, bytes: usize, number: u32) -> Head {
        Head {
            kind,
            bytes: bytes as u32,
            comm: self.task.comm,
            label: self.task.label(self.tag),
            number,
            turn: 0,
            total: self.source.len() as u64,
        }
    }

    fn go_shared(&mut self, link: &Arc<Link>, shared: &Shared) -> Result<bool> {
        if let Stage::Lent(_, place, turn) = self.stage {
            return Ok(self.give_up_place(shared, place, turn));
        }
        if !matches!(self.stage, Stage::Begun(..)) && !self.may_begin(link) {
            self.queue(link);
            return Ok(false);
        }
        let source = self.source;
        let bytes = source.len();
        let is_long = bytes > PIECE;
        if bytes > self.lent_beyond
            && !matches!(self.stage, Stage::Begun(..))
            && shared.reads.load(Ordering::Relaxed)
        {
            return self.lend(link, shared);
        }
        let mut writer = shared.writer.lock();
        loop {
            let (sent, number) = match self.stage {
                Stage::Begun(_, number, sent) => (sent, number as u32),
                _ if is_long => (0, link.next_number.fetch_add(1, Ordering::Relaxed) as u32),
                _ => (0, 0),
            };
            let rest = &source.slice()[sent..];
            let wanted = (HEAD + rest.len().min(if is_long { WORTH } else { PIECE })).next_multiple_of(LINE);
            let mut room = writer.room(wanted)?;
            if room < wanted {
                room = writer.wait_for_room(wanted)?;
            }
            if room < wanted {
                drop(writer);
                self.queue(link);
                return Ok(false);
            }
            // Whole elements of any type, unless it is the last.
            let fits = if rest.len() <= room - HEAD { rest.len() } else { (room - HEAD) / LINE * LINE };
            let piece = &rest[..fits.min(PIECE)];
            let kind = match sent {
                0 if !is_long => Kind::Whole,
                0 => Kind::Begin,
                _ => Kind::More,
            };
            writer.write(&[&self.head(kind, piece.len(), number).encode(), piece])?;
            shared.bell.ring();
            let sent = sent + piece.len();
            if sent == bytes {
                drop(writer);
                self.leave_queue();
                return Ok(true);
            }
            if !matches!(self.stage, Stage::Begun(..)) {
                drop(writer);
                self.leave_queue();
                writer = shared.writer.lock();
            }
            self.stage = Stage::Begun(link.clone(), number.into(), sent);
        }
    }

    fn lend(&mut self, link: &Arc<Link>, shared: &Shared) -> Result<bool> {
        let Some((place, turn)) = shared.loans.lock().take() else {
            self.queue(link);
            return Ok(false);
        };
        let mut writer = shared.writer.lock();
        let wanted = (HEAD + 8).next_multiple_of(LINE);
        if writer.room(wanted)? < wanted && writer.wait_for_room(wanted)? < wanted {
            drop(writer);
            shared.loans.lock().free(place);
            self.queue(link);
            return Ok(false);
        }
        shared.outward.loan(place, turn)?.lend();
        let head = Head { turn, ..self.head(Kind::Loan, 8, place) };
        writer.write(&[&head.encode(), &self.source.address().to_le_bytes()])?;
        drop(writer);
        shared.bell.ring();
        self.leave_queue();
        self.stage = Stage::Lent(link.clone(), place, turn);
        Ok(false)
    }

    /// Whether a loan is back; its place is free then.
    fn give_up_place(&mut self, shared: &Shared, place: u32, turn: u32) -> bool {
        let is_back = shared.outward.loan(place, turn).is_ok_and(|loan| loan.is_back());
        if is_back {
            self.stage = Stage::Over;
            self.free(shared, place);
        }
        is_back
    }

    /// A place is free: another one of this process may wait for it.
    fn free(&self, shared: &Shared, place: u32) {
        shared.loans.lock().free(place);
        self.hub.tell(&mut self.hub.state.lock());
    }

    fn is_back(&self) -> bool {
        let Stage::Lent(link, place, turn) = &self.stage else { return false };
        let shared = link.shared.get();
        shared.and_then(|shared| shared.outward.loan(*place, *turn).ok()).is_some_and(|loan| loan.is_back())
    }

    // ---- through a socket ---------------------------------------------------------------------------------

    fn go_by_socket(&mut self, link: &Arc<Link>) -> Result<bool> {
        if !matches!(self.stage, Stage::Begun(..)) && !self.may_begin(link) {
            self.queue(link);
            return Ok(false);
        }
        let source = self.source;
        let bytes = source.slice();
        let long = bytes.len() > INLINE_MAX;
        loop {
            let (number, sent) = match self.stage {
                Stage::Begun(_, number, sent) => (number, sent),
                _ => (link.next_number.fetch_add(1, Ordering::Relaxed), 0),
            };
            // What is short and needs no marker goes in one frame; the rest as payloads.
            let chunk = &bytes[sent..bytes.len().min(sent + CHUNK)];
            let Some(Room { mark }) = link.window.take(chunk.len() + FRAME, long)? else {
                self.queue(link);
                return Ok(false);
            };
            let (comm, label) = (self.task.comm, self.task.label(self.tag));
            let first = |inline| CommMessage::Data {
                comm,
                label,
                number,
                bytes: bytes.len() as u64,
                inline: Bytes(inline),
            };
            match (sent, mark) {
                (0, false) => link.outbox.push(Header::default(), &first(chunk.to_vec()))?,
                (0, true) => self.push(link, &first(Vec::new()), chunk)?,
                _ => self.push(link, &CommMessage::More { number }, chunk)?,
            }
            let sent = sent + chunk.len();
            self.leave_queue();
            if sent == bytes.len() {
                return Ok(true);
            }
            self.stage = Stage::Begun(link.clone(), number, sent);
        }
    }

    /// Sends a payload. The one copy is here: the outbox sends from what it is given.
    fn push(&self, link: &Link, message: &CommMessage, chunk: &[u8]) -> Result<()> {
        let hub = self.hub.clone();
        // It is called under the outbox's lock, which others take under the hub's.
        let told = move || {
            let told = hub.clone();
            drop(hub.runtime.spawn(async move { told.tell(&mut told.state.lock()) }));
        };
        let mut given = Some((chunk.to_vec(), link.window.mark(told)));
        let generator = Box::new(move |out: &mut Vec<u8>| {
            if let Some((bytes, marker)) = given.take() {
                *out = bytes;
                drop(marker);
            }
            Ok(())
        });
        let header =
            Header { sealed_payload: self.hub.seal_payload.load(Ordering::Relaxed), ..Header::default() };
        let payload = Payload::Generated { generator, bytes: chunk.len() as u64 };
        link.outbox.push_with(header, message, Vec::new(), Some(payload))
    }

    /// A connection failed under a message: why, if that is known already.
    fn broken(&self, error: &Error) -> Error {
        let (mut state, task) = (self.hub.state.lock(), self.task);
        match self.hub.check(&mut state, task, self.dest, Some(self.tag)) {
            Err(known) => known,
            Ok(()) => {
                let to = self.hub.describe(&state, task, self.dest);
                let why = format!("{to} is gone: {}", error.text);
                if task.is_collective() {
                    self.hub.spread_end(&mut state, task.comm, self.dest, &why);
                }
                task.failed(ErrorKind::Unreachable, Some(self.tag), why)
            }
        }
    }

    /// Takes back what was not sent whole.
    fn take_back(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Fresh | Stage::Over => {}
            Stage::Unlinked(number) => {
                let mut state = self.hub.state.lock();
                state.waiting_own.retain(|own| *own != number);
                if let Some(peer) = self.hub.peer_of(&mut state, self.task, self.dest) {
                    peer.stop_waiting(number);
                }
                self.hub.tell(&mut state);
            }
            Stage::Queued(link, number) => {
                link.waiting.lock().retain(|other| *other != number);
                self.hub.tell(&mut self.hub.state.lock());
            }
            Stage::Begun(link, number, _) => match link.shared.get() {
                None => link.say(&CommMessage::Abandon { number }),
                Some(shared) => {
                    let head = Head { bytes: 0, ..self.head(Kind::Abandon, 0, number as u32) };
                    let mut writer = shared.writer.lock();
                    let is_room = writer.room(LINE).is_ok_and(|room| room >= LINE);
                    if is_room && writer.write(&[&head.encode()]).is_ok() {
                        shared.bell.ring();
                    } else {
                        // There is no room to say so: over the socket then.
                        link.say(&CommMessage::Abandon { number });
                    }
                }
            },
            Stage::Lent(link, place, turn) => {
                if let Some(shared) = link.shared.get() {
                    let _ = shared.outward.loan(place, turn).map(|loan| loan.take_back());
                    self.free(shared, place);
                }
            }
        }
    }
}

impl Future for Send<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        self.look()
    }
}

impl Drop for Send<'_> {
    fn drop(&mut self) {
        self.take_back();
    }
}
