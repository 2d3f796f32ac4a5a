//! Forming a group: the first server writes the connection file, the others join through it.
//!
//! Who is first is decided by the file system: the file is created by a hard link, which succeeds once.

use crate::ServerOptions;
use forebay_core::ids::{Lineage, ServerId};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous;
use forebay_transport::group_file::{ConnectionFile, ServerEntry};
use forebay_transport::{Address, Listener, host, shm, tcp};
use forebay_wire::frame::Header;
use forebay_wire::handshake::Secret;
use forebay_wire::message::{Hello, Role, ToServer};
use forebay_wire::peer::{GroupComplete, PeerMessage};
use rustix::fd::{AsFd, OwnedFd};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// How long a group may take to form.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

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
        ServerEntry { id: ServerId(0), pid: std::process::id(), addresses: advertised(options, &listeners) };
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
            let found = timeout(PATIENCE, found(options, file, listeners)).await;
            let result = found.unwrap_or_else(|_| Err(Error::timeout(what())));
            result.inspect_err(|_| remove_file(&options.group, &lineage))
        }
        Err(error) if error.kind == ErrorKind::Conflict => {
            timeout(PATIENCE, join(options, own, listeners)).await.map_err(|_| Error::timeout(what()))?
        }
        Err(error) => Err(error),
    }
}

/// The server is told to end while its group forms: a file that it wrote must not stay, complete or not.
pub(crate) fn abandon(options: &ServerOptions, lineage: &Lineage) -> Result<()> {
    let file = ConnectionFile::read(&options.group);
    if file.is_ok_and(|file| file.servers[0].pid == std::process::id()) {
        remove_file(&options.group, lineage);
    }
    Ok(())
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
    let copy =
        listener.descriptor().as_fd().try_clone_to_owned().map_err(|e| Error::io("cannot listen", &e))?;
    // SAFETY: an owned descriptor stays open and the same until the AsyncFd that owns it is dropped.
    #[allow(unsafe_code)]
    unsafe { AsyncFd::register(copy) }.map_err(|e| Error::new(ErrorKind::Io, format!("cannot listen: {e}")))
}

async fn accept_one(listeners: &[Listener]) -> Result<Box<dyn forebay_transport::Link>> {
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

/// The founder waits for the others and then tells all of them who they are.
async fn found(
    options: &ServerOptions,
    mut file: ConnectionFile,
    listeners: Vec<Listener>,
) -> Result<Formed> {
    // Each is told on the connection on which it joined: until then it accepts none, so that servers which
    // know already that the group is complete wait for it in its listening queue.
    let mut joiners = Vec::new();
    while file.servers.len() < file.size as usize {
        let link = accept_one(&listeners).await?;
        let Ok(Ok((mut receiver, outbox))) =
            timeout(HANDSHAKE, asynchronous::accept(link, &file.secret, &file.lineage)).await
        else {
            continue;
        };
        let join = async {
            // The greeting first; what matters is the second message.
            receiver.next().await?;
            let (frame, _) = receiver.next().await?.ok_or_else(|| Error::protocol("a joiner left"))?;
            frame.message::<PeerMessage>()
        };
        if let Ok(Ok(PeerMessage::JoinGroup { pid, addresses })) = timeout(HANDSHAKE, join).await {
            let id = ServerId(file.servers.len() as u32);
            file.servers.push(ServerEntry { id, pid, addresses });
            joiners.push((id, receiver, outbox));
        }
    }
    file.epoch = 1;
    file.replace(&options.group)?;
    for (you, mut receiver, outbox) in joiners {
        let servers = file.servers.iter().map(|s| (s.id, s.pid, s.addresses.clone())).collect();
        let complete = GroupComplete { you, epoch: file.epoch, servers };
        outbox.push(Header::default(), &PeerMessage::GroupComplete(Ok(complete)))?;
        outbox.close();
        // Until the other side has taken it.
        let _ = timeout(HANDSHAKE, receiver.next()).await;
    }
    Ok(Formed { id: ServerId(0), file, listeners, founder: true })
}

/// Dials a server; on the same host through shared memory.
pub(crate) async fn dial(
    server: &ServerEntry,
    secret: &Secret,
    lineage: &Lineage,
) -> Result<(asynchronous::Receiver, std::sync::Arc<asynchronous::Outbox>)> {
    let here = host::this_host();
    let mut last = Error::unreachable(format!("{} has no address that can be reached from here", server.id));
    for address in server.parsed()? {
        let link: std::io::Result<Box<dyn forebay_transport::Link>> = match address {
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
                return timeout(HANDSHAKE, asynchronous::connect(link, secret, lineage))
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
    ToServer::Hello(Hello { role: Role::Server(from), pid, host: host::this_host(), shared_memory: false })
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
        return Err(Error::conflict(format!(
            "the group of {} is complete with {} servers; end it with `forebay down`, or give another --group",
            options.group.display(),
            file.size
        )));
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
