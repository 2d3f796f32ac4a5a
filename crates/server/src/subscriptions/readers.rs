//! This server as a user of the space at others: connections over which it asks many things at once, and what it holds by them.

use forebay_cluster::environment::HashMap;
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::{Outbox, Receiver};
use forebay_wire::client::space::{Reply, Request, Search};
use forebay_wire::frame::Header;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;

/// Questions that are not answered yet, by their numbers; `None` once the connection has ended.
type Waiting = Mutex<Option<HashMap<u64, oneshot::Sender<Result<Reply>>>>>;

/// A connection, once there is one.
pub(crate) type Known = Arc<tokio::sync::Mutex<Option<Arc<SpaceReader>>>>;

/// Connections to servers, made at first use.
#[derive(Debug, Default)]
pub(crate) struct SpaceReaders(Mutex<HashMap<ServerId, Known>>);

/// A connection to one server. It ends with this.
#[derive(Debug)]
pub(crate) struct SpaceReader {
    outbox: Arc<Outbox>,
    waiting: Arc<Waiting>,
    last: AtomicU64,
}

/// What a question will be answered.
pub(crate) struct Asked {
    /// Holds what is found, or gives the question up, when it is dropped.
    pub(crate) lease: Lease,
    answer: oneshot::Receiver<Result<Reply>>,
}

/// Blocks that are held at their owners until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Leases(pub(crate) Vec<Lease>);

/// Blocks that are held at one owner, by the number of the question.
#[derive(Debug)]
pub(crate) struct Lease {
    outbox: Arc<Outbox>,
    waiting: Arc<Waiting>,
    header: Header,
    request: u64,
}

impl SpaceReaders {
    /// That to a server.
    pub(crate) fn to(&self, server: ServerId) -> Known {
        self.0.lock().entry(server).or_default().clone()
    }

    /// A server is gone.
    pub(crate) fn forget(&self, server: ServerId) {
        self.0.lock().remove(&server);
    }
}

impl SpaceReader {
    /// Takes answers from now on.
    pub(crate) fn new((receiver, outbox): (Receiver, Arc<Outbox>)) -> SpaceReader {
        let waiting: Arc<Waiting> = Arc::new(Mutex::new(Some(HashMap::default())));
        tokio::spawn(take_answers(receiver, waiting.clone()));
        SpaceReader { outbox, waiting, last: AtomicU64::new(0) }
    }

    /// Whether the connection has not ended.
    pub(crate) fn is_there(&self) -> bool {
        self.waiting.lock().is_some()
    }

    /// Looks for something. Does not wait for the answer. `header` makes the header of a message.
    pub(crate) fn look_for(&self, header: impl Fn(u64) -> Header, search: Search) -> Result<Asked> {
        let request = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().as_mut().ok_or_else(has_ended)?.insert(request, sender);
        self.outbox.push(header(request), &Request::Find(Box::new(search)))?;
        let (outbox, waiting) = (self.outbox.clone(), self.waiting.clone());
        let lease = Lease { outbox, waiting, header: header(0), request };
        Ok(Asked { lease, answer })
    }
}

impl Drop for SpaceReader {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

impl Asked {
    /// Waits for the answer.
    pub(crate) async fn answer(&mut self) -> Result<Reply> {
        (&mut self.answer).await.map_err(|_| has_ended())?
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // If it is not answered yet.
        self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&self.request));
        // Whose connection has ended holds nothing.
        let _ = self.outbox.push(self.header, &Request::Release { request: self.request });
    }
}

/// Takes answers until the connection ends.
async fn take_answers(mut receiver: Receiver, waiting: Arc<Waiting>) {
    while let Ok(Some((frame, _))) = receiver.next().await {
        let sender = waiting.lock().as_mut().and_then(|waiting| waiting.remove(&frame.header.request));
        let answer = frame.message::<Result<Reply>>().and_then(|answer| answer);
        if let Some(sender) = sender {
            // Whoever has asked may have given up.
            let _ = sender.send(answer);
        }
    }
    *waiting.lock() = None;
}

fn has_ended() -> Error {
    Error::unreachable("the connection to an owner has ended")
}
