//! A step that a rank has begun and not ended.

use crate::held::Held;
use forebay_core::attr::Attrs;
use forebay_core::block::BlockRecord;
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
    /// Of fields of which they are wanted, the statistics of what the rank put.
    pub(super) stats: BTreeMap<String, Stats>,
    /// What the rank says of it.
    pub(super) attrs: Attrs,
    pub(super) held: Vec<Held>,
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
            stats: BTreeMap::new(),
            attrs: Attrs::default(),
            held: Vec::new(),
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
    pub(super) fn add(&mut self, field: String, record: BlockRecord, told: usize, here: bool) {
        if here {
            self.held.push(Held::from(&record.location));
        }
        self.told += told;
        self.keys.insert((field.clone(), record.key));
        self.sizes.push((field.clone(), if here { record.location.bytes } else { 0 }));
        self.fields.entry(field).or_default().push(record);
    }
}
