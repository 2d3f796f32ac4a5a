//! The connections of one reader to servers: made at first use, and again when they broke.

use crate::group::Group;
use crate::rpc::{Rpc, lock};
use crate::turn::Turn;
use forebay_core::Result;
use forebay_core::ids::ServerId;
use forebay_wire::connection::Role;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One connection to each server.
#[derive(Debug)]
pub(crate) struct Connections {
    group: Group,
    /// In which role it speaks.
    role: Role,
    by_server: Mutex<HashMap<ServerId, Arc<ToOne>>>,
}

/// The connection to one server.
#[derive(Debug, Default)]
struct ToOne {
    rpc: Mutex<Option<Arc<Rpc>>>,
    /// Of the threads that need it one connects. Those that need another server do not wait for it.
    connecting: Turn,
}

impl ToOne {
    fn usable(&self) -> Option<Arc<Rpc>> {
        lock(&self.rpc).clone().filter(|rpc| !rpc.is_broken())
    }
}

impl Connections {
    pub(crate) fn new(group: Group, role: Role) -> Connections {
        Connections { group, role, by_server: Mutex::default() }
    }

    /// The connection to a server. Waits until a deadline for it to be made.
    pub(crate) fn get(&self, server: ServerId, deadline: Instant) -> Result<Arc<Rpc>> {
        let to_one = self.to(server);
        if let Some(rpc) = to_one.usable() {
            return Ok(rpc);
        }
        let what = format_args!("another thread to connect to {server}");
        let _turn = to_one.connecting.take(deadline, what)?;
        // That may have done it meanwhile.
        if let Some(rpc) = to_one.usable() {
            return Ok(rpc);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let rpc = Arc::new(self.group.within(left).connect(server, self.role.clone())?);
        *lock(&to_one.rpc) = Some(rpc.clone());
        Ok(rpc)
    }

    /// Uses a connection that exists already.
    pub(crate) fn adopt(&self, server: ServerId, rpc: Arc<Rpc>) {
        *lock(&self.to(server).rpc) = Some(rpc);
    }

    /// Ends them. Does not wait.
    pub(crate) fn hang_up(&self) {
        for (_, to_one) in lock(&self.by_server).drain() {
            if let Some(rpc) = lock(&to_one.rpc).take() {
                rpc.hang_up();
            }
        }
    }

    fn to(&self, server: ServerId) -> Arc<ToOne> {
        lock(&self.by_server).entry(server).or_default().clone()
    }
}
