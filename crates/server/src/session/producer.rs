//! What a producer's connection does: begins steps, reserves, puts, ends.

use super::Session;
use crate::node::{Held, Node};
use crate::process_gone;
use forebay_core::attr::Attr;
use forebay_core::block::{BlockRecord, INLINE_MAX, Location};
use forebay_core::contract::Field;
use forebay_core::cut::Begin;
use forebay_core::demand::Demand;
use forebay_core::directory::check_block_fits;
use forebay_core::ids::{RunNumber, StepId, StepNumber, check_name};
use forebay_core::steps::{EndedField, Policy, RunOptions, StepEnded};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::frame::Header;
use forebay_wire::message::{Bytes, Grant, PutBlock, ToClient, ToServer, key_of};
use forebay_wire::peer::PeerMessage;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a stream that drops may wait for memory that is just being given up elsewhere.
const DROP_PATIENCE: Duration = Duration::from_millis(50);
/// How long a put whose bytes are on their way may wait for room. The client's own deadline may end earlier.
const PUT_PATIENCE: Duration = Duration::from_secs(60);
/// How long a rank may wait for the stream's coordinator when it joins or defines.
const JOIN_PATIENCE: Duration = Duration::from_secs(20);

/// One rank of a stream, at its home server.
#[derive(Debug)]
pub(crate) struct Producing {
    stream: String,
    rank: u32,
    run: RunNumber,
    policy: Policy,
    /// Its own arena: what it writes to, or where its bytes from the network go.
    arena: u32,
    fields: BTreeMap<String, Field>,
    begun: bool,
    last: Option<StepNumber>,
    open: Option<OpenStep>,
    /// Field and size of each block of the last step with blocks: the next one is likely the same.
    predicted: Vec<(String, u64)>,
    /// Ranges that were granted and not used yet, by offset.
    grants: HashMap<u64, Grant>,
    trouble: Option<Error>,
}

#[derive(Debug)]
struct OpenStep {
    number: StepNumber,
    time: f64,
    demand: Arc<Demand>,
    fields: BTreeMap<String, Vec<BlockRecord>>,
    held: Vec<Held>,
    keys: HashSet<(String, u64)>,
    sizes: Vec<(String, u64)>,
}

/// Waits until a process has ended, if it is one that can be watched.
async fn ended(process: Option<&OwnedFd>) {
    match process {
        Some(process) => process_gone(process).await,
        None => std::future::pending().await,
    }
}

fn no_step(what: &str) -> Error {
    Error::step_order(format!("{what} outside a step: begin one first"))
}

impl Producing {
    /// Something went wrong with a message that is not answered.
    pub(crate) fn note(&mut self, error: Error) {
        self.trouble.get_or_insert(error);
    }

    /// The rank closed its handle or died: tells the coordinator, once.
    pub(crate) fn leave(&self, node: &Node, died: bool) {
        let (stream, run, rank) = (self.stream.clone(), self.run, self.rank);
        let mut state = node.state.lock();
        let known =
            state.members.get_mut(&stream).is_some_and(|member| member.ranks.remove(&(run, rank)).is_some());
        if !known {
            return;
        }
        if let Some(member) = state.members.get_mut(&stream) {
            if !member.ranks.keys().any(|(other, _)| *other == run) {
                member.cut.close_run(run);
            }
            if member.ranks.is_empty() {
                state.members.remove(&stream);
            }
        }
        let coordinator = node.coordinator_of(&stream);
        node.tell(&mut state, coordinator, PeerMessage::RankGone { stream, run, rank, died });
        node.drain(&mut state);
    }

    /// The process has ended: what it could still write to is free.
    pub(crate) fn give_back(mut self, node: &Node) {
        let mut held: Vec<Held> = self.open.take().map(|step| step.held).unwrap_or_default();
        let reserved = node.store.lock().reserved(self.arena);
        held.extend(reserved.into_iter().map(|(offset, generation)| Held {
            arena: self.arena,
            offset,
            generation,
        }));
        node.free(held);
        node.store.lock().close_arena(self.arena);
    }

    fn field(&self, name: &str) -> Result<&Field> {
        self.fields.get(name).ok_or_else(|| {
            let known: Vec<_> = self.fields.keys().map(String::as_str).collect();
            Error::not_found(format!(
                "stream '{}' has no field '{name}'; this rank offers {}",
                self.stream,
                if known.is_empty() { "none".into() } else { known.join(", ") }
            ))
        })
    }
}

impl Session {
    /// Joins a stream as one rank.
    pub(super) async fn produce(
        &mut self,
        request: u64,
        stream: String,
        rank: u32,
        options: RunOptions,
    ) -> Result<Option<ToClient>> {
        check_name("stream", &stream)?;
        options.check(rank)?;
        if self.producing.is_some() {
            return Err(Error::protocol("this connection produces already"));
        }
        let policy = options.policy;
        let join = |token| PeerMessage::Join { token, stream: stream.clone(), rank, options };
        let PeerMessage::Joined { result, .. } = self.node.ask(&stream, rank, JOIN_PATIENCE, join).await?
        else {
            return Err(Error::internal("a coordinator gave another answer than asked for"));
        };
        let (run, _) = result?;
        let (arena, size) = self.node.store.lock().create_arena()?;
        self.producing = Some(Producing {
            stream,
            rank,
            run,
            policy,
            arena,
            fields: BTreeMap::new(),
            begun: false,
            last: None,
            open: None,
            predicted: Vec::new(),
            grants: HashMap::new(),
            trouble: None,
        });
        if !self.shared_memory {
            return Ok(Some(ToClient::Producing { run, arena: None }));
        }
        let descriptor = self.node.store.lock().writable_descriptor(arena)?;
        self.reply_with(request, ToClient::Producing { run, arena: Some((arena, size)) }, descriptor)?;
        Ok(None)
    }

    /// Any other message of a producer.
    pub(super) async fn producer_message(
        &mut self,
        header: &Header,
        message: ToServer,
    ) -> Result<Option<ToClient>> {
        if self.producing.is_none() {
            self.receiver.discard_payload(header).await?;
            return Err(Error::step_order("join a stream first"));
        }
        match message {
            ToServer::Define(field) => self.define(field).await,
            ToServer::SetAttr { field, key, attr } => self.set_attr(field, key, attr).await,
            ToServer::Begin { step, time, known, patience_ms } => {
                self.begin(step, time, known, Duration::from_millis(patience_ms)).await.map(Some)
            }
            ToServer::Reserve { bytes, patience_ms } => {
                let range = self.reserve(bytes, Duration::from_millis(patience_ms)).await?;
                Ok(Some(ToClient::Granted(range)))
            }
            ToServer::Put(block) => {
                self.put(header, block).await?;
                Ok(Some(ToClient::Done))
            }
            ToServer::Abort { offset, generation, .. } => {
                self.abort(offset, generation);
                Ok(None)
            }
            ToServer::End { step, blocks, dropped } => {
                self.end_step(step, blocks, dropped)?;
                Ok(Some(ToClient::Done))
            }
            ToServer::Flush => match self.take_trouble() {
                Some(error) => Err(error),
                None => Ok(Some(ToClient::Done)),
            },
            _ => {
                self.leave_cleanly();
                Ok(Some(ToClient::Done))
            }
        }
    }

    /// The producer, which is there: `producer_message` has checked.
    fn producing(&mut self) -> Result<&mut Producing> {
        self.producing.as_mut().ok_or_else(|| Error::step_order("join a stream first"))
    }

    async fn define(&mut self, field: Field) -> Result<Option<ToClient>> {
        let node = self.node.clone();
        let producing = self.producing()?;
        if producing.open.is_some() {
            return Err(Error::step_order(format!("field '{}' cannot be defined within a step", field.name)));
        }
        field.check()?;
        let (stream, run, rank) = (producing.stream.clone(), producing.run, producing.rank);
        let define =
            |token| PeerMessage::Define { token, stream: stream.clone(), run, rank, field: field.clone() };
        if let PeerMessage::Answer { result, .. } = node.ask(&stream, rank, JOIN_PATIENCE, define).await? {
            result?;
        }
        self.producing()?.fields.insert(field.name.clone(), field);
        Ok(Some(ToClient::Done))
    }

    async fn set_attr(&mut self, field: Option<String>, key: String, attr: Attr) -> Result<Option<ToClient>> {
        let node = self.node.clone();
        let producing = self.producing()?;
        if producing.open.is_some() {
            return Err(Error::step_order(format!("attribute '{key}' cannot be set within a step")));
        }
        attr.check(&key)?;
        let (stream, run, rank) = (producing.stream.clone(), producing.run, producing.rank);
        let set = |token| {
            let (stream, field, key, attr) = (stream.clone(), field.clone(), key.clone(), attr.clone());
            PeerMessage::SetAttr { token, stream, run, field, key, attr }
        };
        if let PeerMessage::Answer { result, .. } = node.ask(&stream, rank, JOIN_PATIENCE, set).await? {
            result?;
        }
        Ok(Some(ToClient::Done))
    }

    fn take_trouble(&mut self) -> Option<Error> {
        let producing = self.producing.as_mut()?;
        let own = producing.trouble.take();
        let key = (producing.run, producing.rank);
        let mut state = self.node.state.lock();
        let told =
            state.members.get_mut(&producing.stream).and_then(|member| member.ranks.get_mut(&key)?.take());
        own.or(told)
    }

    async fn begin(
        &mut self,
        step: StepNumber,
        time: f64,
        known: u64,
        patience: Duration,
    ) -> Result<ToClient> {
        let deadline = Instant::now() + patience;
        let node = self.node.clone();
        let shared = self.shared_memory;
        let producing = self.producing()?;
        if let Some(open) = &producing.open {
            return Err(Error::step_order(format!(
                "step {} is begun, end it before step {step}",
                open.number
            )));
        }
        if let Some(last) = producing.last.filter(|last| step <= *last) {
            return Err(Error::step_order(format!(
                "step {step} after step {last}: numbers must grow within a run; after a restart open the stream again \
                 (with `continues`)"
            )));
        }
        if !producing.begun {
            producing.begun = true;
            let (stream, run) = (producing.stream.clone(), producing.run);
            let mut state = node.state.lock();
            let coordinator = node.coordinator_of(&stream);
            node.tell(&mut state, coordinator, PeerMessage::Begun { stream, run });
            node.drain(&mut state);
        }
        let demand = loop {
            let changed = {
                let mut state = node.state.lock();
                let member = state.members.entry(producing.stream.clone()).or_default();
                match member.cut.begin(producing.run, step) {
                    Begin::Now(demand) => break demand,
                    Begin::UnknownRun => {
                        return Err(Error::internal("the run is not known at its home server"));
                    }
                    // Registered before the lock is released, so that no change is missed.
                    Begin::Wait => {
                        let mut changed = Box::pin(member.changed.clone().notified_owned());
                        changed.as_mut().enable();
                        changed
                    }
                }
            };
            if timeout_at(deadline, changed).await.is_err() {
                return Err(Error::timeout(format!(
                    "the servers did not agree on the demand of step {step} of stream '{}' in time",
                    producing.stream
                )));
            }
        };
        producing.last = Some(step);
        // Over the network a rank cannot write to an arena: ranges are found as its bytes arrive.
        let grants = if shared { producing.grant_predicted(&node, &demand, step) } else { Vec::new() };
        let told = (demand.version != known).then(|| (*demand).clone());
        producing.open = Some(OpenStep {
            number: step,
            time,
            demand,
            fields: BTreeMap::new(),
            held: Vec::new(),
            keys: HashSet::new(),
            sizes: Vec::new(),
        });
        let trouble = self.take_trouble();
        Ok(ToClient::Begun { demand: told, grants, trouble })
    }

    /// Reserves a range, waiting for memory as the stream's policy says. `None`: it is to be dropped.
    async fn reserve(&mut self, bytes: u64, patience: Duration) -> Result<Option<Grant>> {
        let node = self.node.clone();
        let process = self.process.as_ref().and_then(|process| process.try_clone().ok());
        let producing = self.producing()?;
        let waits = producing.policy == Policy::Block;
        let deadline = Instant::now() + if waits { patience } else { DROP_PATIENCE.min(patience) };
        loop {
            let freed = node.memory_freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(grant) = producing.try_reserve(&node, bytes)? {
                return Ok(Some(grant));
            }
            {
                let mut state = node.state.lock();
                let coordinator = node.coordinator_of(&producing.stream);
                node.tell(
                    &mut state,
                    coordinator,
                    PeerMessage::Pressure { stream: producing.stream.clone() },
                );
                node.drain(&mut state);
            }
            if let Some(grant) = producing.try_reserve(&node, bytes)? {
                return Ok(Some(grant));
            }
            let waited = tokio::select! {
                waited = timeout_at(deadline, freed) => waited,
                () = ended(process.as_ref()) => {
                    return Err(Error::unreachable("the producer died while it waited for room"));
                }
            };
            if waited.is_err() {
                if !waits {
                    return Ok(None);
                }
                let usage = node.store.lock().usage();
                return Err(Error::new(
                    ErrorKind::Full,
                    format!(
                        "{bytes} bytes of stream '{}' found no room on {} in time: {} of {} bytes are held by steps that \
                         readers have not released",
                        producing.stream, node.id, usage.staged, usage.budget
                    ),
                ));
            }
        }
    }

    async fn put(&mut self, header: &Header, block: PutBlock) -> Result<()> {
        if let Err(error) = self.check_put(&block) {
            if let Bytes::Granted { offset, generation, .. } = block.bytes {
                self.abort(offset, generation);
            }
            self.receiver.discard_payload(header).await?;
            return Err(error);
        }
        let node = self.node.clone();
        let bytes = {
            let producing = self.producing()?;
            let field = producing.field(&block.field)?;
            block.extent.bytes(field.dtype)?
        };
        let mut location = Location { server: node.id, arena: 0, offset: 0, bytes, generation: 0 };
        let mut inline = None;
        match &block.bytes {
            Bytes::Inline(given) => {
                if given.len() as u64 != bytes || given.len() > INLINE_MAX {
                    return Err(Error::protocol(format!(
                        "{} bytes inside a message for a block of {bytes}",
                        given.len()
                    )));
                }
                inline = Some(given.clone());
            }
            Bytes::Granted { arena, offset, generation } => {
                let producing = self.producing()?;
                let granted = producing.grants.get(offset).copied();
                if granted.is_none_or(|grant| grant.generation != *generation || grant.arena != *arena) {
                    return Err(Error::protocol(format!("range {offset} was not granted")));
                }
                producing.grants.remove(offset);
                let committed = node.store.lock().commit(*arena, *offset, *generation, bytes);
                if let Err(error) = committed {
                    node.free([Held { arena: *arena, offset: *offset, generation: *generation }]);
                    return Err(error);
                }
                location = Location { arena: *arena, offset: *offset, generation: *generation, ..location };
            }
            Bytes::Payload => {
                if header.payload != bytes {
                    self.receiver.discard_payload(header).await?;
                    return Err(Error::protocol(format!(
                        "a payload of {} bytes for a block of {bytes}",
                        header.payload
                    )));
                }
                let reserved = self.reserve(bytes, PUT_PATIENCE).await;
                let Ok(Some(grant)) = reserved else {
                    self.receiver.discard_payload(header).await?;
                    return match reserved {
                        Err(error) => Err(error),
                        _ => Err(Error::new(
                            ErrorKind::Full,
                            "there was no room, and the stream's policy is not to wait",
                        )),
                    };
                };
                let mapping = node.store.lock().mapping(grant.arena)?;
                if grant.fresh {
                    mapping.populate(grant.offset, bytes);
                }
                self.receiver.payload_into(&mapping, grant.offset, header).await?;
                self.producing()?.grants.remove(&grant.offset);
                node.store.lock().commit(grant.arena, grant.offset, grant.generation, bytes)?;
                location = Location {
                    arena: grant.arena,
                    offset: grant.offset,
                    generation: grant.generation,
                    ..location
                };
            }
        }
        let producing = self.producing()?;
        let key = key_of(producing.rank, &block);
        let Some(open) = producing.open.as_mut() else { return Err(no_step("a put")) };
        if location.arena != 0 {
            open.held.push(Held {
                arena: location.arena,
                offset: location.offset,
                generation: location.generation,
            });
        }
        open.keys.insert((block.field.clone(), block.number));
        open.sizes.push((block.field.clone(), if inline.is_some() { 0 } else { bytes }));
        let record = BlockRecord {
            key,
            level: block.level,
            extent: block.extent,
            location,
            inline,
            stats: block.stats,
        };
        open.fields.entry(block.field).or_default().push(record);
        Ok(())
    }

    fn check_put(&mut self, block: &PutBlock) -> Result<()> {
        let producing = self.producing()?;
        let field = producing.field(&block.field)?;
        let name = format!("block {} of rank {}", block.number, producing.rank);
        check_block_fits(field, &name, block.extent.offset(), block.extent.shape())?;
        let Some(open) = &producing.open else { return Err(no_step("a put")) };
        if open.keys.contains(&(block.field.clone(), block.number)) {
            return Err(Error::conflict(format!(
                "{name} of field '{}' was already put at step {}; give each block of a step its own number",
                block.field, open.number
            )));
        }
        Ok(())
    }

    fn abort(&mut self, offset: u64, generation: u64) {
        let node = self.node.clone();
        if let Some(producing) = &mut self.producing {
            let granted = producing.grants.get(&offset).is_some_and(|grant| grant.generation == generation);
            if granted {
                producing.grants.remove(&offset);
                node.free([Held { arena: producing.arena, offset, generation }]);
            }
        }
    }

    fn end_step(&mut self, step: StepNumber, blocks: u64, dropped: bool) -> Result<()> {
        let node = self.node.clone();
        let producing = self.producing()?;
        let Some(open) = producing.open.take_if(|open| open.number == step) else {
            return Err(no_step("an end"));
        };
        let unused: Vec<Held> = producing
            .grants
            .drain()
            .map(|(offset, grant)| Held { arena: grant.arena, offset, generation: grant.generation })
            .collect();
        if !unused.is_empty() {
            node.free(unused);
        }
        let arrived: usize = open.fields.values().map(Vec::len).sum();
        let lost = arrived as u64 != blocks;
        if arrived > 0 {
            producing.predicted = open.sizes;
        }
        // All ranks of a step see one demand, so that all decide this alike; their fields may differ.
        if open.demand.is_empty() && arrived == 0 {
            return Ok(());
        }
        let mut fields = Vec::new();
        for (name, blocks) in open.fields {
            fields.push(EndedField { field: producing.field(&name)?.clone(), blocks });
        }
        let ended = StepEnded { step, time: open.time, fields, dropped: dropped || lost };
        let id = StepId { stream: producing.stream.clone(), run: producing.run, step };
        let (stream, run, rank) = (producing.stream.clone(), producing.run, producing.rank);
        let coordinator = node.coordinator_of(&stream);
        let mut state = node.state.lock();
        state.held.entry(id.clone()).or_default().extend(open.held);
        if !node.tell(&mut state, coordinator, PeerMessage::StepEnded { stream, run, rank, ended }) {
            // Nobody will ever read it.
            if let Some(held) = state.held.remove(&id) {
                node.free(held);
            }
        }
        node.drain(&mut state);
        Ok(())
    }

    /// The rank closes its handle as it should.
    fn leave_cleanly(&mut self) {
        if let Some(producing) = &self.producing {
            // Within a step that is not ended, it leaves the step torn.
            producing.leave(&self.node, producing.open.is_some());
        }
    }
}

impl Producing {
    fn try_reserve(&mut self, node: &Node, bytes: u64) -> Result<Option<Grant>> {
        let range = node.store.lock().reserve(self.arena, bytes)?;
        let grant = range.map(|range| Grant {
            arena: self.arena,
            offset: range.offset,
            bytes: range.bytes,
            generation: range.generation,
            fresh: range.fresh,
        });
        if let Some(grant) = grant {
            self.grants.insert(grant.offset, grant);
        }
        Ok(grant)
    }

    /// Ranges for the blocks of the last step, as far as their fields are wanted now and there is room.
    fn grant_predicted(&mut self, node: &Node, demand: &Demand, step: StepNumber) -> Vec<Grant> {
        let mut grants = Vec::new();
        for (name, bytes) in self.predicted.clone() {
            let wanted = bytes > 0 && self.fields.get(&name).is_some_and(|field| demand.wants(field, step));
            if !wanted {
                continue;
            }
            match self.try_reserve(node, bytes) {
                Ok(Some(grant)) => grants.push(grant),
                _ => break,
            }
        }
        grants
    }
}
