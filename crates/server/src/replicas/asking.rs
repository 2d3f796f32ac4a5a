//! How guardians are asked to keep something: which servers are, and when it is safe that they do.

use crate::node::{Components, Node};
use crate::questions::Answer;
use forebay_cluster::peers::SendOutcome;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::StepContribution;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::peer::replication::{self, BlockRange, Replica, ReplicaUnit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Something that is to be kept elsewhere: blocks that are here, and what ranks told.
struct Part {
    id: ReplicaUnit,
    ranges: Vec<BlockRange>,
    ended: Vec<(u32, Arc<StepContribution>)>,
}

/// A server that was asked to keep something.
struct Asked {
    guardian: ServerId,
    /// Where its answer will come. That ends without one if it dies.
    answer: oneshot::Receiver<Answer>,
    /// Whether it will do it whatever becomes of this server: see [`SendOutcome::There`].
    is_sure: bool,
    /// It leaves the group: it keeps a copy as long as it is there, which counts for nothing.
    leaves: bool,
}

/// What came of asking servers to keep a part of something.
#[derive(Default)]
struct Replies {
    /// Those that do.
    done: BTreeSet<ServerId>,
    refused: BTreeMap<ServerId, Error>,
    /// Those that leave the group, and were asked; and how many of them do.
    leavers: BTreeSet<ServerId>,
    leavers_done: usize,
}

/// A part of a step that others were asked to keep. They go on being asked until `finish_keep`.
#[must_use]
pub(crate) struct Keeping {
    part: Part,
    copies: u32,
    asked: Vec<Asked>,
}

impl Keeping {
    /// Whether the part outlives this server already.
    pub(crate) fn is_safe(&self) -> bool {
        self.asked.iter().all(|asked| asked.is_sure)
    }

    /// Whether as many were asked as are wanted.
    pub(crate) fn are_enough(&self) -> bool {
        self.asked.iter().filter(|asked| !asked.leaves).count() >= self.copies as usize
    }
}

/// The error where copies take too long.
pub(crate) fn copies_late() -> Error {
    Error::timeout(
        "another server did not make a copy of what was put in time: it stands still, or is too slow",
    )
}

impl Node {
    /// The servers that are to hold copies of a step: those that do, then those on other hosts, then those after this one.
    /// Of a server that leaves: those on its host first.
    fn guardians(
        &self,
        state: &Components,
        copies: u32,
        kept_by: &BTreeSet<ServerId>,
        without: &BTreeMap<ServerId, Error>,
    ) -> Vec<ServerId> {
        let mut able = self.able_guardians(state);
        able.retain(|id| !without.contains_key(id));
        // A stable sort: the best of each kind stay first.
        able.sort_by_key(|id| !kept_by.contains(id));
        able.truncate(copies as usize);
        able
    }

    /// Asks other servers to keep blocks of a step that this one holds, and what ranks told of it, or a block of the space.
    pub(crate) fn begin_keep(
        &self,
        state: &mut Components,
        id: ReplicaUnit,
        copies: u32,
        ranges: Vec<BlockRange>,
        ended: Vec<(u32, Arc<StepContribution>)>,
    ) -> Keeping {
        let part = Part { id, ranges, ended };
        let step = state.replicas.kept.entry(part.id.clone()).or_default();
        step.copies = step.copies.max(copies);
        step.ranges.extend(&part.ranges);
        step.told.extend(part.ended.iter().map(|(rank, _)| *rank));
        step.part_begun();
        let asked = self.ask_some_to_keep(state, &part, copies, &mut Replies::default());
        Keeping { part, copies, asked: asked.unwrap_or_default() }
    }

    /// Waits until they do; one that dies meanwhile is replaced. With fewer servers than are wanted, as many do as there are.
    /// The caller sets the deadline. Returns whether as many do as are wanted, or none is needed any more.
    pub(crate) async fn finish_keep(&self, keeping: Keeping) -> Result<bool> {
        let Keeping { part, copies, asked } = keeping;
        let (mut done, refused) = self.keep_at(&part, copies, asked).await;
        let (enough, differ) = {
            let mut state = self.state.lock();
            done.retain(|guardian| self.is_member(&state, *guardian));
            let Some(step) = state.replicas.kept.get_mut(&part.id) else { return Ok(true) };
            let keep_this = done.len();
            step.part_done(done);
            (keep_this >= copies as usize, step.asking == 0 && step.kept_by().len() < keep_this)
        };
        if differ {
            // The parts of it have copies, but not on the same servers.
            self.keep_these_again(vec![part.id]);
        }
        refused.map_or(Ok(enough), Err)
    }

    /// As `begin_keep` and `finish_keep`, for what is to be kept already, of all that is held here of it: by so many
    /// servers, whatever it is to have for good. `parts` is of how many parts this is all, unless something else of it is
    /// just being kept.
    pub(crate) async fn keep_all(
        &self,
        id: &ReplicaUnit,
        servers: u32,
        ranges: Vec<BlockRange>,
        ended: Vec<(u32, Arc<StepContribution>)>,
        parts: Option<u64>,
    ) -> Result<()> {
        {
            let mut state = self.state.lock();
            let Some(step) = state.replicas.kept.get_mut(id) else { return Ok(()) };
            step.ranges.extend(&ranges);
            step.told.extend(ended.iter().map(|(rank, _)| *rank));
        }
        let part = Part { id: id.clone(), ranges, ended };
        let (mut done, refused) = self.keep_at(&part, servers, Vec::new()).await;
        let mut state = self.state.lock();
        done.retain(|guardian| self.is_member(&state, *guardian));
        let step = state.replicas.kept.get_mut(id);
        // What has come since, these may not have.
        if let Some(step) = step.filter(|step| Some(step.parts) == parts && step.asking == 0) {
            step.done_by = Some(done);
        }
        refused.map_or(Ok(()), Err)
    }

    /// Has so many servers keep a part of something, or all of it: which of them do, and why not as many as there could be.
    /// Some may have been asked already.
    async fn keep_at(
        &self,
        part: &Part,
        servers: u32,
        mut asked: Vec<Asked>,
    ) -> (BTreeSet<ServerId>, Option<Error>) {
        let leavers = asked.iter().filter(|asked| asked.leaves).map(|asked| asked.guardian).collect();
        let mut replies = Replies { leavers, ..Replies::default() };
        let mut told_again = BTreeSet::new();
        loop {
            for Asked { guardian, answer, leaves, .. } in asked {
                match answer.await {
                    Ok(Answer::Done(Ok(()))) if leaves => replies.leavers_done += 1,
                    Ok(Answer::Done(Ok(()))) => {
                        replies.done.insert(guardian);
                    }
                    // It has forgotten the run: it is told of it, and asked, once more.
                    Ok(Answer::Done(Err(error)))
                        if error.kind == ErrorKind::Ended && told_again.insert(guardian) =>
                    {
                        self.state.lock().replicas.forgets_run(&part.id, guardian);
                        replies.leavers.remove(&guardian);
                    }
                    Ok(Answer::Done(Err(error))) => {
                        tracing::warn!("{guardian} keeps no copy of {}: {error}", part.id);
                        replies.refused.extend((!leaves).then_some((guardian, error)));
                    }
                    // It is gone.
                    _ => {}
                }
            }
            let state = &mut *self.state.lock();
            replies.done.retain(|guardian| self.is_member(state, *guardian));
            state.replicas.keep_surely(&replies.done, &part.ranges);
            match self.ask_some_to_keep(state, part, servers, &mut replies) {
                // It was freed meanwhile.
                None => return (replies.done, None),
                Some(none) if none.is_empty() => break,
                Some(others) => asked = others,
            }
        }
        let Replies { done, refused, .. } = replies;
        let lacks = done.len() < servers as usize;
        (done, refused.into_values().next().filter(|_| lacks))
    }

    /// Asks as many servers to keep something as are still wanted; nobody if it is not to be kept any more, or those that
    /// do are enough, or all.
    fn ask_some_to_keep(
        &self,
        state: &mut Components,
        part: &Part,
        servers: u32,
        replies: &mut Replies,
    ) -> Option<Vec<Asked>> {
        let Part { id, ranges, ended } = part;
        let Replies { done, refused, leavers, leavers_done } = replies;
        done.retain(|guardian| !state.common.members.leaves(*guardian));
        let step = state.replicas.kept.get(id)?;
        // Best those that have other parts of it.
        let (copies, kept_by) = (step.copies, step.done_by.clone().unwrap_or_default());
        let guardians = self.guardians(state, servers, &kept_by, refused);
        let lacking = (servers as usize).saturating_sub(guardians.len() + *leavers_done);
        let leaving = self.leavers(state).into_iter();
        let last_resort: Vec<ServerId> = leaving.filter(|id| !leavers.contains(id)).take(lacking).collect();
        leavers.extend(&last_resort);
        let rest: Vec<ServerId> = guardians.iter().copied().filter(|g| !done.contains(g)).collect();
        if rest.is_empty() && last_resort.is_empty() {
            return Some(Vec::new());
        }
        let records = id.step().map(|id| state.directory.records_in(id, ranges)).unwrap_or_default();
        let space = state.space.block_of(id);
        let step = state.replicas.kept.get_mut(id)?;
        step.leavers.retain(|leaver| !rest.contains(leaver));
        step.leavers.extend(last_resort.iter().filter(|leaver| !step.asked.contains(leaver)));
        let all: Vec<ServerId> = guardians.iter().chain(&last_resort).copied().collect();
        let of_told_run = id.step().is_some_and(|id| state.ranks.ledger().run(&id.stream, id.run).is_some());
        let ask = |(guardian, leaves): (ServerId, bool)| {
            let (id, ranges, ended) = (id.clone(), ranges.clone(), ended.clone());
            let (guardians, records, space) = (all.clone(), records.clone(), space.clone());
            let keep =
                Replica { unit: id, copies, backups: guardians, ranges, ended, records, space, of_told_run };
            Asked { leaves, ..self.ask_to_keep(state, guardian, keep) }
        };
        let rest = rest.into_iter().map(|guardian| (guardian, false));
        Some(rest.chain(last_resort.into_iter().map(|leaver| (leaver, true))).map(ask).collect())
    }

    /// Has other servers keep blocks that were put; waits for it, until a deadline, unless it is safe that they will.
    pub(crate) async fn keep_in_time(
        &self,
        id: ReplicaUnit,
        copies: u32,
        ranges: Vec<BlockRange>,
        patience: Duration,
    ) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let Some(node) = self.me.upgrade() else { return Ok(()) };
        let keeping = self.begin_keep(&mut self.state.lock(), id, copies, ranges, Vec::new());
        let is_safe = keeping.is_safe();
        // It goes on if it takes longer.
        let keeping = tokio::spawn(async move { node.finish_keep(keeping).await.map(drop) });
        if is_safe {
            return Ok(());
        }
        match tokio::time::timeout(patience, keeping).await {
            Ok(kept) => kept.unwrap_or_else(|e| Err(Error::internal(e.to_string()))),
            Err(_) => Err(copies_late()),
        }
    }

    fn ask_to_keep(&self, state: &mut Components, guardian: ServerId, keep: Replica) -> Asked {
        let token = self.unique();
        let answer = state.common.questions.ask(token, guardian, None);
        let sure = self.tell_to_keep(state, guardian, keep, token);
        if sure.is_none() {
            state.common.questions.take(token);
        }
        Asked { guardian, answer, is_sure: sure.unwrap_or(false), leaves: false }
    }

    /// Whether it is sure that the guardian will do it; `None` if it is gone.
    fn tell_to_keep(
        &self,
        state: &mut Components,
        guardian: ServerId,
        keep: Replica,
        token: u64,
    ) -> Option<bool> {
        let arenas: BTreeSet<u32> = keep.ranges.iter().map(|range| range.arena).collect();
        for arena in &arenas {
            if state.replicas.arenas.entry(*arena).or_default().insert(guardian) {
                let (file, bytes) = self.store.lock().guarded_descriptor(*arena).ok()?;
                self.peers.send_with(
                    guardian,
                    replication::Message::OfferArena { arena: *arena, bytes },
                    Some(file),
                );
            }
        }
        // Also of blocks of a step that no rank has ended yet: who looks after a run of which nobody tells lets them go.
        if let Some(id) = keep.unit.step() {
            self.tell_guardian_of_run(state, guardian, &id.stream, id.run);
        }
        if let Some(step) = state.replicas.kept.get_mut(&keep.unit) {
            step.asked.insert(guardian);
        }
        let did_before = state.replicas.sure.get(&guardian).is_some_and(|sure| arenas.is_subset(sure));
        let question = replication::Message::Replicate { token, replica: Box::new(keep) };
        let there = match self.send(state, guardian, question) {
            SendOutcome::There => true,
            SendOutcome::Waits => false,
            SendOutcome::Gone => return None,
        };
        Some(there && did_before)
    }

    /// Tells a guardian what it does not know yet of a run.
    fn tell_guardian_of_run(&self, state: &mut Components, guardian: ServerId, stream: &str, run: RunNumber) {
        let Some(ledger) = state.ranks.ledger().run(stream, run) else { return };
        let version = ledger.version();
        let known = state.replicas.runs.entry((stream.to_owned(), run)).or_default();
        let before = known.insert(guardian, version);
        if before == Some(version) {
            return;
        }
        let name = || stream.to_owned();
        let cuts = state.ranks.cuts_of(stream, run);
        let known = Box::new(ledger.report(run, cuts));
        let gone = ledger.ranks().filter_map(|(rank, told)| told.gone.map(|died| (rank, died)));
        let gone: Vec<replication::Message> = gone
            .filter(|_| before.is_none() || !seeded(Bug::TellsOnceWhoHasGone))
            .map(|(rank, died)| replication::Message::NoteRankGone { stream: name(), run, rank, died })
            .collect();
        let coordinator = self.coordinator_of(state, stream);
        self.tell(state, guardian, replication::Message::NoteRun { stream: name(), coordinator, known });
        for gone in gone {
            self.tell(state, guardian, gone);
        }
    }

    /// Tells a server of a run, if none knows all of it.
    pub(crate) fn tell_any_guardian_of_run(&self, state: &mut Components, stream: &str, run: RunNumber) {
        let able = self.able_guardians(state);
        let known = state.replicas.runs.get(&(stream.to_owned(), run));
        let knows = |id: &&ServerId| known.is_some_and(|known| known.contains_key(id));
        let guardian = able.iter().find(knows).or(able.first()).copied();
        if let Some(guardian) = guardian {
            self.tell_guardian_of_run(state, guardian, stream, run);
        }
    }
}
