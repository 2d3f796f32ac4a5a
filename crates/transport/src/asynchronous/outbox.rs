//! The sending half of a connection: an [`Outbox`]. Anybody may push to it; it sends at once what the socket takes and
//! keeps the rest, in bounds, for its flushing task. A peer that does not read is cut off, never waited for.

use super::{CHUNK, Pollable, Room};
use crate::link::Link;
use forebay_core::{Error, Result};
use forebay_store::Mapping;
use forebay_wire::frame::{self, Header};
use forebay_wire::protocol::Message;
use forebay_wire::seal::Sealer;
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// Bytes of messages that may wait for a peer that does not read.
const OUTBOX_MAX: usize = 64 << 20;
/// Below this there is room for another message, however long it is.
const ROOM: usize = 8 << 20;

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

impl Outbox {
    /// Sends on this link from now on, sealed if there is a sealer.
    pub(super) fn start(link: Arc<AsyncFd<Pollable>>, sealer: Option<Sealer>) -> Arc<Outbox> {
        let state = OutboxState { sealer, queue: VecDeque::new(), queued: 0, closed: false };
        let outbox =
            Arc::new(Outbox { link, state: Mutex::new(state), work: Notify::new(), room: Notify::new() });
        tokio::spawn(flush(outbox.clone()));
        outbox
    }

    /// The connection ends when nothing was heard of the peer for so long, or it has taken nothing that long, and not before.
    /// Without this TCP gives up after 25 s if nothing is sent, else after about a quarter of an hour.
    pub fn end_after(&self, silence: Duration) -> Result<()> {
        let set = self.link.get_ref().0.end_after(silence);
        set.map_err(|e| Error::io("cannot say how long a connection may be silent", &e))
    }

    /// Sends a message, or queues it. Never waits.
    pub fn push<M: Message>(&self, header: Header, message: &M) -> Result<()> {
        self.push_with(header, message, Vec::new(), None)
    }

    /// Sends a message with descriptors or a payload, or queues it. Never waits. Fails if the peer is gone,
    /// or reads so slowly that its bound is reached: it is then cut off.
    pub fn push_with<M: Message>(
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

    /// Whether all that was pushed is sent.
    pub fn is_idle(&self) -> bool {
        self.state.lock().queue.is_empty()
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
