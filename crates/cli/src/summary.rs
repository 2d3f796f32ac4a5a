//! What is said of a field at a step in few words: its bytes and its statistics.

use forebay_client::core::stats::Stats;
use forebay_client::{Result, Step};
use serde_json::{Value, json};

/// A field at a step.
pub(crate) struct Summary {
    /// How many blocks it has.
    pub(crate) blocks: u64,
    /// Of these blocks as they are held, ghosts included.
    pub(crate) bytes: u64,
    /// Of its elements, ghosts left out; `None` for complex numbers, and where more would have to be read than was allowed.
    pub(crate) stats: Option<Stats>,
}

/// The summary of a field. Statistics that do not come with its blocks are computed, where that takes no more than so many
/// bytes: on this host they are read in place, from others they are fetched.
pub(crate) fn of(step: &Step, field: &str, bytes_max: u64) -> Result<Summary> {
    let records = step.records(field)?;
    let bytes = records.iter().map(|record| record.location.bytes).sum();
    let has_all = |record: &forebay_client::core::block::BlockRecord| {
        record.stats.as_ref().is_some_and(|stats| stats.moments.is_some())
    };
    let to_read = records.iter().filter(|record| !has_all(record));
    let to_read: u64 = to_read.map(|record| record.location.bytes).sum();
    let blocks = records.len() as u64;
    let mut summary = Summary { blocks, bytes, stats: None };
    if to_read > bytes_max || !step.field(field)?.dtype.is_ordered() {
        return Ok(summary);
    }
    let mut all = Stats::EMPTY;
    for (index, record) in records.iter().enumerate() {
        match record.stats.as_ref().and_then(|stats| stats.whole()) {
            Some(stats) => all.merge(&stats),
            None => step.block(field, index)?.statistics()?.iter().for_each(|stats| all.merge(stats)),
        }
    }
    summary.stats = Some(all);
    Ok(summary)
}

/// Statistics as JSON, which has no numbers that are not finite: null where there is none.
pub(crate) fn json(stats: Option<&Stats>) -> Value {
    let known = stats.filter(|stats| stats.count > 0);
    json!({
        "min": known.map(|stats| stats.min()),
        "max": known.map(|stats| stats.max()),
        "mean": known.map(Stats::mean),
        "count": stats.map(|stats| stats.count),
        "nan": stats.map(|stats| stats.nan),
    })
}
