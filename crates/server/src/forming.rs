//! Becoming a member: the first server founds the group and writes the connection file, the others join through it.
//!
//! Who is first is decided by the file system: the file is created by a hard link, which succeeds once. Until all servers
//! have come that the founder waits for, the file says so, and clients wait.

use crate::ServerOptions;
use crate::membership::{LOOK, LOOKS};
use crate::node::Node;
use crate::silence::{SILENCE, SILENCE_MAX, SILENCE_MIN};
use crate::surroundings::{Machine, Surroundings, off_thread};
use forebay_core::ids::{Epoch, Lineage, ServerId};
use forebay_core::roster::{Candidate, Incarnation, Roster, Settings};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::{self, Outbox, Receiver};
use forebay_transport::group_file::{ConnectionFile, ServerEntry};
use forebay_transport::readiness::readable;
use forebay_transport::witness::{self, Witness};
use forebay_transport::{Address, Listener, host};
use forebay_wire::connection::{Hello, Role};
use forebay_wire::frame::Header;
use forebay_wire::handshake::{Door, Secret};
use forebay_wire::peer::cluster;
use rustix::fd::{AsFd, OwnedFd};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// How long it may take to become a member.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long one member may take to have a server admitted, before another one is asked.
const ADMISSION: Duration = Duration::from_secs(10);
/// How long to wait before all members are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How long none of the members may be reachable before they are taken for dead.
const UNREACHABLE: Duration = Duration::from_secs(5);
/// Within this, a founder that has written the connection file has made the witness.
const WITNESSED: Duration = Duration::from_secs(2);
/// How long to wait before it is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long one server may take to be connected to when it is only looked whether it is there.
const KNOCK: Duration = Duration::from_millis(300);
/// Who has no id yet.
pub(crate) const NOBODY: ServerId = ServerId(u32::MAX);

/// A server that is a member of its group.
pub(crate) struct Formed {
    pub(crate) around: Arc<dyn Surroundings>,
    pub(crate) id: ServerId,
    pub(crate) secret: Secret,
    pub(crate) roster: Arc<Roster>,
    pub(crate) witness: Witness,
    pub(crate) addresses: Vec<String>,
}

/// Founds the group, with this lineage, or joins it.
pub(crate) async fn form(options: &ServerOptions, lineage: Lineage) -> Result<(Vec<Listener>, Formed)> {
    let listeners = listen(options)?;
    let own = candidate(options, &listeners, None)?;
    let formed = become_member(options, lineage, own, Arc::new(Machine::new())).await?;
    Ok((listeners, formed))
}

/// Who this server is and was, and where it listens.
fn candidate(
    options: &ServerOptions,
    listeners: &[Listener],
    formerly: Option<ServerId>,
) -> Result<Candidate> {
    let incarnation = Incarnation(u64::from_le_bytes(random()?));
    let addresses = advertised(options, listeners);
    Ok(Candidate { incarnation, pid: std::process::id(), addresses, formerly })
}

/// Joins the group of this lineage again, from `joins_at` on and until one of its members can be reached; nothing once the
/// group has ended. It founds none, and joins no other: what it holds is of this one.
pub(crate) async fn join_again(
    options: &ServerOptions,
    lineage: Lineage,
    formerly: ServerId,
    joins_at: Instant,
) -> Result<Option<(Vec<Listener>, Formed)>> {
    let options = ServerOptions { lineage: Some(lineage), ..options.clone() };
    let around: Arc<dyn Surroundings> = Arc::new(Machine::new());
    let mut nothing_left = 0;
    while nothing_left < LOOKS {
        if Instant::now() >= joins_at {
            match join_once(&options, formerly, around.clone()).await {
                Ok(joined) => return Ok(Some(joined)),
                Err(error) => tracing::info!("it is no member yet: {error}"),
            }
        }
        tokio::time::sleep(LOOK).await;
        nothing_left = if has_ended(&options.group, lineage).await { nothing_left + 1 } else { 0 };
    }
    tracing::warn!("this server ends: its group, of {}, has ended without it", options.group.display());
    Ok(None)
}

async fn join_once(
    options: &ServerOptions,
    formerly: ServerId,
    around: Arc<dyn Surroundings>,
) -> Result<(Vec<Listener>, Formed)> {
    let listeners = listen(options)?;
    let own = candidate(options, &listeners, Some(formerly))?;
    let addresses = own.addresses.clone();
    let (id, secret, roster, witness) = join_in_time(options, &*around, &own).await?;
    Ok((listeners, Formed { around, id, secret, roster, witness, addresses }))
}

/// Whether what the servers of a group share is gone, or another group's. A file system that does not say so says nothing.
pub(crate) async fn has_ended(group: &Path, lineage: Lineage) -> bool {
    let path = group.to_owned();
    let is_missing =
        |path: &Path| std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    let looked = off_thread(move || match ConnectionFile::read(&path) {
        Ok(file) => file.lineage != lineage,
        Err(_) => is_missing(&path) && is_missing(&witness::path_beside(&path)),
    });
    looked.await.unwrap_or(false)
}

/// As [`form`], once it is known who this server is and where it listens.
pub(crate) async fn become_member(
    options: &ServerOptions,
    lineage: Lineage,
    own: Candidate,
    around: Arc<dyn Surroundings>,
) -> Result<Formed> {
    let addresses = own.addresses.clone();
    let roster = Roster::founded(lineage, own.clone(), options.servers, settings(options));
    let file = ConnectionFile::of(&roster, Secret(random()?));
    match file.create(&options.group) {
        Ok(()) => {
            let witness = Witness::create(&options.group, lineage)
                .inspect_err(|_| remove_file(&options.group, &lineage, Epoch::MAX))?;
            let (id, secret, roster) = (ServerId(0), file.secret, Arc::new(roster));
            Ok(Formed { around, id, secret, roster, witness, addresses })
        }
        Err(error) if error.kind == ErrorKind::Conflict => {
            let (id, secret, roster, witness) = join_in_time(options, &*around, &own).await?;
            Ok(Formed { around, id, secret, roster, witness, addresses })
        }
        Err(error) => Err(error),
    }
}

/// What all servers of a group do alike that this one founds.
fn settings(options: &ServerOptions) -> Settings {
    let silence = options.silence.unwrap_or(SILENCE).clamp(SILENCE_MIN, SILENCE_MAX);
    Settings { silence_ms: silence.as_millis() as u64, seal_payload: options.seal_payload }
}

/// An error if this server is to do something otherwise than its group does.
fn check_settings(options: &ServerOptions, group: Settings) -> Result<()> {
    let own = settings(options);
    let why = if options.silence.is_some() && own.silence_ms != group.silence_ms {
        let silence = Duration::from_millis(group.silence_ms);
        format!(
            "gives up servers that are silent for {silence:?}, not {:?}",
            options.silence.unwrap_or_default()
        )
    } else if own.seal_payload && !group.seal_payload {
        "does not encrypt bulk data".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::conflict(format!(
        "the group of {} {why}: its first server has decided that for all. Leave it out here, or start the group with it",
        options.group.display()
    )))
}

fn not_admitted(group: &Path, last: Option<Error>) -> Error {
    let why = last.map_or_else(String::new, |error| format!(": {error}"));
    Error::timeout(format!(
        "the group of {} did not admit this server within {PATIENCE:?}{why}",
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

/// Dials a server; on the same host through shared memory.
pub(crate) async fn dial(
    around: &dyn Surroundings,
    server: &ServerEntry,
    secret: &Secret,
    lineage: &Lineage,
) -> Result<(Receiver, Arc<Outbox>)> {
    let mut last = Error::unreachable(format!("{} has no address that can be reached from here", server.id));
    for address in server.parsed()? {
        if matches!(&address, Address::Shm { host, .. } if host != around.host()) {
            continue;
        }
        match around.connect(address.clone()).await {
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
pub(crate) fn hello(from: ServerId) -> Hello {
    let pid = std::process::id();
    let (role, host) = (Role::Server(from), host::process_space());
    Hello { role, pid, host, shared_memory: false, patience_ms: 0 }
}

/// What a member knows of its group.
type Joined = (ServerId, Secret, Arc<Roster>, Witness);

async fn join_in_time(options: &ServerOptions, around: &dyn Surroundings, own: &Candidate) -> Result<Joined> {
    let mut last = None;
    let joined = timeout(PATIENCE, join(options, around, own, &mut last)).await;
    joined.unwrap_or_else(|_| Err(not_admitted(&options.group, last)))
}

/// Asks one member after the other until one has this server admitted. `last` is why the last one did not.
async fn join(
    options: &ServerOptions,
    around: &dyn Surroundings,
    own: &Candidate,
    last: &mut Option<Error>,
) -> Result<Joined> {
    let began = Instant::now();
    let mut one_answers = false;
    loop {
        let file = ConnectionFile::read(&options.group)?;
        // A member that could not reach it would be in the others' way.
        let witness = match Witness::open(&options.group) {
            // The founder makes it right after the connection file.
            Err(error) if error.kind == ErrorKind::ConnectionFile && began.elapsed() < WITNESSED => {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            opened => opened?,
        };
        if options.lineage.is_some_and(|lineage| lineage != file.lineage) {
            return Err(Error::conflict(format!(
                "another group is being started at {}: wait for it, or give another --group",
                options.group.display()
            )));
        }
        for member in &file.servers {
            let asked = timeout(ADMISSION, ask_to_join(options, around, own, member, &file)).await;
            let silent = || Err(Error::timeout(format!("{} does not have this server admitted", member.id)));
            match asked.unwrap_or_else(|_| silent()) {
                Ok(roster) => {
                    let me = roster.find(own.incarnation).map(|member| member.id);
                    let id =
                        me.ok_or_else(|| Error::protocol(format!("{} admitted another server", member.id)))?;
                    return Ok((id, file.secret, roster, witness));
                }
                Err(error) if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Timeout) => {
                    tracing::info!("{error}");
                    one_answers |= error.kind != ErrorKind::Unreachable;
                    *last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if !one_answers && began.elapsed() > UNREACHABLE {
            let why = last.take().map_or_else(String::new, |error| error.text);
            return Err(Error::unreachable(format!(
                "no server that {} names can be reached: {why}. If they are all gone, `forebay up` starts a new group",
                options.group.display()
            )));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Asks a member to have this server admitted; the roster in which it is.
async fn ask_to_join(
    options: &ServerOptions,
    around: &dyn Surroundings,
    own: &Candidate,
    member: &ServerEntry,
    file: &ConnectionFile,
) -> Result<Arc<Roster>> {
    // Before it is a member, so that nothing is to be undone.
    if options.silence.is_some() || options.seal_payload {
        check_settings(options, ask_roster(around, member, file).await?.settings)?;
    }
    ask(around, member, file, cluster::Message::Join(own.clone())).await
}

/// Asks all other members for the rosters that they know, and these servers: what those tell that answer in time, as it comes.
pub(crate) fn ask_members(
    node: &Node,
    also: Vec<ServerEntry>,
    patience: Duration,
) -> JoinSet<Option<(ServerId, Arc<Roster>)>> {
    let file = Arc::new(ConnectionFile::of(&node.standing().roster, node.secret.clone()));
    let is_none = |server: &ServerEntry| !file.servers.iter().any(|member| member.id == server.id);
    let servers = file.servers.iter().cloned().chain(also.into_iter().filter(is_none));
    let mut asked = JoinSet::new();
    for server in servers.filter(|server| server.id != node.id) {
        let (around, file) = (node.around.clone(), file.clone());
        asked.spawn(async move {
            let answer = timeout(patience, ask_roster(&*around, &server, &file)).await;
            Some((server.id, answer.ok()?.ok()?))
        });
    }
    asked
}

/// Asks a server for the roster that it knows.
pub(crate) async fn ask_roster(
    around: &dyn Surroundings,
    server: &ServerEntry,
    file: &ConnectionFile,
) -> Result<Arc<Roster>> {
    ask(around, server, file, cluster::Message::QueryRoster).await
}

async fn ask(
    around: &dyn Surroundings,
    server: &ServerEntry,
    file: &ConnectionFile,
    question: cluster::Message,
) -> Result<Arc<Roster>> {
    let (mut receiver, outbox) = dial(around, server, &file.secret, &file.lineage).await?;
    let outbox = Closing(outbox);
    outbox.0.push(Header::default(), &hello(NOBODY))?;
    outbox.0.push(Header::default(), &question)?;
    let left = || Error::unreachable(format!("{} ended the connection", server.id));
    let (frame, _) = receiver.next().await?.ok_or_else(left)?;
    match frame.message::<cluster::Message>()? {
        cluster::Message::Admission(result) => result.and_then(|roster| roster.check().map(|()| roster)),
        _ => Err(Error::protocol(format!("{} answered something else than a roster", server.id))),
    }
}

/// A connection that ends with this, also where its answer is not waited for any more.
struct Closing(Arc<Outbox>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Whether somebody listens where one of these servers is to be reached.
pub(crate) async fn one_listens(around: &dyn Surroundings, servers: Vec<ServerEntry>) -> bool {
    for address in servers.iter().flat_map(|server| server.parsed().unwrap_or_default()) {
        let elsewhere = matches!(&address, Address::Shm { host, .. } if host != around.host());
        if !elsewhere && timeout(KNOCK, around.connect(address)).await.is_ok_and(|link| link.is_ok()) {
            return true;
        }
    }
    false
}

/// Removes the connection file and the witness beside it, if they are still this group's, and it has not gone on since this
/// epoch: one that was cut off may take itself for the last one.
pub(crate) fn remove_file(path: &Path, lineage: &Lineage, epoch: Epoch) {
    let ours = ConnectionFile::read(path).is_ok_and(|file| file.lineage == *lineage && file.epoch <= epoch);
    if ours {
        let _ = std::fs::remove_file(path);
        witness::remove(path);
    }
}
