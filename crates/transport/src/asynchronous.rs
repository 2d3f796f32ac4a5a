//! The asynchronous driver, on tokio: a [`Receiver`] and an [`Outbox`] for each connection, and a [`Requester`] on top of both
//! where this process asks and is answered.

mod outbox;
mod receiver;
mod requester;

pub use outbox::{Generator, Outbox, Payload};
pub use receiver::Receiver;
pub use requester::{Requester, Target};

use crate::link::{Link, check_user};
use crate::readiness;
use forebay_core::{Error, Result};
use forebay_wire::handshake::{self, HANDSHAKE_MAX, Initiator, Prologue, Session, UnconfirmedSession};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How often a full socket is tried again that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How much of a payload is handed to the socket at a time.
const CHUNK: usize = 1 << 20;

/// A link that tokio can wait for.
#[derive(Debug)]
struct Pollable(Box<dyn Link>);

impl AsRawFd for Pollable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.descriptor().as_raw_fd()
    }
}

impl AsFd for Pollable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

/// Lets tokio wait until a link can be read. Who waits for room to write in registers for that alone and only
/// then: a local socket would otherwise wake its server each time that the peer takes a message out of it, at the
/// cost of the peer.
fn register(link: Box<dyn Link>) -> Result<AsyncFd<Pollable>> {
    // SAFETY: a link owns its descriptor and never closes or replaces it before it is dropped, and it is
    // dropped only by the AsyncFd that owns it.
    #[allow(unsafe_code)]
    unsafe { AsyncFd::register_with_interest(Pollable(link), Interest::READABLE) }.map_err(|e| lost(&e))
}

fn lost(e: &dyn std::fmt::Display) -> Error {
    Error::unreachable(format!("the connection is lost: {e}"))
}

/// Makes both halves of a connection whose handshake is done.
fn halves(link: AsyncFd<Pollable>, session: Session) -> (Receiver, Arc<Outbox>) {
    let (sealer, opener) = session;
    let exposed = link.get_ref().0.is_exposed();
    let link = Arc::new(link);
    (Receiver::new(link.clone(), exposed.then_some(opener)), Outbox::start(link, exposed.then_some(sealer)))
}

/// Answers a client's handshake; returns when it is known that the client holds the secret, and not only
/// repeats what somebody said who does. The caller sets the deadline.
pub async fn accept(link: Box<dyn Link>, prologue: &Prologue<'_>) -> Result<(Receiver, Arc<Outbox>)> {
    let transport = link.kind().to_string();
    let link = register(link)?;
    let mut opening = Vec::new();
    let result = read_exactly(&link, &mut opening, handshake::opening_length).await;
    let (answer, session) = match result.and_then(|()| check_user(&*link.get_ref().0)) {
        Ok(()) => handshake::respond(prologue, &transport, &opening),
        // Told in the same way, so that a version that differs is named.
        Err(error) if opening.len() >= 10 => (handshake::refusal(&error), Err(error)),
        Err(error) => return Err(error),
    };
    write_all(&link, &answer).await?;
    let session = session?;
    let mut confirmation = Vec::new();
    read_exactly(&link, &mut confirmation, UnconfirmedSession::confirmation_length).await?;
    Ok(halves(link, session.confirm(&confirmation)?))
}

/// Opens a connection to another server. The caller sets the deadline.
pub async fn connect(link: Box<dyn Link>, prologue: &Prologue<'_>) -> Result<(Receiver, Arc<Outbox>)> {
    check_user(&*link)?;
    let transport = link.kind().to_string();
    let link = register(link)?;
    let (initiator, opening) = Initiator::start(prologue, &transport)?;
    write_all(&link, &opening).await?;
    let mut answer = Vec::new();
    read_exactly(&link, &mut answer, Initiator::answer_length).await?;
    let (session, confirmation) = initiator.finish(&answer)?;
    write_all(&link, &confirmation).await?;
    Ok(halves(link, session))
}

async fn read_exactly(
    link: &AsyncFd<Pollable>,
    bytes: &mut Vec<u8>,
    length: fn(&[u8]) -> Result<Option<usize>>,
) -> Result<()> {
    loop {
        let wanted = length(bytes)?.unwrap_or(bytes.len() + 1);
        if wanted > HANDSHAKE_MAX + 64 {
            return Err(Error::protocol(format!("a handshake of {wanted} bytes")));
        }
        if bytes.len() >= wanted {
            return Ok(());
        }
        let at = bytes.len();
        bytes.resize(wanted, 0);
        let received = link
            .async_io(Interest::READABLE, |link| {
                link.0.try_receive(&mut [IoSliceMut::new(&mut bytes[at..])], &mut Vec::new())
            })
            .await;
        bytes.truncate(at + *received.as_ref().unwrap_or(&0));
        match received {
            Ok(0) => {
                return Err(Error::unreachable("the other side closed the connection during the handshake"));
            }
            Ok(_) => {}
            Err(e) => return Err(lost(&e)),
        }
    }
}

async fn write_all(link: &AsyncFd<Pollable>, bytes: &[u8]) -> Result<()> {
    let mut at = 0;
    let mut room = Room::default();
    while at < bytes.len() {
        match link.get_ref().0.try_send(&[IoSlice::new(&bytes[at..])], &[]) {
            Ok(sent) => at += sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => room.wait(&*link.get_ref().0).await,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(lost(&e)),
        }
    }
    Ok(())
}

/// Waits for room in a full socket.
#[derive(Default)]
struct Room(Option<AsyncFd<OwnedFd>>);

impl Room {
    /// Returns when it is worth trying to send again. That it fails for good is seen then.
    async fn wait(&mut self, link: &dyn Link) {
        if self.0.is_none() {
            self.0 = link.descriptor().try_clone_to_owned().and_then(readiness::writable).ok();
        }
        match &self.0 {
            Some(socket) => match socket.writable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            },
            // There is no descriptor to wait with (see `ulimit -n`).
            None => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}
