//! The units that a server which leaves holds: which of them others hold by now, and which are given up.

use crate::held::Held;
use crate::node::{Components, Node};
use crate::replication::primary::candidates;
use forebay_core::ids::{ServerId, StepId};
use forebay_core::steps::StepContribution;
use forebay_wire::peer::replication::ReplicaUnit;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many blocks this server holds of a unit, and what how many ranks reported of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    blocks: usize,
    reports: usize,
}

/// What a server gives away that leaves.
#[derive(Debug)]
pub(super) struct Drain {
    discard: bool,
    /// What is given up since no other server takes it, and how much of it there was: what comes to it later is offered again.
    given_up: BTreeMap<ReplicaUnit, Amount>,
}

impl Drain {
    /// With `discard`, what no other server takes is given up.
    pub(super) fn new(discard: bool) -> Drain {
        Drain { discard, given_up: BTreeMap::new() }
    }

    /// Whether what no other server takes is given up.
    pub(super) fn discards(&self) -> bool {
        self.discard
    }

    /// No other server takes a unit, of which there is so much.
    pub(super) fn give_up(&mut self, unit: ReplicaUnit, amount: Amount) {
        self.given_up.insert(unit, amount);
    }

    /// What is here that no other server would answer for, in order, but for what is given up.
    pub(super) fn only_here(&self, node: &Node, state: &Components) -> Vec<ReplicaUnit> {
        let steps: BTreeSet<StepId> =
            state.holdings.steps().cloned().chain(state.ranks.ledger().all_steps()).collect();
        let all = steps.into_iter().map(ReplicaUnit::Step).chain(state.space.held_units());
        let able = candidates(node, &state.common.members).len();
        all.filter(|unit| !self.is_given_up(state, unit) && !is_elsewhere(state, unit, able)).collect()
    }

    fn is_given_up(&self, state: &Components, unit: &ReplicaUnit) -> bool {
        self.given_up.get(unit).is_some_and(|amount| *amount == amount_of(state, unit))
    }
}

/// Whether as many others hold a unit as are to have it when this server is gone, if so many are able to.
fn is_elsewhere(state: &Components, unit: &ReplicaUnit, able: usize) -> bool {
    let Amount { blocks, reports } = amount_of(state, unit);
    let primary = &state.replication.primary;
    let wanted = primary.wanted_without_this_server(unit).min(able).max(1);
    let living = |server: &ServerId| !state.common.members.is_gone(*server);
    primary.backups_of(unit, blocks, reports).into_iter().filter(living).count() >= wanted
}

/// The ranges that this server holds of a unit, and what ranks reported of it.
pub(super) fn held_of(
    state: &Components,
    unit: &ReplicaUnit,
) -> (Vec<Held>, Vec<(u32, Arc<StepContribution>)>) {
    match unit {
        ReplicaUnit::Step(id) => (state.holdings.of(id).to_vec(), state.ranks.ledger().contributions_to(id)),
        ReplicaUnit::Space(key) => (state.space.range_of(*key).into_iter().collect(), Vec::new()),
    }
}

/// How much this server holds of a unit.
pub(super) fn amount_of(state: &Components, unit: &ReplicaUnit) -> Amount {
    let (held, reports) = held_of(state, unit);
    Amount { blocks: held.len(), reports: reports.len() }
}
