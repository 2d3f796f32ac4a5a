//! Reads one connection, as long as it lasts.

use crate::hub::{Hub, Side};
use crate::mail::{Envelope, StreamId};
use crate::meet;
use crate::peers::{Link, meaningful};
use crate::shared::Segment;
use forebay_core::{Error, Result};
use forebay_store::{Access, Mapping};
use forebay_transport::Kind;
use forebay_transport::asynchronous::Receiver;
use forebay_wire::comm::{CHUNK, CommMessage};
use forebay_wire::frame::Header;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::MemfdFlags;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long somebody who proved the secret may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);
/// When one of two connections with a peer ended, how long the other may take to be read to its end.
const GRACE: Duration = Duration::from_secs(1);

/// Reads until the connection ends, then sees to what that means. `offered`: memory that was offered to the other end.
pub(crate) async fn read(
    hub: Arc<Hub>,
    receiver: Receiver,
    link: Arc<Link>,
    (side, offered): (Side, Option<Segment>),
) {
    let is_local = receiver.kind() == Kind::Shm;
    let mut pump = Reader {
        hub: hub.clone(),
        receiver,
        link: link.clone(),
        side,
        is_local,
        offered,
        partial: HashMap::new(),
        scratch: None,
    };
    // How it ended makes no difference: what was not said is not coming.
    let _ = pump.run().await;
    hub.drained(&link).await;
    for stream in pump.partial.values() {
        hub.fail(*stream);
    }
    let side = pump.side;
    drop(pump);
    let others = hub.unlink(&side, &link);
    if !others.is_empty() {
        tokio::time::sleep(GRACE).await;
        others.iter().for_each(|other| other.close());
    }
}

struct Reader {
    hub: Arc<Hub>,
    receiver: Receiver,
    link: Arc<Link>,
    side: Side,
    /// Whether the other end is on this host.
    is_local: bool,
    /// Memory that was offered and not taken yet.
    offered: Option<Segment>,
    /// Long messages that have come in part, by their numbers.
    partial: HashMap<u64, StreamId>,
    /// Where payloads land: they are received into mappings alone.
    scratch: Option<Mapping>,
}

impl Reader {
    async fn run(&mut self) -> Result<()> {
        if self.side.peer.is_none() {
            let first = tokio::time::timeout(HELLO, self.receiver.next()).await;
            let first = first.map_err(|_| Error::protocol("no hello came"))??;
            // Answered first: it may be the last that is said here.
            self.link.say(&self.hub.hello());
            match first.map(|(frame, _)| frame.message()).transpose()? {
                Some(CommMessage::Hello { addresses, name }) => self.named(addresses, name),
                _ => return Err(Error::protocol("a connection did not begin with hello")),
            }
        }
        let Some(peer) = self.side.peer else { return Ok(()) };
        while let Some((frame, descriptors)) = self.receiver.next().await? {
            match frame.message()? {
                CommMessage::Hello { name, .. } => {
                    if let Some(peer) = self.hub.state.lock().peers.get(peer) {
                        peer.name = Some(name);
                    }
                }
                CommMessage::Data { comm, label, number, bytes, inline } => {
                    let message = inline.0;
                    let is_whole = frame.header.payload == 0;
                    if is_whole && message.len() as u64 != bytes {
                        return Err(Error::protocol("a message's length is wrong"));
                    }
                    match self.hub.begin(comm, Envelope { label, bytes }).await {
                        None => {
                            // Its sender learns that nobody listens.
                            self.link.refuse(comm);
                            self.receiver.discard_payload(&frame.header).await?;
                        }
                        Some(stream) if is_whole => self.hub.more(stream, &message),
                        Some(stream) => {
                            if let Some(other) = self.partial.insert(number, stream) {
                                self.hub.fail(other);
                                return Err(Error::protocol("two messages have one number"));
                            }
                            self.receive(number, &frame.header).await?;
                        }
                    }
                }
                CommMessage::More { number } => self.receive(number, &frame.header).await?,
                CommMessage::Abandon { number } => {
                    if let Some(stream) = self.partial.remove(&number) {
                        self.hub.fail(stream);
                    }
                    self.hub.drained(&self.link).await;
                    self.hub.abandon(&self.link, number as u32);
                }
                CommMessage::Goodbye => return Ok(()),
                about @ (CommMessage::Wait { .. }
                | CommMessage::Left { .. }
                | CommMessage::Gone { .. }
                | CommMessage::Revoked { .. }) => {
                    self.hub.drained(&self.link).await;
                    self.hub.heard(peer, &about);
                }
                about => self.meet(about, &descriptors)?,
            }
        }
        Ok(())
    }

    /// What is said about the memory that both share.
    fn meet(&mut self, about: CommMessage, descriptors: &[OwnedFd]) -> Result<()> {
        let (process, side) = (self.receiver.peer_process(), &mut self.side);
        match about {
            CommMessage::Share { probe, number } if !side.is_settled && self.is_local => {
                meet::accept(&self.hub, (side, &self.link), (process, (probe, number)), descriptors)
            }
            CommMessage::Shared { probe, number, reads } if !side.is_settled => {
                let offered = self.offered.take();
                let segment = offered.ok_or_else(|| Error::protocol("nothing was offered to be shared"))?;
                let told = (process, (probe, number), reads);
                meet::accepted(&self.hub, (side, &self.link), segment, told, descriptors)
            }
            CommMessage::Apart if !side.is_settled => {
                meet::settle(&self.hub, &mut self.hub.state.lock(), side, &self.link);
                Ok(())
            }
            CommMessage::Reads { reads } => {
                meet::can_read(&self.link, reads);
                Ok(())
            }
            _ => Err(Error::protocol("memory is shared twice, or of another host")),
        }
    }

    /// The other side of an accepted connection has said who it is.
    fn named(&mut self, addresses: Vec<String>, name: String) {
        let mut state = self.hub.state.lock();
        let id = state.peers.find(&meaningful(addresses));
        if let Some(peer) = state.peers.get(id) {
            peer.name = Some(name);
        }
        self.side.peer = Some(id);
        if state.closed {
            self.link.say(&CommMessage::Goodbye);
        }
        // On one host it is said next how messages go.
        if !self.is_local {
            meet::settle(&self.hub, &mut state, &mut self.side, &self.link);
        }
    }

    /// Receives a part of a message.
    async fn receive(&mut self, number: u64, header: &Header) -> Result<()> {
        let Some(stream) = self.partial.get(&number).copied() else {
            // Nobody wanted its beginning.
            return self.receiver.discard_payload(header).await;
        };
        let lacks = self.hub.state.lock().mail.lacks(stream);
        if header.payload > CHUNK as u64 || lacks.is_some_and(|lacks| header.payload > lacks as u64) {
            return Err(Error::protocol("a part of a message is too long"));
        }
        let scratch = match &mut self.scratch {
            Some(scratch) => scratch,
            none => none.insert(scratch()?),
        };
        self.receiver.payload_into(scratch, 0, header).await?;
        scratch.with_readable(0, header.payload, |bytes| self.hub.more(stream, bytes))?;
        if lacks.is_none_or(|lacks| lacks as u64 == header.payload) {
            self.partial.remove(&number);
        }
        Ok(())
    }
}

fn scratch() -> Result<Mapping> {
    let failed =
        |e: rustix::io::Errno| Error::io("cannot make a buffer for messages (memfd_create)", &e.into());
    let file = rustix::fs::memfd_create("forebay-comm", MemfdFlags::CLOEXEC).map_err(failed)?;
    rustix::fs::ftruncate(&file, CHUNK as u64).map_err(failed)?;
    Mapping::new(file.as_fd(), CHUNK as u64, Access::Write)
}
