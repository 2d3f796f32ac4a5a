//! Beginning a step, and ending it.

use super::Session;
use crate::sessions::open_step::OpenStep;
use crate::sessions::rank::Rank;
use crate::streams::local_ranks::MayBegin;
use forebay_core::attr::Attrs;
use forebay_core::ids::{STATIC_STEP, StepNumber};
use forebay_core::stats::Stats;
use forebay_core::{Error, Result};
use forebay_wire::client::producer::Reply;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

impl Session {
    pub(super) async fn begin(
        &mut self,
        step: StepNumber,
        time: f64,
        known: u64,
        patience: Duration,
    ) -> Result<Reply> {
        let deadline = Instant::now() + patience;
        let node = self.client.node.clone();
        check_number(step)?;
        self.give_up_open_step(step)?;
        if node.leaves.get() {
            self.steps_are_told().await;
            if self.let_rank_go() {
                return Ok(Reply::LetGo);
            }
        }
        let shared = self.client.shared_memory;
        let rank = self.rank()?;
        // What is told of a step, its small blocks among it, is kept here until those that it is told to take it.
        loop {
            let behind = rank.behind(&node, &node.state.lock());
            let Some(behind) = behind else { break };
            if timeout_at(deadline, node.peers.caught_up(behind)).await.is_err() {
                return Err(Error::timeout(format!(
                    "{behind} has not taken what it is told of earlier steps of stream '{}', so that step {step} cannot \
                     begin: it stands still, or is too slow",
                    rank.stream
                )));
            }
        }
        check_order(rank, step)?;
        if rank.awaited_readers > 0 {
            self.await_readers(deadline).await?;
        }
        let rank = self.rank()?;
        if !rank.begun {
            rank.begun = true;
            rank.tell_begun(&node, step);
        }
        let demand = loop {
            let changed = match node.state.lock().ranks.begin(&rank.stream, rank.run, step)? {
                MayBegin::Now(demand) => break demand,
                MayBegin::Wait(changed) => changed,
            };
            if timeout_at(deadline, changed).await.is_err() {
                return Err(Error::timeout(format!(
                    "the servers did not agree on the demand of step {step} of stream '{}' in time",
                    rank.stream
                )));
            }
        };
        rank.tell_left_out(&node, step);
        let told = (demand.version != known).then(|| (*demand).clone());
        if let Some(error) = self.take_deferred() {
            return Ok(Reply::Begun { demand: told, grants: Vec::new(), deferred: Some(error) });
        }
        let rank = self.rank()?;
        rank.last = Some(step);
        // Over the network a rank cannot write to an arena: ranges are found as its bytes arrive.
        let grants = if shared { rank.grant_predicted(&node, &demand, step) } else { Vec::new() };
        rank.open = Some(OpenStep::new(step, time, demand));
        self.allow_begin_alone(step)?;
        Ok(Reply::Begun { demand: told, grants, deferred: None })
    }

    /// A step that is open when `next` begins was begun by a call whose answer came too late: the client, which
    /// keeps the order, has given it up, or asks again.
    pub(super) fn give_up_open_step(&mut self, next: StepNumber) -> Result<()> {
        let rank = self.rank()?;
        let Some(open) = &rank.open else { return Ok(()) };
        let (number, unused) = (open.number, open.keys.is_empty());
        if next == number && unused {
            rank.open = None;
            rank.last = number.checked_sub(1);
        } else if next > number {
            self.end_step(number, (u64::MAX, true), Vec::new(), Attrs::default())?;
        } else {
            return Err(Error::step_order(format!("step {number} is begun, end it before step {next}")));
        }
        Ok(())
    }

    /// Lets a rank that shares memory begin later steps by itself, as long as the demand that it is now told
    /// holds.
    pub(super) fn allow_begin_alone(&mut self, step: StepNumber) -> Result<()> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        let state = node.state.lock();
        if rank.behind(&node, &state).is_none() {
            state.ranks.allow_begin_after(&rank.key(), step);
        }
        Ok(())
    }

    /// The rank began a step by itself. Although it may put nothing in it, other ranks may have put something, so
    /// that the coordinator must know.
    pub(super) fn on_began_alone(&mut self, step: StepNumber, time: f64) -> Result<()> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        let demand = node.state.lock().ranks.demand_at(&rank.stream, rank.run, step);
        check_number(step)?;
        let Some(demand) = demand.filter(|_| rank.open.is_none()) else {
            return Err(no_step("a step that a rank begins by itself"));
        };
        if let Some(last) = rank.last.filter(|last| step <= *last) {
            return Err(Error::step_order(format!("step {step} was begun after step {last}")));
        }
        rank.tell_left_out(&node, step);
        rank.last = Some(step);
        rank.open = Some(OpenStep::new(step, time, demand));
        Ok(())
    }

    /// Ends a step. What ends when other servers hold copies of it, if they are to.
    pub(super) fn end_step(
        &mut self,
        step: StepNumber,
        (blocks, dropped): (u64, bool),
        stats: Vec<(String, Stats)>,
        attrs: Attrs,
    ) -> Result<Option<oneshot::Receiver<Result<()>>>> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        let Some(mut open) = rank.open.take_if(|open| open.number == step) else {
            return Err(no_step("an end"));
        };
        stats.iter().for_each(|(field, stats)| open.count(field, stats));
        let said = attrs.check_of_step();
        open.attrs = if said.is_ok() { attrs } else { Attrs::default() };
        rank.writing.abort_all(&node);
        let arrived = open.blocks();
        let lost = arrived as u64 != blocks;
        if !open.fields.is_empty() {
            rank.predicted.clone_from(&open.sizes);
            rank.predicted_under = open.demand.version;
            if rank.writing.got_fresh() {
                let bytes = rank.predicted.iter().map(|(_, bytes)| bytes).sum();
                rank.writing.prefault(&node, bytes);
            }
        }
        let mut copies = None;
        if open.is_told() {
            rank.told_below = step.saturating_add(1);
        }
        if open.is_told() || arrived > 0 {
            rank.unheard = true;
            let (done, kept) = (rank.copies > 0).then(oneshot::channel).unzip();
            copies = kept;
            rank.tell_step(&node, open, dropped || lost, false, done)?;
        }
        said?;
        if !lost && rank.deferred.is_none() {
            rank.say_taken(&node, step);
        }
        Ok(copies)
    }
}

/// Checks that a step can have this number.
fn check_number(step: StepNumber) -> Result<()> {
    match step {
        STATIC_STEP => {
            Err(Error::invalid(format!("no step has the number {step}: it stands for static fields")))
        }
        _ => Ok(()),
    }
}

/// Checks that step numbers grow.
fn check_order(rank: &Rank, step: StepNumber) -> Result<()> {
    let Some(last) = rank.last.filter(|last| step <= *last) else { return Ok(()) };
    Err(Error::step_order(format!(
        "step {step} after step {last}: numbers must grow within a run; after a restart open the stream again (with \
         `continues`)"
    )))
}

/// The error for what needs an open step.
pub(super) fn no_step(what: &str) -> Error {
    Error::step_order(format!("{what} outside a step: begin one first"))
}
