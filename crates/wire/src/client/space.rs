//! A user of the space and any server: arrays that are put, found and removed by name, step and region.

use super::block::PutBlock;
use crate::evaluation::TextValue;
use crate::protocol::speaks;
use forebay_core::contract::Field;
use forebay_core::ids::{DescriptionNumber, Epoch, StepNumber};
use forebay_core::region::{Dims, Region};
use forebay_core::steps::FieldReport;
use serde::{Deserialize, Serialize};

/// A block of the space that is put.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpacePut {
    /// The field, with its shape.
    pub field: Field,
    /// The step.
    pub step: StepNumber,
    /// Who puts it, by a number made at random. With the block's it tells it from all others, also when it is put once more
    /// since the answer has not come.
    pub by: u32,
    /// How many servers are to hold it.
    pub replicas: u32,
    /// The block.
    pub block: PutBlock,
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The field's name.
    pub field: String,
    /// The step.
    pub step: StepNumber,
    /// The region, which is waited for; `None` only describes the field, once something of it is there.
    pub region: Option<Region>,
    /// The global shape by which the client chose whom to ask. If the field has another, or if the client knows none and
    /// there are more owners to ask, the answer only describes the field, at once.
    pub shape: Option<Dims>,
    /// How long the client will wait, in milliseconds.
    pub patience_ms: u64,
}

/// What a server knows of an array: what it describes, and what it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// The field's name.
    pub name: String,
    /// The step.
    pub step: StepNumber,
    /// Which description is in force, and the field, if this server describes it.
    pub described: Option<(DescriptionNumber, Field)>,
    /// How many blocks this server holds under each description, and their bytes.
    pub held: Vec<(DescriptionNumber, u64, u64)>,
}

/// What a user of the space says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for an arena to write arrays to. Answer: [`Reply::Opened`]. Then the `writing` protocol is understood.
    Open,
    /// Puts a block to be kept until it is removed. Answer: [`Reply::Done`] or [`Reply::LetGo`].
    Put(Box<SpacePut>),
    /// Asks an owner for the blocks that meet a region, waiting until they cover what it owns of the region. Answer:
    /// [`Reply::Found`] or [`Reply::NotOwned`]; the blocks are held for this client until `Release`. Other messages are taken
    /// while it waits.
    Find(Box<Search>),
    /// Has finished with the blocks of an earlier answer, or does not wait for that answer any more. Not answered.
    Release {
        /// The number of the question.
        request: u64,
    },
    /// Removes what was put of a field at a step. Answer: [`Reply::Done`] or [`Reply::NotOwned`].
    Remove {
        /// The field's name.
        field: String,
        /// The step.
        step: StepNumber,
    },
    /// Asks what a text gives of fields whose blocks this client holds. Answer: [`Reply::Evaluated`]. Other messages are taken while it
    /// is computed.
    Evaluate {
        /// The step.
        step: StepNumber,
        /// The text: its fields have no stream.
        text: String,
        /// The fields that it names, with those blocks that it takes something of.
        fields: Vec<FieldReport>,
    },
    /// Asks which arrays the server describes or holds blocks of, in the order of name and step. Answer: [`Reply::Listed`].
    List {
        /// Only what comes after this one.
        after: Option<(String, StepNumber)>,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// To [`Request::Open`]: the arena to write to and its size in bytes, with its descriptor, if memory is shared.
    Opened(Option<(u32, u64)>),
    /// To [`Request::Find`].
    Found {
        /// Whether the blocks are held, under the number of the question. If not, the answer only describes the field.
        held: bool,
        /// Which description of the field this is: one that was removed and put again has another.
        description: DescriptionNumber,
        /// The epoch in which it was told.
        term: Epoch,
        /// The field and the blocks.
        report: Box<FieldReport>,
    },
    /// The server does not own what was asked for, as far as it knows which members there are. The client reads the
    /// connection file again.
    NotOwned,
    /// To [`Request::List`].
    Listed {
        /// Some of them, the first.
        arrays: Vec<Listed>,
        /// Whether there are further ones.
        more: bool,
    },
    /// To [`Request::Evaluate`].
    Evaluated(Box<TextValue>),
    /// To [`Request::Put`]: the server leaves the group, and takes nothing.
    LetGo,
}

speaks!(Space: Request => Reply, holds |request| matches!(request, Request::Find(_)));
