//! The network between simulated processes. On one host a connection is a local socket, over which descriptors pass; between
//! two hosts the bytes go through a cable, which takes its time, and can be cut.

use super::process::Micros;
use forebay_cluster::environment::{Connecting, Environment};
use forebay_core::ids::Timestamp;
use forebay_core::view::mix;
use forebay_transport::shm::ShmLink;
use forebay_transport::{Address, Kind, Link};
use forebay_wire::connection::HostId;
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a connection is tried to be opened.
const CONNECT: Duration = Duration::from_secs(10);
/// How much a cable takes at a time.
const CHUNK: usize = 64 << 10;
/// How much may be on its way in one direction: then whoever sends has to wait.
const UNDER_WAY_MAX: usize = 1 << 20;

/// The network.
#[derive(Debug, Clone, Default)]
pub(super) struct Network(Arc<Mutex<Cables>>);

#[derive(Debug, Default)]
struct Cables {
    random: u64,
    /// The longest that a byte takes from one host to another.
    slowest: Micros,
    /// Where processes are connected to, by their number, while they live.
    doors: BTreeMap<u32, Arc<Door>>,
    cables: Vec<Cable>,
    /// From which host to which one nothing comes through.
    cut: BTreeSet<(usize, usize)>,
    /// Where bytes are read to: made once, since making it would take longer than all else.
    buffer: Vec<u8>,
}

/// Connections to a process that it has not accepted yet.
#[derive(Debug, Default)]
pub(super) struct Door {
    waiting: Mutex<VecDeque<Box<dyn Link>>>,
    knocked: Notify,
}

impl Door {
    pub(super) async fn accept(&self) -> Box<dyn Link> {
        loop {
            let knocked = self.knocked.notified();
            if let Some(link) = self.waiting.lock().pop_front() {
                return link;
            }
            knocked.await;
        }
    }

    fn knock(&self, link: Box<dyn Link>) {
        self.waiting.lock().push_back(link);
        self.knocked.notify_one();
    }
}

impl Network {
    pub(super) fn new(seed: u64, slowest: Micros) -> Network {
        let cables = Cables { random: mix(seed + 7), slowest, buffer: vec![0; CHUNK], ..Cables::default() };
        Network(Arc::new(Mutex::new(cables)))
    }

    /// What chance has come to: every piece of bytes that was taken on its way has drawn.
    pub(super) fn random(&self) -> u64 {
        self.0.lock().random
    }

    /// A process is there from now on, and can be connected to.
    pub(super) fn open(&self, process: u32) -> Arc<Door> {
        let door = Arc::<Door>::default();
        self.0.lock().doors.insert(process, door.clone());
        door
    }

    /// A process is gone.
    pub(super) fn close(&self, process: u32) {
        self.0.lock().doors.remove(&process);
    }

    /// Cuts what goes from one host to another.
    pub(super) fn cut(&self, from: usize, to: usize) {
        self.0.lock().cut.insert((from, to));
    }

    pub(super) fn heal(&self) {
        self.0.lock().cut.clear();
    }

    /// Takes bytes on their way, and gives those that have arrived.
    pub(super) fn carry(&self, now: Micros) {
        let mut state = self.0.lock();
        let Cables { random, slowest, cables, cut, buffer, .. } = &mut *state;
        for cable in cables.iter_mut() {
            for way in &mut cable.0 {
                if !cut.contains(&(way.from.1, way.to.1)) {
                    way.carry(now, random, *slowest, buffer);
                }
            }
        }
        cables.retain(|cable| !cable.0.iter().all(|way| way.ended));
    }
}

/// Where a process is, and what it sees from there.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) network: Network,
    pub(super) number: usize,
    name: HostId,
    /// Its clock began there.
    began: Instant,
}

impl Place {
    /// To be called within the process.
    pub(super) fn new(network: &Network, host: usize) -> Place {
        let name = HostId(format!("host{host}"));
        Place { network: network.clone(), number: host, name, began: Instant::now() }
    }
}

/// The addresses of a process.
pub(super) fn addresses(process: u32, host: usize) -> Vec<String> {
    let tcp = SocketAddr::from((Ipv4Addr::new(10, 0, 0, host as u8), 1000 + process as u16));
    let shm = Address::Shm { host: HostId(format!("host{host}")), name: process.to_string() };
    vec![shm.to_string(), Address::Tcp(tcp).to_string()]
}

impl Environment for Place {
    fn host(&self) -> &HostId {
        &self.name
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp(self.now().as_millis() as u64)
    }

    fn has_threads(&self) -> bool {
        false
    }

    fn connect(&self, address: Address) -> Connecting {
        let (network, here) = (self.network.clone(), self.number);
        Box::pin(async move {
            let (process, there) = match address {
                Address::Shm { name, .. } => (name.parse().map_err(io::Error::other)?, here),
                Address::Tcp(SocketAddr::V4(address)) => {
                    (u32::from(address.port()) - 1000, usize::from(address.ip().octets()[3]))
                }
                Address::Tcp(SocketAddr::V6(_)) => return Err(io::ErrorKind::Unsupported.into()),
            };
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            if there == here {
                let door = network.0.lock().doors.get(&process).cloned().ok_or_else(refused)?;
                let (mine, theirs) = pair()?;
                door.knock(Box::new(End::new(theirs, Kind::Shm)));
                return Ok(Box::new(End::new(mine, Kind::Shm)) as Box<dyn Link>);
            }
            let began = Instant::now();
            loop {
                {
                    let mut state = network.0.lock();
                    if !state.cut.contains(&(here, there)) && !state.cut.contains(&(there, here)) {
                        let door = state.doors.get(&process).cloned().ok_or_else(refused)?;
                        let (mine, near) = pair()?;
                        let (far, theirs) = pair()?;
                        state.cables.push(Cable::new((near, here), (far, there)));
                        door.knock(Box::new(End::new(theirs, Kind::Tcp)));
                        return Ok(Box::new(End::new(mine, Kind::Tcp)) as Box<dyn Link>);
                    }
                }
                if began.elapsed() > CONNECT {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                tokio::time::sleep(CONNECT / 20).await;
            }
        })
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// One end of a connection. All simulated processes are one: the kernel could not say which of them is at the other end.
#[derive(Debug)]
struct End {
    socket: ShmLink,
    kind: Kind,
}

impl End {
    fn new(socket: OwnedFd, kind: Kind) -> End {
        End { socket: ShmLink::new(socket), kind }
    }
}

impl Link for End {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.descriptor()
    }

    fn try_send(&self, bytes: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        if self.kind == Kind::Tcp && !descriptors.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.socket.try_send(bytes, descriptors)
    }

    fn try_receive(&self, bytes: &mut [IoSliceMut<'_>], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        self.socket.try_receive(bytes, descriptors)
    }
}

/// A connection between two hosts.
#[derive(Debug)]
struct Cable([Way; 2]);

/// One direction of it.
#[derive(Debug)]
struct Way {
    from: (Arc<OwnedFd>, usize),
    to: (Arc<OwnedFd>, usize),
    /// What is on its way, and when it arrives.
    under_way: VecDeque<(Micros, Vec<u8>)>,
    bytes: usize,
    last: Micros,
    /// The end of all that is said: nothing comes after it.
    closed: Option<Micros>,
    ended: bool,
}

impl Cable {
    fn new(near: (OwnedFd, usize), far: (OwnedFd, usize)) -> Cable {
        let (near, far) = ((Arc::new(near.0), near.1), (Arc::new(far.0), far.1));
        Cable([Way::new(near.clone(), far.clone()), Way::new(far, near)])
    }
}

impl Way {
    fn new(from: (Arc<OwnedFd>, usize), to: (Arc<OwnedFd>, usize)) -> Way {
        Way { from, to, under_way: VecDeque::new(), bytes: 0, last: 0, closed: None, ended: false }
    }

    fn carry(&mut self, now: Micros, random: &mut u64, slowest: Micros, buffer: &mut [u8]) {
        while self.closed.is_none() && self.bytes < UNDER_WAY_MAX {
            let read = rustix::io::read(self.from.0.as_fd(), &mut *buffer);
            *random = mix(random.wrapping_add(0x9e37_79b9_7f4a_7c15));
            self.last = self.last.max(now + *random % slowest.max(1));
            match read {
                Ok(0) => self.closed = Some(self.last),
                Ok(length) => {
                    self.bytes += length;
                    self.under_way.push_back((self.last, buffer[..length].to_vec()));
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => self.closed = Some(self.last),
            }
        }
        while let Some((_, bytes)) = self.under_way.front_mut().filter(|(arrives, _)| *arrives <= now) {
            match rustix::net::send(self.to.0.as_fd(), bytes, rustix::net::SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.bytes -= sent;
                    bytes.drain(..sent);
                    if bytes.is_empty() {
                        self.under_way.pop_front();
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return,
                // Whoever it is for is gone.
                Err(_) => {
                    self.under_way.clear();
                    self.bytes = 0;
                }
            }
        }
        if self.under_way.is_empty() && self.closed.is_some_and(|closed| closed <= now) && !self.ended {
            self.ended = true;
            let _ = rustix::net::shutdown(self.to.0.as_fd(), Shutdown::Write);
        }
    }
}
