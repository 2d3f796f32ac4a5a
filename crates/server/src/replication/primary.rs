//! This server as a primary: which backups hold what it holds, so that it outlives this server.
//!
//! - this module: what is known of each unit, and what changes as members come and go;
//! - [`request`]: how servers are asked to hold a part of a unit;
//! - [`runs`]: what backups are told of the runs of steps;
//! - [`release`]: what is needed no more, and when its memory is free;
//! - [`candidates`]: which servers can hold copies.

mod candidates;
mod release;
mod request;
mod runs;
mod unit;
mod unneeded;

pub(crate) use candidates::candidates;
pub(crate) use request::{Part, PartReplication, Replies, Request};
pub(crate) use unneeded::Unneeded;

use crate::context::Context;
use forebay_cluster::environment::HashMap;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::StepContribution;
use forebay_wire::peer::replication::{BlockRange, Message, ReplicaUnit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use unit::ReplicatedUnit;
use unneeded::Release;

/// What other servers hold for this one.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// The backups that know of each arena.
    arenas: HashMap<u32, BTreeSet<ServerId>>,
    /// The backups that hold something, and the arenas in which they were seen to.
    sure: HashMap<ServerId, BTreeSet<u32>>,
    /// Which version of what this server knows of a run each backup was told.
    runs: BTreeMap<(String, RunNumber), HashMap<ServerId, u64>>,
    units: HashMap<ReplicaUnit, ReplicatedUnit>,
    /// What this server holds in the place of a dead one together with others, of whom another one sees to copies.
    shared: HashMap<ReplicaUnit, SharedUnit>,
    /// What is needed no more, but still held by backups, by the number with which they were told.
    releases: HashMap<u64, Release>,
    consequences: Vec<Consequence>,
}

/// What follows for the rest of the server.
#[derive(Debug)]
pub(crate) enum Consequence {
    /// The memory of a block of the space is free that another server asked this one to free, with a question of this token.
    Freed(ServerId, u64),
    /// These have too few copies: others are to be made, in the background.
    Lacking(Vec<ReplicaUnit>),
}

/// Something that several servers hold in the place of a dead one. The one with the lowest number sees to copies.
#[derive(Debug, Default)]
pub(crate) struct SharedUnit {
    pub(crate) copies: u32,
    pub(crate) ranges: BTreeSet<BlockRange>,
    /// The others.
    pub(crate) with: BTreeSet<ServerId>,
}

/// A unit with too few copies.
#[derive(Debug)]
pub(crate) struct LackingUnit {
    pub(crate) copies: u32,
    pub(crate) parts: u64,
    pub(crate) ranges: Vec<BlockRange>,
    /// Whether no part of it is on its way.
    pub(crate) is_settled: bool,
}

impl Primary {
    /// What follows for the rest of the server from what this was told since it was last asked.
    pub(crate) fn take_consequences(&mut self) -> Vec<Consequence> {
        std::mem::take(&mut self.consequences)
    }

    /// How many units are to have copies that others hold, and how many of them have too few.
    pub(crate) fn status(&self) -> (usize, usize) {
        let wanted = self.units.values().filter(|unit| unit.copies > 0);
        (wanted.clone().count(), wanted.filter(|unit| unit.lacks_copies()).count())
    }

    /// The backups that hold all of a unit: so many blocks, and what so many ranks reported.
    pub(crate) fn backups_of(&self, unit: &ReplicaUnit, blocks: usize, reports: usize) -> BTreeSet<ServerId> {
        let found =
            self.units.get(unit).filter(|unit| unit.ranges.len() >= blocks && unit.reported.len() >= reports);
        found.map(ReplicatedUnit::full_backups).unwrap_or_default()
    }

    /// How many servers are to hold a unit when this one has left.
    pub(crate) fn wanted_without_this_server(&self, unit: &ReplicaUnit) -> usize {
        let copies = self.units.get(unit).map_or(0, |unit| unit.copies);
        copies.max(self.shared_copies(unit)) as usize + 1
    }

    /// Whether units of which a server was to hold copies would have too few without it, of those that `able` others can
    /// hold.
    pub(crate) fn would_lack_without(&self, server: ServerId, able: usize) -> bool {
        let asked = |unit: &&ReplicatedUnit| unit.asked.contains(&server) && !unit.leavers.contains(&server);
        let lacks = |unit: &ReplicatedUnit| {
            let left = unit.full_backups().iter().filter(|id| **id != server).count();
            left < able.min(unit.copies as usize)
        };
        self.units.values().filter(asked).any(lacks)
    }

    /// A unit that has too few copies; these ranks have reported here what they did of it.
    pub(crate) fn lacking(
        &self,
        unit: &ReplicaUnit,
        ended: &[(u32, Arc<StepContribution>)],
    ) -> Option<LackingUnit> {
        let unit = self.units.get(unit).filter(|unit| unit.lacks_copies())?;
        let ranges = unit.ranges.iter().copied().collect();
        Some(LackingUnit { copies: unit.copies, parts: unit.parts, ranges, is_settled: unit.is_all(ended) })
    }

    /// Of how many parts a unit consists by now; `None` if it needs no copies any more.
    pub(crate) fn parts_of(&self, unit: &ReplicaUnit) -> Option<u64> {
        self.units.get(unit).map(|unit| unit.parts)
    }

    /// A unit is to be held elsewhere, since this server leaves: how many copies it is to have in any case, and of how many
    /// parts this is all that there is, unless something else of it is just being replicated.
    pub(crate) fn begin_hand_over(
        &mut self,
        unit: &ReplicaUnit,
        ended: &[(u32, Arc<StepContribution>)],
    ) -> (u32, Option<u64>) {
        let copies = self.shared_copies(unit);
        let unit = self.units.entry(unit.clone()).or_default();
        unit.copies = unit.copies.max(copies);
        let all = unit.is_all(ended) || seeded(Bug::GivesAPartForAll);
        (unit.copies, all.then_some(unit.parts))
    }

    /// This server stays after all: what was to be held elsewhere for that alone is not, by whoever was asked.
    pub(crate) fn end_hand_over(&mut self, cx: &mut Context<'_>) {
        let handed: Vec<_> = self.units.extract_if(|_, unit| unit.copies == 0).collect();
        for (unit, ReplicatedUnit { asked, .. }) in handed {
            for backup in asked {
                // What is used again before it hears of it, it is told of after this.
                cx.tell(backup, Message::Release { token: 0, unit: unit.clone() });
            }
        }
    }

    /// How many copies something is to have that other servers see to.
    fn shared_copies(&self, unit: &ReplicaUnit) -> u32 {
        self.shared.get(unit).map_or(0, |shared| shared.copies)
    }

    /// Forgets arenas that are gone with all their blocks, and runs that are with all their steps.
    pub(crate) fn forget_gone(
        &mut self,
        cx: &mut Context<'_>,
        is_run_known: impl Fn(&str, RunNumber) -> bool,
    ) {
        let gone: Vec<(u32, BTreeSet<ServerId>)> = {
            let store = cx.server.store.lock();
            self.sure.values_mut().for_each(|sure| sure.retain(|arena| store.has_arena(*arena)));
            self.arenas.extract_if(|arena, _| !store.has_arena(*arena)).collect()
        };
        for (arena, backups) in gone {
            for backup in backups {
                cx.tell(backup, Message::WithdrawArena { arena });
            }
        }
        self.runs.retain(|(stream, run), _| is_run_known(stream, *run));
    }

    /// The members are others: what has lost a copy, or had too few, gets another one, in the background.
    pub(crate) fn on_members(&mut self, cx: &Context<'_>, left: &[ServerId]) {
        for backups in self.arenas.values_mut() {
            backups.retain(|backup| !left.contains(backup));
        }
        for told in self.runs.values_mut() {
            told.retain(|backup, _| !left.contains(backup));
        }
        self.sure.retain(|backup, _| !left.contains(backup));
        self.units.values_mut().for_each(|unit| unit.on_servers_left(left));
        self.release_without(cx, left);
        // Of those that others saw to, it does to some now.
        let mine = self.shared.extract_if(|_, shared| {
            shared.with.retain(|server| !left.contains(server));
            shared.with.first().is_none_or(|first| cx.me() < *first)
        });
        for (unit, shared) in mine.collect::<Vec<_>>() {
            self.see_to_copies(cx, unit, shared);
        }
        let lacking = self.units.iter().filter(|(_, unit)| unit.lacks_copies());
        let lacking = lacking.map(|(unit, _)| unit.clone()).collect();
        self.note_lacking(lacking);
    }

    /// A server leaves that may hold copies, or is gone: others are to hold them.
    pub(crate) fn on_backup_lost(&mut self, lost: ServerId) {
        let mut lacking = Vec::new();
        for (key, unit) in &mut self.units {
            if unit.backups.as_mut().is_some_and(|by| by.remove(&lost)) && unit.lacks_copies() {
                lacking.push(key.clone());
            }
        }
        self.note_lacking(lacking);
    }

    fn note_lacking(&mut self, mut lacking: Vec<ReplicaUnit>) {
        if lacking.is_empty() || seeded(Bug::MakesNoCopiesAgain) {
            return;
        }
        lacking.sort_unstable();
        self.consequences.push(Consequence::Lacking(lacking));
    }

    /// This server holds a unit in the place of a dead one, with others: one of them sees to copies.
    pub(crate) fn share(&mut self, cx: &Context<'_>, unit: ReplicaUnit, shared: SharedUnit) {
        let before = self.shared.remove(&unit).unwrap_or_default();
        let SharedUnit { copies, ranges, with } = shared;
        let shared = SharedUnit { copies: copies.max(before.copies), ranges: &ranges | &before.ranges, with };
        if shared.with.first().is_none_or(|first| cx.me() < *first) {
            return self.see_to_copies(cx, unit, shared);
        }
        self.shared.insert(unit, shared);
    }

    /// This server sees to copies of something that it holds in the place of a dead one, as these do.
    fn see_to_copies(&mut self, cx: &Context<'_>, unit: ReplicaUnit, shared: SharedUnit) {
        let SharedUnit { copies, ranges, with } = shared;
        // One that leaves holds it for the time being, as `request` says.
        let stay = &with - cx.members().leaving();
        let unit = self.units.entry(unit).or_default();
        unit.copies = unit.copies.max(copies);
        unit.ranges.extend(ranges);
        unit.asked.extend(&with);
        // What this server held of it before, others hold.
        unit.begin_part();
        unit.end_part(stay);
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> Result<(), String> {
        for (key, unit) in &self.units {
            unit.sanity_check().map_err(|error| format!("{key}: {error}"))?;
        }
        if let Some((key, _)) = self.shared.iter().find(|(_, shared)| shared.with.is_empty()) {
            return Err(format!("nobody sees to copies of {key}"));
        }
        if self.releases.values().any(Release::is_over) {
            return Err("memory is not freed that nobody holds any more".to_owned());
        }
        match self.consequences.len() {
            0 => Ok(()),
            count => Err(format!("{count} consequences were not seen to")),
        }
    }
}
