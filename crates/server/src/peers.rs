//! Messages to the other servers: each is told over a connection that this server dials.

use crate::forming;
use crate::node::Node;
use forebay_core::ids::ServerId;
use forebay_core::{ErrorKind, Result};
use forebay_transport::group_file::ServerEntry;
use forebay_wire::frame::Header;
use forebay_wire::peer::PeerMessage;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;

/// Messages that may wait for one server.
const QUEUE: usize = 1 << 16;

/// The other servers.
#[derive(Debug)]
pub(crate) struct Peers {
    queues: HashMap<ServerId, mpsc::Sender<PeerMessage>>,
}

impl Peers {
    /// Queues for all others, and what the tasks take from.
    pub(crate) fn new(
        servers: &[ServerEntry],
        me: ServerId,
    ) -> (Peers, Vec<(ServerEntry, mpsc::Receiver<PeerMessage>)>) {
        let mut queues = HashMap::new();
        let mut ends = Vec::new();
        for server in servers.iter().filter(|server| server.id != me) {
            let (sender, receiver) = mpsc::channel(QUEUE);
            queues.insert(server.id, sender);
            ends.push((server.clone(), receiver));
        }
        (Peers { queues }, ends)
    }

    /// Tells a server something, in order. `false` if it is gone or hopelessly behind.
    pub(crate) fn send(&self, to: ServerId, message: PeerMessage) -> bool {
        self.queues.get(&to).is_some_and(|queue| queue.try_send(message).is_ok())
    }
}

/// Dials one server and tells it what is queued, until it or this server is gone.
pub(crate) async fn run(
    node: Weak<Node>,
    me: ServerId,
    server: ServerEntry,
    mut queue: mpsc::Receiver<PeerMessage>,
) {
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
            tokio::select! {
                message = queue.recv() => match message {
                    Some(message) => alive = told(&server, outbox.push(header, &message)),
                    None => return,
                },
                // Nothing is said on this connection the other way: anything that comes is its end.
                _ = receiver.next() => alive = false,
            }
        }
    }
    queue.close();
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
pub(crate) fn start(node: &Arc<Node>, ends: Vec<(ServerEntry, mpsc::Receiver<PeerMessage>)>) {
    for (server, queue) in ends {
        tokio::spawn(run(Arc::downgrade(node), node.id, server, queue));
    }
}
