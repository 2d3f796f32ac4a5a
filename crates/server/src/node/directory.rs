//! The directory among the other components: what a rank ends is registered, gets its copies, and is told to the coordinator;
//! and what waits for that.

use super::{Components, Node};
use crate::context::Context;
use crate::directory::registration::{Done, Ready, RegisteredStep, Registrations};
use crate::replication::primary::{Part, PartReplication, Unneeded};
use crate::streams::local_ranks::RankKey;
use forebay_core::Result;
use forebay_core::ids::{Epoch, ServerId, StepId, StepNumber, step_name};
use forebay_core::region::Region;
use forebay_core::shards::Shards;
use forebay_core::steps::StepContribution;
use forebay_core::tiles::TileCache;
use forebay_wire::client::reading::Reply;
use forebay_wire::peer::directory::Message;
use forebay_wire::peer::replication::ReplicaUnit;
use forebay_wire::peer::streams;
use tokio::sync::oneshot;

impl Node {
    /// A message about blocks of large runs.
    pub(super) fn on_directory(&self, state: &mut Components, from: ServerId, message: Message) {
        use Message as M;
        let Components { common, directory, .. } = &mut *state;
        let cx = &mut Context { server: &self.shared, common };
        let registered = match message {
            M::Register { token, id, owned, held } => {
                return directory.on_register(cx, (from, token), &id, (owned, held));
            }
            M::Unregister { token, id, blocks } => {
                return directory.on_unregister(cx, (from, token), &id, &blocks);
            }
            M::HandOver { id, owned } => return directory.owner.on_hand_over(&id, owned),
            M::Registered { token, refused, error } => {
                directory.registrations.on_registered(token, refused, error)
            }
            M::Unregistered { token } => directory.registrations.on_registered(token, Vec::new(), None),
        };
        self.tell_in_order(state, registered);
    }

    fn with_registrations<R>(
        &self,
        state: &mut Components,
        event: impl FnOnce(&mut Registrations, &mut Context<'_>, &mut TileCache) -> R,
    ) -> R {
        let Components { common, directory, tiles, .. } = &mut *state;
        event(&mut directory.registrations, &mut Context { server: &self.shared, common }, tiles)
    }

    /// A rank has ended a step: its placed blocks are registered if its run is large (`registers`), other servers get copies, then
    /// the coordinator is told.
    pub(crate) fn end_step(
        &self,
        state: &mut Components,
        (id, rank): (StepId, u32),
        ended: StepContribution,
        registers: bool,
        copies: (u32, Option<Done>),
    ) {
        let key = (id.stream.clone(), id.run, rank);
        self.with_registrations(state, |registrations, cx, tiles| {
            registrations.begin(cx, (id, rank), ended, registers.then_some(tiles), copies);
        });
        self.tell_in_order(state, [key]);
    }

    /// Tells a stream's coordinator something of a rank, after all that it ended before.
    pub(crate) fn tell_of_rank(&self, state: &mut Components, rank: &RankKey, message: streams::Message) {
        if let Some(message) = state.directory.registrations.defer(rank, message) {
            self.tell_coordinator(state, &rank.0, message);
        }
    }

    /// Tells when the coordinator has been told of all that a rank has done; `None` if it has been. The caller sets the
    /// deadline.
    pub(crate) fn until_told(&self, rank: &RankKey) -> Option<oneshot::Receiver<()>> {
        self.state.lock().directory.registrations.until_told(rank)
    }

    fn tell_coordinator(&self, state: &mut Components, stream: &str, message: streams::Message) {
        if let streams::Message::RankGone { run, rank, end, .. } = &message {
            state.ranks.on_gone(stream, *run, *rank, *end);
            self.replicas_rank_gone(state, stream, (*run, *rank), *end);
        }
        if let streams::Message::RankMoves { run, rank, .. } = &message {
            state.ranks.on_moved(stream, *run, *rank);
        }
        let coordinator = self.coordinator_of(state, stream);
        self.tell(state, coordinator, message);
    }

    /// A server died: it registers nothing any more.
    pub(super) fn registrations_peer_gone(&self, state: &mut Components, peer: ServerId) {
        let touched = state.directory.registrations.on_server_gone(peer);
        self.tell_in_order(state, touched);
    }

    /// Gives up owners that do not answer. Called from time to time.
    pub(super) fn give_up_overdue_owners(&self) {
        let mut state = self.state.lock();
        let touched = state.directory.registrations.give_up_overdue();
        self.tell_in_order(&mut state, touched);
        self.drain(&mut state);
    }

    /// Tells coordinators what is complete of what ranks did, in order.
    fn tell_in_order(&self, state: &mut Components, ranks: impl IntoIterator<Item = RankKey>) {
        for rank in ranks {
            while let Some(ready) =
                self.with_registrations(state, |registrations, cx, _| registrations.next(cx, &rank))
            {
                match ready {
                    Ready::Tell(message) => self.tell_coordinator(state, &rank.0, *message),
                    Ready::Step(step) => self.on_step_registered(state, &rank, *step),
                }
            }
        }
    }

    /// A step is registered: the coordinator is told when it has the copies that it is to have.
    fn on_step_registered(&self, state: &mut Components, key: &RankKey, registered: RegisteredStep) {
        let RegisteredStep { id, rank, ended, error, ranges, copies, done } = registered;
        let step = id.step;
        if let Some(error) = error {
            state.ranks.defer_error(key, error.during(step_name(step)));
        }
        if copies == 0 {
            return self.tell_ended(state, key.clone(), ended, false);
        }
        let part = Part { unit: ReplicaUnit::Step(id), ranges, ended: vec![(rank, ended.clone())] };
        let replication = self.begin_replication(state, part, copies);
        if replication.is_safe() {
            done.into_iter().for_each(|done| drop(done.send(Ok(()))));
            self.tell_ended(state, key.clone(), ended, replication.are_enough());
        } else {
            state.directory.registrations.begin_replicating(key, step, ended, done);
        }
        self.end_replicating(key.clone(), step, replication);
    }

    /// Waits until other servers hold copies of a step. If the step was not safe before, the rank and the coordinator hear
    /// of it then.
    fn end_replicating(&self, key: RankKey, step: StepNumber, replication: PartReplication) {
        let (node, is_safe) = (self.me.clone(), replication.is_safe());
        tokio::spawn(async move {
            let Some(node) = node.upgrade() else { return };
            let replicated = node.finish_replication(replication).await;
            if is_safe {
                return;
            }
            let enough = *replicated.as_ref().unwrap_or(&false);
            node.answer_rank(&key, step, replicated.map(drop));
            // It goes on while the others are told.
            tokio::task::yield_now().await;
            node.on_step_replicated(&key, step, enough);
        });
    }

    /// Other servers hold copies of a step that a rank has ended, or cannot: the rank hears so, now or with its next answer.
    fn answer_rank(&self, key: &RankKey, step: StepNumber, replicated: Result<()>) {
        let mut state = self.state.lock();
        let Some(done) = state.directory.registrations.take_done(key, step) else { return };
        match (done, replicated) {
            (Some(done), replicated) => drop(done.send(replicated)),
            (None, Err(error)) => state.ranks.defer_error(key, error),
            (None, Ok(())) => {}
        }
    }

    /// Nothing more is waited for before others are told that a rank has ended a step; it has as many copies as it is to have,
    /// or not.
    fn on_step_replicated(&self, key: &RankKey, step: StepNumber, copied: bool) {
        let mut state = self.state.lock();
        let Some(ended) = state.directory.registrations.end_replicating(key, step) else { return };
        self.tell_ended(&mut state, key.clone(), ended, copied);
        self.tell_in_order(&mut state, [key.clone()]);
        self.drain(&mut state);
    }

    /// Seats have passed on: those that hold them now are told of blocks that this server holds.
    pub(crate) fn register_again(&self, state: &mut Components, before: &Shards) {
        let Components { common, directory, tiles, .. } = &mut *state;
        let cx = &mut Context { server: &self.shared, common };
        directory.holder.on_shards_reassigned(cx, tiles, before);
    }

    /// Nobody will ever read a step.
    pub(crate) fn forget_step(&self, state: &mut Components, id: &StepId) {
        self.free_step(state, id, 0);
    }

    /// Nobody needs a step any more. Readers may still look at it who were told of it in a term before `unseen_before`: its
    /// memory is used again when all have gone that could.
    pub(super) fn free_step(&self, state: &mut Components, id: &StepId, unseen_before: Epoch) {
        state.ranks.on_freed(id);
        state.directory.forget(id);
        let held = state.holdings.remove(id);
        let unneeded = Unneeded { held, unseen_before, asked_to_free: Vec::new() };
        self.release(state, ReplicaUnit::Step(id.clone()), unneeded);
    }

    /// The blocks of a step that this server knows as the owner of tiles. Waits until it has been told of those that owners
    /// knew which have gone; the caller sets the deadline.
    pub(crate) async fn find_blocks(
        &self,
        id: &StepId,
        field: &str,
        region: Option<&Region>,
        skip: usize,
    ) -> Reply {
        self.told_by_all().await;
        self.state.lock().directory.owner.find(id, field, region, skip)
    }
}
