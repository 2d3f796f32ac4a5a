//! A server that its group gave up, and that wakes, comes back as a new member, with what it held.

use super::super::Node;
use crate::replication::rejoin::HeldBefore;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;

/// How long the other members may take to tell which streams they look after.
const TOLD_PATIENCE: Duration = Duration::from_secs(60);

impl Node {
    /// What this server, which is no member any more, held.
    pub(crate) fn held_before(&self) -> HeldBefore {
        let state = self.state.lock();
        HeldBefore::of(&self.shared, &state.holdings, &state.directory, &state.replication.successors)
    }

    /// This server has just become a member: it holds what it held before. To be called before it introduces itself.
    pub(crate) fn rejoin_with(&self, held: HeldBefore) {
        if held.is_empty() {
            return;
        }
        let former = held.former;
        let view = self.standing().view.clone();
        let mut state = self.state.lock();
        let (arenas, replicas) = held.into_parts();
        self.with_replication(&mut state, |replication, cx, _| {
            arenas.for_each(|arena| replication.hold_former_arena(cx, former, arena));
            for replica in replicas {
                replication.hold_former_replica(cx, former, replica);
            }
        });
        self.take_over_primary(&mut state, former, &view);
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
                node.report_for_the_dead(&mut state, &streams);
                node.drain(&mut state);
            });
        }
    }
}
