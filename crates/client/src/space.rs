//! The space: arrays put and got by name, step and region, whoever put them.

use crate::assemble::{self, Selection};
use crate::fork::ForkGuard;
use crate::group::{Group, GroupOptions};
use crate::holder::Holders;
use crate::rpc::{Payload, Rpc, lock, unexpected};
use crate::storage::Storage;
use forebay_core::block::{Extent, INLINE_MAX};
use forebay_core::contract::Field;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::region::Region;
use forebay_core::steps::FieldReport;
use forebay_core::view::hash_name;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::{Source, Target};
use forebay_transport::Kind;
use forebay_wire::message::{Bytes, PutBlock, ToClient, ToServer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Up to this size the bytes of a put go over the socket although memory is shared: one question instead of
/// two, which costs more than copying so little twice.
const SOCKET_MAX: u64 = 64 << 10;

/// Arrays by name, step and region. What is put stays until it is removed.
#[derive(Debug)]
pub struct Space {
    guard: ForkGuard,
    holders: Holders,
    home: ServerId,
    numbers: AtomicU64,
    /// Made at the first put of a large array over shared memory.
    storage: Mutex<Option<Arc<Storage>>>,
}

/// An array that is put.
#[derive(Debug, Clone)]
pub struct SpacePut {
    /// The field, with its global shape.
    pub field: Field,
    /// The step.
    pub step: StepNumber,
    /// The box.
    pub extent: Extent,
}

impl Space {
    /// Finds the group. Connects at first use.
    pub fn open(options: &GroupOptions) -> Result<Space> {
        let group = Group::find(options)?;
        // Spread over the servers by process, since there is no rank.
        let home = group.home_of(std::process::id())?;
        Ok(Space {
            guard: ForkGuard::new(),
            holders: Holders::new(group),
            home,
            numbers: AtomicU64::new(0),
            storage: Mutex::default(),
        })
    }

    fn owner(&self, field: &str, step: StepNumber) -> Result<ServerId> {
        let owner = self.holders.group().view().owner_of(hash_name(field).wrapping_add(step));
        owner.ok_or_else(|| Error::not_found("the group has no server"))
    }

    /// Puts an array. Waits until a server holds it and its directory knows it.
    pub fn put(&self, put: &SpacePut, source: &Source<'_>) -> Result<()> {
        self.guard.check("space")?;
        put.field.check()?;
        let stored = put.extent.stored_shape();
        if source.shape() != &stored[..] {
            return Err(Error::out_of_bounds(format!(
                "the array has shape {:?}, the box {:?}",
                source.shape(),
                &stored[..]
            )));
        }
        let bytes = put.extent.bytes(put.field.dtype)?;
        let rpc = self.holders.connection(self.home)?;
        if rpc.kind() == Kind::Shm && bytes > SOCKET_MAX {
            return self.put_through_arena(put, source, rpc, bytes);
        }
        let gathered;
        let dense = match source.as_dense() {
            Some(dense) => dense,
            None => {
                gathered = source.to_vec(None);
                &gathered
            }
        };
        if dense.len() <= INLINE_MAX {
            // A small block goes straight to the directory's owner, so that reading it is one hop.
            let owner = self.holders.connection(self.owner(&put.field.name, put.step)?)?;
            return self.keep(&owner, put, Bytes::Inline(dense.into()), None);
        }
        self.keep(&rpc, put, Bytes::Payload, Some(Payload(dense)))
    }

    /// Puts by one copy into memory that is shared with the server.
    fn put_through_arena(
        &self,
        put: &SpacePut,
        source: &Source<'_>,
        rpc: Arc<Rpc>,
        bytes: u64,
    ) -> Result<()> {
        let storage = self.storage(rpc)?;
        let full = || Error::new(ErrorKind::Full, format!("{} has no room for {bytes} bytes", self.home));
        let grant = storage.reserve(bytes)?.ok_or_else(full)?;
        let Some(arena) = &storage.arena else { return Err(Error::protocol("no arena came to write to")) };
        arena.populate(&grant);
        if let Err(error) = source.copy_to_mapping(&arena.mapping, grant.offset, None) {
            storage.give_back(&grant)?;
            return Err(error);
        }
        let granted =
            Bytes::Granted { arena: grant.arena, offset: grant.offset, generation: grant.generation };
        self.keep(&storage.rpc, put, granted, None)
    }

    /// The home server with an arena to write to; another one after the connection broke.
    fn storage(&self, rpc: Arc<Rpc>) -> Result<Arc<Storage>> {
        let mut storage = lock(&self.storage);
        if let Some(known) = storage.as_ref().filter(|known| Arc::ptr_eq(&known.rpc, &rpc)) {
            return Ok(known.clone());
        }
        let opened = Arc::new(Storage::open(self.home, rpc, &ToServer::SpaceStore)?);
        Ok(storage.insert(opened).clone())
    }

    /// Waits until a server keeps a block and its directory knows it.
    fn keep(&self, rpc: &Rpc, put: &SpacePut, bytes: Bytes, payload: Option<Payload<'_>>) -> Result<()> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let field = put.field.name.clone();
        let block = PutBlock { field, number, level: 0, extent: put.extent.clone(), stats: None, bytes };
        let message = ToServer::SpacePut { field: put.field.clone(), step: put.step, block };
        rpc.call_within(&message, payload, rpc.patience(), "to keep an array").map(drop)
    }

    /// The field as it is at a step, waiting until something of it was put, no longer than `timeout`.
    pub fn field(&self, field: &str, step: StepNumber, timeout: Duration) -> Result<Field> {
        Ok(self.ask(field, step, None, timeout)?.report.field.clone())
    }

    /// Finds the blocks that meet a region, waiting until they cover it, no longer than `timeout`. The result
    /// keeps the blocks until it is dropped.
    pub fn find(
        &self,
        field: &str,
        step: StepNumber,
        region: &Region,
        timeout: Duration,
    ) -> Result<Found<'_>> {
        self.ask(field, step, Some(region), timeout)
    }

    fn ask(
        &self,
        field: &str,
        step: StepNumber,
        region: Option<&Region>,
        timeout: Duration,
    ) -> Result<Found<'_>> {
        self.guard.check("space")?;
        let rpc = self.holders.connection(self.owner(field, step)?)?;
        let find = ToServer::SpaceFind {
            field: field.to_owned(),
            step,
            region: region.cloned(),
            patience_ms: timeout.as_millis() as u64,
        };
        let answer = rpc.call_within(&find, None, timeout + Duration::from_secs(2), "to find an array")?;
        match answer.message {
            ToClient::Found { report, lease } => Ok(Found { space: self, report: *report, step, lease }),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes what was put of a field at a step, on every server.
    pub fn remove(&self, field: &str, step: StepNumber) -> Result<()> {
        self.guard.check("space")?;
        let rpc = self.holders.connection(self.owner(field, step)?)?;
        rpc.call(&ToServer::SpaceRemove { field: field.to_owned(), step }, "to remove an array").map(drop)
    }
}

/// Blocks that were found; held until this is dropped.
#[derive(Debug)]
pub struct Found<'a> {
    space: &'a Space,
    report: FieldReport,
    step: StepNumber,
    lease: u64,
}

impl Found<'_> {
    /// The field.
    pub fn field(&self) -> &Field {
        &self.report.field
    }

    /// Copies exactly the selected elements into `target`.
    pub fn read(&self, selection: &Selection, target: &mut Target<'_>) -> Result<()> {
        let step = format!("step {}", self.step);
        assemble::read(&self.space.holders, &step, &self.report.field, &self.report.blocks, selection, target)
    }
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        let owner = self.space.owner(&self.report.field.name, self.step);
        if let Ok(rpc) = owner.and_then(|owner| self.space.holders.connection(owner)) {
            let _ = rpc.tell(&ToServer::SpaceRelease { lease: self.lease });
        }
    }
}
