//! What comes through the memory that is shared with one process.

use crate::mail::{Admission, Envelope, Lent, Mail, StreamId};
use crate::peers::{Link, PeerId, Peers};
use crate::shared::{Direction, Foreign, HEAD, Head, Kind, Reader};
use crate::target::{Target, first_of};
use forebay_core::{Error, Result};
use forebay_wire::comm::Label;
use std::collections::HashMap;
use std::sync::Arc;

/// How much of a loan is read before others get their turn.
const TURN: usize = 4 << 20;
/// How much of it at once where something is made of it: so it is still in a cache.
const PORTION: usize = 64 << 10;
/// How many long messages may come in pieces at once.
const STREAMS_MAX: usize = 1 << 16;

/// The reading end of the memory that is shared with one process.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Who writes.
    peer: Option<PeerId>,
    pub(crate) link: Arc<Link>,
    reader: Reader<Direction>,
    inward: Direction,
    /// The process itself, if its memory can be read.
    foreign: Option<Foreign>,
    /// Long messages that come in pieces, by their numbers.
    streams: HashMap<u32, StreamId>,
    /// There was no room for the next message when so much had been eased.
    blocked_at: Option<u64>,
    /// Where a record's bytes are on their way to what is made of them.
    scratch: Vec<u8>,
}

/// A message that is being read where it lies.
#[derive(Debug)]
pub(crate) struct Reading {
    stream: StreamId,
    lent: Lent,
    has_begun: bool,
    at: u64,
}

impl Reading {
    pub(crate) fn new(stream: StreamId, lent: Lent) -> Reading {
        Reading { stream, lent, has_begun: false, at: 0 }
    }

    /// The message that it becomes.
    pub(crate) fn stream(&self) -> StreamId {
        self.stream
    }

    /// Over which connection it was lent.
    pub(crate) fn link(&self) -> u64 {
        self.lent.link
    }
}

/// What stands first in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// It was what is wanted, and is received.
    Received(Envelope),
    Nothing,
    Other,
}

/// How far a reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    More,
    Done,
}

impl Channel {
    pub(crate) fn new(
        peer: Option<PeerId>,
        link: Arc<Link>,
        inward: Direction,
        foreign: Option<Foreign>,
    ) -> Channel {
        let reader = Reader::new(inward.clone());
        Channel {
            peer,
            link,
            reader,
            inward,
            foreign,
            streams: HashMap::new(),
            blocked_at: None,
            scratch: Vec::new(),
        }
    }

    /// There is room for the other process, or a loan is back.
    fn tell(&self) {
        if let Some(shared) = self.link.shared.get() {
            shared.bell.tell();
        }
    }

    /// Whether what comes is to be taken now: somebody waits for something from that process, or it waits for room. Else it stays where it
    /// is until it is received, and is not copied in between.
    pub(crate) fn is_due(&self, peers: &mut Peers) -> bool {
        let is_awaited = self.peer.and_then(|peer| peers.get(peer)).is_none_or(|peer| peer.awaited > 0);
        is_awaited || self.reader.is_cramped()
    }

    /// Whether something has come that could be taken.
    pub(crate) fn has_any(&mut self, mail: &Mail) -> bool {
        self.blocked_at != Some(mail.eased) && self.reader.available().is_ok_and(|bytes| bytes > 0)
    }

    /// How many bytes have come ever, which is where what has come by now ends.
    pub(crate) fn come_by_now(&self) -> Result<u64> {
        self.reader.written_by_now()
    }

    /// Whether all that has come before this end was taken.
    pub(crate) fn is_taken(&self, end: u64) -> bool {
        self.reader.taken() >= end
    }

    /// Takes what has come. Whether that was anything; an error is the other process's.
    pub(crate) fn poll(&mut self, mail: &mut Mail) -> Result<bool> {
        self.poll_until(u64::MAX, mail)
    }

    /// The same of what has come before an end: a peer that goes on to write does not move it.
    pub(crate) fn poll_until(&mut self, end: u64, mail: &mut Mail) -> Result<bool> {
        if self.blocked_at == Some(mail.eased) {
            mail.refuse_again();
            return Ok(false);
        }
        self.blocked_at = None;
        let (mut any, settled) = (false, mail.settled);
        // A peer that writes without end does not keep others waiting. What follows a message that was awaited is left for who awaits it:
        // so it goes to where it is wanted, without a copy in between.
        for _ in 0..64 {
            if mail.settled != settled || self.is_taken(end) {
                break;
            }
            let available = self.reader.available()?;
            if available == 0 {
                if self.reader.is_empty_at_last()? {
                    self.tell();
                }
                break;
            }
            let mut head = [0; HEAD];
            self.reader.read(0, &mut head)?;
            let head = Head::decode(&head)?;
            let bytes = HEAD + head.bytes as usize;
            if bytes > available {
                return Err(Error::protocol("a record goes beyond what was written"));
            }
            if !self.take(mail, &head)? {
                self.blocked_at = Some(mail.eased);
                break;
            }
            any = true;
            if self.reader.take(bytes)? {
                self.tell();
            }
        }
        Ok(any)
    }

    /// Receives what stands first, if that is a whole message with this label which fits; nothing else may wait for it.
    pub(crate) fn receive_first(&mut self, (comm, label): (u64, &Label), target: &mut Target) -> First {
        match self.try_first(comm, label, target) {
            Ok(first) => first,
            // Who polls finds out the same.
            Err(_) => First::Other,
        }
    }

    fn try_first(&mut self, comm: u64, label: &Label, target: &mut Target) -> Result<First> {
        let available = self.reader.available()?;
        if available == 0 {
            return Ok(First::Nothing);
        }
        let mut head = [0; HEAD];
        self.reader.read(0, &mut head)?;
        let head = Head::decode(&head)?;
        let bytes = head.bytes as usize;
        let is_it = head.kind == Kind::Whole && head.comm == comm && head.label == *label;
        if !is_it || HEAD + bytes > available || bytes > target.longest() || !target.begin(bytes) {
            return Ok(First::Other);
        }
        match target.space(0, bytes) {
            Some(space) => self.reader.read(HEAD, space)?,
            None => {
                let whole = first_of(&mut self.scratch, bytes);
                self.reader.read(HEAD, whole)?;
                target.put(0, whole);
            }
        }
        if self.reader.take(HEAD + bytes)? {
            self.tell();
        }
        self.blocked_at = None;
        Ok(First::Received(Envelope { label: head.label, bytes: head.total }))
    }

    /// Takes one record; `false`: there is no room for what it brings.
    fn take(&mut self, mail: &mut Mail, head: &Head) -> Result<bool> {
        let envelope = Envelope { label: head.label, bytes: head.total };
        match head.kind {
            Kind::Whole => {
                let admission = mail.whole(head.comm, envelope, |space| self.reader.read(HEAD, space))?;
                Ok(self.admitted(admission, head.comm))
            }
            Kind::Begin => match mail.begin(head.comm, envelope) {
                Ok(stream) => {
                    if self.streams.len() >= STREAMS_MAX || self.streams.insert(head.number, stream).is_some()
                    {
                        return Err(Error::protocol("two messages have one number"));
                    }
                    self.more(mail, head).map(|()| true)
                }
                Err(admission) => Ok(self.admitted(admission, head.comm)),
            },
            Kind::More => self.more(mail, head).map(|()| true),
            Kind::Abandon => {
                self.abandon(mail, head.number);
                Ok(true)
            }
            Kind::Loan => {
                let mut address = [0; 8];
                self.reader.read(HEAD, &mut address)?;
                let lent = Lent {
                    link: self.link.id,
                    place: head.number,
                    turn: head.turn,
                    address: u64::from_le_bytes(address),
                };
                // That there is one is looked at before anything depends on it.
                self.inward.loan(lent.place, lent.turn)?;
                let admission = mail.lend(head.comm, envelope, lent);
                Ok(self.admitted(admission, head.comm))
            }
        }
    }

    /// The rest of a message will not come.
    pub(crate) fn abandon(&mut self, mail: &mut Mail, number: u32) {
        if let Some(stream) = self.streams.remove(&number) {
            mail.fail(stream);
        }
    }

    fn admitted(&self, admission: Admission, comm: u64) -> bool {
        if admission == Admission::Discard {
            // Its sender learns that nobody listens.
            self.link.refuse(comm);
        }
        admission != Admission::Wait
    }

    fn more(&mut self, mail: &mut Mail, head: &Head) -> Result<()> {
        // Of one whose beginning nobody wanted nothing is known.
        let Some(stream) = self.streams.get(&head.number).copied() else { return Ok(()) };
        let bytes = head.bytes as usize;
        let lacks = mail.lacks(stream).unwrap_or_default();
        if bytes > lacks {
            return Err(Error::protocol("a part of a message is too long"));
        }
        if let Some(space) = mail.space(stream, bytes) {
            self.reader.read(HEAD, space)?;
            mail.advance(stream, bytes);
        } else {
            let piece = first_of(&mut self.scratch, bytes);
            self.reader.read(HEAD, piece)?;
            mail.more(stream, piece);
        }
        if bytes == lacks {
            self.streams.remove(&head.number);
        }
        Ok(())
    }

    /// Reads on in a message where it lies.
    pub(crate) fn read_on(
        &self,
        mail: &mut Mail,
        reading: &mut Reading,
        scratch: &mut Vec<u8>,
    ) -> Result<Read> {
        let loan = self.inward.loan(reading.lent.place, reading.lent.turn)?;
        let Some(foreign) = &self.foreign else {
            return Err(Error::protocol("a message is lent whose sender's memory cannot be read"));
        };
        if !reading.has_begun {
            reading.has_begun = true;
            if !loan.begin() {
                mail.fail(reading.stream);
                return Ok(Read::Done);
            }
        }
        let mut turn = TURN;
        loop {
            let Some(lacks) = mail.lacks(reading.stream) else {
                // Nobody wants it any more.
                loan.give_back();
                self.tell();
                return Ok(Read::Done);
            };
            let most = lacks.min(turn);
            if most == 0 && lacks > 0 {
                return Ok(Read::More);
            }
            let address = reading.lent.address.wrapping_add(reading.at);
            let (portion, read) = match mail.space(reading.stream, most) {
                Some(space) => (most, foreign.read(address, space).map(|()| false)),
                None => {
                    let portion = most.min(PORTION);
                    scratch.resize(portion, 0);
                    (portion, foreign.read(address, scratch).map(|()| true))
                }
            };
            let is_last = portion == lacks;
            // It is the message only if its sender is there yet, and has not taken it back.
            let is_valid = read.is_ok() && (!is_last || foreign.is_alive() && loan.give_back());
            if !is_valid {
                mail.fail(reading.stream);
                self.tell();
                return Ok(Read::Done);
            }
            match read {
                Ok(true) => mail.more(reading.stream, scratch),
                _ => mail.advance(reading.stream, portion),
            }
            reading.at += portion as u64;
            turn -= portion;
            if is_last {
                self.tell();
                return Ok(Read::Done);
            }
        }
    }

    /// Gives back a loan that nobody wants.
    pub(crate) fn decline(&self, lent: Lent) {
        if let Ok(loan) = self.inward.loan(lent.place, lent.turn) {
            loan.decline();
            self.tell();
        }
    }

    /// The connection has ended: what is still coming does not.
    pub(crate) fn end(self, mail: &mut Mail) {
        self.streams.into_values().for_each(|stream| mail.fail(stream));
        mail.forget_loans(self.link.id);
    }
}
