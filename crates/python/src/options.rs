//! Options as the package hands them over, checked.
//!
//! Generated from interface/forebay.toml by scripts/generate_faces.py: change it there.

use crate::given;
use crate::timeout::Timeout;
use forebay_client::core::contract::Field;
use forebay_client::{ConsumerOptions, GroupOptions, ProducerOptions, SpaceOptions};
use pyo3::prelude::*;

/// What is said of a field beside its name, type and shape.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct FieldGiven {
    association: String,
    every: u32,
    dims: Vec<String>,
    spacing: Vec<f64>,
    origin: Vec<f64>,
    units: String,
    periodic: Vec<bool>,
    refinement: Vec<u32>,
    is_static: bool,
}

impl FieldGiven {
    pub(crate) fn apply(self, field: &mut Field) -> PyResult<()> {
        field.association = given::choice(&self.association)?;
        field.every = self.every;
        field.dims = self.dims;
        field.spacing = self.spacing;
        field.origin = self.origin;
        field.units = self.units;
        field.periodic = self.periodic;
        field.refinement = self.refinement;
        field.is_static = self.is_static;
        Ok(())
    }
}

/// How to open a producer.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ProducerGiven {
    group: Option<String>,
    timeout: Timeout,
    transport: String,
    name: Option<String>,
    rank: u32,
    size: u32,
    policy: String,
    keep: u32,
    on_loss: String,
    placement: given::Placement,
    continues: Option<(u64, u64)>,
    queue_bytes: u64,
    replicas: u32,
    durability: String,
    wait_for_readers: u32,
    job: Option<String>,
    first: u64,
    stride: u64,
}

impl ProducerGiven {
    pub(crate) fn options(self, stream: String) -> PyResult<ProducerOptions> {
        let group = given::group(self.group, &self.transport, Some(self.timeout), self.name)?;
        Ok(ProducerOptions {
            group,
            stream,
            rank: self.rank,
            size: self.size,
            policy: given::choice(&self.policy)?,
            keep: self.keep,
            on_loss: given::choice(&self.on_loss)?,
            placement: self.placement.made()?,
            continues: self.continues,
            queue_bytes: self.queue_bytes,
            replicas: self.replicas,
            durability: given::choice(&self.durability)?,
            wait_for_readers: self.wait_for_readers,
            job: self.job,
            first: self.first,
            stride: self.stride,
        })
    }
}

/// How to open a consumer.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ConsumerGiven {
    group: Option<String>,
    timeout: Timeout,
    transport: String,
    name: Option<String>,
    fields: given::Fields,
    every: u32,
    window: u32,
    follow: bool,
    start: given::Start,
    pin_bytes: u64,
    take: String,
    rank: u32,
    size: u32,
    on_loss: String,
    assign: String,
    share: String,
}

impl ConsumerGiven {
    pub(crate) fn options(self, stream: String) -> PyResult<ConsumerOptions> {
        let group = given::group(self.group, &self.transport, Some(self.timeout), self.name)?;
        Ok(ConsumerOptions {
            group,
            stream,
            needs: given::needs(self.fields, self.every)?,
            window: self.window,
            follow: self.follow,
            start: self.start.made()?,
            pin_bytes: self.pin_bytes,
            take: given::choice(&self.take)?,
            rank: self.rank,
            size: self.size,
            on_loss: given::choice(&self.on_loss)?,
            assign: given::choice(&self.assign)?,
            share: given::choice(&self.share)?,
        })
    }
}

/// How to open a space.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SpaceGiven {
    group: Option<String>,
    timeout: Timeout,
    transport: String,
    name: Option<String>,
    replicas: u32,
}

impl SpaceGiven {
    pub(crate) fn options(self) -> PyResult<SpaceOptions> {
        let group = given::group(self.group, &self.transport, Some(self.timeout), self.name)?;
        Ok(SpaceOptions { group, replicas: self.replicas })
    }
}

/// How to look after a group.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct AdminGiven {
    group: Option<String>,
    timeout: Option<Timeout>,
    transport: String,
    name: Option<String>,
}

impl AdminGiven {
    pub(crate) fn options(self) -> PyResult<GroupOptions> {
        given::group(self.group, &self.transport, self.timeout, self.name)
    }
}
