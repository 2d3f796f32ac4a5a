//! Messages to the other servers: each is told over a connection that this server dials.

use crate::forming;
use crate::node::Node;
use forebay_core::block::BlockRecord;
use forebay_core::ids::ServerId;
use forebay_core::{ErrorKind, Result};
use forebay_transport::group_file::ServerEntry;
use forebay_wire::frame::Header;
use forebay_wire::peer::PeerMessage;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, mpsc};

/// Messages that may wait for one server.
const QUEUE: usize = 1 << 16;
/// About how many bytes of messages may wait for one server before ranks wait with their next steps: one that
/// stands still is not gone.
const BEHIND: usize = 8 << 20;
/// About how many bytes a message takes beside the bytes of blocks.
const MESSAGE_BYTES: usize = 256;
/// About how many bytes a block's record takes beside the block's own bytes.
const RECORD_BYTES: usize = 128;

/// The other servers.
#[derive(Debug)]
pub(crate) struct Peers {
    queues: HashMap<ServerId, Queue>,
}

/// What waits to be told to one server.
#[derive(Debug)]
struct Queue {
    messages: mpsc::Sender<PeerMessage>,
    waiting: Arc<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// There are fewer.
    fewer: Notify,
}

/// What one server is to be told, in order.
#[derive(Debug)]
pub(crate) struct ToTell {
    server: ServerEntry,
    messages: mpsc::Receiver<PeerMessage>,
    waiting: Arc<Waiting>,
}

impl Peers {
    /// Queues for all others, and what the tasks take from.
    pub(crate) fn new(servers: &[ServerEntry], me: ServerId) -> (Peers, Vec<ToTell>) {
        let mut queues = HashMap::new();
        let mut ends = Vec::new();
        for server in servers.iter().filter(|server| server.id != me) {
            let (sender, messages) = mpsc::channel(QUEUE);
            let waiting = Arc::new(Waiting::default());
            queues.insert(server.id, Queue { messages: sender, waiting: waiting.clone() });
            ends.push(ToTell { server: server.clone(), messages, waiting });
        }
        (Peers { queues }, ends)
    }

    /// Tells a server something, in order. `false` if it is gone or hopelessly behind.
    pub(crate) fn send(&self, to: ServerId, message: PeerMessage) -> bool {
        let Some(queue) = self.queues.get(&to) else { return false };
        let bytes = about_bytes(&message);
        queue.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = queue.messages.try_send(message).is_ok();
        if !sent {
            queue.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }

    /// Whether so much waits for a server that nothing should be begun of which it is to be told. One that is gone
    /// is not behind.
    pub(crate) fn is_behind(&self, server: ServerId) -> bool {
        self.queues.get(&server).is_some_and(Queue::is_long)
    }

    /// Waits until a server is not behind any more. The caller sets the deadline.
    pub(crate) async fn caught_up(&self, server: ServerId) {
        let Some(queue) = self.queues.get(&server) else { return };
        loop {
            let fewer = queue.waiting.fewer.notified();
            tokio::pin!(fewer);
            fewer.as_mut().enable();
            if !queue.is_long() {
                return;
            }
            fewer.await;
        }
    }
}

impl Queue {
    fn is_long(&self) -> bool {
        let many = self.messages.capacity() < QUEUE / 2;
        let long = many || self.waiting.bytes.load(Ordering::Relaxed) > BEHIND;
        long && !self.messages.is_closed()
    }
}

/// About how many bytes a message takes while it waits.
fn about_bytes(message: &PeerMessage) -> usize {
    let of = |blocks: &[BlockRecord]| -> usize {
        blocks.iter().map(|block| RECORD_BYTES + block.inline.as_ref().map_or(0, |bytes| bytes.len())).sum()
    };
    let blocks = match message {
        PeerMessage::StepEnded { ended, .. } => ended.fields.iter().map(|field| of(&field.blocks)).sum(),
        PeerMessage::StepRegister { owned, held, .. } => {
            owned.iter().chain(held).map(|report| of(&report.blocks)).sum()
        }
        PeerMessage::SpaceRegister { report, .. } => of(&report.blocks),
        _ => 0,
    };
    MESSAGE_BYTES + blocks
}

/// Dials one server and tells it what is queued, until it or this server is gone. What it does not take at once
/// stays in the queue.
pub(crate) async fn run(node: Weak<Node>, me: ServerId, to_tell: ToTell) {
    let ToTell { server, mut messages, waiting } = to_tell;
    let Some((secret, lineage, epoch)) =
        node.upgrade().map(|n| (n.secret.clone(), n.view.lineage, n.view.epoch))
    else {
        return;
    };
    let connection = forming::dial(&server, &secret, &lineage).await;
    if let Ok((mut receiver, outbox)) = connection {
        let header = Header { epoch, ..Header::default() };
        let mut alive = outbox.push(header, &forming::hello(me)).is_ok();
        while alive {
            let next = async {
                outbox.has_room().await;
                messages.recv().await
            };
            tokio::select! {
                message = next => match message {
                    Some(message) => {
                        alive = told(&server, outbox.push(header, &message));
                        waiting.bytes.fetch_sub(about_bytes(&message), Ordering::Relaxed);
                        waiting.fewer.notify_waiters();
                    }
                    None => return,
                },
                // Nothing is said on this connection the other way: anything that comes is its end.
                _ = receiver.next() => alive = false,
            }
        }
    }
    messages.close();
    waiting.fewer.notify_waiters();
    if let Some(node) = node.upgrade() {
        node.peer_gone(server.id);
    }
}

/// Whether a server can be told more. A message that is too long is a defect of this side: the other one is
/// not given up for it, with all that it holds.
fn told(server: &ServerEntry, sent: Result<()>) -> bool {
    match sent {
        Ok(()) => true,
        Err(error) if error.kind == ErrorKind::Invalid => {
            tracing::error!("{} is not told something: {error}", server.id);
            true
        }
        Err(_) => false,
    }
}

/// Starts the tasks that tell the other servers.
pub(crate) fn start(node: &Arc<Node>, ends: Vec<ToTell>) {
    for to_tell in ends {
        tokio::spawn(run(Arc::downgrade(node), node.id, to_tell));
    }
}
