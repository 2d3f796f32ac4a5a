//! What the rank's home waits for on behalf of the rank: the coordinator's word, and copies.

use super::Session;
use crate::node::copies_late;
use forebay_core::block::BlockRecord;
use forebay_core::ids::StepId;
use forebay_core::{Error, Result};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use forebay_wire::peer::streams;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long it may take until the coordinator is told of a rank's steps, before the rank is to stay for another one.
const SOON_TOLD: Duration = Duration::from_millis(500);
/// How long a flush waits for the coordinator's word on the steps before it.
const HEAR_PATIENCE: Duration = Duration::from_secs(5);

impl Session {
    /// Waits until the stream's coordinator has taken the steps that the rank has ended, and has said what is wrong
    /// with them. One that does not answer may say so later, if the rank is still there.
    pub(super) async fn hear_of_steps(&mut self) {
        let (node, patience) = (self.client.node.clone(), self.client.patience.min(HEAR_PATIENCE));
        let Some(rank) = &mut self.rank else { return };
        if !std::mem::take(&mut rank.unheard) {
            return;
        }
        if let Some(told) = node.until_told(&rank.key()) {
            let _ = tokio::time::timeout(patience, told).await;
        }
        let stream = rank.stream.clone();
        let heard = |token| streams::Message::Sync { token, stream: stream.clone() };
        if let Err(error) = node.ask_coordinator(&stream, rank.rank, patience, heard).await {
            tracing::warn!("what is wrong with the last steps of stream '{stream}' is not known: {error}");
        }
    }

    pub(super) fn take_deferred(&mut self) -> Option<Error> {
        let rank = self.rank.as_mut()?;
        if let Some(own) = rank.deferred.take() {
            // What the coordinator told comes with the next answer.
            return Some(own);
        }
        self.client.node.state.lock().ranks.take_error(&rank.key())
    }

    /// Waits until other servers hold copies of a step that the rank has ended.
    pub(super) async fn wait_for_copies(&self, kept: oneshot::Receiver<Result<()>>) -> Result<()> {
        match tokio::time::timeout(self.client.patience, kept).await {
            Ok(Ok(kept)) => kept,
            Ok(Err(_)) => Err(Error::internal("a step was forgotten while copies of it were made")),
            Err(_) => Err(copies_late()),
        }
    }

    /// Has other servers keep copies of what was put in the step that is open.
    pub(super) async fn keep_open_step(&mut self) -> Result<()> {
        let (node, patience) = (self.client.node.clone(), self.client.patience);
        let Some(rank) = &self.rank else { return Ok(()) };
        let Some(open) = rank.open.as_ref().filter(|_| rank.copies > 0) else { return Ok(()) };
        let here = |block: &&BlockRecord| block.location.server == node.id && block.inline.is_none();
        let ranges: Vec<BlockRange> = open
            .fields
            .values()
            .flatten()
            .filter(here)
            .map(|block| BlockRange::from(&block.location))
            .collect();
        let id = StepId { stream: rank.stream.clone(), run: rank.run, step: open.number };
        node.replicate_in_time(ReplicaUnit::Step(id), rank.copies, ranges, patience).await
    }

    /// Waits until the coordinator is told of the steps that the rank has ended: not for long, another time will do.
    pub(super) async fn steps_are_told(&self) {
        let told = self.rank.as_ref().and_then(|rank| self.client.node.until_told(&rank.key()));
        if let Some(told) = told {
            let _ = tokio::time::timeout(SOON_TOLD, told).await;
        }
    }
}
