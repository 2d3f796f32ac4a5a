//! A step that a rank has begun and not ended.

use crate::held::Held;
use forebay_core::attr::Attrs;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::ids::{BlockKey, StepNumber};
use forebay_core::stats::Stats;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A step that a rank has begun and not ended.
#[derive(Debug)]
pub(super) struct OpenStep {
    pub(super) number: StepNumber,
    pub(super) time: f64,
    pub(super) demand: Arc<Demand>,
    pub(super) fields: BTreeMap<String, Vec<BlockRecord>>,
    /// Blocks of static fields, which belong to the run.
    pub(super) statics: BTreeMap<String, Vec<BlockRecord>>,
    /// Of fields of which they are wanted, the statistics of what the rank put.
    pub(super) stats: BTreeMap<String, Stats>,
    /// What the rank says of it.
    pub(super) attrs: Attrs,
    pub(super) held: Vec<Held>,
    /// What is held of static fields.
    pub(super) statics_held: Vec<Held>,
    /// Field and key of each block.
    pub(super) keys: HashSet<(String, BlockKey)>,
    pub(super) sizes: Vec<(String, u64)>,
    /// Bytes of what is told of this step, encoded.
    pub(super) told: usize,
}

impl OpenStep {
    pub(super) fn new(number: StepNumber, time: f64, demand: Arc<Demand>) -> OpenStep {
        OpenStep {
            number,
            time,
            demand,
            fields: BTreeMap::new(),
            statics: BTreeMap::new(),
            stats: BTreeMap::new(),
            attrs: Attrs::default(),
            held: Vec::new(),
            statics_held: Vec::new(),
            keys: HashSet::new(),
            sizes: Vec::new(),
            told: 0,
        }
    }

    /// Statistics are to be counted among those of a field.
    pub(super) fn count(&mut self, field: &str, stats: &Stats) {
        self.stats.entry(field.to_owned()).or_insert(Stats::EMPTY).merge(stats);
    }

    /// A block is put in it, of which so many bytes are told at most; it may be `here`, on this server.
    pub(super) fn add(&mut self, field: &Field, record: BlockRecord, told: usize, here: bool) {
        let name = field.name.clone();
        self.told += told;
        self.keys.insert((name.clone(), record.key));
        let held = here.then(|| Held::from(&record.location));
        if field.is_static {
            self.statics_held.extend(held);
            self.statics.entry(name).or_default().push(record);
            return;
        }
        self.held.extend(held);
        self.sizes.push((name.clone(), if here { record.location.bytes } else { 0 }));
        self.fields.entry(name).or_default().push(record);
    }

    /// Whether a block of this field was put in it.
    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field) || self.statics.contains_key(field)
    }

    /// How many blocks were put in it.
    pub(super) fn blocks(&self) -> usize {
        self.fields.values().chain(self.statics.values()).map(Vec::len).sum()
    }

    /// Whether others are told of it: something is demanded at it, or was put. All ranks of a step see one demand, so that all
    /// decide this alike; their fields may differ.
    pub(super) fn is_told(&self) -> bool {
        !self.demand.is_empty() || !self.fields.is_empty()
    }
}
