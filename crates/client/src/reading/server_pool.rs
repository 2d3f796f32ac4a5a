//! The servers that hold blocks, as one reader reaches them: connections, and arenas that are mapped once.

use crate::connection::connection_pool::ConnectionPool;
use crate::connection::group::Group;
use crate::connection::rpc::{Rpc, lock};
use crate::reading::buffers::Buffers;
use crate::reading::pins::{PIN_BYTES, Pins};
use crate::reading::readable_arena::ReadableArena;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::tiles::{TileCache, TileMap};
use forebay_core::{Error, Result};
use forebay_wire::connection::Role;
use forebay_wire::protocol;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A block's place as its record says it: the server, the arena, the offset and the generation.
pub(super) type BlockPlace = (ServerId, u32, u64, u64);

/// Connections and mappings of one reader.
#[derive(Debug)]
pub(crate) struct ServerPool {
    pub(super) group: Group,
    /// For bytes that are copied or fetched.
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) pins: Pins,
    connections: ConnectionPool,
    /// By the server, the number there, and the term in which this reader was told of what it looks at there.
    pub(super) arenas: Mutex<HashMap<(ServerId, u32, Epoch), Arc<ReadableArena>>>,
    /// The latest term in which this reader was told of anything.
    pub(super) term: AtomicU64,
    /// How many steps have come.
    pub(super) steps: AtomicU64,
    tiles: Mutex<TileCache>,
    /// Servers that did not answer when this reader asked them last who holds something.
    pub(super) silent: Mutex<BTreeSet<ServerId>>,
    /// Where blocks are now whose first server is gone.
    pub(super) moved: Mutex<HashMap<BlockPlace, (ServerId, u32)>>,
}

/// The answer of a server of the pool.
#[derive(Debug)]
pub(crate) struct PoolAnswer<R> {
    pub(crate) message: R,
    /// The connection over which it came.
    pub(crate) rpc: Arc<Rpc>,
    /// The number of the request.
    pub(crate) request: u64,
}

impl ServerPool {
    pub(crate) fn new(group: Group, role: Role) -> ServerPool {
        ServerPool::with_pins(group, role, PIN_BYTES)
    }

    /// As [`ServerPool::new`], with another bound on what arrays may pin.
    pub(crate) fn with_pins(group: Group, role: Role, pin_bytes: u64) -> ServerPool {
        let (buffers, pins) = (Arc::default(), Pins::new(pin_bytes));
        ServerPool {
            connections: ConnectionPool::new(group.clone(), role),
            group,
            buffers,
            pins,
            arenas: Mutex::default(),
            term: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            tiles: Mutex::default(),
            silent: Mutex::default(),
            moved: Mutex::default(),
        }
    }

    /// Ends the connections. Does not wait.
    pub(crate) fn hang_up(&self) {
        self.connections.hang_up();
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Which servers answer for which parts of a field that this hash names.
    pub(crate) fn tiles(&self, hash: u64, shape: Option<&[u64]>) -> TileMap {
        lock(&self.tiles).map(&self.group.known().file.shards, hash, shape)
    }

    /// Asks several servers at once, each its own question; their answers in the order of their ids, with the connections
    /// over which they came and the numbers of the requests. Connects to one server after the other where there is no connection
    /// yet; a server that stands still may take all of the time until the deadline for that.
    pub(crate) fn ask_all<Q: protocol::Request>(
        &self,
        servers: impl IntoIterator<Item = ServerId>,
        question: impl Fn(ServerId) -> Q,
        deadline: Instant,
        what: &str,
    ) -> Vec<(ServerId, Result<PoolAnswer<Q::Reply>>)> {
        let servers: BTreeSet<ServerId> = servers.into_iter().collect();
        let connections: Vec<_> =
            servers.iter().map(|id| (*id, self.connection_until(*id, deadline))).collect();
        let asked: Vec<_> = connections
            .iter()
            .map(|(server, rpc)| {
                let rpc = rpc.as_ref().map_err(Error::clone)?;
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let text = format!("the deadline passed before {server} was asked {what}");
                    return Err(Error::timeout(text).about(*server));
                }
                Ok((rpc.clone(), rpc.ask(&question(*server), None, left)?))
            })
            .collect();
        let told = asked.into_iter().map(|asked| {
            let (rpc, asked) = asked?;
            let request = asked.request();
            Ok(PoolAnswer { message: asked.answer(what)?.message, rpc, request })
        });
        servers.iter().copied().zip(told).collect()
    }

    /// The connection to a server, made at first use and again when it broke.
    pub(crate) fn connection(&self, server: ServerId) -> Result<Arc<Rpc>> {
        self.connections.get(server, Instant::now() + self.group.limit())
    }

    /// As [`ServerPool::connection`], waiting no longer than until a deadline.
    pub(crate) fn connection_until(&self, server: ServerId, deadline: Instant) -> Result<Arc<Rpc>> {
        self.connections.get(server, deadline.min(Instant::now() + self.group.limit()))
    }

    /// Uses a connection that exists already for this server.
    pub(crate) fn adopt(&self, server: ServerId, rpc: Arc<Rpc>) {
        self.connections.adopt(server, rpc);
    }
}
