//! A server that its group gave up, and that wakes, comes back as a new member and offers what it held.
//!
//! To that it is what a guardian is to a dead server: it answers for the arenas, by which blocks are found, and tells who
//! looks after them which steps are there: those that are known no more are freed. What ranks told it they have told others
//! since. Blocks of the space are not offered: they may have been put again, or removed, and nobody remembers that.

use crate::answers::ArenaKey;
use crate::node::Node;
use crate::streams::holdings::Held;
use forebay_core::ids::{Lineage, ServerId};
use forebay_wire::peer::replication::{BlockRange, Replica, ReplicaUnit};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Duration;
use tokio::time::timeout;

/// How long the other members may take to tell which streams they look after.
const TOLD_PATIENCE: Duration = Duration::from_secs(60);

/// What a server held that its group gave up.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Of which group.
    pub(crate) lineage: Lineage,
    /// Which one it was.
    pub(crate) former: ServerId,
    /// Its arenas by number, each with its size, and the arenas of dead servers for which it stood.
    arenas: BTreeMap<u32, (OwnedFd, u64, Vec<ArenaKey>)>,
    kept: Vec<Replica>,
}

impl Node {
    /// What this server, which is no member any more, held.
    pub(crate) fn what_it_held(&self) -> Offer {
        let state = self.state.lock();
        let mut store = self.store.lock();
        let (lineage, former) = (self.lineage, self.id);
        let mut offer = Offer { lineage, former, arenas: BTreeMap::new(), kept: Vec::new() };
        for (id, held) in state.holdings.all() {
            let mut ranges = Vec::new();
            for Held { arena, offset, generation } in held.iter().copied() {
                let Some(bytes) = store.length_of(arena, offset, generation) else { continue };
                if let Entry::Vacant(place) = offer.arenas.entry(arena) {
                    let Ok((file, size)) = store.guarded_descriptor(arena) else { continue };
                    place.insert((file, size, state.answers.of(self.id, arena)));
                }
                ranges.push(BlockRange { arena, offset, generation, bytes });
            }
            if ranges.is_empty() {
                continue;
            }
            let records = state.directory.records_in(id, &ranges);
            let (id, copies, guardians, ended) = (ReplicaUnit::Step(id.clone()), 1, Vec::new(), Vec::new());
            let (space, of_told_run) = (None, false);
            offer.kept.push(Replica {
                unit: id,
                copies,
                backups: guardians,
                ranges,
                ended,
                records,
                space,
                of_told_run,
            });
        }
        offer
    }

    /// This server has just become a member: it holds what it held before. To be called before it introduces itself.
    pub(crate) fn offer(&self, offer: Offer) {
        let Offer { former, arenas, kept, .. } = offer;
        if kept.is_empty() {
            return;
        }
        let view = self.standing().view.clone();
        let mut state = self.state.lock();
        let state = &mut *state;
        for (arena, (file, size, stands_for)) in arenas {
            self.guard_former(state, (former, arena), (file, size), stands_for);
        }
        for keep in kept {
            self.keep_former(state, former, keep);
        }
        self.take_guarded(state, former, &view);
        let streams: BTreeSet<String> = state.holdings.steps().map(|id| id.stream.clone()).collect();
        tracing::info!("{} offers {} steps that {former} held", self.id, state.holdings.len());
        if let Some(node) = self.me.upgrade() {
            tokio::spawn(async move {
                if timeout(TOLD_PATIENCE, node.told_by_all()).await.is_err() {
                    tracing::warn!(
                        "not all members have told which streams they look after: they are told now"
                    );
                }
                let mut state = node.state.lock();
                node.tell_guarded(&mut state, &streams);
                node.drain(&mut state);
            });
        }
    }
}
