//! What is held for one primary.

use super::order::{FetchedRange, Order};
use crate::context::Context;
use crate::held::Held;
use forebay_cluster::environment::HashMap;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, RunNumber, ServerId};
use forebay_core::steps::{FieldReport, Ledger, RankEnd, RunReport, RunSummary};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::peer::replication::{BlockRange, Replica, ReplicaUnit, SpaceBlock};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;

/// Arenas of one primary: it has one for each of its clients.
const ARENAS_MAX: usize = 1 << 16;

/// What is held for one primary.
#[derive(Debug, Default)]
pub(super) struct Backup {
    /// What it told of its ranks.
    pub(super) ledger: Ledger,
    /// Its arenas, by their number there.
    pub(super) arenas: HashMap<u32, BackupArena>,
    pub(super) units: HashMap<ReplicaUnit, BackupUnit>,
    /// Where orders wait for bytes that are fetched.
    pub(super) orders: Option<mpsc::Sender<Order>>,
}

/// An arena of a primary.
#[derive(Debug, Clone, Copy)]
pub(super) struct BackupArena {
    /// Its number here.
    pub(super) here: u32,
    /// Whether it is the very memory of the primary.
    same: bool,
}

/// What is held of a unit.
#[derive(Debug, Default)]
pub(super) struct BackupUnit {
    pub(super) copies: u32,
    /// The servers that hold it, too.
    pub(super) backups: Vec<ServerId>,
    /// Where its blocks are, here.
    pub(super) ranges: BTreeSet<BlockRange>,
    /// Where this server held others of them already when it took them over.
    pub(super) here_before: BTreeSet<BlockRange>,
    /// Those of the ranges whose bytes are still to come.
    pub(super) coming: BTreeSet<BlockRange>,
    /// Their records, where only owners of tiles know them.
    pub(super) records: BTreeMap<String, (Field, BTreeMap<BlockKey, BlockRecord>)>,
    /// What its owners know, if it is a block of the space.
    pub(super) space: Option<SpaceBlock>,
}

impl Backup {
    /// Of how many units something is held.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// The streams of which something is held.
    pub(super) fn streams(&self) -> impl Iterator<Item = &String> {
        let steps = self.units.keys().filter_map(ReplicaUnit::step);
        steps.map(|id| &id.stream).chain(self.ledger.streams())
    }

    /// Whether an arena is new, and not one too many.
    pub(super) fn takes_arena(&self, arena: u32) -> bool {
        !self.arenas.contains_key(&arena) && self.arenas.len() < ARENAS_MAX
    }

    /// An arena of the primary has this number here; it may be the very memory of the primary.
    pub(super) fn add_arena(&mut self, arena: u32, here: u32, same: bool) {
        self.arenas.insert(arena, BackupArena { here, same });
    }

    /// An arena of the primary is gone: its number here.
    pub(super) fn remove_arena(&mut self, arena: u32) -> Option<u32> {
        self.arenas.remove(&arena).map(|arena| arena.here)
    }

    /// The primary is gone: the numbers of its arenas here.
    pub(super) fn into_arenas(self) -> impl Iterator<Item = u32> {
        self.arenas.into_values().map(|arena| arena.here)
    }

    /// The primary tells what it knows of a run.
    pub(super) fn on_run(&mut self, stream: &str, known: RunReport) {
        self.ledger.on_replica(stream, known);
    }

    /// A rank with its home at the primary is gone.
    pub(super) fn on_rank_gone(&mut self, stream: &str, run: RunNumber, rank: u32, end: RankEnd) {
        self.ledger.on_gone(stream, run, rank, end);
    }

    /// All ranks of a run have come and gone.
    pub(super) fn on_run_over(&mut self, stream: &str, run: RunNumber, summary: RunSummary) {
        self.ledger.on_run_over(stream, run, summary);
    }

    /// Whether the bytes of a replica are the first ones of the primary that are to be fetched.
    pub(super) fn is_to_fetch(&self, replica: &Replica) -> bool {
        let fetched = |range: &BlockRange| self.arenas.get(&range.arena).is_some_and(|arena| !arena.same);
        self.orders.is_none() && replica.ranges.iter().any(fetched)
    }

    /// An error if nothing is known of the run of a step that is to be held, though it was told: it was forgotten, since many
    /// others came after it.
    pub(super) fn check_run(&self, replica: &Replica) -> Result<()> {
        let Some(id) = replica.unit.step().filter(|_| replica.of_told_run) else { return Ok(()) };
        match self.ledger.run(&id.stream, id.run) {
            Some(_) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Ended,
                format!("run {} of stream '{}' is not known", id.run, id.stream),
            )),
        }
    }

    /// Holds a replica of which no bytes are to be fetched.
    pub(super) fn hold(&mut self, cx: &Context<'_>, replica: Replica) -> Result<()> {
        self.reserve(cx, &replica)?;
        self.note_reports(replica);
        Ok(())
    }

    /// Finds room for blocks of a unit of the primary: those that are new here.
    fn reserve(&mut self, cx: &Context<'_>, replica: &Replica) -> Result<Vec<FetchedRange>> {
        let unit = self.units.entry(replica.unit.clone()).or_default();
        unit.copies = unit.copies.max(replica.copies);
        unit.backups.clone_from(&replica.backups);
        let mut store = cx.server.store.lock();
        let mut new: Vec<FetchedRange> = Vec::new();
        for range in &replica.ranges {
            let arena = self.arenas.get(&range.arena);
            let arena =
                arena.ok_or_else(|| Error::not_found(format!("there is no arena {}", range.arena)))?;
            let mine = BlockRange { arena: arena.here, ..*range };
            if unit.ranges.contains(&mine) {
                continue;
            }
            let BlockRange { arena, offset, generation, bytes } = mine;
            let held = store.hold_at(arena, offset, generation, bytes);
            if !matches!(held, Ok(true)) {
                for FetchedRange { mine, .. } in new {
                    let _ = store.free(mine.arena, mine.offset, mine.generation);
                    unit.ranges.remove(&mine);
                }
                let full = || {
                    let (used, budget) = (store.usage().staged, store.usage().budget);
                    let text =
                        format!("there is no room for a copy of {bytes} bytes: {used} of {budget} are held");
                    Error::new(ErrorKind::Full, text)
                };
                return Err(held.err().unwrap_or_else(full));
            }
            unit.ranges.insert(mine);
            new.push(FetchedRange { theirs: *range, mine });
        }
        Ok(new)
    }

    /// As `reserve`, of blocks whose bytes are to be fetched.
    pub(super) fn reserve_to_fetch(
        &mut self,
        cx: &Context<'_>,
        replica: &Replica,
    ) -> Result<Vec<FetchedRange>> {
        let new = self.reserve(cx, replica)?;
        if let Some(unit) = self.units.get_mut(&replica.unit) {
            unit.coming.extend(new.iter().map(|range| range.mine));
        }
        Ok(new)
    }

    /// The bytes of a range have come, or will not.
    pub(super) fn on_fetched(
        &mut self,
        cx: &Context<'_>,
        unit: &ReplicaUnit,
        mine: &BlockRange,
        has_come: bool,
    ) {
        let Some(unit) = self.units.get_mut(unit) else { return };
        unit.coming.remove(mine);
        if !has_come && unit.ranges.remove(mine) {
            cx.server.free([Held::from(mine)]);
        }
    }

    /// What ranks reported of a step is held, and what owners know of its blocks.
    pub(super) fn note_reports(&mut self, replica: Replica) {
        if let Some(id) = replica.unit.step() {
            for (rank, ended) in replica.ended {
                let step = ended.step;
                self.ledger.on_ended(&id.stream, id.run, rank, ended);
                // This is the only copy that it is to have.
                if replica.copies <= 1 {
                    self.ledger.on_replicated(&id.stream, id.run, rank, step);
                }
            }
        }
        if let Some(unit) = self.units.get_mut(&replica.unit) {
            unit.space = replica.space.or(unit.space.take());
            for FieldReport { field, blocks, .. } in replica.records {
                let name = field.name.clone();
                let known = &mut unit.records.entry(name).or_insert_with(|| (field, BTreeMap::new())).1;
                known.extend(blocks.into_iter().map(|block| (block.key, block)));
            }
        }
    }

    /// Lets go of a unit.
    pub(super) fn let_go(&mut self, cx: &Context<'_>, unit: &ReplicaUnit) {
        if let Some(id) = unit.step() {
            self.ledger.on_freed(id);
        }
        if let Some(unit) = self.units.remove(unit) {
            cx.server.free(unit.ranges.iter().map(Held::from));
        }
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        let here: BTreeSet<u32> = self.arenas.values().map(|arena| arena.here).collect();
        if here.len() < self.arenas.len() {
            return Err("two of its arenas have the same number here".to_owned());
        }
        for (key, unit) in &self.units {
            if !unit.coming.is_subset(&unit.ranges) {
                return Err(format!("ranges of {key} are to come that have no room"));
            }
            if !unit.here_before.is_empty() {
                return Err(format!("{key} is held for a living server in the place of a dead one"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl Backup {
    /// The ranges that are held of a unit, with all their bytes, each with its arena at the primary.
    pub(super) fn ranges_of(&self, unit: &ReplicaUnit) -> Vec<(u32, BlockRange)> {
        let Some(unit) = self.units.get(unit) else { return Vec::new() };
        let all = unit.ranges.difference(&unit.coming).flat_map(|range| {
            let theirs = self.arenas.iter().filter(|(_, arena)| arena.here == range.arena);
            theirs.map(|(number, _)| (*number, *range))
        });
        all.collect()
    }

    /// Whether it is held what a rank reported of a step.
    pub(super) fn has_report(&self, id: &forebay_core::ids::StepId, rank: u32) -> bool {
        self.ledger.contributions_to(id).iter().any(|(of, _)| *of == rank)
    }
}
