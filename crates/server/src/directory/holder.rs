//! This server as a holder of blocks: their records, for the worker beside it, for backups, and for those that come to own the
//! tiles which they touch.

use super::parts::in_parts;
use crate::context::Context;
use forebay_cluster::environment::HashMap;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, ServerId, StepId};
use forebay_core::shards::Shards;
use forebay_core::steps::{FieldReport, StepReport};
use forebay_core::tiles::{TileCache, hash_in_stream};
use forebay_wire::peer::directory::Message;
use forebay_wire::peer::replication::BlockRange;
use std::collections::{BTreeMap, HashSet};

/// Blocks that this server holds, by step and field.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    steps: HashMap<StepId, BTreeMap<String, HeldField>>,
}

/// Blocks of one field that this server holds.
#[derive(Debug)]
struct HeldField {
    field: Field,
    blocks: Vec<BlockRecord>,
}

/// What each owner of tiles is told of each step, by field.
type Reports = BTreeMap<ServerId, HashMap<StepId, BTreeMap<String, FieldReport>>>;

impl Holder {
    /// About how many bytes the records take.
    pub(crate) fn bytes(&self) -> u64 {
        let held = self.steps.values().flat_map(BTreeMap::values);
        let bytes = |held: &HeldField| {
            let heap: usize = held.blocks.iter().map(BlockRecord::heap_bytes).sum();
            (held.blocks.capacity() * size_of::<BlockRecord>() + heap) as u64
        };
        held.map(bytes).sum()
    }

    /// Nobody needs a step any more.
    pub(super) fn forget(&mut self, id: &StepId) {
        self.steps.remove(id);
    }

    /// The records of blocks of a step that lie in these ranges.
    pub(crate) fn records_in(&self, id: &StepId, ranges: &[BlockRange]) -> Vec<FieldReport> {
        let Some(fields) = self.steps.get(id) else { return Vec::new() };
        let ranges: HashSet<(u32, u64)> = ranges.iter().map(|range| (range.arena, range.offset)).collect();
        let meant = |block: &&BlockRecord| ranges.contains(&(block.location.arena, block.location.offset));
        let report = |held: &HeldField| {
            FieldReport::new(held.field.clone(), held.blocks.iter().filter(meant).cloned().collect())
        };
        fields.values().map(report).filter(|report| !report.blocks.is_empty()).collect()
    }

    /// Blocks of a step are held here. Each block is told once.
    pub(crate) fn hold(&mut self, id: &StepId, report: FieldReport) {
        let step = self.steps.entry(id.clone()).or_default();
        let new = || HeldField { field: report.field.clone(), blocks: Vec::new() };
        let known = &mut step.entry(report.field.name.clone()).or_insert_with(new).blocks;
        if known.capacity() - known.len() < report.blocks.len() {
            // By a quarter, not doubled: there are very many of these.
            known.reserve_exact(report.blocks.len().max(known.len() / 4));
        }
        known.extend(report.blocks);
    }

    /// Owners refused these blocks.
    pub(super) fn unregister(&mut self, id: &StepId, blocks: &[(String, BlockKey)]) {
        let Some(fields) = self.steps.get_mut(id) else { return };
        for (name, held) in fields {
            let keys: HashSet<BlockKey> =
                blocks.iter().filter(|(of, _)| of == name).map(|(_, key)| *key).collect();
            if !keys.is_empty() {
                held.blocks.retain(|block| !keys.contains(&block.key));
            }
        }
    }

    /// Adds to a step's report those blocks that this server holds and the report does not have.
    pub(crate) fn complete(&self, report: &mut StepReport) {
        let Some(held) = self.steps.get(&report.id) else { return };
        for field in report.fields.iter_mut().filter(|field| field.registered > 0) {
            let told: HashSet<BlockKey> = field.blocks.iter().map(|block| block.key).collect();
            let held = held.get(&field.field.name).into_iter().flat_map(|held| &held.blocks);
            field.blocks.extend(held.filter(|block| !told.contains(&block.key)).cloned());
        }
    }

    /// Seats have passed on: those that hold them now are told of the blocks that this server holds and those before them
    /// knew.
    pub(crate) fn on_shards_reassigned(&self, cx: &mut Context<'_>, tiles: &mut TileCache, before: &Shards) {
        let standing = cx.server.standing();
        for (owner, steps) in self.reports_to_new_owners(tiles, before, &standing.roster.shards) {
            for (id, fields) in steps {
                for part in fields.into_values().flat_map(in_parts) {
                    cx.tell(owner, Message::HandOver { id: id.clone(), owned: vec![part] });
                }
            }
        }
    }

    fn reports_to_new_owners(&self, tiles: &mut TileCache, before: &Shards, now: &Shards) -> Reports {
        let mut reports = Reports::new();
        for (id, fields) in &self.steps {
            for (name, held) in fields {
                let hash = hash_in_stream(id, name);
                let shape = held.field.shape.as_deref();
                let (old, new) = (tiles.map(before, hash, shape), tiles.map(now, hash, shape));
                for block in held.blocks.iter().filter(|block| block.level == 0) {
                    let interior = block.extent.interior();
                    let known = old.owners_of(&interior);
                    for owner in new.owners_of(&interior).into_iter().filter(|owner| !known.contains(owner)) {
                        let fields = reports.entry(owner).or_default().entry(id.clone()).or_default();
                        let report = || FieldReport::new(held.field.clone(), Vec::new());
                        fields.entry(name.clone()).or_insert_with(report).blocks.push(block.clone());
                    }
                }
            }
        }
        reports
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> Result<(), String> {
        for (id, fields) in &self.steps {
            if let Some((name, _)) = fields.iter().find(|(name, held)| **name != held.field.name) {
                return Err(format!("another field of {id} stands under '{name}'"));
            }
        }
        Ok(())
    }
}
