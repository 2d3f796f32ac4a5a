//! Reading blocks: what consumers, users of the space and workers do over their connections.

use super::client::Client;
use super::fetch;
use crate::node::Node;
use forebay_core::ids::Epoch;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::Payload;
use forebay_wire::client::reading::{Reply, Request, SUCCESSORS_PATIENCE};
use forebay_wire::frame::Frame;
use std::collections::BTreeSet;
use tokio::time::{Instant, timeout};

/// How many mappings of arenas a client may have.
const MAPPINGS_MAX: usize = 1 << 16;

/// What a client reads.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The numbers of its mappings of arenas.
    readers: BTreeSet<u64>,
}

impl Reading {
    /// Handles one message; returns what failed where nobody asked.
    pub(super) async fn on_frame(&mut self, client: &Client, frame: &Frame) -> Result<Option<Error>> {
        let request = frame.header.request;
        let answer = self.on_request(client, request, frame.message()?).await;
        client.finish_reading(request, answer)
    }

    async fn on_request(&mut self, client: &Client, number: u64, request: Request) -> Result<Option<Reply>> {
        let node = &client.node;
        match request {
            Request::OpenArena { arena, term } => self.open_arena(client, number, arena, term),
            Request::CloseArena { reader } => {
                // Only its own: what another one looks at is not to be used again.
                if self.readers.remove(&reader) {
                    node.on_reader_gone(reader);
                }
                Ok(None)
            }
            Request::Fetch(fetch) => send(client, number, fetch::payload(node, &fetch)?),
            Request::FetchMany(fetches) => send(client, number, fetch::payload_of_many(node, fetches)?),
            Request::FindBlocks { id, field, region, skip } => {
                let patience = client.patience.min(SUCCESSORS_PATIENCE);
                let found = node.find_blocks(&id, &field, region.as_ref(), skip as usize);
                timeout(patience, found).await.map(Some).map_err(|_| not_told())
            }
            Request::FindSuccessors { server, arena } => {
                let deadline = Instant::now() + client.patience.min(SUCCESSORS_PATIENCE);
                let servers = node.who_answers(server, arena, deadline).await?;
                Ok(Some(Reply::Successors { servers }))
            }
            Request::HasBlock { arena, offset, bytes, generation } => {
                node.store.lock().check_committed(arena, offset, generation, bytes)?;
                Ok(Some(Reply::Done))
            }
        }
    }

    /// Hands out an arena for reading.
    fn open_arena(&mut self, client: &Client, number: u64, arena: u32, term: Epoch) -> Result<Option<Reply>> {
        if !client.shared_memory {
            return Err(Error::invalid("memory is not shared on this connection: fetch instead"));
        }
        if self.readers.len() >= MAPPINGS_MAX {
            return Err(Error::invalid(format!("this client has {MAPPINGS_MAX} arenas mapped already")));
        }
        let reader = client.node.unique();
        let opened = client.node.store.lock().readable_descriptor(arena, reader, term);
        let (descriptor, bytes) = opened
            .map_err(|_| Error::new(ErrorKind::Lost, format!("arena {arena} is gone with all its blocks")))?;
        self.readers.insert(reader);
        client.reply_with(number, Reply::Arena { bytes, reader }, descriptor)?;
        Ok(None)
    }

    /// The client looks at nothing any more.
    pub(super) fn close_all(&mut self, node: &Node) {
        for reader in std::mem::take(&mut self.readers) {
            node.on_reader_gone(reader);
        }
    }
}

/// Sends bytes of blocks.
fn send(client: &Client, number: u64, payload: Payload) -> Result<Option<Reply>> {
    let header = client.node.header(number);
    client.outbox.push_with(header, &Ok::<Reply, Error>(Reply::Data), Vec::new(), Some(payload))?;
    Ok(None)
}

/// The error where it is not known in time what an owner knew that has gone.
fn not_told() -> Error {
    Error::timeout("not all servers have told in time which blocks they hold: one stands still")
}
