//! One step of a run, as far as its ranks have told of it.

use crate::attr::Attrs;
use crate::block::BlockRecord;
use crate::contract::{Needs, Slices, Statistics};
use crate::directory::FieldIndex;
use crate::ids::{Epoch, ServerId, StepId, step_name};
use crate::stats::Stats;
use crate::steps::contribution::{FieldContribution, RegisteredBlocks, StepContribution};
use crate::steps::report::{FieldReport, StepReport};
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Those blocks of which somebody who needs this part of the field may need something.
fn blocks_in(index: &FieldIndex, part: Option<&Slices>) -> Vec<BlockRecord> {
    let (Some(part), Some(shape)) = (part, &index.field().shape) else { return index.blocks().to_vec() };
    let needed = part.of(shape);
    let meets = |block: &&BlockRecord| {
        block.level > 0 || needed.as_ref().is_some_and(|part| part.within(&block.extent.interior()).is_some())
    };
    index.blocks().iter().filter(meets).cloned().collect()
}

/// Whether a step waits for ranks, or goes to readers.
///
/// ```text
///   a rank tells of it        every rank has ended it, left it out, or is gone        nobody holds or keeps it
///  ────────────────────► Open ───────────────────────────────────────────────► Closed ────────────────────────► (free)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepPhase {
    Open,
    Closed,
}

/// One step of a run.
#[derive(Debug)]
pub(super) struct Step {
    /// As the first of its ranks gives it that gives one, whichever ends first; NaN if none does.
    pub(super) time: f64,
    /// That rank.
    time_from: Option<u32>,
    pub(super) phase: StepPhase,
    /// The ranks that have ended it, or were gone in the middle of it.
    pub(super) ended: BTreeSet<u32>,
    pub(super) fields: BTreeMap<String, FieldIndex>,
    /// Blocks of fields that owners of tiles know.
    pub(super) registered: BTreeMap<String, RegisteredBlocks>,
    /// The statistics of fields of which they are wanted.
    pub(super) stats: BTreeMap<String, Stats>,
    /// What ranks say of it.
    pub(super) attrs: Attrs,
    /// The servers that hold or know blocks of it.
    pub(super) servers: BTreeSet<ServerId>,
    /// As in [`crate::steps::Effect::Free`].
    pub(super) unseen_before: Epoch,
    pub(super) bytes: u64,
    /// Whether a rank died in it, or left it out. Of an open step this is what is known so far.
    pub(super) torn: bool,
    /// Whether something of it found no room. Of an open step this is what is known so far.
    pub(super) dropped: bool,
    /// How many attachments hold it, or will: it waits for them.
    pub(super) holds: u32,
}

impl Step {
    /// A step of which nobody has told yet, but that these servers hold blocks of it.
    pub(super) fn new(servers: BTreeSet<ServerId>, unseen_before: Epoch) -> Step {
        Step {
            time: f64::NAN,
            time_from: None,
            phase: StepPhase::Open,
            ended: BTreeSet::new(),
            fields: BTreeMap::new(),
            registered: BTreeMap::new(),
            stats: BTreeMap::new(),
            attrs: Attrs::default(),
            servers,
            unseen_before,
            bytes: 0,
            torn: false,
            dropped: false,
            holds: 0,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == StepPhase::Closed
    }

    /// No rank is awaited any more: a step that one of so many ranks has not ended is torn.
    pub(super) fn close(&mut self, ranks: usize) {
        self.phase = StepPhase::Closed;
        self.torn |= self.ended.len() < ranks;
    }

    /// Gives up what the step holds while ranks still write it. Returns the servers that may free their blocks.
    pub(super) fn drop_content(&mut self) -> Vec<ServerId> {
        self.dropped = true;
        self.bytes = 0;
        self.fields.clear();
        self.registered.clear();
        self.stats.clear();
        self.attrs = Attrs::default();
        std::mem::take(&mut self.servers).into_iter().collect()
    }

    /// Takes in what a rank put. The first problem is returned; what fits is kept.
    pub(super) fn register(&mut self, rank: u32, server: ServerId, ended: StepContribution) -> Result<()> {
        let mut result = Ok(());
        // It keeps what it told until the step is free.
        self.servers.insert(server);
        if !self.ended.insert(rank) {
            // Another server told the same, and has died.
            return Ok(());
        }
        if !ended.time.is_nan() && self.time_from.is_none_or(|known| rank < known) {
            (self.time, self.time_from) = (ended.time, Some(rank));
        }
        self.dropped |= ended.dropped;
        self.torn |= ended.torn;
        self.servers.extend(&ended.servers);
        for (key, attr) in ended.attrs.of(None) {
            if let Err(error) = self.attrs.set_at_step(key, attr.clone()) {
                result = Err(error.during(format!("step {}, rank {rank}", ended.step)));
            }
        }
        for FieldContribution { field, blocks, registered, stats } in ended.fields {
            if let Some(stats) = stats {
                self.stats.entry(field.name.clone()).or_insert(Stats::EMPTY).merge(&stats);
            }
            if registered.blocks > 0 {
                let known = self.registered.entry(field.name.clone()).or_default();
                known.blocks += registered.blocks;
                known.bytes = known.bytes.saturating_add(registered.bytes);
                self.bytes += registered.bytes;
            }
            let index =
                self.fields.entry(field.name.clone()).or_insert_with(|| FieldIndex::new(field.clone()));
            if index.field() != &field && result.is_ok() {
                result = Err(Error::conflict(format!(
                    "rank {rank} gives field '{}' at {} another way than another rank: {}; all ranks of a step must agree",
                    field.name,
                    step_name(ended.step),
                    index.field().differences_at_step(&field).join("; ")
                )));
            }
            for block in blocks {
                self.servers.insert(block.location.server);
                let bytes = block.location.bytes;
                match index.insert(block) {
                    Ok(true) => self.bytes = self.bytes.saturating_add(bytes),
                    Ok(false) => {}
                    Err(error) if result.is_ok() => result = Err(error.during(step_name(ended.step))),
                    Err(_) => {}
                }
            }
        }
        result
    }

    /// The step as it is told to somebody with these needs.
    pub(super) fn report(&self, id: StepId, needs: &Needs) -> StepReport {
        let wanted = self.fields.values().filter(|index| needs.wants(index.field(), id.step));
        let fields = wanted
            .map(|index| {
                let field = index.field();
                let terms = needs.of(&field.name);
                let part = terms.and_then(|terms| terms.part.clone());
                let statistics = terms.map_or(Statistics::None, |terms| terms.statistics);
                let wants_stats = statistics.is_of_field() && part.is_none();
                let stats = self.stats.get(&field.name).filter(|_| wants_stats);
                if statistics == Statistics::Alone {
                    let stats = stats.copied().map(Box::new);
                    return FieldReport {
                        stats,
                        stats_alone: true,
                        ..FieldReport::new(field.clone(), Vec::new())
                    };
                }
                let registered = self.registered.get(&field.name).map_or(0, |registered| registered.blocks);
                FieldReport {
                    field: field.clone(),
                    blocks: blocks_in(index, part.as_ref()),
                    part,
                    registered,
                    stats: stats.copied().map(Box::new),
                    stats_alone: false,
                }
            })
            .collect();
        StepReport {
            id,
            time: self.time,
            missed: 0,
            rewound: false,
            torn: self.torn,
            dropped: self.dropped,
            fields,
            statics: None,
            own_attrs: (!self.attrs.is_empty()).then(|| Box::new(self.attrs.clone())),
            attrs: None,
            term: 0,
            ranks: 0,
            absent: Vec::new(),
            attempt: 0,
        }
    }

    /// All its fields, as somebody is told of them who needs all of each.
    pub(super) fn whole_fields(&self) -> Vec<FieldReport> {
        let whole = |index: &FieldIndex| FieldReport {
            registered: self.registered.get(&index.field().name).map_or(0, |registered| registered.blocks),
            stats: self.stats.get(&index.field().name).copied().map(Box::new),
            ..FieldReport::new(index.field().clone(), index.blocks().to_vec())
        };
        self.fields.values().map(whole).collect()
    }

    /// The fields of which it has blocks, and how many bytes.
    pub(super) fn bytes_of_fields(&self) -> impl Iterator<Item = (&String, u64)> {
        self.fields.iter().filter_map(|(name, index)| {
            let registered = self.registered.get(name).copied().unwrap_or_default();
            let bytes = index.blocks().iter().map(|block| block.location.bytes);
            let has_some = registered.blocks > 0 || !index.blocks().is_empty();
            has_some.then(|| (name, bytes.fold(registered.bytes, u64::saturating_add)))
        })
    }

    /// How many blocks it has, here or with the owners of their tiles.
    pub(super) fn block_count(&self) -> u64 {
        let told: usize = self.fields.values().map(|index| index.blocks().len()).sum();
        told as u64 + self.registered.values().map(|registered| registered.blocks).sum::<u64>()
    }
}
