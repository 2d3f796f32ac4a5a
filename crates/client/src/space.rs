//! The space: arrays put and got by name, step and region, whoever put them.

use crate::assemble::{self, Selection};
use crate::fork::ForkGuard;
use crate::group::{Group, GroupOptions};
use crate::holder::Holders;
use crate::rpc::{Payload, unexpected};
use crate::typed::check_dtype;
use forebay_core::block::{Extent, INLINE_MAX};
use forebay_core::contract::Field;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::region::Region;
use forebay_core::steps::FieldReport;
use forebay_core::view::hash_name;
use forebay_core::{Error, Result};
use forebay_store::strided::{Source, Target};
use forebay_wire::message::{Bytes, PutBlock, ToClient, ToServer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Arrays by name, step and region. What is put stays until it is removed.
#[derive(Debug)]
pub struct Space {
    guard: ForkGuard,
    holders: Holders,
    home: ServerId,
    numbers: AtomicU64,
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
        Ok(Space { guard: ForkGuard::new(), holders: Holders::new(group), home, numbers: AtomicU64::new(0) })
    }

    /// Fails in a process that was forked from the one that opened it.
    pub fn check_process(&self) -> Result<()> {
        self.guard.check("space")
    }

    fn owner(&self, field: &str, step: StepNumber) -> Result<ServerId> {
        let owner = self.holders.group().view().owner_of(hash_name(field).wrapping_add(step));
        owner.ok_or_else(|| Error::not_found("the group has no server"))
    }

    /// Puts an array. Waits until a server holds it and its directory knows it.
    pub fn put(&self, put: &SpacePut, source: &Source<'_>) -> Result<()> {
        self.guard.check("space")?;
        put.field.check()?;
        check_dtype(&put.field, source.dtype())?;
        let stored = put.extent.stored_shape();
        if source.shape() != &stored[..] {
            return Err(Error::out_of_bounds(format!(
                "the array has shape {:?}, the box {:?}",
                source.shape(),
                &stored[..]
            )));
        }
        let gathered;
        let dense = match source.as_dense() {
            Some(dense) => dense,
            None => {
                gathered = source.to_vec(None);
                &gathered
            }
        };
        let inline = dense.len() <= INLINE_MAX;
        let bytes = if inline { Bytes::Inline(dense.into()) } else { Bytes::Payload };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let block = PutBlock {
            field: put.field.name.clone(),
            number,
            level: 0,
            extent: put.extent.clone(),
            stats: None,
            bytes,
        };
        let message = ToServer::SpacePut { field: put.field.clone(), step: put.step, block };
        // A small block goes straight to the directory's owner, so that reading it is one hop.
        let server = if inline { self.owner(&put.field.name, put.step)? } else { self.home };
        let rpc = self.holders.connection(server)?;
        rpc.call_within(&message, (!inline).then_some(Payload(dense)), rpc.patience(), "to keep an array")?;
        Ok(())
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
        // A forked child holds nothing, and waits for no lock.
        if self.space.guard.is_child() {
            return;
        }
        let owner = self.space.owner(&self.report.field.name, self.step);
        if let Ok(rpc) = owner.and_then(|owner| self.space.holders.connection(owner)) {
            let _ = rpc.tell(&ToServer::SpaceRelease { lease: self.lease });
        }
    }
}
