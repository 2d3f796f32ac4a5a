//! The servers that hold blocks, as a reader reaches them: their arenas, mapped once, and fetches.

use crate::buffers::Buffers;
use crate::connections::Connections;
use crate::fork::ForkGuard;
use crate::group::{Group, look_again};
use crate::pins::{PIN_BYTES, Pins};
use crate::presence::{ANSWER, Tries};
use crate::rpc::{Rpc, lock, unexpected};
use crate::storage::GRACE;
use forebay_core::block::Location;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::tiles::{TileCache, TileMap};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::ranges::RangeSet;
use forebay_store::{Access, Mapping, PAGE, pages};
use forebay_transport::{Kind, blocking};
use forebay_wire::client::reading::{Fetch, Part, Reply, Request, SUCCESSORS_PATIENCE};
use forebay_wire::connection::Role;
use forebay_wire::protocol;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// How many arenas stay mapped that nobody looks at, so that they need not be mapped again at each step.
pub(crate) const ARENAS_KEPT: usize = 64;

/// A block as its record says where it is: the server, the arena, the offset and the generation.
type BlockPlace = (ServerId, u32, u64, u64);

/// Of how many blocks is remembered where they are now.
const MOVED_MAX: usize = 1 << 16;
/// How many servers may die one after the other while one block is read.
const DEATHS_MAX: usize = 4;

/// Connections and mappings of one reader.
#[derive(Debug)]
pub(crate) struct Holders {
    group: Group,
    /// For bytes that are copied or fetched.
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) pins: Pins,
    connections: Connections,
    /// By their servers, numbers and the term in which was told of what is looked at there.
    arenas: Mutex<HashMap<(ServerId, u32, Epoch), Arc<ReadableArena>>>,
    /// The latest term in which it was told of anything.
    term: AtomicU64,
    tiles: Mutex<TileCache>,
    /// Servers that did not answer when they were asked last who holds something.
    silent: Mutex<BTreeSet<ServerId>>,
    /// Where blocks are now that servers held which are gone.
    moved: Mutex<HashMap<BlockPlace, (ServerId, u32)>>,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Told<R> {
    pub(crate) message: R,
    pub(crate) rpc: Arc<Rpc>,
    /// The number of the question.
    pub(crate) request: u64,
}

/// An arena, for reading. Its server is told when nobody looks at it any more.
#[derive(Debug)]
pub(crate) struct ReadableArena {
    mapped: Mapped,
    guard: ForkGuard,
    rpc: Arc<Rpc>,
    /// As in [`Reply::Arena`].
    reader: u64,
}

#[derive(Debug)]
enum Mapped {
    /// The whole arena, and what of it was brought into the mapping.
    Whole(Arc<Mapping>, Mutex<RangeSet>),
    /// Its address space is not to be had (arenas are large, and there is one for each rank): each block is mapped by
    /// itself.
    Parts(OwnedFd),
}

impl ReadableArena {
    fn new(file: OwnedFd, bytes: u64, rpc: Arc<Rpc>, reader: u64) -> ReadableArena {
        let mapped = match Mapping::new(file.as_fd(), bytes, Access::Read) {
            Ok(mapping) => Mapped::Whole(Arc::new(mapping), Mutex::default()),
            Err(_) => Mapped::Parts(file),
        };
        ReadableArena { mapped, guard: ForkGuard::new(), rpc, reader }
    }

    /// A mapping that shows a range, and where the range starts in it. Valid as long as this arena lives.
    pub(crate) fn show(&self, offset: u64, bytes: u64) -> Result<(Arc<Mapping>, u64)> {
        match &self.mapped {
            Mapped::Whole(mapping, _) => Ok((mapping.clone(), offset)),
            Mapped::Parts(file) => {
                let before = offset % PAGE;
                let part = Mapping::part(file.as_fd(), offset - before, pages(before + bytes), Access::Read)?;
                Ok((Arc::new(part), before))
            }
        }
    }

    /// As [`ReadableArena::show`], and brings the range into the mapping in one go, before all of it is read.
    pub(crate) fn show_all(&self, offset: u64, bytes: u64) -> Result<(Arc<Mapping>, u64)> {
        let (mapping, start) = self.show(offset, bytes)?;
        match &self.mapped {
            Mapped::Whole(_, populated) => {
                let mut populated = lock(populated);
                let end = offset + pages(bytes);
                if !populated.contains(offset, end) {
                    mapping.populate(offset, bytes);
                    populated.insert(offset, end);
                }
            }
            Mapped::Parts(_) => mapping.populate(start, bytes),
        }
        Ok((mapping, start))
    }
}

impl Drop for ReadableArena {
    fn drop(&mut self) {
        if !self.guard.is_child() {
            let _ = self.rpc.tell(&Request::CloseArena { reader: self.reader });
        }
    }
}

/// A server's word that it does not hold a block.
fn said_by(server: ServerId, location: &Location, error: Error) -> Error {
    if server == location.server {
        return error.during(server);
    }
    error.during(format_args!("{server}, in the place of {}", location.server))
}

impl Holders {
    pub(crate) fn new(group: Group, role: Role) -> Holders {
        Holders::with_pins(group, role, PIN_BYTES)
    }

    /// As [`Holders::new`], with another bound on what arrays may pin.
    pub(crate) fn with_pins(group: Group, role: Role, pin_bytes: u64) -> Holders {
        let (buffers, pins) = (Arc::default(), Pins::new(pin_bytes));
        Holders {
            connections: Connections::new(group.clone(), role),
            group,
            buffers,
            pins,
            arenas: Mutex::default(),
            term: AtomicU64::new(0),
            tiles: Mutex::default(),
            silent: Mutex::default(),
            moved: Mutex::default(),
        }
    }

    /// Ends the connections to them. Does not wait.
    pub(crate) fn hang_up(&self) {
        self.connections.hang_up();
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Which servers answer for which parts of a field that this hash names.
    pub(crate) fn tiles(&self, hash: u64, shape: Option<&[u64]>) -> TileMap {
        lock(&self.tiles).map(&self.group.known().file.seats, hash, shape)
    }

    /// Asks several servers at once, each its own question; their answers in the order of their ids, with the connections
    /// over which they came and the numbers of the questions. Connects to one after the other where that was not done before;
    /// one that stands still may take all of the time until the deadline for that.
    pub(crate) fn ask_all<Q: protocol::Request>(
        &self,
        servers: impl IntoIterator<Item = ServerId>,
        question: impl Fn(ServerId) -> Q,
        deadline: Instant,
        what: &str,
    ) -> Vec<(ServerId, Result<Told<Q::Reply>>)> {
        let servers: BTreeSet<ServerId> = servers.into_iter().collect();
        let connections: Vec<_> =
            servers.iter().map(|id| (*id, self.connection_until(*id, deadline))).collect();
        let asked: Vec<_> = connections
            .iter()
            .map(|(server, rpc)| {
                let rpc = rpc.as_ref().map_err(Error::clone)?;
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Error::timeout(format!(
                        "the deadline passed before {server} was asked {what}"
                    )));
                }
                Ok((rpc.clone(), rpc.ask(&question(*server), None, left)?))
            })
            .collect();
        let told = asked.into_iter().map(|asked| {
            let (rpc, asked) = asked?;
            let request = asked.request();
            Ok(Told { message: asked.answer(what)?.message, rpc, request })
        });
        servers.iter().copied().zip(told).collect()
    }

    /// The connection to a server, made at first use and again when it broke.
    pub(crate) fn connection(&self, server: ServerId) -> Result<Arc<Rpc>> {
        self.connections.get(server, Instant::now() + self.group.limit())
    }

    /// As [`Holders::connection`], waiting no longer than until a deadline.
    pub(crate) fn connection_until(&self, server: ServerId, deadline: Instant) -> Result<Arc<Rpc>> {
        self.connections.get(server, deadline.min(Instant::now() + self.group.limit()))
    }

    /// Uses a connection that exists already for this server.
    pub(crate) fn adopt(&self, server: ServerId, rpc: Arc<Rpc>) {
        self.connections.adopt(server, rpc);
    }

    /// The arena that a block is in of which was told in this term; `None` if its server is reached over the network.
    pub(crate) fn arena(&self, location: &Location, term: Epoch) -> Result<Option<Arc<ReadableArena>>> {
        // One that is mapped shows what is in it, whether its server lives or not.
        if let Some(arena) = lock(&self.arenas).get(&(location.server, location.arena, term)) {
            return Ok(Some(arena.clone()));
        }
        self.at_holder(location, |rpc, (server, arena)| {
            let key = (server, arena, term);
            if let Some(arena) = lock(&self.arenas).get(&key) {
                return Ok(Some(arena.clone()));
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
            if term >= self.term.load(Ordering::Relaxed) {
                lock(&self.arenas).insert(key, arena.clone());
            }
            Ok(Some(arena))
        })
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
            let why = Error::unreachable(format!("{} is gone", location.server));
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

    /// Who holds a block whose server is gone, as those say who answer for that. `tried` was asked for it just now.
    fn find_holder(&self, location: &Location, tried: ServerId, why: &Error) -> Result<(ServerId, u32)> {
        let Location { offset, bytes, generation, .. } = *location;
        let mut tries = Tries::until(Instant::now() + self.group.limit());
        loop {
            let _ = self.group.refresh();
            let mut undecided = None;
            for (server, arena) in self.who_answers(location, tried, &mut undecided)? {
                let has = Request::HasBlock { arena, offset, bytes, generation };
                let has = self.connection(server).and_then(|rpc| rpc.call(&has, "to say if it has a block"));
                match has {
                    Ok(_) => return Ok((server, arena)),
                    // Another one that answers for it may hold it.
                    Err(error) if error.kind == ErrorKind::Lost => {}
                    Err(error) if error.kind == ErrorKind::Unreachable => undecided = Some(error),
                    Err(error) => return Err(error),
                }
            }
            match undecided {
                Some(_) if blocking::interrupted() => {
                    return Err(blocking::interrupted_while("another server to say who holds a block"));
                }
                Some(_) if tries.go_on(&self.group) && self.group.one_is_there() => look_again(),
                Some(Error { kind, text }) => return Err(Error::new(kind, format!("{}; {text}", why.text))),
                // The data had one holder, and that is gone.
                None => {
                    return Err(Error::new(ErrorKind::Lost, format!("{why}; what it held is lost")));
                }
            }
        }
    }

    /// The servers that answer for the arena of a server that is gone, as any other one tells; none if all say that nobody
    /// does.
    fn who_answers(
        &self,
        location: &Location,
        tried: ServerId,
        undecided: &mut Option<Error>,
    ) -> Result<Vec<(ServerId, u32)>> {
        let question = Request::FindSuccessors { server: location.server, arena: location.arena };
        let (mut unreached, mut none_does) = (None, false);
        let mut members = self.group.known().view.members.clone();
        members.retain(|server| *server != location.server && *server != tried);
        // One after the other: those last that did not answer the last time.
        members.sort_by_key(|server| lock(&self.silent).contains(server));
        for server in members {
            let rpc = match self.connection_until(server, Instant::now() + ANSWER) {
                Ok(rpc) => rpc,
                Err(error) if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Timeout) => {
                    unreached = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            // The server waits no longer until it knows; where this one stands still, another one can tell as well.
            let patience = rpc.patience().min(SUCCESSORS_PATIENCE + GRACE);
            let told = rpc.call_within(&question, None, patience, "to say who holds a block");
            match &told {
                Err(error) if error.kind == ErrorKind::Timeout => lock(&self.silent).insert(server),
                _ => lock(&self.silent).remove(&server),
            };
            match told {
                Ok(answer) => match answer.message {
                    Reply::Successors { servers } => return Ok(servers),
                    other => return Err(unexpected(&other)),
                },
                // It takes that one for a member still.
                Err(error) if error.kind == ErrorKind::Unreachable && !rpc.is_broken() => {
                    *undecided = Some(error);
                }
                Err(error) if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Timeout) => {
                    unreached = Some(error);
                }
                Err(error) if error.kind == ErrorKind::Lost => none_does = true,
                Err(error) => return Err(error),
            }
        }
        // One that is gone, too, or stands still may be the one that does: who is left says so soon.
        if !none_does && let Some(error) = unreached {
            undecided.get_or_insert(error);
        }
        Ok(Vec::new())
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

    /// Forgets arenas that nobody looks at if there are many: they may not exist any more, and their memory is to go. Those
    /// of an earlier term than this one are remembered only by who looks at them: servers wait for that before they use
    /// their memory again.
    pub(crate) fn forget_unused_arenas(&self, keep: usize, term: Epoch) {
        self.term.fetch_max(term, Ordering::Relaxed);
        let mut arenas = lock(&self.arenas);
        let many = arenas.len() > keep;
        let is_unused = |arena: &Arc<ReadableArena>| Arc::strong_count(arena) == 1;
        let forgotten: Vec<_> =
            arenas.extract_if(|key, arena| key.2 < term || (many && is_unused(arena))).collect();
        drop(arenas);
        // Their servers are told.
        drop(forgotten);
    }
}
