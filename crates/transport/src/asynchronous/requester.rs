//! A connection over which this process asks and is answered: a [`Receiver`] and an [`Outbox`] with the requests that wait on
//! them.

use super::{Outbox, Receiver};
use crate::link::{Kind, Link};
use forebay_core::{Error, Result};
use forebay_store::Mapping;
use forebay_wire::frame::Header;
use forebay_wire::handshake::Prologue;
use forebay_wire::protocol::{Message, Request};
use forebay_wire::request::Requests;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// How many messages that the peer tells unasked may wait for [`Requester::next_event`].
const EVENTS_MAX: usize = 64;

/// Asks the peer that this process has dialled. The connection ends when this is dropped.
///
/// Each wait ends at its deadline, with an error that names the peer and what was awaited. What is answered after that is
/// passed over. After an error of the connection itself, or a time-out within the data of an answer, it is of no more use, and
/// every later request fails with that error; what the peer answers is no such error. A call that is given up before it returns leaves it of no more use, too:
/// drop it then.
#[derive(Debug)]
pub struct Requester {
    peer: String,
    receiver: Receiver,
    outbox: Ending,
    requests: Requests<Vec<OwnedFd>>,
    broken: Option<Error>,
}

/// A sending half whose connection ends when this is dropped, unless somebody else has it by then.
#[derive(Debug)]
struct Ending {
    outbox: Arc<Outbox>,
    is_given_away: bool,
}

/// Where the data of an answer belongs.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The arena. The range is the caller's to write.
    pub mapping: &'a Mapping,
    /// Where the range starts.
    pub offset: u64,
    /// How many bytes are to come.
    pub bytes: u64,
}

impl Requester {
    /// Shakes hands over this link with the peer that `prologue` names. A peer that does not answer in time is a `Timeout`.
    pub async fn connect(
        link: Box<dyn Link>,
        prologue: &Prologue<'_>,
        deadline: Instant,
    ) -> Result<Requester> {
        let peer = prologue.name.to_owned();
        let shaken = timeout_at(deadline, super::connect(link, prologue)).await;
        let shaken = shaken.map_err(|_| late(&peer, "its handshake"))?;
        let (receiver, outbox) = shaken.map_err(|error| error.during(&peer))?;
        let (outbox, requests) = (Ending { outbox, is_given_away: false }, Requests::default());
        Ok(Requester { peer, receiver, outbox, requests, broken: None })
    }

    /// Which transport the connection uses.
    pub fn kind(&self) -> Kind {
        self.receiver.kind()
    }

    /// Both halves, for a connection on which both sides tell and none asks.
    pub fn into_halves(mut self) -> (Receiver, Arc<Outbox>) {
        self.outbox.is_given_away = true;
        (self.receiver, self.outbox.outbox.clone())
    }

    /// Tells the peer something that it does not answer under a request's number.
    pub fn tell<M: Message>(&self, message: &M) -> Result<()> {
        self.push(0, message)
    }

    /// Asks and waits for the answer, of which nothing follows. An answer that says what failed is an error.
    pub async fn ask<Q: Request>(&mut self, question: &Q, deadline: Instant, what: &str) -> Result<Q::Reply> {
        let request = self.requests.open(false);
        let answer = self.answer_to(request, question, deadline, what).await;
        self.requests.close(request);
        answer.map(|(reply, _)| reply)
    }

    /// Asks for bytes and receives them to where they belong. An answer that says what failed is an error.
    pub async fn fetch<Q: Request>(
        &mut self,
        question: &Q,
        target: Target<'_>,
        deadline: Instant,
        what: &str,
    ) -> Result<Q::Reply> {
        let request = self.requests.open(true);
        let received = self.fetch_as(request, question, target, deadline, what).await;
        self.requests.close(request);
        received
    }

    /// What the peer tells next without being asked under a request's number.
    pub async fn next_event<M: Message>(&mut self, deadline: Instant, what: &str) -> Result<M> {
        self.check_whole()?;
        loop {
            if let Some(frame) = self.requests.take_event() {
                return frame.message().map_err(|error| self.break_with(error));
            }
            self.receive(deadline, what).await?;
        }
    }

    async fn fetch_as<Q: Request>(
        &mut self,
        request: u64,
        question: &Q,
        target: Target<'_>,
        deadline: Instant,
        what: &str,
    ) -> Result<Q::Reply> {
        let (reply, header) = self.answer_to(request, question, deadline, what).await?;
        let Target { mapping, offset, bytes } = target;
        if header.payload != bytes {
            let text =
                format!("{} bytes came from {} where {bytes} were asked for", header.payload, self.peer);
            return Err(self.break_with(Error::protocol(text)));
        }
        mapping.populate(offset, bytes);
        let received = timeout_at(deadline, self.receiver.payload_into(mapping, offset, &header)).await;
        self.took_data(bytes, received, what)?;
        Ok(reply)
    }

    /// Asks under this number; the answer, with the header of its frame. Its data is still to be received.
    async fn answer_to<Q: Request>(
        &mut self,
        request: u64,
        question: &Q,
        deadline: Instant,
        what: &str,
    ) -> Result<(Q::Reply, Header)> {
        self.check_whole()?;
        self.push(request, question).map_err(|error| self.break_with(error))?;
        let answer = loop {
            if let Some(answer) = self.requests.take_answer(request) {
                break answer;
            }
            self.receive(deadline, what).await?;
        };
        let said: Result<Q::Reply> = answer.frame.message().map_err(|error| self.break_with(error))?;
        Ok((said?, answer.frame.header))
    }

    fn push<M: Message>(&self, request: u64, message: &M) -> Result<()> {
        let pushed = self.outbox.outbox.push(Header { request, ..Header::default() }, message);
        pushed.map_err(|error| error.during(&self.peer))
    }

    /// Receives the next frame, and keeps it for whoever waits for it. Skips data before it that nobody waits for any more.
    async fn receive(&mut self, deadline: Instant, what: &str) -> Result<()> {
        if let Some(data) = self.requests.data() {
            let unwanted = Header { payload: data.left, sealed_payload: data.sealed, ..Header::default() };
            let skipped = timeout_at(deadline, self.receiver.discard_payload(&unwanted)).await;
            self.took_data(data.left, skipped, what)?;
        }
        let next = timeout_at(deadline, self.receiver.next()).await;
        let received = match next.map_err(|_| late(&self.peer, what))? {
            Ok(Some((frame, files))) => self.requests.accept(frame, files).and_then(|()| self.check_events()),
            Ok(None) => Err(self.ended()),
            Err(error) => Err(error.during(&self.peer)),
        };
        received.map_err(|error| self.break_with(error))
    }

    /// Data that was due has been received, or will not be: a connection that is left within it cannot be read any more.
    fn took_data(
        &mut self,
        bytes: u64,
        taken: std::result::Result<Result<()>, tokio::time::error::Elapsed>,
        what: &str,
    ) -> Result<()> {
        let taken = match taken {
            Ok(taken) => taken.map_err(|error| error.during(&self.peer)),
            Err(_) => Err(late(&self.peer, what)),
        };
        taken.map_err(|error| self.break_with(error))?;
        self.requests.received_data(bytes);
        Ok(())
    }

    /// A peer that tells more than anybody here waits for would fill the memory.
    fn check_events(&self) -> Result<()> {
        match self.requests.events().nth(EVENTS_MAX) {
            Some(_) => Err(Error::protocol(format!("{} tells more than it was asked for", self.peer))),
            None => Ok(()),
        }
    }

    fn check_whole(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// The connection is of no more use, for this reason.
    fn break_with(&mut self, error: Error) -> Error {
        self.broken.get_or_insert(error).clone()
    }

    fn ended(&self) -> Error {
        Error::unreachable(format!("{} ended the connection", self.peer))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_given_away {
            self.outbox.close();
        }
    }
}

fn late(peer: &str, what: &str) -> Error {
    Error::timeout(format!("the deadline passed while waiting for {peer}: {what} did not come"))
}
