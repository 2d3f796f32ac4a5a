//! How a rank's home registers what the rank put with the owners of the tiles, and only then tells the stream's
//! coordinator that the rank has ended the step: who is told of the step finds all of its blocks.
//!
//! The rank does not wait for this. What a rank does is told in order: its next steps, and its end, after this
//! one. Blocks that cannot be registered, since an owner is gone or silent, travel with the step instead.

use crate::node::{Node, State};
use crate::replication::primary::{Part, Unneeded};
use crate::streams::local_ranks::RankKey;
use forebay_cluster::environment::HashMap;
use forebay_core::block::BlockRecord;
use forebay_core::ids::{BlockKey, Epoch, ServerId, StepId, StepNumber};
use forebay_core::steps::{EndedField, FieldReport, Registered, StepEnded};
use forebay_core::tiles::hash_in_stream;
use forebay_core::{Error, Result};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use forebay_wire::peer::{directory, streams};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long an owner may take to answer.
const OWNER_PATIENCE: Duration = Duration::from_secs(10);

/// What this server's ranks have done and the coordinators are to be told, once it is registered.
#[derive(Debug, Default)]
pub(super) struct Endings {
    by_rank: HashMap<RankKey, VecDeque<Item>>,
    /// Questions to owners, by token.
    asked: HashMap<u64, RankKey>,
}

/// Who waits until a step is as safe as it is to be.
pub(crate) type Done = oneshot::Sender<Result<()>>;

#[derive(Debug)]
enum Item {
    Step(Box<Ending>),
    /// A step of which other servers are to hold copies, before anybody is told of it.
    Keeping {
        step: StepNumber,
        ended: Arc<StepEnded>,
        done: Option<Done>,
    },
    /// Anything else that the coordinator is told of the rank.
    Tell(Box<streams::Message>),
    /// Somebody waits until all before it is told.
    Told(oneshot::Sender<()>),
}

/// A step that a rank has ended.
#[derive(Debug)]
struct Ending {
    id: StepId,
    ended: StepEnded,
    /// The owners of the tiles that each block touches.
    owners: HashMap<(String, BlockKey), Vec<ServerId>>,
    /// Who is still to answer, by token.
    waiting: BTreeMap<u64, ServerId>,
    since: Instant,
    /// Owners that do not know what they should.
    failed: BTreeSet<ServerId>,
    refused: BTreeSet<(String, BlockKey)>,
    /// Whether the other owners were told of what was refused.
    cleaned: bool,
    error: Option<Error>,
    /// How many copies are to be made, and who waits for that.
    copies: u32,
    done: Option<Done>,
}

impl Item {
    /// Whether copies are made of this step.
    fn keeps(&self, step: StepNumber) -> bool {
        matches!(self, Item::Keeping { step: of, .. } if *of == step)
    }
}

impl Endings {
    /// Whether all is told.
    pub(super) fn are_told(&self) -> bool {
        self.by_rank.is_empty()
    }
}

impl Node {
    /// A rank has ended a step: registers its placed blocks if its run is large (`register`), has other servers keep
    /// copies, then tells the coordinator.
    pub(crate) fn end_in_order(
        &self,
        state: &mut State,
        id: StepId,
        rank: u32,
        ended: StepEnded,
        register: bool,
        (copies, done): (u32, Option<Done>),
    ) {
        type Batches = BTreeMap<ServerId, (BTreeMap<String, FieldReport>, BTreeMap<String, FieldReport>)>;
        let mut batches: Batches = BTreeMap::new();
        let mut owners = HashMap::default();
        let placed = ended.fields.iter().filter(|f| register && f.field.shape.is_some());
        for EndedField { field, blocks, .. } in placed {
            let hash = hash_in_stream(&id, &field.name);
            let tiles = state.tiles.map(&self.standing().roster.seats, hash, field.shape.as_deref());
            let report = || FieldReport::new(field.clone(), Vec::new());
            // A refined level has an index space of its own, which is not cut into tiles: its blocks travel.
            for block in blocks.iter().filter(|block| block.level == 0) {
                let touched = tiles.owners_of(&block.extent.interior());
                for owner in &touched {
                    let batch = &mut batches.entry(*owner).or_default().0;
                    batch.entry(field.name.clone()).or_insert_with(report).blocks.push(block.clone());
                }
                let batch = &mut batches.entry(block.location.server).or_default().1;
                batch.entry(field.name.clone()).or_insert_with(report).blocks.push(block.clone());
                owners.insert((field.name.clone(), block.key), touched);
            }
        }
        let key = (id.stream.clone(), id.run, rank);
        let mut ending = Ending {
            id: id.clone(),
            ended,
            owners,
            waiting: BTreeMap::new(),
            since: Instant::now(),
            failed: BTreeSet::new(),
            refused: BTreeSet::new(),
            cleaned: false,
            error: None,
            copies,
            done,
        };
        for (server, (owned, held)) in batches {
            let (owned, held) = (owned.into_values().collect(), held.into_values().collect());
            let message = |token| directory::Message::Register { token, id: id.clone(), owned, held };
            self.ask_for_ending(state, &key, &mut ending, server, message);
        }
        let queue = state.directory.endings.by_rank.entry(key.clone()).or_default();
        queue.push_back(Item::Step(Box::new(ending)));
        self.tell_endings(state, &key);
    }

    fn ask_for_ending(
        &self,
        state: &mut State,
        key: &RankKey,
        ending: &mut Ending,
        server: ServerId,
        message: impl FnOnce(u64) -> directory::Message,
    ) {
        let token = self.unique();
        if self.tell(state, server, message(token)) {
            ending.waiting.insert(token, server);
            state.directory.endings.asked.insert(token, key.clone());
        } else {
            ending.failed.insert(server);
        }
    }

    /// Tells a stream's coordinator something of a rank, after all that it ended before.
    pub(crate) fn tell_of_rank(&self, state: &mut State, id: &RankKey, message: streams::Message) {
        match state.directory.endings.by_rank.get_mut(id) {
            Some(queue) => queue.push_back(Item::Tell(Box::new(message))),
            None => self.tell_coordinator(state, &id.0, message),
        }
    }

    /// Whether the coordinator has been told of all that a rank has done.
    pub(crate) fn is_told(&self, state: &State, rank: &RankKey) -> bool {
        !state.directory.endings.by_rank.contains_key(rank)
    }

    /// Tells when the coordinator has been told of all that a rank has done; `None` if it has been. The caller sets the
    /// deadline.
    pub(crate) fn until_told(&self, key: &RankKey) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state.lock();
        let queue = state.directory.endings.by_rank.get_mut(key)?;
        let (sender, told) = oneshot::channel();
        queue.push_back(Item::Told(sender));
        Some(told)
    }

    fn tell_coordinator(&self, state: &mut State, stream: &str, message: streams::Message) {
        if let streams::Message::RankGone { run, rank, died, .. } = &message {
            state.ranks.on_gone(stream, *run, *rank, *died);
            self.replicas_rank_gone(state, stream, (*run, *rank), *died);
        }
        if let streams::Message::RankMoves { run, rank, .. } = &message {
            state.ranks.on_moved(stream, *run, *rank);
        }
        let coordinator = self.coordinator_of(state, stream);
        self.tell(state, coordinator, message);
    }

    /// An owner has registered what was asked for, apart from what it refused; or let go of what others refused.
    pub(crate) fn step_registered(
        &self,
        state: &mut State,
        token: u64,
        refused: Vec<(String, BlockKey)>,
        error: Option<Error>,
    ) {
        let Some(key) = state.directory.endings.asked.remove(&token) else { return };
        let queue = state.directory.endings.by_rank.get_mut(&key);
        for item in queue.into_iter().flatten() {
            if let Item::Step(ending) = item
                && ending.waiting.remove(&token).is_some()
            {
                ending.refused.extend(refused);
                ending.error = ending.error.take().or(error);
                break;
            }
        }
        self.tell_endings(state, &key);
    }

    /// Nothing is awaited from these questions any more: their servers are gone, or silent for too long.
    fn give_endings_up(&self, state: &mut State, hopeless: impl Fn(ServerId, Instant) -> bool) {
        let mut touched = Vec::new();
        for (key, queue) in &mut state.directory.endings.by_rank {
            for item in queue {
                let Item::Step(ending) = item else { continue };
                let since = ending.since;
                let given_up: Vec<(u64, ServerId)> = ending
                    .waiting
                    .iter()
                    .filter(|(_, server)| hopeless(**server, since))
                    .map(|(token, server)| (*token, *server))
                    .collect();
                for (token, server) in given_up {
                    tracing::warn!("{server} does not register blocks of {}: they travel with it", ending.id);
                    ending.waiting.remove(&token);
                    ending.failed.insert(server);
                    state.directory.endings.asked.remove(&token);
                    touched.push(key.clone());
                }
            }
        }
        for key in touched {
            self.tell_endings(state, &key);
        }
    }

    /// A server died.
    pub(crate) fn endings_peer_gone(&self, state: &mut State, peer: ServerId) {
        self.give_endings_up(state, |server, _| server == peer);
    }

    /// Gives up owners that do not answer. Called from time to time.
    pub(crate) fn expire_endings(&self) {
        let mut state = self.state.lock();
        self.give_endings_up(&mut state, |_, since| since.elapsed() > OWNER_PATIENCE);
        self.drain(&mut state);
    }

    /// Tells the coordinator what is complete of what a rank did, in order.
    fn tell_endings(&self, state: &mut State, key: &RankKey) {
        let (stream, run, rank) = key.clone();
        loop {
            let Some(queue) = state.directory.endings.by_rank.get_mut(key) else { return };
            let item = match queue.front() {
                Some(Item::Step(ending)) if !ending.waiting.is_empty() => return,
                Some(_) => queue.pop_front(),
                None => None,
            };
            let stream = stream.clone();
            match item {
                None => {
                    state.directory.endings.by_rank.remove(key);
                    return;
                }
                Some(keeping @ Item::Keeping { .. }) => {
                    if let Some(queue) = state.directory.endings.by_rank.get_mut(key) {
                        queue.push_front(keeping);
                    }
                    return;
                }
                Some(Item::Told(told)) => drop(told.send(())),
                Some(Item::Tell(message)) => self.tell_coordinator(state, &stream, *message),
                Some(Item::Step(mut ending)) => {
                    if !ending.refused.is_empty() && !ending.cleaned {
                        ending.cleaned = true;
                        ending.since = Instant::now();
                        self.clean_up(state, key, &mut ending);
                        if let Some(queue) = state.directory.endings.by_rank.get_mut(key) {
                            queue.push_front(Item::Step(ending));
                        }
                        continue;
                    }
                    let step = ending.id.step;
                    if let Some(error) = ending.error.take() {
                        state.ranks.defer_error(key, error.during(format!("step {step}")));
                    }
                    if ending.copies == 0 {
                        self.tell_ended(state, (stream, run, rank), Arc::new(ending.finish()), false);
                        continue;
                    }
                    let (id, copies, done) = (ending.id.clone(), ending.copies, ending.done.take());
                    let ranges = ending.ranges_on(self.id);
                    let ended = Arc::new(ending.finish());
                    let part =
                        Part { unit: ReplicaUnit::Step(id), ranges, ended: vec![(rank, ended.clone())] };
                    let keeping = self.begin_replication(state, part, copies);
                    let (node, key, safe) = (self.me.clone(), key.clone(), keeping.is_safe());
                    if safe {
                        done.into_iter().for_each(|done| drop(done.send(Ok(()))));
                        self.tell_ended(state, key.clone(), ended, keeping.are_enough());
                    } else if let Some(queue) = state.directory.endings.by_rank.get_mut(&key) {
                        queue.push_front(Item::Keeping { step, ended, done });
                    }
                    tokio::spawn(async move {
                        let Some(node) = node.upgrade() else { return };
                        let kept = node.finish_replication(keeping).await;
                        if safe {
                            return;
                        }
                        let enough = *kept.as_ref().unwrap_or(&false);
                        node.answer_rank(&key, step, kept.map(drop));
                        // It goes on while the others are told.
                        tokio::task::yield_now().await;
                        node.step_kept(&key, step, enough);
                    });
                    if safe {
                        continue;
                    }
                    return;
                }
            }
        }
    }

    /// Other servers hold copies of a step that a rank has ended, or cannot: the rank hears so, now or with its next answer.
    fn answer_rank(&self, key: &RankKey, step: StepNumber, kept: Result<()>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let front = state.directory.endings.by_rank.get_mut(key).and_then(VecDeque::front_mut);
        let Some(Item::Keeping { done, .. }) = front.filter(|item| item.keeps(step)) else { return };
        match (done.take(), kept) {
            (Some(done), kept) => drop(done.send(kept)),
            (None, Err(error)) => state.ranks.defer_error(key, error),
            (None, Ok(())) => {}
        }
    }

    /// Nothing more is waited for before others are told that a rank has ended a step; it has as many copies as it is to have,
    /// or not.
    fn step_kept(&self, key: &RankKey, step: StepNumber, copied: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(queue) = state.directory.endings.by_rank.get_mut(key) else { return };
        if !queue.front().is_some_and(|item| item.keeps(step)) {
            return;
        }
        let Some(Item::Keeping { ended, .. }) = queue.pop_front() else { return };
        self.tell_ended(state, key.clone(), ended, copied);
        self.tell_endings(state, key);
        self.drain(state);
    }

    /// Tells those that know blocks which others refused to forget them.
    fn clean_up(&self, state: &mut State, key: &RankKey, ending: &mut Ending) {
        let mut by_server: BTreeMap<ServerId, Vec<(String, BlockKey)>> = BTreeMap::new();
        for refused in &ending.refused {
            let field = ending.ended.fields.iter().find(|ended| ended.field.name == refused.0);
            let block = field.and_then(|field| field.blocks.iter().find(|block| block.key == refused.1));
            let owners = ending.owners.get(refused).into_iter().flatten().copied();
            let servers: BTreeSet<ServerId> =
                owners.chain(block.map(|block| block.location.server)).collect();
            for server in servers {
                by_server.entry(server).or_default().push(refused.clone());
            }
        }
        for (server, blocks) in by_server {
            let id = ending.id.clone();
            let message = |token| directory::Message::Unregister { token, id, blocks };
            self.ask_for_ending(state, key, ending, server, message);
        }
    }

    /// Nobody will ever read a step.
    pub(crate) fn forget_step(&self, state: &mut State, id: &StepId) {
        self.free_step(state, id, 0);
    }

    /// Nobody needs a step any more. Readers may still look at it who were told of it in a term before `unseen_before`: its
    /// memory is used again when all have gone that could.
    pub(crate) fn free_step(&self, state: &mut State, id: &StepId, unseen_before: Epoch) {
        state.ranks.on_freed(id);
        state.directory.forget(id);
        let held = state.holdings.remove(id);
        let unneeded = Unneeded { held, unseen_before, asked_to_free: Vec::new() };
        self.release(state, ReplicaUnit::Step(id.clone()), unneeded);
    }
}

impl Ending {
    /// Where blocks are that this server holds.
    fn ranges_on(&self, server: ServerId) -> Vec<BlockRange> {
        let blocks = self.ended.fields.iter().flat_map(|field| &field.blocks);
        let here = blocks.filter(|block| block.location.server == server && block.inline.is_none());
        here.map(|block| BlockRange::from(&block.location)).collect()
    }

    /// What the coordinator is told: how many blocks are registered, and the records of all others.
    fn finish(mut self) -> StepEnded {
        let mut servers: BTreeSet<ServerId> = BTreeSet::new();
        for EndedField { field, blocks, registered } in &mut self.ended.fields {
            let mut told: Vec<BlockRecord> = Vec::new();
            for block in std::mem::take(blocks) {
                servers.insert(block.location.server);
                let key = (field.name.clone(), block.key);
                let Some(owners) = self.owners.get(&key) else {
                    told.push(block);
                    continue;
                };
                servers.extend(owners);
                if self.refused.contains(&key) {
                    continue;
                }
                if owners.iter().any(|owner| self.failed.contains(owner)) {
                    told.push(block);
                } else {
                    *registered = Registered {
                        blocks: registered.blocks + 1,
                        bytes: registered.bytes + block.location.bytes,
                    };
                }
            }
            *blocks = told;
        }
        self.ended.servers = servers.into_iter().collect();
        self.ended
    }
}
