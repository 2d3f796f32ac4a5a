//! Reserving memory for a client, and taking bytes from the network into it.

use super::producing::Producing;
use super::storing::Storing;
use super::writing::Writing;
use super::{Session, left};
use crate::node::Held;
use forebay_core::block::Location;
use forebay_core::steps::Policy;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::frame::Header;
use forebay_wire::message::{Bytes, Grant};
use forebay_wire::peer::PeerMessage;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a stream that drops may wait for memory that is just being given up elsewhere.
const DROP_PATIENCE: Duration = Duration::from_millis(50);

/// What a client writes to, and its stream and policy unless it writes to the space.
fn writing_of<'a>(
    producing: &'a mut Option<Producing>,
    storing: &'a mut Option<Storing>,
    space_writing: &'a mut Option<Writing>,
) -> Result<(&'a mut Writing, Option<(&'a str, Policy)>)> {
    if let Some(producing) = producing {
        return Ok((&mut producing.writing, Some((&producing.stream, producing.policy))));
    }
    if let Some(storing) = storing {
        return Ok((&mut storing.writing, Some((&storing.stream, storing.policy))));
    }
    match space_writing {
        Some(writing) => Ok((writing, None)),
        None => Err(Error::step_order("join a stream first")),
    }
}

impl Session {
    /// What this client writes to, and its stream and policy unless it writes to the space.
    pub(super) fn writing(&mut self) -> Result<(&mut Writing, Option<(&str, Policy)>)> {
        writing_of(&mut self.producing, &mut self.storing, &mut self.space_writing)
    }

    /// Reserves a range, waiting for memory as the stream's policy says. `None`: it is to be dropped.
    pub(super) async fn reserve(&mut self, bytes: u64, patience: Duration) -> Result<Option<Grant>> {
        let node = self.node.clone();
        let (writing, stream) = writing_of(&mut self.producing, &mut self.storing, &mut self.space_writing)?;
        let Some((stream, policy)) = stream else {
            // Nothing of the space goes by itself.
            let granted = writing.try_reserve(&node, bytes)?;
            return granted.map(Some).ok_or_else(|| node.space_full(bytes));
        };
        let waits = policy == Policy::Block;
        let deadline = Instant::now() + if waits { patience } else { DROP_PATIENCE.min(patience) };
        loop {
            let freed = node.memory_freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(grant) = writing.try_reserve(&node, bytes)? {
                return Ok(Some(grant));
            }
            {
                let mut state = node.state.lock();
                let coordinator = node.coordinator_of(&state, stream);
                let pressure = PeerMessage::Pressure { stream: stream.to_owned() };
                node.tell(&mut state, coordinator, pressure);
                node.drain(&mut state);
            }
            if let Some(grant) = writing.try_reserve(&node, bytes)? {
                return Ok(Some(grant));
            }
            let waited = tokio::select! {
                biased;
                waited = timeout_at(deadline, freed) => waited,
                () = left(&self.receiver, self.process.as_deref()) => {
                    return Err(Error::unreachable("the producer left while it waited for room"));
                }
            };
            if waited.is_err() {
                if !waits {
                    return Ok(None);
                }
                let usage = node.store.lock().usage();
                return Err(Error::new(
                    ErrorKind::Full,
                    format!(
                        "{bytes} bytes of stream '{stream}' found no room on {} in time: {} of {} bytes are held by \
                         steps that readers have not released",
                        node.id, usage.staged, usage.budget
                    ),
                ));
            }
        }
    }

    /// Takes the bytes of a block, from the range that was granted or from the payload that follows. Whatever
    /// fails, the payload is taken off the connection.
    pub(super) async fn take_bytes(&mut self, header: &Header, bytes: &Bytes, size: u64) -> Result<Location> {
        let node = self.node.clone();
        let range = match bytes {
            Bytes::Granted { arena, offset, generation } => {
                let range = Held { arena: *arena, offset: *offset, generation: *generation };
                self.writing()?.0.commit(&node, range, size)?;
                range
            }
            Bytes::Payload => {
                if header.payload != size {
                    self.receiver.discard_payload(header).await?;
                    return Err(Error::protocol(format!(
                        "a payload of {} bytes for a block of {size}",
                        header.payload
                    )));
                }
                let grant = match self.reserve(size, self.patience).await {
                    Ok(Some(grant)) => grant,
                    refused => {
                        self.receiver.discard_payload(header).await?;
                        let full = "there was no room, and the stream's policy is not to wait";
                        return Err(refused.err().unwrap_or_else(|| Error::new(ErrorKind::Full, full)));
                    }
                };
                let mapping = node.store.lock().mapping(grant.arena);
                let mapping = match mapping {
                    Ok(mapping) => mapping,
                    Err(error) => {
                        self.writing()?.0.abort(&node, grant.offset, grant.generation);
                        self.receiver.discard_payload(header).await?;
                        return Err(error);
                    }
                };
                if grant.fresh {
                    mapping.populate(grant.offset, size);
                }
                self.receiver.payload_into(&mapping, grant.offset, header).await?;
                let range = super::writing::held(&grant);
                self.writing()?.0.commit(&node, range, size)?;
                range
            }
            Bytes::Inline(_) | Bytes::Placed(_) => {
                return Err(Error::protocol("these bytes are not sent to where they are held"));
            }
        };
        let Held { arena, offset, generation } = range;
        Ok(Location { server: node.id, arena, offset, bytes: size, generation })
    }
}
