//! The servers that hold blocks, as a reader reaches them: their arenas, mapped once, and fetches.

use crate::buffers::Buffers;
use crate::group::Group;
use crate::pins::{PIN_BYTES, Pins};
use crate::rpc::{Rpc, lock, unexpected};
use forebay_core::block::Location;
use forebay_core::ids::ServerId;
use forebay_core::tiles::{TileCache, TileMap};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::ranges::RangeSet;
use forebay_store::{Access, Mapping, PAGE, pages};
use forebay_transport::Kind;
use forebay_wire::message::{Part, Role, ToClient, ToServer};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Connections and mappings of one reader.
#[derive(Debug)]
pub(crate) struct Holders {
    group: Group,
    /// For bytes that are copied or fetched.
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) pins: Pins,
    connections: Mutex<HashMap<ServerId, Arc<Rpc>>>,
    arenas: Mutex<HashMap<(ServerId, u32), Arc<ReadableArena>>>,
    tiles: Mutex<TileCache>,
    /// Who answers for arenas of servers that are gone.
    answers: Mutex<HashMap<(ServerId, u32), (ServerId, u32)>>,
}

/// An arena, for reading.
#[derive(Debug)]
pub(crate) struct ReadableArena {
    mapped: Mapped,
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
    fn new(file: OwnedFd, bytes: u64) -> ReadableArena {
        let mapped = match Mapping::new(file.as_fd(), bytes, Access::Read) {
            Ok(mapping) => Mapped::Whole(Arc::new(mapping), Mutex::default()),
            Err(_) => Mapped::Parts(file),
        };
        ReadableArena { mapped }
    }

    /// A mapping that shows a range, and where the range starts in it.
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

    /// Whether nobody looks at it.
    fn is_unused(self: &Arc<ReadableArena>) -> bool {
        let shown = match &self.mapped {
            Mapped::Whole(mapping, _) => Arc::strong_count(mapping) > 1,
            Mapped::Parts(_) => false,
        };
        Arc::strong_count(self) == 1 && !shown
    }
}

impl Holders {
    pub(crate) fn new(group: Group) -> Holders {
        Holders::with_pins(group, PIN_BYTES)
    }

    /// As [`Holders::new`], with another bound on what arrays may pin.
    pub(crate) fn with_pins(group: Group, pin_bytes: u64) -> Holders {
        let (buffers, pins) = (Arc::default(), Pins::new(pin_bytes));
        Holders {
            group,
            buffers,
            pins,
            connections: Mutex::default(),
            arenas: Mutex::default(),
            tiles: Mutex::default(),
            answers: Mutex::default(),
        }
    }

    /// Ends the connections to them. Does not wait.
    pub(crate) fn hang_up(&self) {
        lock(&self.connections).drain().for_each(|(_, rpc)| rpc.hang_up());
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Which servers answer for which parts of a field that this hash names.
    pub(crate) fn tiles(&self, hash: u64, shape: Option<&[u64]>) -> TileMap {
        lock(&self.tiles).map(&self.group.known().file.seats, hash, shape)
    }

    /// Asks several servers at once, each its own question; their answers in the order of their ids. The time
    /// that one takes to connect is its own.
    pub(crate) fn ask_all(
        &self,
        questions: impl IntoIterator<Item = (ServerId, ToServer)>,
        patience: Duration,
        what: &str,
    ) -> Vec<(ServerId, Result<ToClient>)> {
        let mut questions: Vec<(ServerId, ToServer)> = questions.into_iter().collect();
        questions.sort_by_key(|(server, _)| *server);
        let connections: Vec<_> = questions.iter().map(|(server, _)| self.connection(*server)).collect();
        let asked: Vec<_> = questions
            .iter()
            .zip(&connections)
            .map(|((server, question), rpc)| {
                let asked = match rpc {
                    Ok(rpc) => rpc.ask(question, None, patience),
                    Err(error) => Err(error.clone()),
                };
                (*server, asked)
            })
            .collect();
        asked
            .into_iter()
            .map(|(server, asked)| (server, asked.and_then(|asked| asked.answer(what)).map(|a| a.message)))
            .collect()
    }

    /// The connection to a server, made at first use and again when it broke.
    pub(crate) fn connection(&self, server: ServerId) -> Result<Arc<Rpc>> {
        let mut connections = lock(&self.connections);
        if let Some(rpc) = connections.get(&server).filter(|rpc| !rpc.is_broken()) {
            return Ok(rpc.clone());
        }
        let rpc = Arc::new(self.group.connect(server, Role::Consumer)?);
        connections.insert(server, rpc.clone());
        Ok(rpc)
    }

    /// Uses a connection that exists already for this server.
    pub(crate) fn adopt(&self, server: ServerId, rpc: Arc<Rpc>) {
        lock(&self.connections).insert(server, rpc);
    }

    /// The arena that a block is in; `None` if its server is reached over the network.
    pub(crate) fn arena(&self, location: &Location) -> Result<Option<Arc<ReadableArena>>> {
        let key = (location.server, location.arena);
        if let Some(arena) = lock(&self.arenas).get(&key) {
            return Ok(Some(arena.clone()));
        }
        let mut answer = self.at_holder(location, |rpc, arena| {
            if rpc.kind() != Kind::Shm {
                return Ok(None);
            }
            rpc.call(&ToServer::OpenArena { arena }, "to share an arena").map(Some)
        })?;
        let Some(answer) = &mut answer else { return Ok(None) };
        let (ToClient::Arena { bytes }, Some(file)) = (&answer.message, answer.descriptors.pop()) else {
            return Err(unexpected(&answer.message));
        };
        let arena = Arc::new(ReadableArena::new(file, *bytes));
        lock(&self.arenas).insert(key, arena.clone());
        Ok(Some(arena))
    }

    /// Asks the server that holds a block, under the arena's number there; if it is gone, the one that answers for it.
    fn at_holder<T>(
        &self,
        location: &Location,
        mut ask: impl FnMut(&Arc<Rpc>, u32) -> Result<T>,
    ) -> Result<T> {
        let own = (location.server, location.arena);
        let known = lock(&self.answers).get(&own).copied();
        let (server, arena) = known.unwrap_or(own);
        match self.connection(server).and_then(|rpc| ask(&rpc, arena)) {
            Err(error) if error.kind == ErrorKind::Unreachable => {
                let (server, arena) = self.who_answers(own, server, error)?;
                lock(&self.answers).insert(own, (server, arena));
                ask(&self.connection(server)?, arena)
            }
            asked => asked,
        }
    }

    /// Who answers for an arena of a server that is gone, as any other server tells. `tried` is who did before.
    fn who_answers(&self, own: (ServerId, u32), tried: ServerId, why: Error) -> Result<(ServerId, u32)> {
        let question = ToServer::WhoAnswers { server: own.0, arena: own.1 };
        let _ = self.group.refresh();
        let members = self.group.known().view.members.clone();
        for server in members.into_iter().filter(|server| *server != own.0 && *server != tried) {
            match self.connection(server).and_then(|rpc| rpc.call(&question, "to say who holds a block")) {
                Ok(answer) => match answer.message {
                    ToClient::AnswersFor { server, arena } => return Ok((server, arena)),
                    other => return Err(unexpected(&other)),
                },
                Err(error) if error.kind == ErrorKind::Unreachable => {}
                Err(error) if error.kind == ErrorKind::Lost => {
                    return Err(Error::new(ErrorKind::Lost, format!("{why}; what it held is lost")));
                }
                Err(error) => return Err(error),
            }
        }
        // The data had one holder, and that is gone.
        Err(Error::new(ErrorKind::Lost, format!("{why}; what it held is lost")))
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
        self.at_holder(location, |rpc, arena| {
            let fetch = ToServer::Fetch {
                arena,
                offset: location.offset,
                bytes: location.bytes,
                generation: location.generation,
                stored: stored.into(),
                element: element as u8,
                part: part.clone(),
            };
            rpc.fetch(&fetch, target, "to send a block")
        })
    }

    /// Forgets arenas that no longer exist, so that their memory can go: keeps those that are in use.
    pub(crate) fn forget_unused_arenas(&self, keep: usize) {
        let mut arenas = lock(&self.arenas);
        if arenas.len() > keep {
            arenas.retain(|_, arena| !arena.is_unused());
        }
    }
}
