//! Messages and who receives them: what is awaited, what has come and nobody has received, and how much of that there may be. Sans-IO.

mod ended;

use crate::kind::Kind;
use crate::target::{Target, first_of};
use crate::task::Space;
use forebay_wire::comm::Label;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of messages for comms that are not open here yet. Beyond that their senders wait.
pub const EARLY_MAX: u64 = 256 << 20;
/// Bytes of messages for open comms that nobody has received. Beyond that their senders wait, except a rank
/// that somebody here is waiting for: what is awaited may be behind what is not.
pub const UNREAD_MAX: u64 = 256 << 20;
/// What a message costs besides its bytes.
const OVERHEAD: u64 = 128;

fn cost(bytes: u64) -> u64 {
    bytes.saturating_add(OVERHEAD)
}

/// What a receive takes: the first message of its space that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// `None`: of any rank.
    pub(crate) source: Option<u32>,
    pub(crate) space: u64,
    /// `None`: with any tag.
    pub(crate) tag: Option<u64>,
}

impl Wanted {
    fn takes(&self, label: &Label) -> bool {
        self.space == label.space
            && self.source.is_none_or(|source| source == label.source)
            && self.tag.is_none_or(|tag| tag == label.tag)
    }
}

/// Names a receive.
pub(crate) type ReceiveId = u64;
/// Names a message that comes in pieces.
pub(crate) type StreamId = u64;

/// A long message that lies with its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lent {
    /// Over which connection it was told.
    pub(crate) link: u64,
    /// Its word.
    pub(crate) place: u32,
    pub(crate) turn: u32,
    pub(crate) address: u64,
}

/// A message that was received, or that waits to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) label: Label,
    /// Its length.
    pub(crate) bytes: u64,
}

/// How a receive ended.
#[derive(Debug)]
pub(crate) enum Received {
    Whole(Envelope, Target),
    /// The message was longer than there was room for, and is gone.
    TooLong(Envelope, usize),
    /// There was no memory for it.
    NoMemory(Envelope),
    /// It ended within it.
    Broken(Envelope),
}

/// One that has not ended.
#[derive(Debug)]
struct Receive {
    comm: u64,
    wanted: Wanted,
    target: Target,
    outcome: Option<Outcome>,
    is_posted: bool,
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    Whole(Envelope),
    TooLong(Envelope),
    NoMemory(Envelope),
    Broken(Envelope),
}

/// A message that waits to be received.
#[derive(Debug)]
struct Arrived {
    envelope: Envelope,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Whole(Vec<u8>),
    /// It is still coming.
    Growing(StreamId),
    /// It lies with its sender.
    Lent(Lent),
}

/// A message that comes in pieces.
#[derive(Debug)]
struct Stream {
    comm: u64,
    envelope: Envelope,
    /// How much of it has come.
    got: usize,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Receive(ReceiveId),
    Unread(Vec<u8>),
    Nowhere,
}

/// The messages of one comm.
#[derive(Debug, Default)]
struct Mailbox {
    /// By space.
    posted: BTreeMap<u64, SmallVec<[ReceiveId; 2]>>,
    arrived: BTreeMap<u64, VecDeque<Arrived>>,
    /// The cost of those that lie here, whole or in part.
    bytes: u64,
    /// By rank, how many of this process wait for it.
    wanted: BTreeMap<u32, usize>,
    /// How many wait for any rank.
    wanted_any: usize,
    /// Parts that were split off, and are open here.
    parts: BTreeSet<u32>,
    /// Later ones are not known here yet.
    next_part: u32,
    /// The collectives that ended here last, by their spaces: nothing more is to come in them.
    ended: VecDeque<(u64, Option<Kind>)>,
}

/// A message of a collective that has ended here without it: its rank does something else there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stray {
    pub(crate) comm: u64,
    pub(crate) space: u64,
    pub(crate) source: u32,
    /// What its rank does there.
    pub(crate) theirs: Kind,
    /// What was done here.
    pub(crate) here: Kind,
}

/// Whether a message may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Yes. Room for it is reserved, if nobody waits for it yet.
    Take,
    /// Nobody will receive it.
    Discard,
    /// Not now.
    Wait,
}

/// All messages of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    open: BTreeMap<u64, Mailbox>,
    early: BTreeMap<u64, Mailbox>,
    receives: BTreeMap<ReceiveId, Receive>,
    streams: BTreeMap<StreamId, Stream>,
    last_id: u64,
    unread_bytes: u64,
    early_bytes: u64,
    newest_dropped: Option<u64>,
    /// Loans that a receive has been found for: to be read into a stream.
    due: Vec<(StreamId, Lent)>,
    /// Loans that nobody wants any more.
    declined: Vec<Lent>,
    strays: Vec<Stray>,
    /// Counts what makes room: who was not admitted asks again.
    pub(crate) eased: u64,
    /// A message was not admitted since it was last asked for that.
    refused: bool,
    /// Counts what may end a wait otherwise than by the message that is awaited. The hub counts here, too.
    pub(crate) alarms: u64,
    /// Counts receives that have ended.
    pub(crate) settled: u64,
    scratch: Vec<u8>,
}

impl Mail {
    /// Whether this comm was open and is no more, or never will be.
    pub(crate) fn is_past(&self, comm: u64) -> bool {
        !self.open.contains_key(&comm) && self.newest_dropped.is_some_and(|newest| comm <= newest)
    }

    /// Whether it is open.
    pub(crate) fn is_open(&self, comm: u64) -> bool {
        self.open.contains_key(&comm)
    }

    /// Opens a comm; what came early for it is its own now.
    pub(crate) fn open(&mut self, comm: u64) {
        let mailbox = self.early.remove(&comm).unwrap_or_default();
        self.early_bytes -= mailbox.bytes;
        self.unread_bytes += mailbox.bytes;
        self.open.insert(comm, mailbox);
        self.eased += 1;
    }

    /// Closes a comm: what was not received is gone, and so is all that came early for lower ones.
    pub(crate) fn close(&mut self, comm: u64) {
        let newest = self.newest_dropped.map_or(comm, |newest| newest.max(comm));
        self.newest_dropped = Some(newest);
        let later = self.early.split_off(&newest.saturating_add(1));
        let past = std::mem::replace(&mut self.early, later);
        self.early_bytes -= past.values().map(|mailbox| mailbox.bytes).sum::<u64>();
        let closed = self.open.remove(&comm);
        self.unread_bytes -= closed.as_ref().map_or(0, |mailbox| mailbox.bytes);
        let arrived = past.into_values().chain(closed).flat_map(|mailbox| mailbox.arrived.into_values());
        for message in arrived.flatten() {
            // Its room was given back with that of all others.
            self.throw_away(comm, message);
        }
        self.eased += 1;
    }

    /// No part of a comm has had this number here.
    pub(crate) fn next_part(&self, comm: u64) -> u32 {
        self.open.get(&comm).map_or(1, |mailbox| mailbox.next_part.max(1))
    }

    /// A part of a comm is split off, unless there was one of this number, or of a later one, here. Whether it is.
    pub(crate) fn open_part(&mut self, comm: u64, part: u32) -> bool {
        let Some(mailbox) = self.open.get_mut(&comm) else { return false };
        if part < mailbox.next_part.max(1) {
            return false;
        }
        mailbox.parts.insert(part);
        mailbox.next_part = part + 1;
        true
    }

    /// A part of a comm is closed: what was not received in it is gone.
    pub(crate) fn close_part(&mut self, comm: u64, part: u32) {
        let Some(mailbox) = self.open.get_mut(&comm) else { return };
        mailbox.parts.remove(&part);
        let past = mailbox.arrived.extract_if(.., |space, _| Space(*space).part() == part);
        let past: Vec<Arrived> = past.flat_map(|(_, queue)| queue).collect();
        for message in past {
            self.throw_away(comm, message);
        }
        self.eased += 1;
    }

    /// A message that nobody will receive.
    fn throw_away(&mut self, comm: u64, message: Arrived) {
        match message.body {
            Body::Whole(_) => self.release(comm, cost(message.envelope.bytes)),
            Body::Growing(stream) => {
                self.release(comm, cost(message.envelope.bytes));
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.sink = Sink::Nowhere;
                }
            }
            Body::Lent(lent) => self.declined.push(lent),
        }
    }

    /// Whether a message is of a part that is closed here.
    fn is_part_past(&self, comm: u64, label: &Label) -> bool {
        let part = Space(label.space).part();
        let is_past = |mailbox: &Mailbox| part < mailbox.next_part && !mailbox.parts.contains(&part);
        part > 0 && self.open.get(&comm).is_some_and(is_past)
    }

    fn mailbox(&mut self, comm: u64) -> Option<&mut Mailbox> {
        self.open.get_mut(&comm).or_else(|| self.early.get_mut(&comm))
    }

    // ---- messages that come -------------------------------------------------------------------------------

    /// Takes the receive that waits for a message, if one does.
    fn find_receive(&mut self, comm: u64, label: &Label) -> Option<ReceiveId> {
        let Mail { open, receives, .. } = self;
        let all = &mut open.get_mut(&comm)?.posted;
        let posted = all.get_mut(&label.space)?;
        let takes = |id: &ReceiveId| receives.get(id).is_some_and(|receive| receive.wanted.takes(label));
        let place = posted.iter().position(takes)?;
        let id = posted.remove(place);
        if posted.is_empty() {
            all.remove(&label.space);
        }
        receives.get_mut(&id)?.is_posted = false;
        Some(id)
    }

    /// Whether a message that nobody waits for may come; if so there is a mailbox for it. `bytes` are those that will lie here.
    fn admit(&mut self, comm: u64, source: u32, bytes: u64) -> Admission {
        if self.is_past(comm) {
            return Admission::Discard;
        }
        let cost = cost(bytes);
        let (mailbox, total) = match self.open.get_mut(&comm) {
            Some(mailbox) => {
                let fits = self.unread_bytes == 0 || self.unread_bytes.saturating_add(cost) <= UNREAD_MAX;
                if !fits && !mailbox.is_wanted(source) {
                    self.refused = true;
                    return Admission::Wait;
                }
                (mailbox, &mut self.unread_bytes)
            }
            None if self.early_bytes.saturating_add(cost) > EARLY_MAX => {
                self.refused = true;
                return Admission::Wait;
            }
            None => (self.early.entry(comm).or_default(), &mut self.early_bytes),
        };
        let (Some(sum), Some(own)) = (total.checked_add(cost), mailbox.bytes.checked_add(cost)) else {
            return Admission::Discard;
        };
        (*total, mailbox.bytes) = (sum, own);
        Admission::Take
    }

    /// One that was not admitted before still waits.
    pub(crate) fn refuse_again(&mut self) {
        self.refused = true;
    }

    /// Whether a message was not admitted since this was last asked.
    pub(crate) fn has_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    fn push(&mut self, comm: u64, envelope: Envelope, body: Body) {
        let space = envelope.label.space;
        let Some(mailbox) = self.mailbox(comm) else { return };
        mailbox.arrived.entry(space).or_default().push_back(Arrived { envelope, body });
        // Who waits there may learn from it that what is awaited does not come.
        let is_awaited = mailbox.posted.contains_key(&space);
        self.alarms += u64::from(is_awaited);
    }

    fn settle(&mut self, id: ReceiveId, outcome: Outcome) {
        if let Some(receive) = self.receives.get_mut(&id) {
            receive.outcome = Some(outcome);
            self.settled += 1;
        }
    }

    /// A receive has been found for a message: why it cannot take it, if it cannot.
    fn begin_at(&mut self, id: ReceiveId, envelope: Envelope) -> bool {
        let Some(receive) = self.receives.get_mut(&id) else { return false };
        let refused = if envelope.bytes > receive.target.longest() as u64 {
            Outcome::TooLong(envelope)
        } else if !receive.target.begin(envelope.bytes as usize) {
            Outcome::NoMemory(envelope)
        } else {
            return true;
        };
        receive.outcome = Some(refused);
        false
    }

    /// A message has come whole. `fill` copies it.
    pub(crate) fn whole<E>(
        &mut self,
        comm: u64,
        envelope: Envelope,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Admission, E> {
        let bytes = envelope.bytes as usize;
        if let Some(id) = self.find_receive(comm, &envelope.label) {
            if self.begin_at(id, envelope)
                && let Some(receive) = self.receives.get_mut(&id)
            {
                match receive.target.space(0, bytes) {
                    Some(space) => fill(space)?,
                    None => {
                        let whole = first_of(&mut self.scratch, bytes);
                        fill(whole)?;
                        receive.target.put(0, whole);
                    }
                }
                receive.outcome = Some(Outcome::Whole(envelope));
            }
            self.settled += 1;
            return Ok(Admission::Take);
        }
        if self.is_unwanted(comm, &envelope.label) {
            return Ok(Admission::Take);
        }
        let admission = self.admit(comm, envelope.label.source, envelope.bytes);
        if admission == Admission::Take {
            let mut whole = vec![0; bytes];
            fill(&mut whole)?;
            self.push(comm, envelope, Body::Whole(whole));
        }
        Ok(admission)
    }

    /// A message begins whose bytes come in pieces.
    pub(crate) fn begin(&mut self, comm: u64, envelope: Envelope) -> Result<StreamId, Admission> {
        let found = self.find_receive(comm, &envelope.label);
        let is_unwanted = found.is_none() && self.is_unwanted(comm, &envelope.label);
        if found.is_none() && !is_unwanted {
            match self.admit(comm, envelope.label.source, envelope.bytes) {
                Admission::Take => {}
                other => return Err(other),
            }
        }
        let sink = match found {
            Some(id) if self.begin_at(id, envelope) => Sink::Receive(id),
            Some(_) => Sink::Nowhere,
            None if is_unwanted => Sink::Nowhere,
            None => Sink::Unread(Vec::new()),
        };
        let stream = self.stream(comm, envelope, sink);
        if found.is_none() && !is_unwanted {
            self.push(comm, envelope, Body::Growing(stream));
        }
        if envelope.bytes == 0 {
            self.advance(stream, 0);
        }
        Ok(stream)
    }

    fn stream(&mut self, comm: u64, envelope: Envelope, sink: Sink) -> StreamId {
        self.last_id += 1;
        self.streams.insert(self.last_id, Stream { comm, envelope, got: 0, sink });
        self.last_id
    }

    /// How much of a message is still to come; `None`: nobody knows it any more.
    pub(crate) fn lacks(&self, stream: StreamId) -> Option<usize> {
        self.streams.get(&stream).map(|stream| stream.envelope.bytes as usize - stream.got)
    }

    /// The memory for the next bytes of a message, if they are to lie somewhere and there is memory.
    pub(crate) fn space(&mut self, stream: StreamId, bytes: usize) -> Option<&mut [u8]> {
        let Stream { got, sink, .. } = self.streams.get_mut(&stream)?;
        match sink {
            Sink::Receive(id) => self.receives.get_mut(id)?.target.space(*got, bytes),
            Sink::Unread(unread) => {
                unread.try_reserve(bytes).ok()?;
                unread.resize(*got + bytes, 0);
                unread.get_mut(*got..)
            }
            Sink::Nowhere => None,
        }
    }

    /// The next bytes of a message have been written to their [space](Mail::space).
    pub(crate) fn advance(&mut self, id: StreamId, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.got += bytes;
        if stream.got < stream.envelope.bytes as usize {
            return;
        }
        let Some(Stream { comm, envelope, sink, .. }) = self.streams.remove(&id) else { return };
        match sink {
            Sink::Receive(receive) => self.settle(receive, Outcome::Whole(envelope)),
            Sink::Unread(unread) => {
                if let Some(message) = self.growing(comm, &envelope.label, id) {
                    message.body = Body::Whole(unread);
                }
            }
            Sink::Nowhere => {}
        }
    }

    /// The next bytes of a message.
    pub(crate) fn more(&mut self, id: StreamId, bytes: &[u8]) {
        if let Some(space) = self.space(id, bytes.len()) {
            space.copy_from_slice(bytes);
        } else if let Some(stream) = self.streams.get(&id) {
            let got = stream.got;
            match stream.sink {
                Sink::Receive(receive) => {
                    if let Some(receive) = self.receives.get_mut(&receive) {
                        receive.target.put(got, bytes);
                    }
                }
                Sink::Unread(_) => return self.fail(id),
                Sink::Nowhere => {}
            }
        }
        self.advance(id, bytes.len());
    }

    /// The rest of a message will not come.
    pub(crate) fn fail(&mut self, id: StreamId) {
        let Some(Stream { comm, envelope, sink, .. }) = self.streams.remove(&id) else { return };
        match sink {
            Sink::Receive(receive) => self.wait_again(receive, envelope),
            Sink::Unread(_) => {
                let space = envelope.label.space;
                if let Some(queue) = self.mailbox(comm).and_then(|mailbox| mailbox.arrived.get_mut(&space)) {
                    queue.retain(|message| !matches!(message.body, Body::Growing(other) if other == id));
                    self.release(comm, cost(envelope.bytes));
                }
            }
            Sink::Nowhere => {}
        }
    }

    fn growing(&mut self, comm: u64, label: &Label, id: StreamId) -> Option<&mut Arrived> {
        let queue = self.mailbox(comm)?.arrived.get_mut(&label.space)?;
        queue.iter_mut().find(|message| matches!(message.body, Body::Growing(other) if other == id))
    }

    /// A message is lent: it lies with its sender until a receive is found for it.
    pub(crate) fn lend(&mut self, comm: u64, envelope: Envelope, lent: Lent) -> Admission {
        if let Some(id) = self.find_receive(comm, &envelope.label) {
            self.read_for(id, comm, envelope, lent);
            return Admission::Take;
        }
        if self.is_past(comm) || self.is_unwanted(comm, &envelope.label) {
            self.declined.push(lent);
            return if self.is_past(comm) { Admission::Discard } else { Admission::Take };
        }
        // It takes no room here, and there are not many of one sender.
        if !self.is_open(comm) {
            self.early.entry(comm).or_default();
        }
        self.push(comm, envelope, Body::Lent(lent));
        Admission::Take
    }

    fn read_for(&mut self, id: ReceiveId, comm: u64, envelope: Envelope, lent: Lent) {
        if self.begin_at(id, envelope) {
            let stream = self.stream(comm, envelope, Sink::Receive(id));
            self.due.push((stream, lent));
        } else {
            self.declined.push(lent);
        }
    }

    /// The next loan to read, and the message that it is; a receive was found for it.
    pub(crate) fn next_due(&mut self) -> Option<(StreamId, Lent)> {
        self.due.pop()
    }

    /// Loans that nobody wants any more.
    pub(crate) fn take_declined(&mut self) -> Vec<Lent> {
        std::mem::take(&mut self.declined)
    }

    /// There is nothing else to do: a loan that nobody waits for is read, so that its sender gets on, if there is room for it.
    pub(crate) fn pull(&mut self) -> bool {
        let fits = |mailbox: &Mailbox, is_open: bool, envelope: &Envelope| match is_open {
            true => {
                let unread = self.unread_bytes;
                let is_wanted = mailbox.is_wanted(envelope.label.source);
                unread == 0 || is_wanted || unread.saturating_add(envelope.bytes) <= UNREAD_MAX
            }
            false => self.early_bytes.saturating_add(envelope.bytes) <= EARLY_MAX,
        };
        let open = self.open.iter().map(|(comm, mailbox)| (*comm, mailbox, true));
        let mut all = open.chain(self.early.iter().map(|(comm, mailbox)| (*comm, mailbox, false)));
        let found = all.find_map(|(comm, mailbox, is_open)| {
            let can = |message: &Arrived| {
                matches!(message.body, Body::Lent(_)) && fits(mailbox, is_open, &message.envelope)
            };
            let in_queue =
                |(space, queue): (&u64, &VecDeque<Arrived>)| Some((*space, queue.iter().position(can)?));
            mailbox.arrived.iter().find_map(in_queue).map(|(space, place)| (comm, space, place, is_open))
        });
        let Some((comm, space, place, is_open)) = found else { return false };
        self.last_id += 1;
        let id = self.last_id;
        let Some(message) = self
            .mailbox(comm)
            .and_then(|mailbox| mailbox.arrived.get_mut(&space))
            .and_then(|queue| queue.get_mut(place))
        else {
            return false;
        };
        let Body::Lent(lent) = message.body else { return false };
        let envelope = message.envelope;
        message.body = Body::Growing(id);
        if let Some(mailbox) = self.mailbox(comm) {
            mailbox.bytes = mailbox.bytes.saturating_add(cost(envelope.bytes));
        }
        let total = if is_open { &mut self.unread_bytes } else { &mut self.early_bytes };
        *total = total.saturating_add(cost(envelope.bytes));
        self.streams.insert(id, Stream { comm, envelope, got: 0, sink: Sink::Unread(Vec::new()) });
        self.due.push((id, lent));
        true
    }

    /// A connection has ended: what was lent over it cannot be read.
    pub(crate) fn forget_loans(&mut self, link: u64) {
        for mailbox in self.open.values_mut().chain(self.early.values_mut()) {
            for queue in mailbox.arrived.values_mut() {
                queue.retain(|message| !matches!(message.body, Body::Lent(lent) if lent.link == link));
            }
        }
        let due: Vec<_> = self.due.extract_if(.., |(_, lent)| lent.link == link).collect();
        due.into_iter().for_each(|(stream, _)| self.fail(stream));
    }

    fn release(&mut self, comm: u64, cost: u64) {
        if let Some(mailbox) = self.open.get_mut(&comm) {
            mailbox.bytes = mailbox.bytes.saturating_sub(cost);
            self.unread_bytes = self.unread_bytes.saturating_sub(cost);
        } else if let Some(mailbox) = self.early.get_mut(&comm) {
            mailbox.bytes = mailbox.bytes.saturating_sub(cost);
            self.early_bytes = self.early_bytes.saturating_sub(cost);
        }
        self.eased += 1;
    }

    // ---- receives -------------------------------------------------------------------------------------------

    /// Somebody receives: what has come is taken, else it is waited for.
    pub(crate) fn post(&mut self, comm: u64, wanted: Wanted, target: Target) -> ReceiveId {
        self.last_id += 1;
        let id = self.last_id;
        self.receives.insert(id, Receive { comm, wanted, target, outcome: None, is_posted: false });
        self.look(id, comm, wanted);
        id
    }

    /// A message that a receive had begun to take does not come: it takes the next one, unless it has made something of its bytes.
    fn wait_again(&mut self, id: ReceiveId, envelope: Envelope) {
        let Some(receive) = self.receives.get_mut(&id) else { return };
        match &mut receive.target {
            Target::Combined(..) => receive.outcome = Some(Outcome::Broken(envelope)),
            Target::Made(_) | Target::Place(_) => {
                if let Target::Made(made) = &mut receive.target {
                    made.clear();
                }
                let (comm, wanted) = (receive.comm, receive.wanted);
                self.look(id, comm, wanted);
            }
        }
    }

    /// Whether a message of this space that comes next would be received by who asks: none has come, and nobody waits for one.
    pub(crate) fn is_idle(&self, comm: u64, space: u64) -> bool {
        self.open.get(&comm).is_some_and(|mailbox| {
            !mailbox.arrived.contains_key(&space) && !mailbox.posted.contains_key(&space)
        })
    }

    fn look(&mut self, id: ReceiveId, comm: u64, wanted: Wanted) {
        let arrived = self.open.get_mut(&comm).and_then(|mailbox| {
            let queue = mailbox.arrived.get_mut(&wanted.space)?;
            let place = queue.iter().position(|message| wanted.takes(&message.envelope.label))?;
            let message = queue.remove(place)?;
            if queue.is_empty() {
                mailbox.arrived.remove(&wanted.space);
            }
            Some(message)
        });
        match arrived {
            Some(message) => self.hand_over(id, comm, message),
            None => {
                if let Some(mailbox) = self.open.get_mut(&comm) {
                    // The older one is first, if it waits again.
                    let posted = mailbox.posted.entry(wanted.space).or_default();
                    let place = posted.partition_point(|other| *other < id);
                    posted.insert(place, id);
                    if let Some(receive) = self.receives.get_mut(&id) {
                        receive.is_posted = true;
                    }
                }
            }
        }
    }

    /// A message that has come goes to a receive.
    fn hand_over(&mut self, id: ReceiveId, comm: u64, Arrived { envelope, body }: Arrived) {
        match body {
            Body::Whole(whole) => {
                self.release(comm, cost(envelope.bytes));
                let Some(receive) = self.receives.get_mut(&id) else { return };
                if let Target::Made(made) = &mut receive.target {
                    *made = whole;
                    receive.outcome = Some(Outcome::Whole(envelope));
                } else if self.begin_at(id, envelope)
                    && let Some(receive) = self.receives.get_mut(&id)
                {
                    receive.target.put(0, &whole);
                    receive.outcome = Some(Outcome::Whole(envelope));
                }
            }
            Body::Growing(stream) => {
                self.release(comm, cost(envelope.bytes));
                let takes = self.begin_at(id, envelope);
                let Some(stream) = self.streams.get_mut(&stream) else { return };
                let sink = if takes { Sink::Receive(id) } else { Sink::Nowhere };
                if let Sink::Unread(so_far) = std::mem::replace(&mut stream.sink, sink)
                    && takes
                    && let Some(receive) = self.receives.get_mut(&id)
                {
                    receive.target.put(0, &so_far);
                }
            }
            Body::Lent(lent) => self.read_for(id, comm, envelope, lent),
        }
    }

    /// How a receive ended, if it has; then it is no more.
    pub(crate) fn take(&mut self, id: ReceiveId) -> Option<Received> {
        let outcome = self.receives.get(&id)?.outcome?;
        let receive = self.receives.remove(&id)?;
        Some(match outcome {
            Outcome::Whole(envelope) => Received::Whole(envelope, receive.target),
            Outcome::TooLong(envelope) => Received::TooLong(envelope, receive.target.longest()),
            Outcome::NoMemory(envelope) => Received::NoMemory(envelope),
            Outcome::Broken(envelope) => Received::Broken(envelope),
        })
    }

    /// A receive is given up: nothing is written to its memory any more.
    pub(crate) fn cancel(&mut self, id: ReceiveId) {
        let Some(receive) = self.receives.remove(&id) else { return };
        if receive.is_posted
            && let Some(mailbox) = self.open.get_mut(&receive.comm)
            && let Some(posted) = mailbox.posted.get_mut(&receive.wanted.space)
        {
            posted.retain(|other| *other != id);
            if posted.is_empty() {
                mailbox.posted.remove(&receive.wanted.space);
            }
        }
        for stream in self.streams.values_mut() {
            if matches!(stream.sink, Sink::Receive(other) if other == id) {
                stream.sink = Sink::Nowhere;
            }
        }
    }

    /// The first message that a receive would take.
    pub(crate) fn probe(&self, comm: u64, wanted: &Wanted) -> Option<Envelope> {
        let queue = self.open.get(&comm)?.arrived.get(&wanted.space)?;
        queue.iter().map(|message| message.envelope).find(|envelope| wanted.takes(&envelope.label))
    }

    /// Somebody begins to wait for this rank, or any, or ends.
    pub(crate) fn want(&mut self, comm: u64, source: Option<u32>, begins: bool) {
        let Some(mailbox) = self.open.get_mut(&comm) else { return };
        let count = match source {
            Some(source) => mailbox.wanted.entry(source).or_default(),
            None => &mut mailbox.wanted_any,
        };
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        if let (0, Some(source)) = (*count, source) {
            mailbox.wanted.remove(&source);
        }
        self.eased += u64::from(begins);
    }
}

impl Mailbox {
    fn is_wanted(&self, source: u32) -> bool {
        self.wanted_any > 0 || self.wanted.contains_key(&source)
    }
}

#[cfg(test)]
mod tests;
