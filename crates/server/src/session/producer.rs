//! What a producer's connection does: begins steps, reserves, puts, ends.

use super::Session;
use super::producing::{OpenStep, Producing};
use super::writing::Writing;
use crate::node::Held;
use crate::replicas::{copies_late, range_of};
use forebay_core::attr::Attr;
use forebay_core::block::{BlockRecord, INLINE_MAX, Location};
use forebay_core::contract::Field;
use forebay_core::cut::Begin;
use forebay_core::directory::{check_block_fits, check_blocks};
use forebay_core::ids::{StepId, StepNumber, check_name};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::{BackTo, RunOptions, check_replicas_among};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::frame::{BODY_MAX, Header, encoded_bytes};
use forebay_wire::message::{ANSWERS_PATIENCE, Bytes, PutBlock, ToClient, ToServer, key_of};
use forebay_wire::peer::{JoinedRun, Kept, PeerMessage, Range};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// How much a rank may tell of a step, in bytes as they are encoded: its blocks go to the coordinator in one
/// message. The rest is for what is around them.
const TOLD_MAX: usize = BODY_MAX - (64 << 10);
/// How long a rank may wait for the stream's coordinator when it joins or defines.
const JOIN_PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take until the coordinator is told of a rank's steps, before the rank is to stay for another one.
const SOON_TOLD: Duration = Duration::from_millis(500);
/// How long a flush waits for the coordinator's word on the steps before it.
const HEAR_PATIENCE: Duration = Duration::from_secs(5);

fn no_step(what: &str) -> Error {
    Error::step_order(format!("{what} outside a step: begin one first"))
}

impl Session {
    /// Joins a stream as one rank.
    pub(super) async fn produce(
        &mut self,
        request: u64,
        stream: String,
        rank: u32,
        options: RunOptions,
        back_to: Option<BackTo>,
    ) -> Result<Option<ToClient>> {
        check_name("stream", &stream)?;
        options.check(rank)?;
        if self.producing.is_some() {
            return Err(Error::protocol("this connection produces already"));
        }
        if self.node.leaves.get() {
            return Ok(Some(ToClient::Leaves));
        }
        if back_to.is_none() {
            check_replicas_among(options.replicas, self.node.standing().view.members.len())?;
        }
        let attempt = back_to.as_ref().map_or(0, |back_to| back_to.attempt);
        let (policy, ranks) = (options.policy, options.size);
        let (copies, durability) = (options.copies(), options.durability);
        // The arena first: a rank that could have none must not have joined.
        let writing = Writing::open(&self.node, self.shared_memory)?;
        let begin = writing.begin_page(&self.node);
        let join = |token| PeerMessage::Join {
            token,
            stream: stream.clone(),
            rank,
            options: options.clone(),
            back_to: back_to.clone(),
        };
        let joined = match begin {
            Err(error) => Err(error),
            Ok(begin) => match self.node.ask_coordinator(&stream, rank, JOIN_PATIENCE, join).await {
                Ok(PeerMessage::Joined { result, .. }) => result.map(|joined| (joined, begin)),
                Ok(_) => Err(Error::internal("a coordinator gave another answer than asked for")),
                Err(error) => Err(error),
            },
        };
        let (JoinedRun { run, below, .. }, begin) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                writing.close(&self.node);
                return Err(error);
            }
        };
        if let Some(member) = self.node.state.lock().members.get_mut(&stream)
            && let Some(local) = member.ranks.get_mut(&(run, rank))
        {
            local.begin = begin;
            local.attempt = attempt;
        }
        let told = self.share(request, &writing, |arena| ToClient::Producing { run, below, arena });
        self.producing = Some(Producing {
            stream,
            rank,
            run,
            policy,
            ranks,
            copies,
            durability,
            writing,
            fields: BTreeMap::new(),
            begun: false,
            last: None,
            told_below: 0,
            unheard: false,
            open: None,
            predicted: Vec::new(),
            trouble: None,
            moved: false,
            attempt,
            settled: attempt == 0,
        });
        told
    }

    /// The rank has come back, and stays.
    pub(super) fn settles(&mut self) {
        if let Some(producing) = &mut self.producing {
            producing.settled = true;
        }
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
            ToServer::Put(block) => self.put(header, block).await.map(Some),
            ToServer::End { step, blocks, dropped } => {
                if let Some(kept) = self.end_step(step, blocks, dropped)? {
                    self.wait_for_copies(kept).await?;
                }
                Ok(Some(ToClient::Done))
            }
            ToServer::Began { step, time } => {
                self.begun_alone(step, time)?;
                Ok(Some(ToClient::Done))
            }
            ToServer::Passed { step, time } => {
                self.begun_alone(step, time)?;
                self.end_step(step, 0, false)?;
                Ok(Some(ToClient::Done))
            }
            ToServer::Flush => {
                self.keep_open_step().await?;
                self.hear_of_steps().await;
                self.take_trouble().map_or(Ok(Some(ToClient::Done)), Err)
            }
            ToServer::GoElsewhere => {
                self.steps_are_told().await;
                if self.let_rank_go() {
                    return Ok(Some(ToClient::Leaves));
                }
                Err(Error::step_order("end the step before you go on at another server"))
            }
            _ => {
                self.leave_cleanly();
                // Else the coordinator would take it for one that has lost its home, if this server is gone in a moment.
                if !seeded(Bug::AnswersLeavesAtOnce) {
                    self.hear_of_steps().await;
                }
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
        if let PeerMessage::Answer { result, .. } =
            node.ask_coordinator(&stream, rank, JOIN_PATIENCE, define).await?
        {
            result?;
        }
        let demand = {
            let mut state = node.state.lock();
            state.ledger.defined(&stream, run, field.clone());
            state.members.get(&stream).and_then(|member| member.cut.demand_at(run, StepNumber::MAX))
        };
        let producing = self.producing()?;
        producing.fields.insert(field.name.clone(), field);
        if let Some(demand) = demand {
            producing.writing.touch_ahead(&node, producing.likely_bytes(&demand));
        }
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
        if let PeerMessage::Answer { result, .. } =
            node.ask_coordinator(&stream, rank, JOIN_PATIENCE, set).await?
        {
            result?;
        }
        node.state.lock().ledger.attr_set(&stream, run, field.as_deref(), &key, attr);
        Ok(Some(ToClient::Done))
    }

    /// Waits until the stream's coordinator has taken the steps that the rank has ended, and has said what is wrong
    /// with them. One that does not answer may say so later, if the rank is still there.
    async fn hear_of_steps(&mut self) {
        let (node, patience) = (self.node.clone(), self.patience.min(HEAR_PATIENCE));
        let Some(producing) = &mut self.producing else { return };
        if !std::mem::take(&mut producing.unheard) {
            return;
        }
        if let Some(told) = node.until_told(&producing.key()) {
            let _ = tokio::time::timeout(patience, told).await;
        }
        let stream = producing.stream.clone();
        let heard = |token| PeerMessage::Heard { token, stream: stream.clone() };
        if let Err(error) = node.ask_coordinator(&stream, producing.rank, patience, heard).await {
            tracing::warn!("what is wrong with the last steps of stream '{stream}' is not known: {error}");
        }
    }

    fn take_trouble(&mut self) -> Option<Error> {
        let producing = self.producing.as_mut()?;
        if let Some(own) = producing.trouble.take() {
            // What the coordinator told comes with the next answer.
            return Some(own);
        }
        let key = (producing.run, producing.rank);
        let mut state = self.node.state.lock();
        let member = state.members.get_mut(&producing.stream)?;
        member.ranks.get_mut(&key)?.trouble.take()
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
        self.give_up_open_step(step)?;
        if node.leaves.get() {
            self.steps_are_told().await;
            if self.let_rank_go() {
                return Ok(ToClient::Leaves);
            }
        }
        let shared = self.shared_memory;
        let producing = self.producing()?;
        // What is told of a step, its small blocks among it, is kept here until those that it is told to take it.
        loop {
            let behind = producing.behind(&node, &node.state.lock());
            let Some(behind) = behind else { break };
            if timeout_at(deadline, node.peers.caught_up(behind)).await.is_err() {
                return Err(Error::timeout(format!(
                    "{behind} has not taken what it is told of earlier steps of stream '{}', so that step {step} cannot \
                     begin: it stands still, or is too slow",
                    producing.stream
                )));
            }
        }
        if let Some(last) = producing.last.filter(|last| step <= *last) {
            return Err(Error::step_order(format!(
                "step {step} after step {last}: numbers must grow within a run; after a restart open the stream again \
                 (with `continues`)"
            )));
        }
        if !producing.begun {
            producing.begun = true;
            producing.tell_begun(&node, step);
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
        producing.tell_left_out(&node, step);
        producing.last = Some(step);
        // Over the network a rank cannot write to an arena: ranges are found as its bytes arrive.
        let grants = if shared { producing.grant_predicted(&node, &demand, step) } else { Vec::new() };
        let told = (demand.version != known).then(|| (*demand).clone());
        producing.open = Some(OpenStep::new(step, time, demand));
        let trouble = self.take_trouble();
        self.let_pass(step)?;
        Ok(ToClient::Begun { demand: told, grants, trouble })
    }

    /// A step that is open when `next` begins was begun by a call whose answer came too late: the client, which
    /// keeps the order, has given it up, or asks again.
    fn give_up_open_step(&mut self, next: StepNumber) -> Result<()> {
        let producing = self.producing()?;
        let Some(open) = &producing.open else { return Ok(()) };
        let (number, unused) = (open.number, open.keys.is_empty());
        if next == number && unused {
            producing.open = None;
            producing.last = number.checked_sub(1);
        } else if next > number {
            self.end_step(number, u64::MAX, true)?;
        } else {
            return Err(Error::step_order(format!("step {number} is begun, end it before step {next}")));
        }
        Ok(())
    }

    /// Lets a rank that shares memory begin later steps by itself, as long as the demand that it is now told
    /// holds.
    fn let_pass(&mut self, step: StepNumber) -> Result<()> {
        let node = self.node.clone();
        let producing = self.producing()?;
        let state = node.state.lock();
        if let Some(member) = state.members.get(&producing.stream)
            && producing.behind(&node, &state).is_none()
            && member.cut.is_settled(producing.run, step)
            && let Some(rank) = member.ranks.get(&(producing.run, producing.rank))
            && rank.trouble.is_none()
            && let Some(page) = &rank.begin
        {
            page.may_begin_after(step);
        }
        Ok(())
    }

    /// The rank began a step by itself. Although it may put nothing in it, other ranks may have put something, so
    /// that the coordinator must know.
    fn begun_alone(&mut self, step: StepNumber, time: f64) -> Result<()> {
        let node = self.node.clone();
        let producing = self.producing()?;
        let state = node.state.lock();
        let member = state.members.get(&producing.stream);
        let demand = member.and_then(|member| member.cut.demand_at(producing.run, step));
        drop(state);
        let Some(demand) = demand.filter(|_| producing.open.is_none()) else {
            return Err(no_step("a step that a rank begins by itself"));
        };
        if let Some(last) = producing.last.filter(|last| step <= *last) {
            return Err(Error::step_order(format!("step {step} was begun after step {last}")));
        }
        producing.tell_left_out(&node, step);
        producing.last = Some(step);
        producing.open = Some(OpenStep::new(step, time, demand));
        Ok(())
    }

    /// Takes a block; says where it is if other servers hold it too.
    async fn put(&mut self, header: &Header, block: PutBlock) -> Result<ToClient> {
        let node = self.node.clone();
        let told = match self.check_put(&block) {
            Ok(told) => told,
            Err(error) => {
                if let Bytes::Granted { offset, generation, .. } = block.bytes {
                    self.producing()?.writing.abort(&node, offset, generation);
                }
                self.receiver.discard_payload(header).await?;
                return Err(error);
            }
        };
        let bytes = {
            let producing = self.producing()?;
            let field = producing.field(&block.field)?;
            block.extent.bytes(field.dtype)?
        };
        let mut inline = None;
        let location = match &block.bytes {
            Bytes::Inline(given) => {
                if given.len() as u64 != bytes || given.len() > INLINE_MAX {
                    return Err(Error::protocol(format!(
                        "{} bytes inside a message for a block of {bytes}",
                        given.len()
                    )));
                }
                inline = Some(given.clone());
                Location { server: node.id, arena: 0, offset: 0, bytes, generation: 0 }
            }
            Bytes::Placed(location) => {
                if location.bytes != bytes {
                    return Err(Error::protocol(format!("{} bytes for a block of {bytes}", location.bytes)));
                }
                self.check_there(location).await?;
                *location
            }
            given => self.take_bytes(header, given, bytes).await?,
        };
        let producing = self.producing()?;
        let key = key_of(producing.rank, &block);
        let at_once = producing.copies_at_once();
        let Some(field) = producing.fields.get(&block.field) else { return Err(no_step("a put")) };
        let Some(open) = producing.open.as_mut() else { return Err(no_step("a put")) };
        let here = inline.is_none() && !matches!(block.bytes, Bytes::Placed(_));
        let record = BlockRecord {
            key,
            level: block.level,
            extent: block.extent,
            location,
            inline,
            stats: block.stats,
        };
        // The servers that are told of it refuse anything else, and all of the step with it.
        check_blocks(field, std::slice::from_ref(&record))?;
        if here {
            open.held.push(Held {
                arena: location.arena,
                offset: location.offset,
                generation: location.generation,
            });
        }
        open.told += told;
        open.keys.insert((block.field.clone(), block.number));
        open.sizes.push((block.field.clone(), if here { bytes } else { 0 }));
        open.fields.entry(block.field).or_default().push(record);
        if here && at_once {
            let id = StepId { stream: producing.stream.clone(), run: producing.run, step: open.number };
            let (copies, patience) = (producing.copies, self.patience);
            node.keep_in_time(Kept::Step(id), copies, vec![range_of(&location)], patience).await?;
            return Ok(ToClient::Placed(location));
        }
        Ok(ToClient::Done)
    }

    /// Checks that another server holds a block: of one that is gone, somebody who answers for what that held.
    async fn check_there(&self, location: &Location) -> Result<()> {
        if self.node.standing().view.members.contains(&location.server) {
            return Ok(());
        }
        let deadline = Instant::now() + self.patience.min(ANSWERS_PATIENCE);
        self.node.who_answers(location.server, location.arena, deadline).await.map(drop)
    }

    /// Checks a block against its field and the step so far; returns how many bytes telling of it takes at most.
    fn check_put(&mut self, block: &PutBlock) -> Result<usize> {
        let producing = self.producing()?;
        let field = producing.field(&block.field)?;
        let name = format_args!("block {} of rank {}", block.number, producing.rank);
        check_block_fits(field, name, block.level, &block.extent)?;
        let Some(open) = &producing.open else { return Err(no_step("a put")) };
        if open.keys.contains(&(block.field.clone(), block.number)) {
            return Err(Error::conflict(format!(
                "{name} of field '{}' was already put at step {}; give each block of a step its own number",
                block.field, open.number
            )));
        }
        let first = !open.fields.contains_key(&block.field);
        let told = block.told_bytes_max() + if first { encoded_bytes(field)? } else { 0 };
        if open.told + told > TOLD_MAX {
            return Err(Error::new(
                ErrorKind::OverBudget,
                format!(
                    "{name} of field '{}' at step {}: what rank {} has put in this step already fills a message \
                     of {BODY_MAX} bytes; put fewer blocks a step, or larger ones",
                    block.field, open.number, producing.rank
                ),
            ));
        }
        Ok(told)
    }

    /// Ends a step. What ends when other servers hold copies of it, if they are to.
    fn end_step(
        &mut self,
        step: StepNumber,
        blocks: u64,
        dropped: bool,
    ) -> Result<Option<oneshot::Receiver<Result<()>>>> {
        let node = self.node.clone();
        let producing = self.producing()?;
        let Some(open) = producing.open.take_if(|open| open.number == step) else {
            return Err(no_step("an end"));
        };
        producing.writing.abort_all(&node);
        let arrived: usize = open.fields.values().map(Vec::len).sum();
        let lost = arrived as u64 != blocks;
        if arrived > 0 {
            producing.predicted.clone_from(&open.sizes);
            if producing.writing.got_fresh() {
                let bytes = producing.predicted.iter().map(|(_, bytes)| bytes).sum();
                producing.writing.touch_ahead(&node, bytes);
            }
        }
        let mut copies = None;
        // All ranks of a step see one demand, so that all decide this alike; their fields may differ.
        if !open.demand.is_empty() || arrived > 0 {
            producing.told_below = step.saturating_add(1);
            producing.unheard = true;
            let (done, kept) = (producing.copies > 0).then(oneshot::channel).unzip();
            copies = kept;
            producing.tell_step(&node, open, dropped || lost, false, done)?;
        }
        if !lost && producing.trouble.is_none() {
            producing.say_taken(&node, step);
        }
        Ok(copies)
    }

    /// Waits until other servers hold copies of a step that the rank has ended.
    async fn wait_for_copies(&self, kept: oneshot::Receiver<Result<()>>) -> Result<()> {
        match tokio::time::timeout(self.patience, kept).await {
            Ok(Ok(kept)) => kept,
            Ok(Err(_)) => Err(Error::internal("a step was forgotten while copies of it were made")),
            Err(_) => Err(copies_late()),
        }
    }

    /// Has other servers keep copies of what was put in the step that is open.
    async fn keep_open_step(&mut self) -> Result<()> {
        let (node, patience) = (self.node.clone(), self.patience);
        let Some(producing) = &self.producing else { return Ok(()) };
        let Some(open) = producing.open.as_ref().filter(|_| producing.copies > 0) else { return Ok(()) };
        let here = |block: &&BlockRecord| block.location.server == node.id && block.inline.is_none();
        let ranges: Vec<Range> =
            open.fields.values().flatten().filter(here).map(|block| range_of(&block.location)).collect();
        let id = StepId { stream: producing.stream.clone(), run: producing.run, step: open.number };
        node.keep_in_time(Kept::Step(id), producing.copies, ranges, patience).await
    }

    /// Waits until the coordinator is told of the steps that the rank has ended: not for long, another time will do.
    pub(super) async fn steps_are_told(&self) {
        let told = self.producing.as_ref().and_then(|producing| self.node.until_told(&producing.key()));
        if let Some(told) = told {
            let _ = tokio::time::timeout(SOON_TOLD, told).await;
        }
    }

    /// Lets the rank go on at another home, if it is between two steps: this server leaves the group, or another one has
    /// joined.
    pub(super) fn let_rank_go(&mut self) -> bool {
        let Some(producing) = &mut self.producing else { return false };
        if !producing.moved && producing.is_between_steps(&self.node) {
            producing.moved = true;
            producing.writing.abort_all(&self.node);
            producing.take_off(&self.node, |stream, run, rank| PeerMessage::RankMoves { stream, run, rank });
        }
        producing.moved
    }

    /// The rank closes its handle as it should.
    fn leave_cleanly(&mut self) {
        if let Some(producing) = &mut self.producing {
            // Within a step that is not ended, it leaves the step torn.
            producing.leave(&self.node, producing.open.is_some());
            producing.unheard = true;
            // It writes no more, and its arena is not used again: its process needs not be waited for.
            producing.writing.abort_all(&self.node);
        }
    }
}
