//! The directory of large runs: which blocks touch the tiles that this server owns, and what the blocks are
//! that it holds. In small runs a stream's coordinator knows all blocks, and tells them with each step.
//!
//! - this module: what an owner and a holder keep, and what an owner answers to readers;
//! - `endings`: how a rank's home registers what the rank put, before it tells the coordinator.

mod endings;

pub(crate) use endings::Done;

use crate::node::{Node, State};
use endings::Endings;
use forebay_core::Result;
use forebay_core::block::BlockRecord;
use forebay_core::directory::FieldIndex;
use forebay_core::ids::{BlockKey, ServerId, StepId};
use forebay_core::region::Region;
use forebay_core::steps::{FieldReport, StepReport};
use forebay_wire::message::ToClient;
use forebay_wire::peer::PeerMessage;
use std::collections::{BTreeMap, HashMap, HashSet};

/// About how many bytes of records are told at a time.
const ANSWER_BYTES: usize = 4 << 20;

/// What a server knows of the blocks of large runs.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Blocks that touch tiles which this server owns, by step and field.
    owned: HashMap<StepId, BTreeMap<String, FieldIndex>>,
    /// Blocks that this server holds, by step and field: for the worker beside it.
    held: HashMap<StepId, BTreeMap<String, Vec<BlockRecord>>>,
    endings: Endings,
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
        let bytes = |records: &Vec<BlockRecord>| {
            let heap: usize = records.iter().map(BlockRecord::heap_bytes).sum();
            (records.capacity() * size_of::<BlockRecord>() + heap) as u64
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

    /// Keeps what is held here. Each block is told once.
    fn hold(&mut self, id: &StepId, report: FieldReport) {
        let step = self.held.entry(id.clone()).or_default();
        let known = step.entry(report.field.name).or_default();
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
            let held = held.get(&field.field.name).into_iter().flatten();
            field.blocks.extend(held.filter(|block| !told.contains(&block.key)).cloned());
        }
    }
}

impl Node {
    /// A rank's home registers what the rank put.
    pub(crate) fn step_register(
        &self,
        state: &mut State,
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
                if let Err(problem) = index.insert(block) {
                    refused.push((name.clone(), key));
                    error.get_or_insert(problem);
                }
            }
        }
        self.tell(state, from, PeerMessage::StepRegistered { token, refused, error });
    }

    /// Other owners refused these blocks.
    pub(crate) fn step_unregister(
        &self,
        state: &mut State,
        from: ServerId,
        token: u64,
        id: &StepId,
        blocks: &[(String, BlockKey)],
    ) {
        let directory = &mut state.directory;
        let mut by_field: HashMap<&String, HashSet<BlockKey>> = HashMap::new();
        for (name, key) in blocks {
            by_field.entry(name).or_default().insert(*key);
        }
        for (name, keys) in by_field {
            if let Some(index) = directory.owned.get_mut(id).and_then(|fields| fields.get_mut(name)) {
                index.remove(|block| keys.contains(&block.key));
            }
            if let Some(held) = directory.held.get_mut(id).and_then(|fields| fields.get_mut(name)) {
                held.retain(|block| !keys.contains(&block.key));
            }
        }
        self.tell(state, from, PeerMessage::Answer { token, result: Ok(()) });
    }

    /// The blocks of a step that this server knows as the owner of tiles.
    pub(crate) fn find_blocks(
        &self,
        id: &StepId,
        field: &str,
        region: Option<&Region>,
        skip: usize,
    ) -> Result<ToClient> {
        let state = self.state.lock();
        let index = state.directory.owned.get(id).and_then(|fields| fields.get(field));
        Ok(match (index, region) {
            (None, _) => ToClient::Records { blocks: Vec::new(), more: false },
            (Some(index), None) => some_of(index.blocks().iter().skip(skip)),
            (Some(index), Some(region)) => some_of(index.find(region).skip(skip)),
        })
    }
}

/// As many records as one answer takes.
fn some_of<'a>(mut blocks: impl Iterator<Item = &'a BlockRecord>) -> ToClient {
    let mut told = Vec::new();
    let mut bytes = 0;
    while bytes < ANSWER_BYTES {
        let Some(block) = blocks.next() else { return ToClient::Records { blocks: told, more: false } };
        let inline = block.inline.as_ref().map_or(0, |inline| inline.len());
        bytes += size_of::<BlockRecord>() + block.heap_bytes() + inline;
        told.push(block.clone());
    }
    ToClient::Records { blocks: told, more: blocks.next().is_some() }
}
