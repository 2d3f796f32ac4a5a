//! Memory for a rank's blocks, waited for as its stream's policy says, and bytes that come over the network into it.

use super::client::Client;
use super::payload;
use super::writing::{Writing, held};
use crate::held::Held;
use forebay_core::block::Location;
use forebay_core::steps::Policy;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::block::{BytesLocation, Grant};
use forebay_wire::client::writing::{Reply, Request};
use forebay_wire::frame::{Frame, Header};
use forebay_wire::peer::streams;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a stream that drops may wait for memory that is just being given up elsewhere.
const DROP_PATIENCE: Duration = Duration::from_millis(50);

/// Where a rank's blocks go on this server: the arena, and what its stream wants where there is no room.
pub(super) struct BlockDestination<'a> {
    pub(super) writing: &'a mut Writing,
    pub(super) stream: &'a str,
    pub(super) policy: Policy,
}

/// Handles what a rank that writes blocks asks for: where they go, or why they go nowhere. Returns what failed where nobody
/// asked.
pub(super) async fn on_frame(
    client: &Client,
    target: Result<BlockDestination<'_>>,
    frame: &Frame,
) -> Result<Option<Error>> {
    let request = payload::message(frame, |_| false)?;
    let answer = match target {
        Ok(mut target) => target.on_request(client, request).await,
        Err(error) => Err(error),
    };
    client.finish(frame.header.request, answer)
}

impl BlockDestination<'_> {
    /// What a rank that writes blocks asks for.
    async fn on_request(&mut self, client: &Client, request: Request) -> Result<Option<Reply>> {
        match request {
            Request::Reserve { bytes, patience_ms } => {
                let grant = self.reserve(client, bytes, Duration::from_millis(patience_ms)).await?;
                Ok(Some(Reply::Granted(grant)))
            }
            Request::Abort { offset, generation, .. } => {
                self.writing.abort(&client.node, offset, generation);
                Ok(None)
            }
        }
    }

    /// Reserves a range, waiting for memory as the stream's policy says. `None`: the block is to be dropped.
    async fn reserve(&mut self, client: &Client, bytes: u64, patience: Duration) -> Result<Option<Grant>> {
        let (node, stream) = (&client.node, self.stream);
        let waits = self.policy == Policy::Block;
        let deadline = Instant::now() + if waits { patience } else { DROP_PATIENCE.min(patience) };
        loop {
            let freed = node.memory_freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(grant) = self.writing.try_reserve(node, bytes)? {
                return Ok(Some(grant));
            }
            {
                let mut state = node.state.lock();
                let coordinator = node.coordinator_of(&state, stream);
                let pressure = streams::Message::MemoryPressure { stream: stream.to_owned() };
                node.tell(&mut state, coordinator, pressure);
                node.drain(&mut state);
            }
            if let Some(grant) = self.writing.try_reserve(node, bytes)? {
                return Ok(Some(grant));
            }
            let waited = tokio::select! {
                biased;
                waited = timeout_at(deadline, freed) => waited,
                () = client.left() => {
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
    pub(super) async fn take_bytes(
        &mut self,
        client: &mut Client,
        header: &Header,
        bytes: &BytesLocation,
        size: u64,
    ) -> Result<Location> {
        let node = client.node.clone();
        let range = match bytes {
            BytesLocation::Granted { arena, offset, generation } => {
                let range = Held { arena: *arena, offset: *offset, generation: *generation };
                self.writing.commit(&node, range, size)?;
                range
            }
            BytesLocation::Payload => {
                if header.payload != size {
                    client.receiver.discard_payload(header).await?;
                    return Err(Error::protocol(format!(
                        "a payload of {} bytes for a block of {size}",
                        header.payload
                    )));
                }
                let grant = match self.reserve(client, size, client.patience).await {
                    Ok(Some(grant)) => grant,
                    refused => {
                        client.receiver.discard_payload(header).await?;
                        let full = "there was no room, and the stream's policy is not to wait";
                        return Err(refused.err().unwrap_or_else(|| Error::new(ErrorKind::Full, full)));
                    }
                };
                let range = held(&grant);
                if let Err(error) = payload::take_into(client, header, range, grant.fresh).await {
                    self.writing.abort(&node, range.offset, range.generation);
                    return Err(error);
                }
                self.writing.commit(&node, range, size)?;
                range
            }
            BytesLocation::Inline(_) | BytesLocation::Placed(_) => {
                return Err(Error::protocol("these bytes are not sent to where they are held"));
            }
        };
        let Held { arena, offset, generation } = range;
        Ok(Location { server: node.id, arena, offset, bytes: size, generation })
    }
}
