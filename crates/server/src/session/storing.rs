//! What a rank's connection to a server that is not its home does: its blocks are placed here.
//!
//! The rank's home is told of each block and where it is; this server only holds the bytes, until the
//! coordinator of the stream says that nothing holds the step any more.

use super::Session;
use super::writing::Writing;
use crate::leaving::leaves;
use crate::node::{Held, Node};
use crate::replicas::range_of;
use forebay_core::ids::{RunNumber, StepId, StepNumber, check_name};
use forebay_core::steps::{Durability, Policy};
use forebay_core::{Error, Result};
use forebay_wire::frame::Header;
use forebay_wire::message::{Bytes, ToClient, ToServer};
use forebay_wire::peer::{Kept, PeerMessage, Range};

/// One rank's blocks on a server that is not its home.
#[derive(Debug)]
pub(crate) struct Storing {
    pub(super) stream: String,
    run: RunNumber,
    rank: u32,
    pub(super) policy: Policy,
    /// How many other servers are to hold copies, and when.
    copies: u32,
    durability: Durability,
    /// Blocks of the open step.
    ranges: Vec<Range>,
    pub(super) writing: Writing,
    /// The step of which blocks were placed here, until the rank says that its home knows them all.
    open: Option<StepNumber>,
}

impl Storing {
    /// Whether each block is copied as soon as it is placed.
    pub(super) fn copies_at_once(&self) -> bool {
        self.copies > 0 && self.durability == Durability::Replicated
    }

    /// Whether the rank's home knows of all that was placed here.
    pub(super) fn is_between_steps(&self) -> bool {
        self.open.is_none()
    }

    /// The rank is gone: what nobody may have been told of goes with its step, or at once.
    pub(crate) fn leave(&mut self, node: &Node) {
        let Some(step) = self.open.take() else { return };
        let id = StepId { stream: self.stream.clone(), run: self.run, step };
        let mut state = node.state.lock();
        let coordinator = node.coordinator_of(&state, &self.stream);
        let stranded = PeerMessage::Stranded { id: id.clone(), rank: self.rank };
        // If that one is gone, the next is told what is held here.
        if !node.tell(&mut state, coordinator, stranded) && node.is_too_far_behind(&state, coordinator) {
            // Nobody will ever read it.
            node.forget_step(&mut state, &id);
        }
        node.drain(&mut state);
    }
}

impl Session {
    /// Stores blocks for a rank whose home is another server.
    pub(super) fn store(
        &mut self,
        request: u64,
        stream: String,
        run: RunNumber,
        rank: u32,
        policy: Policy,
        (copies, durability): (u32, Durability),
    ) -> Result<Option<ToClient>> {
        check_name("stream", &stream)?;
        if self.producing.is_some() || self.storing.is_some() {
            return Err(Error::protocol("this connection stores for a rank already"));
        }
        if self.node.leaves.get() {
            return Err(leaves(self.node.id));
        }
        let writing = Writing::open(&self.node, self.shared_memory)?;
        let told = self.share(request, &writing, ToClient::Storing);
        self.storing = Some(Storing {
            stream,
            run,
            rank,
            policy,
            copies,
            durability,
            ranges: Vec::new(),
            writing,
            open: None,
        });
        told
    }

    /// Holds a block's bytes.
    pub(super) async fn place(
        &mut self,
        header: &Header,
        step: StepNumber,
        size: u64,
        bytes: &Bytes,
    ) -> Result<Option<ToClient>> {
        if self.storing.is_none() {
            self.receiver.discard_payload(header).await?;
            return Err(Error::step_order("say first for which rank blocks are to be stored"));
        }
        let location = self.take_bytes(header, bytes, size).await?;
        let Some(storing) = &mut self.storing else { return Err(Error::internal("storing has ended")) };
        storing.open = Some(step);
        let id = StepId { stream: storing.stream.clone(), run: storing.run, step };
        let held = Held { arena: location.arena, offset: location.offset, generation: location.generation };
        {
            let mut state = self.node.state.lock();
            if state.leaving.goes() {
                self.node.free([held]);
                return Err(leaves(self.node.id));
            }
            state.held.entry(id.clone()).or_default().push(held);
        }
        if storing.copies > 0 {
            let ranges = vec![range_of(&location)];
            if storing.copies_at_once() {
                let copies = storing.copies;
                self.node.keep_in_time(Kept::Step(id), copies, ranges, self.patience).await?;
            } else {
                storing.ranges.extend(ranges);
            }
        }
        Ok(Some(ToClient::Placed(location)))
    }

    /// Any other message of a rank to a server that is not its home.
    pub(super) async fn storing_message(&mut self, message: &ToServer) -> Result<Option<ToClient>> {
        let Some(storing) = &mut self.storing else { return Err(Error::step_order("join a stream first")) };
        match message {
            ToServer::End { step, .. } => {
                if storing.open == Some(*step) {
                    storing.open = None;
                }
                storing.writing.abort_all(&self.node);
                let ranges = std::mem::take(&mut storing.ranges);
                let id = StepId { stream: storing.stream.clone(), run: storing.run, step: *step };
                self.node.keep_in_time(Kept::Step(id), storing.copies, ranges, self.patience).await?;
                Ok(Some(ToClient::Done))
            }
            ToServer::Leave => Ok(Some(ToClient::Done)),
            _ => Err(Error::step_order("the rank's home server is another one")),
        }
    }
}
