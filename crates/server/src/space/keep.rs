//! The server that a block of the space is put to: reserves, keeps, registers with the owners.

use super::{HeldBlock, Key};
use crate::directory::in_parts;
use crate::node::{Held, Node, State};
use crate::questions::Answer;
use forebay_core::block::{BlockRecord, INLINE_MAX, Location};
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, DescriptionNumber, Epoch, ServerId, StepNumber};
use forebay_core::seats::Seats;
use forebay_core::steps::FieldReport;
use forebay_core::tiles::hash_in_space;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::block::Bytes;
use forebay_wire::client::space::SpacePut;
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use forebay_wire::peer::space;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the owners of a field may take to register a block, or to remove one.
pub(super) const OWNERS_PATIENCE: Duration = Duration::from_secs(20);

/// Within this, a server that has died is given up, and others hold its seats.
const GIVEN_UP: Duration = Duration::from_secs(3);
/// How long to wait before a block is registered again.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// What an owner says to a registration.
#[derive(Debug)]
enum Said {
    /// It is registered under this description.
    Registered(DescriptionNumber),
    /// The description is no longer in force.
    Stale,
    /// It does not fit, or the owner is gone: not registered.
    Refused(Error),
    /// No answer in time: it may be registered or not.
    Silent(Error),
}

impl Node {
    /// Reserves a range for a block of the space, and says whether pages of it may be missing.
    pub(crate) fn space_reserve(&self, bytes: u64) -> Result<(Held, bool)> {
        let mut store = self.store.lock();
        let arena = store.network_arena()?;
        match store.reserve(arena, bytes)? {
            Some(range) => {
                Ok((Held { arena, offset: range.offset, generation: range.generation }, range.fresh))
            }
            None => {
                drop(store);
                Err(self.space_full(bytes))
            }
        }
    }

    /// The error for a block of the space that finds no room.
    pub(crate) fn space_full(&self, bytes: u64) -> Error {
        let usage = self.store.lock().usage();
        Error::new(
            ErrorKind::Full,
            format!(
                "{bytes} bytes do not fit on {}: {} of {} are held; remove what is no longer needed",
                self.id, usage.staged, usage.budget
            ),
        )
    }

    /// Keeps a block whose bytes have arrived, once its owners know it, and others hold the copies that it is to have.
    pub(crate) async fn space_keep(
        &self,
        put: SpacePut,
        bytes: u64,
        held: Held,
        patience: Duration,
    ) -> Result<()> {
        let SpacePut { field, step, by, replicas, block } = put;
        let inline = match block.bytes {
            Bytes::Inline(given) if given.len() <= INLINE_MAX => Some(given),
            _ => None,
        };
        let location = Location {
            server: self.id,
            arena: held.arena,
            offset: held.offset,
            bytes,
            generation: held.generation,
        };
        let key = BlockKey { rank: by, number: block.number };
        let record = BlockRecord {
            key,
            level: block.level,
            extent: block.extent,
            location,
            inline,
            stats: block.stats,
        };
        let block = HeldBlock {
            keepers: Vec::new(),
            field: Arc::new(field.clone()),
            step,
            record: record.clone(),
            description: 0,
            is_put: true,
            unseen_before: 0,
            told_when_free: Vec::new(),
        };
        if let Some(done) = self.space_hold_once(held, block) {
            self.free([held]);
            return done;
        }
        let before = self.standing();
        let kept = match self.space_register_in_time(&field, step, record).await {
            Ok(description) => {
                {
                    let mut state = self.state.lock();
                    if let Some(block) = state.space.held.get_mut(&held) {
                        block.description = description;
                    }
                    // Seats may have passed on while it was registered.
                    self.space_tell_owners(&mut state, &[held], &before.roster.seats);
                    self.drain(&mut state);
                }
                self.space_copy(&(field.name, step), (key, location), replicas - 1, patience).await
            }
            Err(error) => Err(error),
        };
        let mut state = self.state.lock();
        if let Some(block) = state.space.held.get_mut(&held) {
            block.is_put = false;
        }
        self.space_free_if_unknown(&mut state, held);
        self.drain(&mut state);
        kept
    }

    /// Holds a block, unless it was put here before by who has had no answer: then, what becomes of that.
    fn space_hold_once(&self, held: Held, block: HeldBlock) -> Option<Result<()>> {
        let mut state = self.state.lock();
        let before = state.space.range_of(block.record.key).and_then(|held| state.space.held.get(&held));
        let done = before.map(|before| match before {
            before if before.record.extent != block.record.extent || *before.field != *block.field => {
                Err(Error::conflict(format!("{} was already put with other content", block.record.key)))
            }
            before if before.is_put => {
                Err(Error::unreachable(format!("{} is still being put: try again", block.record.key)))
            }
            _ => Ok(()),
        });
        if done.is_none() {
            state.space.hold(held, block);
        }
        done
    }

    /// Has other servers hold copies of a block that its owners know; if they cannot, nobody does.
    async fn space_copy(
        &self,
        key: &Key,
        block: (BlockKey, Location),
        copies: u32,
        patience: Duration,
    ) -> Result<()> {
        if copies == 0 {
            return Ok(());
        }
        let ranges = vec![BlockRange::from(&block.1)];
        let kept = self.keep_in_time(ReplicaUnit::Space(block.0), copies, ranges, patience).await;
        if kept.is_err() {
            let keepers = {
                let state = self.state.lock();
                state.space.held.get(&held_of(&block.1)).map(|held| held.keepers.clone())
            };
            self.space_unregister_at(key, block, keepers.into_iter().flatten());
        }
        kept
    }

    /// Registers a block with the owners of all parts that it touches, or with none. An owner that has just gone has a
    /// successor soon.
    async fn space_register_in_time(
        &self,
        field: &Field,
        step: StepNumber,
        record: BlockRecord,
    ) -> Result<DescriptionNumber> {
        let deadline = Instant::now() + GIVEN_UP;
        loop {
            match self.space_register_with_owners(field, step, record.clone()).await {
                Err(error) if error.kind == ErrorKind::Unreachable && Instant::now() < deadline => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                registered => return registered,
            }
        }
    }

    /// Seats have passed on: owners that do not know blocks which this server holds are told of them.
    pub(crate) fn space_register_again(&self, state: &mut State, before: &Seats) {
        let held: Vec<Held> = state.space.held.keys().copied().collect();
        self.space_tell_owners(state, &held, before);
    }

    fn space_tell_owners(&self, state: &mut State, held: &[Held], before: &Seats) {
        let standing = self.standing();
        let mut told: BTreeMap<(ServerId, StepNumber, DescriptionNumber, String), FieldReport> =
            BTreeMap::new();
        let State { space, tiles, .. } = &mut *state;
        for held in held {
            let Some(block) = space.held.get_mut(held).filter(|block| block.description > 0) else {
                continue;
            };
            let HeldBlock { keepers, field, step, record, description, .. } = block;
            let step = *step;
            let hash = hash_in_space(&field.name, step);
            let describer = tiles.map(before, hash, field.shape.as_deref()).descriptor();
            let tiles = tiles.map(&standing.roster.seats, hash, field.shape.as_deref());
            let mut owners = tiles.owners_of(&record.extent.interior());
            if tiles.is_single() {
                owners = tiles.descriptor().into_iter().collect();
            }
            let key = |owner: ServerId| (owner, step, *description, field.name.clone());
            let new = || FieldReport::new((**field).clone(), Vec::new());
            // Who describes the field now is to know it, even if it owns none of these parts.
            if let Some(describer) = tiles.descriptor().filter(|new| Some(*new) != describer) {
                told.entry(key(describer)).or_insert_with(new);
            }
            for owner in owners {
                if !keepers.contains(&owner) {
                    told.entry(key(owner)).or_insert_with(new).blocks.push(record.clone());
                    keepers.push(owner);
                }
            }
            keepers.retain(|keeper| standing.view.members.contains(keeper));
        }
        for ((owner, step, description, _), report) in told {
            let empty = report.blocks.is_empty().then(|| FieldReport::new(report.field.clone(), Vec::new()));
            for report in in_parts(report).chain(empty) {
                self.tell(state, owner, space::Message::HandOver { step, description, report });
            }
        }
    }

    /// Under which description it is registered.
    async fn space_register_with_owners(
        &self,
        field: &Field,
        step: StepNumber,
        record: BlockRecord,
    ) -> Result<DescriptionNumber> {
        let deadline = Instant::now() + OWNERS_PATIENCE;
        let key: Key = (field.name.clone(), step);
        let report = |blocks| FieldReport::new(field.clone(), blocks);
        let tiles = {
            let mut state = self.state.lock();
            self.space_tiles(&mut state, &field.name, step, field.shape.as_deref())
        };
        let describer = tiles.descriptor().unwrap_or(self.id);
        if tiles.is_single() {
            let block = place_of(&record);
            let question = [(describer, 0, report(vec![record]))];
            let mut description = 0;
            for (owner, said) in self.space_ask(&key, question, false, deadline).await {
                match said {
                    Said::Registered(number) => description = number,
                    Said::Stale => return Err(Error::internal("a description of no number is not in force")),
                    Said::Refused(error) => return Err(error),
                    Said::Silent(error) => {
                        self.space_unregister_at(&key, block, [owner]);
                        return Err(error);
                    }
                }
            }
            return Ok(description);
        }
        let owners = tiles.owners_of(&record.extent.interior());
        loop {
            let mut said = Vec::new();
            let known = self.state.lock().space.described.begin(&key, field)?;
            let mut rest = owners.clone();
            let description = match known {
                Some(description) => description,
                None => {
                    // The part of the server that describes the field goes with the question.
                    let asked = rest.iter().position(|owner| *owner == describer);
                    let blocks = asked.map(|at| rest.remove(at)).map(|_| record.clone());
                    let question = [(describer, 0, report(blocks.into_iter().collect()))];
                    said.extend(self.space_ask(&key, question, true, deadline).await);
                    match said.last() {
                        Some((_, Said::Registered(description))) => *description,
                        _ => 0,
                    }
                }
            };
            if description > 0 {
                let questions = rest.iter().map(|owner| (*owner, description, report(vec![record.clone()])));
                said.extend(self.space_ask(&key, questions, false, deadline).await);
            }
            let mut stale = false;
            let mut failure = None;
            let mut maybe = Vec::new();
            for (owner, said) in said {
                match said {
                    Said::Registered(_) => maybe.push(owner),
                    Said::Stale => stale = true,
                    Said::Refused(error) => failure = failure.or(Some(error)),
                    Said::Silent(error) => {
                        maybe.push(owner);
                        failure = failure.or(Some(error));
                    }
                }
            }
            let failed = stale || failure.is_some();
            if failed {
                self.space_unregister_at(&key, place_of(&record), maybe);
            }
            if description > 0 {
                self.space_registered_under(description, stale);
            }
            match failure {
                Some(error) => return Err(error),
                None if !failed => return Ok(description),
                None if Instant::now() >= deadline => {
                    return Err(Error::timeout(format!(
                        "field '{}' at step {step} is removed again and again while it is put",
                        key.0
                    )));
                }
                // It was removed meanwhile: described anew.
                None => {}
            }
        }
    }

    /// Registers with several owners at once, each under a description; what each of them says. A description
    /// that is asked for is remembered if `more` is to be registered under it.
    async fn space_ask(
        &self,
        key: &Key,
        questions: impl IntoIterator<Item = (ServerId, DescriptionNumber, FieldReport)>,
        more: bool,
        deadline: Instant,
    ) -> Vec<(ServerId, Said)> {
        let mut waits = Vec::new();
        {
            let mut state = self.state.lock();
            for (owner, description, report) in questions {
                let held = report.blocks.first().map(|block| held_of(&block.location));
                if let Some(block) = held.and_then(|held| state.space.held.get_mut(&held)) {
                    block.keepers.push(owner);
                }
                let asked = more.then(|| report.field.clone());
                let step = key.1;
                let question = |token| space::Message::Register { token, step, description, report };
                let wait = self.question(&mut state, owner, question);
                if let (Some(field), Some((token, _))) = (asked, &wait) {
                    state.space.described.ask(*token, key.clone(), field);
                }
                waits.push((owner, held, wait));
            }
            self.drain(&mut state);
        }
        let mut all = Vec::new();
        for (owner, held, wait) in waits {
            let part = || format!("{owner}, which owns a part of field '{}' at step {}", key.0, key.1);
            let said = match wait {
                None => Said::Refused(Error::unreachable(format!("{}, is gone", part()))),
                Some((token, answer)) => match tokio::time::timeout_at(deadline, answer).await {
                    Ok(Ok(Answer::Described(Ok(0)))) => Said::Stale,
                    Ok(Ok(Answer::Described(Ok(number)))) => Said::Registered(number),
                    Ok(Ok(Answer::Described(Err(error)))) => Said::Refused(error),
                    Ok(_) => Said::Refused(Error::unreachable(format!("{}, is gone", part()))),
                    Err(_) => {
                        let mut state = self.state.lock();
                        state.common.questions.take(token);
                        state.space.described.answered(token, None);
                        Said::Silent(Error::timeout(format!("{}, did not answer in time", part())))
                    }
                },
            };
            if let (Said::Refused(_) | Said::Stale, Some(held)) = (&said, held) {
                self.space_let_go_held(&mut self.state.lock(), owner, held);
            }
            all.push((owner, said));
        }
        all
    }

    /// The question in which a description was asked for is answered.
    pub(crate) fn space_registered(&self, state: &mut State, token: u64, result: Result<DescriptionNumber>) {
        let pending = state.common.questions.take(token);
        let number = result.as_ref().ok().copied().filter(|_| pending.is_some());
        state.space.described.answered(token, number);
        if let Some(pending) = pending {
            pending.answer(Answer::Described(result));
        }
    }

    /// A put has finished registering under a description, and may have learned that it is no longer in force.
    fn space_registered_under(&self, description: DescriptionNumber, stale: bool) {
        let mut state = self.state.lock();
        if stale {
            state.space.described.doubt(description);
        }
        for (server, token) in state.space.described.end(description) {
            self.tell(&mut state, server, space::Message::Done { token });
        }
        self.drain(&mut state);
    }

    /// A description under which this server registers is taken back.
    pub(crate) fn space_revoke(
        &self,
        state: &mut State,
        from: ServerId,
        token: u64,
        description: DescriptionNumber,
    ) {
        if state.space.described.revoke(description, from, token) {
            self.tell(state, from, space::Message::Done { token });
        }
    }

    /// Tells owners to let go of a block that could not be put.
    fn space_unregister_at(
        &self,
        key: &Key,
        block: (BlockKey, Location),
        owners: impl IntoIterator<Item = ServerId>,
    ) {
        let mut state = self.state.lock();
        for owner in owners {
            let (field, step, blocks) = (key.0.clone(), key.1, vec![block]);
            self.tell(&mut state, owner, space::Message::Unregister { field, step, blocks });
        }
        self.drain(&mut state);
    }

    /// An owner says that it needs these no longer, and is told when nobody holds them: then none comes back after this
    /// server's death.
    pub(crate) fn space_free_held(
        &self,
        state: &mut State,
        (owner, token): (ServerId, u64),
        locations: &[Location],
    ) {
        // Until all of them are counted.
        state.space.to_tell.insert((owner, token), 1);
        for location in locations {
            // What it answers for it holds at places of its own.
            let answers = state.answers.get((location.server, location.arena)).into_iter();
            let here = answers.chain([(location.server, location.arena)]).filter(|(by, _)| *by == self.id);
            let ranges = here.map(|(_, arena)| Held { arena, ..held_of(location) });
            let held: Vec<Held> = ranges.filter(|held| state.space.held.contains_key(held)).collect();
            for held in held {
                if let Some(block) = state.space.held.get_mut(&held) {
                    block.told_when_free.push((owner, token));
                    *state.space.to_tell.entry((owner, token)).or_default() += 1;
                }
                self.space_let_go_held(state, owner, held);
            }
        }
        self.space_tell_freed(state, (owner, token));
    }

    /// A block is free of which an owner wants to know.
    pub(crate) fn space_tell_freed(&self, state: &mut State, (owner, token): (ServerId, u64)) {
        let Some(left) = state.space.to_tell.get_mut(&(owner, token)) else { return };
        *left -= 1;
        if *left == 0 {
            state.space.to_tell.remove(&(owner, token));
            self.tell(state, owner, space::Message::Freed { token });
        }
    }

    /// One of those that keep a range lets go of it; it is free when it was the last.
    fn space_let_go_held(&self, state: &mut State, keeper: ServerId, held: Held) {
        let Some(block) = state.space.held.get_mut(&held) else { return };
        if let Some(at) = block.keepers.iter().position(|known| *known == keeper) {
            block.keepers.swap_remove(at);
        }
        self.space_free_if_unknown(state, held);
    }

    /// A range that no owner knows is free, unless it is still being put.
    fn space_free_if_unknown(&self, state: &mut State, held: Held) {
        let unknown = |block: &&mut HeldBlock| block.keepers.is_empty() && !block.is_put;
        let Some(block) = state.space.held.get_mut(&held).filter(unknown) else { return };
        let (unseen_before, key) = (block.unseen_before, block.record.key);
        let told = std::mem::take(&mut block.told_when_free);
        state.space.held.remove(&held);
        state.space.by_key.remove(&key);
        self.keep_no_more(state, ReplicaUnit::Space(key), vec![held], unseen_before, told);
    }

    /// A server died: it keeps nothing any more that another owner knows as well. What it alone knew stays until its
    /// successor is told of it; readers that it told may still read it.
    pub(crate) fn space_peer_gone(&self, state: &mut State, peer: ServerId) {
        for block in state.space.held.values_mut().filter(|block| block.keepers.contains(&peer)) {
            block.unseen_before = Epoch::MAX;
            if block.keepers.iter().any(|keeper| *keeper != peer) {
                block.keepers.retain(|keeper| *keeper != peer);
            }
        }
    }

    /// A view is in force without all that are gone: no server of an earlier one tells readers of blocks.
    pub(crate) fn space_gone_since(&self, state: &mut State, epoch: Epoch) {
        let unknown = state.space.held.values_mut().filter(|block| block.unseen_before == Epoch::MAX);
        unknown.for_each(|block| block.unseen_before = epoch);
    }
}

fn held_of(location: &Location) -> Held {
    Held { arena: location.arena, offset: location.offset, generation: location.generation }
}

fn place_of(record: &BlockRecord) -> (BlockKey, Location) {
    (record.key, record.location)
}
