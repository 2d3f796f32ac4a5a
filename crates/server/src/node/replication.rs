//! Replication among the other components: what it needs of them, what follows for them from its events, and what waits for it.
//!
//! - this module: replication is told of events;
//! - `copies`: having copies made, of what is put and of what has too few; `fetch`: fetching the bytes of copies;
//! - `successors`: finding who answers for a dead server; `takeover`: taking the place of one; `rejoin`: coming back.

mod copies;
mod fetch;
mod rejoin;
mod successors;
mod takeover;

pub(crate) use copies::copies_late;

use super::locations::coordinator;
use super::{Components, Node};
use crate::context::Context;
use crate::directory::Directory;
use crate::held::Held;
use crate::questions::Answer;
use crate::replication::primary::{Consequence, Unneeded};
use crate::replication::{Replication, RunKnowledge, Sources};
use crate::shared::Shared;
use crate::space::Space;
use crate::streams::coordination::Coordination;
use crate::streams::holdings::Holdings;
use crate::streams::local_ranks::LocalRanks;
use crate::streams::locations::Locations;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::{FieldReport, RankEnd, RunReport};
use forebay_wire::peer::replication::{BlockRange, Message, ReplicaUnit, SpaceBlock};
use rustix::fd::OwnedFd;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The components that hold what is replicated.
struct Below<'a> {
    server: &'a Shared,
    coordination: &'a Coordination,
    locations: &'a Locations,
    ranks: &'a LocalRanks,
    holdings: &'a Holdings,
    directory: &'a Directory,
    space: &'a Space,
}

impl Sources for Below<'_> {
    fn holds(&self, unit: &ReplicaUnit, range: Held) -> bool {
        match unit {
            ReplicaUnit::Step(id) => self.holdings.of(id).contains(&range),
            ReplicaUnit::Space(key) => self.space.range_of(*key) == Some(range),
        }
    }

    fn records_in(&self, unit: &ReplicaUnit, ranges: &[BlockRange]) -> Vec<FieldReport> {
        unit.step().map(|id| self.directory.holder.records_in(id, ranges)).unwrap_or_default()
    }

    fn space_block(&self, unit: &ReplicaUnit) -> Option<SpaceBlock> {
        self.space.block_of(unit)
    }

    fn run_version(&self, stream: &str, run: RunNumber) -> Option<u64> {
        self.ranks.ledger().run(stream, run).map(|ledger| ledger.version())
    }

    fn run(&self, stream: &str, run: RunNumber) -> Option<RunKnowledge> {
        let ledger = self.ranks.ledger().run(stream, run)?;
        Some(RunKnowledge {
            coordinator: coordinator(self.server, self.coordination, self.locations, stream),
            known: ledger.report(run, self.ranks.cuts_of(stream, run)),
            gone: ledger.ranks().filter_map(|(rank, told)| told.gone.map(|end| (rank, end))).collect(),
        })
    }
}

impl Node {
    /// Replication handles an event, and what follows from it for other components is done.
    fn with_replication<R>(
        &self,
        state: &mut Components,
        event: impl FnOnce(&mut Replication, &mut Context<'_>, &dyn Sources) -> R,
    ) -> R {
        let Components {
            common,
            coordination,
            locations,
            ranks,
            holdings,
            directory,
            space,
            replication,
            ..
        } = &mut *state;
        let server = &self.shared;
        let sources = Below { server, coordination, locations, ranks, holdings, directory, space };
        let cx = &mut Context { server, common };
        let result = event(replication, cx, &sources);
        for consequence in replication.primary.take_consequences() {
            match consequence {
                Consequence::Freed(server, token) => self.space_tell_freed(state, (server, token)),
                Consequence::Lacking(units) => self.replicate_again(units),
            }
        }
        result
    }

    /// A message about copies.
    pub(super) fn on_replication(&self, state: &mut Components, from: ServerId, message: Message) {
        use Message as M;
        match message {
            // Its descriptor comes with it: the connection takes it.
            M::OfferArena { .. } => {}
            M::WithdrawArena { arena } => self.with_replication(state, |replication, cx, _| {
                replication.backups.on_arena_withdrawn(cx, from, arena);
            }),
            M::NoteRun { stream, coordinator, known } => {
                self.on_run_noted(state, (from, coordinator), &stream, *known);
            }
            M::NoteRankGone { stream, run, rank, end } => {
                state.replication.backups.on_rank_gone(from, &stream, (run, rank), end);
            }
            M::ConfirmNotes { token } => {
                self.tell(state, from, M::Replicated { token, result: Ok(()) });
            }
            M::Replicate { token, replica } => {
                let orders = self.with_replication(state, |replication, cx, _| {
                    replication.backups.on_replicate(cx, from, token, replica)
                });
                if let Some(orders) = orders {
                    self.fetch_all(from, orders);
                }
            }
            M::Replicated { token, result } => state.common.questions.answer(token, Answer::Done(result)),
            M::Release { token, unit } => self.with_replication(state, |replication, cx, _| {
                replication.backups.on_release(cx, from, token, unit);
            }),
            M::Released { token } => self.with_replication(state, |replication, cx, _| {
                replication.primary.on_released(cx, from, token);
            }),
        }
    }

    /// A primary tells what it knows of a run, and who coordinates the run's stream.
    fn on_run_noted(
        &self,
        state: &mut Components,
        (from, coordinator): (ServerId, ServerId),
        stream: &str,
        known: RunReport,
    ) {
        if let Err(error) = known.check() {
            return tracing::warn!("what {from} tells of stream '{stream}' is not kept: {error}");
        }
        if self.is_member(state, coordinator) {
            self.note_place(state, stream, coordinator);
        }
        state.replication.backups.on_run(from, stream, known);
    }

    /// A primary has an arena of which blocks are to be replicated.
    pub(crate) fn on_arena_offered(&self, from: ServerId, (arena, bytes): (u32, u64), file: Option<OwnedFd>) {
        self.with_replication(&mut self.state.lock(), |replication, cx, _| {
            replication.backups.on_arena_offered(cx, from, (arena, bytes), file);
        });
    }

    /// A server that is no member has gone: what it wanted to have kept is not needed.
    pub(crate) fn forget_primary(&self, primary: ServerId) {
        self.with_replication(&mut self.state.lock(), |replication, cx, _| {
            replication.backups.forget(cx, primary);
        });
    }

    /// Something is needed no more, here or where it has copies.
    pub(crate) fn release(&self, state: &mut Components, unit: ReplicaUnit, unneeded: Unneeded) {
        self.with_replication(state, |replication, cx, _| replication.primary.release(cx, unit, unneeded));
    }

    /// A rank with its home here is gone.
    pub(crate) fn replicas_rank_gone(
        &self,
        state: &mut Components,
        stream: &str,
        (run, rank): (RunNumber, u32),
        end: RankEnd,
    ) {
        self.with_replication(state, |replication, cx, sources| {
            // Else nobody might know of it when this server is gone: it may be the coordinator, too.
            if !seeded(Bug::KeepsLeavesToItself) {
                replication.primary.tell_any_of_run(cx, sources, stream, run);
            }
            replication.primary.on_rank_gone(cx, stream, (run, rank), end);
        });
    }

    /// Waits until the servers that know of a run beside this one have noted what they were told of it last.
    pub(crate) async fn notes_are_confirmed(&self, stream: &str, run: RunNumber, patience: Duration) {
        let asked: Vec<_> = {
            let state = &mut *self.state.lock();
            let backups = state.replication.primary.told_of_run(stream, run);
            let Components { common, .. } = state;
            let cx = &mut Context { server: &self.shared, common };
            let asked = backups.into_iter();
            asked.filter_map(|backup| cx.ask(backup, |token| Message::ConfirmNotes { token })).collect()
        };
        let deadline = Instant::now() + patience;
        for (_, answer) in asked {
            // One that is gone need not know.
            let _ = timeout_at(deadline, answer).await;
        }
    }

    /// Forgets what backups know of arenas and runs that are gone. Called from time to time.
    pub(super) fn forget_replicas(&self) {
        self.with_replication(&mut self.state.lock(), |replication, cx, sources| {
            let is_known = |stream: &str, run| sources.run_version(stream, run).is_some();
            replication.primary.forget_gone(cx, is_known);
        });
    }

    /// The members are others: what has lost a copy, or had too few, gets another one.
    pub(crate) fn replicas_on_members(&self, state: &mut Components, left: &[ServerId]) {
        self.with_replication(state, |replication, cx, _| replication.primary.on_members(cx, left));
    }

    /// A server leaves that may hold copies, or is gone: others are to hold them.
    pub(crate) fn replicas_backup_lost(&self, state: &mut Components, lost: ServerId) {
        self.with_replication(state, |replication, _, _| replication.primary.on_backup_lost(lost));
    }

    /// Tells another server what this one knows of runs, also where no step of them is held.
    pub(crate) fn replicate_runs(&self, state: &mut Components) {
        let runs: Vec<_> = state.ranks.ledger().all_runs().cloned().collect();
        for (stream, run) in runs {
            self.with_replication(state, |replication, cx, sources| {
                replication.primary.tell_any_of_run(cx, sources, &stream, run);
            });
        }
    }

    /// This server does not leave after all: others need not hold in its place what it holds.
    pub(crate) fn end_hand_over(&self, state: &mut Components) {
        self.with_replication(state, |replication, cx, _| replication.primary.end_hand_over(cx));
    }
}
