//! Failover within a step: the home server dies while a step is open, and the step goes on at another one, where all that was
//! put in it is put again.
//!
//! Where the home dies as it answers that the step has ended, with its copies, the new home says so: then nothing is put again,
//! and the step may have been read and freed meanwhile.

use crate::connection::rpc::lock;
use crate::producer::failover::find_home::{DEATHS_MAX, NewHome};
use crate::producer::failover::replay::begin_again;
use crate::producer::home_choice::HomeChoice;
use crate::producer::rank::Producer;
use crate::producer::staging::OpenPhase;
use crate::producer::state::ProducerState;
use crate::producer::stored_block::check_replayable;
use crate::put_target::PutTarget;
use forebay_core::contract::Field;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::producer::Request;
use std::sync::Arc;
use std::time::Instant;

impl Producer {
    /// The home server has failed with this error within a step. On return another server is the home, which has all that was
    /// put before. Waits for seconds at most, with `on_loss="fail"` as long as the deadline allows. If it fails, staging is
    /// given up until the next step begins.
    pub(in crate::producer) fn on_home_lost_in_step(
        &self,
        home: &Arc<PutTarget>,
        error: Error,
    ) -> Result<()> {
        if error.kind != ErrorKind::Unreachable {
            return Err(error);
        }
        let mut failed_move = lock(&self.failed_move);
        let is_given_up = !lock(&self.state).staging.is_active();
        if is_given_up || !Arc::ptr_eq(home, &self.home()) {
            return if is_given_up { Err(error) } else { Ok(()) };
        }
        if !home.rpc.is_broken() {
            return Err(error);
        }
        // Another thread may have tried in vain.
        if let Some((_, error)) = failed_move.as_ref().filter(|(of, _)| Arc::ptr_eq(of, home)) {
            return Err(error.clone());
        }
        match self.move_open_step() {
            Ok(server) => {
                tracing::info!("stream '{}': its open step goes on at {server}: {error}", self.stream);
                Ok(())
            }
            Err(why) => {
                let text = format!("{}; the step does not go on at another server: {}", error.text, why.text);
                let error = Error::unreachable(text).about_that_of(&error);
                *failed_move = Some((home.clone(), error.clone()));
                Err(error)
            }
        }
    }

    /// A server that was to hold a block has failed with this error. Whether it is gone and is not the home: from then on the
    /// home holds blocks in its place.
    pub(in crate::producer) fn on_target_lost(
        &self,
        target: &Arc<PutTarget>,
        home: &Arc<PutTarget>,
        error: &Error,
    ) -> bool {
        let is_other = error.kind == ErrorKind::Unreachable && !Arc::ptr_eq(target, home);
        if !is_other || home.rpc.is_broken() {
            return false;
        }
        tracing::info!(
            "stream '{}': blocks for {} go to {}: {error}",
            self.stream,
            target.server,
            home.server
        );
        lock(&self.others).insert(target.server, None);
        true
    }

    /// As `move_open_step_to`, to the server that takes this rank; where that dies, too, to the next one.
    fn move_open_step(&self) -> Result<ServerId> {
        let deadline = Instant::now() + self.patience_to_find_home();
        let mut deaths = 0;
        loop {
            self.check_open_step()?;
            let found = self.find_home(deadline, None)?;
            self.check_goes_on(&found)?;
            match self.move_open_step_to(&found) {
                Err(error) if error.kind == ErrorKind::Unreachable && deaths < DEATHS_MAX => {
                    tracing::info!("stream '{}': {} died, too: {error}", self.stream, found.target.server);
                    deaths += 1;
                }
                moved => return moved,
            }
        }
    }

    /// The open step, if all that was put in it can be put again, or the home server may have told others of its end.
    fn check_open_step(&self) -> Result<(StepNumber, f64)> {
        let state = lock(&self.state);
        let open = state.open.as_ref().filter(|open| open.phase != OpenPhase::Passing);
        let open = open.ok_or_else(|| Error::not_found("no step is open"))?;
        let may_have_ended = matches!(open.phase, OpenPhase::Ending | OpenPhase::Ended);
        if !(may_have_ended && self.joining.options.copies() > 0) {
            check_replayable(&open.stored)?;
        }
        Ok((open.step, open.time))
    }

    /// Fails if the open step has not ended, and cannot be put again either.
    fn check_goes_on(&self, found: &NewHome) -> Result<()> {
        let state = lock(&self.state);
        let open = state.open.as_ref().filter(|open| open.step >= found.below);
        open.map_or(Ok(()), |open| check_replayable(&open.stored))
    }

    /// Begins the open step at another server, puts there what was put in it, and makes that server the home; if the step has
    /// ended, does only the last.
    fn move_open_step_to(&self, NewHome { target, below }: &NewHome) -> Result<ServerId> {
        let (step, time) = self.check_open_step()?;
        if step < *below {
            let mut state = lock(&self.state);
            let Some(open) = state.open.as_mut() else { return Err(Error::not_found("the step was ended")) };
            open.phase = OpenPhase::Ended;
            self.settle_at(&mut state, target);
            return Ok(target.server);
        }
        let (demand, grants) = begin_again(target, step, time)?;
        let (mut again, mut done, mut dropped) = (Vec::new(), 0, 0);
        loop {
            // Other threads put meanwhile: what they told the old home server of is here, too.
            let next = {
                let mut state = lock(&self.state);
                let ProducerState { open: Some(open), fields, demand: before, .. } = &mut *state else {
                    return Err(Error::not_found("the step was ended"));
                };
                let next = open.stored[done..].to_vec();
                if next.is_empty() {
                    // What was not wanted before may have been put, and was not taken.
                    let is_taken = |field: &Field| before.wants(field, step) || !demand.wants(field, step);
                    open.dropped |= !fields.values().all(|field| is_taken(field));
                    open.resume_elsewhere(again, grants, dropped);
                    state.demand = demand;
                    self.settle_at(&mut state, target);
                    state.fast_path.open();
                    return Ok(target.server);
                }
                check_replayable(&next)?;
                next
            };
            done += next.len();
            for block in next {
                match self.replay_block(target, block)? {
                    Some(block) => again.push(block),
                    None => dropped += 1,
                }
            }
        }
    }

    /// This server is the home from now on, before anybody puts there. If it dies just now, the next question to it finds it.
    fn settle_at(&self, state: &mut ProducerState, home: &Arc<PutTarget>) {
        let _ = home.rpc.tell(&Request::Settle);
        state.fast_path.close();
        state.retry_at = None;
        state.home_choice = HomeChoice::new(&self.group.known());
        *lock(&self.home) = home.clone();
    }
}
