//! What a server held that its group gave up. When it wakes it rejoins as a new member, and brings that with it.
//!
//! To its former self it is what a backup is to a dead primary: it answers for the arenas, by which blocks are found, and tells who
//! looks after them which steps are there: those that are known no more are freed. What ranks told it they have told others
//! since. Blocks of the space are not held again: they may have been put again, or removed, and nobody remembers that.

use super::successors::{ArenaKey, Successors};
use crate::directory::Directory;
use crate::held::Held;
use crate::shared::Shared;
use crate::streams::holdings::Holdings;
use forebay_core::ids::{Lineage, ServerId, StepId};
use forebay_store::Store;
use forebay_wire::peer::replication::{BlockRange, Replica, ReplicaUnit};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What a server held that its group gave up.
#[derive(Debug)]
pub(crate) struct HeldBefore {
    /// Of which group.
    pub(crate) lineage: Lineage,
    /// Which member it was.
    pub(crate) former: ServerId,
    arenas: BTreeMap<u32, FormerArena>,
    replicas: Vec<Replica>,
}

/// An arena of a server that its group gave up.
#[derive(Debug)]
pub(crate) struct FormerArena {
    /// Its number there.
    pub(crate) number: u32,
    pub(crate) file: OwnedFd,
    pub(crate) size: u64,
    /// The arenas of dead servers for which it stood.
    pub(crate) stands_for: Vec<ArenaKey>,
}

impl HeldBefore {
    /// What a server held that is no member any more.
    pub(crate) fn of(
        server: &Shared,
        holdings: &Holdings,
        directory: &Directory,
        successors: &Successors,
    ) -> HeldBefore {
        let (lineage, former) = (server.lineage, server.id);
        let mut held = HeldBefore { lineage, former, arenas: BTreeMap::new(), replicas: Vec::new() };
        let mut store = server.store.lock();
        for (id, blocks) in holdings.all() {
            let ranges = held.add_ranges(&mut store, successors, blocks);
            if !ranges.is_empty() {
                held.replicas.push(replica(id, ranges, directory));
            }
        }
        held
    }

    /// The ranges of these blocks; their arenas are taken along.
    fn add_ranges(&mut self, store: &mut Store, successors: &Successors, blocks: &[Held]) -> Vec<BlockRange> {
        let mut ranges = Vec::new();
        for Held { arena: number, offset, generation } in blocks.iter().copied() {
            let Some(bytes) = store.length_of(number, offset, generation) else { continue };
            if let Entry::Vacant(place) = self.arenas.entry(number) {
                let Ok((file, size)) = store.backup_descriptor(number) else { continue };
                let stands_for = successors.replaced_by(self.former, number);
                place.insert(FormerArena { number, file, size, stands_for });
            }
            ranges.push(BlockRange { arena: number, offset, generation, bytes });
        }
        ranges
    }

    /// Whether it held nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    /// Its arenas, and what it held in them.
    pub(crate) fn into_parts(self) -> (impl Iterator<Item = FormerArena>, Vec<Replica>) {
        (self.arenas.into_values(), self.replicas)
    }
}

/// What a server held of a step, as a backup is told of it.
fn replica(id: &StepId, ranges: Vec<BlockRange>, directory: &Directory) -> Replica {
    Replica {
        unit: ReplicaUnit::Step(id.clone()),
        copies: 1,
        backups: Vec::new(),
        records: directory.holder.records_in(id, &ranges),
        ranges,
        ended: Vec::new(),
        space: None,
        of_told_run: false,
    }
}
