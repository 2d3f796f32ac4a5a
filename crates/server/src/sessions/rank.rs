//! A rank of a stream, as the session of its connection to its home server knows it.

use super::open_step::OpenStep;
use super::receive::BlockDestination;
use super::writing::Writing;
use crate::directory::registration::Done;
use crate::held::Held;
use crate::node::{Components, Node};
use crate::streams::local_ranks::RankKey;
use forebay_core::attr::Attrs;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::demand::Demand;
use forebay_core::ids::{RunNumber, STATIC_STEP, ServerId, StepId, StepNumber};
use forebay_core::stats::Stats;
use forebay_core::steps::{
    Durability, FieldContribution, Policy, RECORDS_TRAVEL_RANKS_MAX, RankEnd, RunOptions, StepContribution,
};
use forebay_core::{Error, Result};
use forebay_wire::client::block::Grant;
use forebay_wire::peer::streams;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One rank of a stream, which has joined at this server, its home.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) stream: String,
    pub(super) rank: u32,
    pub(super) run: RunNumber,
    pub(super) policy: Policy,
    /// How many ranks its run has.
    pub(super) ranks: u32,
    /// How many readers its run waits for, until one of its ranks has begun a step.
    pub(super) awaited_readers: u32,
    /// How many other servers are to hold copies of its blocks, and when.
    pub(super) copies: u32,
    pub(super) durability: Durability,
    pub(super) writing: Writing,
    pub(super) fields: BTreeMap<String, Field>,
    pub(super) begun: bool,
    /// Whether it has ended a step with which it put static fields.
    pub(super) has_told_statics: bool,
    pub(super) last: Option<StepNumber>,
    /// The coordinator knows that the rank has finished all steps below this one.
    pub(super) told_below: StepNumber,
    /// The coordinator was told of steps since it was last asked whether it has taken all.
    pub(super) unheard: bool,
    pub(super) open: Option<OpenStep>,
    /// Field and size of each block of the last step with blocks: the next one is likely the same.
    pub(super) predicted: Vec<(String, u64)>,
    /// The version of the demand in force at that step.
    pub(super) predicted_under: u64,
    pub(super) deferred: Option<Error>,
    /// It goes on at another home: nothing it does is this server's any more.
    pub(super) moved: bool,
    /// With which attempt it came back; 0 if it has not.
    pub(super) attempt: u32,
    /// Whether it stays: one that comes back may still give that up.
    pub(super) settled: bool,
}

impl Rank {
    /// A rank that has joined with these options, and writes there.
    pub(super) fn new(
        (stream, run, rank): RankKey,
        options: &RunOptions,
        attempt: u32,
        writing: Writing,
    ) -> Rank {
        Rank {
            stream,
            rank,
            run,
            policy: options.policy,
            ranks: options.size,
            awaited_readers: options.wait_for_readers,
            copies: options.copies(),
            durability: options.durability,
            writing,
            fields: BTreeMap::new(),
            begun: false,
            has_told_statics: false,
            last: None,
            told_below: 0,
            unheard: false,
            open: None,
            predicted: Vec::new(),
            predicted_under: 0,
            deferred: None,
            moved: false,
            attempt,
            settled: attempt == 0,
        }
    }

    /// Where its blocks go.
    pub(super) fn target(&mut self) -> BlockDestination<'_> {
        BlockDestination { writing: &mut self.writing, stream: &self.stream, policy: self.policy }
    }

    /// Something went wrong with a message that is not answered.
    pub(super) fn note(&mut self, error: Error) {
        self.deferred.get_or_insert(error);
    }

    /// Whether each block is copied as soon as it is put.
    pub(super) fn copies_at_once(&self) -> bool {
        self.copies > 0 && self.durability == Durability::Replicated
    }

    /// Whether it is this rank.
    pub(super) fn is(&self, stream: &str, run: RunNumber, rank: u32) -> bool {
        (&self.stream[..], self.run, self.rank) == (stream, run, rank)
    }

    /// Whether it goes on at another server: this one takes nothing of it any more.
    pub(super) fn has_moved(&self) -> bool {
        self.moved
    }

    /// Whether a step is open whose blocks, like those of the step before, come with its end.
    pub(super) fn ends_at_once(&self) -> bool {
        self.open.is_some()
            && !self.predicted.is_empty()
            && self.predicted.iter().all(|(_, bytes)| *bytes == 0)
    }

    /// Tells the coordinator what the rank put in a step: the rank has ended it, or is gone and leaves it torn. `done` hears when
    /// all of it is as safe as it is to be.
    pub(super) fn tell_step(
        &mut self,
        node: &Node,
        open: OpenStep,
        dropped: bool,
        torn: bool,
        done: Option<Done>,
    ) -> Result<()> {
        self.has_told_statics |= !open.statics.is_empty();
        let contributions = self.contributions(open, dropped, torn)?;
        let last = contributions.len().saturating_sub(1);
        let mut done = done;
        let mut state = node.state.lock();
        for (index, (ended, held)) in contributions.into_iter().enumerate() {
            // One after the other: the last one is safe after all others.
            let done = if index == last { done.take() } else { None };
            self.tell_contribution(node, &mut state, ended, held, done);
        }
        if self.behind(node, &state).is_some() {
            // Its ranks wait with their next steps.
            state.ranks.revoke_begins(&self.stream, self.run);
        }
        node.drain(&mut state);
        Ok(())
    }

    /// What is told of a step: of static fields first, which belong to the run, and so are known when the step is.
    fn contributions(
        &self,
        mut open: OpenStep,
        dropped: bool,
        torn: bool,
    ) -> Result<Vec<(StepContribution, Vec<Held>)>> {
        let is_told = open.is_told();
        let mut contributions = Vec::new();
        if !open.statics.is_empty() {
            let (put, held) = (std::mem::take(&mut open.statics), std::mem::take(&mut open.statics_held));
            let is_static = |name: &String| self.fields.get(name).is_some_and(|field| field.is_static);
            let stats = open.stats.extract_if(.., |name, _| is_static(name)).collect();
            let statics = StepContribution {
                step: STATIC_STEP,
                time: f64::NAN,
                fields: self.field_contributions(put, &stats)?,
                attrs: Attrs::default(),
                // What found no room of them is not there, and the others are.
                dropped: false,
                torn,
                servers: Vec::new(),
            };
            contributions.push((statics, held));
        }
        if is_told {
            let ended = StepContribution {
                step: open.number,
                time: open.time,
                fields: self.field_contributions(open.fields, &open.stats)?,
                attrs: open.attrs,
                dropped,
                torn,
                servers: Vec::new(),
            };
            contributions.push((ended, open.held));
        }
        Ok(contributions)
    }

    /// What was put of fields: blocks, and statistics that are counted among those of each.
    fn field_contributions(
        &self,
        mut put: BTreeMap<String, Vec<BlockRecord>>,
        stats: &BTreeMap<String, Stats>,
    ) -> Result<Vec<FieldContribution>> {
        // Of some nothing was put but what is counted.
        for name in stats.keys() {
            put.entry(name.clone()).or_default();
        }
        let of_field = |(name, blocks): (String, Vec<BlockRecord>)| {
            let stats = stats.get(&name).copied().map(Box::new);
            let field = self.field(&name)?.clone();
            Ok(FieldContribution { stats, ..FieldContribution::new(field, blocks) })
        };
        put.into_iter().map(of_field).collect()
    }

    /// Tells what the rank put in a step, or of static fields; of that this server holds some.
    fn tell_contribution(
        &self,
        node: &Node,
        state: &mut Components,
        ended: StepContribution,
        held: Vec<Held>,
        done: Option<Done>,
    ) {
        let (stream, run, rank) = self.key();
        let id = StepId { stream: stream.clone(), run, step: ended.step };
        state.holdings.add(&id, held);
        // In a run of too many ranks records do not travel with its steps.
        let register = self.ranks > RECORDS_TRAVEL_RANKS_MAX;
        if register || self.copies > 0 {
            node.end_step(state, (id, rank), ended, register, (self.copies, done));
        } else {
            node.tell_ended(state, (stream, run, rank), Arc::new(ended), false);
        }
    }

    /// A server that is told of this rank's steps and is far behind with taking what it is told.
    pub(super) fn behind(&self, node: &Node, state: &Components) -> Option<ServerId> {
        let coordinator = node.coordinator_of(state, &self.stream);
        let standing = node.standing();
        // In a large run it may be any that owns tiles.
        let registers = self.ranks > RECORDS_TRAVEL_RANKS_MAX;
        let owners = standing.roster.shards.owners().filter(|_| registers);
        let told = owners.chain([coordinator]);
        told.into_iter().find(|server| node.peers.is_behind(*server))
    }

    /// The rank closed its handle or died: tells the coordinator, once. What it put in a step that it did not end
    /// stays in that step, which is torn.
    pub(super) fn leave(&mut self, node: &Node, end: RankEnd) {
        if self.moved {
            return;
        }
        if end == RankEnd::Died && !self.settled {
            return self.give_up(node);
        }
        if let Some(open) = self.take_unfinished_step(node)
            && let Err(error) = self.tell_step(node, open, false, true, None)
        {
            tracing::warn!("the step that a rank left is not told: {error}");
        }
        self.take_off(node, |stream, run, rank| streams::Message::RankGone { stream, run, rank, end });
    }

    /// The step that the rank has begun and will not end, if it has put something in it: small blocks may not have left it.
    fn take_unfinished_step(&mut self, node: &Node) -> Option<OpenStep> {
        let state = node.state.lock();
        let last_put = state.ranks.last_put(&self.key());
        if let Some(open) = self.open.take() {
            return (!open.keys.is_empty() || last_put == Some(open.number)).then_some(open);
        }
        let step = last_put.filter(|step| Some(*step) > self.last)?;
        let demand = state.ranks.demand_at(&self.stream, self.run, step)?;
        // It was begun without a question, and nobody but the rank knew its time.
        Some(OpenStep::new(step, f64::NAN, demand))
    }

    /// The rank has given up to come back here, and goes on elsewhere. What it has put again it puts there, too: here it goes
    /// with its step.
    fn give_up(&mut self, node: &Node) {
        self.moved = true;
        if let Some(open) = self.open.take() {
            self.strand(node, open.number, open.held);
            self.strand(node, STATIC_STEP, open.statics_held);
        }
        self.take_off(node, |stream, run, rank| streams::Message::RankMoves { stream, run, rank });
    }

    /// What this server holds of a step goes with that.
    fn strand(&self, node: &Node, step: StepNumber, held: Vec<Held>) {
        if held.is_empty() {
            return;
        }
        let id = StepId { stream: self.stream.clone(), run: self.run, step };
        let mut state = node.state.lock();
        state.holdings.add(&id, held);
        let coordinator = node.coordinator_of(&state, &self.stream);
        node.tell(&mut state, coordinator, streams::Message::BlocksStranded { id, rank: self.rank });
    }

    /// The rank has its home here no more: tells the coordinator why.
    pub(super) fn take_off(&self, node: &Node, why: impl FnOnce(String, RunNumber, u32) -> streams::Message) {
        let (stream, run, rank) = self.key();
        let mut state = node.state.lock();
        // Not if it has come back here once more, over another connection.
        let Some(highest) = state.ranks.on_left(&self.key(), self.attempt) else { return };
        if let Some(step) = highest {
            // At once: it says nothing of what the rank ended, and the next change of the demand depends on it.
            let highest = streams::Message::HighestBegun { stream: stream.clone(), run, step };
            let coordinator = node.coordinator_of(&state, &stream);
            node.tell(&mut state, coordinator, highest);
        }
        let why = why(stream.clone(), run, rank);
        node.tell_of_rank(&mut state, &(stream, run, rank), why);
        node.drain(&mut state);
    }

    /// Whether the rank is between two steps, all that it told of those before has come, and the coordinator is told.
    pub(super) fn is_between_steps(&self, node: &Node) -> bool {
        let state = node.state.lock();
        if !state.directory.registrations.is_told(&self.key()) {
            return false;
        }
        // From now on it asks before it begins another step; it may have begun one by itself.
        let alone = state.ranks.stop_beginning_alone(&self.key());
        let untold = alone
            .filter(|(step, _)| Some(*step) > self.last)
            .and_then(|(step, demand)| self.fields.values().find(|field| demand.wants(field, step)));
        self.open.is_none() && untold.is_none()
    }

    pub(super) fn key(&self) -> RankKey {
        (self.stream.clone(), self.run, self.rank)
    }

    /// The process has ended: what it could still write to is free.
    pub(super) fn give_back(self, node: &Node) {
        self.writing.close(node);
    }

    pub(super) fn field(&self, name: &str) -> Result<&Field> {
        self.fields.get(name).ok_or_else(|| {
            let known: Vec<_> = self.fields.keys().map(String::as_str).collect();
            Error::not_found(format!(
                "stream '{}' has no field '{name}'; this rank offers {}",
                self.stream,
                if known.is_empty() { "none".into() } else { known.join(", ") }
            ))
        })
    }

    /// Tells the coordinator that the rank begins a step, and so has finished all before it.
    pub(super) fn tell_begun(&mut self, node: &Node, step: StepNumber) {
        self.told_below = step;
        let id = (self.stream.clone(), self.run, self.rank);
        let (stream, run, rank) = id.clone();
        let mut state = node.state.lock();
        state.ranks.on_began(&id, step);
        node.tell_of_rank(&mut state, &id, streams::Message::RankBegan { stream, run, rank, step });
        node.drain(&mut state);
    }

    /// Lets the rank know that it has nothing to ask for before its next step, as far as this one is concerned.
    pub(super) fn say_taken(&self, node: &Node, step: StepNumber) {
        let state = node.state.lock();
        state.ranks.say_taken(&self.key(), step);
    }

    /// If the rank has left out steps at which something was wanted, nobody must wait for it there.
    pub(super) fn tell_left_out(&mut self, node: &Node, step: StepNumber) {
        let state = node.state.lock();
        let left_out = state.ranks.wants_any(&self.stream, self.run, self.told_below..step);
        drop(state);
        if left_out {
            self.tell_begun(node, step);
        }
    }

    /// How many bytes the rank will likely put at its first step: an equal share of what is wanted of its fields.
    pub(super) fn likely_bytes(&self, demand: &Demand) -> u64 {
        let wanted = self.fields.values().filter(|field| demand.ever_wants(&field.name));
        let bytes: u64 = wanted.filter_map(Field::bytes).fold(0, u64::saturating_add);
        bytes / u64::from(self.ranks)
    }

    /// Ranges for the blocks of the last step, as far as their fields are wanted now and there is room. Where something else is
    /// wanted than at that step, other parts of them may be.
    pub(super) fn grant_predicted(&mut self, node: &Node, demand: &Demand, step: StepNumber) -> Vec<Grant> {
        let mut grants = Vec::new();
        if self.predicted_under != demand.version {
            return grants;
        }
        for (name, bytes) in self.predicted.clone() {
            let wanted = bytes > 0 && self.fields.get(&name).is_some_and(|field| demand.wants(field, step));
            if !wanted {
                continue;
            }
            match self.writing.try_reserve(node, bytes) {
                Ok(Some(grant)) => grants.push(grant),
                _ => break,
            }
        }
        grants
    }
}
