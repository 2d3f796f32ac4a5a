//! Having copies made by other servers: of what is put, in time, and of what has too few, in the background.

use super::super::{Components, Node};
use crate::replication::primary::{LackingUnit, Part, PartReplication, Replies, Request};
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// How long parts of a unit may take to be replicated before it is replicated again as it is then.
const SETTLES: Duration = Duration::from_secs(5);
/// How long to wait before it is looked again whether they are.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The error where copies take too long.
pub(crate) fn copies_late() -> Error {
    Error::timeout(
        "another server did not make a copy of what was put in time: it stands still, or is too slow",
    )
}

impl Node {
    /// Asks other servers to hold a part of a unit.
    pub(crate) fn begin_replication(
        &self,
        state: &mut Components,
        part: Part,
        copies: u32,
    ) -> PartReplication {
        self.with_replication(state, |replication, cx, sources| {
            replication.primary.begin_part(cx, sources, part, copies)
        })
    }

    /// Waits until they do; one that dies meanwhile is replaced. With fewer servers than are wanted, as many do as there are.
    /// The caller sets the deadline. Returns whether as many do as are wanted, or none is needed any more.
    pub(crate) async fn finish_replication(&self, replication: PartReplication) -> Result<bool> {
        let PartReplication { part, copies, asked } = replication;
        let (done, refused) = self.replicate_part(&part, copies, asked).await;
        let enough = self.with_replication(&mut self.state.lock(), |replication, cx, _| {
            replication.primary.end_part(cx, &part.unit, copies, done)
        });
        refused.map_or(Ok(enough), Err)
    }

    /// As `begin_replication` and `finish_replication`, for what is to have copies already, of all that is held here of it: by
    /// so many servers, whatever it is to have for good. `parts` is of how many parts this is all, unless something else of it
    /// is just being replicated.
    pub(crate) async fn replicate_all(&self, all: Part, servers: u32, parts: Option<u64>) -> Result<()> {
        if !self.state.lock().replication.primary.begin_all(&all) {
            return Ok(());
        }
        let (done, refused) = self.replicate_part(&all, servers, Vec::new()).await;
        self.with_replication(&mut self.state.lock(), |replication, cx, _| {
            replication.primary.end_all(cx, &all.unit, parts, done);
        });
        refused.map_or(Ok(()), Err)
    }

    /// Has so many servers hold a part of something, or all of it: which of them do, and why not as many as there could be.
    /// Some may have been asked already.
    async fn replicate_part(
        &self,
        part: &Part,
        servers: u32,
        mut asked: Vec<Request>,
    ) -> (BTreeSet<ServerId>, Option<Error>) {
        let mut replies = Replies::to(&asked);
        loop {
            for Request { backup, answer, leaves, .. } in asked {
                let answer = answer.await.ok();
                if replies.note(&part.unit, (backup, leaves), answer) {
                    self.state.lock().replication.primary.on_run_forgotten(&part.unit, backup);
                }
            }
            let more = self.with_replication(&mut self.state.lock(), |replication, cx, sources| {
                replication.primary.ask(cx, sources, part, servers, &mut replies)
            });
            match more {
                // It was freed meanwhile.
                None => return (replies.into_outcome(0).0, None),
                Some(none) if none.is_empty() => return replies.into_outcome(servers),
                Some(others) => asked = others,
            }
        }
    }

    /// Has other servers hold blocks that were put; waits for it, until a deadline, unless it is safe that they will.
    pub(crate) async fn replicate_in_time(
        &self,
        unit: ReplicaUnit,
        copies: u32,
        ranges: Vec<BlockRange>,
        patience: Duration,
    ) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let Some(node) = self.me.upgrade() else { return Ok(()) };
        let part = Part { unit, ranges, ended: Vec::new() };
        let replication = self.begin_replication(&mut self.state.lock(), part, copies);
        let is_safe = replication.is_safe();
        // It goes on if it takes longer.
        let done = tokio::spawn(async move { node.finish_replication(replication).await.map(drop) });
        if is_safe {
            return Ok(());
        }
        match tokio::time::timeout(patience, done).await {
            Ok(done) => done.unwrap_or_else(|e| Err(Error::internal(e.to_string()))),
            Err(_) => Err(copies_late()),
        }
    }

    /// Has more copies made of units that have too few, in the background.
    pub(super) fn replicate_again(&self, units: Vec<ReplicaUnit>) {
        let Some(node) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            let count = units.len();
            for unit in units {
                node.replicate_one_again(&unit).await;
            }
            tracing::info!("copies of {count} steps were made again");
        });
    }

    /// Until it has enough copies, and no part of it has come meanwhile that may not have them.
    async fn replicate_one_again(&self, unit: &ReplicaUnit) {
        let settled_by = Instant::now() + SETTLES;
        loop {
            let (lacking, ended) = {
                let state = self.state.lock();
                let ended =
                    unit.step().map(|id| state.ranks.ledger().contributions_to(id)).unwrap_or_default();
                let Some(lacking) = state.replication.primary.lacking(unit, &ended) else { return };
                (lacking, ended)
            };
            let LackingUnit { copies, parts, ranges, is_settled } = lacking;
            if !is_settled && Instant::now() < settled_by {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            let all = Part { unit: unit.clone(), ranges, ended };
            if let Err(error) = self.replicate_all(all, copies, Some(parts)).await {
                return tracing::warn!("{unit} has too few copies: {error}");
            }
            let now = self.state.lock().replication.primary.parts_of(unit);
            if now.is_none_or(|now| now == parts) || Instant::now() >= settled_by {
                return;
            }
        }
    }
}
