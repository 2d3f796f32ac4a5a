//! How a producer is opened, and what it is given and gives back.

use crate::connection::group_options::GroupOptions;
use forebay_core::Result;
use forebay_core::block::Extent;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::placement::Placement;
use forebay_core::steps::{Durability, Policy};
use forebay_store::Mapping;
use std::sync::Arc;

/// What a producer does when its servers are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// Goes on without staging, and counts the steps that were not staged. The default.
    #[default]
    Skip,
    /// Waits for another server, as long as any wait may take, and then fails.
    Fail,
}

/// How to open a producer.
#[derive(Debug, Clone)]
pub struct ProducerOptions {
    /// The group.
    pub group: GroupOptions,
    /// The stream's name.
    pub stream: String,
    /// This rank.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// What happens to steps when readers or memory cannot keep up.
    pub policy: Policy,
    /// Closed steps to keep although nobody reads them.
    pub keep: u32,
    /// Bytes of closed steps that may wait for readers before the policy drops some; `None`: 1 GiB.
    pub queue_bytes: Option<u64>,
    /// The run, and the last step of it that is still true, that this one continues.
    pub continues: Option<(RunNumber, StepNumber)>,
    /// How many servers hold each block: all but one of them may die. 1 to 8.
    pub replicas: u32,
    /// When a block is safe of which several servers hold copies.
    pub durability: Durability,
    /// What to do when the servers are gone.
    pub on_loss: OnLoss,
    /// Which servers hold this rank's blocks; those of up to a KiB travel with the step and are not placed.
    pub placement: Placement,
}

impl ProducerOptions {
    /// One rank of one, with all defaults.
    pub fn new(stream: &str) -> ProducerOptions {
        ProducerOptions {
            group: GroupOptions::default(),
            stream: stream.to_owned(),
            rank: 0,
            size: 1,
            policy: Policy::default(),
            keep: 0,
            queue_bytes: None,
            continues: None,
            replicas: 1,
            durability: Durability::default(),
            on_loss: OnLoss::default(),
            placement: Placement::default(),
        }
    }
}

/// A block that is put: its field, number and box.
#[derive(Debug, Clone)]
pub struct Block<'a> {
    /// The field.
    pub field: &'a str,
    /// Tells apart several blocks of one rank, field and step.
    pub number: u64,
    /// Refinement level. Above 0, offsets count in an index space of that level's own, of any extent; reads by region
    /// leave such blocks out.
    pub level: u32,
    /// Its box.
    pub extent: Extent,
}

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is held by a server, and survives this process.
    Staged,
    /// Nothing wants it: it was not copied.
    Undemanded,
    /// There was no room, and the stream's policy is to go on: the step is counted as dropped.
    Dropped,
}

/// Memory of a staged block, to compute into. Dense, row-major, ghosts included.
#[derive(Debug)]
pub struct Allocation {
    /// Names it in `commit` and `abort`.
    pub id: u64,
    /// Its length in bytes.
    pub bytes: u64,
    pub(super) memory: Arc<Mapping>,
    pub(super) offset: u64,
}

impl Allocation {
    /// The address of its first byte. The address stays valid while this lives, but the memory is the caller's
    /// to write only until it is committed or aborted.
    pub fn address(&self) -> Result<*mut u8> {
        self.memory.address_mut(self.offset, self.bytes)
    }
}
