//! Failover between two steps: the rank goes on at another home server, or without staging until a server takes it.

use crate::connection::rpc::{Rpc, lock};
use crate::on_loss::OnLoss;
use crate::producer::failover::find_home::{LATER, NewHome};
use crate::producer::home_choice::{HomeChoice, HomeState};
use crate::producer::rank::Producer;
use crate::producer::state::ProducerState;
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::producer::Request;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// How long to wait between two attempts to find another home server.
const BETWEEN: Duration = Duration::from_secs(1);

impl Producer {
    /// The home server has failed with this error. If it is gone, the rank is to look for another home.
    pub(in crate::producer) fn on_home_lost(&self, state: &mut ProducerState, error: Error) -> Result<()> {
        if error.kind != ErrorKind::Unreachable {
            return Err(error);
        }
        tracing::info!("stream '{}': {error}", self.stream);
        state.staging.give_up(error);
        Ok(())
    }

    /// The home server has let this rank go, which is to look for another home.
    pub(in crate::producer) fn on_let_go(&self, state: &mut ProducerState) {
        let server = self.home().server;
        state.staging.give_up(Error::unreachable(format!("{server} has left the group")).about(server));
        state.home_choice.note_home(HomeState::LetGo);
    }

    /// No server takes what this rank puts: the rank goes on without staging, if the user asked for that.
    pub(in crate::producer) fn on_staging_lost(&self, state: &mut ProducerState, error: Error) -> Result<()> {
        if error.kind == ErrorKind::Unreachable && self.on_loss == OnLoss::Skip {
            tracing::warn!("stream '{}': staging ends: {error}", self.stream);
            state.staging.give_up(error);
            return Ok(());
        }
        Err(error)
    }

    /// Goes on at another home server, if staging was given up and a server takes this rank; else staging stays given up. Waits
    /// for seconds at most.
    pub(in crate::producer) fn resume_staging<'a>(
        &'a self,
        state: MutexGuard<'a, ProducerState>,
    ) -> MutexGuard<'a, ProducerState> {
        self.resume_staging_at(state, None)
    }

    /// As [`Producer::resume_staging`]; fails if there is no other home server and that is not to be survived.
    pub(in crate::producer) fn resume_or_fail<'a>(
        &'a self,
        state: MutexGuard<'a, ProducerState>,
    ) -> Result<MutexGuard<'a, ProducerState>> {
        let mut state = self.resume_staging(state);
        self.take_failure(&mut state).map_or(Ok(state), Err)
    }

    /// Why staging is given up, if the caller is to be told so: staging is tried again when the next call needs it.
    pub(in crate::producer) fn take_failure(&self, state: &mut ProducerState) -> Option<Error> {
        match self.on_loss {
            OnLoss::Skip => None,
            OnLoss::Fail => state.staging.resume(),
        }
    }

    /// As [`Producer::resume_staging`], with the server that the rank asks first, if that has greeted already.
    pub(super) fn resume_staging_at<'a>(
        &'a self,
        state: MutexGuard<'a, ProducerState>,
        first: Option<(ServerId, Arc<Rpc>)>,
    ) -> MutexGuard<'a, ProducerState> {
        let now = Instant::now();
        let is_early = state.retry_at.is_some_and(|at| now < at);
        if state.staging.is_active() || state.open.is_some() || is_early {
            return state;
        }
        let patience = if state.retry_at.is_none() { self.patience_to_find_home() } else { LATER };
        drop(state);
        let found = self.find_home(now + patience, first);
        let settled =
            found.and_then(|NewHome { target, .. }| target.rpc.tell(&Request::Settle).map(|()| target));
        let mut state = lock(&self.state);
        match settled {
            Ok(home) => {
                tracing::info!("stream '{}': staging goes on at {}", self.stream, home.server);
                lock(&self.others).clear();
                *lock(&self.home) = home;
                state.home_choice = HomeChoice::new(&self.group.known());
                state.staging.resume();
                state.retry_at = None;
                state.fast_path.close();
            }
            Err(error) => {
                tracing::debug!("stream '{}' stays given up: {error}", self.stream);
                if self.on_loss == OnLoss::Fail
                    && let Some(why) = state.staging.resume()
                {
                    let text = format!("{}; no other server takes this rank: {}", why.text, error.text);
                    state.staging.give_up(Error::unreachable(text).about_that_of(&why));
                }
                state.retry_at = Some(Instant::now() + BETWEEN);
            }
        }
        state
    }
}
