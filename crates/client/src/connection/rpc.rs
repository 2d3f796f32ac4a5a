//! Questions and answers over one connection.

use crate::group::Group;
use crate::turn::Turn;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::Kind;
use forebay_transport::blocking::{self, Connection, Hangup, Receiver, Sender};
use forebay_wire::client::{placement, producer, space};
use forebay_wire::connection::LastWords;
use forebay_wire::frame::{Frame, Header};
use forebay_wire::protocol::{Message, Protocol, Request};
use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An answer with what came along; its payload is still to be received.
#[derive(Debug)]
pub(crate) struct Answer<R> {
    pub(crate) message: R,
    pub(crate) header: Header,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// What came off the socket, not decoded yet: whoever waits for it knows what it may be.
#[derive(Debug)]
struct Received {
    frame: Frame,
    descriptors: Vec<OwnedFd>,
}

/// A connection that asks and is answered, and is told things in between.
///
/// Many threads may wait for it at once, each with its own deadline. One of them reads the socket, and hands on
/// what is for others; when it has what it waited for, another one reads.
#[derive(Debug)]
pub(crate) struct Rpc {
    sender: Turn<Sender>,
    hangup: Hangup,
    /// Questions whose answers are done with, of which the server was not told yet. Bounded by who asks.
    released: Mutex<Vec<u64>>,
    /// Locked by the thread that reads, which says so in the inbox first.
    receiver: Mutex<Receiver>,
    inbox: Mutex<Inbox>,
    /// Something came, or nobody reads any more.
    changed: Condvar,
    requests: AtomicU64,
    epoch: u64,
    /// The latest epoch that an answer told.
    heard: AtomicU64,
    patience: Duration,
    seal_payload: bool,
    kind: Kind,
    peer: String,
    /// Whose member the server is.
    member: Option<(Group, ServerId)>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// A thread reads the socket.
    reading: bool,
    /// How many threads wait for what another one reads.
    waiting: usize,
    /// What was told and nobody took yet. Bounded by the attachment's window.
    told: VecDeque<Frame>,
    /// Questions with their answers, once those are there. Bounded by who asks and posts.
    asked: HashMap<u64, Question>,
    /// Data that comes next on the socket, before any other frame.
    data: Option<Data>,
}

#[derive(Debug)]
struct Question {
    wants_data: bool,
    answer: Option<Received>,
}

/// The payload of an answer, as far as it was not received yet.
#[derive(Debug, Clone, Copy)]
struct Data {
    request: u64,
    left: u64,
    sealed: bool,
}

/// When it is first looked whether a server whose answer is awaited is still a member; then after twice that time, and so
/// on.
pub(crate) const LOOK_AT_MEMBERS: Duration = Duration::from_secs(1);
/// It is looked at least as often as this.
const LOOK_AT_MEMBERS_MAX: Duration = Duration::from_secs(4);
/// How long a server may take no bytes when it is told what is done with.
const RELEASE: Duration = Duration::from_secs(1);
/// How many bytes of data that nobody wants any more are skipped at once; a sealed record fits.
const SKIP: u64 = 64 << 10;

/// The payload of a question.
pub(crate) struct Payload<'a>(pub(crate) &'a [u8]);

/// Locks, also after a panic elsewhere: the state is kept consistent by the `broken` mark.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rpc {
    pub(crate) fn new(connection: Connection, epoch: u64, patience: Duration) -> Rpc {
        let kind = connection.kind();
        Rpc {
            peer: connection.sender.peer().to_owned(),
            hangup: connection.hangup(),
            released: Mutex::default(),
            sender: Turn::new(connection.sender),
            receiver: Mutex::new(connection.receiver),
            inbox: Mutex::default(),
            changed: Condvar::new(),
            requests: AtomicU64::new(1),
            epoch,
            heard: AtomicU64::new(epoch),
            patience,
            seal_payload: false,
            kind,
            member: None,
        }
    }

    pub(crate) fn with_sealed_payload(self, seal: bool, kind: Kind) -> Rpc {
        Rpc { seal_payload: seal && kind == Kind::Tcp, ..self }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// While its answer is awaited, it is looked now and then whether this server is a member of the group at all: one that
    /// stands still does not end its connections.
    pub(crate) fn of_member(self, group: Group, server: ServerId) -> Rpc {
        Rpc { member: Some((group, server)), ..self }
    }

    /// Fails, for all who use this connection, if its server is known to be no member any more.
    fn check_member(&self) -> Result<()> {
        let Some((group, server)) = &self.member else { return Ok(()) };
        let _ = group.refresh();
        if !group.known().has_left(*server) {
            return Ok(());
        }
        let text = format!("{} did not answer, and is no member of the group any more", self.peer);
        Err(lock(&self.receiver).break_with(Error::unreachable(text)))
    }

    fn header(&self, request: u64) -> Header {
        Header { request, epoch: self.epoch, sealed_payload: self.seal_payload, ..Header::default() }
    }

    /// Tells the server something that is not answered.
    pub(crate) fn tell<M: Message>(&self, message: &M) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        self.with_sender(deadline, |sender| sender.send(&self.header(0), message, &[], deadline))
    }

    /// Tells the server something with the next message that is sent to it.
    pub(crate) fn queue<M: Message>(&self, message: &M) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        self.with_sender(deadline, |sender| sender.queue(&self.header(0), message, deadline))
    }

    /// Asks and waits for the answer, no longer than the default deadline.
    pub(crate) fn call<Q: Request>(&self, message: &Q, what: &str) -> Result<Answer<Q::Reply>> {
        self.call_within(message, None, self.patience, what)
    }

    /// Asks, with a payload or another deadline, and waits for the answer. An answer that says what failed
    /// is an error.
    pub(crate) fn call_within<Q: Request>(
        &self,
        message: &Q,
        payload: Option<Payload<'_>>,
        patience: Duration,
        what: &str,
    ) -> Result<Answer<Q::Reply>> {
        self.ask(message, payload, patience)?.answer(what)
    }

    /// Asks. The answer can be taken after others were asked.
    pub(crate) fn ask<Q: Request>(
        &self,
        message: &Q,
        payload: Option<Payload<'_>>,
        patience: Duration,
    ) -> Result<Asked<'_, Q>> {
        let deadline = Instant::now() + patience;
        let request = self.expect(false);
        let mut asked = Asked { rpc: self, request, deadline, holds: false, asks: PhantomData };
        self.send(asked.request, message, payload, asked.deadline)?;
        asked.holds = message.holds_what_is_found();
        Ok(asked)
    }

    /// Uses the sending half when no other thread does.
    fn with_sender<T>(&self, deadline: Instant, work: impl FnOnce(&mut Sender) -> Result<T>) -> Result<T> {
        let what = format_args!("another thread to send something to {}", self.peer);
        let result = work(&mut *self.sender.take(deadline, what)?);
        self.tell_released();
        result
    }

    /// Has finished with what the answer to a question holds, or may hold once it comes. The server is told now, or by the
    /// thread that sends it something just now. Waits only while the server takes no bytes, a second at most.
    pub(crate) fn release(&self, request: u64) {
        lock(&self.released).push(request);
        self.tell_released();
    }

    fn tell_released(&self) {
        // Who uses the sending half tells them afterwards.
        while !lock(&self.released).is_empty()
            && let Some(mut sender) = self.sender.try_take()
        {
            let released = std::mem::take(&mut *lock(&self.released));
            let deadline = Instant::now() + RELEASE;
            for (at, &request) in released.iter().enumerate() {
                match sender.send(&self.header(0), &space::Request::Release { request }, &[], deadline) {
                    Err(error) if error.kind == ErrorKind::Timeout => {
                        // With what is sent next.
                        lock(&self.released).extend(&released[at..]);
                        return;
                    }
                    // With the connection all ends that was held over it.
                    Err(_) => return,
                    Ok(()) => {}
                }
            }
        }
    }

    /// The number of a question that is about to be asked.
    fn expect(&self, wants_data: bool) -> u64 {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        lock(&self.inbox).asked.insert(request, Question { wants_data, answer: None });
        request
    }

    fn send<M: Message>(
        &self,
        request: u64,
        message: &M,
        payload: Option<Payload<'_>>,
        deadline: Instant,
    ) -> Result<()> {
        let bytes = payload.as_ref().map_or(0, |payload| payload.0.len() as u64);
        let header = Header { payload: bytes, ..self.header(request) };
        self.with_sender(deadline, |sender| {
            sender.send(&header, message, &[], deadline)?;
            match payload {
                Some(Payload(bytes)) => sender.send_payload(bytes, self.seal_payload, deadline),
                None => Ok(()),
            }
        })
    }

    /// Asks without waiting for the answer, which [`Rpc::collect`] gives; waits only while the server does not
    /// take the bytes. The payload is the caller's again on return. If the server is known to have ended the connection, that
    /// is an error now: what is sent to it would be lost.
    pub(crate) fn post<Q: Request>(&self, message: &Q, payload: Option<Payload<'_>>) -> Result<u64> {
        let deadline = Instant::now() + self.patience;
        self.with_sender(deadline, |sender| sender.check_not_ended())?;
        let request = self.expect(false);
        let sent = self.send(request, message, payload, deadline);
        if sent.is_err() {
            self.forget(request);
        }
        sent.map(|()| request)
    }

    /// As [`Rpc::post`], but the question goes out with the next message that is sent.
    pub(crate) fn post_later<Q: Request>(&self, message: &Q) -> Result<u64> {
        let request = self.expect(false);
        let deadline = Instant::now() + self.patience;
        let queued =
            self.with_sender(deadline, |sender| sender.queue(&self.header(request), message, deadline));
        if queued.is_err() {
            self.forget(request);
        }
        queued.map(|()| request)
    }

    /// Sends what waits for the next message, if anything does. Waits until a deadline for another thread that sends
    /// something; while the server does not take the bytes no longer than the default.
    pub(crate) fn flush(&self, deadline: Instant) -> Result<()> {
        // One that was given up half way would end the connection.
        self.with_sender(deadline, |sender| sender.flush(Instant::now() + self.patience))
    }

    /// Waits for the answer to what was posted, no longer than the default deadline. After a time-out it can
    /// be asked for again, or be forgotten.
    pub(crate) fn collect<Q: Request>(&self, request: u64, what: &str) -> Result<Q::Reply> {
        self.collect_until::<Q>(request, Instant::now() + self.patience, what)
    }

    /// As [`Rpc::collect`], with another deadline.
    pub(crate) fn collect_until<Q: Request>(
        &self,
        request: u64,
        deadline: Instant,
        what: &str,
    ) -> Result<Q::Reply> {
        let answer = self.answer_to(request, deadline, what)?;
        self.forget(request);
        Ok(self.decode::<Q>(answer)?.message)
    }

    /// What an answer says. One that says what failed is an error; one that cannot be read breaks the connection.
    fn decode<Q: Request>(&self, answer: Received) -> Result<Answer<Q::Reply>> {
        let Received { frame, descriptors } = answer;
        let said: Result<Q::Reply> =
            frame.message().map_err(|error| lock(&self.receiver).break_with(error))?;
        Ok(Answer { message: said?, header: frame.header, descriptors })
    }

    /// The answer to a question is of no interest any more.
    pub(crate) fn forget(&self, request: u64) {
        let mut inbox = lock(&self.inbox);
        inbox.asked.remove(&request);
        if inbox.data.is_some_and(|data| data.request == request) {
            // Its data is in the way: somebody else has to skip it.
            self.wake(&inbox);
        }
    }

    /// Asks for bytes and receives them to where they belong.
    pub(crate) fn fetch<Q: Request>(&self, message: &Q, target: &mut [u8], what: &str) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        let request = self.expect(true);
        let mut asked = Asked { rpc: self, request, deadline, holds: false, asks: PhantomData::<Q> };
        self.send(asked.request, message, None, deadline)?;
        let header = asked.take(what)?.header;
        if header.payload != target.len() as u64 {
            let error = Error::protocol(format!(
                "{} bytes came where {} were asked for",
                header.payload,
                target.len()
            ));
            return Err(lock(&self.receiver).break_with(error));
        }
        let deadline = Instant::now() + self.patience;
        let mut at = 0;
        while at < target.len() {
            // Nobody reads while the data of a question that is still asked comes next.
            let inbox = lock(&self.inbox);
            let target = &mut target[at..];
            let (received, inbox) =
                self.read(inbox, |receiver| receiver.receive_part(target, header.sealed_payload, deadline));
            drop(inbox);
            at += received?;
        }
        Ok(())
    }

    /// The next thing that the server tells, no later than `deadline`, as `take` makes it: that is called in the
    /// order in which things were told, by one thread at a time, and must not wait.
    pub(crate) fn told<M: Message, T>(
        &self,
        deadline: Instant,
        what: &str,
        mut take: impl FnMut(M) -> T,
    ) -> Result<T> {
        let told =
            self.wait(deadline, what, |inbox| inbox.told.pop_front().map(|frame| frame.message().map(&mut take)))?;
        told.map_err(|error| lock(&self.receiver).break_with(error))
    }

    fn answer_to(&self, request: u64, deadline: Instant, what: &str) -> Result<Received> {
        self.wait(deadline, what, |inbox| inbox.asked.get_mut(&request)?.answer.take())
    }

    /// Waits until `find` finds something in the inbox: reads the socket, or waits for the thread that does.
    fn wait<T>(
        &self,
        deadline: Instant,
        what: &str,
        mut find: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<T> {
        let mut inbox = lock(&self.inbox);
        let mut pause = LOOK_AT_MEMBERS;
        loop {
            if let Some(found) = find(&mut inbox) {
                return Ok(found);
            }
            inbox = match inbox.data {
                _ if inbox.reading => self.wait_for_reader(inbox, deadline, what)?,
                Some(data) if inbox.asked.contains_key(&data.request) => {
                    self.wait_for_reader(inbox, deadline, what)?
                }
                Some(data) => {
                    let mut nowhere = vec![0; data.left.min(SKIP) as usize];
                    let (skipped, inbox) = self
                        .read(inbox, |receiver| receiver.receive_part(&mut nowhere, data.sealed, deadline));
                    skipped?;
                    inbox
                }
                None => {
                    let look = deadline.min(Instant::now() + pause);
                    let (answer, mut inbox) = self.read(inbox, |receiver| next(receiver, look, what));
                    match answer {
                        // Not where a signal ended the wait.
                        Err(error)
                            if error.kind == ErrorKind::Timeout
                                && look < deadline
                                && Instant::now() >= look =>
                        {
                            drop(inbox);
                            self.check_member()?;
                            pause = (2 * pause).min(LOOK_AT_MEMBERS_MAX);
                            lock(&self.inbox)
                        }
                        answer => {
                            self.accept(&mut inbox, answer?)?;
                            inbox
                        }
                    }
                }
            }
        }
    }

    /// Reads the socket, which nobody else does meanwhile; without the inbox, so that others find there what
    /// came for them. Bytes that were read are those of the data that comes next.
    fn read<'a, R: Came>(
        &'a self,
        mut inbox: MutexGuard<'a, Inbox>,
        work: impl FnOnce(&mut Receiver) -> Result<R>,
    ) -> (Result<R>, MutexGuard<'a, Inbox>) {
        inbox.reading = true;
        drop(inbox);
        let result = work(&mut lock(&self.receiver));
        let mut inbox = lock(&self.inbox);
        inbox.reading = false;
        if let Ok(came) = &result {
            came.note(&mut inbox);
        }
        // Whether or not something came for them: one of them reads now.
        self.wake(&inbox);
        (result, inbox)
    }

    fn wake(&self, inbox: &Inbox) {
        if inbox.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn wait_for_reader<'a>(
        &'a self,
        mut inbox: MutexGuard<'a, Inbox>,
        deadline: Instant,
        what: &str,
    ) -> Result<MutexGuard<'a, Inbox>> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = format!("the deadline passed while waiting for {} {what}", self.peer);
            return Err(Error::timeout(text));
        }
        let look = if blocking::watches_signals() { left.min(blocking::LOOK) } else { left };
        inbox.waiting += 1;
        let (mut inbox, waited) =
            self.changed.wait_timeout(inbox, look).unwrap_or_else(PoisonError::into_inner);
        inbox.waiting -= 1;
        if !waited.timed_out() {
            return Ok(inbox);
        }
        drop(inbox);
        if blocking::interrupted() {
            return Err(blocking::interrupted_while(format_args!("{} {what}", self.peer)));
        }
        Ok(lock(&self.inbox))
    }

    /// The latest epoch of the group that the server has told of. Does not wait.
    pub(crate) fn epoch_heard(&self) -> Epoch {
        self.heard.load(Ordering::Relaxed)
    }

    /// Keeps what came for whoever waits for it.
    fn accept(&self, inbox: &mut Inbox, received: Received) -> Result<()> {
        let header = received.frame.header;
        self.heard.fetch_max(header.epoch, Ordering::Relaxed);
        let question = inbox.asked.get_mut(&header.request);
        if header.payload > 0 && !question.as_ref().is_none_or(|question| question.wants_data) {
            let error = Error::protocol("data came where none was asked for");
            return Err(lock(&self.receiver).break_with(error));
        }
        match question {
            Some(question) => question.answer = Some(received),
            // The answer to a question that was given up at its deadline.
            None if header.request != 0 => {}
            // The last that it says: the connection ends.
            None if received.frame.protocol == Protocol::Connection as u8 => {
                let error = received.frame.message().map_or_else(|error| error, |LastWords(error)| error);
                return Err(lock(&self.receiver).break_with(error));
            }
            None => inbox.told.push_back(received.frame),
        }
        Ok(())
    }

    /// Whether nothing has come that was not taken, not even the connection's end. Does not wait.
    pub(crate) fn is_quiet(&self) -> bool {
        let inbox = lock(&self.inbox);
        !inbox.reading && inbox.told.is_empty() && lock(&self.receiver).is_quiet()
    }

    /// Whether the server has said that it lets this client go, before it ended the connection, which is broken. Does not
    /// wait.
    pub(crate) fn was_let_go(&self) -> bool {
        let inbox = lock(&self.inbox);
        if inbox.reading || inbox.told.iter().any(lets_go) {
            return inbox.told.iter().any(lets_go);
        }
        let mut receiver = lock(&self.receiver);
        std::iter::from_fn(|| receiver.last_words()).any(|frame| lets_go(&frame))
    }

    /// Ends the connection: nothing can be asked or told by it any more. Does not wait.
    pub(crate) fn hang_up(&self) {
        self.hangup.hang_up();
    }

    /// Whether the connection is known to be of no more use. Does not wait.
    pub(crate) fn is_broken(&self) -> bool {
        let inbox = lock(&self.inbox);
        !inbox.reading && lock(&self.receiver).is_broken()
    }
}

/// Whether a server says with this, unasked, that it lets a rank go.
fn lets_go(frame: &Frame) -> bool {
    frame.header.request == 0
        && (matches!(frame.message(), Ok(producer::Event::LetGo))
            || matches!(frame.message(), Ok(placement::Event::LetGo)))
}

/// A question that was asked.
#[derive(Debug)]
pub(crate) struct Asked<'a, Q: Request> {
    rpc: &'a Rpc,
    request: u64,
    deadline: Instant,
    /// What is found is held under the question's number, and is to be released if the answer is not taken.
    holds: bool,
    asks: PhantomData<Q>,
}

impl<Q: Request> Asked<'_, Q> {
    /// Its number.
    pub(crate) fn request(&self) -> u64 {
        self.request
    }

    /// Waits for the answer. One that says what failed is an error.
    pub(crate) fn answer(mut self, what: &str) -> Result<Answer<Q::Reply>> {
        self.take(what)
    }

    fn take(&mut self, what: &str) -> Result<Answer<Q::Reply>> {
        let answer = self.rpc.answer_to(self.request, self.deadline, what)?;
        self.holds = false;
        self.rpc.decode::<Q>(answer)
    }
}

impl<Q: Request> Drop for Asked<'_, Q> {
    fn drop(&mut self) {
        self.rpc.forget(self.request);
        if self.holds {
            self.rpc.release(self.request);
        }
    }
}

/// What was read off the socket, and what that says of the data that comes next.
trait Came {
    fn note(&self, inbox: &mut Inbox);
}

impl Came for Received {
    fn note(&self, inbox: &mut Inbox) {
        let Header { request, payload: left, sealed_payload: sealed, .. } = self.frame.header;
        inbox.data = (left > 0).then_some(Data { request, left, sealed });
    }
}

impl Came for usize {
    fn note(&self, inbox: &mut Inbox) {
        let left = inbox.data.map_or(0, |data| data.left.saturating_sub(*self as u64));
        inbox.data = inbox.data.filter(|_| left > 0).map(|data| Data { left, ..data });
    }
}

/// The next frame.
fn next(receiver: &mut Receiver, deadline: Instant, what: &str) -> Result<Received> {
    let received = receiver.receive(deadline, what)?;
    Ok(Received { frame: received.frame, descriptors: received.descriptors })
}

/// The error for an answer of another kind than asked for.
pub(crate) fn unexpected(message: &impl std::fmt::Debug) -> Error {
    let text = format!("{message:?}");
    Error::protocol(format!("an answer makes no sense here: {}", text.chars().take(60).collect::<String>()))
}
