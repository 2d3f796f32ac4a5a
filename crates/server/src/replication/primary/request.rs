//! How servers are asked to hold a part of a unit: which are, and when it is certain that they do.

use super::candidates::{candidates, leavers};
use super::{Primary, ReplicatedUnit};
use crate::context::Context;
use crate::questions::Answer;
use crate::replication::sources::Sources;
use forebay_cluster::peers::SendOutcome;
use forebay_core::ids::ServerId;
use forebay_core::steps::StepContribution;
use forebay_core::{Error, ErrorKind};
use forebay_wire::peer::replication::{BlockRange, Message, Replica, ReplicaUnit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A part of a unit that is to be held elsewhere: blocks that are here, and what ranks reported.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) unit: ReplicaUnit,
    pub(crate) ranges: Vec<BlockRange>,
    pub(crate) ended: Vec<(u32, Arc<StepContribution>)>,
}

/// A server that was asked to hold something.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) backup: ServerId,
    /// Where its answer will come. That ends without one if it dies.
    pub(crate) answer: oneshot::Receiver<Answer>,
    /// Whether it will do it whatever becomes of this server: see [`SendOutcome::There`].
    is_sure: bool,
    /// It leaves the group: it holds a copy as long as it is there, which counts for nothing.
    pub(crate) leaves: bool,
}

/// What came of asking servers to hold a part of something.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// Those that do.
    done: BTreeSet<ServerId>,
    refused: BTreeMap<ServerId, Error>,
    /// Those that leave the group, and were asked; and how many of them do.
    leavers: BTreeSet<ServerId>,
    leavers_done: usize,
    /// Those that had forgotten the run, and are told of it once more.
    told_again: BTreeSet<ServerId>,
}

/// A part of a unit that servers were asked to hold. They go on being asked until it is finished.
#[must_use]
#[derive(Debug)]
pub(crate) struct PartReplication {
    pub(crate) part: Part,
    pub(crate) copies: u32,
    pub(crate) asked: Vec<Request>,
}

impl PartReplication {
    /// Whether the part outlives this server already.
    pub(crate) fn is_safe(&self) -> bool {
        self.asked.iter().all(|asked| asked.is_sure)
    }

    /// Whether as many were asked as are wanted.
    pub(crate) fn are_enough(&self) -> bool {
        self.asked.iter().filter(|asked| !asked.leaves).count() >= self.copies as usize
    }
}

impl Replies {
    /// Of these, which were asked already.
    pub(crate) fn to(asked: &[Request]) -> Replies {
        let leavers = asked.iter().filter(|asked| asked.leaves).map(|asked| asked.backup).collect();
        Replies { leavers, ..Replies::default() }
    }

    /// A server has answered; `None` if it is gone. `true` if it has forgotten the run: it is to be told of it, and asked, once
    /// more.
    pub(crate) fn note(
        &mut self,
        unit: &ReplicaUnit,
        (backup, leaves): (ServerId, bool),
        answer: Option<Answer>,
    ) -> bool {
        match answer {
            Some(Answer::Done(Ok(()))) if leaves => self.leavers_done += 1,
            Some(Answer::Done(Ok(()))) => {
                self.done.insert(backup);
            }
            Some(Answer::Done(Err(error)))
                if error.kind == ErrorKind::Ended && self.told_again.insert(backup) =>
            {
                self.leavers.remove(&backup);
                return true;
            }
            Some(Answer::Done(Err(error))) => {
                tracing::warn!("{backup} holds no copy of {unit}: {error}");
                self.refused.extend((!leaves).then_some((backup, error)));
            }
            _ => {}
        }
        false
    }

    /// The backups that do; and why not as many as there could be, if these are fewer than are wanted.
    pub(crate) fn into_outcome(self, wanted: u32) -> (BTreeSet<ServerId>, Option<Error>) {
        let lacks = self.done.len() < wanted as usize;
        (self.done, self.refused.into_values().next().filter(|_| lacks))
    }
}

impl Primary {
    /// Asks servers to hold blocks of a step that this one holds, and what ranks reported of it, or a block of the space.
    pub(crate) fn begin_part(
        &mut self,
        cx: &mut Context<'_>,
        sources: &dyn Sources,
        part: Part,
        copies: u32,
    ) -> PartReplication {
        let unit = self.units.entry(part.unit.clone()).or_default();
        unit.copies = unit.copies.max(copies);
        unit.add(&part);
        unit.begin_part();
        let asked = self.ask(cx, sources, &part, copies, &mut Replies::default());
        PartReplication { part, copies, asked: asked.unwrap_or_default() }
    }

    /// These backups hold a part of a unit: whether as many do as are wanted, or none is needed any more.
    pub(crate) fn end_part(
        &mut self,
        cx: &Context<'_>,
        unit: &ReplicaUnit,
        copies: u32,
        mut done: BTreeSet<ServerId>,
    ) -> bool {
        done.retain(|backup| cx.is_member(*backup));
        let Some(known) = self.units.get_mut(unit) else { return true };
        let held_by = done.len();
        known.end_part(done);
        if known.pending == 0 && known.full_backups().len() < held_by {
            // The parts of it have copies, but not on the same servers.
            self.note_lacking(vec![unit.clone()]);
        }
        held_by >= copies as usize
    }

    /// Servers are about to be asked to hold all of a unit; `false` if it needs no copies any more.
    pub(crate) fn begin_all(&mut self, all: &Part) -> bool {
        let Some(unit) = self.units.get_mut(&all.unit) else { return false };
        unit.add(all);
        true
    }

    /// These backups hold all of a unit, if it consists of so many parts still: what has come since, they may not have.
    pub(crate) fn end_all(
        &mut self,
        cx: &Context<'_>,
        unit: &ReplicaUnit,
        parts: Option<u64>,
        mut done: BTreeSet<ServerId>,
    ) {
        done.retain(|backup| cx.is_member(*backup));
        let unit = self.units.get_mut(unit);
        if let Some(unit) = unit.filter(|unit| Some(unit.parts) == parts && unit.pending == 0) {
            unit.backups = Some(done);
        }
    }

    /// Asks as many servers to hold something as are still wanted; nobody if those that do are enough, or all. `None` if it
    /// needs no copies any more.
    pub(crate) fn ask(
        &mut self,
        cx: &mut Context<'_>,
        sources: &dyn Sources,
        part: &Part,
        servers: u32,
        replies: &mut Replies,
    ) -> Option<Vec<Request>> {
        let Part { unit: id, ranges, ended } = part;
        replies.done.retain(|backup| cx.is_member(*backup));
        self.note_sure(&replies.done, ranges);
        replies.done.retain(|backup| !cx.members().leaves(*backup));
        let unit = self.units.get(id)?;
        let copies = unit.copies;
        let backups = backups(cx, unit, servers, &replies.refused);
        let lacking = (servers as usize).saturating_sub(backups.len() + replies.leavers_done);
        let leaving = leavers(cx.members()).into_iter().filter(|id| !replies.leavers.contains(id));
        let last_resort: Vec<ServerId> = leaving.take(lacking).collect();
        replies.leavers.extend(&last_resort);
        let rest: Vec<ServerId> =
            backups.iter().copied().filter(|backup| !replies.done.contains(backup)).collect();
        if rest.is_empty() && last_resort.is_empty() {
            return Some(Vec::new());
        }
        let unit = self.units.get_mut(id)?;
        unit.leavers.retain(|leaver| !rest.contains(leaver));
        unit.leavers.extend(last_resort.iter().filter(|leaver| !unit.asked.contains(leaver)));
        let of_told_run = id.step().is_some_and(|id| sources.run_version(&id.stream, id.run).is_some());
        let replica = Replica {
            unit: id.clone(),
            copies,
            backups: backups.iter().chain(&last_resort).copied().collect(),
            ranges: ranges.clone(),
            ended: ended.clone(),
            records: sources.records_in(id, ranges),
            space: sources.space_block(id),
            of_told_run,
        };
        let rest = rest.into_iter().map(|backup| (backup, false));
        let all = rest.chain(last_resort.into_iter().map(|leaver| (leaver, true)));
        Some(all.map(|to| self.ask_one(cx, sources, to, replica.clone())).collect())
    }

    /// These backups hold what is in these ranges, and will hold what else is put in their arenas.
    fn note_sure(&mut self, backups: &BTreeSet<ServerId>, ranges: &[BlockRange]) {
        for backup in backups {
            self.sure.entry(*backup).or_default().extend(ranges.iter().map(|range| range.arena));
        }
    }

    fn ask_one(
        &mut self,
        cx: &mut Context<'_>,
        sources: &dyn Sources,
        (backup, leaves): (ServerId, bool),
        replica: Replica,
    ) -> Request {
        let token = cx.server.unique();
        let answer = cx.common.questions.ask(token, backup, None);
        let sure = self.tell_one(cx, sources, backup, replica, token);
        if sure.is_none() {
            cx.common.questions.take(token);
        }
        Request { backup, answer, is_sure: sure.unwrap_or(false), leaves }
    }

    /// Whether it is certain that the backup will do it; `None` if it is gone.
    fn tell_one(
        &mut self,
        cx: &mut Context<'_>,
        sources: &dyn Sources,
        backup: ServerId,
        replica: Replica,
        token: u64,
    ) -> Option<bool> {
        let arenas: BTreeSet<u32> = replica.ranges.iter().map(|range| range.arena).collect();
        for arena in &arenas {
            if self.arenas.entry(*arena).or_default().insert(backup) {
                let (file, bytes) = cx.server.store.lock().backup_descriptor(*arena).ok()?;
                let offer = Message::OfferArena { arena: *arena, bytes };
                cx.server.peers.send_with(backup, offer, Some(file));
            }
        }
        // Also of blocks of a step that no rank has ended yet: who looks after a run of which nobody tells lets them go.
        if let Some(id) = replica.unit.step() {
            self.tell_of_run(cx, sources, backup, &id.stream, id.run);
        }
        if let Some(unit) = self.units.get_mut(&replica.unit) {
            unit.asked.insert(backup);
        }
        let did_before = self.sure.get(&backup).is_some_and(|sure| arenas.is_subset(sure));
        match cx.send(backup, Message::Replicate { token, replica: Box::new(replica) }) {
            SendOutcome::There => Some(did_before),
            SendOutcome::Waits => Some(false),
            SendOutcome::Gone => None,
        }
    }
}

impl ReplicatedUnit {
    /// A part of it is to be held elsewhere.
    fn add(&mut self, part: &Part) {
        self.ranges.extend(&part.ranges);
        self.reported.extend(part.ended.iter().map(|(rank, _)| *rank));
    }
}

/// The servers that are to hold copies of a unit: best those that have other parts of it, then as [`candidates`] ranks them.
fn backups(
    cx: &Context<'_>,
    unit: &ReplicatedUnit,
    copies: u32,
    without: &BTreeMap<ServerId, Error>,
) -> Vec<ServerId> {
    let mut able = candidates(cx.server, cx.members());
    able.retain(|id| !without.contains_key(id));
    // A stable sort: the best of each kind stay first.
    able.sort_by_key(|id| !unit.backups.as_ref().is_some_and(|backups| backups.contains(id)));
    able.truncate(copies as usize);
    able
}
