//! One connection to a server: its state, and what is sent over it.

use crate::connection::deadline_mutex::DeadlineMutex;
use crate::connection::group::Group;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::Kind;
use forebay_transport::blocking::{Connection, Hangup, Receiver, Sender};
use forebay_wire::client::space;
use forebay_wire::frame::Header;
use forebay_wire::protocol::Message;
use forebay_wire::request::Requests;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connection to a server, over which this process asks and is answered, and is told events in between.
///
/// Many threads may wait for it at once, each with its own deadline. One of them reads the socket, and hands on what is for
/// others; when that thread has what it waited for, another one reads.
#[derive(Debug)]
pub(crate) struct Rpc {
    sender: DeadlineMutex<Sender>,
    hangup: Hangup,
    /// Requests with whose answers the caller has finished, and of which the server was not told yet. Bounded by the caller,
    /// who asks no more than so many at once.
    released: Mutex<Vec<u64>>,
    /// Locked by the thread that reads, which says so in the inbox first.
    pub(super) receiver: Mutex<Receiver>,
    pub(super) inbox: Mutex<Inbox>,
    /// Notified when something came, or when the thread that read reads no more.
    pub(super) changed: Condvar,
    epoch: u64,
    /// The latest epoch that the server has told.
    pub(super) heard: AtomicU64,
    patience: Duration,
    seal_payload: bool,
    kind: Kind,
    pub(super) peer: String,
    /// The group whose member the server is.
    member: Option<(Group, ServerId)>,
}

/// What came off the socket, or is to come.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Whether a thread reads the socket.
    pub(super) reading: bool,
    /// How many threads wait for what another one reads.
    pub(super) waiting: usize,
    pub(super) requests: Requests<Vec<OwnedFd>>,
}

/// How much longer than the server a client waits: the server gives up first, and says what it waited for.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// When this process first looks whether a server whose answer it awaits is still a member; then after twice that time, and
/// so on.
pub(crate) const LOOK_AT_MEMBERS: Duration = Duration::from_secs(1);
/// How long a server may take no bytes when this process tells it what it has finished with.
const RELEASE: Duration = Duration::from_secs(1);

/// The payload of a request.
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
            sender: DeadlineMutex::new(connection.sender),
            receiver: Mutex::new(connection.receiver),
            inbox: Mutex::default(),
            changed: Condvar::new(),
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

    /// While this process awaits an answer, it looks now and then whether the server is a member of the group at all: a server
    /// that stands still does not end its connections.
    pub(crate) fn of_member(self, group: Group, server: ServerId) -> Rpc {
        Rpc { member: Some((group, server)), ..self }
    }

    /// The latest epoch of the group that the server has told of. Does not wait.
    pub(crate) fn epoch_heard(&self) -> Epoch {
        self.heard.load(Ordering::Relaxed)
    }

    /// Fails, for all who use this connection, if its server is known to be no member any more.
    pub(super) fn check_member(&self) -> Result<()> {
        let Some((group, server)) = &self.member else { return Ok(()) };
        let _ = group.refresh();
        if !group.known().has_left(*server) {
            return Ok(());
        }
        let text = format!("{} did not answer, and is no member of the group any more", self.peer);
        Err(self.about_it(lock(&self.receiver).break_with(Error::unreachable(text))))
    }

    /// An error of this connection, which is about its server; what a server answers is about no server, unless it says so.
    pub(super) fn about_it(&self, error: Error) -> Error {
        match &self.member {
            Some((_, server)) => error.about(*server),
            None => error,
        }
    }

    pub(super) fn header(&self, request: u64) -> Header {
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

    /// Uses the sending half when no other thread does.
    pub(super) fn with_sender<T>(
        &self,
        deadline: Instant,
        work: impl FnOnce(&mut Sender) -> Result<T>,
    ) -> Result<T> {
        let what = format_args!("another thread to send something to {}", self.peer);
        let result = self.sender.lock_until(deadline, what).and_then(|mut sender| {
            let result = work(&mut sender);
            drop(sender);
            self.tell_released();
            result
        });
        result.map_err(|error| self.about_it(error))
    }

    /// The caller has finished with what the answer to a request holds, or may hold once it comes. The server is told now, or by
    /// the thread that sends it something just now. Waits only while the server takes no bytes, a second at most.
    pub(crate) fn release(&self, request: u64) {
        lock(&self.released).push(request);
        self.tell_released();
    }

    fn tell_released(&self) {
        // The thread that uses the sending half tells the server afterwards.
        while !lock(&self.released).is_empty()
            && let Some(mut sender) = self.sender.try_lock()
        {
            let released = std::mem::take(&mut *lock(&self.released));
            let deadline = Instant::now() + RELEASE;
            for (at, &request) in released.iter().enumerate() {
                match sender.send(&self.header(0), &space::Request::Release { request }, &[], deadline) {
                    Err(error) if error.kind == ErrorKind::Timeout => {
                        // The server is told with what is sent next.
                        lock(&self.released).extend(&released[at..]);
                        return;
                    }
                    // With the connection, all ends that the server held for it.
                    Err(_) => return,
                    Ok(()) => {}
                }
            }
        }
    }

    pub(super) fn send<M: Message>(
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

    /// Sends what waits for the next message, if anything does. Waits until a deadline for another thread that sends
    /// something; while the server does not take the bytes no longer than the default.
    pub(crate) fn flush(&self, deadline: Instant) -> Result<()> {
        // A message that is given up half way would end the connection.
        self.with_sender(deadline, |sender| sender.flush(Instant::now() + self.patience))
    }

    /// Ends the connection: nothing can be asked or told by it any more. Does not wait.
    pub(crate) fn hang_up(&self) {
        self.hangup.hang_up();
    }

    /// Whether a request has failed with this error since the connection has ended: the server is gone, or has ended it. Else the
    /// server lives, and says of another one that it cannot be reached.
    pub(crate) fn ended_with(&self, error: &Error) -> bool {
        error.kind == ErrorKind::Unreachable && self.is_broken()
    }

    /// Whether this process knows that the connection is of no more use. Does not wait.
    pub(crate) fn is_broken(&self) -> bool {
        let inbox = lock(&self.inbox);
        !inbox.reading && lock(&self.receiver).is_broken()
    }
}

/// The error for an answer of another kind than asked for.
pub(crate) fn unexpected(message: &impl std::fmt::Debug) -> Error {
    let text = format!("{message:?}");
    Error::protocol(format!("an answer makes no sense here: {}", text.chars().take(60).collect::<String>()))
}
