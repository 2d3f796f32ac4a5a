//! The arena that a client writes to, and what was granted to it there.

use crate::node::{Held, Node};
use forebay_core::{Error, Result};
use forebay_wire::message::{Grant, ToClient};
use rustix::fd::OwnedFd;
use std::collections::HashMap;

/// One client's own arena on this server: what it writes to, or where its bytes from the network go.
#[derive(Debug)]
pub(crate) struct Writing {
    arena: u32,
    size: u64,
    /// Ranges that were granted and not used yet, by offset.
    grants: HashMap<u64, Grant>,
}

impl Writing {
    /// Makes an arena for a client.
    pub(crate) fn open(node: &Node) -> Result<Writing> {
        let (arena, size) = node.store.lock().create_arena()?;
        Ok(Writing { arena, size, grants: HashMap::new() })
    }

    /// What a client that shares memory is told of it, and its descriptor.
    pub(crate) fn shared(&self, node: &Node) -> Result<((u32, u64), OwnedFd)> {
        let descriptor = node.store.lock().writable_descriptor(self.arena)?;
        Ok(((self.arena, self.size), descriptor))
    }

    /// Reserves a range, if there is room now.
    pub(crate) fn try_reserve(&mut self, node: &Node, bytes: u64) -> Result<Option<Grant>> {
        let range = node.store.lock().reserve(self.arena, bytes)?;
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

    /// A granted range now holds a block of this many bytes.
    pub(crate) fn commit(&mut self, node: &Node, range: Held, bytes: u64) -> Result<()> {
        let granted = self.grants.get(&range.offset);
        if granted.is_none_or(|grant| grant.generation != range.generation || grant.arena != range.arena) {
            return Err(Error::protocol(format!("range {} was not granted", range.offset)));
        }
        self.grants.remove(&range.offset);
        let committed = node.store.lock().commit(range.arena, range.offset, range.generation, bytes);
        if committed.is_err() {
            node.free([range]);
        }
        committed
    }

    /// An unused range is given back. One that was not granted is ignored: nobody waits for an answer.
    pub(crate) fn abort(&mut self, node: &Node, offset: u64, generation: u64) {
        if self.grants.get(&offset).is_some_and(|grant| grant.generation == generation) {
            self.grants.remove(&offset);
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
    pub(crate) fn is_idle(&self, node: &Node) -> bool {
        node.store.lock().reserved(self.arena).is_empty()
    }

    /// The process has ended: what it could still write to is free, and the arena goes with its last block.
    pub(crate) fn close(self, node: &Node) {
        let reserved = node.store.lock().reserved(self.arena);
        let held = |(offset, generation)| Held { arena: self.arena, offset, generation };
        node.free(reserved.into_iter().map(held));
        node.store.lock().close_arena(self.arena);
    }
}

/// The range that a grant is for.
pub(crate) fn held(grant: &Grant) -> Held {
    Held { arena: grant.arena, offset: grant.offset, generation: grant.generation }
}

impl super::Session {
    /// Tells the client of the arena that it may write to, if memory is shared.
    pub(super) fn share(
        &self,
        request: u64,
        writing: &Writing,
        answer: impl FnOnce(Option<(u32, u64)>) -> ToClient,
    ) -> Result<Option<ToClient>> {
        if !self.shared_memory {
            return Ok(Some(answer(None)));
        }
        let (arena, descriptor) = writing.shared(&self.node)?;
        self.reply_with(request, answer(Some(arena)), descriptor)?;
        Ok(None)
    }
}
