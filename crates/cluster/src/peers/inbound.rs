//! What a server of this host had said before it died, it has said: its messages lie in this one's socket, and all of them
//! are handled before the group goes on without it. So a home need not wait until a backup has read what it is to keep:
//! see [`crate::peers::SendOutcome::There`].

use crate::environment::HashMap;
use forebay_core::Result;
use forebay_core::ids::ServerId;
use forebay_transport::Kind;
use forebay_transport::asynchronous::Receiver;
use forebay_wire::frame::Frame;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use tokio::sync::{mpsc, oneshot};

/// Who wants to be told when all is heard.
type Asker = oneshot::Sender<()>;

/// The connections over which other servers of this host tell this one something.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    connections: Mutex<HashMap<ServerId, Vec<mpsc::Sender<Asker>>>>,
}

/// One of them, as long as it is listened to.
#[derive(Debug)]
pub(crate) struct InboundConnection {
    asked: mpsc::Receiver<Asker>,
    waiting: Vec<Asker>,
}

impl Inbound {
    /// A server begins to tell this one something over a connection.
    pub(crate) fn open(&self, from: ServerId, kind: Kind) -> InboundConnection {
        let (sender, asked) = mpsc::channel(1);
        if kind == Kind::Shm {
            let mut connections = self.connections.lock();
            connections.retain(|_, of| {
                of.retain(|sender| !sender.is_closed());
                !of.is_empty()
            });
            connections.entry(from).or_default().push(sender);
        }
        InboundConnection { asked, waiting: Vec::new() }
    }

    /// Whether any of these servers may have said something that is not handled yet.
    pub(crate) fn may_lack(&self, servers: &[ServerId]) -> bool {
        let connections = self.connections.lock();
        servers.iter().filter_map(|id| connections.get(id)).flatten().any(|sender| !sender.is_closed())
    }

    /// Waits until all is handled that these servers had said when this was called. The caller sets the deadline.
    pub(crate) async fn all_of(&self, servers: &[ServerId]) {
        let senders: Vec<mpsc::Sender<Asker>> = {
            let connections = self.connections.lock();
            servers.iter().filter_map(|id| connections.get(id)).flatten().cloned().collect()
        };
        for sender in senders {
            let (asker, told) = oneshot::channel();
            // Who does not listen any more has heard all.
            if sender.send(asker).await.is_ok() {
                let _ = told.await;
            }
        }
    }
}

impl InboundConnection {
    /// What is said next; until then, tells who asks that all is handled that was said before.
    pub(crate) async fn next(&mut self, receiver: &mut Receiver) -> Result<Option<(Frame, Vec<OwnedFd>)>> {
        loop {
            tokio::select! {
                biased;
                said = receiver.next() => return said,
                Some(asker) = self.asked.recv() => self.waiting.push(asker),
                () = tokio::task::yield_now(), if !self.waiting.is_empty() => {}
            }
            // Nothing was there when it was looked for; something may have come that this task was not woken for yet.
            if !receiver.has_unread() {
                for asker in self.waiting.drain(..) {
                    let _ = asker.send(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ids::Lineage;
    use forebay_transport::asynchronous;
    use forebay_transport::shm::ShmLink;
    use forebay_wire::frame::Header;
    use forebay_wire::handshake::{Prologue, Secret};
    use forebay_wire::peer::cluster;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SAID: usize = 200;

    #[tokio::test]
    async fn all_is_heard_that_was_said_before_it_was_asked() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let (secret, lineage) = (Secret([7; 32]), Lineage([3; 16]));
        let prologue = Prologue { secret: &secret, lineage: &lineage, name: "server1" };
        let (speaks, listens) = tokio::join!(
            asynchronous::connect(Box::new(ShmLink::new(one)), &prologue),
            asynchronous::accept(Box::new(ShmLink::new(other)), &prologue),
        );
        let ((_, outbox), (mut receiver, _own)) = (speaks.unwrap(), listens.unwrap());
        let (inbound, from) = (Inbound::default(), ServerId(0));
        let mut heard = inbound.open(from, receiver.kind());
        let handled = Arc::new(AtomicUsize::new(0));
        let listener = {
            let handled = handled.clone();
            tokio::spawn(async move {
                while let Ok(Some(_)) = heard.next(&mut receiver).await {
                    handled.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        for round in 1..=3 {
            for _ in 0..SAID {
                outbox.push(Header::default(), &cluster::Message::QueryRoster).unwrap();
            }
            assert!(outbox.is_idle(), "the socket has them all");
            assert!(inbound.may_lack(&[from]) && !inbound.may_lack(&[ServerId(1)]));
            inbound.all_of(&[ServerId(1), from]).await;
            assert_eq!(handled.load(Ordering::Relaxed), round * SAID);
        }
        outbox.push(Header::default(), &cluster::Message::QueryRoster).unwrap();
        outbox.close();
        listener.await.unwrap();
        assert_eq!(handled.load(Ordering::Relaxed), 3 * SAID + 1);
        assert!(!inbound.may_lack(&[from]), "it has ended");
        inbound.all_of(&[from]).await;
    }
}
