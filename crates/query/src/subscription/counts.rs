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
    /// How long it took in all to tell what came of steps.
    pub response: ResponseTime,
}

/// What servers are busy with from when a step is closed until its events are told, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseTime {
    /// What is due is found out, and events are told.
    pub managing: f64,
    /// For bytes that other servers hold.
    pub waiting: f64,
    /// With elements, at the server that took longest.
    pub computing: f64,
    /// Questions travel down the tree of servers, and answers up.
    pub aggregating: f64,
}

impl ResponseTime {
    /// Takes in that of another step.
    pub fn add(&mut self, other: ResponseTime) {
        self.managing += other.managing;
        self.waiting += other.waiting;
        self.computing += other.computing;
        self.aggregating += other.aggregating;
    }
}
