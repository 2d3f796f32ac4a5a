//! Connections to servers whose blocks are read for evaluations.

use forebay_cluster::environment::HashMap;
use forebay_core::ids::ServerId;
use forebay_transport::asynchronous::Requester;
use parking_lot::Mutex;
use std::sync::Arc;

/// A connection, once there is one; one reads over it at a time.
pub(crate) type Connection = Arc<tokio::sync::Mutex<Option<Requester>>>;

/// Connections to servers whose blocks are read, made at first use.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<HashMap<ServerId, Connection>>);

impl Connections {
    /// That to a server.
    pub(crate) fn to(&self, server: ServerId) -> Connection {
        self.0.lock().entry(server).or_default().clone()
    }

    /// A server is gone.
    pub(crate) fn forget(&self, server: ServerId) {
        self.0.lock().remove(&server);
    }
}
