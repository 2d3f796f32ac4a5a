//! The handle of a space: what it consists of, and which server it asks first.

use crate::connection::group::Group;
use crate::connection::rpc::lock;
use crate::declared::SpaceOptions;
use crate::put_target::PutTarget;
use crate::reading::server_pool::ServerPool;
use forebay_core::contract::Field;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::steps::check_replicas_among;
use forebay_core::tiles::{TileMap, hash_in_space};
use forebay_core::{Error, Result};
use forebay_transport::fork::ForkGuard;
use forebay_wire::connection::Role;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Arrays by name, step and region. What is put stays until it is removed.
#[derive(Debug)]
pub struct Space {
    pub(super) guard: ForkGuard,
    pub(super) pool: ServerPool,
    pub(super) replicas: u32,
    /// From this number follows which server is the handle's home.
    number: u32,
    home: Mutex<ServerId>,
    /// Servers that take nothing any more, as they have said.
    pub(super) leaving: Mutex<Vec<ServerId>>,
    /// Tells this handle's puts from those of others; made at random.
    pub(super) by: u32,
    /// The number of the next put; the first is made at random, too.
    pub(super) numbers: AtomicU64,
    /// The home server with its arena, once a large array was put over shared memory.
    pub(super) target: Mutex<Option<Arc<PutTarget>>>,
    /// Fields as this handle saw them last: from the shape follows which servers it asks.
    pub(super) known: Mutex<HashMap<String, Field>>,
}

impl Space {
    /// Finds the group. Connects at first use.
    pub fn open(options: &SpaceOptions) -> Result<Space> {
        let group = Group::find(&options.group)?;
        check_replicas_among(options.replicas, group.known().view.members.len())?;
        // Handles are spread over the servers by process and handle, since there is no rank.
        static HANDLES: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id().wrapping_add(HANDLES.fetch_add(1, Ordering::Relaxed));
        let home = Mutex::new(group.home_of(number)?);
        Ok(Space {
            guard: ForkGuard::new(),
            pool: ServerPool::new(group, Role::Space),
            replicas: options.replicas,
            number,
            home,
            leaving: Mutex::default(),
            by: random() as u32,
            numbers: AtomicU64::new(random()),
            target: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// Fails in a process that was forked from the one that opened it.
    pub fn check_process(&self) -> Result<()> {
        self.guard.check("space")
    }

    /// The server that this handle puts blocks to. Replaced when that server has gone, or leaves.
    pub(super) fn home(&self) -> Result<ServerId> {
        let group = self.pool.group();
        let leaving = lock(&self.leaving).clone();
        let mut home = lock(&self.home);
        if leaving.contains(&home) || !group.known().view.members.contains(&home) {
            *home = group.home_of_but(self.number, &leaving)?;
        }
        Ok(*home)
    }

    /// The server that describes a field at a step.
    pub(super) fn describer(&self, field: &str, step: StepNumber) -> Result<ServerId> {
        let describer = self.pool.group().known().file.shards.owner_of(hash_in_space(field, step));
        describer.ok_or_else(|| Error::not_found("the group has no server"))
    }

    pub(super) fn tiles(&self, field: &Field, step: StepNumber) -> TileMap {
        self.pool.tiles(hash_in_space(&field.name, step), field.tiled_shape())
    }
}

/// A number that nobody foresees.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The error of a server that does not own what the connection file has it own: one of the two is behind.
pub(super) fn not_owned(server: ServerId, field: &str, step: StepNumber) -> Error {
    let text = format!("{server} does not own what was asked of field '{field}' at step {step}");
    Error::unreachable(text).about(server)
}
