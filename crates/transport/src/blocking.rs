//! The blocking driver: connections that start no thread of their own.
//!
//! While it waits for an answer it first looks again and again for a short time, giving way to whatever
//! else wants the processor, and only then sleeps: waking a sleeping process costs more than most answers.

use crate::address::Address;
use crate::link::{Kind, Link, check_user};
use crate::{shm, tcp};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::frame::{self, Decoder, Frame, Header};
use forebay_wire::handshake::{HANDSHAKE_MAX, Initiator, Prologue};
use forebay_wire::protocol::Message;
use forebay_wire::seal::{PLAIN_MAX, Sealer};
pub use rustix::event::PollFlags;
use rustix::event::{PollFd, Timespec};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Asked when a wait is interrupted by a signal: whether to give up.
pub type InterruptCheck = fn() -> bool;

static INTERRUPT_CHECK: OnceLock<InterruptCheck> = OnceLock::new();

thread_local! {
    /// A signal ended a wait of this thread. Whoever made it wait asks once for the reason: until then no
    /// other wait of the same call begins, whatever became of the error of the first.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// Lets a language binding end waits, for example on Ctrl-C. The first one given stays. A binding calls
/// [`forget_interrupt`] when a call of its user's has returned, however it did.
pub fn set_interrupt_check(check: InterruptCheck) {
    let _ = INTERRUPT_CHECK.set(check);
}

/// How long a wait may take no notice of a signal that does not wake it: since it is for another thread, or since the signal
/// came just before it began.
pub const LOOK: Duration = Duration::from_millis(100);

/// Whether signals may end waits in this process: then a wait that no signal wakes looks each [`LOOK`].
pub fn watches_signals() -> bool {
    INTERRUPT_CHECK.get().is_some()
}

/// Whether a signal ends, or has ended, what this thread's call waits for. The binding is asked, which may wait
/// for its interpreter, and locks are held meanwhile: who holds the interpreter never waits for one of them.
pub fn interrupted() -> bool {
    let now = INTERRUPTED.get() || INTERRUPT_CHECK.get().is_some_and(|check| check());
    INTERRUPTED.set(now);
    now
}

/// Lets this thread wait again.
pub fn forget_interrupt() {
    INTERRUPTED.set(false);
}

/// The error of a wait that a signal ended.
pub fn interrupted_while(what: impl std::fmt::Display) -> Error {
    Error::timeout(format!("a signal ended the wait for {what}"))
}

/// How many bytes of messages may wait for the next one that is sent.
const QUEUE_MAX: usize = 64 << 10;
/// How long a wait looks again and again before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// A received frame with what came along; a payload is still to be received.
#[derive(Debug)]
pub struct ReceivedFrame {
    /// The frame.
    pub frame: Frame,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// A connection to a server: two halves that may be used by different threads.
#[derive(Debug)]
pub struct Connection {
    /// Sends.
    pub sender: Sender,
    /// Receives.
    pub receiver: Receiver,
}

/// What ends a connection, whoever uses its halves.
#[derive(Debug)]
pub struct Hangup(Arc<End>);

impl Hangup {
    /// Ends the connection for both halves. Does not wait.
    pub fn hang_up(&self) {
        let _ = rustix::net::shutdown(self.0.link.descriptor(), rustix::net::Shutdown::Both);
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    end: Arc<End>,
    sealer: Option<Sealer>,
    out: Vec<u8>,
}

/// How far a sender was before a message.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Bytes that were queued.
    queued: usize,
    /// The number of the next record, where the link is sealed.
    record: u64,
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    end: Arc<End>,
    decoder: Decoder,
    /// Descriptors that came ahead of the frame that announces them.
    descriptors: VecDeque<OwnedFd>,
}

/// Our end of the link: what both halves share.
#[derive(Debug)]
struct End {
    link: Box<dyn Link>,
    peer: String,
    /// Set when the stream can no longer be trusted: everything fails with it from then on.
    broken: OnceLock<Error>,
}

impl Connection {
    /// Connects to a server and proves the group's secret to it, until `deadline`. `peer` names it in errors.
    pub fn connect(
        address: &Address,
        peer: &str,
        prologue: &Prologue<'_>,
        deadline: Instant,
    ) -> Result<Connection> {
        let opening = PendingConnection::connect(address, peer, prologue, deadline)?;
        opening.greet(deadline)?;
        opening.finish(deadline)
    }

    /// As [`Connection::connect`], over a link that is connected already.
    pub fn from_link(
        link: Box<dyn Link>,
        peer: &str,
        prologue: &Prologue<'_>,
        deadline: Instant,
    ) -> Result<Connection> {
        let opening = PendingConnection::over(link, peer, prologue)?;
        opening.greet(deadline)?;
        opening.finish(deadline)
    }

    /// Which transport it uses.
    pub fn kind(&self) -> Kind {
        self.sender.kind()
    }

    /// What ends it.
    pub fn hangup(&self) -> Hangup {
        Hangup(self.sender.end.clone())
    }
}

fn cannot_reach(peer: &str, address: &Address, patience: Duration, e: &io::Error) -> Error {
    if e.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
        return out_of_descriptors(&format!("cannot reach {peer}"));
    }
    if e.kind() == io::ErrorKind::WouldBlock {
        let why = "it takes none of the many that want to connect: it stands still, or is too busy";
        return Error::timeout(format!("cannot reach {peer} at {address}: {why}"));
    }
    let why = match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nobody listens there: the server has ended, or the connection file is stale".into()
        }
        io::ErrorKind::TimedOut => format!("no answer within {patience:.1?}"),
        _ => e.to_string(),
    };
    Error::unreachable(format!("cannot reach {peer} at {address}: {why}"))
}

fn out_of_descriptors(what: &str) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("{what}: this process has as many descriptors open as it may: raise `ulimit -n`"),
    )
}

/// A connection that is being made, for those who make several at once: what each waits for is theirs to wait
/// for.
#[derive(Debug)]
pub struct PendingConnection {
    end: End,
    initiator: Initiator,
    greeting: Vec<u8>,
}

impl PendingConnection {
    /// Begins to connect. When [`PendingConnection::descriptor`] can be written to, [`PendingConnection::greet`] does not wait.
    pub fn start(address: &Address, peer: &str, prologue: &Prologue<'_>) -> Result<PendingConnection> {
        let link: io::Result<Box<dyn Link>> = match address {
            Address::Shm { name, .. } => shm::ShmLink::connect(name).map(|link| Box::new(link) as _),
            Address::Tcp(address) => tcp::TcpLink::begin(address).map(|link| Box::new(link) as _),
        };
        let link = link.map_err(|e| cannot_reach(peer, address, Duration::ZERO, &e))?;
        PendingConnection::over(link, peer, prologue)
    }

    /// As [`PendingConnection::start`], but waits until there is a link, until `deadline`.
    pub fn connect(
        address: &Address,
        peer: &str,
        prologue: &Prologue<'_>,
        deadline: Instant,
    ) -> Result<PendingConnection> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let failed = |e: io::Error| cannot_reach(peer, address, patience, &e);
        let link: Box<dyn Link> = match address {
            Address::Shm { name, .. } => Box::new(shm::ShmLink::connect(name).map_err(failed)?),
            Address::Tcp(address) => Box::new(tcp::TcpLink::connect(address, patience).map_err(failed)?),
        };
        PendingConnection::over(link, peer, prologue)
    }

    fn over(link: Box<dyn Link>, peer: &str, prologue: &Prologue<'_>) -> Result<PendingConnection> {
        check_user(&*link).map_err(|e| e.during(peer))?;
        let (initiator, greeting) = Initiator::start(prologue, &link.kind().to_string())?;
        let end = End { link, peer: peer.to_owned(), broken: OnceLock::new() };
        Ok(PendingConnection { end, initiator, greeting })
    }

    /// What to wait for.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.end.link.descriptor()
    }

    /// Sends the greeting. When it is answered, [`PendingConnection::finish`] does not wait.
    pub fn greet(&self, deadline: Instant) -> Result<()> {
        self.end.send_all(&self.greeting, &[], deadline)
    }

    /// Takes the answer to the greeting.
    pub fn finish(self, deadline: Instant) -> Result<Connection> {
        let PendingConnection { end, initiator, .. } = self;
        let peer = end.peer.clone();
        let mut answer = Vec::new();
        loop {
            let wanted = Initiator::answer_length(&answer)?.unwrap_or(answer.len() + 1);
            if wanted > HANDSHAKE_MAX + 64 {
                return Err(Error::protocol(format!("{peer} sent a handshake of {wanted} bytes")));
            }
            if answer.len() >= wanted {
                break;
            }
            let at = answer.len();
            // Byte by byte until the length is known: what follows the handshake is not to be touched.
            answer.resize(wanted, 0);
            let space = &mut [IoSliceMut::new(&mut answer[at..])];
            let n = end.receive_some(space, &mut VecDeque::new(), deadline, "to answer the handshake")?;
            answer.truncate(at + n);
        }
        let ((sealer, opener), confirmation) = initiator.finish(&answer).map_err(|e| e.during(&peer))?;
        end.send_all(&confirmation, &[], deadline)?;
        let exposed = end.link.is_exposed();
        let end = Arc::new(end);
        let sender = Sender { end: end.clone(), sealer: exposed.then_some(sealer), out: Vec::new() };
        let decoder = Decoder::new(exposed.then_some(opener));
        Ok(Connection { sender, receiver: Receiver { end, decoder, descriptors: VecDeque::new() } })
    }
}

/// How long a wait sleeps at once, of what is left until its deadline: a signal that came just before does not wake it.
fn until_a_look(left: Duration) -> Timespec {
    let sleep = if watches_signals() { left.min(LOOK) } else { left };
    Timespec::try_from(sleep).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
}

/// Waits until one of these descriptors is ready; tells which are. None is, once the deadline has passed.
pub fn wait_for_any(waited: &[(BorrowedFd<'_>, PollFlags)], deadline: Instant) -> Result<Vec<bool>> {
    let interruption = || Error::timeout("a signal ended the wait for several servers");
    if INTERRUPTED.get() {
        return Err(interruption());
    }
    let mut waiting: Vec<_> =
        waited.iter().map(|(descriptor, flags)| PollFd::from_borrowed_fd(*descriptor, *flags)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match rustix::event::poll(&mut waiting, Some(&until_a_look(left))) {
            Ok(0) | Err(rustix::io::Errno::INTR) if interrupted() => return Err(interruption()),
            Ok(0) if !left.is_zero() => {}
            Ok(_) => return Ok(waiting.iter().map(|waited| !waited.revents().is_empty()).collect()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("cannot wait for several servers", &e.into())),
        }
    }
}

impl Sender {
    /// Which transport it uses.
    pub fn kind(&self) -> Kind {
        self.end.link.kind()
    }

    /// The server's name in errors.
    pub fn peer(&self) -> &str {
        &self.end.peer
    }

    /// An error if the peer has ended the connection: what is sent to a dead one is taken without an error at first. One
    /// system call.
    pub fn check_not_ended(&self) -> Result<()> {
        self.end.check()?;
        let mut waiting = [PollFd::from_borrowed_fd(self.end.link.descriptor(), PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut waiting, Some(&now)) {
            Ok(1..) => Err(self.end.gone("it closed the connection")),
            _ => Ok(()),
        }
    }

    /// Keeps a message to be sent together with the next one: waking the peer costs more than all else. Many
    /// bytes are sent at once; then it waits while the peer does not take them.
    pub fn queue<M: Message>(&mut self, header: &Header, message: &M, deadline: Instant) -> Result<()> {
        self.end.check()?;
        let before = self.mark();
        self.append(header, message)?;
        if self.out.len() < QUEUE_MAX { Ok(()) } else { self.send_queued(before, &[], deadline) }
    }

    /// Sends what is queued, if anything is.
    pub fn flush(&mut self, deadline: Instant) -> Result<()> {
        match self.out.is_empty() {
            true => Ok(()),
            false => self.send_queued(self.mark(), &[], deadline),
        }
    }

    fn mark(&self) -> Mark {
        Mark { queued: self.out.len(), record: self.sealer.as_ref().map_or(0, Sealer::record) }
    }

    /// Encodes a message behind those that are queued.
    fn append<M: Message>(&mut self, header: &Header, message: &M) -> Result<()> {
        let queued = self.out.len();
        let encoded = frame::encode(header, message, self.sealer.as_mut(), &mut self.out);
        if self.out.len() < queued {
            return Err(self.end.break_with(Error::internal("messages that were queued are lost")));
        }
        encoded
    }

    /// Sends all that is queued. Where nothing of it could be sent, only what was queued before stays so, and the
    /// peer never misses the rest: its records' numbers are used again.
    fn send_queued(&mut self, before: Mark, descriptors: &[BorrowedFd<'_>], deadline: Instant) -> Result<()> {
        let mut out = std::mem::take(&mut self.out);
        let result = self.end.send_all(&out, descriptors, deadline);
        out.truncate(if result.is_ok() { 0 } else { before.queued });
        if let (Err(_), None, Some(sealer)) = (&result, self.end.broken.get(), &mut self.sealer) {
            sealer.unseal_from(before.record);
        }
        if out.capacity() <= 1 << 20 || !out.is_empty() {
            self.out = out;
        }
        result
    }

    /// Sends a message, and before it those that are queued. Waits only while the peer does not take them.
    pub fn send<M: Message>(
        &mut self,
        header: &Header,
        message: &M,
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<()> {
        self.end.check()?;
        let before = self.mark();
        let header = Header { descriptors: descriptors.len() as u8, ..*header };
        self.append(&header, message)?;
        self.send_queued(before, descriptors, deadline)
    }

    /// Sends payload bytes of a message whose header announced them. Raw bytes go from where they lie.
    pub fn send_payload(&mut self, payload: &[u8], sealed: bool, deadline: Instant) -> Result<()> {
        self.end.check()?;
        if !sealed {
            return self.end.send_all(payload, &[], deadline).map_err(|e| self.end.break_with(e));
        }
        for chunk in payload.chunks(16 * PLAIN_MAX) {
            let mut out = std::mem::take(&mut self.out);
            out.clear();
            match &mut self.sealer {
                Some(sealer) => sealer.seal(chunk, &mut out)?,
                None => return Err(Error::internal("a sealed payload on a link that is not sealed")),
            }
            self.end.send_all(&out, &[], deadline).map_err(|e| self.end.break_with(e))?;
            out.clear();
            self.out = out;
        }
        Ok(())
    }
}

impl Receiver {
    /// What to wait for besides calls.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.end.link.descriptor()
    }

    /// The next frame, until `deadline`; `what` says what is being waited for.
    pub fn receive(&mut self, deadline: Instant, what: &str) -> Result<ReceivedFrame> {
        self.end.check()?;
        loop {
            let next = self.decoder.next_frame();
            match next.map_err(|e| self.end.break_with(e))? {
                Some(frame) => {
                    let n = usize::from(frame.header.descriptors);
                    if n > self.descriptors.len() && self.end.link.lost_descriptors() {
                        // The frame is taken, and the next one is as good as any.
                        self.descriptors.clear();
                        return Err(out_of_descriptors(&format!(
                            "cannot take the memory that {} shares",
                            self.end.peer
                        )));
                    }
                    if n > self.descriptors.len() {
                        return Err(self
                            .end
                            .break_with(Error::protocol("a frame's descriptors did not arrive")));
                    }
                    return Ok(ReceivedFrame { frame, descriptors: self.descriptors.drain(..n).collect() });
                }
                None => self.fill(deadline, what)?,
            }
        }
    }

    /// The next frame if one has arrived already.
    pub fn try_receive(&mut self, what: &str) -> Result<Option<ReceivedFrame>> {
        match self.receive(Instant::now(), what) {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind == ErrorKind::Timeout => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next frame of those that had come before the connection broke, and that nobody took. Does not wait.
    pub fn next_received(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next_frame().ok()? {
                return Some(frame);
            }
            let space = &mut [IoSliceMut::new(self.decoder.space())];
            let n = self.end.link.try_receive(space, &mut Vec::new()).ok().filter(|n| *n > 0)?;
            self.decoder.on_filled(n);
        }
    }

    fn fill(&mut self, deadline: Instant, what: &str) -> Result<()> {
        let space = &mut [IoSliceMut::new(self.decoder.space())];
        let n = self.end.receive_some(space, &mut self.descriptors, deadline, what)?;
        self.decoder.on_filled(n);
        Ok(())
    }

    /// Receives exactly as many payload bytes as `target` has room for, directly to where they belong.
    pub fn receive_payload(&mut self, target: &mut [u8], sealed: bool, deadline: Instant) -> Result<()> {
        let mut at = 0;
        while at < target.len() {
            let received = self.receive_part(&mut target[at..], sealed, deadline);
            at += received.map_err(|e| self.end.break_with(e))?;
        }
        Ok(())
    }

    /// Receives some payload bytes, at least one, directly to where they belong; returns how many. After a
    /// time-out the rest can still be received.
    pub fn receive_part(&mut self, target: &mut [u8], sealed: bool, deadline: Instant) -> Result<usize> {
        const WHAT: &str = "to send the rest of its data";
        self.end.check()?;
        loop {
            let n = if sealed {
                self.decoder.take_sealed_payload(target)
            } else {
                Ok(self.decoder.take_payload(target))
            };
            match n.map_err(|e| self.end.break_with(e))? {
                0 if target.is_empty() => return Ok(0),
                0 if sealed => self.fill(deadline, WHAT)?,
                0 => {
                    let space = &mut [IoSliceMut::new(target)];
                    return self.end.receive_some(space, &mut self.descriptors, deadline, WHAT);
                }
                n => return Ok(n),
            }
        }
    }

    /// Marks the connection as unusable.
    pub fn break_with(&mut self, error: Error) -> Error {
        self.end.break_with(error)
    }

    /// Whether nothing has arrived that was not taken, neither bytes nor the connection's end. One system call.
    pub fn is_quiet(&self) -> bool {
        let descriptor = self.end.link.descriptor();
        let mut waiting = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !self.is_broken()
            && self.decoder.is_empty()
            && matches!(rustix::event::poll(&mut waiting, Some(&now)), Ok(0))
    }

    /// Whether the connection is unusable.
    pub fn is_broken(&self) -> bool {
        self.end.broken.get().is_some()
    }
}

impl End {
    fn send_all(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>], deadline: Instant) -> Result<()> {
        let mut at = 0;
        let mut descriptors = descriptors;
        while at < bytes.len() {
            match self.link.try_send(&[IoSlice::new(&bytes[at..])], descriptors) {
                Ok(n) => {
                    at += n;
                    descriptors = &[];
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = self.wait(PollFlags::OUT, deadline, "to take a message") {
                        // Half a message cannot be taken back.
                        return Err(if at > 0 { self.break_with(error) } else { error });
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.gone(&e.to_string())),
            }
        }
        Ok(())
    }

    fn receive_some(
        &self,
        space: &mut [IoSliceMut<'_>],
        descriptors: &mut VecDeque<OwnedFd>,
        deadline: Instant,
        what: &str,
    ) -> Result<usize> {
        let started = Instant::now();
        let mut arrived = Vec::new();
        loop {
            match self.link.try_receive(space, &mut arrived) {
                Ok(0) => return Err(self.gone("it closed the connection")),
                Ok(n) => {
                    descriptors.extend(arrived);
                    if descriptors.len() > 4 * frame::DESCRIPTORS_MAX {
                        return Err(
                            self.break_with(Error::protocol("descriptors arrived that no frame announced"))
                        );
                    }
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let now = Instant::now();
                    if now < deadline && now.duration_since(started) < SPIN {
                        std::thread::yield_now();
                    } else {
                        self.wait(PollFlags::IN, deadline, what)?;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.gone(&e.to_string())),
            }
        }
    }

    fn wait(&self, flags: PollFlags, deadline: Instant, what: &str) -> Result<()> {
        let interruption = || interrupted_while(format_args!("{} {what}", self.peer));
        if INTERRUPTED.get() {
            return Err(interruption());
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::timeout(format!(
                    "the deadline passed while waiting for {} {what}",
                    self.peer
                )));
            }
            let descriptor = self.link.descriptor();
            let mut waiting = [PollFd::from_borrowed_fd(descriptor, flags)];
            match rustix::event::poll(&mut waiting, Some(&until_a_look(left))) {
                Ok(1..) => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) if interrupted() => return Err(interruption()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::io("cannot wait for a connection", &e.into())),
            }
        }
    }

    fn check(&self) -> Result<()> {
        self.broken.get().cloned().map_or(Ok(()), Err)
    }

    fn break_with(&self, error: Error) -> Error {
        let _ = self.broken.set(error.clone());
        error
    }

    fn gone(&self, why: &str) -> Error {
        let error = Error::unreachable(format!("the connection to {} is lost: {why}", self.peer));
        self.break_with(error)
    }
}
