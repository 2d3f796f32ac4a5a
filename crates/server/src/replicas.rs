//! What other servers hold of what this one holds, so that it outlives this server.
//!
//! A step that is to have copies has guardians: servers that hold its blocks, too, and what its ranks told. On one host a
//! guardian holds the arena's descriptor: the memory is the same, and stays when this server dies. On another one it
//! fetches the bytes to the same place of an arena of its own.

mod asking;

pub(crate) use asking::copies_late;

use crate::node::{Node, State};
use crate::streams::holdings::Held;
use forebay_cluster::environment::HashMap;
use forebay_core::ids::{Epoch, RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::StepEnded;
use forebay_wire::peer::replication::{self, BlockRange, ReplicaUnit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What other servers hold for this one.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    /// The guardians that know of each arena.
    arenas: HashMap<u32, BTreeSet<ServerId>>,
    /// The guardians that keep something, and the arenas in which they were seen to.
    sure: HashMap<ServerId, BTreeSet<u32>>,
    /// What they were told of each run: its ledger's version.
    runs: BTreeMap<(String, RunNumber), HashMap<ServerId, u64>>,
    kept: HashMap<ReplicaUnit, Replicated>,
    /// What this server holds in the place of a dead one together with others, of whom another one sees to copies.
    shared: HashMap<ReplicaUnit, Shared>,
    /// What is needed no more, but still held by others, by the number with which they were told.
    freed: HashMap<u64, Freed>,
}

/// Something that several servers hold in the place of a dead one. The one with the lowest number sees to copies.
#[derive(Debug, Default)]
struct Shared {
    copies: u32,
    ranges: BTreeSet<BlockRange>,
    /// The others.
    with: BTreeSet<ServerId>,
}

/// Memory that others may still take for that of a block.
#[derive(Debug)]
struct Freed {
    held: Vec<Held>,
    unseen_before: Epoch,
    held_by: BTreeSet<ServerId>,
    /// Who is told then, by which numbers.
    told: Vec<(ServerId, u64)>,
}

/// Something that is to have copies.
#[derive(Debug, Default)]
pub(crate) struct Replicated {
    /// How many.
    pub(crate) copies: u32,
    pub(crate) ranges: BTreeSet<BlockRange>,
    /// Servers that were asked to keep something of it.
    asked: BTreeSet<ServerId>,
    /// Of these, members that leave, and were asked since nobody else could: nobody waits for them before they go.
    leavers: BTreeSet<ServerId>,
    /// Servers that keep each part of it that is kept by now: what was put at once, or at a rank's end of it.
    done_by: Option<BTreeSet<ServerId>>,
    /// How many parts there were, and how many of them others are still asked to keep.
    parts: u64,
    asking: u64,
    /// Of which ranks others were told that they have ended it, or are being told.
    told: BTreeSet<u32>,
}

impl Replicated {
    /// Servers that keep all of it.
    fn kept_by(&self) -> BTreeSet<ServerId> {
        self.done_by.clone().filter(|_| self.asking == 0).unwrap_or_default()
    }

    /// Whether what is held here of it is all that there is, these ranks having told of it: what a rank ends in this moment is
    /// told here only when others keep it.
    fn is_all(&self, ended: &[(u32, Arc<StepEnded>)]) -> bool {
        let told = |rank: &u32| ended.iter().any(|(of, _)| of == rank);
        self.asking == 0 && self.told.iter().all(told)
    }

    fn lacks_copies(&self) -> bool {
        self.kept_by().len() < self.copies as usize
    }

    /// A part of it is to be kept.
    fn part_begun(&mut self) {
        self.parts += 1;
        self.asking += 1;
    }

    /// These servers keep a part of it.
    fn part_done(&mut self, by: BTreeSet<ServerId>) {
        self.asking = self.asking.saturating_sub(1);
        self.done_by = Some(self.done_by.take().map_or(by.clone(), |known| &known & &by));
    }
}

/// How long parts of a step may take to be kept before it is kept again as it is then.
const SETTLES: Duration = Duration::from_secs(5);
/// How long to wait before it is looked again whether they are.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Replicas {
    /// How many steps are to have copies that others hold, and how many of them have too few.
    pub(crate) fn status(&self) -> (usize, usize) {
        let wanted = self.kept.values().filter(|step| step.copies > 0);
        (wanted.clone().count(), wanted.filter(|step| step.lacks_copies()).count())
    }

    /// The servers that keep all of a step: so many blocks, and what so many ranks told.
    pub(crate) fn kept_by(&self, id: &ReplicaUnit, blocks: usize, told: usize) -> BTreeSet<ServerId> {
        let kept = self.kept.get(id).filter(|step| step.ranges.len() >= blocks && step.told.len() >= told);
        kept.map(Replicated::kept_by).unwrap_or_default()
    }

    /// How many servers are to keep something when this one has left.
    pub(crate) fn wanted_without(&self, id: &ReplicaUnit) -> usize {
        let copies = self.kept.get(id).map_or(0, |step| step.copies);
        copies.max(self.copies_with_others(id)) as usize + 1
    }

    /// A guardian knows nothing of the run of a step.
    fn forgets_run(&mut self, id: &ReplicaUnit, guardian: ServerId) {
        let known = id.step().and_then(|id| self.runs.get_mut(&(id.stream.clone(), id.run)));
        if let Some(known) = known {
            known.remove(&guardian);
        }
    }

    /// These servers keep what is in these ranges, and will keep what else is put in their arenas.
    fn keep_surely(&mut self, guardians: &BTreeSet<ServerId>, ranges: &[BlockRange]) {
        for guardian in guardians {
            self.sure.entry(*guardian).or_default().extend(ranges.iter().map(|range| range.arena));
        }
    }

    /// A step is to be kept elsewhere, since this server leaves: how many copies it is to have in any case, and of how many
    /// parts this is all that there is, unless something else of it is just being kept.
    pub(crate) fn hand_over(
        &mut self,
        id: &ReplicaUnit,
        ended: &[(u32, Arc<StepEnded>)],
    ) -> (u32, Option<u64>) {
        let copies = self.copies_with_others(id);
        let step = self.kept.entry(id.clone()).or_default();
        step.copies = step.copies.max(copies);
        let all = step.is_all(ended) || seeded(Bug::GivesAPartForAll);
        (step.copies, all.then_some(step.parts))
    }

    /// How many copies something is to have that other servers see to.
    fn copies_with_others(&self, id: &ReplicaUnit) -> u32 {
        self.shared.get(id).map_or(0, |shared| shared.copies)
    }

    /// This server stays after all: what was to be kept elsewhere for that alone, and by whom.
    pub(crate) fn take_back(&mut self) -> Vec<(ReplicaUnit, BTreeSet<ServerId>)> {
        let handed = self.kept.extract_if(|_, step| step.copies == 0);
        handed.map(|(id, step)| (id, step.asked)).collect()
    }

    /// Whether steps of which a server was to keep copies would have too few without it, of those that `able` others can
    /// keep.
    pub(crate) fn would_lack(&self, server: ServerId, able: usize) -> bool {
        let asked = |step: &&Replicated| step.asked.contains(&server) && !step.leavers.contains(&server);
        let asked = self.kept.values().filter(asked);
        let lacks = |step: &Replicated| {
            let left = step.kept_by().iter().filter(|id| **id != server).count();
            left < able.min(step.copies as usize)
        };
        asked.into_iter().any(lacks)
    }
}

impl Node {
    /// Something is needed no more, here or where it has copies. Its memory is free when those who hold it have heard so:
    /// one that had not, and answered for it after this server's death, would answer with what was put there since.
    pub(crate) fn keep_no_more(
        &self,
        state: &mut State,
        id: ReplicaUnit,
        held: Vec<Held>,
        unseen_before: Epoch,
        told: Vec<(ServerId, u64)>,
    ) {
        state.replicas.shared.remove(&id);
        let held_by = state.replicas.kept.remove(&id).map(|step| step.asked).unwrap_or_default();
        if held_by.is_empty() {
            return self.is_free(state, Freed { held, unseen_before, held_by, told });
        }
        let token = self.unique();
        for guardian in held_by.iter().filter(|_| !seeded(Bug::FreesOnlyItsOwn)) {
            self.tell(state, *guardian, replication::Message::Release { token, unit: id.clone() });
        }
        if !held.is_empty() {
            state.replicas.freed.insert(token, Freed { held, unseen_before, held_by, told });
        }
    }

    /// Nobody else holds it any more.
    fn is_free(&self, state: &mut State, freed: Freed) {
        self.free_unseen(freed.held, freed.unseen_before);
        for told in freed.told {
            self.space_tell_freed(state, told);
        }
    }

    /// A server holds something no more that this one has freed.
    pub(crate) fn kept_no_more(&self, state: &mut State, from: ServerId, token: u64) {
        let Some(freed) = state.replicas.freed.get_mut(&token) else { return };
        freed.held_by.remove(&from);
        if freed.held_by.is_empty()
            && let Some(freed) = state.replicas.freed.remove(&token)
        {
            self.is_free(state, freed);
        }
    }

    /// A rank with its home here is gone: so it is for those that know of its run.
    pub(crate) fn guarded_rank_gone(
        &self,
        state: &mut State,
        stream: &str,
        run: RunNumber,
        rank: u32,
        died: bool,
    ) {
        let told = state.replicas.runs.get(&(stream.to_owned(), run));
        let guardians: Vec<ServerId> = told.into_iter().flat_map(HashMap::keys).copied().collect();
        for guardian in guardians {
            let stream = stream.to_owned();
            self.tell(state, guardian, replication::Message::NoteRankGone { stream, run, rank, died });
        }
    }

    /// An arena is gone with all its blocks, or a run with all its steps.
    pub(crate) fn forget_replicas(&self, state: &mut State) {
        let gone: Vec<(u32, BTreeSet<ServerId>)> = {
            let store = self.store.lock();
            state.replicas.sure.values_mut().for_each(|sure| sure.retain(|arena| store.has_arena(*arena)));
            state.replicas.arenas.extract_if(|arena, _| !store.has_arena(*arena)).collect()
        };
        for (arena, guardians) in gone {
            for guardian in guardians {
                self.tell(state, guardian, replication::Message::WithdrawArena { arena });
            }
        }
        let State { replicas, ranks, .. } = state;
        replicas.runs.retain(|(stream, run), _| ranks.ledger().run(stream, *run).is_some());
    }

    /// The members are others: what has lost a copy, or had too few, gets another one, in the background.
    pub(crate) fn keep_again(&self, state: &mut State, left: &[ServerId]) {
        for guardians in state.replicas.arenas.values_mut() {
            guardians.retain(|guardian| !left.contains(guardian));
        }
        for told in state.replicas.runs.values_mut() {
            told.retain(|guardian, _| !left.contains(guardian));
        }
        state.replicas.sure.retain(|guardian, _| !left.contains(guardian));
        for step in state.replicas.kept.values_mut() {
            step.asked.retain(|guardian| !left.contains(guardian));
            step.leavers.retain(|leaver| !left.contains(leaver));
            step.done_by.iter_mut().for_each(|by| by.retain(|guardian| !left.contains(guardian)));
        }
        let nobody = |freed: &mut Freed| {
            freed.held_by.retain(|guardian| !left.contains(guardian));
            freed.held_by.is_empty()
        };
        let freed: Vec<Freed> =
            state.replicas.freed.extract_if(|_, freed| nobody(freed)).map(|(_, freed)| freed).collect();
        for freed in freed {
            self.is_free(state, freed);
        }
        // Of those that others saw to, it does to some now.
        let mine = state.replicas.shared.extract_if(|_, shared| {
            shared.with.retain(|server| !left.contains(server));
            shared.with.first().is_none_or(|first| self.id < *first)
        });
        for (id, shared) in mine.collect::<Vec<_>>() {
            self.replicate(state, id, shared);
        }
        let lacking = state.replicas.kept.iter().filter(|(_, step)| step.lacks_copies());
        self.keep_these_again(lacking.map(|(id, _)| id.clone()).collect());
    }

    /// A server leaves that may keep copies, or is gone: others are to keep them.
    pub(crate) fn keep_without(&self, state: &mut State, leaving: ServerId) {
        let mut lacking = Vec::new();
        for (id, step) in &mut state.replicas.kept {
            if step.done_by.as_mut().is_some_and(|by| by.remove(&leaving)) && step.lacks_copies() {
                lacking.push(id.clone());
            }
        }
        self.keep_these_again(lacking);
    }

    fn keep_these_again(&self, mut lacking: Vec<ReplicaUnit>) {
        if lacking.is_empty() || seeded(Bug::MakesNoCopiesAgain) {
            return;
        }
        lacking.sort_unstable();
        let Some(node) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            let steps = lacking.len();
            for id in lacking {
                node.keep_one_again(&id).await;
            }
            tracing::info!("copies of {steps} steps were made again");
        });
    }

    /// Until it has enough copies, and no part of it has come meanwhile that may not have them.
    async fn keep_one_again(&self, id: &ReplicaUnit) {
        let settled_by = Instant::now() + SETTLES;
        loop {
            let all = {
                let state = self.state.lock();
                let Some(step) = state.replicas.kept.get(id).filter(|step| step.lacks_copies()) else {
                    return;
                };
                let told = id.step().map(|id| state.ranks.ledger().told_of(id)).unwrap_or_default();
                let ranges: Vec<BlockRange> = step.ranges.iter().copied().collect();
                let settled = step.is_all(&told);
                let all = (step.copies, step.parts, ranges, told);
                (settled || Instant::now() >= settled_by).then_some(all)
            };
            let Some((copies, parts, ranges, told)) = all else {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            };
            if let Err(error) = self.keep_all(id, copies, ranges, told, Some(parts)).await {
                return tracing::warn!("{id} has too few copies: {error}");
            }
            let unchanged = |step: &Replicated| step.parts == parts || Instant::now() >= settled_by;
            if self.state.lock().replicas.kept.get(id).is_none_or(unchanged) {
                return;
            }
        }
    }

    /// This server holds something in the place of a dead one, with these others: one of them sees to copies.
    pub(crate) fn share(
        &self,
        state: &mut State,
        id: ReplicaUnit,
        copies: u32,
        ranges: BTreeSet<BlockRange>,
        with: BTreeSet<ServerId>,
    ) {
        let before = state.replicas.shared.remove(&id).unwrap_or_default();
        let shared = Shared { copies: copies.max(before.copies), ranges: &ranges | &before.ranges, with };
        if shared.with.first().is_none_or(|first| self.id < *first) {
            return self.replicate(state, id, shared);
        }
        state.replicas.shared.insert(id, shared);
    }

    /// This server sees to copies of something that it holds in the place of a dead one, as these do.
    fn replicate(&self, state: &mut State, id: ReplicaUnit, shared: Shared) {
        let Shared { copies, ranges, with: kept_by } = shared;
        // One that leaves holds it for the time being, as `asking` says.
        let stay = &kept_by - state.common.members.leaving();
        let step = state.replicas.kept.entry(id).or_default();
        step.copies = step.copies.max(copies);
        step.ranges.extend(ranges);
        step.asked.extend(&kept_by);
        // What this server held of it before, others keep.
        step.part_begun();
        step.part_done(stay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_keeps_every_part_keeps_it_all() {
        let by = |ids: &[u32]| ids.iter().map(|id| ServerId(*id)).collect::<BTreeSet<_>>();
        let mut step = Replicated { copies: 1, ..Replicated::default() };
        step.part_begun();
        step.part_begun();
        step.part_done(by(&[1, 2]));
        assert!(step.kept_by().is_empty() && step.lacks_copies(), "one part is still on its way");
        step.part_done(by(&[2, 3]));
        assert_eq!((step.kept_by(), step.lacks_copies()), (by(&[2]), false));
        step.part_begun();
        assert!(step.lacks_copies());
        step.part_done(by(&[3]));
        assert_eq!((step.kept_by(), step.lacks_copies()), (by(&[]), true));
    }
}
