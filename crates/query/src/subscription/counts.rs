//! How often what has happened.

use crate::value::UnknownKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often what has happened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Evaluations.
    pub evaluated: u64,
    /// Those at which what is watched held.
    pub held: u64,
    /// Those that gave nothing known, by sort.
    pub unknown: BTreeMap<UnknownKind, u64>,
    /// Events.
    pub events: u64,
    /// Steps that were dropped before they could be evaluated.
    pub missed: u64,
    /// Seconds of one core that evaluations took; what several subscriptions ask together is counted for each.
    pub seconds: f64,
    /// Bytes that were read for it, counted in the same way.
    pub read: u64,
}
