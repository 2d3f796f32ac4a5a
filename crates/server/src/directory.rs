//! The directory of large runs: which blocks touch the tiles that this server owns, and what the blocks are
//! that it holds. In small runs a stream's coordinator knows all blocks, and tells them with each step.
//!
//! - this module: what an owner and a holder keep, and what an owner answers to readers;
//! - `endings`: how a rank's home registers what the rank put, before it tells the coordinator.

mod endings;

pub(crate) use endings::Done;

use crate::node::{Components, Node};
use endings::Endings;
use forebay_cluster::environment::HashMap;
use forebay_core::Result;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::directory::FieldIndex;
use forebay_core::ids::{BlockKey, ServerId, StepId};
use forebay_core::region::Region;
use forebay_core::shards::Shards;
use forebay_core::steps::{FieldReport, StepReport};
use forebay_core::tiles::hash_in_stream;
use forebay_wire::client::reading::Reply;
use forebay_wire::peer::directory;
use forebay_wire::peer::replication::BlockRange;
use std::collections::{BTreeMap, HashSet};

/// About how many bytes of records are told at a time.
const ANSWER_BYTES: usize = 4 << 20;

/// What a server knows of the blocks of large runs.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Blocks that touch tiles which this server owns, by step and field.
    owned: HashMap<StepId, BTreeMap<String, FieldIndex>>,
    /// Blocks that this server holds, by step and field: for the worker beside it.
    held: HashMap<StepId, BTreeMap<String, HeldField>>,
    endings: Endings,
}

/// Blocks of one field that this server holds.
#[derive(Debug)]
struct HeldField {
    field: Field,
    blocks: Vec<BlockRecord>,
}

impl Directory {
    /// How many blocks it knows of the tiles that it owns, and about how many bytes that takes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.owned
            .values()
            .flat_map(BTreeMap::values)
            .fold((0, 0), |sum, index| (sum.0 + index.blocks().len() as u64, sum.1 + index.bytes()))
    }

    /// About how many bytes the records of the blocks take that are held here.
    pub(crate) fn held_bytes(&self) -> u64 {
        let held = self.held.values().flat_map(BTreeMap::values);
        let bytes = |held: &HeldField| {
            let heap: usize = held.blocks.iter().map(BlockRecord::heap_bytes).sum();
            (held.blocks.capacity() * size_of::<BlockRecord>() + heap) as u64
        };
        held.map(bytes).sum()
    }

    /// Whether coordinators are still to be told of what ranks have done.
    pub(crate) fn has_endings(&self) -> bool {
        !self.endings.are_told()
    }

    /// The steps of which this server owns parts.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &StepId> {
        self.owned.keys()
    }

    /// Nobody needs a step any more.
    pub(crate) fn forget(&mut self, id: &StepId) {
        self.owned.remove(id);
        self.held.remove(id);
    }

    /// The records of blocks of a step that lie in these ranges.
    pub(crate) fn records_in(&self, id: &StepId, ranges: &[BlockRange]) -> Vec<FieldReport> {
        let Some(fields) = self.held.get(id) else { return Vec::new() };
        let ranges: HashSet<(u32, u64)> = ranges.iter().map(|range| (range.arena, range.offset)).collect();
        let meant = |block: &&BlockRecord| ranges.contains(&(block.location.arena, block.location.offset));
        let report = |held: &HeldField| {
            FieldReport::new(held.field.clone(), held.blocks.iter().filter(meant).cloned().collect())
        };
        fields.values().map(report).filter(|report| !report.blocks.is_empty()).collect()
    }

    /// Keeps what is held here. Each block is told once.
    pub(crate) fn hold(&mut self, id: &StepId, report: FieldReport) {
        let step = self.held.entry(id.clone()).or_default();
        let new = || HeldField { field: report.field.clone(), blocks: Vec::new() };
        let known = &mut step.entry(report.field.name.clone()).or_insert_with(new).blocks;
        if known.capacity() - known.len() < report.blocks.len() {
            // By a quarter, not doubled: there are very many of these.
            known.reserve_exact(report.blocks.len().max(known.len() / 4));
        }
        known.extend(report.blocks);
    }

    /// Adds to a step's report those blocks that this server holds and the report does not have.
    pub(crate) fn complete(&self, report: &mut StepReport) {
        let Some(held) = self.held.get(&report.id) else { return };
        for field in report.fields.iter_mut().filter(|field| field.registered > 0) {
            let told: HashSet<BlockKey> = field.blocks.iter().map(|block| block.key).collect();
            let held = held.get(&field.field.name).into_iter().flat_map(|held| &held.blocks);
            field.blocks.extend(held.filter(|block| !told.contains(&block.key)).cloned());
        }
    }
}

impl Node {
    /// A rank's home registers what the rank put.
    pub(crate) fn step_register(
        &self,
        state: &mut Components,
        from: ServerId,
        token: u64,
        id: StepId,
        (owned, held): (Vec<FieldReport>, Vec<FieldReport>),
    ) {
        let mut refused = Vec::new();
        let mut error = None;
        for report in held {
            state.directory.hold(&id, report);
        }
        for report in owned {
            let fields = state.directory.owned.entry(id.clone()).or_default();
            let name = report.field.name.clone();
            let index = fields.entry(name.clone()).or_insert_with(|| FieldIndex::new(report.field));
            for block in report.blocks {
                let key = block.key;
                let mut inserted = index.insert(block.clone());
                if inserted.is_err() && !state.common.members.gone().is_empty() {
                    // A rank that put it at a server which is dead puts it again.
                    index.remove(|known| {
                        known.key == key && state.common.members.is_gone(known.location.server)
                    });
                    inserted = index.insert(block);
                }
                if let Err(problem) = inserted {
                    refused.push((name.clone(), key));
                    error.get_or_insert(problem);
                }
            }
        }
        self.tell(state, from, directory::Message::Registered { token, refused, error });
    }

    /// Seats have passed on: their new holders are told of the blocks that this server holds and the old ones knew.
    pub(crate) fn register_again(&self, state: &mut Components, before: &Shards) {
        let standing = self.standing();
        let mut told: BTreeMap<ServerId, HashMap<StepId, BTreeMap<String, FieldReport>>> = BTreeMap::new();
        let Components { directory, tiles, .. } = &mut *state;
        for (id, fields) in &directory.held {
            for (name, held) in fields {
                let hash = hash_in_stream(id, name);
                let shape = held.field.shape.as_deref();
                let (old, new) =
                    (tiles.map(before, hash, shape), tiles.map(&standing.roster.shards, hash, shape));
                for block in held.blocks.iter().filter(|block| block.level == 0) {
                    let interior = block.extent.interior();
                    let known = old.owners_of(&interior);
                    for owner in new.owners_of(&interior).into_iter().filter(|owner| !known.contains(owner)) {
                        let fields = told.entry(owner).or_default().entry(id.clone()).or_default();
                        let report = || FieldReport::new(held.field.clone(), Vec::new());
                        fields.entry(name.clone()).or_insert_with(report).blocks.push(block.clone());
                    }
                }
            }
        }
        for (owner, steps) in told {
            for (id, fields) in steps {
                for part in fields.into_values().flat_map(in_parts) {
                    self.tell(
                        state,
                        owner,
                        directory::Message::HandOver { id: id.clone(), owned: vec![part] },
                    );
                }
            }
        }
    }

    /// A holder tells of blocks that touch tiles which this server owns now.
    pub(crate) fn step_know(&self, state: &mut Components, id: &StepId, owned: Vec<FieldReport>) {
        for report in owned {
            let fields = state.directory.owned.entry(id.clone()).or_default();
            let index =
                fields.entry(report.field.name.clone()).or_insert_with(|| FieldIndex::new(report.field));
            for block in report.blocks {
                if let Err(error) = index.insert(block) {
                    tracing::warn!("a block of {id} is not taken over: {error}");
                }
            }
        }
    }

    /// Other owners refused these blocks.
    pub(crate) fn step_unregister(
        &self,
        state: &mut Components,
        from: ServerId,
        token: u64,
        id: &StepId,
        blocks: &[(String, BlockKey)],
    ) {
        let directory = &mut state.directory;
        let mut by_field: HashMap<&String, HashSet<BlockKey>> = HashMap::default();
        for (name, key) in blocks {
            by_field.entry(name).or_default().insert(*key);
        }
        for (name, keys) in by_field {
            if let Some(index) = directory.owned.get_mut(id).and_then(|fields| fields.get_mut(name)) {
                index.remove(|block| keys.contains(&block.key));
            }
            if let Some(held) = directory.held.get_mut(id).and_then(|fields| fields.get_mut(name)) {
                held.blocks.retain(|block| !keys.contains(&block.key));
            }
        }
        self.tell(state, from, directory::Message::Unregistered { token });
    }

    /// The blocks of a step that this server knows as the owner of tiles. Waits until it has been told of those that owners
    /// knew which have gone; the caller sets the deadline.
    pub(crate) async fn find_blocks(
        &self,
        id: &StepId,
        field: &str,
        region: Option<&Region>,
        skip: usize,
    ) -> Result<Reply> {
        self.told_by_all().await;
        let state = self.state.lock();
        let index = state.directory.owned.get(id).and_then(|fields| fields.get(field));
        Ok(match (index, region) {
            (None, _) => Reply::Records { blocks: Vec::new(), more: false },
            (Some(index), None) => some_of(index.blocks().iter().skip(skip)),
            (Some(index), Some(region)) => some_of(index.find(region).skip(skip)),
        })
    }
}

/// A report in parts that messages take.
pub(crate) fn in_parts(report: FieldReport) -> impl Iterator<Item = FieldReport> {
    let FieldReport { field, blocks, .. } = report;
    let mut blocks = blocks.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut part = Vec::new();
        let mut bytes = 0;
        while bytes < ANSWER_BYTES {
            let Some(block) = blocks.next() else { break };
            bytes += bytes_of(&block);
            part.push(block);
        }
        (!part.is_empty()).then(|| FieldReport::new(field.clone(), part))
    })
}

/// About how many bytes a record takes in a message.
fn bytes_of(block: &BlockRecord) -> usize {
    size_of::<BlockRecord>() + block.heap_bytes() + block.inline.as_ref().map_or(0, |inline| inline.len())
}

/// As many records as one answer takes.
fn some_of<'a>(mut blocks: impl Iterator<Item = &'a BlockRecord>) -> Reply {
    let mut told = Vec::new();
    let mut bytes = 0;
    while bytes < ANSWER_BYTES {
        let Some(block) = blocks.next() else { return Reply::Records { blocks: told, more: false } };
        bytes += bytes_of(block);
        told.push(block.clone());
    }
    Reply::Records { blocks: told, more: blocks.next().is_some() }
}
