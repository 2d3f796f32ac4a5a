//! The client: what language bindings and tools use to talk to a group.
//!
//! - [`Producer`]: one rank of a simulation;
//! - [`Consumer`] and [`Step`]: a reader of a stream;
//! - [`Space`]: arrays put and got by name, step and region;
//! - [`Admin`]: status, pipelines, ending;
//! - [`PipelineHandle`]: a rank that drives a pipeline itself;
//! - [`Worker`]: what runs one pipeline beside one server.
//!
//! Calls block, with deadlines; no thread is started, nothing is printed, and a handle that is used in a
//! forked child says so instead of doing harm.

mod admin;
mod assemble;
mod attributes;
mod buffers;
mod connections;
mod consumer;
mod declared;
mod fork;
mod group;
mod holder;
mod lookup;
mod particles;
mod pending;
mod pins;
mod pipeline_handle;
mod presence;
mod producer;
mod rpc;
mod seconds;
mod space;
mod step;
mod storage;
mod together;
mod turn;
mod typed;
mod worker;

pub use admin::{Admin, FoundPipeline};
pub use assemble::Selection;
pub use buffers::Buffer;
pub use consumer::Consumer;
pub use declared::{Choice, ConsumerOptions, Named, ProducerOptions, SpaceOptions};
pub use group::{Group, GroupOptions, TransportChoice};
pub use lookup::Records;
pub use pipeline_handle::{Driven, PipelineHandle, PipelineRequest};
pub use producer::{Allocation, Block, OnLoss, Outcome, Producer};
pub use seconds::{patience, seconds};
pub use space::{Space, SpacePut};
pub use step::{BlockBytes, BlockView, Share, Step};
pub use worker::{Order, Worker};

pub use forebay_comm as comm;
pub use forebay_core as core;
pub use forebay_core::attr::{Attr, AttrValues, Attrs};
pub use forebay_core::ids::ServerId;
pub use forebay_core::placement::{Placement, ToPlace};
pub use forebay_core::{Error, ErrorKind, Result};
pub use forebay_store as store;
pub use forebay_store::Element;
pub use forebay_store::strided::{Source, Target};
pub use forebay_transport as transport;
pub use forebay_wire::message::PipelineSpec;
