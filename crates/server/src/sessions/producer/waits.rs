//! What the rank's home waits for on behalf of the rank: the coordinator's word, and copies.

use super::Session;
use crate::node::copies_late;
use crate::questions::Answer;
use forebay_core::block::BlockRecord;
use forebay_core::ids::StepId;
use forebay_core::{Error, Result};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use forebay_wire::peer::streams;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long it may take until the coordinator is told of a rank's steps, before the rank is to stay for another one.
const SOON_TOLD: Duration = Duration::from_millis(500);
/// How long a flush waits for the coordinator's word on the steps before it.
const HEAR_PATIENCE: Duration = Duration::from_secs(5);
/// How long it is waited between two looks for readers, at first and at most.
const READERS_PAUSE: Duration = Duration::from_millis(2);
const READERS_PAUSE_MAX: Duration = Duration::from_millis(100);

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

    /// Waits until as many readers are there as the run waits for, or another rank has begun its first step. A rank that dies
    /// meanwhile ends it.
    pub(super) async fn await_readers(&mut self, deadline: Instant) -> Result<()> {
        let node = self.client.node.clone();
        let Some(rank) = &mut self.rank else { return Ok(()) };
        let (stream, run, wanted) = (rank.stream.clone(), rank.run, rank.awaited_readers);
        let are_there = async {
            let mut pause = READERS_PAUSE;
            loop {
                let question = |token| streams::Message::WhoReads { token, stream: stream.clone(), run };
                let left = deadline.saturating_duration_since(Instant::now());
                let answer = node.ask_coordinator(&stream, rank.rank, left, question).await?;
                let Answer::Readers(readers) = answer else {
                    return Err(Error::internal("no answer about readers"));
                };
                if readers.are_enough(wanted) {
                    rank.awaited_readers = 0;
                    return Ok(());
                }
                if Instant::now() + pause >= deadline {
                    return Err(Error::timeout(format!(
                        "the first step of stream '{stream}' waits for readers with {wanted} different names, as \
                         wait_for_readers says: {readers}"
                    )));
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(READERS_PAUSE_MAX);
            }
        };
        tokio::select! {
            biased;
            () = self.client.left() => Err(Error::unreachable("the rank has left while it waited for readers")),
            are_there = are_there => are_there,
        }
    }

    /// Waits until other servers than this one have noted that the rank has closed, where nobody else knows it.
    pub(super) async fn closing_is_noted(&self) {
        let (node, patience) = (&self.client.node, self.client.patience.min(HEAR_PATIENCE));
        if let Some(rank) = &self.rank {
            node.notes_are_confirmed(&rank.stream, rank.run, patience).await;
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
