//! What a server has around it: its host, a clock, and the way to other servers. Those of a simulation are made up, so
//! that whole servers run in it, many in one thread.

use forebay_core::ids::Timestamp;
use forebay_core::{Error, Result};
use forebay_transport::connection_file::ServerEntry;
use forebay_transport::{Address, Link, host, shm, tcp};
use forebay_wire::connection::HostId;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::io;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

/// How long a TCP connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// A map that is gone through in the same order in each process, so that a simulation that failed can be run again. Its keys
/// are chosen by nobody who does not hold the group's secret.
pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// A connection that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Link>>> + Send>>;

/// What a server has around it.
pub trait Environment: fmt::Debug + Send + Sync {
    /// The host, as far as sharing memory goes.
    fn host(&self) -> &HostId;

    /// A clock that goes on while the machine sleeps: a lease must have ended when it wakes.
    fn now(&self) -> Duration;

    /// What the wall clock says: to be shown, and to be compared with nothing.
    fn wall_clock(&self) -> Timestamp;

    /// Opens a connection. One on the same host never waits; another one takes ten seconds at most.
    fn connect(&self, address: Address) -> Connecting;

    /// Whether there are threads for what may wait for the disk. A simulation has one thread alone: when something is done is
    /// then not up to chance.
    fn has_threads(&self) -> bool {
        true
    }

    /// Whether a server runs on this host, where its process can be watched.
    fn is_here(&self, server: &ServerEntry) -> bool {
        let addresses = server.parsed().unwrap_or_default();
        addresses.iter().any(|address| matches!(address, Address::Shm { host, .. } if host == self.host()))
    }
}

/// This machine.
#[derive(Debug)]
pub struct Machine {
    /// A server never moves to another network.
    host: HostId,
}

impl Machine {
    /// The machine on which this process runs.
    pub fn this() -> Machine {
        Machine { host: host::this_host() }
    }
}

impl Environment for Machine {
    fn host(&self) -> &HostId {
        &self.host
    }

    fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }

    fn wall_clock(&self) -> Timestamp {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed();
        Timestamp(since_1970.map_or(0, |elapsed| elapsed.as_millis() as u64))
    }

    fn connect(&self, address: Address) -> Connecting {
        Box::pin(async move {
            Ok(match address {
                Address::Shm { name, .. } => Box::new(shm::ShmLink::connect(&name)?) as Box<dyn Link>,
                Address::Tcp(address) => {
                    let link = tokio::task::spawn_blocking(move || tcp::TcpLink::connect(&address, CONNECT));
                    Box::new(link.await.map_err(io::Error::other)??)
                }
            })
        })
    }
}

/// Does what may wait for the disk, on a thread of its own where there are threads.
pub async fn off_thread<T: Send + 'static>(
    environment: &dyn Environment,
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    if !environment.has_threads() {
        return Ok(act());
    }
    tokio::task::spawn_blocking(act).await.map_err(|e| Error::internal(e.to_string()))
}
