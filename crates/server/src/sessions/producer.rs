//! The connection of a rank to its home server: joins a stream, begins steps, reserves, puts, ends.

use super::client::Client;
use super::driving::Driving;
use super::rank::{OpenStep, Rank};
use super::writing::Writing;
use super::{RoleSession, check_no_payload, not_spoken};
use crate::node::Held;
use crate::questions::Answer;
use crate::replicas::copies_late;
use crate::streams::local_ranks::MayBegin;
use forebay_core::attr::Attr;
use forebay_core::block::{BlockRecord, INLINE_MAX, Location};
use forebay_core::contract::Field;
use forebay_core::directory::{check_block_fits, check_blocks};
use forebay_core::ids::{StepId, StepNumber, check_name};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::{Rejoin, RunOptions, check_replicas_among};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::block::{BytesLocation, PutBlock};
use forebay_wire::client::producer::{Event, Reply, Request};
use forebay_wire::client::reading::SUCCESSORS_PATIENCE;
use forebay_wire::frame::{BODY_MAX, Frame, Header, encoded_bytes};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use forebay_wire::peer::streams::{self, JoinedRun};
use forebay_wire::protocol::Protocol;
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

fn not_joined() -> Error {
    Error::step_order("join a stream first")
}

/// A rank's session at its home.
pub(super) struct Session {
    client: Client,
    /// The rank, once it has joined.
    rank: Option<Rank>,
    driving: Driving,
}

impl RoleSession for Session {
    fn client(&self) -> &Client {
        &self.client
    }

    fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<()> {
        let header = frame.header;
        let failed = match frame.protocol()? {
            Protocol::Producer => {
                let request = frame.message()?;
                if !matches!(request, Request::Put(_)) {
                    check_no_payload(&frame)?;
                }
                let answer = self.answer(&header, request).await;
                self.client.finish(header.request, answer)?
            }
            Protocol::Writing => {
                check_no_payload(&frame)?;
                let request = frame.message()?;
                let answer = match &mut self.rank {
                    Some(rank) => rank.target().on_request(&self.client, request).await,
                    None => Err(not_joined()),
                };
                self.client.finish(header.request, answer)?
            }
            other => return Err(not_spoken("a rank to its home", other)),
        };
        match (failed, &mut self.rank) {
            // Something went wrong with a message that is not answered: the next answer tells it.
            (Some(error), Some(rank)) => rank.note(error),
            (failed, _) => super::client::log_unanswered(failed),
        }
        Ok(())
    }

    /// The server leaves the group: the rank is let go, if it is between two steps.
    async fn on_leaving(&mut self) -> bool {
        self.steps_are_told().await;
        let lets_go = self.let_rank_go();
        if lets_go {
            self.client.node.tell_client(&self.client.outbox, &Event::LetGo);
        }
        lets_go
    }

    fn is_over(&self) -> bool {
        self.rank.as_ref().is_some_and(Rank::has_moved)
    }

    fn expects_more_at_once(&self) -> bool {
        self.rank.as_ref().is_some_and(Rank::ends_at_once)
    }

    async fn on_end(&mut self, dubious: bool) {
        let mut rank = self.rank.take();
        if let Some(rank) = &mut rank {
            rank.leave(&self.client.node, true);
        }
        let writes = rank.as_ref().is_some_and(|rank| !rank.writing.is_idle());
        self.client.until_memory_is_unused(writes || dubious).await;
        if let Some(rank) = rank {
            rank.give_back(&self.client.node);
        }
    }
}

impl Session {
    pub(super) fn new(client: Client) -> Session {
        Session { client, rank: None, driving: Driving::default() }
    }

    /// Handles one request. What says that something is kept is said only while the group stands behind this server.
    async fn answer(&mut self, header: &Header, request: Request) -> Result<Option<Reply>> {
        let acknowledges = header.request != 0 && self.acknowledges(&request);
        let answer = self.on_request(header, request).await?;
        if acknowledges && matches!(answer, Some(Reply::Done | Reply::Placed(_))) {
            self.client.node.may_acknowledge(self.client.patience).await?;
        }
        Ok(answer)
    }

    /// Whether the answer to a request says that what was put is kept, whatever happens to this server.
    fn acknowledges(&self, request: &Request) -> bool {
        match request {
            Request::End { .. } | Request::Flush => true,
            Request::Close => !seeded(Bug::AnswersLeavesAtOnce),
            Request::Put(_) => self.rank.as_ref().is_some_and(Rank::copies_at_once),
            _ => false,
        }
    }

    /// Handles one request; `None` if it is answered already or needs no answer.
    async fn on_request(&mut self, header: &Header, request: Request) -> Result<Option<Reply>> {
        match request {
            Request::Join { stream, rank, options, back_to } => {
                return self.join(header.request, stream, rank, options, back_to).await;
            }
            Request::Settle => {
                self.settle();
                return Ok(None);
            }
            _ if self.rank.is_none() => {
                self.client.receiver.discard_payload(header).await?;
                return Err(not_joined());
            }
            Request::Drive(drive) => {
                let joined = self.rank()?;
                if !joined.is(&drive.stream, drive.run, drive.rank) {
                    return Err(Error::protocol("another rank than this one drives a pipeline"));
                }
                self.driving.on_request(&self.client, header.request, *drive).await?;
                return Ok(None);
            }
            Request::Define(field) => self.define(field).await?,
            Request::SetAttr { field, key, attr } => self.set_attr(field, key, attr).await?,
            Request::Begin { step, time, known, patience_ms } => {
                return self.begin(step, time, known, Duration::from_millis(patience_ms)).await.map(Some);
            }
            Request::BeganAlone { step, time, ended } => {
                self.on_began_alone(step, time)?;
                if ended {
                    self.end_step(step, 0, false)?;
                }
            }
            Request::Put(block) => return self.put(header, block).await.map(Some),
            Request::End { step, blocks, dropped } => {
                if let Some(kept) = self.end_step(step, blocks, dropped)? {
                    self.wait_for_copies(kept).await?;
                }
            }
            Request::Flush => {
                self.keep_open_step().await?;
                self.hear_of_steps().await;
                if let Some(error) = self.take_deferred() {
                    return Err(error);
                }
            }
            Request::Close => {
                self.leave_cleanly();
                // Else the coordinator would take it for one that has lost its home, if this server is gone in a moment.
                if !seeded(Bug::AnswersLeavesAtOnce) {
                    self.hear_of_steps().await;
                }
            }
            Request::Move => {
                self.steps_are_told().await;
                if !self.let_rank_go() {
                    return Err(Error::step_order("end the step before you go on at another server"));
                }
                return Ok(Some(Reply::LetGo));
            }
        }
        Ok(Some(Reply::Done))
    }

    /// Joins a stream as one rank.
    async fn join(
        &mut self,
        request: u64,
        stream: String,
        rank: u32,
        options: RunOptions,
        back_to: Option<Rejoin>,
    ) -> Result<Option<Reply>> {
        let node = self.client.node.clone();
        check_name("stream", &stream)?;
        options.check(rank)?;
        if self.rank.is_some() {
            return Err(Error::protocol("this connection produces already"));
        }
        if node.leaves.get() {
            return Ok(Some(Reply::LetGo));
        }
        if back_to.is_none() {
            check_replicas_among(options.replicas, node.standing().view.members.len())?;
        }
        let attempt = back_to.as_ref().map_or(0, |back_to| back_to.attempt);
        // The arena first: a rank that could have none must not have joined.
        let writing = Writing::open(&node, self.client.shared_memory)?;
        let begin = writing.begin_page(&node);
        let join = |token| streams::Message::Join {
            token,
            stream: stream.clone(),
            rank,
            options: options.clone(),
            back_to: back_to.clone(),
        };
        let joined = match begin {
            Err(error) => Err(error),
            Ok(begin) => match node.ask_coordinator(&stream, rank, JOIN_PATIENCE, join).await {
                Ok(Answer::Joined(result)) => result.map(|joined| (joined, begin)),
                Ok(_) => Err(Error::internal("a coordinator gave another answer than asked for")),
                Err(error) => Err(error),
            },
        };
        let (JoinedRun { run, below, .. }, begin) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                writing.close(&node);
                return Err(error);
            }
        };
        let key = (stream, run, rank);
        node.state.lock().ranks.on_connected(&key, begin, attempt);
        let told = writing.share(&self.client, request, |arena| Reply::Joined { run, below, arena });
        self.rank = Some(Rank::new(key, &options, attempt, writing));
        told
    }

    /// The rank has come back, and stays.
    fn settle(&mut self) {
        if let Some(rank) = &mut self.rank {
            rank.settled = true;
        }
    }

    /// The rank, which has joined.
    fn rank(&mut self) -> Result<&mut Rank> {
        self.rank.as_mut().ok_or_else(not_joined)
    }

    async fn define(&mut self, field: Field) -> Result<()> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        if rank.open.is_some() {
            return Err(Error::step_order(format!("field '{}' cannot be defined within a step", field.name)));
        }
        field.check()?;
        let (stream, run, number) = rank.key();
        let define = |token| streams::Message::Define {
            token,
            stream: stream.clone(),
            run,
            rank: number,
            field: field.clone(),
        };
        if let Answer::Done(result) = node.ask_coordinator(&stream, number, JOIN_PATIENCE, define).await? {
            result?;
        }
        let demand = node.state.lock().ranks.on_defined(&stream, run, field.clone());
        let rank = self.rank()?;
        rank.fields.insert(field.name.clone(), field);
        if let Some(demand) = demand {
            rank.writing.prefault(&node, rank.likely_bytes(&demand));
        }
        Ok(())
    }

    async fn set_attr(&mut self, field: Option<String>, key: String, attr: Attr) -> Result<()> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        if rank.open.is_some() {
            return Err(Error::step_order(format!("attribute '{key}' cannot be set within a step")));
        }
        attr.check(&key)?;
        let (stream, run, number) = rank.key();
        let set = |token| {
            let (stream, field, key, attr) = (stream.clone(), field.clone(), key.clone(), attr.clone());
            streams::Message::SetAttr { token, stream, run, field, key, attr }
        };
        if let Answer::Done(result) = node.ask_coordinator(&stream, number, JOIN_PATIENCE, set).await? {
            result?;
        }
        node.state.lock().ranks.on_attr_set(&stream, run, field.as_deref(), &key, attr);
        Ok(())
    }

    /// Waits until the stream's coordinator has taken the steps that the rank has ended, and has said what is wrong
    /// with them. One that does not answer may say so later, if the rank is still there.
    async fn hear_of_steps(&mut self) {
        let (node, patience) = (self.client.node.clone(), self.client.patience.min(HEAR_PATIENCE));
        let Some(rank) = &mut self.rank else { return };
        if !std::mem::take(&mut rank.unheard) {
            return;
        }
        if let Some(told) = node.until_told(&rank.key()) {
            let _ = tokio::time::timeout(patience, told).await;
        }
        let stream = rank.stream.clone();
        let heard = |token| streams::Message::Sync { token, stream: stream.clone() };
        if let Err(error) = node.ask_coordinator(&stream, rank.rank, patience, heard).await {
            tracing::warn!("what is wrong with the last steps of stream '{stream}' is not known: {error}");
        }
    }

    fn take_deferred(&mut self) -> Option<Error> {
        let rank = self.rank.as_mut()?;
        if let Some(own) = rank.deferred.take() {
            // What the coordinator told comes with the next answer.
            return Some(own);
        }
        self.client.node.state.lock().ranks.take_error(&rank.key())
    }

    async fn begin(&mut self, step: StepNumber, time: f64, known: u64, patience: Duration) -> Result<Reply> {
        let deadline = Instant::now() + patience;
        let node = self.client.node.clone();
        self.give_up_open_step(step)?;
        if node.leaves.get() {
            self.steps_are_told().await;
            if self.let_rank_go() {
                return Ok(Reply::LetGo);
            }
        }
        let shared = self.client.shared_memory;
        let rank = self.rank()?;
        // What is told of a step, its small blocks among it, is kept here until those that it is told to take it.
        loop {
            let behind = rank.behind(&node, &node.state.lock());
            let Some(behind) = behind else { break };
            if timeout_at(deadline, node.peers.caught_up(behind)).await.is_err() {
                return Err(Error::timeout(format!(
                    "{behind} has not taken what it is told of earlier steps of stream '{}', so that step {step} cannot \
                     begin: it stands still, or is too slow",
                    rank.stream
                )));
            }
        }
        if let Some(last) = rank.last.filter(|last| step <= *last) {
            return Err(Error::step_order(format!(
                "step {step} after step {last}: numbers must grow within a run; after a restart open the stream again \
                 (with `continues`)"
            )));
        }
        if !rank.begun {
            rank.begun = true;
            rank.tell_begun(&node, step);
        }
        let demand = loop {
            let changed = match node.state.lock().ranks.begin(&rank.stream, rank.run, step)? {
                MayBegin::Now(demand) => break demand,
                MayBegin::Wait(changed) => changed,
            };
            if timeout_at(deadline, changed).await.is_err() {
                return Err(Error::timeout(format!(
                    "the servers did not agree on the demand of step {step} of stream '{}' in time",
                    rank.stream
                )));
            }
        };
        rank.tell_left_out(&node, step);
        rank.last = Some(step);
        // Over the network a rank cannot write to an arena: ranges are found as its bytes arrive.
        let grants = if shared { rank.grant_predicted(&node, &demand, step) } else { Vec::new() };
        let told = (demand.version != known).then(|| (*demand).clone());
        rank.open = Some(OpenStep::new(step, time, demand));
        let deferred = self.take_deferred();
        self.allow_begin_alone(step)?;
        Ok(Reply::Begun { demand: told, grants, deferred })
    }

    /// A step that is open when `next` begins was begun by a call whose answer came too late: the client, which
    /// keeps the order, has given it up, or asks again.
    fn give_up_open_step(&mut self, next: StepNumber) -> Result<()> {
        let rank = self.rank()?;
        let Some(open) = &rank.open else { return Ok(()) };
        let (number, unused) = (open.number, open.keys.is_empty());
        if next == number && unused {
            rank.open = None;
            rank.last = number.checked_sub(1);
        } else if next > number {
            self.end_step(number, u64::MAX, true)?;
        } else {
            return Err(Error::step_order(format!("step {number} is begun, end it before step {next}")));
        }
        Ok(())
    }

    /// Lets a rank that shares memory begin later steps by itself, as long as the demand that it is now told
    /// holds.
    fn allow_begin_alone(&mut self, step: StepNumber) -> Result<()> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        let state = node.state.lock();
        if rank.behind(&node, &state).is_none() {
            state.ranks.may_begin_after(&rank.key(), step);
        }
        Ok(())
    }

    /// The rank began a step by itself. Although it may put nothing in it, other ranks may have put something, so
    /// that the coordinator must know.
    fn on_began_alone(&mut self, step: StepNumber, time: f64) -> Result<()> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        let demand = node.state.lock().ranks.demand_at(&rank.stream, rank.run, step);
        let Some(demand) = demand.filter(|_| rank.open.is_none()) else {
            return Err(no_step("a step that a rank begins by itself"));
        };
        if let Some(last) = rank.last.filter(|last| step <= *last) {
            return Err(Error::step_order(format!("step {step} was begun after step {last}")));
        }
        rank.tell_left_out(&node, step);
        rank.last = Some(step);
        rank.open = Some(OpenStep::new(step, time, demand));
        Ok(())
    }

    /// Takes a block; says where it is if other servers hold it too.
    async fn put(&mut self, header: &Header, block: PutBlock) -> Result<Reply> {
        let node = self.client.node.clone();
        let told = match self.check_put(&block) {
            Ok(told) => told,
            Err(error) => {
                if let BytesLocation::Granted { offset, generation, .. } = block.bytes {
                    self.rank()?.writing.abort(&node, offset, generation);
                }
                self.client.receiver.discard_payload(header).await?;
                return Err(error);
            }
        };
        let bytes = {
            let rank = self.rank()?;
            let field = rank.field(&block.field)?;
            block.extent.bytes(field.dtype)?
        };
        let location = self.take_bytes(header, &block.bytes, bytes).await?;
        let inline = match &block.bytes {
            BytesLocation::Inline(given) => Some(given.clone()),
            _ => None,
        };
        let rank = self.rank()?;
        let key = block.key(rank.rank);
        let at_once = rank.copies_at_once();
        let Some(field) = rank.fields.get(&block.field) else { return Err(no_step("a put")) };
        let Some(open) = rank.open.as_mut() else { return Err(no_step("a put")) };
        let here = inline.is_none() && !matches!(block.bytes, BytesLocation::Placed(_));
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
            let id = StepId { stream: rank.stream.clone(), run: rank.run, step: open.number };
            let (copies, patience) = (rank.copies, self.client.patience);
            node.keep_in_time(ReplicaUnit::Step(id), copies, vec![BlockRange::from(&location)], patience)
                .await?;
            return Ok(Reply::Placed(location));
        }
        Ok(Reply::Done)
    }

    /// Takes the bytes of a block that is to have so many; where they are.
    async fn take_bytes(&mut self, header: &Header, given: &BytesLocation, bytes: u64) -> Result<Location> {
        match given {
            BytesLocation::Inline(given) => {
                if given.len() as u64 != bytes || given.len() > INLINE_MAX {
                    return Err(Error::protocol(format!(
                        "{} bytes inside a message for a block of {bytes}",
                        given.len()
                    )));
                }
                let server = self.client.node.id;
                Ok(Location { server, arena: 0, offset: 0, bytes, generation: 0 })
            }
            BytesLocation::Placed(location) => {
                if location.bytes != bytes {
                    return Err(Error::protocol(format!("{} bytes for a block of {bytes}", location.bytes)));
                }
                self.check_there(location).await?;
                Ok(*location)
            }
            given => {
                let Some(rank) = &mut self.rank else { return Err(not_joined()) };
                rank.target().take_bytes(&mut self.client, header, given, bytes).await
            }
        }
    }

    /// Checks that another server holds a block: of one that is gone, somebody who answers for what that held.
    async fn check_there(&self, location: &Location) -> Result<()> {
        if self.client.node.standing().view.members.contains(&location.server) {
            return Ok(());
        }
        let deadline = Instant::now() + self.client.patience.min(SUCCESSORS_PATIENCE);
        self.client.node.who_answers(location.server, location.arena, deadline).await.map(drop)
    }

    /// Checks a block against its field and the step so far; returns how many bytes telling of it takes at most.
    fn check_put(&mut self, block: &PutBlock) -> Result<usize> {
        let rank = self.rank()?;
        let field = rank.field(&block.field)?;
        let name = format_args!("block {} of rank {}", block.number, rank.rank);
        check_block_fits(field, name, block.level, &block.extent)?;
        let Some(open) = &rank.open else { return Err(no_step("a put")) };
        if open.keys.contains(&(block.field.clone(), block.number)) {
            return Err(Error::conflict(format!(
                "{name} of field '{}' was already put at step {}; give each block of a step its own number",
                block.field, open.number
            )));
        }
        let first = !open.fields.contains_key(&block.field);
        let told = block.record_bytes_max() + if first { encoded_bytes(field)? } else { 0 };
        if open.told + told > TOLD_MAX {
            return Err(Error::new(
                ErrorKind::OverBudget,
                format!(
                    "{name} of field '{}' at step {}: what rank {} has put in this step already fills a message \
                     of {BODY_MAX} bytes; put fewer blocks a step, or larger ones",
                    block.field, open.number, rank.rank
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
        let node = self.client.node.clone();
        let rank = self.rank()?;
        let Some(open) = rank.open.take_if(|open| open.number == step) else {
            return Err(no_step("an end"));
        };
        rank.writing.abort_all(&node);
        let arrived: usize = open.fields.values().map(Vec::len).sum();
        let lost = arrived as u64 != blocks;
        if arrived > 0 {
            rank.predicted.clone_from(&open.sizes);
            if rank.writing.got_fresh() {
                let bytes = rank.predicted.iter().map(|(_, bytes)| bytes).sum();
                rank.writing.prefault(&node, bytes);
            }
        }
        let mut copies = None;
        // All ranks of a step see one demand, so that all decide this alike; their fields may differ.
        if !open.demand.is_empty() || arrived > 0 {
            rank.told_below = step.saturating_add(1);
            rank.unheard = true;
            let (done, kept) = (rank.copies > 0).then(oneshot::channel).unzip();
            copies = kept;
            rank.tell_step(&node, open, dropped || lost, false, done)?;
        }
        if !lost && rank.deferred.is_none() {
            rank.say_taken(&node, step);
        }
        Ok(copies)
    }

    /// Waits until other servers hold copies of a step that the rank has ended.
    async fn wait_for_copies(&self, kept: oneshot::Receiver<Result<()>>) -> Result<()> {
        match tokio::time::timeout(self.client.patience, kept).await {
            Ok(Ok(kept)) => kept,
            Ok(Err(_)) => Err(Error::internal("a step was forgotten while copies of it were made")),
            Err(_) => Err(copies_late()),
        }
    }

    /// Has other servers keep copies of what was put in the step that is open.
    async fn keep_open_step(&mut self) -> Result<()> {
        let (node, patience) = (self.client.node.clone(), self.client.patience);
        let Some(rank) = &self.rank else { return Ok(()) };
        let Some(open) = rank.open.as_ref().filter(|_| rank.copies > 0) else { return Ok(()) };
        let here = |block: &&BlockRecord| block.location.server == node.id && block.inline.is_none();
        let ranges: Vec<BlockRange> = open
            .fields
            .values()
            .flatten()
            .filter(here)
            .map(|block| BlockRange::from(&block.location))
            .collect();
        let id = StepId { stream: rank.stream.clone(), run: rank.run, step: open.number };
        node.keep_in_time(ReplicaUnit::Step(id), rank.copies, ranges, patience).await
    }

    /// Waits until the coordinator is told of the steps that the rank has ended: not for long, another time will do.
    async fn steps_are_told(&self) {
        let told = self.rank.as_ref().and_then(|rank| self.client.node.until_told(&rank.key()));
        if let Some(told) = told {
            let _ = tokio::time::timeout(SOON_TOLD, told).await;
        }
    }

    /// Lets the rank go on at another home, if it is between two steps: this server leaves the group, or another one has
    /// joined.
    fn let_rank_go(&mut self) -> bool {
        let Some(rank) = &mut self.rank else { return false };
        if !rank.moved && rank.is_between_steps(&self.client.node) {
            rank.moved = true;
            rank.writing.abort_all(&self.client.node);
            rank.take_off(&self.client.node, |stream, run, rank| streams::Message::RankMoves {
                stream,
                run,
                rank,
            });
        }
        rank.moved
    }

    /// The rank closes its handle as it should.
    fn leave_cleanly(&mut self) {
        if let Some(rank) = &mut self.rank {
            // Within a step that is not ended, it leaves the step torn.
            rank.leave(&self.client.node, rank.open.is_some());
            rank.unheard = true;
            // It writes no more, and its arena is not used again: its process needs not be waited for.
            rank.writing.abort_all(&self.client.node);
        }
    }
}
