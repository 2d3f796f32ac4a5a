//! What this server holds for others, so that it outlives them: see [`crate::replicas`].

use crate::answers::ArenaKey;
use crate::node::known_of_runs;
use crate::node::{Node, State};
use crate::streams::holdings::Held;
use forebay_cluster::environment::HashMap;
use forebay_cluster::peers::dialling::dial;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::{FieldReport, Inheritance, Ledger};
use forebay_core::view::View;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::{Outbox, Receiver};
use forebay_transport::host;
use forebay_wire::client::reading::{Fetch, Part, Reply, Request};
use forebay_wire::connection::{Hello, Role, Welcome};
use forebay_wire::frame::Header;
use forebay_wire::peer::replication::{self, BlockRange, Replica, ReplicaUnit, SpaceBlock};
use forebay_wire::peer::streams;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Orders of one server that may wait until bytes before them are fetched.
const ORDERS: usize = 4096;
/// Arenas of one server: it has one for each of its clients.
const ARENAS_MAX: usize = 1 << 16;
/// How long it may take to be greeted by a server whose bytes are to be fetched.
const GREETING: Duration = Duration::from_secs(10);

/// How long bytes may take that are fetched, and so many more seconds for each of this many.
const FETCHED: Duration = Duration::from_secs(30);
const FETCHED_A_SECOND: u64 = 10 << 20;

/// What is held for one other server.
#[derive(Debug, Default)]
pub(crate) struct Guarded {
    /// What it told of its ranks.
    ledger: Ledger,
    /// Its arenas, by their number there.
    arenas: HashMap<u32, Guard>,
    kept: HashMap<ReplicaUnit, GuardedStep>,
    /// Where orders wait for bytes that are fetched.
    orders: Option<mpsc::Sender<Order>>,
}

#[derive(Debug, Clone, Copy)]
struct Guard {
    /// Its number here.
    arena: u32,
    /// Whether it is the very memory of the other server.
    same: bool,
}

#[derive(Debug, Default)]
struct GuardedStep {
    copies: u32,
    guardians: Vec<ServerId>,
    /// Where its blocks are, here.
    ranges: BTreeSet<BlockRange>,
    /// Where this server held others of them already when it took them over.
    here_before: BTreeSet<BlockRange>,
    /// Those of them whose bytes are still to come.
    coming: BTreeSet<BlockRange>,
    /// Their records, where only owners of tiles know them.
    records: BTreeMap<String, (Field, BTreeMap<BlockKey, BlockRecord>)>,
    /// What its owners know, if it is a block of the space.
    space: Option<SpaceBlock>,
}

/// What another server wants done, in order.
#[derive(Debug)]
enum Order {
    Replica(u64, Box<Replica>),
    KeepNoMore(ReplicaUnit),
}

impl Guarded {
    /// Of how many steps something is held.
    pub(crate) fn steps(&self) -> usize {
        self.kept.len()
    }

    /// The streams of which something is held.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &String> {
        let steps = self.kept.keys().filter_map(ReplicaUnit::step);
        steps.map(|id| &id.stream).chain(self.ledger.streams())
    }

    /// All ranks of a run have come and gone.
    pub(crate) fn run_over(&mut self, stream: &str, run: RunNumber) {
        self.ledger.over(stream, run);
    }

    /// A rank with its home at the other server is gone.
    pub(crate) fn rank_gone(&mut self, stream: &str, run: RunNumber, rank: u32, died: bool) {
        self.ledger.gone(stream, run, rank, died);
    }
}

impl Node {
    /// Another server has an arena of which blocks are to be kept.
    pub(crate) fn guard(&self, from: ServerId, arena: u32, bytes: u64, file: Option<OwnedFd>) {
        let same = file.is_some();
        let mut state = self.state.lock();
        if self.standing().roster.has_left(from) {
            return;
        }
        let guarded = state.guarded.entry(from).or_default();
        if guarded.arenas.contains_key(&arena) || guarded.arenas.len() >= ARENAS_MAX {
            return tracing::warn!("arena {arena} of {from} is one too many");
        }
        match self.store.lock().guard(file, bytes) {
            Ok(mine) => drop(guarded.arenas.insert(arena, Guard { arena: mine, same })),
            Err(error) => tracing::warn!("arena {arena} of {from} is not kept: {error}"),
        }
    }

    /// An arena of the server that this one was before its group gave it up, which stood for these of dead ones.
    pub(crate) fn guard_former(
        &self,
        state: &mut State,
        (former, arena): ArenaKey,
        (file, size): (OwnedFd, u64),
        stands_for: Vec<ArenaKey>,
    ) {
        match self.store.lock().guard(Some(file), size) {
            Ok(mine) => {
                let guarded = state.guarded.entry(former).or_default();
                guarded.arenas.insert(arena, Guard { arena: mine, same: true });
                for key in stands_for {
                    state.answers.add(key, self.id, mine);
                }
            }
            Err(error) => tracing::warn!("arena {arena} of {former} is not kept: {error}"),
        }
    }

    /// What that server held in its arenas.
    pub(crate) fn keep_former(&self, state: &mut State, former: ServerId, keep: Replica) {
        match self.keep_ranges(state, former, &keep) {
            Ok(_) => kept_told(state, former, keep),
            Err(error) => tracing::warn!("something that {former} held is not kept: {error}"),
        }
    }

    /// An arena of another server is gone, with all its blocks.
    pub(crate) fn guard_no_more(&self, state: &mut State, from: ServerId, arena: u32) {
        let guard = state.guarded.get_mut(&from).and_then(|guarded| guarded.arenas.remove(&arena));
        if let Some(guard) = guard {
            self.store.lock().unguard(guard.arena);
        }
    }

    /// A server that is no member has gone: what it wanted to have kept is not needed.
    pub(crate) fn unguard(&self, from: ServerId) {
        let guarded = self.state.lock().guarded.remove(&from);
        let mut store = self.store.lock();
        for guard in guarded.into_iter().flat_map(|guarded| guarded.arenas.into_values()) {
            store.unguard(guard.arena);
        }
    }

    /// Another server asks to keep something of a step.
    pub(crate) fn keep_for(&self, state: &mut State, from: ServerId, token: u64, keep: Box<Replica>) {
        if self.standing().roster.has_left(from) {
            return;
        }
        let guarded = state.guarded.entry(from).or_default();
        let fetched = |range: &BlockRange| guarded.arenas.get(&range.arena).is_some_and(|guard| !guard.same);
        if guarded.orders.is_none() && keep.ranges.iter().any(fetched) {
            let (sender, orders) = mpsc::channel(ORDERS);
            guarded.orders = Some(sender);
            tokio::spawn(fetch_all(self.me.clone(), from, orders));
        }
        let refused = match &guarded.orders {
            Some(orders) => orders
                .try_send(Order::Replica(token, keep))
                .err()
                .map(|_| Error::new(ErrorKind::Full, "it is too far behind with fetching copies")),
            None => {
                let kept = match seeded(Bug::KeepsNothing) {
                    false => knows_run(state, from, &keep)
                        .and_then(|()| self.keep_ranges(state, from, &keep).map(drop)),
                    true => Ok(()),
                };
                if kept.is_ok() {
                    kept_told(state, from, *keep);
                }
                self.tell(state, from, replication::Message::Replicated { token, result: kept });
                None
            }
        };
        if let Some(error) = refused {
            self.tell(state, from, replication::Message::Replicated { token, result: Err(error) });
        }
    }

    /// Finds room for blocks of a step of another server; those that are new here, each with where it is there.
    fn keep_ranges(
        &self,
        state: &mut State,
        from: ServerId,
        keep: &Replica,
    ) -> Result<Vec<(BlockRange, BlockRange)>> {
        let guarded = state.guarded.entry(from).or_default();
        let step = guarded.kept.entry(keep.unit.clone()).or_default();
        step.copies = step.copies.max(keep.copies);
        step.guardians.clone_from(&keep.backups);
        let mut store = self.store.lock();
        let mut new: Vec<(BlockRange, BlockRange)> = Vec::new();
        for range in &keep.ranges {
            let guard = guarded.arenas.get(&range.arena);
            let arena =
                guard.ok_or_else(|| Error::not_found(format!("there is no arena {}", range.arena)))?;
            let mine = BlockRange { arena: arena.arena, ..*range };
            if step.ranges.contains(&mine) {
                continue;
            }
            let BlockRange { arena, offset, generation, bytes } = mine;
            let held = store.guard_range(arena, offset, generation, bytes);
            if !matches!(held, Ok(true)) {
                for (_, mine) in new {
                    let _ = store.free(mine.arena, mine.offset, mine.generation);
                    step.ranges.remove(&mine);
                }
                let full = || {
                    let (used, budget) = (store.usage().staged, store.usage().budget);
                    let text =
                        format!("there is no room for a copy of {bytes} bytes: {used} of {budget} are held");
                    Error::new(ErrorKind::Full, text)
                };
                return Err(held.err().unwrap_or_else(full));
            }
            step.ranges.insert(mine);
            new.push((*range, mine));
        }
        Ok(new)
    }

    /// As `keep_ranges`, of blocks whose bytes are to be fetched.
    fn keep_ranges_to_come(
        &self,
        state: &mut State,
        from: ServerId,
        keep: &Replica,
    ) -> Result<Vec<(BlockRange, BlockRange)>> {
        if self.standing().roster.has_left(from) {
            return Err(Error::unreachable(format!("{from} is no member any more")));
        }
        knows_run(state, from, keep)?;
        let new = self.keep_ranges(state, from, keep)?;
        if let Some(step) = state.guarded.get_mut(&from).and_then(|guarded| guarded.kept.get_mut(&keep.unit))
        {
            step.coming.extend(new.iter().map(|(_, mine)| *mine));
        }
        Ok(new)
    }

    /// Another server has freed its part of a step.
    pub(crate) fn guarded_no_more(&self, state: &mut State, from: ServerId, token: u64, id: ReplicaUnit) {
        match state.guarded.get(&from).and_then(|guarded| guarded.orders.as_ref()) {
            // Copies of its own are not that server's memory. If too many wait, it is found when that one is dead.
            Some(orders) => drop(orders.try_send(Order::KeepNoMore(id))),
            None => self.let_guarded_go(state, from, &id),
        }
        self.tell(state, from, replication::Message::Released { token });
    }

    fn let_guarded_go(&self, state: &mut State, from: ServerId, id: &ReplicaUnit) {
        let Some(guarded) = state.guarded.get_mut(&from) else { return };
        if let Some(id) = id.step() {
            guarded.ledger.free(id);
        }
        if let Some(step) = guarded.kept.remove(id) {
            self.free(step.ranges.iter().map(held));
        }
    }

    /// Another server tells what it knows of a run.
    pub(crate) fn guard_run(
        &self,
        state: &mut State,
        from: ServerId,
        stream: &str,
        coordinator: ServerId,
        told: Inheritance,
    ) {
        if let Err(error) = told.check() {
            return tracing::warn!("what {from} tells of stream '{stream}' is not kept: {error}");
        }
        if self.is_member(state, coordinator) {
            self.note_place(state, stream, coordinator);
        }
        state.guarded.entry(from).or_default().ledger.copied(stream, told);
    }

    /// A server is dead, as this view says: this one answers for what it held for it.
    pub(crate) fn take_guarded(&self, state: &mut State, dead: ServerId, view: &View) {
        let Some(mut guarded) = state.guarded.remove(&dead) else { return };
        drop(guarded.orders.take());
        self.drop_what_is_held(state, dead, &mut guarded);
        {
            let mut store = self.store.lock();
            for (theirs, guard) in &guarded.arenas {
                store.adopt(guard.arena);
                if store.has_arena(guard.arena) {
                    state.answers.add((dead, *theirs), self.id, guard.arena);
                    // What that server answered for in the place of others.
                    for key in state.answers.of(dead, *theirs) {
                        state.answers.add(key, self.id, guard.arena);
                    }
                }
            }
        }
        tracing::info!("copies of {} steps of {dead} are here", guarded.kept.len());
        for (id, mut step) in guarded.kept {
            // What has not come yet died with it.
            for range in std::mem::take(&mut step.coming) {
                step.ranges.remove(&range);
                self.free([held(&range)]);
            }
            match &id {
                ReplicaUnit::Step(id) => {
                    state.holdings.add(id, step.ranges.iter().map(held));
                    for (field, blocks) in step.records.into_values() {
                        state.directory.hold(id, FieldReport::new(field, blocks.into_values().collect()));
                    }
                }
                ReplicaUnit::Space(key) => {
                    // It may have been put here again meanwhile, by who had no answer: then that one has its own copies.
                    let known = state.space.range_of(*key).is_some();
                    let mut ranges = step.ranges.iter().map(held);
                    match step.space.filter(|_| !known).and_then(|block| Some((ranges.next()?, block))) {
                        Some((held, block)) => state.space.take_over(held, block, view.epoch),
                        None => {
                            self.free_unseen(ranges, view.epoch);
                            step.ranges.clear();
                            if step.here_before.is_empty() {
                                continue;
                            }
                        }
                    }
                }
            }
            // What it offers itself nobody else is to see to.
            if step.guardians.contains(&self.id) {
                let guardians = step.guardians.into_iter();
                // One that came and went between two views that this server has seen is none.
                let lives = |id: &ServerId| view.members.contains(id) && !state.common.members.is_gone(*id);
                let others = guardians.filter(|id| ![dead, self.id].contains(id) && lives(id));
                // What it held before has copies now, too: maybe nobody saw to any.
                let ranges = &step.ranges | &step.here_before;
                self.share(state, id, step.copies, ranges, others.collect());
            }
        }
        state.ranks.take_over(guarded.ledger);
    }

    /// Of what was to be kept for a server, lets go of what this one holds in the place of another one: the same memory may
    /// come from several that had copies of it. Before its arenas are taken over, so that no page is given back.
    fn drop_what_is_held(&self, state: &mut State, dead: ServerId, guarded: &mut Guarded) {
        for (theirs, guard) in &guarded.arenas {
            let key = (dead, *theirs);
            let stands_for = state.answers.of(dead, *theirs).into_iter().chain([key]);
            let by = stands_for.flat_map(|key| state.answers.get(key));
            let here: BTreeSet<u32> = by.filter(|(by, _)| *by == self.id).map(|(_, arena)| arena).collect();
            for arena in here {
                for (id, step) in &mut guarded.kept {
                    let place = |range: &BlockRange| Held { arena, ..held(range) };
                    let twice = step.ranges.extract_if(.., |range| {
                        range.arena == guard.arena && is_held_at(state, id, place(range))
                    });
                    let twice: Vec<BlockRange> = twice.collect();
                    step.here_before.extend(twice.iter().map(|range| BlockRange { arena, ..*range }));
                    self.free(twice.iter().map(held));
                }
                state.answers.add(key, self.id, arena);
            }
        }
    }

    /// Tells the living coordinators of streams what a dead server may not have told them, and which of its blocks are here
    /// now. They may just have taken the place of others, or had told of a rank that is here now.
    pub(crate) fn tell_guarded(&self, state: &mut State, streams: &BTreeSet<String>) {
        for stream in streams.iter().filter(|_| !seeded(Bug::TellsNothingForTheDead)) {
            let (coordinator, epoch) = (self.coordinator_of(state, stream), self.epoch());
            let mut messages = known_of_runs(state, epoch, stream);
            let steps = state.holdings.steps().filter(|id| id.stream == *stream).map(|id| (id.run, id.step));
            messages.push(streams::Message::StepsHeld {
                epoch,
                stream: stream.clone(),
                steps: steps.collect(),
            });
            for message in messages {
                self.tell(state, coordinator, message);
            }
        }
    }

    /// The streams of which copies are held for a server.
    pub(crate) fn guarded_streams(&self, state: &State, server: ServerId) -> BTreeSet<String> {
        state.guarded.get(&server).into_iter().flat_map(Guarded::streams).cloned().collect()
    }
}

/// Whether this server holds something there.
fn is_held_at(state: &State, id: &ReplicaUnit, place: Held) -> bool {
    match id {
        ReplicaUnit::Step(id) => state.holdings.of(id).contains(&place),
        ReplicaUnit::Space(key) => state.space.range_of(*key) == Some(place),
    }
}

fn held(range: &BlockRange) -> Held {
    Held { arena: range.arena, offset: range.offset, generation: range.generation }
}

/// An error if nothing is known of the run of a step that is to be kept, though it was told: it was forgotten, since many others
/// came after it.
fn knows_run(state: &State, from: ServerId, keep: &Replica) -> Result<()> {
    let Some(id) = keep.unit.step().filter(|_| keep.of_told_run) else { return Ok(()) };
    let ledger = state.guarded.get(&from).map(|guarded| &guarded.ledger);
    match ledger.and_then(|ledger| ledger.run(&id.stream, id.run)) {
        Some(_) => Ok(()),
        None => Err(Error::new(
            ErrorKind::Ended,
            format!("run {} of stream '{}' is not known", id.run, id.stream),
        )),
    }
}

/// What ranks told of a step is kept.
fn kept_told(state: &mut State, from: ServerId, keep: Replica) {
    let Some(guarded) = state.guarded.get_mut(&from) else { return };
    if let Some(id) = keep.unit.step() {
        for (rank, ended) in keep.ended {
            let step = ended.step;
            guarded.ledger.ended(&id.stream, id.run, rank, ended);
            // This is the only copy that it is to have.
            if keep.copies <= 1 {
                guarded.ledger.has_copies(&id.stream, id.run, rank, step);
            }
        }
    }
    if let Some(step) = guarded.kept.get_mut(&keep.unit) {
        step.space = keep.space.or(step.space.take());
        for FieldReport { field, blocks, .. } in keep.records {
            let name = field.name.clone();
            let known = &mut step.records.entry(name).or_insert_with(|| (field, BTreeMap::new())).1;
            known.extend(blocks.into_iter().map(|block| (block.key, block)));
        }
    }
}

/// Does what a server on another host wants, in order: fetches the blocks that are to be kept.
async fn fetch_all(node: Weak<Node>, from: ServerId, mut orders: mpsc::Receiver<Order>) {
    let mut connection = None;
    while let Some(order) = orders.recv().await {
        let Some(node) = node.upgrade() else { return };
        match order {
            Order::KeepNoMore(id) => node.let_guarded_go(&mut node.state.lock(), from, &id),
            Order::Replica(token, keep) => {
                let new = node.keep_ranges_to_come(&mut node.state.lock(), from, &keep);
                let result = match new {
                    Ok(new) => fetch_new(&node, from, &mut connection, &keep.unit, new).await,
                    Err(error) => Err(error),
                };
                let mut state = node.state.lock();
                if result.is_ok() {
                    kept_told(&mut state, from, *keep);
                }
                node.tell(&mut state, from, replication::Message::Replicated { token, result });
                node.drain(&mut state);
            }
        }
    }
}

type Connection = (Receiver, Arc<Outbox>);

async fn fetch_new(
    node: &Node,
    from: ServerId,
    connection: &mut Option<Connection>,
    id: &ReplicaUnit,
    new: Vec<(BlockRange, BlockRange)>,
) -> Result<()> {
    let mut result = Ok(());
    for (theirs, mine) in new {
        if result.is_ok() {
            let patience = FETCHED + Duration::from_secs(theirs.bytes / FETCHED_A_SECOND);
            result = match timeout(patience, fetch(node, from, connection, &theirs, &mine)).await {
                Ok(fetched) => fetched,
                Err(_) => Err(Error::timeout(format!("{from} does not send a block that is to be kept"))),
            };
            if result.is_err() {
                *connection = None;
            }
        }
        let mut state = node.state.lock();
        // Unless it was let go of, or taken over, with what had come.
        let step = state.guarded.get_mut(&from).and_then(|guarded| guarded.kept.get_mut(id));
        let Some(step) = step else { continue };
        step.coming.remove(&mine);
        if result.is_err() && step.ranges.remove(&mine) {
            node.free([held(&mine)]);
        }
    }
    result
}

async fn fetch(
    node: &Node,
    from: ServerId,
    connection: &mut Option<Connection>,
    theirs: &BlockRange,
    mine: &BlockRange,
) -> Result<()> {
    if connection.is_none() {
        *connection = Some(greet(node, from).await?);
    }
    let Some((receiver, outbox)) = connection else { return Err(Error::internal("no connection")) };
    let mapping = node.store.lock().mapping(mine.arena)?;
    let one = |n: u64| [n][..].into();
    let part = Part { offset: one(0), shape: one(theirs.bytes), step: one(1) };
    let BlockRange { arena, offset, generation, bytes } = *theirs;
    let stored = one(bytes);
    let fetch = Request::Fetch(Fetch { arena, offset, bytes, generation, stored, element: 1, part });
    outbox.push(Header { request: 1, ..Header::default() }, &fetch)?;
    let left = || Error::unreachable(format!("{from} ended the connection"));
    let (frame, _) = receiver.next().await?.ok_or_else(left)?;
    match frame.message::<Result<Reply>>()?? {
        Reply::Data if frame.header.payload == bytes => {
            mapping.populate(mine.offset, bytes);
            receiver.payload_into(&mapping, mine.offset, &frame.header).await
        }
        _ => Err(Error::protocol(format!("{from} sent something else than a block"))),
    }
}

/// Connects to a server as one of its readers.
async fn greet(node: &Node, from: ServerId) -> Result<Connection> {
    let standing = node.standing();
    let member = standing.roster.members.iter().find(|member| member.id == from);
    let gone = || Error::unreachable(format!("{from} is no member"));
    let entry = forebay_cluster::membership::entry(member.ok_or_else(gone)?);
    let (mut receiver, outbox) = dial(&*node.environment, &entry, &node.secret, &node.lineage).await?;
    let hello = Hello {
        role: Role::Consumer,
        pid: std::process::id(),
        host: host::process_space(),
        shared_memory: false,
        patience_ms: 0,
    };
    outbox.push(Header { request: 1, ..Header::default() }, &hello)?;
    let silent = |_| Error::timeout(format!("{from} does not greet"));
    let (frame, _) = timeout(GREETING, receiver.next()).await.map_err(silent)??.ok_or_else(gone)?;
    frame.message::<Result<Welcome>>()??;
    Ok((receiver, outbox))
}

#[cfg(test)]
impl Guarded {
    /// The ranges that are held of something, in this server's arenas, with all their bytes.
    pub(crate) fn ranges_here(&self, id: &ReplicaUnit) -> BTreeSet<BlockRange> {
        self.kept.get(id).map(|step| &step.ranges - &step.coming).unwrap_or_default()
    }

    /// The number of an arena at the server for which it is held.
    pub(crate) fn arena_there(&self, here: u32) -> Option<u32> {
        self.arenas.iter().find(|(_, guard)| guard.arena == here).map(|(theirs, _)| *theirs)
    }

    /// Whether it is held what a rank told of a step.
    pub(crate) fn was_told(&self, id: &forebay_core::ids::StepId, rank: u32) -> bool {
        self.ledger.told_of(id).iter().any(|(of, _)| *of == rank)
    }
}
