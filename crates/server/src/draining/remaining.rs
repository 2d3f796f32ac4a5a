//! What is left to be done before a server can leave.

use super::units::Drain;
use crate::members::Phase;
use crate::node::{Components, Node};
use forebay_core::ids::Epoch;
use forebay_core::{Error, Result};

impl Node {
    /// Whether no other server is left; an error if something would end with this one that is not to be given up.
    pub(super) fn is_last_one(&self, state: &Components, discard: bool) -> Result<bool> {
        if !self.others(state).is_empty() {
            return Ok(false);
        }
        match self.what_ends(state).filter(|_| !discard) {
            Some(what) => Err(Error::conflict(format!(
                "{} is the last server, and {what}: add another one first, or give that up with --discard",
                self.id
            ))),
            None => Ok(true),
        }
    }

    /// Whether all other members leave, and this one knew before it left itself: they go first.
    pub(super) fn is_after_all_others(&self, state: &Components) -> bool {
        self.others(state).iter().all(|id| state.common.members.leaves(*id))
    }

    /// What would end with the group.
    fn what_ends(&self, state: &Components) -> Option<String> {
        let coordinated = state.coordination.all().filter(|(_, coordinator)| coordinator.has_ranks());
        if let Some(stream) = state.ranks.streams().chain(coordinated.map(|(stream, _)| stream)).next() {
            return Some(format!("ranks of stream '{stream}' use it, or may come back to it"));
        }
        if !state.holdings.is_empty() {
            let staged = self.store.lock().usage().staged;
            return Some(format!("it holds {} steps, of {staged} bytes", state.holdings.len()));
        }
        state.space.holds_blocks().then(|| "it holds blocks of the space".to_owned())
    }

    /// What this server has to wait for before it goes. When all else is done, pipelines that it coordinates begin nothing
    /// more.
    pub(super) fn awaits(&self, state: &mut Components, drain: &Drain) -> Option<String> {
        if self.is_after_all_others(state) {
            return Some("the other servers, which leave too".to_owned());
        }
        if let Some(server) = self.others(state).iter().find(|id| !state.common.members.is_informed(**id)) {
            return Some(format!("{server} to know that it leaves"));
        }
        if let Some((stream, rank)) = state.ranks.first() {
            return Some(format!("rank {rank} of stream '{stream}' to end its step"));
        }
        if state.space.has_open_puts() {
            return Some("blocks that are just put into the space".to_owned());
        }
        if !state.directory.registrations.are_told() {
            return Some("copies of steps".to_owned());
        }
        if let Some(pipeline) = state.pipelines.workers().pipelines().next() {
            return Some(format!("the worker of pipeline '{pipeline}' to end its execution"));
        }
        let lacking = drain.only_here(self, state);
        if let Some(id) = lacking.first() {
            let more = lacking.len() - 1;
            return Some(format!("another server to hold {id}, and {more} steps more"));
        }
        state.common.members.pause();
        let running = state.pipelines.running();
        running.map(|pipeline| format!("pipeline '{pipeline}' to end its execution"))
    }

    /// If nothing has come meanwhile, and the members are those of this epoch still, this server takes nothing more.
    pub(super) fn go(&self, epoch: Epoch, drain: &Drain) -> bool {
        let mut state = self.state.lock();
        let stands = self.epoch() == epoch && !state.common.members.was_given_up();
        let goes = stands && self.awaits(&mut state, drain).is_none();
        if goes {
            state.common.members.set_phase(Phase::Goes);
        }
        goes
    }
}
