//! A server leaves its group: first it gives its ranks, its workers and all that it holds to the others.
//!
//! The others are told, and give it nothing more to hold. Its ranks go on at other homes, each between two of its steps; its
//! workers run nothing more; each step is held elsewhere. Then the group agrees on a roster without it, and the others
//! answer for what it held, as if it had died.
//!
//! - this module: the way from the wish to leave until the group has agreed;
//! - `announcement`: what the others are asked; `hand_over`: giving what is here to them;
//! - `units`: what is held here alone; `remaining`: what is left to be done.

mod announcement;
mod hand_over;
mod remaining;
mod units;

use crate::members::Phase;
use crate::node::Node;
use forebay_core::ids::Epoch;
use forebay_core::roster::Change;
use forebay_core::{Error, Result};
use forebay_wire::peer::cluster;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use units::Drain;

/// How long to wait before it is looked again what is still to be done.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long to wait, at most, before steps are offered again that found no room.
const ROOM_AGAIN: Duration = Duration::from_millis(500);

/// Where all is that a server had that leaves.
#[derive(Debug, Clone, Copy)]
enum Drained {
    /// With the others that are members in this epoch.
    Elsewhere(Epoch),
    /// Nowhere: it is the last one.
    WithTheGroup,
}

impl Node {
    /// Leaves the group, once all that this server holds is held elsewhere; waits until the group has agreed. The last
    /// server ends with its group. After an error the server stays, and goes on as before.
    pub(crate) async fn leave(
        &self,
        discard: bool,
        patience: Duration,
        given_up: impl Future<Output = ()>,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        self.begin_to_leave(discard)?;
        let given_up_it =
            || Error::unreachable(format!("the group has given up {} before it could leave", self.id));
        tokio::pin!(given_up);
        loop {
            let drained = tokio::select! {
                biased;
                drained = self.drain_all(discard, deadline) => drained,
                () = &mut given_up => Err(Error::unreachable("who wanted the server to leave has gone")),
                _ = self.driver.out.wait_for(|out| out) => Err(given_up_it()),
            };
            let epoch = match drained {
                Ok(Drained::WithTheGroup) => {
                    self.shutdown.notify_one();
                    return Ok(());
                }
                Ok(Drained::Elsewhere(epoch)) => epoch,
                Err(error) => {
                    self.stay();
                    return Err(error);
                }
            };
            self.hand_over_cursors(&mut self.state.lock());
            self.at_membership(None, |membership, now| membership.wish(Change::Leave(self.id, epoch), now));
            match timeout_at(deadline, self.is_let_go_after(epoch)).await {
                Ok(true) if self.state.lock().common.members.goes() => return Ok(()),
                Ok(true) => return Err(given_up_it()),
                // The members are others: they may not hold all of it.
                Ok(false) => self.state.lock().common.members.set_phase(Phase::Pauses),
                Err(_) => {
                    self.stay_if_not_let_go(epoch);
                    return Err(Error::timeout(format!(
                        "{} holds nothing any more that no other server does, but the others have not agreed in time \
                         that it leaves: it does when they have, and stays if the members change otherwise before",
                        self.id
                    )));
                }
            }
        }
    }

    /// Waits until this server is no member any more, or the members are others than in this epoch and it still is one.
    async fn is_let_go_after(&self, epoch: Epoch) -> bool {
        tokio::select! {
            biased;
            _ = self.driver.out.wait_for(|out| out) => true,
            _ = self.epochs.wait_for(|now| now > epoch) => false,
        }
    }

    /// Nobody waits any more for this server to leave. What it wished holds for this epoch alone: if the members change and it
    /// is one of them still, it stays.
    fn stay_if_not_let_go(&self, epoch: Epoch) {
        let Some(node) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            if !node.is_let_go_after(epoch).await {
                node.stay();
            }
        });
    }

    fn begin_to_leave(&self, discard: bool) -> Result<()> {
        let mut state = self.state.lock();
        if state.common.members.this_one_leaves() {
            return Err(Error::conflict(format!("{} is leaving already", self.id)));
        }
        self.is_last_one(&state, discard)?;
        state.common.members.begin_phase(Phase::Drains);
        state.coordination.forget_counts_told();
        for stream in state.coordination.streams() {
            self.hand_over_counts(&mut state, &stream);
        }
        drop(state);
        tracing::info!("{} leaves the group: it gives the others what it has", self.id);
        Ok(())
    }

    /// This server stays after all.
    fn stay(&self) {
        tracing::warn!("{} stays in the group", self.id);
        self.leaves.set(false);
        let mut state = self.state.lock();
        state.common.members.begin_phase(Phase::Stays);
        // Also those that have not said that they know of it: they may only be slow.
        for server in self.others(&state) {
            self.tell(&mut state, server, cluster::Message::Stays);
        }
        self.end_hand_over(&mut state);
        self.pipelines_stay(&mut state, self.id);
        self.drain(&mut state);
    }

    /// Gives away all that this server has.
    async fn drain_all(&self, discard: bool, deadline: Instant) -> Result<Drained> {
        let mut pause = LOOK_AGAIN;
        let mut drain = Drain::new(discard);
        loop {
            let (last, waits) = {
                let state = self.state.lock();
                (self.is_last_one(&state, discard)?, self.is_after_all_others(&state))
            };
            if last {
                return Ok(Drained::WithTheGroup);
            }
            let mut refused = None;
            if !waits {
                self.leaves.set(true);
                self.announce().await;
                self.let_workers_go();
                refused = self.hand_over_all(&mut drain).await;
            }
            let epoch = self.epoch();
            let awaited = self.awaits(&mut self.state.lock(), &drain);
            let lacking = match awaited {
                None if self.may_go().await && self.go(epoch, &drain) => {
                    return Ok(Drained::Elsewhere(epoch));
                }
                None => "the others to hold copies of what they held with it".to_owned(),
                Some(what) => what,
            };
            if Instant::now() >= deadline {
                let text = format!("{} cannot leave in time, and stays. It waited for {lacking}", self.id);
                return Err(match refused {
                    Some(why) => why.during(text),
                    None => Error::timeout(text),
                });
            }
            // What finds no room now may do so later.
            pause = if refused.is_some() { (2 * pause).min(ROOM_AGAIN) } else { LOOK_AGAIN };
            sleep(pause).await;
        }
    }
}
