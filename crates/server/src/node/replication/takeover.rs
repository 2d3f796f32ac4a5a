//! A primary is dead: what this server held for it goes to the components that it belongs to now.

use super::super::takeover::known_of_runs;
use super::super::{Components, Node};
use crate::held::Held;
use crate::replication::backups::{TakenOver, TakenUnit};
use crate::replication::primary::SharedUnit;
use forebay_core::ids::{BlockKey, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::view::View;
use forebay_wire::peer::replication::ReplicaUnit;
use forebay_wire::peer::streams;
use std::collections::BTreeSet;

impl Node {
    /// A server is dead, as this view says: this one holds in its place what it held for it.
    pub(crate) fn take_over_primary(&self, state: &mut Components, dead: ServerId, view: &View) {
        let taken =
            self.with_replication(state, |replication, cx, sources| replication.take_over(cx, sources, dead));
        let Some(TakenOver { units, ledger }) = taken else { return };
        for (key, mut unit) in units {
            let is_held = match &key {
                ReplicaUnit::Step(id) => {
                    state.holdings.add(id, unit.ranges.iter().map(Held::from));
                    for report in std::mem::take(&mut unit.records) {
                        state.directory.holder.hold(id, report);
                    }
                    true
                }
                ReplicaUnit::Space(key) => self.take_over_space_block(state, *key, &mut unit, view),
            };
            if is_held {
                self.share(state, key, unit, dead, view);
            }
        }
        state.ranks.take_over(ledger);
    }

    /// The same for a block of the space; `false` if this server does not hold it.
    fn take_over_space_block(
        &self,
        state: &mut Components,
        key: BlockKey,
        unit: &mut TakenUnit,
        view: &View,
    ) -> bool {
        // It may have been put here again meanwhile, by who had no answer: then that one has its own copies.
        let is_known = state.space.range_of(key).is_some();
        let mut ranges = unit.ranges.iter().map(Held::from);
        match unit.space.take().filter(|_| !is_known).and_then(|block| Some((ranges.next()?, block))) {
            Some((held, block)) => state.space.take_over(held, block, view.epoch),
            None => {
                self.free_unseen(ranges, view.epoch);
                unit.ranges.clear();
                return !unit.here_before.is_empty();
            }
        }
        true
    }

    /// One of those that hold a unit in the place of a dead server sees to copies of it.
    fn share(&self, state: &mut Components, key: ReplicaUnit, unit: TakenUnit, dead: ServerId, view: &View) {
        let TakenUnit { copies, backups, ranges, here_before, .. } = unit;
        // What this server brings with it as it rejoins nobody else is to see to.
        if !backups.contains(&self.id) {
            return;
        }
        // One that came and went between two views that this server has seen is none.
        let lives = |id: &ServerId| view.members.contains(id) && !state.common.members.is_gone(*id);
        let others = backups.into_iter().filter(|id| ![dead, self.id].contains(id) && lives(id));
        let with = others.collect();
        // What it held before has copies now, too: maybe nobody saw to any.
        let shared = SharedUnit { copies, ranges: &ranges | &here_before, with };
        self.with_replication(state, |replication, cx, _| replication.primary.share(cx, key, shared));
    }

    /// Tells the living coordinators of streams what a dead server may not have told them, and which of its blocks are here
    /// now. They may just have taken the place of others, or had told of a rank that is here now.
    pub(crate) fn report_for_the_dead(&self, state: &mut Components, streams: &BTreeSet<String>) {
        for stream in streams.iter().filter(|_| !seeded(Bug::TellsNothingForTheDead)) {
            let (coordinator, epoch) = (self.coordinator_of(state, stream), self.epoch());
            let mut messages = known_of_runs(state, epoch, stream);
            let steps = state.holdings.steps().filter(|id| id.stream == *stream).map(|id| (id.run, id.step));
            messages.push(streams::Message::StepsHeld {
                epoch,
                stream: stream.clone(),
                steps: steps.collect(),
            });
            for message in messages {
                self.tell(state, coordinator, message);
            }
        }
    }
}
