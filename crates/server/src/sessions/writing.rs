//! The arena that a client writes to, and what was granted to it there.

use super::client::Client;
use crate::held::Held;
use crate::node::Node;
use crate::streams::begin_page::BeginPage;
use forebay_cluster::environment::{HashMap, off_thread};
use forebay_core::{Error, Result};
use forebay_store::range_of;
use forebay_wire::client::block::Grant;
use forebay_wire::protocol::Reply;
use rustix::fd::OwnedFd;
use std::time::Duration;

/// How long memory is not touched ahead: what the end of a step frees, once its coordinator has heard of it, need
/// not be found elsewhere.
const AHEAD_DELAY: Duration = Duration::from_millis(2);

/// The arena of a client on this server: its own if it shares memory and writes there itself; else the one
/// into which this server receives, which all clients over the network share.
#[derive(Debug)]
pub(crate) struct Writing {
    arena: u32,
    /// Its size, if the client maps it.
    own: Option<u64>,
    /// Ranges that were granted and not used yet, by offset.
    grants: HashMap<u64, Grant>,
    got_fresh: bool,
}

impl Writing {
    /// An arena for a client.
    pub(crate) fn open(node: &Node, shares_memory: bool) -> Result<Writing> {
        let mut store = node.store.lock();
        let (arena, own) = if shares_memory {
            let (arena, size) = store.create_arena()?;
            (arena, Some(size))
        } else {
            (store.network_arena()?, None)
        };
        Ok(Writing { arena, own, grants: HashMap::default(), got_fresh: false })
    }

    /// What a client that shares memory is told of it, and its descriptor.
    fn shared(&self, node: &Node) -> Result<Option<((u32, u64), OwnedFd)>> {
        let Some(size) = self.own else { return Ok(None) };
        let descriptor = node.store.lock().writable_descriptor(self.arena)?;
        Ok(Some(((self.arena, size), descriptor)))
    }

    /// Tells the client of the arena that it may write to, if memory is shared.
    pub(super) fn share<R: Reply>(
        &self,
        client: &Client,
        request: u64,
        answer: impl FnOnce(Option<(u32, u64)>) -> R,
    ) -> Result<Option<R>> {
        let Some((arena, descriptor)) = self.shared(&client.node)? else {
            return Ok(Some(answer(None)));
        };
        client.reply_with(request, answer(Some(arena)), descriptor)?;
        Ok(None)
    }

    /// The word that a rank which shares memory begins steps with.
    pub(crate) fn begin_page(&self, node: &Node) -> Result<Option<BeginPage>> {
        self.own.map(|_| BeginPage::new(node.store.lock().words(self.arena)?)).transpose()
    }

    /// Reserves a range, if there is room now.
    pub(crate) fn try_reserve(&mut self, node: &Node, bytes: u64) -> Result<Option<Grant>> {
        let range = node.store.lock().reserve(self.arena, bytes)?;
        self.got_fresh |= range.is_some_and(|range| range.fresh);
        let grant = range.map(|range| Grant {
            arena: self.arena,
            offset: range.offset,
            bytes: range.bytes,
            generation: range.generation,
            fresh: range.fresh,
        });
        if let Some(grant) = grant {
            self.grants.insert(grant.offset, grant);
        }
        Ok(grant)
    }

    /// Touches memory for the client's next `bytes` in the background, as far as its arena lacks and bounds allow:
    /// the first write to a page takes many times what a later one takes.
    pub(crate) fn prefault(&mut self, node: &Node, bytes: u64) {
        self.got_fresh = false;
        let (Some(_), Some(node)) = (self.own, node.me.upgrade()) else { return };
        let arena = self.arena;
        tokio::spawn(async move {
            tokio::time::sleep(AHEAD_DELAY).await;
            let Some(ahead) = node.store.lock().take_prefault_range(arena, bytes) else { return };
            let environment = node.environment.clone();
            let touched = off_thread(&*environment, move || {
                ahead.touch();
                ahead
            });
            let given = touched.await.map(|ahead| node.store.lock().give_back_prefaulted(&ahead));
            if !matches!(given, Ok(Ok(()))) {
                tracing::warn!("memory that was touched ahead cannot be given: {given:?}");
            }
        });
    }

    /// Whether fresh memory was given since it was last touched ahead.
    pub(crate) fn got_fresh(&self) -> bool {
        self.got_fresh
    }

    /// A granted range now holds a block of this many bytes.
    pub(crate) fn commit(&mut self, node: &Node, range: Held, bytes: u64) -> Result<()> {
        // A block may begin a little into its range.
        let start = range_of(range.offset);
        let granted = self.grants.get(&start);
        if granted.is_none_or(|grant| grant.generation != range.generation || grant.arena != range.arena) {
            return Err(Error::protocol(format!("range {} was not granted", range.offset)));
        }
        self.grants.remove(&start);
        let committed = node.store.lock().commit(range.arena, range.offset, range.generation, bytes);
        if committed.is_err() {
            node.free([range]);
        }
        committed
    }

    /// An unused range is given back. One that was not granted is ignored: nobody waits for an answer.
    pub(crate) fn abort(&mut self, node: &Node, offset: u64, generation: u64) {
        let start = range_of(offset);
        if self.grants.get(&start).is_some_and(|grant| grant.generation == generation) {
            self.grants.remove(&start);
            node.free([Held { arena: self.arena, offset, generation }]);
        }
    }

    /// Gives back all that was granted and not used.
    pub(crate) fn abort_all(&mut self, node: &Node) {
        let unused: Vec<Held> = self.grants.drain().map(|(_, grant)| held(&grant)).collect();
        if !unused.is_empty() {
            node.free(unused);
        }
    }

    /// Whether the client can no longer write to anything that it may be given back.
    pub(crate) fn is_idle(&self) -> bool {
        self.grants.is_empty()
    }

    /// The process has ended: what it could still write to is free, and the arena goes with its last block.
    pub(crate) fn close(mut self, node: &Node) {
        self.abort_all(node);
        if self.own.is_some() {
            node.store.lock().close_arena(self.arena);
        }
    }
}

/// The range that a grant is for.
pub(crate) fn held(grant: &Grant) -> Held {
    Held { arena: grant.arena, offset: grant.offset, generation: grant.generation }
}
