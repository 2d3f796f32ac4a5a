//! What all of a server may use without the lock of its state: identity, view, memory, the way to others.

use crate::held::Held;
use crate::spawner::Spawner;
use forebay_cluster::Cluster;
use forebay_cluster::watched::Watched;
use forebay_core::ids::Epoch;
use forebay_store::Store;
use forebay_transport::asynchronous::Outbox;
use forebay_wire::frame::Header;
use forebay_wire::protocol::Message;
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

/// What all of a server may use without the lock of its state.
#[derive(Debug)]
pub(crate) struct Shared {
    /// This server's part in its group. The roster in force is locked after `state`.
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) seal_payload: bool,
    pub(crate) started: Instant,
    /// Locked after the state, never the other way round.
    pub(crate) store: Mutex<Store>,
    /// A cut was decided: those who attach look whether it was theirs.
    pub(crate) agreed: Notify,
    /// All others have told which streams they coordinate in this server's place.
    pub(crate) places_known: Notify,
    /// Memory became free: those who wait for room look again.
    pub(crate) memory_freed: Notify,
    /// Whether this server leaves: its sessions let their ranks go.
    pub(crate) leaves: Watched<bool>,
    /// Starts workers.
    pub(crate) spawner: Spawner,
}

impl Deref for Shared {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Shared {
    pub(crate) fn header(&self, request: u64) -> Header {
        Header { request, epoch: self.epoch(), sealed_payload: self.seal_payload, ..Header::default() }
    }

    /// Tells a client something; one that is gone is noticed by its session.
    pub(crate) fn tell_client<M: Message>(&self, outbox: &Outbox, message: &M) {
        let _ = outbox.push(self.header(0), message);
    }

    /// A client that may have had arenas mapped is gone, with its mappings.
    pub(crate) fn on_reader_gone(&self, reader: u64) {
        if self.store.lock().on_reader_gone(reader) {
            self.memory_freed.notify_waiters();
        }
    }

    /// Frees ranges and lets those who wait for memory look again.
    pub(crate) fn free(&self, held: impl IntoIterator<Item = Held>) {
        self.free_unseen(held, 0);
    }

    /// The same where it is not known who may still look at them, of those who were told of them in a term before this one:
    /// they are free when these are gone.
    pub(crate) fn free_unseen(&self, held: impl IntoIterator<Item = Held>, before: Epoch) {
        let mut store = self.store.lock();
        for Held { arena, offset, generation } in held {
            if let Err(error) = store.free_unseen(arena, offset, generation, before) {
                tracing::warn!("a range was freed twice: {error}");
            }
        }
        drop(store);
        self.memory_freed.notify_waiters();
    }
}
