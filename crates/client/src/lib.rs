//! The client: what language bindings and tools use to talk to a group.
//!
//! - [`Producer`]: one rank of a simulation;
//! - [`Consumer`] and [`Step`]: a reader of a stream;
//! - [`Stream`]: a stream looked at from outside;
//! - [`Space`]: arrays put and got by name, step and region;
//! - [`Admin`]: status, pipelines, ending;
//! - [`PipelineHandle`]: a rank that drives a pipeline itself;
//! - [`Worker`]: what runs one pipeline beside one server;
//! - [`open_comm`]: communicators of processes that meet by name.
//!
//! Calls block, with deadlines; no thread is started, nothing is printed, and a handle that is used in a
//! forked child says so instead of doing harm.
//!
//! Files and folders use those above them in this list, never those below; within a folder the list stands in the file of its
//! name. Calls between files go the same way.
//!
//! - `seconds`, `fork`, `check_dtype`: times that users give, handles in forked children, dtypes of arrays;
//! - `identity`, `job`: which process this is, and of which job;
//! - `on_loss`, `on_rank_loss`, `outcome`, `holes`, `declared`: choices and options of handles, as `interface/forebay.toml` declares them;
//! - `rank_bounds`: what ranks say of where they are;
//! - `connection`: finding a group and talking to its servers;
//! - `put_target`: a server that this process puts blocks to;
//! - `reading`: getting at blocks, whoever put them;
//! - `admin`, `consumer`, `space`, `worker`, `producer`, `named_comm`: the handles;
//! - `stream`, on `consumer` and `admin`; `pipeline_handle`, on `producer` and `admin`.

mod admin;
mod check_dtype;
mod choice;
mod connection;
mod consumer;
mod declared;
mod group_options;
mod holes;
mod identity;
mod job;
mod named_comm;
mod on_loss;
mod on_rank_loss;
mod outcome;
mod pipeline_handle;
mod producer;
mod put_target;
mod rank_bounds;
mod reading;
mod seconds;
mod space;
mod stream;
mod subscription;
mod worker;

pub use admin::{Admin, FoundPipeline, told as status};
pub use choice::{Choice, Named};
pub use connection::group::Group;
pub use consumer::Consumer;
pub use declared::{ConsumerOptions, ProducerOptions, SpaceOptions};
pub use group_options::{GroupOptions, TransportChoice};
pub use holes::Holes;
pub use job::{job_name, new_job_name};
pub use named_comm::{comm_alone, open_comm};
pub use on_loss::OnLoss;
pub use on_rank_loss::OnRankLoss;
pub use outcome::Outcome;
pub use pipeline_handle::{DriveOutcome, PipelineHandle, PipelineRequest};
pub use producer::{Allocation, Block, Producer};
pub use rank_bounds::{RANK_BOUNDS, RankBounds};
pub use reading::block_list::BlockList;
pub use reading::block_lookup::Records;
pub use reading::block_view::{BlockBytes, BlockView};
pub use reading::buffers::Buffer;
pub use reading::share::Share;
pub use reading::step::Step;
pub use seconds::{patience, seconds};
pub use space::{Space, SpaceArray, SpacePut};
pub use stream::{HeldSteps, StepInfo, Stream};
pub use subscription::{Notice, Subscriber, Subscription, SubscriptionEvent};
pub use worker::{Order, Worker};

pub use forebay_comm as comm;
pub use forebay_core as core;
pub use forebay_core::assign::Assign;
pub use forebay_core::attr::{Attr, AttrValues, Attrs};
pub use forebay_core::contract::Bounds;
pub use forebay_core::ids::ServerId;
pub use forebay_core::placement::{BlockToPlace, Placement};
pub use forebay_core::selection::Selection;
pub use forebay_core::{Error, ErrorKind, Result};
pub use forebay_query as query;
pub use forebay_store as store;
pub use forebay_store::Element;
pub use forebay_store::strided::{Source, Target};
pub use forebay_transport as transport;
pub use forebay_wire::execution::PipelineSpec;
pub use forebay_wire::subscription::{Change, From};
