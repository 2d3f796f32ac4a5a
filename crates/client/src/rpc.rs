//! Questions and answers over one connection.

use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::Kind;
use forebay_transport::blocking::{Connection, Receiver, Sender};
use forebay_wire::frame::Header;
use forebay_wire::message::{ToClient, ToServer};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An answer with what came along; its payload is still to be received.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) message: ToClient,
    pub(crate) header: Header,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// A connection that asks and is answered, and is told things in between.
///
/// Sending and receiving have locks of their own, so that somebody can tell the server something while
/// somebody else waits for it.
#[derive(Debug)]
pub(crate) struct Rpc {
    sender: Mutex<Sender>,
    inbox: Mutex<Inbox>,
    /// Questions that were posted, with their answers once those are there. Bounded by who posts.
    posted: Mutex<HashMap<u64, Option<ToClient>>>,
    requests: AtomicU64,
    epoch: u64,
    patience: Duration,
    seal_payload: bool,
    kind: Kind,
}

#[derive(Debug)]
struct Inbox {
    receiver: Receiver,
    /// What was told while an answer was awaited. Bounded by the attachment's window.
    told: VecDeque<ToClient>,
}

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
            sender: Mutex::new(connection.sender),
            inbox: Mutex::new(Inbox { receiver: connection.receiver, told: VecDeque::new() }),
            posted: Mutex::default(),
            requests: AtomicU64::new(1),
            epoch,
            patience,
            seal_payload: false,
            kind,
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

    fn header(&self, request: u64) -> Header {
        Header { request, epoch: self.epoch, sealed_payload: self.seal_payload, ..Header::default() }
    }

    /// Tells the server something that is not answered.
    pub(crate) fn tell(&self, message: &ToServer) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        lock(&self.sender).send(&self.header(0), message, &[], deadline)
    }

    /// Tells the server something with the next message that is sent to it.
    pub(crate) fn queue(&self, message: &ToServer) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        lock(&self.sender).queue(&self.header(0), message, deadline)
    }

    /// Asks and waits for the answer, no longer than the default deadline.
    pub(crate) fn call(&self, message: &ToServer, what: &str) -> Result<Answer> {
        self.call_within(message, None, self.patience, what)
    }

    /// Asks, with a payload or another deadline, and waits for the answer. An answer that says what failed
    /// is an error.
    pub(crate) fn call_within(
        &self,
        message: &ToServer,
        payload: Option<Payload<'_>>,
        patience: Duration,
        what: &str,
    ) -> Result<Answer> {
        self.ask(message, payload, patience)?.answer(what)
    }

    /// Asks. Until the answer is taken nobody else is answered on this connection: who asks several servers at
    /// once asks them in the order of their ids.
    pub(crate) fn ask(
        &self,
        message: &ToServer,
        payload: Option<Payload<'_>>,
        patience: Duration,
    ) -> Result<Asked<'_>> {
        let inbox = lock(&self.inbox);
        let deadline = Instant::now() + patience;
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        self.send(request, message, payload, deadline)?;
        Ok(Asked { rpc: self, inbox, request, deadline })
    }

    fn send(
        &self,
        request: u64,
        message: &ToServer,
        payload: Option<Payload<'_>>,
        deadline: Instant,
    ) -> Result<()> {
        let mut sender = lock(&self.sender);
        let bytes = payload.as_ref().map_or(0, |payload| payload.0.len() as u64);
        let header = Header { payload: bytes, ..self.header(request) };
        sender.send(&header, message, &[], deadline)?;
        match payload {
            Some(Payload(bytes)) => sender.send_payload(bytes, self.seal_payload, deadline),
            None => Ok(()),
        }
    }

    /// Keeps what came while something else was awaited for whoever wants it.
    fn put_by(&self, inbox: &mut Inbox, header: &Header, message: ToClient) -> Result<()> {
        if header.request == 0 {
            inbox.told.push_back(message);
        } else if let Some(place) = lock(&self.posted).get_mut(&header.request) {
            *place = Some(message);
        } else if header.payload > 0 {
            let error = Error::timeout("an earlier answer arrived too late and its data is in the way");
            return Err(inbox.receiver.break_with(error));
        }
        // Else the answer to a question that was given up at its deadline.
        Ok(())
    }

    /// Asks without waiting for the answer, which [`Rpc::collect`] gives; waits only while the server does not
    /// take the bytes. The payload is the caller's again on return.
    pub(crate) fn post(&self, message: &ToServer, payload: Payload<'_>) -> Result<u64> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        lock(&self.posted).insert(request, None);
        let sent = self.send(request, message, Some(payload), Instant::now() + self.patience);
        if sent.is_err() {
            lock(&self.posted).remove(&request);
        }
        sent.map(|()| request)
    }

    /// Waits for the answer to what was posted, no longer than the default deadline. After a time-out it can
    /// be asked for again, or be forgotten.
    pub(crate) fn collect(&self, request: u64, what: &str) -> Result<()> {
        let mut inbox = lock(&self.inbox);
        let deadline = Instant::now() + self.patience;
        loop {
            let answered = lock(&self.posted).get_mut(&request).and_then(Option::take);
            if let Some(message) = answered {
                self.forget(request);
                return match message {
                    ToClient::Failed(error) => Err(error),
                    _ => Ok(()),
                };
            }
            let answer = inbox.next(deadline, what)?;
            match (answer.header.request, answer.message) {
                (0, ToClient::Failed(error)) => return Err(error),
                (_, message) => self.put_by(&mut inbox, &answer.header, message)?,
            }
        }
    }

    /// The answer to what was posted is of no interest any more.
    pub(crate) fn forget(&self, request: u64) {
        lock(&self.posted).remove(&request);
    }

    /// Asks for bytes and receives them to where they belong.
    pub(crate) fn fetch(&self, message: &ToServer, target: &mut [u8], what: &str) -> Result<()> {
        let answer = self.call(message, what)?;
        if answer.header.payload != target.len() as u64 {
            let error = Error::protocol(format!(
                "{} bytes came where {} were asked for",
                answer.header.payload,
                target.len()
            ));
            return Err(lock(&self.inbox).receiver.break_with(error));
        }
        let deadline = Instant::now() + self.patience;
        lock(&self.inbox).receiver.receive_payload(target, answer.header.sealed_payload, deadline)
    }

    /// The next thing that the server tells, no later than `deadline`.
    pub(crate) fn told(&self, deadline: Instant, what: &str) -> Result<ToClient> {
        let mut inbox = lock(&self.inbox);
        if let Some(message) = inbox.told.pop_front() {
            return Ok(message);
        }
        loop {
            let answer = inbox.next(deadline, what)?;
            match (answer.header.request, answer.message) {
                (0, ToClient::Failed(error)) => return Err(error),
                (0, message) => return Ok(message),
                _ => {}
            }
        }
    }

    /// Whether nothing has come that was not taken, not even the connection's end. Does not wait.
    pub(crate) fn is_quiet(&self) -> bool {
        self.inbox.try_lock().is_ok_and(|inbox| inbox.told.is_empty() && inbox.receiver.is_quiet())
    }

    /// Whether the connection is of no more use.
    pub(crate) fn is_broken(&self) -> bool {
        self.inbox.try_lock().is_ok_and(|inbox| inbox.receiver.is_broken())
    }
}

/// A question that was asked.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    rpc: &'a Rpc,
    inbox: MutexGuard<'a, Inbox>,
    request: u64,
    deadline: Instant,
}

impl Asked<'_> {
    /// Waits for the answer. One that says what failed is an error.
    pub(crate) fn answer(mut self, what: &str) -> Result<Answer> {
        loop {
            let answer = self.inbox.next(self.deadline, what)?;
            match (answer.header.request, answer.message) {
                (n, ToClient::Failed(error)) if n == self.request || n == 0 => return Err(error),
                (n, message) if n == self.request => {
                    return Ok(Answer { message, ..answer_rest(answer.header, answer.descriptors) });
                }
                (_, message) => self.rpc.put_by(&mut self.inbox, &answer.header, message)?,
            }
        }
    }
}

fn answer_rest(header: Header, descriptors: Vec<OwnedFd>) -> Answer {
    Answer { message: ToClient::Done, header, descriptors }
}

impl Inbox {
    fn next(&mut self, deadline: Instant, what: &str) -> Result<Answer> {
        let received = self.receiver.receive(deadline, what)?;
        let message = received.frame.message::<ToClient>().map_err(|e| self.receiver.break_with(e))?;
        if received.frame.header.payload > 0 && !matches!(message, ToClient::Data) {
            let error = Error::new(ErrorKind::Protocol, "a payload with a message that has none");
            return Err(self.receiver.break_with(error));
        }
        Ok(Answer { message, header: received.frame.header, descriptors: received.descriptors })
    }
}

/// The error for an answer of another kind than asked for.
pub(crate) fn unexpected(message: &ToClient) -> Error {
    let text = format!("{message:?}");
    Error::protocol(format!("an answer makes no sense here: {}", text.chars().take(60).collect::<String>()))
}
