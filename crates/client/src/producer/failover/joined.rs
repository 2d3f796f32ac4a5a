//! Servers have joined: a rank goes on at one of them, if that is its home now.
//!
//! Each answer of a server tells the epoch of its view. When the rank hears of a later one, it reads the connection file again,
//! once; blocks that are spread over all servers go to the new ones from the next step on. A rank moves only to a server that
//! came after it had chosen its own: so the new ones get their share, and nobody moves between those that were there before.

use crate::connection::rpc::{Rpc, lock};
use crate::producer::home_choice::{HomeChoice, HomeState};
use crate::producer::rank::Producer;
use crate::producer::state::ProducerState;
use crate::put_target::PutTarget;
use forebay_core::Error;
use forebay_core::ids::ServerId;
use forebay_wire::client::producer::Request;
use forebay_wire::connection::Role;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// How long a server that has joined may take to be connected to and to greet: else the rank stays where it is.
const GREETING: Duration = Duration::from_millis(400);

impl Producer {
    /// Goes on at a server that has joined, if that is this rank's home now; stays if that does not greet at once. Between
    /// two steps. Waits for a few answers at most once for each server that joins.
    pub(in crate::producer) fn rehome_to_joined<'a>(
        &'a self,
        mut state: MutexGuard<'a, ProducerState>,
    ) -> MutexGuard<'a, ProducerState> {
        let home = self.home();
        if !state.staging.is_active() || !state.home_choice.begin_refresh(home.rpc.epoch_heard()) {
            return state;
        }
        drop(state);
        let _ = self.group.refresh();
        let known = self.group.known();
        let mut state = lock(&self.state);
        if known.view.epoch <= state.home_choice.epoch {
            return state;
        }
        let before = std::mem::replace(&mut state.home_choice, HomeChoice::new(&known)).highest;
        let belongs = self.group.home_of(self.rank()).ok();
        let Some(server) = belongs.filter(|server| *server != home.server && Some(*server) > before) else {
            return state;
        };
        drop(state);
        match self.group.within(GREETING).connect(server, Role::Producer) {
            Ok(rpc) => self.leave_for(&home, server, Arc::new(rpc)),
            Err(error) => {
                self.note_stays(&home, &error);
                lock(&self.state)
            }
        }
    }

    /// Leaves the home server for another one that has greeted.
    fn leave_for(&self, home: &PutTarget, server: ServerId, rpc: Arc<Rpc>) -> MutexGuard<'_, ProducerState> {
        let asked = home.rpc.call(&Request::Move, "to let this rank go");
        let mut state = lock(&self.state);
        if let Err(error) = asked {
            // Whatever it is, the next question to the home finds it, too.
            self.note_stays(home, &error);
            return state;
        }
        home.rpc.hang_up();
        let text = format!("rank {} goes from {} to {server}, which has joined", self.rank(), home.server);
        state.staging.give_up(Error::unreachable(text));
        state.home_choice.note_home(HomeState::Lives);
        self.resume_staging_at(state, Some((server, rpc)))
    }

    fn note_stays(&self, home: &PutTarget, error: &Error) {
        tracing::info!("stream '{}': rank {} stays at {}: {error}", self.stream, self.rank(), home.server);
    }
}
