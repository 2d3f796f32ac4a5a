//! One process's door: its listeners and the thread that moves what goes through.

use crate::hub::{Hub, HubState, Side};
use crate::peers::Link;
use crate::reader::read;
use crate::shared::{Bell, Probe};
use crate::spare::Spare;
use forebay_core::ids::Lineage;
use forebay_core::view::mix;
use forebay_core::{Error, Result};
use forebay_transport::fork::ForkGuard;
use forebay_transport::shm::ShmLink;
use forebay_transport::tcp::TcpLink;
use forebay_transport::{Address, Listener, asynchronous};
use forebay_wire::comm::CommMessage;
use forebay_wire::handshake::Secret;
use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, current};
use std::time::{Duration, SystemTime};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How long somebody who connects may take for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a closing endpoint waits for its peers to have read what it said.
const LINGER: Duration = Duration::from_secs(2);
/// A pause after a failed accept (no descriptors left), so that it is not tried without end.
const PAUSE: Duration = Duration::from_millis(50);

/// What an endpoint is made of.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// The group's secret: who does not hold it is refused.
    pub secret: Secret,
    /// The group's lineage; one of another lineage is refused likewise.
    pub lineage: Lineage,
    /// Listen here too, for other hosts; port 0 lets the system choose. Give the address under which the
    /// others reach this host: what is bound is what [`Endpoint::addresses`] says.
    pub tcp: Option<SocketAddr>,
    /// What others call it in errors, such as the server's and the pipeline's name.
    pub name: String,
}

/// A process's end of all its communicators. One thread serves it. Dropping it ends every connection and
/// the thread and leaves nothing behind; it first waits, 2 s at most, until peers have read what was sent.
#[derive(Debug)]
pub struct Endpoint {
    hub: Arc<Hub>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens on a fresh local name, and on TCP if asked to, and starts the thread. Does not wait for anybody.
    pub fn new(options: EndpointOptions) -> Result<Endpoint> {
        let mut listeners = vec![Listener::shm(&fresh_name())?];
        if let Some(address) = options.tcp {
            listeners.push(Listener::tcp(&address)?);
        }
        let failed = |e: std::io::Error| Error::io("cannot start the communicator's thread", &e);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let addresses = listeners.iter().map(|listener| listener.address().to_string()).collect();
        let hub = Arc::new(hub_of(options, addresses, runtime.handle().clone())?);
        let stop = Arc::new(Notify::new());
        let guard = runtime.enter();
        let doors =
            listeners.into_iter().map(Door::new).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
        drop(guard);
        for door in doors {
            runtime.spawn(answer(hub.clone(), door));
        }
        let (serving, stopped) = (hub.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("forebay-comm".into())
            .spawn(move || {
                runtime.block_on(async {
                    stopped.notified().await;
                    part(&serving).await;
                });
            })
            .map_err(failed)?;
        Ok(Endpoint { hub, stop, thread: Some(thread) })
    }

    /// Where it can be reached: the local name first, then TCP. The others need all of them.
    pub fn addresses(&self) -> Vec<String> {
        self.hub.addresses.clone()
    }

    /// Whether long messages over TCP are encrypted; they are not unless this is set. Short ones and all
    /// control always are. What one side sends is that side's choice.
    pub fn seal_payload(&self, sealed: bool) {
        self.hub.seal_payload.store(sealed, Ordering::Relaxed);
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.hub.is_of_parent() {
            std::mem::forget((self.hub.clone(), self.thread.take()));
            return;
        }
        {
            let mut state = self.hub.state.lock();
            state.closed = true;
            state.peers.links().for_each(|link| link.say(&CommMessage::Goodbye));
            self.hub.tell(&mut state);
        }
        self.hub.room.notify_waiters();
        self.stop.notify_one();
        // The last operation of a communicator of its own may end there.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != current().id()) {
            let _ = thread.join();
        }
    }
}

/// What an endpoint with these addresses knows at first: nothing.
pub(crate) fn hub_of(options: EndpointOptions, addresses: Vec<String>, runtime: Handle) -> Result<Hub> {
    let (bell, bell_file) = Bell::new()?;
    Ok(Hub {
        state: Mutex::new(HubState::default()),
        changed: Condvar::new(),
        bell,
        bell_file,
        requests: Mutex::default(),
        probe: Probe::new(fresh_number()),
        room: Notify::new(),
        unlinked: Notify::new(),
        runtime,
        secret: options.secret,
        lineage: options.lineage,
        name: options.name,
        addresses,
        seal_payload: AtomicBool::new(false),
        guard: ForkGuard::new(),
        version: AtomicU64::new(0),
        has_revoked: AtomicBool::new(false),
        spare: Spare::default(),
        calls: AtomicU64::new(0),
        cores: cores(),
        host_cores: host_cores(),
        #[cfg(test)]
        network: None,
    })
}

/// How many cores this host has: the same for all its processes.
#[allow(unsafe_code)]
fn host_cores() -> usize {
    // SAFETY: it only asks for a number.
    let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(cores).unwrap_or(1).max(1)
}

/// On how many cores the processes that share memory run, as far as this one can tell. One that is bound to a single core, as MPI's launchers
/// do it, has that for itself.
fn cores() -> usize {
    let is_bound = rustix::thread::sched_getaffinity(None).is_ok_and(|cores| cores.count() == 1);
    match is_bound && host_cores() > 1 {
        true => usize::MAX,
        false => std::thread::available_parallelism().map_or(1, NonZero::get),
    }
}

/// A number that nobody guesses or has had, and how many there were before.
fn fresh() -> (u64, u64) {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let counter = COUNTER.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |age| age.as_nanos() as u64);
    let address = std::ptr::from_ref(&counter).addr() as u64;
    (mix(time ^ mix(address ^ counter)), counter)
}

/// A local name.
fn fresh_name() -> String {
    let (number, counter) = fresh();
    format!("forebay-comm-{}-{counter}-{number:016x}", std::process::id())
}

/// A number that stands nowhere else in memory.
fn fresh_number() -> u128 {
    u128::from(fresh().0) << 64 | u128::from(fresh().0)
}

/// A listener that tokio waits for.
struct Door {
    /// Where it listens, as the others know it.
    address: Arc<str>,
    socket: Socket,
}

enum Socket {
    Shm(UnixListener),
    Tcp(TcpListener),
}

impl Door {
    fn new(listener: Listener) -> std::io::Result<Door> {
        let socket = listener.descriptor().try_clone_to_owned()?;
        let socket = match listener.address() {
            Address::Shm { .. } => Socket::Shm(UnixListener::from_std(socket.into())?),
            Address::Tcp(_) => Socket::Tcp(TcpListener::from_std(socket.into())?),
        };
        Ok(Door { address: listener.address().to_string().into(), socket })
    }

    async fn accept(&self) -> std::io::Result<Box<dyn forebay_transport::Link>> {
        Ok(match &self.socket {
            Socket::Shm(listener) => {
                Box::new(ShmLink::new(OwnedFd::from(listener.accept().await?.0.into_std()?)))
            }
            Socket::Tcp(listener) => {
                Box::new(TcpLink::new(OwnedFd::from(listener.accept().await?.0.into_std()?))?)
            }
        })
    }
}

/// Accepts whoever holds the secret.
async fn answer(hub: Arc<Hub>, door: Door) {
    loop {
        match door.accept().await {
            Ok(link) => drop(tokio::spawn(welcome(hub.clone(), door.address.clone(), link))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn welcome(hub: Arc<Hub>, address: Arc<str>, link: Box<dyn forebay_transport::Link>) {
    // Counted from the start: it may have said something that counts before its handshake is seen to be over here.
    hub.state.lock().peers.unnamed += 1;
    let shaken = tokio::time::timeout(HANDSHAKE, asynchronous::accept(link, &hub.prologue(&address))).await;
    // A stranger learns from the handshake that it is refused; there is nobody here to tell.
    let Ok(Ok((receiver, outbox))) = shaken else {
        let mut state = hub.state.lock();
        state.peers.unnamed -= 1;
        return hub.bury(&mut state);
    };
    let side = Side { peer: None, has_accepted: true, is_settled: false };
    read(hub, receiver, Link::new(outbox), (side, None)).await;
}

/// Waits until every connection was read to its end by the other side, or [`LINGER`] is over.
async fn part(hub: &Hub) {
    let ended = async {
        loop {
            let unlinked = hub.unlinked.notified();
            tokio::pin!(unlinked);
            unlinked.as_mut().enable();
            if hub.state.lock().peers.links().next().is_none() {
                return;
            }
            unlinked.await;
        }
    };
    let _ = tokio::time::timeout(LINGER, ended).await;
    let mut state = hub.state.lock();
    state.peers.links().for_each(|link| link.close());
    state.peers = Default::default();
}
