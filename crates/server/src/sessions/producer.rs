//! The connection of a rank to its home server.
//!
//! - this module: the session, and where each request goes;
//! - `join`: joining a stream; `steps`: beginning and ending a step; `put`: putting a block;
//! - `waits`: what is waited for on behalf of the rank.

mod join;
mod put;
mod steps;
mod waits;

use super::client::Client;
use super::driving::Driving;
use super::rank::Rank;
use super::role_session::{RoleSession, not_spoken};
use super::{payload, receive};
use forebay_core::attr::Attrs;
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::RankEnd;
use forebay_core::{Error, Result};
use forebay_wire::client::producer::{Event, Reply, Request};
use forebay_wire::frame::{Frame, Header};
use forebay_wire::peer::streams;
use forebay_wire::protocol::Protocol;
use std::time::Duration;

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
                let request = payload::message(&frame, |request| matches!(request, Request::Put(_)))?;
                let answer = self.answer(&header, request).await;
                self.client.finish(header.request, answer)?
            }
            Protocol::Writing => {
                let target = self.rank.as_mut().map(Rank::target).ok_or_else(not_joined);
                receive::on_frame(&self.client, target, &frame).await?
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
            rank.leave(&self.client.node, RankEnd::Died);
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
        let acknowledges = self.acknowledges(&request);
        let answer = self.on_request(header, request).await?;
        if acknowledges && matches!(answer, Some(Reply::Done | Reply::Placed(_))) {
            self.client.may_acknowledge(header.request).await?;
        }
        Ok(answer)
    }

    /// Whether the answer to a request says that what was put is kept, whatever happens to this server.
    fn acknowledges(&self, request: &Request) -> bool {
        match request {
            Request::End { .. } | Request::Flush => true,
            Request::Close(_) => !seeded(Bug::AnswersLeavesAtOnce),
            Request::Put(_) => self.rank.as_ref().is_some_and(Rank::copies_at_once),
            _ => false,
        }
    }

    /// Handles one request; `None` if it is answered already or needs no answer.
    async fn on_request(&mut self, header: &Header, request: Request) -> Result<Option<Reply>> {
        match request {
            Request::Join { stream, joining, back_to } => {
                return self.join(header.request, stream, joining, back_to).await;
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
                    self.end_step(step, (0, false), Vec::new(), Attrs::default())?;
                }
            }
            Request::Put(block) => return self.put(header, block).await.map(Some),
            Request::End { step, blocks, dropped, stats, attrs } => {
                if let Some(kept) = self.end_step(step, (blocks, dropped), stats, attrs)? {
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
            Request::Close(counts) => {
                self.leave(RankEnd::Closed(counts));
                // Else the coordinator would take it for one that has lost its home, if this server is gone in a moment.
                if !seeded(Bug::AnswersLeavesAtOnce) {
                    self.hear_of_steps().await;
                    self.closing_is_noted().await;
                }
            }
            Request::Abandon => self.leave(RankEnd::Died),
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

    /// The rank, which has joined.
    fn rank(&mut self) -> Result<&mut Rank> {
        self.rank.as_mut().ok_or_else(not_joined)
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

    /// The rank closes its handle, or gives itself up.
    fn leave(&mut self, end: RankEnd) {
        if let Some(rank) = &mut self.rank {
            // Within a step that is not ended, it leaves the step torn.
            rank.leave(&self.client.node, end);
            rank.unheard = true;
            // It writes no more, and its arena is not used again: its process needs not be waited for.
            rank.writing.abort_all(&self.client.node);
        }
    }
}
