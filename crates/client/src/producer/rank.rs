//! The handle of a rank: what it consists of, its locks, and what can be asked of it at any time.

use crate::connection::group::Group;
use crate::connection::rpc::lock;
use crate::on_loss::OnLoss;
use crate::producer::state::ProducerState;
use crate::put_target::PutTarget;
use forebay_core::contract::Sequence;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::placement::Placement;
use forebay_core::steps::{Joining, Policy};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::fork::ForkGuard;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// One rank of a simulation. Puts may come from many threads; begin and end from one.
#[derive(Debug)]
pub struct Producer {
    pub(super) guard: ForkGuard,
    pub(super) group: Group,
    /// The home server. Replaced when it dies or leaves, or when the rank goes on at a server that has joined.
    pub(super) home: Mutex<Arc<PutTarget>>,
    /// Other servers that hold blocks of this rank, as its placement says; connected to at first use. `None` for those that
    /// are gone: the home holds blocks in their place.
    pub(super) others: Mutex<BTreeMap<ServerId, Option<Arc<PutTarget>>>>,
    pub(super) stream: String,
    pub(super) run: RunNumber,
    /// This rank, as it has joined.
    pub(super) joining: Joining,
    pub(super) on_loss: OnLoss,
    /// The numbers of its steps.
    pub(super) sequence: Sequence,
    /// A user's function may hold what holds this handle: it is let go when the handle is closed.
    pub(super) placement: Mutex<Placement>,
    /// Held by calls that wait in the name of the whole rank, and so exclude each other.
    pub(super) whole_rank: Mutex<()>,
    /// Held by the call that looks for another home server within a step: the home for which none was found last, and why.
    pub(super) failed_move: Mutex<Option<(Arc<PutTarget>, Error)>>,
    /// Never held while something is waited for, so that whoever only looks needs not wait either.
    pub(super) state: Mutex<ProducerState>,
}

/// Shows that a call holds the lock of the whole rank.
pub(crate) type RankLock<'a> = MutexGuard<'a, ()>;

impl Producer {
    /// The home server.
    pub(crate) fn home(&self) -> Arc<PutTarget> {
        lock(&self.home).clone()
    }

    /// The group.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// This rank.
    pub(crate) fn rank(&self) -> u32 {
        self.joining.rank
    }

    /// What this rank does when its servers are gone.
    pub(crate) fn on_loss(&self) -> OnLoss {
        self.on_loss
    }

    /// Says which servers hold this rank's blocks from now on.
    pub(crate) fn place_by(&self, placement: Placement) {
        *lock(&self.placement) = placement;
    }

    /// The step that is open.
    pub(crate) fn open_step(&self) -> Result<Option<StepNumber>> {
        Ok(self.state()?.open.as_ref().map(|open| open.step))
    }

    /// The run that was joined.
    pub fn run(&self) -> RunNumber {
        self.run
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// How many steps were begun so far while staging was given up: nobody will read them. Does not wait.
    pub fn skipped(&self) -> u64 {
        if self.guard.is_child() { 0 } else { lock(&self.state).counts.skipped }
    }

    /// Why staging was given up, and how many steps were skipped so far; `None` while all is well.
    pub fn lost(&self) -> Option<(Error, u64)> {
        if let Err(forked) = self.guard.check("producer") {
            return Some((forked, 0));
        }
        let state = lock(&self.state);
        state.staging.why().map(|error| (error.clone(), state.counts.skipped))
    }

    /// Which transport is used.
    pub fn transport(&self) -> forebay_transport::Kind {
        self.home().rpc.kind()
    }

    /// Whether a block that finds no room is dropped.
    pub(super) fn drops(&self) -> bool {
        self.joining.options.policy != Policy::Block
    }

    /// Locks the whole rank, for a call that waits in its name. A forked child is told before it could wait for that.
    pub(crate) fn lock_rank(&self) -> Result<RankLock<'_>> {
        self.guard.check("producer")?;
        Ok(lock(&self.whole_rank))
    }

    /// The state, if the handle can be used. A forked child is told before it could wait for a lock that was
    /// held in its parent when it was forked.
    pub(super) fn state(&self) -> Result<MutexGuard<'_, ProducerState>> {
        self.guard.check("producer")?;
        let state = lock(&self.state);
        if state.closed {
            return Err(Error::new(
                ErrorKind::Closed,
                format!("the producer of stream '{}' was closed", self.stream),
            ));
        }
        Ok(state)
    }
}
