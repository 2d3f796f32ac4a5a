//! Putting arrays into the space.

use crate::check_dtype::check_dtype;
use crate::connection::rpc::{Payload, Rpc, lock};
use crate::put_target::PutTarget;
use crate::space::handle::Space;
use forebay_core::block::{Extent, INLINE_MAX};
use forebay_core::contract::Field;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::region::Region;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Source;
use forebay_transport::Kind;
use forebay_wire::client::block::{BytesLocation, PutBlock};
use forebay_wire::client::space::{self, Reply, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Up to this size the bytes of a put go over the socket although memory is shared: one question instead of
/// two, which costs more than copying so little twice.
const SOCKET_MAX: u64 = 64 << 10;

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
    /// Puts an array. Waits until a server holds it, its directory knows it, and others hold its copies. If the server dies
    /// meanwhile, puts the array to another one.
    pub fn put(&self, put: &SpacePut, source: &Source<'_>) -> Result<()> {
        self.guard.check("space")?;
        put.field.check()?;
        check_dtype(&put.field, source.dtype())?;
        let global = put.field.shape.as_deref().unwrap_or_default();
        if put.field.whole && put.extent.interior() != Region::whole(global)? {
            return Err(Error::out_of_bounds(format!(
                "field '{}': only a whole array can be replaced, not {} of shape {global:?}",
                put.field.name,
                put.extent.interior()
            )));
        }
        let stored = put.extent.stored_shape();
        if source.shape() != &stored[..] {
            return Err(Error::out_of_bounds(format!(
                "the array has shape {:?}, the box {:?}",
                source.shape(),
                &stored[..]
            )));
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let group = self.pool.group();
        group.retry_while_failing_over(Instant::now() + group.limit(), || self.put_now(put, number, source))
    }

    fn put_now(&self, put: &SpacePut, number: u64, source: &Source<'_>) -> Result<()> {
        let bytes = put.extent.bytes(put.field.dtype)?;
        let home = self.home()?;
        let rpc = self.pool.connection(home)?;
        if rpc.kind() == Kind::Shm && bytes > SOCKET_MAX {
            return self.put_through_arena(put, number, source, (home, rpc));
        }
        let gathered;
        let dense = match source.as_dense() {
            Some(dense) => dense,
            None => {
                gathered = source.to_vec(None);
                &gathered
            }
        };
        if dense.len() <= INLINE_MAX && self.replicas == 1 {
            // A small block goes straight to its owner, so that reading it is one hop.
            let owners = self.tiles(&put.field, put.step).owners_of(&put.extent.interior());
            let owner = owners.first().copied().filter(|owner| !lock(&self.leaving).contains(owner));
            let owner = owner.unwrap_or(home);
            let rpc = self.pool.connection(owner)?;
            return self.keep((owner, &rpc), put, number, BytesLocation::Inline(dense.into()), None);
        }
        self.keep((home, &rpc), put, number, BytesLocation::Payload, Some(Payload(dense)))
    }

    /// Puts by one copy into memory that is shared with the server.
    fn put_through_arena(
        &self,
        put: &SpacePut,
        number: u64,
        source: &Source<'_>,
        (home, rpc): (ServerId, Arc<Rpc>),
    ) -> Result<()> {
        let bytes = put.extent.bytes(put.field.dtype)?;
        let target = self.target(home, rpc)?;
        let full = || Error::new(ErrorKind::Full, format!("{home} has no room for {bytes} bytes"));
        let grant = target.reserve(bytes)?.ok_or_else(full)?;
        let Some(arena) = &target.arena else { return Err(Error::protocol("no arena came to write to")) };
        let placed = target.copy_in(arena, grant, source, None)?;
        let granted = BytesLocation::Granted {
            arena: placed.arena,
            offset: placed.offset,
            generation: placed.generation,
        };
        self.keep((home, &target.rpc), put, number, granted, None)
    }

    /// The home server with an arena to write to, opened again after the connection broke.
    fn target(&self, home: ServerId, rpc: Arc<Rpc>) -> Result<Arc<PutTarget>> {
        let mut target = lock(&self.target);
        if let Some(known) = target.as_ref().filter(|known| Arc::ptr_eq(&known.rpc, &rpc)) {
            return Ok(known.clone());
        }
        let opened = Arc::new(PutTarget::open(home, rpc, &Request::Open, |opened| match opened {
            Reply::Opened(arena) => Some(*arena),
            _ => None,
        })?);
        Ok(target.insert(opened).clone())
    }

    /// Waits until a server keeps a block and its directory knows it.
    fn keep(
        &self,
        (server, rpc): (ServerId, &Rpc),
        put: &SpacePut,
        number: u64,
        bytes: BytesLocation,
        payload: Option<Payload<'_>>,
    ) -> Result<()> {
        let field = put.field.name.clone();
        let block = PutBlock {
            field,
            number,
            part: 0,
            level: 0,
            extent: put.extent.clone(),
            stats: None,
            of_field: false,
            bytes,
        };
        let (field, step, by, replicas) = (put.field.clone(), put.step, self.by, self.replicas);
        let message = Request::Put(Box::new(space::SpacePut { field, step, by, replicas, block }));
        match rpc.call_within(&message, payload, rpc.patience(), "to keep an array")?.message {
            Reply::LetGo => {
                lock(&self.leaving).push(server);
                Err(Error::unreachable(format!("{server} leaves the group")).about(server))
            }
            _ => Ok(()),
        }
    }
}
