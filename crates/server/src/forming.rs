//! Forming a group: the first server writes the connection file, the others join through it.
//!
//! Who is first is decided by the file system: the file is created by a hard link, which succeeds once.

use crate::ServerOptions;
use forebay_core::ids::{Lineage, ServerId};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::{self, Outbox, Receiver};
use forebay_transport::group_file::{ConnectionFile, ServerEntry};
use forebay_transport::readiness::readable;
use forebay_transport::{Address, Link, Listener, host, shm, tcp};
use forebay_wire::frame::Header;
use forebay_wire::handshake::{Door, Secret};
use forebay_wire::message::{Hello, Role, ToServer};
use forebay_wire::peer::{GroupComplete, PeerMessage};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// How long a group may take to form.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How many connections may be on their way to say that they join. Beyond, the oldest is given up.
const JOINING_MAX: usize = 256;
/// The id of who writes the connection file.
const FOUNDER: ServerId = ServerId(0);

/// A group that has formed, as one of its servers sees it.
pub(crate) struct Formed {
    pub(crate) id: ServerId,
    pub(crate) file: ConnectionFile,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) founder: bool,
}

/// Founds the group, with this lineage, or joins it.
pub(crate) async fn form(options: &ServerOptions, lineage: Lineage) -> Result<Formed> {
    let listeners = listen(options)?;
    let own =
        ServerEntry { id: FOUNDER, pid: std::process::id(), addresses: advertised(options, &listeners) };
    let file = ConnectionFile {
        lineage,
        secret: Secret(random()?),
        epoch: u64::from(options.servers == 1),
        size: options.servers,
        servers: vec![own.clone()],
    };
    let what = || format!("the group of {} did not form within {PATIENCE:?}", options.group.display());
    match file.create(&options.group) {
        Ok(()) => {
            let mut unfinished = Unfinished { path: &options.group, lineage: Some(file.lineage) };
            let found = timeout(PATIENCE, found(options, file, listeners)).await;
            let formed = found.unwrap_or_else(|_| Err(Error::timeout(what())))?;
            unfinished.lineage = None;
            Ok(formed)
        }
        Err(error) if error.kind == ErrorKind::Conflict => {
            timeout(PATIENCE, join(options, own, listeners)).await.map_err(|_| Error::timeout(what()))?
        }
        Err(error) => Err(error),
    }
}

/// The connection file of a group that is being founded: it goes with this, whether founding failed or the server
/// was told to end meanwhile.
struct Unfinished<'a> {
    path: &'a Path,
    lineage: Option<Lineage>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(lineage) = &self.lineage {
            remove_file(self.path, lineage);
        }
    }
}

/// The error for a server that no group needs any more.
pub(crate) fn full(group: &Path, size: usize) -> Error {
    Error::conflict(format!(
        "the group of {} is complete with {size} servers; end it with `forebay down`, or give another --group",
        group.display()
    ))
}

/// Random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    use std::io::Read;
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| Error::io("cannot read random numbers", &e))?;
    Ok(bytes)
}

fn listen(options: &ServerOptions) -> Result<Vec<Listener>> {
    let token: [u8; 8] = random()?;
    let name: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut listeners = vec![Listener::shm(&format!("forebay-{}-{name}", std::process::id()))?];
    for ip in &options.bind {
        let (first, last) = options.ports.unwrap_or((0, 0));
        let bound = (first..=last).map(|port| Listener::tcp(&SocketAddr::new(*ip, port)));
        let mut result = Err(Error::invalid(format!("no port between {first} and {last}")));
        for attempt in bound {
            result = attempt;
            if result.is_ok() {
                break;
            }
        }
        listeners.push(result?);
    }
    Ok(listeners)
}

fn advertised(options: &ServerOptions, listeners: &[Listener]) -> Vec<String> {
    let told = listeners.iter().map(|listener| match (listener.address(), options.advertise) {
        (Address::Tcp(bound), Some(ip)) => Address::Tcp(SocketAddr::new(ip, bound.port())),
        (address, _) => address.clone(),
    });
    told.map(|address| address.to_string()).collect()
}

/// A listener that tokio can wait for.
pub(crate) fn pollable(listener: &Listener) -> Result<AsyncFd<OwnedFd>> {
    let copy = listener.descriptor().as_fd().try_clone_to_owned();
    copy.and_then(readable).map_err(|e| Error::io("cannot listen", &e))
}

async fn accept_one(listeners: &[Listener]) -> Result<Box<dyn Link>> {
    let pollables = listeners.iter().map(pollable).collect::<Result<Vec<_>>>()?;
    loop {
        for (listener, pollable) in listeners.iter().zip(&pollables) {
            match timeout(Duration::from_millis(2), pollable.readable()).await {
                Ok(Ok(mut ready)) => match listener.try_accept() {
                    Ok(link) => return Ok(link),
                    Err(_) => ready.clear_ready(),
                },
                Ok(Err(e)) => return Err(Error::io("cannot accept", &e)),
                Err(_) => {}
            }
        }
    }
}

/// A server that wants to be a member, on the connection on which it will be told that it is one.
struct Joiner {
    pid: u32,
    addresses: Vec<String>,
    receiver: Receiver,
    outbox: Arc<Outbox>,
}

impl Joiner {
    /// What came of a connection: nothing, unless a server says there that it wants to join.
    async fn on(link: Box<dyn Link>, secret: Secret, lineage: Lineage) -> Option<Joiner> {
        let joining = async {
            let door = Door { secret: &secret, lineage: &lineage, name: &FOUNDER.to_string() };
            let (mut receiver, outbox) = asynchronous::accept(link, &door).await?;
            // The greeting first; what matters is the second message.
            receiver.next().await?;
            let (frame, _) = receiver.next().await?.ok_or_else(|| Error::protocol("it left"))?;
            match frame.message()? {
                PeerMessage::JoinGroup { pid, addresses } => Ok(Joiner { pid, addresses, receiver, outbox }),
                _ => Err(Error::protocol("it said something else than that it joins")),
            }
        };
        match timeout(HANDSHAKE, joining).await {
            Ok(Ok(joiner)) => Some(joiner),
            Ok(Err(error)) => {
                tracing::info!("a connection was refused while the group forms: {error}");
                None
            }
            Err(_) => None,
        }
    }
}

/// The founder waits for the others and then tells all of them who they are.
async fn found(
    options: &ServerOptions,
    mut file: ConnectionFile,
    listeners: Vec<Listener>,
) -> Result<Formed> {
    // Each is told on the connection on which it joined: until then it accepts none, so that servers which
    // know already that the group is complete wait for it in its listening queue.
    let mut members = Vec::new();
    // Nobody who connects and says nothing keeps others waiting.
    let mut joining = JoinSet::new();
    let mut unfinished: VecDeque<AbortHandle> = VecDeque::new();
    while file.servers.len() < file.size as usize {
        tokio::select! {
            link = accept_one(&listeners) => {
                unfinished.retain(|task| !task.is_finished());
                if unfinished.len() == JOINING_MAX && let Some(oldest) = unfinished.pop_front() {
                    oldest.abort();
                }
                let joiner = Joiner::on(link?, file.secret.clone(), file.lineage);
                unfinished.push_back(joining.spawn(joiner));
            }
            Some(joiner) = joining.join_next() => {
                let Ok(Some(Joiner { pid, addresses, receiver, outbox })) = joiner else { continue };
                let id = ServerId(file.servers.len() as u32);
                file.servers.push(ServerEntry { id, pid, addresses });
                members.push((id, receiver, outbox));
            }
        }
    }
    let full = full(&options.group, file.servers.len());
    tokio::spawn(async move {
        while let Some(joiner) = joining.join_next().await {
            if let Ok(Some(joiner)) = joiner {
                let _ = joiner.outbox.push(Header::default(), &PeerMessage::GroupComplete(Err(full.clone())));
                joiner.outbox.close();
            }
        }
    });
    file.epoch = 1;
    file.replace(&options.group)?;
    for (you, mut receiver, outbox) in members {
        let servers = file.servers.iter().map(|s| (s.id, s.pid, s.addresses.clone())).collect();
        let complete = GroupComplete { you, epoch: file.epoch, servers };
        outbox.push(Header::default(), &PeerMessage::GroupComplete(Ok(complete)))?;
        outbox.close();
        // Until the other side has taken it.
        let _ = timeout(HANDSHAKE, receiver.next()).await;
    }
    Ok(Formed { id: FOUNDER, file, listeners, founder: true })
}

/// Dials a server; on the same host through shared memory.
pub(crate) async fn dial(
    server: &ServerEntry,
    secret: &Secret,
    lineage: &Lineage,
) -> Result<(Receiver, Arc<Outbox>)> {
    let here = host::this_host();
    let mut last = Error::unreachable(format!("{} has no address that can be reached from here", server.id));
    for address in server.parsed()? {
        let link: std::io::Result<Box<dyn Link>> = match address {
            Address::Shm { ref host, ref name } if *host == here => {
                shm::ShmLink::connect(name).map(|link| Box::new(link) as _)
            }
            Address::Shm { .. } => continue,
            Address::Tcp(address) => {
                tokio::task::spawn_blocking(move || tcp::TcpLink::connect(&address, HANDSHAKE))
                    .await
                    .unwrap_or_else(|e| Err(std::io::Error::other(e)))
                    .map(|link| Box::new(link) as _)
            }
        };
        match link {
            Err(e) => last = Error::unreachable(format!("cannot reach {} at {address}: {e}", server.id)),
            Ok(link) => {
                let door = Door { secret, lineage, name: &server.id.to_string() };
                return timeout(HANDSHAKE, asynchronous::connect(link, &door))
                    .await
                    .map_err(|_| Error::timeout(format!("{} does not answer the handshake", server.id)))?;
            }
        }
    }
    Err(last)
}

/// The greeting of one server to another.
pub(crate) fn hello(from: ServerId) -> ToServer {
    let pid = std::process::id();
    let (role, host) = (Role::Server(from), host::process_space());
    ToServer::Hello(Hello { role, pid, host, shared_memory: false, patience_ms: 0 })
}

/// A server that is not the first joins through the file.
async fn join(options: &ServerOptions, own: ServerEntry, listeners: Vec<Listener>) -> Result<Formed> {
    let file = ConnectionFile::read(&options.group)?;
    if options.lineage.is_some_and(|lineage| lineage != file.lineage) {
        return Err(Error::conflict(format!(
            "another group is being started at {}: wait for it, or give another --group",
            options.group.display()
        )));
    }
    if file.is_complete() {
        return Err(full(&options.group, file.size as usize));
    }
    let founder = &file.servers[0];
    let (mut receiver, outbox) = dial(founder, &file.secret, &file.lineage).await?;
    outbox.push(Header::default(), &hello(ServerId(u32::MAX)))?;
    outbox.push(Header::default(), &PeerMessage::JoinGroup { pid: own.pid, addresses: own.addresses })?;
    let left = || Error::unreachable(format!("{} ended while the group formed", founder.id));
    let (frame, _) = receiver.next().await?.ok_or_else(left)?;
    let PeerMessage::GroupComplete(result) = frame.message::<PeerMessage>()? else {
        return Err(Error::protocol("the founder of the group told something else than that it is complete"));
    };
    let GroupComplete { you, epoch, servers } = result?;
    let servers = servers.into_iter().map(|(id, pid, addresses)| ServerEntry { id, pid, addresses });
    let file = ConnectionFile { epoch, servers: servers.collect(), ..file };
    Ok(Formed { id: you, file, listeners, founder: false })
}

/// Removes the connection file if it is still this group's.
pub(crate) fn remove_file(path: &Path, lineage: &Lineage) {
    let ours = ConnectionFile::read(path).is_ok_and(|file| file.lineage == *lineage);
    if ours {
        let _ = std::fs::remove_file(path);
    }
}
