//! How a step begins: by one question to the home server, or without one where [`super::fast_path`] allows that.

use crate::connection::rpc::{GRACE, lock, unexpected};
use crate::producer::failover::DEATHS_MAX;
use crate::producer::rank::Producer;
use crate::producer::staging::OpenPhase;
use crate::producer::state::{OpenStep, ProducerState, no_step};
use crate::put_target::PutTarget;
use forebay_core::ids::{STATIC_STEP, StepNumber};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::block::Grant;
use forebay_wire::client::producer::{Reply, Request};
use std::sync::MutexGuard;

/// What a step was begun with.
#[derive(Debug, Default)]
struct StepStart {
    grants: Vec<Grant>,
    phase: OpenPhase,
}

/// What came of beginning a step, with the state: `None` if staging is given up.
type Beginning<'a> = (MutexGuard<'a, ProducerState>, Option<StepStart>);

impl Producer {
    /// Begins a step. Waits for one answer of the home server, unless memory is shared and nothing of this
    /// rank is wanted, or it put only blocks of up to 1024 bytes in the step before and the server has taken them. Where a
    /// server has joined that is to be this rank's home from now on, waits for a few answers of that.
    pub fn begin(&self, step: StepNumber, time: f64) -> Result<()> {
        let _rank = self.lock_rank()?;
        let state = self.state()?;
        check_order(&state, step)?;
        self.sequence.check_step(&self.stream, step)?;
        let state = self.resume_staging(state);
        let state = self.rehome_to_joined(state);
        let (mut state, mut begun) = self.begin_at_home(state, step, time)?;
        // Where the home server was found dead just now, another one may take this rank at once.
        let mut deaths = 0;
        while begun.is_none() && deaths < DEATHS_MAX {
            deaths += 1;
            state = self.resume_or_fail(state)?;
            if !state.staging.is_active() {
                break;
            }
            (state, begun) = self.begin_at_home(state, step, time)?;
        }
        if let Some(error) = self.take_failure(&mut state) {
            return Err(error);
        }
        state.counts.begun += 1;
        if !state.staging.is_active() {
            state.counts.skipped += 1;
        }
        let StepStart { grants, phase } = begun.unwrap_or_default();
        let members = Some(self.group.known());
        state.last = Some(step);
        state.open = Some(OpenStep { step, time, phase, members, grants, ..OpenStep::default() });
        Ok(())
    }

    /// Begins a step at the home server, which is asked only if it has to be.
    fn begin_at_home<'a>(
        &'a self,
        mut state: MutexGuard<'a, ProducerState>,
        step: StepNumber,
        time: f64,
    ) -> Result<Beginning<'a>> {
        if !state.staging.is_active() {
            return Ok((state, None));
        }
        let home = self.home();
        let is_wanted = state.fields.values().any(|field| state.demand.wants(field, step));
        if !state.fast_path.try_begin(&home, is_wanted, step) {
            return self.ask_to_begin(state, &home, step, time);
        }
        if !is_wanted {
            return Ok((state, Some(StepStart { phase: OpenPhase::Passing, ..StepStart::default() })));
        }
        let began = Request::BeganAlone { step, time, ended: false };
        // The home is told at once where steps were left out: other ranks may wait for this one there.
        let is_next = state.last.and_then(|last| last.checked_add(1)) == Some(step);
        let told = if is_next { home.rpc.queue(&began) } else { home.rpc.tell(&began) };
        told.or_else(|error| self.on_home_lost(&mut state, error))?;
        let begun = state.staging.is_active().then(StepStart::default);
        Ok((state, begun))
    }

    /// Asks the home server to begin a step: it answers with the demand, and with memory for what was put in the step before.
    fn ask_to_begin<'a>(
        &'a self,
        mut state: MutexGuard<'a, ProducerState>,
        home: &PutTarget,
        step: StepNumber,
        time: f64,
    ) -> Result<Beginning<'a>> {
        state.fast_path.close();
        let patience = home.rpc.patience();
        let patience_ms = patience.as_millis() as u64;
        let begin = Request::Begin { step, time, known: state.demand.version, patience_ms };
        drop(state);
        // The server gives up first, and says what it was waiting for.
        let answer = home.rpc.call_within(&begin, None, patience + GRACE, "to begin a step");
        let mut state = lock(&self.state);
        match answer.map(|answer| answer.message) {
            Ok(Reply::Begun { demand, grants, deferred }) => {
                if let Some(demand) = demand {
                    state.demand = demand;
                }
                // Then the step is not begun: the caller may begin it again, or leave it out.
                if let Some(error) = deferred {
                    return Err(error);
                }
                state.fast_path.open();
                return Ok((state, Some(StepStart { grants, phase: OpenPhase::Staging })));
            }
            Ok(Reply::LetGo) => self.on_let_go(&mut state),
            Ok(other) => return Err(unexpected(&other)),
            Err(error) if error.kind == ErrorKind::Unreachable && home.rpc.was_let_go() => {
                self.on_let_go(&mut state);
            }
            Err(error) => self.on_home_lost(&mut state, error)?,
        }
        Ok((state, None))
    }

    /// Whether something wants this field at the current step; one that is static is always wanted. Never waits.
    pub fn demanded(&self, field: &str) -> Result<bool> {
        let state = self.state()?;
        let step = state.open.as_ref().ok_or_else(|| no_step("asking for demand"))?.step;
        let field = state.field(&self.stream, field)?;
        Ok(state.staging.is_active() && (field.is_static || state.demand.wants(field, step)))
    }
}

/// Checks that no step is open, and that step numbers grow.
fn check_order(state: &ProducerState, step: StepNumber) -> Result<()> {
    if step == STATIC_STEP {
        return Err(Error::invalid(format!("a step of number {step}: the highest is {}", STATIC_STEP - 1)));
    }
    if let Some(open) = &state.open {
        return Err(Error::step_order(format!(
            "step {} is begun, end it before step {step}; one that an exception left cannot be ended: close the \
             producer, which tells readers that it is torn, and open the stream again",
            open.step
        )));
    }
    if let Some(last) = state.last.filter(|last| step <= *last) {
        return Err(Error::step_order(format!(
            "step {step} after step {last}: numbers must grow within a run; after a restart open the stream again \
             (with `continues`)"
        )));
    }
    Ok(())
}
