//! What one rank has put in one step, as its home tells the coordinator.

use crate::attr::Attrs;
use crate::block::BlockRecord;
use crate::contract::Field;
use crate::directory::check_blocks;
use crate::ids::{ServerId, StepNumber};
use crate::stats::Stats;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One field of what a rank put in a step. What is decoded was checked, as a [`crate::steps::FieldReport`] is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct FieldContribution {
    /// The field, with its shape at this step.
    pub field: Field,
    /// What this rank put, as far as it is told.
    pub blocks: Vec<BlockRecord>,
    /// What it put besides, and is registered with the owners of tiles.
    pub registered: RegisteredBlocks,
    /// The statistics of what this rank put, where those of the whole field are wanted.
    pub stats: Option<Box<Stats>>,
}

impl FieldContribution {
    /// A field all of whose blocks are told.
    pub fn new(field: Field, blocks: Vec<BlockRecord>) -> FieldContribution {
        FieldContribution { field, blocks, registered: RegisteredBlocks::default(), stats: None }
    }
}

/// Blocks that are registered with the owners of their tiles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredBlocks {
    /// How many.
    pub blocks: u64,
    /// How many bytes they have.
    pub bytes: u64,
}

impl Serialize for FieldContribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FieldContribution::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for FieldContribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FieldContribution, D::Error> {
        let ended = FieldContribution::deserialize(deserializer)?;
        check_blocks(&ended.field, &ended.blocks).map_err(D::Error::custom)?;
        Ok(ended)
    }
}

/// A rank ended a step, or is gone in the middle of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepContribution {
    /// Which step; [`crate::ids::STATIC_STEP`] if these are static fields.
    pub step: StepNumber,
    /// Physical time.
    pub time: f64,
    /// What was put.
    pub fields: Vec<FieldContribution>,
    /// What the rank says of the step.
    pub attrs: Attrs,
    /// Whether something of it did not fit and was dropped by policy.
    pub dropped: bool,
    /// Whether the rank is gone and did not end the step: this is what it had put.
    pub torn: bool,
    /// The servers that hold or know blocks which are not told here.
    pub servers: Vec<ServerId>,
}

impl StepContribution {
    /// The servers that hold or know something of it, beside the one that tells it.
    pub(super) fn holders(&self) -> impl Iterator<Item = ServerId> {
        let blocks = self.fields.iter().flat_map(|field| &field.blocks);
        blocks.map(|block| block.location.server).chain(self.servers.iter().copied())
    }
}
