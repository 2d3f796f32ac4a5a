//! A server leaves its group: first it gives its ranks, its workers and all that it holds to the others.
//!
//! The others are told, and give it nothing more to hold. Its ranks go on at other homes, each between two of its steps; its
//! workers run nothing more; each step is held elsewhere. Then the group agrees on a roster without it, and the others
//! answer for what it held, as if it had died.

use crate::members::Phase;
use crate::node::{Components, Held, Node};
use crate::questions::Answer;
use forebay_cluster::membership::entry;
use forebay_core::ids::{Epoch, ServerId, StepId};
use forebay_core::roster::Change;
use forebay_core::steps::StepContribution;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::peer::cluster;
use forebay_wire::peer::replication::{self, BlockRange, ReplicaUnit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long to wait before it is looked again what is still to be done.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long to wait, at most, before steps are offered again that found no room.
const ROOM_AGAIN: Duration = Duration::from_millis(500);
/// How long the others may take to answer before they are asked again.
const ANSWER: Duration = Duration::from_secs(1);
/// How many steps are given to others at once.
const AT_ONCE: usize = 32;

/// What is given up since no other server takes it, and how many blocks and tellings of ranks that was: what comes to it later
/// is offered again.
type GivenUp = BTreeMap<ReplicaUnit, (usize, usize)>;

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
        drop(state);
        tracing::info!("{} leaves the group: it gives the others what it has", self.id);
        Ok(())
    }

    /// Whether no other server is left; an error if something would end with this one that is not to be given up.
    fn is_last_one(&self, state: &Components, discard: bool) -> Result<bool> {
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
    fn is_after_all_others(&self, state: &Components) -> bool {
        self.others(state).iter().all(|id| state.common.members.leaves(*id))
    }

    /// Members that are there.
    fn others(&self, state: &Components) -> Vec<ServerId> {
        let standing = self.standing();
        let members = standing.view.members.iter().copied();
        members.filter(|id| *id != self.id && !state.common.members.is_gone(*id)).collect()
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
        for (id, guardians) in state.replicas.take_back() {
            for guardian in guardians {
                // What is used again before it hears of it, it is told of after this.
                self.tell(&mut state, guardian, replication::Message::Release { token: 0, unit: id.clone() });
            }
        }
        self.pipelines_stay(&mut state, self.id);
        self.drain(&mut state);
    }

    /// Gives away all that this server has.
    async fn drain_all(&self, discard: bool, deadline: Instant) -> Result<Drained> {
        let mut pause = LOOK_AGAIN;
        let mut given_up = GivenUp::new();
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
                refused = self.hand_over_all(discard, &mut given_up).await;
            }
            let epoch = self.epoch();
            let awaited = self.awaits(&mut self.state.lock(), &given_up);
            let lacking = match awaited {
                None if self.may_go().await && self.go(epoch, &given_up) => {
                    return Ok(Drained::Elsewhere(epoch));
                }
                None => "the others to hold copies of what they held with it".to_owned(),
                Some(what) => what,
            };
            if Instant::now() >= deadline {
                let text = format!("{} cannot leave in time, and stays. It waited for {lacking}", self.id);
                return Err(match refused {
                    Some(Error { kind, text: why, .. }) => Error::new(kind, format!("{text}: {why}")),
                    None => Error::timeout(text),
                });
            }
            // What finds no room now may do so later.
            pause = if refused.is_some() { (2 * pause).min(ROOM_AGAIN) } else { LOOK_AGAIN };
            sleep(pause).await;
        }
    }

    /// Tells the members that this server leaves, as far as they do not know.
    async fn announce(&self) {
        let untold: Vec<ServerId> = {
            let state = self.state.lock();
            let others = self.others(&state).into_iter();
            others.filter(|id| !state.common.members.is_informed(*id)).collect()
        };
        for (server, agreed) in self.ask_others(untold, false).await {
            if agreed {
                self.state.lock().common.members.note_informed(server);
            }
        }
    }

    /// Whether no other member needs anything of this one.
    async fn may_go(&self) -> bool {
        let others = {
            let mut state = self.state.lock();
            self.pipelines_pause(&mut state);
            self.others(&state)
        };
        self.ask_others(others, true).await.into_iter().all(|(_, may_go)| may_go)
    }

    /// Asks members about this one's leaving; what each answers. Those that are gone are left out.
    async fn ask_others(&self, servers: Vec<ServerId>, may_go: bool) -> Vec<(ServerId, bool)> {
        let asked: Vec<_> = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let ask = |server: ServerId| {
                let question = |token| cluster::Message::Leaving { token, may_go };
                self.question(state, server, question).map(|(_, answer)| (server, answer))
            };
            servers.into_iter().filter_map(ask).collect()
        };
        let mut answers = Vec::new();
        for (server, answer) in asked {
            match timeout(ANSWER, answer).await {
                Ok(Ok(answer)) => {
                    answers.push((server, matches!(answer, Answer::Done(Ok(())))));
                }
                // It is gone.
                Ok(Err(_)) => {}
                Err(_) => answers.push((server, false)),
            }
        }
        answers
    }

    /// Has others hold all that nobody else holds; why some could not, if so. With `discard`, what none takes is given up.
    async fn hand_over_all(&self, discard: bool, given_up: &mut GivenUp) -> Option<Error> {
        let (all, able) = {
            let state = self.state.lock();
            let all = self.only_here(&state, given_up).into_iter();
            let all: Vec<(ReplicaUnit, (usize, usize))> =
                all.map(|id| (id.clone(), amount_of(&state, &id))).collect();
            (all, self.able_guardians(&state).len())
        };
        self.tell_of_runs();
        let mut refused = None;
        for some in all.chunks(AT_ONCE) {
            let mut tasks = JoinSet::new();
            for (id, amount) in some {
                let Some(node) = self.me.upgrade() else { continue };
                let (id, amount) = (id.clone(), *amount);
                tasks.spawn(async move { ((id.clone(), amount), node.hand_over(id).await) });
            }
            while let Some(done) = tasks.join_next().await {
                match done {
                    Ok(((id, amount), done)) if discard && (done.is_err() || able == 0) => {
                        given_up.insert(id, amount);
                    }
                    Ok((_, Err(error))) => drop(refused.get_or_insert(error)),
                    _ => {}
                }
            }
        }
        refused
    }

    /// What is here that no other server would answer for, in order, but for what is given up.
    fn only_here(&self, state: &Components, given_up: &GivenUp) -> Vec<ReplicaUnit> {
        let steps: BTreeSet<StepId> =
            state.holdings.steps().cloned().chain(state.ranks.ledger().all_steps()).collect();
        let all = steps.into_iter().map(ReplicaUnit::Step).chain(state.space.held_units());
        let able = self.able_guardians(state).len();
        let is_given_up =
            |id: &ReplicaUnit| given_up.get(id).is_some_and(|amount| *amount == amount_of(state, id));
        all.filter(|id| !is_given_up(id) && !is_elsewhere(state, id, able)).collect()
    }

    /// Has another server hold all that this one holds of something.
    async fn hand_over(self: Arc<Node>, id: ReplicaUnit) -> Result<()> {
        let (copies, ranges, told, parts) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let (held, told) = held_of(state, &id);
            if held.is_empty() && told.is_empty() {
                return Ok(());
            }
            let store = self.store.lock();
            let ranges: Vec<BlockRange> = held
                .into_iter()
                .filter_map(|held| {
                    let bytes = store.length_of(held.arena, held.offset, held.generation)?;
                    let (arena, offset, generation) = (held.arena, held.offset, held.generation);
                    Some(BlockRange { arena, offset, generation, bytes })
                })
                .collect();
            let (copies, parts) = state.replicas.hand_over(&id, &told);
            (copies, ranges, told, parts)
        };
        // Those that it is to have, and one in the place of what is here.
        self.keep_all(&id, copies + 1, ranges, told, parts).await
    }

    /// Tells another server what this one knows of runs, also where no step of them is held.
    fn tell_of_runs(&self) {
        let mut state = self.state.lock();
        let runs: Vec<_> = state.ranks.ledger().all_runs().cloned().collect();
        for (stream, run) in runs {
            self.tell_any_guardian_of_run(&mut state, &stream, run);
        }
    }

    /// What this server has to wait for before it goes. When all else is done, pipelines that it coordinates begin nothing
    /// more.
    fn awaits(&self, state: &mut Components, given_up: &GivenUp) -> Option<String> {
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
        if state.directory.has_endings() {
            return Some("copies of steps".to_owned());
        }
        if let Some(pipeline) = state.pipelines.workers().pipelines().next() {
            return Some(format!("the worker of pipeline '{pipeline}' to end its execution"));
        }
        let lacking = self.only_here(state, given_up);
        if let Some(id) = lacking.first() {
            let more = lacking.len() - 1;
            return Some(format!("another server to hold {id}, and {more} steps more"));
        }
        state.common.members.pause();
        let running = state.pipelines.running();
        running.map(|pipeline| format!("pipeline '{pipeline}' to end its execution"))
    }

    /// If nothing has come meanwhile, and the members are those of this epoch still, this server takes nothing more.
    fn go(&self, epoch: Epoch, given_up: &GivenUp) -> bool {
        let mut state = self.state.lock();
        let stands = self.epoch() == epoch && !state.common.members.was_given_up();
        let goes = stands && self.awaits(&mut state, given_up).is_none();
        if goes {
            state.common.members.set_phase(Phase::Goes);
        }
        goes
    }

    /// Another server says that it leaves, or asks if it may go.
    pub(crate) fn leaves(&self, state: &mut Components, from: ServerId, token: u64, may_go: bool) {
        let result = match may_go {
            false => self.let_leave(state, from),
            true if self.needs(state, from) => Err(Error::conflict("copies are still to be made")),
            true => Ok(()),
        };
        self.tell(state, from, cluster::Message::LeavingAnswer { token, result });
    }

    /// Another server leaves: it is given nothing more, and what it holds of this one's, others are to hold. Not if this
    /// one is as good as gone; and of the last two that both leave, the one with the lower number does.
    fn let_leave(&self, state: &mut Components, from: ServerId) -> Result<()> {
        let stays = |id: &ServerId| *id != from && !state.common.members.leaves(*id);
        let alone = !self.others(state).iter().any(stays);
        if state.common.members.goes() || (state.common.members.this_one_leaves() && alone && self.id < from)
        {
            return Err(Error::conflict(format!("{} leaves the group itself", self.id)));
        }
        state.common.members.note_leaving(from);
        self.keep_without(state, from);
        Ok(())
    }

    /// Whether copies of what this server holds are to be made before another one goes, which has some.
    fn needs(&self, state: &Components, leaving: ServerId) -> bool {
        let able = self.others(state);
        let able = able.iter().filter(|id| !state.common.members.leaves(**id)).count();
        state.replicas.would_lack(leaving, able)
    }

    /// Another server stays after all.
    pub(crate) fn stays(&self, state: &mut Components, from: ServerId) {
        if state.common.members.note_staying(from) {
            self.pipelines_stay(state, from);
            self.keep_again(state, &[]);
        }
    }

    /// Members that leave, for what nobody else can hold: it has copies there as long as they are there, and if they stay after
    /// all. None if this server leaves, too.
    pub(crate) fn leavers(&self, state: &Components) -> Vec<ServerId> {
        let others = state.common.members.leaving().iter().copied();
        others
            .filter(|id| !state.common.members.this_one_leaves() && !state.common.members.is_gone(*id))
            .collect()
    }

    /// Those that can hold something for this server: the first are best. One that leaves prefers servers that share its
    /// memory, so that nothing is copied.
    pub(crate) fn able_guardians(&self, state: &Components) -> Vec<ServerId> {
        let standing = self.standing();
        let mut able: Vec<(bool, bool, ServerId)> = standing
            .roster
            .members
            .iter()
            .filter(|member| member.id != self.id)
            .filter(|member| {
                !state.common.members.is_gone(member.id) && !state.common.members.leaves(member.id)
            })
            .map(|member| {
                (
                    self.environment.is_here(&entry(member)) != state.common.members.this_one_leaves(),
                    member.id < self.id,
                    member.id,
                )
            })
            .collect();
        able.sort_unstable();
        able.into_iter().map(|(.., id)| id).collect()
    }
}

/// Whether as many others hold something as are to have it when this server is gone, if so many are able to.
fn is_elsewhere(state: &Components, id: &ReplicaUnit, able: usize) -> bool {
    let (held, told) = held_of(state, id);
    let wanted = state.replicas.wanted_without(id).min(able).max(1);
    let living = |server: &ServerId| !state.common.members.is_gone(*server);
    state.replicas.kept_by(id, held.len(), told.len()).into_iter().filter(living).count() >= wanted
}

/// The ranges that this server holds of something, and what ranks told of it.
fn held_of(state: &Components, id: &ReplicaUnit) -> (Vec<Held>, Vec<(u32, Arc<StepContribution>)>) {
    match id {
        ReplicaUnit::Step(id) => (state.holdings.of(id).to_vec(), state.ranks.ledger().contributions_to(id)),
        ReplicaUnit::Space(key) => (state.space.range_of(*key).into_iter().collect(), Vec::new()),
    }
}

/// How many ranges this server holds of something, and what how many ranks told of it.
fn amount_of(state: &Components, id: &ReplicaUnit) -> (usize, usize) {
    let (held, told) = held_of(state, id);
    (held.len(), told.len())
}

/// The error for what a server that leaves is asked to take.
pub(crate) fn leaves(server: ServerId) -> Error {
    Error::new(ErrorKind::Unreachable, format!("{server} leaves the group"))
}
