//! How a step ends, and how a rank waits until its home server holds what was put.

use crate::connection::rpc::{GRACE, lock};
use crate::on_loss::OnLoss;
use crate::producer::rank::Producer;
use crate::producer::replay_log::ReplayStep;
use crate::producer::staging::OpenPhase;
use crate::producer::state::{OpenStep, no_step};
use crate::producer::stored_block::check_replayable;
use crate::put_target::PutTarget;
use forebay_core::Result;
use forebay_core::ids::StepNumber;
use forebay_wire::client::placement;
use forebay_wire::client::producer::Request;
use forebay_wire::protocol;
use std::sync::Arc;

impl Producer {
    /// Ends the step of this rank. Memory that was allocated and not committed is given back. Waits for the answers to
    /// what was put with [`Producer::put_async`], and until other servers hold copies if there are to be some; if one says what
    /// failed, that is returned, and the step is ended all the same and counted as dropped.
    pub fn end(&self) -> Result<()> {
        let rank = self.lock_rank()?;
        let (mut state, waited) = self.wait_for_all(&rank, self.state()?);
        let Some(mut open) = state.open.take() else { return Err(no_step("an end")) };
        let is_staged = state.staging.is_active();
        let (is_demanded, demand) = (!state.demand.is_empty(), state.demand.version);
        match open.phase {
            OpenPhase::Passing if is_demanded => state.fast_path.note_passed(open.step),
            OpenPhase::Passing => {}
            _ => {
                let is_small = !open.needs_memory && open.elsewhere.is_empty();
                state.fast_path.note_staged(open.step, is_small);
            }
        }
        drop(state);
        open.forget_outstanding(&self.home());
        if !is_staged {
            return waited.map(drop);
        }
        open.dropped |= waited.is_err();
        let ended = match open.phase {
            // Where nothing of the stream is wanted, nobody needs to know of the step.
            OpenPhase::Passing if !is_demanded => Ok(()),
            OpenPhase::Passing => self.end_passing(&open, demand),
            _ => self.end_staged(open, demand),
        };
        ended.or_else(|error| self.on_staging_lost(&mut lock(&self.state), error)).and(waited).map(drop)
    }

    /// Tells the home server of a step that the rank has begun and ended without it, since nothing of the rank was wanted.
    fn end_passing(&self, open: &OpenStep, demand: u64) -> Result<()> {
        let (step, time) = (open.step, open.time);
        let told = self.home().rpc.tell(&Request::BeganAlone { step, time, ended: true });
        self.log_for_replay(ReplayStep { step, time, demand, ..ReplayStep::default() });
        told
    }

    /// Ends a step at all servers that know of it.
    fn end_staged(&self, open: OpenStep, demand: u64) -> Result<()> {
        // The home server is told first: from then on it answers for the blocks that other servers hold.
        let (open, told) = self.end_at_home(open);
        let told = open
            .elsewhere
            .values()
            .fold(told, |told, target| told.and(self.end_elsewhere(target, open.step)));
        let OpenStep { step, time, blocks, dropped, stored, stats, attrs, .. } = open;
        self.log_for_replay(ReplayStep { step, time, blocks, dropped, stored, demand, stats, attrs });
        told
    }

    /// Ends a step at the home server; at another one, where the step goes on when that has died.
    fn end_at_home(&self, mut open: OpenStep) -> (OpenStep, Result<()>) {
        while open.phase != OpenPhase::Ended {
            open.phase = OpenPhase::Ending;
            let home = self.home();
            let stats = open.stats.clone().into_iter().collect();
            let (step, blocks, dropped, attrs) = (open.step, open.blocks, open.dropped, open.attrs.clone());
            let end = Request::End { step, blocks, dropped, stats, attrs };
            let Err(error) = self.end_at(&home, &end) else { return (open, Ok(())) };
            lock(&self.state).open = Some(open);
            let moved = self.on_home_lost_in_step(&home, error);
            match lock(&self.state).open.take() {
                Some(taken) => open = taken,
                None => return (OpenStep::default(), Err(no_step("an end"))),
            }
            if let Err(error) = moved {
                return (open, Err(error));
            }
        }
        (open, Ok(()))
    }

    /// Ends a step at a server that is not the home. What one held that has died is lost, and readers of that are told so.
    fn end_elsewhere(&self, target: &Arc<PutTarget>, step: StepNumber) -> Result<()> {
        match self.end_at(target, &placement::Request::End { step }) {
            Err(error) if self.on_target_lost(target, &self.home(), &error) => {
                let needs_copies = self.joining.options.copies() > 0 && !target.rpc.was_let_go();
                if needs_copies && self.on_loss == OnLoss::Fail {
                    return Err(error);
                }
                tracing::warn!("stream '{}': {error}", self.stream);
                Ok(())
            }
            told => told,
        }
    }

    /// Tells a server that the step has ended; waits until there are copies of it, if there are to be some.
    fn end_at<Q: protocol::Request>(&self, target: &PutTarget, end: &Q) -> Result<()> {
        match self.joining.options.copies() {
            0 => target.rpc.tell(end),
            _ => target.rpc.call_within(end, None, target.rpc.patience() + GRACE, "to hold copies").map(drop),
        }
    }

    /// The home server was told of a step's end. If it dies, it may not have told anybody; where copies are made, they are there.
    fn log_for_replay(&self, ended: ReplayStep) {
        if self.joining.options.copies() == 0 && check_replayable(&ended.stored).is_ok() {
            lock(&self.state).replay_log.push(ended);
        }
    }

    /// Waits until the home server holds all that was put, or says what failed.
    pub fn flush(&self) -> Result<()> {
        let rank = self.lock_rank()?;
        let (state, waited) = self.wait_for_all(&rank, self.state()?);
        waited?;
        if !state.staging.is_active() {
            return Ok(());
        }
        drop(state);
        self.ask_home(&rank, |home| home.call(&Request::Flush, "to hold what was put")).map(drop)
    }
}
