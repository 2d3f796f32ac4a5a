//! A rank's connection to a server that is not its home: its blocks are placed here.
//!
//! The rank's home is told of each block and where it is; this server only holds the bytes, until the
//! coordinator of the stream says that nothing holds the step any more.

use super::client::{Client, log_unanswered};
use super::payload;
use super::receive::{self, BlockDestination};
use super::role_session::{RoleSession, not_spoken};
use super::writing::Writing;
use crate::held::Held;
use forebay_core::ids::{RunNumber, ServerId, StepId, StepNumber, check_name};
use forebay_core::steps::{Durability, Policy};
use forebay_core::{Error, Result};
use forebay_wire::client::block::BytesLocation;
use forebay_wire::client::placement::{Event, Reply, Request};
use forebay_wire::frame::{Frame, Header};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use forebay_wire::peer::streams;
use forebay_wire::protocol::Protocol;

/// The session of a rank that places blocks here.
pub(super) struct Session {
    client: Client,
    rank: Option<Rank>,
}

/// One rank's blocks here.
#[derive(Debug)]
struct Rank {
    stream: String,
    run: RunNumber,
    rank: u32,
    policy: Policy,
    /// How many other servers are to hold copies, and when.
    copies: u32,
    durability: Durability,
    /// Blocks of the open step.
    ranges: Vec<BlockRange>,
    writing: Writing,
    /// The step of which blocks were placed here, until the rank says that its home knows them all.
    open: Option<StepNumber>,
}

impl Rank {
    /// Whether each block is copied as soon as it is placed.
    fn copies_at_once(&self) -> bool {
        self.copies > 0 && self.durability == Durability::Replicated
    }

    fn target(&mut self) -> BlockDestination<'_> {
        BlockDestination { writing: &mut self.writing, stream: &self.stream, policy: self.policy }
    }
}

fn not_opened() -> Error {
    Error::step_order("say first for which rank blocks are to be held")
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
            Protocol::Placement => {
                let places = |request: &Request| matches!(request, Request::Place { .. });
                let request = payload::message(&frame, places)?;
                let answer = self.on_request(&header, request).await;
                self.client.finish(header.request, answer)?
            }
            Protocol::Writing => {
                let target = self.rank.as_mut().map(Rank::target).ok_or_else(not_opened);
                receive::on_frame(&self.client, target, &frame).await?
            }
            other => return Err(not_spoken("a rank to a server that is not its home", other)),
        };
        log_unanswered(failed);
        Ok(())
    }

    async fn on_leaving(&mut self) -> bool {
        let is_between_steps = self.rank.as_ref().is_some_and(|rank| rank.open.is_none());
        if is_between_steps {
            self.client.node.tell_client(&self.client.outbox, &Event::LetGo);
        }
        is_between_steps
    }

    async fn on_end(&mut self, dubious: bool) {
        self.strand();
        let rank = self.rank.take();
        let writes = rank.as_ref().is_some_and(|rank| !rank.writing.is_idle());
        self.client.until_memory_is_unused(writes || dubious).await;
        if let Some(rank) = rank {
            rank.writing.close(&self.client.node);
        }
    }
}

impl Session {
    pub(super) fn new(client: Client) -> Session {
        Session { client, rank: None }
    }

    async fn on_request(&mut self, header: &Header, request: Request) -> Result<Option<Reply>> {
        match request {
            Request::Open { stream, run, rank, policy, copies, durability } => {
                self.check_may_open(&stream)?;
                let writing = Writing::open(&self.client.node, self.client.shared_memory)?;
                let told = writing.share(&self.client, header.request, Reply::Opened);
                let (ranges, open) = (Vec::new(), None);
                self.rank =
                    Some(Rank { stream, run, rank, policy, copies, durability, ranges, writing, open });
                told
            }
            Request::Place { step, size, bytes } => self.place(header, step, size, &bytes).await,
            Request::End { step } => self.end_step(header, step).await,
        }
    }

    fn check_may_open(&self, stream: &str) -> Result<()> {
        check_name("stream", stream)?;
        if self.rank.is_some() {
            return Err(Error::protocol("this connection places blocks of a rank already"));
        }
        if self.client.node.leaves.get() {
            return Err(leaves(self.client.node.id));
        }
        Ok(())
    }

    /// Holds a block's bytes.
    async fn place(
        &mut self,
        header: &Header,
        step: StepNumber,
        size: u64,
        bytes: &BytesLocation,
    ) -> Result<Option<Reply>> {
        let Some(rank) = &mut self.rank else {
            self.client.receiver.discard_payload(header).await?;
            return Err(not_opened());
        };
        let location = rank.target().take_bytes(&mut self.client, header, bytes, size).await?;
        rank.open = Some(step);
        let id = StepId { stream: rank.stream.clone(), run: rank.run, step };
        let held = Held::from(&location);
        let node = self.client.node.clone();
        {
            let mut state = node.state.lock();
            if state.common.members.goes() {
                node.free([held]);
                return Err(leaves(node.id));
            }
            state.holdings.add(&id, [held]);
        }
        if rank.copies > 0 {
            let ranges = vec![BlockRange::from(&location)];
            if rank.copies_at_once() {
                let (copies, patience) = (rank.copies, self.client.patience);
                node.replicate_in_time(ReplicaUnit::Step(id), copies, ranges, patience).await?;
                self.client.may_acknowledge(header.request).await?;
            } else {
                rank.ranges.extend(ranges);
            }
        }
        Ok(Some(Reply::Placed(location)))
    }

    /// The rank's home knows all blocks of a step that are here.
    async fn end_step(&mut self, header: &Header, step: StepNumber) -> Result<Option<Reply>> {
        let Some(rank) = &mut self.rank else { return Err(not_opened()) };
        if rank.open == Some(step) {
            rank.open = None;
        }
        let node = self.client.node.clone();
        rank.writing.abort_all(&node);
        let ranges = std::mem::take(&mut rank.ranges);
        let id = StepId { stream: rank.stream.clone(), run: rank.run, step };
        node.replicate_in_time(ReplicaUnit::Step(id), rank.copies, ranges, self.client.patience).await?;
        self.client.may_acknowledge(header.request).await?;
        Ok(Some(Reply::Done))
    }

    /// The rank is gone: what nobody may have been told of goes with its step, or at once.
    fn strand(&mut self) {
        let Some(rank) = &mut self.rank else { return };
        let Some(step) = rank.open.take() else { return };
        let node = &self.client.node;
        let id = StepId { stream: rank.stream.clone(), run: rank.run, step };
        let mut state = node.state.lock();
        let coordinator = node.coordinator_of(&state, &rank.stream);
        let stranded = streams::Message::BlocksStranded { id: id.clone(), rank: rank.rank };
        // If that one is gone, the next is told what is held here.
        if !node.tell(&mut state, coordinator, stranded) && node.is_too_far_behind(&state, coordinator) {
            // Nobody will ever read it.
            node.forget_step(&mut state, &id);
        }
        node.drain(&mut state);
    }
}

/// The error for what a server that leaves is asked to take.
fn leaves(server: ServerId) -> Error {
    Error::unreachable(format!("{server} leaves the group"))
}
