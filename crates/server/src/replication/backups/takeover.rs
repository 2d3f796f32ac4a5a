//! A primary is dead: its backups hold in its place what they held for it, and answer for its arenas.

use super::Backups;
use super::backup::{Backup, BackupUnit};
use crate::context::Context;
use crate::held::Held;
use crate::replication::sources::Sources;
use crate::replication::successors::Successors;
use forebay_core::ids::ServerId;
use forebay_core::steps::{FieldReport, Ledger};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit, SpaceBlock};
use std::collections::BTreeSet;

/// What this server holds in the place of a primary that is dead.
#[derive(Debug)]
pub(crate) struct TakenOver {
    /// What ranks had reported to it.
    pub(crate) ledger: Ledger,
    pub(crate) units: Vec<(ReplicaUnit, TakenUnit)>,
}

/// A unit that this server holds in the place of a primary that is dead.
#[derive(Debug)]
pub(crate) struct TakenUnit {
    pub(crate) copies: u32,
    /// The servers that were to hold it, this one among them if it was asked to.
    pub(crate) backups: Vec<ServerId>,
    /// Where its blocks are.
    pub(crate) ranges: BTreeSet<BlockRange>,
    /// Where this server held others of them before.
    pub(crate) here_before: BTreeSet<BlockRange>,
    /// Their records, where only owners of tiles know them.
    pub(crate) records: Vec<FieldReport>,
    /// What its owners know, if it is a block of the space.
    pub(crate) space: Option<SpaceBlock>,
}

impl Backups {
    /// A primary is dead: this server answers for what it held for it, which belongs to other components now.
    pub(in crate::replication) fn take_over(
        &mut self,
        cx: &Context<'_>,
        sources: &dyn Sources,
        successors: &mut Successors,
        dead: ServerId,
    ) -> Option<TakenOver> {
        let mut backup = self.primaries.remove(&dead)?;
        drop(backup.orders.take());
        backup.drop_what_is_held(cx, sources, successors, dead);
        {
            let mut store = cx.server.store.lock();
            for (theirs, arena) in &backup.arenas {
                store.adopt(arena.here);
                if store.has_arena(arena.here) {
                    successors.add((dead, *theirs), cx.me(), arena.here);
                    // What that server answered for in the place of others.
                    for key in successors.replaced_by(dead, *theirs) {
                        successors.add(key, cx.me(), arena.here);
                    }
                }
            }
        }
        tracing::info!("copies of {} steps of {dead} are here", backup.len());
        let units = backup.units.into_iter().map(|(key, unit)| (key, unit.take_over(cx)));
        Some(TakenOver { units: units.collect(), ledger: backup.ledger })
    }
}

impl Backup {
    /// Lets go of what was to be held for the primary, and this server holds in the place of another one: the same memory may
    /// come from several that had copies of it. Before its arenas are taken over, so that no page is given back.
    fn drop_what_is_held(
        &mut self,
        cx: &Context<'_>,
        sources: &dyn Sources,
        successors: &mut Successors,
        dead: ServerId,
    ) {
        for (theirs, backup_arena) in &self.arenas {
            let key = (dead, *theirs);
            let stands_for = successors.replaced_by(dead, *theirs).into_iter().chain([key]);
            let by = stands_for.flat_map(|key| successors.of_arena(key));
            let here: BTreeSet<u32> = by.filter(|(by, _)| *by == cx.me()).map(|(_, arena)| arena).collect();
            for arena in here {
                for (id, unit) in &mut self.units {
                    let place = |range: &BlockRange| Held { arena, ..Held::from(range) };
                    let twice = unit.ranges.extract_if(.., |range| {
                        range.arena == backup_arena.here && sources.holds(id, place(range))
                    });
                    let twice: Vec<BlockRange> = twice.collect();
                    unit.here_before.extend(twice.iter().map(|range| BlockRange { arena, ..*range }));
                    cx.server.free(twice.iter().map(Held::from));
                }
                successors.add(key, cx.me(), arena);
            }
        }
    }
}

impl BackupUnit {
    /// The primary is dead. What has not come yet died with it.
    fn take_over(mut self, cx: &Context<'_>) -> TakenUnit {
        for range in std::mem::take(&mut self.coming) {
            self.ranges.remove(&range);
            cx.server.free([Held::from(&range)]);
        }
        let records = self.records.into_values();
        TakenUnit {
            copies: self.copies,
            backups: self.backups,
            ranges: self.ranges,
            here_before: self.here_before,
            records: records
                .map(|(field, blocks)| FieldReport::new(field, blocks.into_values().collect()))
                .collect(),
            space: self.space,
        }
    }
}
