//! This server as a backup: what it holds for its primaries, so that it outlives them.
//!
//! - this module: what primaries say, each to its own [`Backup`];
//! - [`backup`]: what is held for one primary;
//! - [`order`]: what a primary wants done, where bytes are fetched for it;
//! - [`takeover`]: a primary is dead, and this server holds in its place what it held for it.

mod backup;
mod order;
mod takeover;

pub(crate) use order::{FetchedRange, Order};
pub(crate) use takeover::{TakenOver, TakenUnit};

use crate::context::Context;
use crate::replication::rejoin::FormerArena;
use crate::replication::successors::ArenaKey;
use backup::Backup;
use forebay_cluster::environment::HashMap;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::{RankEnd, RunReport, RunSummary};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::peer::replication::{BlockRange, Message, Replica, ReplicaUnit};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use tokio::sync::mpsc;

/// Orders of one primary that may wait until bytes before them are fetched.
const ORDERS: usize = 4096;

/// What is held for other servers.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    primaries: HashMap<ServerId, Backup>,
}

impl Backups {
    /// Of how many units something is held.
    pub(crate) fn len(&self) -> usize {
        self.primaries.values().map(Backup::len).sum()
    }

    /// The streams of which something is held.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &String> {
        self.primaries.values().flat_map(Backup::streams)
    }

    /// The streams of which something is held for one primary.
    pub(crate) fn streams_of(&self, primary: ServerId) -> BTreeSet<String> {
        self.primaries.get(&primary).into_iter().flat_map(Backup::streams).cloned().collect()
    }

    /// A primary has an arena of which blocks are to be replicated.
    pub(crate) fn on_arena_offered(
        &mut self,
        cx: &Context<'_>,
        from: ServerId,
        (arena, bytes): (u32, u64),
        file: Option<OwnedFd>,
    ) {
        if cx.server.standing().roster.has_left(from) {
            return;
        }
        let same = file.is_some();
        let backup = self.primaries.entry(from).or_default();
        if !backup.takes_arena(arena) {
            return tracing::warn!("arena {arena} of {from} is one too many");
        }
        match cx.server.store.lock().add_backup_arena(file, bytes) {
            Ok(mine) => backup.add_arena(arena, mine, same),
            Err(error) => tracing::warn!("arena {arena} of {from} is not kept: {error}"),
        }
    }

    /// An arena of the member that this server was before its group gave it up: its number here, and the arenas for which it
    /// stood.
    pub(super) fn hold_former_arena(
        &mut self,
        cx: &Context<'_>,
        former: ServerId,
        arena: FormerArena,
    ) -> Result<(u32, Vec<ArenaKey>)> {
        let FormerArena { number, file, size, stands_for } = arena;
        let mine = cx.server.store.lock().add_backup_arena(Some(file), size)?;
        self.primaries.entry(former).or_default().add_arena(number, mine, true);
        Ok((mine, stands_for))
    }

    /// An arena of a primary is gone, with all its blocks.
    pub(crate) fn on_arena_withdrawn(&mut self, cx: &Context<'_>, from: ServerId, arena: u32) {
        let mine = self.primaries.get_mut(&from).and_then(|backup| backup.remove_arena(arena));
        if let Some(mine) = mine {
            cx.server.store.lock().remove_backup_arena(mine);
        }
    }

    /// A primary that is no member has gone: what it wanted to have kept is not needed.
    pub(crate) fn forget(&mut self, cx: &Context<'_>, primary: ServerId) {
        let backup = self.primaries.remove(&primary);
        let mut store = cx.server.store.lock();
        backup.into_iter().flat_map(Backup::into_arenas).for_each(|arena| store.remove_backup_arena(arena));
    }

    /// A primary tells what it knows of a run.
    pub(crate) fn on_run(&mut self, from: ServerId, stream: &str, known: RunReport) {
        self.primaries.entry(from).or_default().on_run(stream, known);
    }

    /// A rank with its home at a primary is gone.
    pub(crate) fn on_rank_gone(
        &mut self,
        from: ServerId,
        stream: &str,
        (run, rank): (RunNumber, u32),
        end: RankEnd,
    ) {
        if let Some(backup) = self.primaries.get_mut(&from) {
            backup.on_rank_gone(stream, run, rank, end);
        }
    }

    /// All ranks of a run have come and gone.
    pub(crate) fn on_run_over(&mut self, stream: &str, run: RunNumber, summary: &RunSummary) {
        self.primaries.values_mut().for_each(|backup| backup.on_run_over(stream, run, summary.clone()));
    }

    /// A primary asks to hold something of a unit. Where bytes of its are to be fetched for the first time: the orders that
    /// wait for that.
    pub(crate) fn on_replicate(
        &mut self,
        cx: &mut Context<'_>,
        from: ServerId,
        token: u64,
        replica: Box<Replica>,
    ) -> Option<mpsc::Receiver<Order>> {
        if cx.server.standing().roster.has_left(from) {
            return None;
        }
        let backup = self.primaries.entry(from).or_default();
        let orders = backup.is_to_fetch(&replica).then(|| {
            let (sender, orders) = mpsc::channel(ORDERS);
            backup.orders = Some(sender);
            orders
        });
        let result = match &backup.orders {
            Some(waiting) => match waiting.try_send(Order::Hold(token, replica)) {
                Ok(()) => return orders,
                Err(_) => Err(Error::new(ErrorKind::Full, "it is too far behind with fetching copies")),
            },
            None if seeded(Bug::KeepsNothing) => {
                backup.note_reports(*replica);
                Ok(())
            }
            None => backup.check_run(&replica).and_then(|()| backup.hold(cx, *replica)),
        };
        cx.tell(from, Message::Replicated { token, result });
        orders
    }

    /// Holds a replica of which no bytes are to be fetched.
    pub(super) fn hold(&mut self, cx: &Context<'_>, primary: ServerId, replica: Replica) -> Result<()> {
        self.primaries.entry(primary).or_default().hold(cx, replica)
    }

    /// Finds room for blocks of a unit whose bytes are to be fetched: those that are new here.
    pub(crate) fn begin_fetch(
        &mut self,
        cx: &Context<'_>,
        from: ServerId,
        replica: &Replica,
    ) -> Result<Vec<FetchedRange>> {
        if cx.server.standing().roster.has_left(from) {
            return Err(Error::unreachable(format!("{from} is no member any more")));
        }
        match self.primaries.get(&from) {
            Some(backup) => backup.check_run(replica)?,
            None => Backup::default().check_run(replica)?,
        }
        self.primaries.entry(from).or_default().reserve_to_fetch(cx, replica)
    }

    /// The bytes of a range have come, or will not.
    pub(crate) fn on_fetched(
        &mut self,
        cx: &Context<'_>,
        from: ServerId,
        unit: &ReplicaUnit,
        mine: &BlockRange,
        has_come: bool,
    ) {
        // Unless it was let go of, or taken over, with what had come.
        if let Some(backup) = self.primaries.get_mut(&from) {
            backup.on_fetched(cx, unit, mine, has_come);
        }
    }

    /// All of a replica is here: so is what ranks reported of it. The primary is told; it is told as well why it is not here.
    pub(crate) fn end_fetch(
        &mut self,
        cx: &mut Context<'_>,
        from: ServerId,
        (token, replica): (u64, Replica),
        result: Result<()>,
    ) {
        if let Some(backup) = self.primaries.get_mut(&from).filter(|_| result.is_ok()) {
            backup.note_reports(replica);
        }
        cx.tell(from, Message::Replicated { token, result });
    }

    /// A primary needs its part of a unit no more.
    pub(crate) fn on_release(&mut self, cx: &mut Context<'_>, from: ServerId, token: u64, unit: ReplicaUnit) {
        match self.primaries.get(&from).and_then(|backup| backup.orders.as_ref()) {
            // Copies of its own are not that server's memory. If too many wait, it is found when that one is dead.
            Some(orders) => drop(orders.try_send(Order::Release(unit))),
            None => self.let_go(cx, from, &unit),
        }
        cx.tell(from, Message::Released { token });
    }

    /// Lets go of a unit.
    pub(crate) fn let_go(&mut self, cx: &Context<'_>, from: ServerId, unit: &ReplicaUnit) {
        if let Some(backup) = self.primaries.get_mut(&from) {
            backup.let_go(cx, unit);
        }
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        for (primary, backup) in &self.primaries {
            backup.sanity_check().map_err(|error| format!("held for {primary}: {error}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Backups {
    /// For which servers how many units are held.
    pub(crate) fn counts(&self) -> Vec<(ServerId, usize)> {
        let counts = self.primaries.iter().map(|(primary, backup)| (*primary, backup.len()));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// The ranges that are held of a unit, with all their bytes, each with its arena at the primary.
    pub(crate) fn ranges_of(&self, unit: &ReplicaUnit) -> Vec<(ArenaKey, BlockRange)> {
        let all = self.primaries.iter().flat_map(|(primary, backup)| {
            backup.ranges_of(unit).into_iter().map(|(arena, range)| ((*primary, arena), range))
        });
        all.collect()
    }

    /// Whether it is held what a rank reported of a step.
    pub(crate) fn has_report(&self, id: &forebay_core::ids::StepId, rank: u32) -> bool {
        self.primaries.values().any(|backup| backup.has_report(id, rank))
    }
}
