//! Reads one connection, as long as it lasts.

use crate::hub::Hub;
use crate::peers::{Link, PeerId, meaningful};
use forebay_core::{Error, Result};
use forebay_store::{Access, Mapping};
use forebay_transport::asynchronous::Receiver;
use forebay_wire::comm::{CHUNK, CommMessage, Label};
use forebay_wire::frame::Header;
use rustix::fd::AsFd;
use rustix::fs::MemfdFlags;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long somebody who proved the secret may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);
/// When one of two connections with a peer ended, how long the other may take to be read to its end.
const GRACE: Duration = Duration::from_secs(1);

/// Reads until the connection ends, then sees to what that means. `peer`: whom we dialled.
pub(crate) async fn read(hub: Arc<Hub>, receiver: Receiver, link: Arc<Link>, peer: Option<PeerId>) {
    let mut pump = Reader {
        hub: hub.clone(),
        receiver,
        link: link.clone(),
        peer,
        partial: HashMap::new(),
        scratch: None,
    };
    // How it ended makes no difference: what was not said is not coming.
    let _ = pump.run().await;
    for partial in pump.partial.values() {
        hub.abandon(partial.comm, partial.bytes);
    }
    let peer = pump.peer;
    drop(pump);
    let others = hub.unlink(peer, &link);
    if !others.is_empty() {
        tokio::time::sleep(GRACE).await;
        others.iter().for_each(|other| other.close());
    }
}

struct Reader {
    hub: Arc<Hub>,
    receiver: Receiver,
    link: Arc<Link>,
    peer: Option<PeerId>,
    partial: HashMap<u64, Partial>,
    /// Where payloads land: they are received into mappings alone.
    scratch: Option<Mapping>,
}

/// A long message that has come in part.
struct Partial {
    comm: u64,
    label: Label,
    bytes: u64,
    message: Vec<u8>,
}

impl Reader {
    async fn run(&mut self) -> Result<()> {
        if self.peer.is_none() {
            let first = tokio::time::timeout(HELLO, self.receiver.next()).await;
            let first = first.map_err(|_| Error::protocol("no hello came"))??;
            // Answered first: it may be the last that is said here.
            self.link.say(&self.hub.hello());
            match first.map(|(frame, _)| frame.message()).transpose()? {
                Some(CommMessage::Hello { addresses, name }) => self.named(addresses, name),
                _ => return Err(Error::protocol("a connection did not begin with hello")),
            }
        }
        let Some(peer) = self.peer else { return Ok(()) };
        while let Some((frame, _)) = self.receiver.next().await? {
            match frame.message()? {
                CommMessage::Hello { name, .. } => {
                    if let Some(peer) = self.hub.state.lock().peers.get(peer) {
                        peer.name = Some(name);
                    }
                }
                CommMessage::Data { comm, label, number, bytes, inline } => {
                    let message = inline.0;
                    if !self.hub.admit(comm, label.source, bytes).await {
                        // Its sender learns that nobody listens.
                        self.hub.heard(peer, &CommMessage::Wait { comm });
                        self.receiver.discard_payload(&frame.header).await?;
                    } else if frame.header.payload > 0 {
                        self.begin(number, Partial { comm, label, bytes, message })?;
                        self.receive(number, &frame.header).await?;
                    } else if message.len() as u64 == bytes {
                        self.hub.deliver(comm, label, message);
                    } else {
                        self.hub.abandon(comm, bytes);
                        return Err(Error::protocol("a message's length is wrong"));
                    }
                }
                CommMessage::More { number } => self.receive(number, &frame.header).await?,
                CommMessage::Abandon { number } => {
                    if let Some(partial) = self.partial.remove(&number) {
                        self.hub.abandon(partial.comm, partial.bytes);
                    }
                }
                CommMessage::Goodbye => return Ok(()),
                about @ (CommMessage::Wait { .. } | CommMessage::Left { .. } | CommMessage::Gone { .. }) => {
                    self.hub.heard(peer, &about)
                }
            }
        }
        Ok(())
    }

    /// The other side of an accepted connection has said who it is.
    fn named(&mut self, addresses: Vec<String>, name: String) {
        let mut state = self.hub.state.lock();
        let id = state.peers.find(&meaningful(addresses));
        if let Some(peer) = state.peers.get(id) {
            peer.name = Some(name);
            peer.links.push(self.link.clone());
        }
        state.peers.unnamed -= 1;
        self.peer = Some(id);
        if state.closed {
            self.link.say(&CommMessage::Goodbye);
        }
        self.hub.bury(&mut state);
    }

    fn begin(&mut self, number: u64, mut partial: Partial) -> Result<()> {
        let room = usize::try_from(partial.bytes)
            .ok()
            .filter(|bytes| partial.message.try_reserve_exact(*bytes).is_ok());
        if room.is_none() {
            self.hub.abandon(partial.comm, partial.bytes);
            return Err(Error::protocol(format!(
                "a message claims {} bytes: there is no memory for it",
                partial.bytes
            )));
        }
        if let Some(other) = self.partial.insert(number, partial) {
            self.hub.abandon(other.comm, other.bytes);
            return Err(Error::protocol("two messages have one number"));
        }
        Ok(())
    }

    /// Receives a part of a message.
    async fn receive(&mut self, number: u64, header: &Header) -> Result<()> {
        let Some(partial) = self.partial.get_mut(&number) else {
            // Nobody wanted its beginning.
            return self.receiver.discard_payload(header).await;
        };
        if header.payload > CHUNK as u64 || partial.message.len() as u64 + header.payload > partial.bytes {
            return Err(Error::protocol("a part of a message is too long"));
        }
        let scratch = match &mut self.scratch {
            Some(scratch) => scratch,
            none => none.insert(scratch()?),
        };
        self.receiver.payload_into(scratch, 0, header).await?;
        scratch.with_readable(0, header.payload, |bytes| partial.message.extend_from_slice(bytes))?;
        if partial.message.len() as u64 == partial.bytes
            && let Some(partial) = self.partial.remove(&number)
        {
            self.hub.deliver(partial.comm, partial.label, partial.message);
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
