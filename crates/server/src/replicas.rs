//! What other servers hold of what this one holds, so that it outlives this server.
//!
//! A step that is to have copies has guardians: servers that hold its blocks, too, and what its ranks told. On one host a
//! guardian holds the arena's descriptor: the memory is the same, and stays when this server dies. On another one it
//! fetches the bytes to the same place of an arena of its own.

use crate::handle::cuts_to_tell;
use crate::node::{Held, Node, Pending, State};
use crate::peers::Sent;
use forebay_core::block::Location;
use forebay_core::ids::{Epoch, RunNumber, ServerId, StepId};
use forebay_core::steps::{RunOptions, StepEnded};
use forebay_core::{Error, Result};
use forebay_wire::peer::{Keep, Kept, PeerMessage, Range};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
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
    kept: HashMap<Kept, Replicated>,
    /// What is needed no more, but still held by others, by the number with which they were told.
    freed: HashMap<u64, Freed>,
}

/// Memory that others may still take for that of a block.
#[derive(Debug)]
struct Freed {
    held: Vec<Held>,
    unseen_before: Epoch,
    held_by: BTreeSet<ServerId>,
}

/// Something that is to have copies.
#[derive(Debug, Default)]
pub(crate) struct Replicated {
    /// How many.
    pub(crate) copies: u32,
    pub(crate) ranges: BTreeSet<Range>,
    /// Servers that were asked to keep something of it.
    asked: BTreeSet<ServerId>,
    /// Servers that keep each part of it that is kept by now: what was put at once, or at a rank's end of it.
    done_by: Option<BTreeSet<ServerId>>,
    /// How many parts there were, and how many of them others are still asked to keep.
    parts: u64,
    asking: u64,
    /// Of how many ranks others were told that they have ended it, or are being told.
    told: usize,
}

impl Replicated {
    /// Servers that keep all of it.
    fn kept_by(&self) -> BTreeSet<ServerId> {
        self.done_by.clone().filter(|_| self.asking == 0).unwrap_or_default()
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

/// Something that is to be kept elsewhere: blocks that are here, and what ranks told.
struct Part {
    id: Kept,
    ranges: Vec<Range>,
    ended: Vec<(u32, Arc<StepEnded>)>,
}

/// A server that was asked to keep something.
struct Asked {
    guardian: ServerId,
    /// Where its answer will come. That ends without one if it dies.
    answer: oneshot::Receiver<PeerMessage>,
    /// Whether it will do it whatever becomes of this server: see [`Sent::There`].
    is_sure: bool,
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
}

/// The error where copies take too long.
pub(crate) fn copies_late() -> Error {
    Error::timeout(
        "another server did not make a copy of what was put in time: it stands still, or is too slow",
    )
}

impl Replicas {
    /// How many steps are to have copies that others hold, and how many of them have too few.
    pub(crate) fn status(&self) -> (usize, usize) {
        let wanted = self.kept.values().filter(|step| step.copies > 0);
        (wanted.clone().count(), wanted.filter(|step| step.lacks_copies()).count())
    }

    /// Whether another server keeps all of a step: so many blocks, and what so many ranks told.
    pub(crate) fn is_kept(&self, id: &Kept, blocks: usize, told: usize) -> bool {
        let kept = self.kept.get(id).filter(|step| !step.kept_by().is_empty());
        kept.is_some_and(|step| step.ranges.len() >= blocks && step.told >= told)
    }

    /// These servers keep what is in these ranges, and will keep what else is put in their arenas.
    fn keep_surely(&mut self, guardians: &BTreeSet<ServerId>, ranges: &[Range]) {
        for guardian in guardians {
            self.sure.entry(*guardian).or_default().extend(ranges.iter().map(|range| range.arena));
        }
    }

    /// A step is to be kept elsewhere, since this server leaves; how many copies it is to have in any case.
    pub(crate) fn hand_over(&mut self, id: &Kept) -> u32 {
        self.kept.entry(id.clone()).or_default().copies
    }

    /// This server stays after all: what was to be kept elsewhere for that alone, and by whom.
    pub(crate) fn take_back(&mut self) -> Vec<(Kept, BTreeSet<ServerId>)> {
        let handed = self.kept.extract_if(|_, step| step.copies == 0);
        handed.map(|(id, step)| (id, step.asked)).collect()
    }

    /// Whether steps of which a server was to keep copies would have too few without it, of those that `able` others can
    /// keep.
    pub(crate) fn would_lack(&self, server: ServerId, able: usize) -> bool {
        let asked = self.kept.values().filter(|step| step.asked.contains(&server));
        let lacks = |step: &Replicated| {
            let left = step.kept_by().iter().filter(|id| **id != server).count();
            left < able.min(step.copies as usize)
        };
        asked.into_iter().any(lacks)
    }
}

/// Where a block is on its server.
pub(crate) fn range_of(location: &Location) -> Range {
    let Location { arena, offset, generation, bytes, .. } = *location;
    Range { arena, offset, generation, bytes }
}

impl Node {
    /// Whether the group has enough servers for copies to be made.
    pub(crate) fn check_replicas(&self, options: &RunOptions) -> Result<()> {
        let servers = self.standing().view.members.len();
        if options.replicas as usize > servers {
            return Err(Error::invalid(format!(
                "replicas is {}, but the group has {servers} servers: add some with `forebay add`, or ask for fewer",
                options.replicas
            )));
        }
        Ok(())
    }

    /// The servers that are to hold copies of a step: those that do, then those on other hosts, then those after this one.
    /// Of a server that leaves: those on its host first.
    fn guardians(
        &self,
        state: &State,
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

    /// Asks other servers to keep blocks of a step that this one holds, and what ranks told of it.
    pub(crate) fn begin_keep(
        &self,
        state: &mut State,
        id: &StepId,
        copies: u32,
        ranges: Vec<Range>,
        ended: Vec<(u32, Arc<StepEnded>)>,
    ) -> Keeping {
        let part = Part { id: Kept::Step(id.clone()), ranges, ended };
        let step = state.replicas.kept.entry(part.id.clone()).or_default();
        step.copies = step.copies.max(copies);
        step.ranges.extend(&part.ranges);
        step.told += part.ended.len();
        step.part_begun();
        let asked = self.ask_some_to_keep(state, &part, copies, &mut BTreeSet::new(), &BTreeMap::new());
        Keeping { part, copies, asked: asked.unwrap_or_default() }
    }

    /// Waits until they do; one that dies meanwhile is replaced. With fewer servers than are wanted, as many do as there are.
    /// The caller sets the deadline.
    pub(crate) async fn finish_keep(&self, keeping: Keeping) -> Result<()> {
        let Keeping { part, copies, asked } = keeping;
        let (done, refused) = self.keep_at(&part, copies, asked).await;
        let differ = {
            let mut state = self.state.lock();
            let Some(step) = state.replicas.kept.get_mut(&part.id) else { return Ok(()) };
            let keep_this = done.len();
            step.part_done(done);
            step.asking == 0 && step.kept_by().len() < keep_this
        };
        if differ {
            // The parts of it have copies, but not on the same servers.
            self.keep_these_again(vec![part.id]);
        }
        refused.map_or(Ok(()), Err)
    }

    /// As `begin_keep` and `finish_keep`, for what is to be kept already, of all that is held here of it: by so many servers, whatever it is to have
    /// for good.
    pub(crate) async fn keep_all(
        &self,
        id: &Kept,
        servers: u32,
        ranges: Vec<Range>,
        ended: Vec<(u32, Arc<StepEnded>)>,
    ) -> Result<()> {
        let parts = {
            let mut state = self.state.lock();
            let Some(step) = state.replicas.kept.get_mut(id) else { return Ok(()) };
            step.ranges.extend(&ranges);
            step.told = step.told.max(ended.len());
            step.parts
        };
        let part = Part { id: id.clone(), ranges, ended };
        let (done, refused) = self.keep_at(&part, servers, Vec::new()).await;
        let mut state = self.state.lock();
        let step = state.replicas.kept.get_mut(id);
        // What has come since, these may not have.
        if let Some(step) = step.filter(|step| (step.parts, step.asking) == (parts, 0)) {
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
        let mut done = BTreeSet::new();
        let mut refused = BTreeMap::new();
        loop {
            for Asked { guardian, answer, .. } in asked {
                match answer.await {
                    Ok(PeerMessage::Answer { result: Ok(()), .. }) => {
                        done.insert(guardian);
                    }
                    Ok(PeerMessage::Answer { result: Err(error), .. }) => {
                        tracing::warn!("{guardian} keeps no copy of {}: {error}", part.id);
                        refused.insert(guardian, error);
                    }
                    // It is gone.
                    _ => {}
                }
            }
            let state = &mut *self.state.lock();
            state.replicas.keep_surely(&done, &part.ranges);
            match self.ask_some_to_keep(state, part, servers, &mut done, &refused) {
                // It was freed meanwhile.
                None => return (done, None),
                Some(none) if none.is_empty() => break,
                Some(others) => asked = others,
            }
        }
        let lacks = done.len() < servers as usize;
        (done, refused.into_values().next().filter(|_| lacks))
    }

    /// Asks as many servers to keep something as are still wanted; nobody if it is not to be kept any more, or those that
    /// do are enough, or all.
    fn ask_some_to_keep(
        &self,
        state: &mut State,
        part: &Part,
        servers: u32,
        done: &mut BTreeSet<ServerId>,
        refused: &BTreeMap<ServerId, Error>,
    ) -> Option<Vec<Asked>> {
        let Part { id, ranges, ended } = part;
        done.retain(|guardian| !state.leaving.others.contains(guardian));
        let step = state.replicas.kept.get(id)?;
        // Best those that have other parts of it.
        let (copies, kept_by) = (step.copies, step.done_by.clone().unwrap_or_default());
        let guardians = self.guardians(state, servers, &kept_by, refused);
        let rest: Vec<ServerId> = guardians.iter().copied().filter(|g| !done.contains(g)).collect();
        if rest.is_empty() {
            return Some(Vec::new());
        }
        let records = id.step().map(|id| state.directory.records_in(id, ranges)).unwrap_or_default();
        let space = state.space.block_of(id);
        let ask = |guardian: ServerId| {
            let (id, ranges, ended) = (id.clone(), ranges.clone(), ended.clone());
            let (guardians, records, space) = (guardians.clone(), records.clone(), space.clone());
            let keep = Keep { id, copies, guardians, ranges, ended, records, space };
            self.ask_to_keep(state, guardian, keep)
        };
        Some(rest.into_iter().map(ask).collect())
    }

    /// Has other servers keep blocks that a rank has put; waits for it, until a deadline, unless it is safe that they will.
    pub(crate) async fn keep_in_time(
        &self,
        id: &StepId,
        copies: u32,
        ranges: Vec<Range>,
        patience: Duration,
    ) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let Some(node) = self.me.upgrade() else { return Ok(()) };
        let keeping = self.begin_keep(&mut self.state.lock(), id, copies, ranges, Vec::new());
        let is_safe = keeping.is_safe();
        // It goes on if it takes longer.
        let keeping = tokio::spawn(async move { node.finish_keep(keeping).await });
        if is_safe {
            return Ok(());
        }
        match tokio::time::timeout(patience, keeping).await {
            Ok(kept) => kept.unwrap_or_else(|e| Err(Error::internal(e.to_string()))),
            Err(_) => Err(copies_late()),
        }
    }

    fn ask_to_keep(&self, state: &mut State, guardian: ServerId, keep: Keep) -> Asked {
        let (reply, answer) = oneshot::channel();
        let is_sure = self.tell_to_keep(state, guardian, keep, reply).unwrap_or(false);
        Asked { guardian, answer, is_sure }
    }

    /// Whether it is sure that the guardian will do it; `None` if it is gone.
    fn tell_to_keep(
        &self,
        state: &mut State,
        guardian: ServerId,
        keep: Keep,
        reply: oneshot::Sender<PeerMessage>,
    ) -> Option<bool> {
        let arenas: BTreeSet<u32> = keep.ranges.iter().map(|range| range.arena).collect();
        for arena in &arenas {
            if state.replicas.arenas.entry(*arena).or_default().insert(guardian) {
                let (file, bytes) = self.store.lock().guarded_descriptor(*arena).ok()?;
                self.peers.send_with(guardian, PeerMessage::Guard { arena: *arena, bytes }, Some(file));
            }
        }
        if let Some(id) = keep.id.step().filter(|_| !keep.ended.is_empty()) {
            self.tell_guardian_of_run(state, guardian, &id.stream, id.run);
        }
        if let Some(step) = state.replicas.kept.get_mut(&keep.id) {
            step.asked.insert(guardian);
        }
        let did_before = state.replicas.sure.get(&guardian).is_some_and(|sure| arenas.is_subset(sure));
        let token = self.unique();
        let question = PeerMessage::Keep { token, keep: Box::new(keep) };
        let there = match self.send(state, guardian, question) {
            Sent::There => true,
            Sent::Waits => false,
            Sent::Gone => return None,
        };
        state.pending.insert(token, Pending { server: guardian, stream: String::new(), rank: 0, reply });
        Some(there && did_before)
    }

    /// Tells a guardian what it does not know yet of a run.
    fn tell_guardian_of_run(&self, state: &mut State, guardian: ServerId, stream: &str, run: RunNumber) {
        let Some(ledger) = state.ledger.run(stream, run) else { return };
        let version = ledger.version();
        let known = state.replicas.runs.entry((stream.to_owned(), run)).or_default();
        let before = known.insert(guardian, version);
        if before == Some(version) {
            return;
        }
        let name = || stream.to_owned();
        let cuts = state.members.get(stream).and_then(|member| member.cut.cuts(run)).map(cuts_to_tell);
        let told = Box::new(ledger.inheritance(run, cuts));
        let gone = ledger.ranks().filter_map(|(rank, told)| told.gone.map(|died| (rank, died)));
        let gone: Vec<PeerMessage> = gone
            .filter(|_| before.is_none())
            .map(|(rank, died)| PeerMessage::GuardedRankGone { stream: name(), run, rank, died })
            .collect();
        let coordinator = self.coordinator_of(state, stream);
        self.tell(state, guardian, PeerMessage::GuardRun { stream: name(), coordinator, told });
        for gone in gone {
            self.tell(state, guardian, gone);
        }
    }

    /// Tells a server of a run, if none knows all of it.
    pub(crate) fn tell_any_guardian_of_run(&self, state: &mut State, stream: &str, run: RunNumber) {
        let able = self.able_guardians(state);
        let known = state.replicas.runs.get(&(stream.to_owned(), run));
        let knows = |id: &&ServerId| known.is_some_and(|known| known.contains_key(id));
        let guardian = able.iter().find(knows).or(able.first()).copied();
        if let Some(guardian) = guardian {
            self.tell_guardian_of_run(state, guardian, stream, run);
        }
    }

    /// Something is needed no more, here or where it has copies. Its memory is free when those who hold it have heard so:
    /// one that had not, and answered for it after this server's death, would answer with what was put there since.
    pub(crate) fn keep_no_more(&self, state: &mut State, id: Kept, held: Vec<Held>, unseen_before: Epoch) {
        let held_by = state.replicas.kept.remove(&id).map(|step| step.asked).unwrap_or_default();
        if held_by.is_empty() {
            return self.free_unseen(held, unseen_before);
        }
        let token = self.unique();
        for guardian in &held_by {
            self.tell(state, *guardian, PeerMessage::KeepNoMore { token, id: id.clone() });
        }
        if !held.is_empty() {
            state.replicas.freed.insert(token, Freed { held, unseen_before, held_by });
        }
    }

    /// A server holds something no more that this one has freed. `false`: that is not what its answer is about.
    pub(crate) fn kept_no_more(&self, state: &mut State, from: ServerId, token: u64) -> bool {
        let Some(freed) = state.replicas.freed.get_mut(&token) else { return false };
        freed.held_by.remove(&from);
        if freed.held_by.is_empty()
            && let Some(freed) = state.replicas.freed.remove(&token)
        {
            self.free_unseen(freed.held, freed.unseen_before);
        }
        true
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
            self.tell(state, guardian, PeerMessage::GuardedRankGone { stream, run, rank, died });
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
                self.tell(state, guardian, PeerMessage::GuardNoMore(arena));
            }
        }
        let State { replicas, ledger, .. } = state;
        replicas.runs.retain(|(stream, run), _| ledger.run(stream, *run).is_some());
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
            step.done_by.iter_mut().for_each(|by| by.retain(|guardian| !left.contains(guardian)));
        }
        let nobody = |freed: &mut Freed| {
            freed.held_by.retain(|guardian| !left.contains(guardian));
            freed.held_by.is_empty()
        };
        let freed: Vec<Freed> =
            state.replicas.freed.extract_if(|_, freed| nobody(freed)).map(|(_, freed)| freed).collect();
        for Freed { held, unseen_before, .. } in freed {
            self.free_unseen(held, unseen_before);
        }
        let lacking = state.replicas.kept.iter().filter(|(_, step)| step.lacks_copies());
        self.keep_these_again(lacking.map(|(id, _)| id.clone()).collect());
    }

    /// A server leaves that may keep copies: others are to keep them.
    pub(crate) fn keep_without(&self, state: &mut State, leaving: ServerId) {
        let mut lacking = Vec::new();
        for (id, step) in &mut state.replicas.kept {
            if step.done_by.as_mut().is_some_and(|by| by.remove(&leaving)) && step.lacks_copies() {
                lacking.push(id.clone());
            }
        }
        self.keep_these_again(lacking);
    }

    fn keep_these_again(&self, mut lacking: Vec<Kept>) {
        if lacking.is_empty() {
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
    async fn keep_one_again(&self, id: &Kept) {
        let settled_by = Instant::now() + SETTLES;
        loop {
            let all = {
                let state = self.state.lock();
                let Some(step) = state.replicas.kept.get(id).filter(|step| step.lacks_copies()) else {
                    return;
                };
                let told = id.step().map(|id| state.ledger.told_of(id)).unwrap_or_default();
                // What a rank ends in this moment is told only when it is kept.
                let settled = step.asking == 0 && told.len() >= step.told;
                let all = (step.copies, step.parts, step.ranges.iter().copied().collect(), told);
                (settled || Instant::now() >= settled_by).then_some(all)
            };
            let Some((copies, parts, ranges, told)) = all else {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            };
            if let Err(error) = self.keep_all(id, copies, ranges, told).await {
                return tracing::warn!("{id} has too few copies: {error}");
            }
            let unchanged = |step: &Replicated| step.parts == parts || Instant::now() >= settled_by;
            if self.state.lock().replicas.kept.get(id).is_none_or(unchanged) {
                return;
            }
        }
    }

    /// What this server holds in the place of a dead one, with those of its guardians that live.
    pub(crate) fn replicate(
        &self,
        state: &mut State,
        id: Kept,
        copies: u32,
        ranges: BTreeSet<Range>,
        kept_by: BTreeSet<ServerId>,
    ) {
        let step = state.replicas.kept.entry(id).or_default();
        step.copies = step.copies.max(copies);
        step.ranges.extend(ranges);
        step.asked.extend(&kept_by);
        // What this server held of it before, others keep.
        step.part_begun();
        step.part_done(kept_by);
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
