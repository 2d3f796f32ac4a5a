//! Servers have joined: a rank goes on at one of them, if that is its home now.
//!
//! Each answer of a server tells the epoch of its view. Of a later one the connection file is read again, once; blocks that
//! are spread over all servers go to the new ones from the next step on. A rank moves only to a server that came after it
//! had chosen its own: so the new ones get their share, and nobody moves between those that were there before.

use super::{Producer, State};
use crate::connection::group::Known;
use crate::connection::rpc::{Rpc, lock};
use crate::put_target::PutTarget;
use forebay_core::Error;
use forebay_core::ids::{Epoch, ServerId};
use forebay_wire::client::producer::Request;
use forebay_wire::connection::Role;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// How long a server that has joined may take to be connected to and to greet: else the rank stays where it is.
const GREETING: Duration = Duration::from_millis(400);
/// How long to wait before the connection file is read again that does not tell of the latest view yet.
const READ_AGAIN: Duration = Duration::from_millis(20);

/// The members of which a rank has chosen its home.
#[derive(Debug, Default)]
pub(super) struct Members {
    epoch: Epoch,
    /// The highest number of a server among them, or before them: a higher one has joined since.
    highest: Option<ServerId>,
    read_at: Option<Instant>,
    /// The rank has left its home for another server, and can come back to it.
    home_lives: bool,
    /// The home has let this rank go since it leaves the group, which it may not do after all.
    let_go: bool,
}

impl Members {
    pub(super) fn new(known: &Known) -> Members {
        Members { epoch: known.view.epoch, highest: known.highest(), ..Members::default() }
    }

    /// Whether the home is as good as any other server.
    pub(super) fn home_lives(&self) -> bool {
        self.home_lives
    }

    /// The home lets this rank go since it leaves.
    pub(super) fn note_let_go(&mut self) {
        self.let_go = true;
    }

    /// Whether the home has let this rank go since it leaves: if no other server is left it may stay.
    pub(super) fn was_let_go(&self) -> bool {
        self.let_go
    }

    /// Whether the connection file is to be read since a later epoch was heard of.
    fn is_old(&mut self, heard: Epoch) -> bool {
        let now = Instant::now();
        let due = heard > self.epoch && self.read_at.is_none_or(|at| now >= at + READ_AGAIN);
        if due {
            self.read_at = Some(now);
        }
        due
    }
}

impl Producer {
    /// Goes on at a server that has joined, if that is this rank's home now; stays if that does not greet at once. Between
    /// two steps. Waits for a few answers at most once for each server that joins.
    pub(super) fn look_for_joiners<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let home = self.home();
        if state.lost.is_some() || !state.members.is_old(home.rpc.epoch_heard()) {
            return state;
        }
        drop(state);
        let _ = self.group.refresh();
        let known = self.group.known();
        let mut state = lock(&self.state);
        if known.view.epoch <= state.members.epoch {
            return state;
        }
        let before = std::mem::replace(&mut state.members, Members::new(&known)).highest;
        let belongs = self.group.home_of(self.rank).ok();
        let Some(server) = belongs.filter(|server| *server != home.server && Some(*server) > before) else {
            return state;
        };
        drop(state);
        match self.group.within(GREETING).connect(server, Role::Producer) {
            Ok(rpc) => self.go_to(&home, server, Arc::new(rpc)),
            Err(error) => {
                tracing::info!(
                    "stream '{}': rank {} stays at {}: {error}",
                    self.stream,
                    self.rank,
                    home.server
                );
                lock(&self.state)
            }
        }
    }

    /// Leaves the home for another server that has greeted.
    fn go_to(&self, home: &PutTarget, server: ServerId, rpc: Arc<Rpc>) -> MutexGuard<'_, State> {
        let asked = home.rpc.call(&Request::Move, "to let this rank go");
        let mut state = lock(&self.state);
        if let Err(error) = asked {
            // Whatever it is, the next question to the home finds it, too.
            tracing::info!("stream '{}': rank {} stays at {}: {error}", self.stream, self.rank, home.server);
            return state;
        }
        home.rpc.hang_up();
        let text = format!("rank {} goes from {} to {server}, which has joined", self.rank, home.server);
        state.lost = Some(Error::unreachable(text));
        state.members.home_lives = true;
        self.come_back_to(state, Some((server, rpc)))
    }
}
