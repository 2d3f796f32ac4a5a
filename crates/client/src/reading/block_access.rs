//! Getting at the bytes of a block, wherever it is held now: in a mapped arena, or fetched.

use crate::connection::rpc::{Rpc, lock, unexpected};
use crate::reading::readable_arena::ReadableArena;
use crate::reading::server_pool::{BlockPlace, ServerPool};
use forebay_core::block::Location;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::Kind;
use forebay_wire::client::reading::{Fetch, Part, Reply, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Arenas that nobody looks at stay mapped, so that they need not be mapped again at each step: so many at least, and all of
/// which something was read in so many of the latest steps, there may be one for each rank of this host.
pub(crate) const ARENAS_KEPT: usize = 64;
const STEPS_KEPT: u64 = 16;
/// As long as they all take no more of the address space than half of what a process has.
const ADDRESSES_KEPT: u64 = 1 << 46;

/// Of how many blocks is remembered where they are now.
const MOVED_MAX: usize = 1 << 16;
/// How many servers may die one after the other while one block is read.
const DEATHS_MAX: usize = 4;

impl ServerPool {
    /// The arena that a block is in of which was told in this term; `None` if its server is reached over the network.
    pub(crate) fn arena(&self, location: &Location, term: Epoch) -> Result<Option<Arc<ReadableArena>>> {
        // A mapped arena shows what is in it, whether its server lives or not.
        if let Some(arena) = self.known_arena(&(location.server, location.arena, term)) {
            return Ok(Some(arena));
        }
        self.at_holder(location, |rpc, (server, arena)| {
            let key = (server, arena, term);
            if let Some(arena) = self.known_arena(&key) {
                return Ok(Some(arena));
            }
            if rpc.kind() != Kind::Shm {
                return Ok(None);
            }
            let mut answer = rpc.call(&Request::OpenArena { arena, term }, "to share an arena")?;
            let (Reply::Arena { bytes, reader }, Some(file)) = (&answer.message, answer.descriptors.pop())
            else {
                return Err(unexpected(&answer.message));
            };
            let arena = Arc::new(ReadableArena::new(file, *bytes, rpc.clone(), *reader));
            arena.note_used(self.steps.load(Ordering::Relaxed));
            if term >= self.term.load(Ordering::Relaxed) {
                lock(&self.arenas).insert(key, arena.clone());
            }
            Ok(Some(arena))
        })
    }

    /// An arena that is mapped already.
    fn known_arena(&self, key: &(ServerId, u32, Epoch)) -> Option<Arc<ReadableArena>> {
        let arena = lock(&self.arenas).get(key).cloned()?;
        arena.note_used(self.steps.load(Ordering::Relaxed));
        Some(arena)
    }

    /// Asks the server that holds a block, under the arena's number there; if it is gone, the one that holds it now.
    fn at_holder<T>(
        &self,
        location: &Location,
        mut ask: impl FnMut(&Arc<Rpc>, (ServerId, u32)) -> Result<T>,
    ) -> Result<T> {
        let key = (location.server, location.arena, location.offset, location.generation);
        let known = lock(&self.moved).get(&key).copied();
        let mut place = known.unwrap_or((location.server, location.arena));
        if known.is_none() && self.group.known().has_left(location.server) {
            let why = Error::unreachable(format!("{} is gone", location.server)).about(location.server);
            place = self.find_holder(location, location.server, &why)?;
            self.note_moved(key, place);
        }
        for _ in 0..DEATHS_MAX {
            match self.connection(place.0).and_then(|rpc| ask(&rpc, place)) {
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    place = self.find_holder(location, place.0, &error)?;
                    self.note_moved(key, place);
                }
                Err(error) if error.kind == ErrorKind::Lost => return Err(said_by(place.0, location, error)),
                asked => return asked,
            }
        }
        ask(&self.connection(place.0)?, place)
    }

    fn note_moved(&self, block: BlockPlace, place: (ServerId, u32)) {
        let mut moved = lock(&self.moved);
        if moved.len() >= MOVED_MAX {
            moved.clear();
        }
        moved.insert(block, place);
    }

    /// Fetches a part of a block over the network, dense, to where it belongs.
    pub(crate) fn fetch(
        &self,
        location: &Location,
        stored: &[u64],
        element: usize,
        part: Part,
        target: &mut [u8],
    ) -> Result<()> {
        self.at_holder(location, |rpc, (_, arena)| {
            let fetch = Request::Fetch(Fetch {
                arena,
                offset: location.offset,
                bytes: location.bytes,
                generation: location.generation,
                stored: stored.into(),
                element: element as u8,
                part: part.clone(),
            });
            rpc.fetch(&fetch, target, "to send a block")
        })
    }

    /// A step has come. Forgets arenas that nobody looks at if there are many, and nothing of the latest steps was read there:
    /// they may not exist any more, and their memory is to go. Those of an earlier term than this one are remembered only by who
    /// looks at them: servers wait for that before they use their memory again.
    pub(crate) fn forget_unused_arenas(&self, keep: usize, term: Epoch) {
        self.term.fetch_max(term, Ordering::Relaxed);
        let mut arenas = lock(&self.arenas);
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let many = arenas.len() > keep;
        let addresses = arenas.values().map(|arena| arena.bytes()).fold(0, u64::saturating_add);
        let at_once = keep == 0 || addresses > ADDRESSES_KEPT;
        let is_unused = |arena: &Arc<ReadableArena>| {
            let is_idle = step.saturating_sub(arena.last_used()) > STEPS_KEPT;
            Arc::strong_count(arena) == 1 && (at_once || is_idle)
        };
        let forgotten: Vec<_> =
            arenas.extract_if(|key, arena| key.2 < term || (many && is_unused(arena))).collect();
        drop(arenas);
        // Their servers are told.
        drop(forgotten);
    }
}

/// A server's word that it does not hold a block.
fn said_by(server: ServerId, location: &Location, error: Error) -> Error {
    let error = error.about(location.server);
    if server == location.server {
        return error.during(server);
    }
    error.during(format_args!("{server}, in the place of {}", location.server))
}
