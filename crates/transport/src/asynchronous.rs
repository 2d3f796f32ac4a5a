//! The asynchronous driver, on tokio: a receiver and a sender for each connection.
//!
//! The sender is an [`Outbox`]: anybody may push to it, it sends at once what the socket takes and keeps
//! the rest, in bounds, for its flushing task. A peer that does not read is cut off, never waited for.

use crate::link::{Link, check_user};
use crate::readiness;
use forebay_core::{Error, Result};
use forebay_store::Mapping;
use forebay_wire::frame::{self, Decoder, Frame, Header};
use forebay_wire::handshake::{self, Door, HANDSHAKE_MAX, Initiator, Session, Unconfirmed};
use forebay_wire::seal::{PLAIN_MAX, Sealer};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde::Serialize;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// Bytes of messages that may wait for a peer that does not read.
const OUTBOX_MAX: usize = 64 << 20;
/// Below this there is room for another message, however long it is.
const ROOM: usize = 8 << 20;
/// How often a full socket is tried again that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How much of a payload is handed to the socket at a time.
const CHUNK: usize = 1 << 20;

/// A link that tokio can wait for.
#[derive(Debug)]
struct Pollable(Box<dyn Link>);

impl AsRawFd for Pollable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.descriptor().as_raw_fd()
    }
}

impl AsFd for Pollable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    link: Arc<AsyncFd<Pollable>>,
    decoder: Decoder,
    descriptors: Vec<OwnedFd>,
}

/// The sending half; shared.
#[derive(Debug)]
pub struct Outbox {
    link: Arc<AsyncFd<Pollable>>,
    state: Mutex<OutboxState>,
    work: Notify,
    room: Notify,
}

#[derive(Debug)]
struct OutboxState {
    sealer: Option<Sealer>,
    queue: VecDeque<Segment>,
    queued: usize,
    closed: bool,
}

/// Payload bytes that are made piece by piece: appends the next ones, or nothing at the end.
pub type Generator = Box<dyn FnMut(&mut Vec<u8>) -> Result<()> + Send>;

/// Payload bytes to be sent after a message.
pub enum Payload {
    /// A range of an arena, sent from where it lies. The guard keeps the block held meanwhile.
    Mapped {
        /// The arena.
        mapping: Arc<Mapping>,
        /// Where the range starts.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Dropped when all is sent.
        guard: Box<dyn std::any::Any + Send>,
    },
    /// Bytes made on the way.
    Generated {
        /// Makes them.
        generator: Generator,
        /// How many there will be.
        bytes: u64,
    },
}

impl Payload {
    fn bytes(&self) -> u64 {
        match self {
            Payload::Mapped { bytes, .. } | Payload::Generated { bytes, .. } => *bytes,
        }
    }
}

enum Segment {
    /// `sealed` once it is: that happens in the order of sending, which is the order of nonces.
    Bytes {
        bytes: Vec<u8>,
        at: usize,
        descriptors: Vec<OwnedFd>,
        sealed: bool,
    },
    Payload {
        payload: Payload,
        at: u64,
        sealed: bool,
    },
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Segment::Bytes { bytes, at, .. } => write!(f, "{at} of {} bytes sent", bytes.len()),
            Segment::Payload { payload, at, .. } => {
                write!(f, "{at} of {} payload bytes sent", payload.bytes())
            }
        }
    }
}

/// Lets tokio wait until a link can be read. Who waits for room to write in registers for that alone and only
/// then: a local socket would otherwise wake its server each time that the peer takes a message out of it, at the
/// cost of the peer.
fn register(link: Box<dyn Link>) -> Result<AsyncFd<Pollable>> {
    // SAFETY: a link owns its descriptor and never closes or replaces it before it is dropped, and it is
    // dropped only by the AsyncFd that owns it.
    #[allow(unsafe_code)]
    unsafe { AsyncFd::register_with_interest(Pollable(link), Interest::READABLE) }.map_err(|e| lost(&e))
}

fn lost(e: &dyn std::fmt::Display) -> Error {
    Error::unreachable(format!("the connection is lost: {e}"))
}

/// Makes both halves of a connection whose handshake is done.
fn halves(link: AsyncFd<Pollable>, session: Session) -> (Receiver, Arc<Outbox>) {
    let (sealer, opener) = session;
    let exposed = link.get_ref().0.is_exposed();
    let link = Arc::new(link);
    let decoder = Decoder::new(exposed.then_some(opener));
    let state =
        OutboxState { sealer: exposed.then_some(sealer), queue: VecDeque::new(), queued: 0, closed: false };
    let outbox = Arc::new(Outbox {
        link: link.clone(),
        state: Mutex::new(state),
        work: Notify::new(),
        room: Notify::new(),
    });
    tokio::spawn(flush(outbox.clone()));
    (Receiver { link, decoder, descriptors: Vec::new() }, outbox)
}

/// Answers a client's handshake; returns when it is known that the client holds the secret, and not only
/// repeats what somebody said who does. The caller sets the deadline.
pub async fn accept(link: Box<dyn Link>, door: &Door<'_>) -> Result<(Receiver, Arc<Outbox>)> {
    let transport = link.kind().to_string();
    let link = register(link)?;
    let mut opening = Vec::new();
    let result = read_exactly(&link, &mut opening, handshake::opening_length).await;
    let (answer, session) = match result.and_then(|()| check_user(&*link.get_ref().0)) {
        Ok(()) => handshake::respond(door, &transport, &opening),
        // Told in the same way, so that a version that differs is named.
        Err(error) if opening.len() >= 10 => (handshake::refusal(&error), Err(error)),
        Err(error) => return Err(error),
    };
    write_all(&link, &answer).await?;
    let session = session?;
    let mut confirmation = Vec::new();
    read_exactly(&link, &mut confirmation, Unconfirmed::confirmation_length).await?;
    Ok(halves(link, session.confirm(&confirmation)?))
}

/// Opens a connection to another server. The caller sets the deadline.
pub async fn connect(link: Box<dyn Link>, door: &Door<'_>) -> Result<(Receiver, Arc<Outbox>)> {
    check_user(&*link)?;
    let transport = link.kind().to_string();
    let link = register(link)?;
    let (initiator, opening) = Initiator::start(door, &transport)?;
    write_all(&link, &opening).await?;
    let mut answer = Vec::new();
    read_exactly(&link, &mut answer, Initiator::answer_length).await?;
    let (session, confirmation) = initiator.finish(&answer)?;
    write_all(&link, &confirmation).await?;
    Ok(halves(link, session))
}

async fn read_exactly(
    link: &AsyncFd<Pollable>,
    bytes: &mut Vec<u8>,
    length: fn(&[u8]) -> Result<Option<usize>>,
) -> Result<()> {
    loop {
        let wanted = length(bytes)?.unwrap_or(bytes.len() + 1);
        if wanted > HANDSHAKE_MAX + 64 {
            return Err(Error::protocol(format!("a handshake of {wanted} bytes")));
        }
        if bytes.len() >= wanted {
            return Ok(());
        }
        let at = bytes.len();
        bytes.resize(wanted, 0);
        let received = link
            .async_io(Interest::READABLE, |link| {
                link.0.try_receive(&mut [IoSliceMut::new(&mut bytes[at..])], &mut Vec::new())
            })
            .await;
        bytes.truncate(at + *received.as_ref().unwrap_or(&0));
        match received {
            Ok(0) => {
                return Err(Error::unreachable("the other side closed the connection during the handshake"));
            }
            Ok(_) => {}
            Err(e) => return Err(lost(&e)),
        }
    }
}

async fn write_all(link: &AsyncFd<Pollable>, bytes: &[u8]) -> Result<()> {
    let mut at = 0;
    let mut room = Room::default();
    while at < bytes.len() {
        match link.get_ref().0.try_send(&[IoSlice::new(&bytes[at..])], &[]) {
            Ok(sent) => at += sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => room.wait(&*link.get_ref().0).await,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(lost(&e)),
        }
    }
    Ok(())
}

/// Waits for room in a full socket.
#[derive(Default)]
struct Room(Option<AsyncFd<OwnedFd>>);

impl Room {
    /// Returns when it is worth trying to send again. That it fails for good is seen then.
    async fn wait(&mut self, link: &dyn Link) {
        if self.0.is_none() {
            self.0 = link.descriptor().try_clone_to_owned().and_then(readiness::writable).ok();
        }
        match &self.0 {
            Some(socket) => {
                if let Ok(mut ready) = socket.writable().await {
                    ready.clear_ready();
                }
            }
            // There is no descriptor to wait with (see `ulimit -n`).
            None => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

impl Receiver {
    /// The next frame and its descriptors; `None` when the peer has closed between frames.
    pub async fn next(&mut self) -> Result<Option<(Frame, Vec<OwnedFd>)>> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                let n = usize::from(frame.header.descriptors);
                if n > self.descriptors.len() {
                    return Err(Error::protocol("a frame's descriptors did not arrive"));
                }
                let rest = self.descriptors.split_off(n);
                return Ok(Some((frame, std::mem::replace(&mut self.descriptors, rest))));
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Looks again and again, giving way to others, whether something comes: for where it is known to come at
    /// once, since being woken takes longer. Blocks its thread for up to `patience`. What came is given by `next`.
    pub fn look(&mut self, patience: Duration) {
        let started = Instant::now();
        while self.decoder.is_empty() {
            let space = &mut [IoSliceMut::new(self.decoder.space())];
            match self.link.get_ref().0.try_receive(space, &mut self.descriptors) {
                Ok(received) => return self.decoder.filled(received),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && started.elapsed() < patience => {
                    std::thread::yield_now();
                }
                // An error comes again when somebody waits.
                Err(_) => return,
            }
        }
    }

    /// Waits until the peer has closed the connection, or it broke, without taking what it has sent; notices within
    /// half a second. For use while something else is waited for on the peer's behalf.
    pub async fn hung_up(&self) {
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let descriptor = self.link.get_ref().0.descriptor();
            let mut poll = [PollFd::from_borrowed_fd(descriptor, PollFlags::RDHUP)];
            let looked = rustix::event::poll(&mut poll, Some(&now));
            if looked.is_ok_and(|ready| ready > 0) && poll[0].revents().intersects(gone) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn fill(&mut self) -> Result<usize> {
        let (decoder, descriptors) = (&mut self.decoder, &mut self.descriptors);
        let received = self
            .link
            .async_io(Interest::READABLE, |link| {
                link.0.try_receive(&mut [IoSliceMut::new(decoder.space())], descriptors)
            })
            .await
            .map_err(|e| lost(&e))?;
        if self.descriptors.len() > 4 * frame::DESCRIPTORS_MAX {
            return Err(Error::protocol("descriptors arrived that no frame announced"));
        }
        self.decoder.filled(received);
        Ok(received)
    }

    /// Receives a payload into a range of an arena that is the caller's to write.
    pub async fn payload_into(&mut self, mapping: &Mapping, offset: u64, header: &Header) -> Result<()> {
        let (mut at, end) = (offset, offset + header.payload);
        while at < end {
            let want = (end - at).min(CHUNK as u64 * 4);
            let n = if header.sealed_payload {
                mapping.with_writable(at, want, |target| self.decoder.take_sealed_payload(target))??
            } else {
                mapping.with_writable(at, want, |target| self.decoder.take_payload(target))?
            } as u64;
            at += n;
            if n > 0 || at == end {
                continue;
            }
            if header.sealed_payload {
                if self.fill().await? == 0 {
                    return Err(Error::unreachable("the peer closed the connection within its data"));
                }
            } else {
                let descriptors = &mut self.descriptors;
                let received = self
                    .link
                    .async_io(Interest::READABLE, |link| {
                        mapping
                            .with_writable(at, want, |target| {
                                link.0.try_receive(&mut [IoSliceMut::new(target)], descriptors)
                            })
                            .map_err(io::Error::other)?
                    })
                    .await
                    .map_err(|e| lost(&e))?;
                if received == 0 {
                    return Err(Error::unreachable("the peer closed the connection within its data"));
                }
                at += received as u64;
            }
        }
        Ok(())
    }

    /// Receives a payload and throws it away: what it belonged to was refused.
    pub async fn discard_payload(&mut self, header: &Header) -> Result<()> {
        let mut scratch = vec![0; 2 * PLAIN_MAX];
        let mut left = header.payload;
        while left > 0 {
            let want = scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let n = if header.sealed_payload {
                self.decoder.take_sealed_payload(&mut scratch)?
            } else {
                self.decoder.take_payload(&mut scratch[..want])
            };
            left = left
                .checked_sub(n as u64)
                .ok_or_else(|| Error::protocol("a payload is longer than its frame said"))?;
            if n == 0 && left > 0 && self.fill().await? == 0 {
                return Err(Error::unreachable("the peer closed the connection within its data"));
            }
        }
        Ok(())
    }

    /// The process at the other end, if the kernel vouches for it.
    pub fn peer_process(&self) -> Option<u32> {
        self.link.get_ref().0.peer_process()
    }

    /// Which transport the connection uses.
    pub fn kind(&self) -> crate::Kind {
        self.link.get_ref().0.kind()
    }
}

impl Outbox {
    /// Sends a message, or queues it. Never waits.
    pub fn push<M: Serialize>(&self, header: Header, message: &M) -> Result<()> {
        self.push_with(header, message, Vec::new(), None)
    }

    /// Sends a message with descriptors or a payload, or queues it. Never waits. Fails if the peer is gone,
    /// or reads so slowly that its bound is reached: it is then cut off.
    pub fn push_with<M: Serialize>(
        &self,
        header: Header,
        message: &M,
        descriptors: Vec<OwnedFd>,
        payload: Option<Payload>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::unreachable("the connection is closed"));
        }
        let sealed = header.sealed_payload && state.sealer.is_some();
        let header = Header {
            descriptors: descriptors.len() as u8,
            payload: payload.as_ref().map_or(0, Payload::bytes),
            sealed_payload: sealed,
            ..header
        };
        let mut bytes = Vec::with_capacity(256);
        frame::encode(&header, message, None, &mut bytes)?;
        if state.queued + bytes.len() > OUTBOX_MAX {
            state.closed = true;
            self.work.notify_one();
            return Err(Error::unreachable("the peer does not read its messages and was cut off"));
        }
        let was_idle = state.queue.is_empty();
        state.queued += bytes.len();
        let sealed = state.sealer.is_none();
        state.queue.push_back(Segment::Bytes { bytes, at: 0, descriptors, sealed });
        if let Some(payload) = payload {
            state.queue.push_back(Segment::Payload { payload, at: 0, sealed: header.sealed_payload });
        }
        if was_idle && !state.send_some(&*self.link.get_ref().0) {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Waits until another message can be pushed without reaching the bound, or nothing can be pushed any more: for
    /// who would rather keep what is to be said than have a peer cut off that stands still.
    pub async fn has_room(&self) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let state = self.state.lock();
                if state.closed || state.queued <= ROOM {
                    return;
                }
            }
            room.await;
        }
    }

    /// Sends what is queued, then closes. Nothing can be pushed any more.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_one();
    }

    /// Whether it was closed or the peer is gone.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

impl OutboxState {
    /// Sends until the socket takes no more; whether all is sent. A failure empties the queue and closes.
    fn send_some(&mut self, link: &dyn Link) -> bool {
        while !self.queue.is_empty() {
            match self.send_front(link) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.closed = true;
                    self.queue.clear();
                    self.queued = 0;
                }
            }
        }
        true
    }

    fn send_front(&mut self, link: &dyn Link) -> io::Result<()> {
        match self.queue.front_mut() {
            None => {}
            Some(Segment::Bytes { bytes, at, descriptors, sealed }) => {
                if let (false, Some(sealer)) = (*sealed, self.sealer.as_mut()) {
                    let mut out = Vec::with_capacity(bytes.len() + 64);
                    sealer.seal(bytes, &mut out).map_err(io::Error::other)?;
                    self.queued += out.len() - bytes.len();
                    (*bytes, *sealed) = (out, true);
                }
                let borrowed: Vec<_> = descriptors.iter().map(|d| d.as_fd()).collect();
                let n = link.try_send(&[IoSlice::new(&bytes[*at..])], &borrowed)?;
                drop(borrowed);
                descriptors.clear();
                *at += n;
                if *at == bytes.len() {
                    self.queued = self.queued.saturating_sub(bytes.len());
                    self.queue.pop_front();
                }
            }
            Some(Segment::Payload {
                payload: Payload::Mapped { mapping, offset, bytes, .. },
                at,
                sealed: false,
            }) => {
                if *at < *bytes {
                    let want = (*bytes - *at).min(CHUNK as u64);
                    let sent = mapping
                        .with_readable(*offset + *at, want, |b| link.try_send(&[IoSlice::new(b)], &[]));
                    *at += sent.map_err(io::Error::other)?? as u64;
                }
                if *at == *bytes {
                    self.queue.pop_front();
                }
            }
            Some(Segment::Payload { payload, at, sealed }) => {
                let (mut plain, sealed) = (Vec::with_capacity(CHUNK), *sealed);
                next_piece(payload, *at, &mut plain)?;
                *at += plain.len() as u64;
                let done = *at >= payload.bytes();
                if plain.is_empty() && !done {
                    return Err(io::Error::other("a payload ended early"));
                }
                if done {
                    // The guard may be dropped: all bytes were copied.
                    self.queue.pop_front();
                }
                let mut bytes = plain;
                if let (true, Some(sealer)) = (sealed, self.sealer.as_mut()) {
                    let mut out = Vec::with_capacity(bytes.len() + 1024);
                    sealer.seal(&bytes, &mut out).map_err(io::Error::other)?;
                    bytes = out;
                }
                self.queued += bytes.len();
                self.queue.push_front(Segment::Bytes { bytes, at: 0, descriptors: Vec::new(), sealed: true });
            }
        }
        Ok(())
    }
}

fn next_piece(payload: &mut Payload, at: u64, out: &mut Vec<u8>) -> io::Result<()> {
    match payload {
        Payload::Mapped { mapping, offset, bytes, .. } => {
            let want = (*bytes - at).min(CHUNK as u64);
            mapping.with_readable(*offset + at, want, |b| out.extend_from_slice(b)).map_err(io::Error::other)
        }
        Payload::Generated { generator, .. } => generator(out).map_err(io::Error::other),
    }
}

/// Sends what a full socket left over, until the outbox is closed.
async fn flush(outbox: Arc<Outbox>) {
    let mut room = Room::default();
    loop {
        let (idle, closed) = {
            let mut state = outbox.state.lock();
            let idle = state.send_some(&*outbox.link.get_ref().0);
            if state.closed || state.queued <= ROOM {
                outbox.room.notify_waiters();
            }
            (idle, state.closed)
        };
        if closed && (idle || Arc::strong_count(&outbox) == 1) {
            let _ = rustix::net::shutdown(outbox.link.get_ref().0.descriptor(), rustix::net::Shutdown::Both);
            return;
        }
        if idle {
            room = Room::default();
            outbox.work.notified().await;
        } else {
            room.wait(&*outbox.link.get_ref().0).await;
        }
    }
}
