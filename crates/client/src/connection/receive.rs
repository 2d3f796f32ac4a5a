//! Waiting for what comes over a connection: answers, their data, and events. One of the threads that wait reads the socket.

use crate::connection::rpc::{Inbox, LOOK_AT_MEMBERS, Rpc, lock};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking::{self, Receiver};
use forebay_wire::client::{placement, producer};
use forebay_wire::frame::Frame;
use forebay_wire::protocol::Message;
use forebay_wire::request::{Answer, Data};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// This process looks at least so often whether a server whose answer it awaits is still a member.
const LOOK_AT_MEMBERS_MAX: Duration = Duration::from_secs(4);
/// How many bytes of data that nobody wants any more are skipped at once; a sealed record fits.
const SKIP: u64 = 64 << 10;

/// An answer as it came, with its descriptors: whoever asked knows how to decode it.
pub(super) type RawAnswer = Answer<Vec<OwnedFd>>;

impl Rpc {
    /// The next event that the server tells, no later than `deadline`, as `take` makes it: that is called in the order in which
    /// events were told, by one thread at a time, and must not wait.
    pub(crate) fn next_event<M: Message, T>(
        &self,
        deadline: Instant,
        what: &str,
        take: impl FnMut(M) -> T,
    ) -> Result<T> {
        self.next_event_unless(deadline, what, || None, take)
    }

    /// The same, unless there is nothing to wait for (`is_over`): that is asked whenever something has come, by each thread that waits.
    pub(crate) fn next_event_unless<M: Message, T>(
        &self,
        deadline: Instant,
        what: &str,
        is_over: impl Fn() -> Option<T>,
        mut take: impl FnMut(M) -> T,
    ) -> Result<T> {
        let event = self.wait(deadline, what, |inbox| match inbox.requests.take_event() {
            Some(frame) => Some(frame.message().map(&mut take)),
            None => is_over().map(Ok),
        })?;
        event.map_err(|error| self.about_it(lock(&self.receiver).break_with(error)))
    }

    /// The answer to a request, no later than `deadline`.
    pub(super) fn answer_to(&self, request: u64, deadline: Instant, what: &str) -> Result<RawAnswer> {
        self.wait(deadline, what, |inbox| inbox.requests.take_answer(request))
    }

    /// Receives the data of an answer that was taken, to where it belongs.
    pub(super) fn receive_data(&self, target: &mut [u8], sealed: bool, deadline: Instant) -> Result<()> {
        self.receive_all(target, sealed, deadline).map_err(|error| self.about_it(error))
    }

    fn receive_all(&self, target: &mut [u8], sealed: bool, deadline: Instant) -> Result<()> {
        let mut at = 0;
        while at < target.len() {
            // No thread reads anything else while the data of a request that is still open comes next.
            let inbox = lock(&self.inbox);
            let (received, inbox) = self.read_part(inbox, &mut target[at..], sealed, deadline);
            drop(inbox);
            at += received?;
        }
        Ok(())
    }

    /// Waits until `find` finds something in the inbox: reads the socket, or waits for the thread that does.
    fn wait<T>(&self, deadline: Instant, what: &str, find: impl FnMut(&mut Inbox) -> Option<T>) -> Result<T> {
        self.wait_until_found(deadline, what, find).map_err(|error| self.about_it(error))
    }

    fn wait_until_found<T>(
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
            inbox = match inbox.requests.data() {
                _ if inbox.reading => self.wait_for_reader(inbox, deadline, what)?,
                Some(data) if inbox.requests.is_open(data.request) => {
                    self.wait_for_reader(inbox, deadline, what)?
                }
                Some(data) => self.skip(inbox, data, deadline)?,
                None => self.read_frame(inbox, deadline, what, &mut pause)?,
            }
        }
    }

    /// Reads the socket, which no other thread does meanwhile; without the inbox, so that others find there what came for them.
    /// `note` notes in the inbox what was read.
    fn read<'a, T, R>(
        &'a self,
        mut inbox: MutexGuard<'a, Inbox>,
        receive: impl FnOnce(&mut Receiver) -> Result<T>,
        note: impl FnOnce(&mut Inbox, Result<T>) -> R,
    ) -> (R, MutexGuard<'a, Inbox>) {
        inbox.reading = true;
        drop(inbox);
        let received = receive(&mut lock(&self.receiver));
        let mut inbox = lock(&self.inbox);
        inbox.reading = false;
        let noted = note(&mut inbox, received);
        // Whether or not something came for them: one of them reads now.
        self.wake(&inbox);
        (noted, inbox)
    }

    /// Reads the next frame and keeps it for whoever waits for it. While none comes, this thread looks after each `pause`,
    /// which grows, whether the server is still a member of the group.
    fn read_frame<'a>(
        &'a self,
        inbox: MutexGuard<'a, Inbox>,
        deadline: Instant,
        what: &str,
        pause: &mut Duration,
    ) -> Result<MutexGuard<'a, Inbox>> {
        let look = deadline.min(Instant::now() + *pause);
        let (accepted, inbox) = self.read(
            inbox,
            |receiver| receiver.receive(look, what),
            |inbox, received| {
                received.map(|received| {
                    self.heard.fetch_max(received.frame.header.epoch, Ordering::Relaxed);
                    inbox.requests.accept(received.frame, received.descriptors)
                })
            },
        );
        match accepted {
            Ok(accepted) => {
                accepted.map_err(|error| lock(&self.receiver).break_with(error))?;
                Ok(inbox)
            }
            // A signal may have ended the wait before.
            Err(error) if error.kind == ErrorKind::Timeout && look < deadline && Instant::now() >= look => {
                drop(inbox);
                self.check_member()?;
                *pause = (2 * *pause).min(LOOK_AT_MEMBERS_MAX);
                Ok(lock(&self.inbox))
            }
            Err(error) => Err(error),
        }
    }

    /// Skips some of the data that comes next: whoever asked for it wants it no more.
    fn skip<'a>(
        &'a self,
        inbox: MutexGuard<'a, Inbox>,
        data: Data,
        deadline: Instant,
    ) -> Result<MutexGuard<'a, Inbox>> {
        let mut nowhere = vec![0; data.left.min(SKIP) as usize];
        let (skipped, inbox) = self.read_part(inbox, &mut nowhere, data.sealed, deadline);
        skipped.map(|_| inbox)
    }

    /// Reads some of the data that comes next; how many bytes.
    fn read_part<'a>(
        &'a self,
        inbox: MutexGuard<'a, Inbox>,
        target: &mut [u8],
        sealed: bool,
        deadline: Instant,
    ) -> (Result<usize>, MutexGuard<'a, Inbox>) {
        self.read(
            inbox,
            |receiver| receiver.receive_part(target, sealed, deadline),
            |inbox, received| received.inspect(|bytes| inbox.requests.received_data(*bytes as u64)),
        )
    }

    pub(super) fn wake(&self, inbox: &Inbox) {
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

    /// Whether nothing has come that was not taken, not even the connection's end. Does not wait.
    pub(crate) fn is_quiet(&self) -> bool {
        let inbox = lock(&self.inbox);
        !inbox.reading && inbox.requests.events().next().is_none() && lock(&self.receiver).is_quiet()
    }

    /// Whether the server has said that it lets this client go, before it ended the connection, which is broken. Does not
    /// wait.
    pub(crate) fn was_let_go(&self) -> bool {
        let inbox = lock(&self.inbox);
        let is_told = inbox.requests.events().any(lets_go);
        if inbox.reading || is_told {
            return is_told;
        }
        let mut receiver = lock(&self.receiver);
        std::iter::from_fn(|| receiver.next_received()).any(|frame| lets_go(&frame))
    }
}

/// Whether a server says with this, unasked, that it lets a rank go.
fn lets_go(frame: &Frame) -> bool {
    frame.header.request == 0
        && (matches!(frame.message(), Ok(producer::Event::LetGo))
            || matches!(frame.message(), Ok(placement::Event::LetGo)))
}
