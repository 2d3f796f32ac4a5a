//! Messages to the other servers: each is told over a connection that this server dials. A short message is sent at once
//! where nothing waits before it; the others wait in a queue, from which a task takes.

use crate::cluster::Cluster;
use crate::environment::HashMap;
use crate::peers::dialling;
use forebay_core::ids::ServerId;
use forebay_core::{ErrorKind, Result};
use forebay_transport::Kind;
use forebay_transport::asynchronous::Outbox;
use forebay_transport::connection_file::ServerEntry;
use forebay_wire::frame::{Frame, Header};
use forebay_wire::peer::{PeerMessage, cluster};
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Messages that may wait for one server.
const QUEUE: usize = 1 << 16;
/// About how many bytes of messages may wait for one server before ranks wait with their next steps: one that
/// stands still is not gone.
const BEHIND: usize = 8 << 20;
/// About how many bytes a message may take that is sent by whoever says it, who holds the cluster's lock meanwhile.
const SHORT: usize = 4096;

/// The other servers. They come and go.
#[derive(Debug, Default)]
pub struct Peers {
    queues: RwLock<HashMap<ServerId, Queue>>,
}

/// What waits to be told to one server.
#[derive(Debug, Clone)]
struct Queue {
    messages: mpsc::Sender<(PeerMessage, Option<OwnedFd>)>,
    waiting: Arc<Waiting>,
    direct: Arc<Mutex<Direct>>,
}

/// The way to a server past the task that tells it what waits: for a short message where nothing waits.
#[derive(Debug, Default)]
struct Direct {
    /// While there is a connection.
    outbox: Option<(Arc<Outbox>, Header)>,
    /// Whether it is one on this host.
    local: bool,
    /// How many messages wait to be told before it.
    queued: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// There are fewer.
    fewer: Notify,
}

/// How long the network may be away. Connections between servers are never made again, and who is gone is agreed on long
/// before: were they to end where nobody reaches anybody, all would have lost one another for good.
const OUTAGE: Duration = Duration::from_secs(900);

/// A connection between members lasts while the network is away, and while a server may be `silent`.
pub(crate) fn outlast_outages(peer: ServerId, outbox: &Outbox, silence: Duration) {
    if let Err(error) = outbox.end_after(OUTAGE.max(2 * silence)) {
        tracing::warn!("the connection of {peer} ends when the network is away: {error}");
    }
}

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// Nothing: its receiver is gone or hopelessly behind.
    Gone,
    /// It waits to be sent, or may not have arrived.
    Waits,
    /// It lies in a local socket, from where its receiver, which reads all that a dead server has said before it goes on
    /// without it ([`crate::peers::inbound`]), will read it whatever becomes of this server.
    There,
}

/// What one server is to be told, in order.
#[derive(Debug)]
pub(crate) struct OutboundQueue {
    server: ServerEntry,
    messages: mpsc::Receiver<(PeerMessage, Option<OwnedFd>)>,
    waiting: Arc<Waiting>,
    direct: Arc<Mutex<Direct>>,
}

impl Peers {
    /// A queue for a server, from which a task takes. `None` if there is one already.
    fn add(&self, server: &ServerEntry) -> Option<OutboundQueue> {
        let mut queues = self.queues.write();
        if queues.contains_key(&server.id) {
            return None;
        }
        let (sender, messages) = mpsc::channel(QUEUE);
        let (waiting, direct) = (Arc::<Waiting>::default(), Arc::<Mutex<Direct>>::default());
        queues
            .insert(server.id, Queue { messages: sender, waiting: waiting.clone(), direct: direct.clone() });
        Some(OutboundQueue { server: server.clone(), messages, waiting, direct })
    }

    /// What is told to a server that there is not.
    #[cfg(feature = "testing")]
    pub fn intercept(&self, server: &ServerEntry) -> Option<mpsc::Receiver<(PeerMessage, Option<OwnedFd>)>> {
        self.add(server).map(|to_tell| to_tell.messages)
    }

    /// A server is needed no more: what is queued for it is still told, and then the connection ends.
    pub fn remove(&self, server: ServerId) {
        self.queues.write().remove(&server);
    }

    /// Whether something can be sent to a server.
    pub fn reaches(&self, server: ServerId) -> bool {
        self.queues.read().get(&server).is_some_and(|queue| !queue.messages.is_closed())
    }

    fn queue(&self, server: ServerId) -> Option<Queue> {
        self.queues.read().get(&server).cloned()
    }

    /// Tells a server something, in order.
    pub fn send(&self, to: ServerId, message: impl Into<PeerMessage>) -> SendOutcome {
        self.send_with(to, message, None)
    }

    /// As `send`, with a descriptor, which is left out where memory is not shared.
    pub fn send_with(
        &self,
        to: ServerId,
        message: impl Into<PeerMessage>,
        file: Option<OwnedFd>,
    ) -> SendOutcome {
        let message = message.into();
        let queues = self.queues.read();
        let Some(queue) = queues.get(&to) else { return SendOutcome::Gone };
        let bytes = message.about_bytes();
        let mut direct = queue.direct.lock();
        if file.is_none()
            && bytes <= SHORT
            && message.is_counted()
            && let Some(sent) = direct.send(&message)
        {
            return sent;
        }
        queue.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        if queue.messages.try_send((message, file)).is_err() {
            queue.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return SendOutcome::Gone;
        }
        direct.queued += 1;
        SendOutcome::Waits
    }

    /// Whether so much waits for a server that nothing should be begun of which it is to be told. One that is gone
    /// is not behind.
    pub fn is_behind(&self, server: ServerId) -> bool {
        self.queues.read().get(&server).is_some_and(Queue::is_long)
    }

    /// Waits until a server is not behind any more. The caller sets the deadline.
    pub async fn caught_up(&self, server: ServerId) {
        let Some(queue) = self.queue(server) else { return };
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

impl Direct {
    fn open(&mut self, outbox: Option<(Arc<Outbox>, Header)>, local: bool) {
        (self.outbox, self.local) = (outbox, local);
    }

    /// Sends a message if nothing waits before it; else, or if it cannot be sent, it is to be queued: the task finds why.
    fn send(&self, message: &PeerMessage) -> Option<SendOutcome> {
        let (outbox, header) =
            self.outbox.as_ref().filter(|(outbox, _)| self.queued == 0 && outbox.is_idle())?;
        push(outbox, *header, message, Vec::new()).ok()?;
        // What a connection had not sent that has ended is gone.
        let there = self.local && outbox.is_idle() && !outbox.is_closed();
        Some(if there { SendOutcome::There } else { SendOutcome::Waits })
    }
}

impl Queue {
    fn is_long(&self) -> bool {
        let many = self.messages.capacity() < QUEUE / 2;
        let long = many || self.waiting.bytes.load(Ordering::Relaxed) > BEHIND;
        long && !self.messages.is_closed()
    }
}

/// Sends a message, whatever its protocol.
fn push(outbox: &Outbox, header: Header, message: &PeerMessage, files: Vec<OwnedFd>) -> Result<()> {
    match message {
        PeerMessage::Cluster(message) => outbox.push_with(header, message, files, None),
        PeerMessage::Streams(message) => outbox.push_with(header, message, files, None),
        PeerMessage::Replication(message) => outbox.push_with(header, message, files, None),
        PeerMessage::Directory(message) => outbox.push_with(header, message, files, None),
        PeerMessage::Space(message) => outbox.push_with(header, message, files, None),
        PeerMessage::Pipelines(message) => outbox.push_with(header, message, files, None),
        PeerMessage::Evaluation(message) => outbox.push_with(header, message, files, None),
        PeerMessage::Subscriptions(message) => outbox.push_with(header, message, files, None),
    }
}

/// Dials one server and tells it what is queued, until it or this server is gone. What it does not take at once
/// stays in the queue.
pub(crate) async fn run(cluster: Weak<Cluster>, me: ServerId, to_tell: OutboundQueue) {
    let OutboundQueue { server, mut messages, waiting, direct } = to_tell;
    let about = cluster.upgrade().map(|cluster| {
        (
            cluster.environment.clone(),
            cluster.secret.clone(),
            cluster.lineage,
            cluster.epoch(),
            cluster.silence,
        )
    });
    let Some((environment, secret, lineage, epoch, silence)) = about else { return };
    let connection = dialling::dial(&*environment, &server, &secret, &lineage).await;
    let connection = connection.inspect_err(|error| tracing::info!("{} is not reached: {error}", server.id));
    if let Ok((mut receiver, outbox)) = connection {
        outlast_outages(server.id, &outbox, silence);
        let header = Header { epoch, ..Header::default() };
        let mut alive = outbox.push(header, &dialling::hello(me)).is_ok();
        let shares_memory = receiver.kind() == Kind::Shm;
        // As this process numbers it: containers of one host may number theirs otherwise.
        if let (Some(process), Some(cluster)) = (receiver.peer_process(), cluster.upgrade()) {
            cluster.watch(server.id, process);
        }
        direct.lock().open(alive.then(|| (outbox.clone(), header)), shares_memory);
        while alive {
            let next = async {
                outbox.has_room().await;
                messages.recv().await
            };
            tokio::select! {
                biased;
                said = receiver.next() => alive = on_return_traffic(&cluster, server.id, said),
                message = next => match message {
                    Some((message, file)) => {
                        let files = file.into_iter().filter(|_| shares_memory).collect();
                        alive = can_send_more(&server, push(&outbox, header, &message, files));
                        direct.lock().queued -= 1;
                        waiting.bytes.fetch_sub(message.about_bytes(), Ordering::Relaxed);
                        waiting.fewer.notify_waiters();
                    }
                    None => return outbox.close(),
                },
            }
        }
        outbox.close();
    }
    direct.lock().outbox = None;
    messages.close();
    waiting.fewer.notify_waiters();
    if let Some(cluster) = cluster.upgrade() {
        if cluster.goes_on().await {
            cluster.lost(server.id, false);
        }
        if !cluster.standing().view.members.contains(&server.id) {
            cluster.peers.remove(server.id);
        }
    }
}

/// What came the other way on a connection that this server dialled: what a member answers that has given this server up,
/// or the connection's end.
fn on_return_traffic(
    cluster: &Weak<Cluster>,
    server: ServerId,
    said: Result<Option<(Frame, Vec<OwnedFd>)>>,
) -> bool {
    let Ok(Some((frame, _))) = said else { return false };
    let (Some(cluster), Ok(cluster::Message::Agreement(message))) = (cluster.upgrade(), frame.message())
    else {
        return false;
    };
    cluster.heard_of_members(server, message, None);
    true
}

/// Whether a server can be told more. A message that is too long is a defect of this side: the other one is
/// not given up for it, with all that it holds.
fn can_send_more(server: &ServerEntry, sent: Result<()>) -> bool {
    match sent {
        Ok(()) => true,
        Err(error) if error.kind == ErrorKind::Invalid => {
            tracing::error!("{} is not told something: {error}", server.id);
            true
        }
        Err(_) => false,
    }
}

/// Starts the tasks that tell these servers.
pub(crate) fn start(cluster: &Arc<Cluster>, servers: &[ServerEntry]) {
    for server in servers.iter().filter(|server| server.id != cluster.id) {
        if let Some(to_tell) = cluster.peers.add(server) {
            tokio::spawn(run(Arc::downgrade(cluster), cluster.id, to_tell));
        }
    }
}
