//! One connection to each server that a handle talks to: made at first use, and again when it broke.

use crate::connection::deadline_mutex::DeadlineMutex;
use crate::connection::group::Group;
use crate::connection::rpc::{Rpc, lock};
use forebay_core::Result;
use forebay_core::ids::ServerId;
use forebay_wire::connection::Role;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One connection to each server.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    group: Group,
    /// The role in which this process speaks on them.
    role: Role,
    by_server: Mutex<HashMap<ServerId, Arc<Slot>>>,
}

/// The place of the connection to one server.
#[derive(Debug, Default)]
struct Slot {
    rpc: Mutex<Option<Arc<Rpc>>>,
    /// Held by the thread that connects, so that one connection is made. Threads that need another server do not wait for it.
    connecting: DeadlineMutex,
}

impl Slot {
    fn usable(&self) -> Option<Arc<Rpc>> {
        lock(&self.rpc).clone().filter(|rpc| !rpc.is_broken())
    }
}

impl ConnectionPool {
    pub(crate) fn new(group: Group, role: Role) -> ConnectionPool {
        ConnectionPool { group, role, by_server: Mutex::default() }
    }

    /// The connection to a server. Waits until a deadline for it to be made.
    pub(crate) fn get(&self, server: ServerId, deadline: Instant) -> Result<Arc<Rpc>> {
        let slot = self.slot(server);
        if let Some(rpc) = slot.usable() {
            return Ok(rpc);
        }
        let what = format_args!("another thread to connect to {server}");
        let _connecting = slot.connecting.lock_until(deadline, what)?;
        // Another thread may have connected meanwhile.
        if let Some(rpc) = slot.usable() {
            return Ok(rpc);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let rpc = Arc::new(self.group.within(left).connect(server, self.role.clone())?);
        *lock(&slot.rpc) = Some(rpc.clone());
        Ok(rpc)
    }

    /// Uses a connection that exists already.
    pub(crate) fn adopt(&self, server: ServerId, rpc: Arc<Rpc>) {
        *lock(&self.slot(server).rpc) = Some(rpc);
    }

    /// Ends all connections. Does not wait.
    pub(crate) fn hang_up(&self) {
        for (_, slot) in lock(&self.by_server).drain() {
            if let Some(rpc) = lock(&slot.rpc).take() {
                rpc.hang_up();
            }
        }
    }

    fn slot(&self, server: ServerId) -> Arc<Slot> {
        lock(&self.by_server).entry(server).or_default().clone()
    }
}
