//! Closed steps, as they are told to those who read them.

use crate::attr::Attrs;
use crate::block::BlockRecord;
use crate::contract::{Field, Needs, Slices, Statistics};
use crate::directory::check_blocks;
use crate::ids::{Epoch, RunNumber, StepId, StepNumber};
use crate::stats::Stats;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// In runs of up to this many ranks, the records of a step's blocks travel with it: then a report has a few
/// kilobytes, and a reader needs no further question. In larger ones the blocks of placed fields are
/// registered with the owners of their tiles, and readers ask those for what they need: a report of all blocks
/// to every reader would grow with ranks times readers.
pub const RECORDS_TRAVEL_RANKS_MAX: u32 = 64;

/// One field of a step, as it is told to those who read it. What is decoded was checked: see
/// [`crate::directory::check_blocks`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct FieldReport {
    /// The field, with its shape at this step.
    pub field: Field,
    /// Which part of it the one who is told needs; `None`: all.
    pub part: Option<Slices>,
    /// Its blocks, as far as they are told with it.
    pub blocks: Vec<BlockRecord>,
    /// How many blocks are registered with the owners of their tiles instead.
    pub registered: u64,
    /// The statistics of the whole field, if the one who is told needs them.
    pub stats: Option<Box<Stats>>,
    /// Whether that one needs nothing else of it.
    pub stats_alone: bool,
}

impl FieldReport {
    /// A field all of whose blocks are told.
    pub fn new(field: Field, blocks: Vec<BlockRecord>) -> FieldReport {
        FieldReport { field, part: None, blocks, registered: 0, stats: None, stats_alone: false }
    }
}

impl StepReport {
    /// The same without the statistics of blocks, but where somebody with these needs has asked for them: of large steps they are many
    /// bytes.
    pub fn with_statistics_for(mut self, needs: Option<&Needs>) -> StepReport {
        for found in &mut self.fields {
            let terms = needs.and_then(|needs| needs.of(&found.field.name));
            if terms.is_none_or(|terms| terms.statistics != Statistics::Along) {
                found.blocks.iter_mut().for_each(|block| block.stats = None);
            }
        }
        self
    }
}

impl Serialize for FieldReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FieldReport::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for FieldReport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FieldReport, D::Error> {
        let report = FieldReport::deserialize(deserializer)?;
        check_blocks(&report.field, &report.blocks).map_err(D::Error::custom)?;
        Ok(report)
    }
}

/// A closed step, as it is told to those who read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Which step it is.
    pub id: StepId,
    /// Physical time.
    pub time: f64,
    /// How many steps that this reader wanted were dropped before this one.
    pub missed: u64,
    /// Whether a new run went back: what was read of steps from this number on is no longer true.
    pub rewound: bool,
    /// Whether a rank died in it, or left it out.
    pub torn: bool,
    /// Whether something of it found no room: told only to those that take all steps.
    pub dropped: bool,
    /// The fields that the reader wants at this step.
    pub fields: Vec<FieldReport>,
    /// The run's static fields, if there are some and this reader was not told of all of them: it holds them from then on.
    pub statics: Option<Vec<FieldReport>>,
    /// What ranks say of the step.
    pub own_attrs: Option<Box<Attrs>>,
    /// The run's attributes, if they are others than this reader was told last.
    pub attrs: Option<Box<Attrs>>,
    /// Since which epoch the server that tells of it has coordinated the stream, if another one did before; else 0.
    pub term: Epoch,
    /// How many ranks the run has.
    pub ranks: u32,
    /// The ranks of the reader's cohort that do not read it, since they are gone.
    pub absent: Vec<u32>,
    /// Where readers share steps: to how many of them it was given before, which died before they had finished with it.
    pub attempt: u32,
}

/// A step that a reader which comes back held in its time with the coordinator before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldStep {
    /// The run.
    pub run: RunNumber,
    /// The step, or [`crate::ids::STATIC_STEP`].
    pub step: StepNumber,
    /// Whether the reader has finished with it, and only arrays of it live on.
    pub pinned: bool,
}
