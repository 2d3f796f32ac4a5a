//! Finding a group and connecting to its servers.

use crate::declared::Choice;
use crate::rpc::{LOOK_AT_MEMBERS, Rpc};
use crate::seconds::sane;
use forebay_core::ids::ServerId;
use forebay_core::view::View;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking::{self, Connection, Opening, PollFlags, wait_for_any};
use forebay_transport::group_file::{ConnectionFile, ServerEntry, path_of};
use forebay_transport::{Address, host};
use forebay_wire::handshake::Door;
use forebay_wire::message::{Hello, HostId, Role, ToClient, ToServer, Welcome};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Which transport to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory where the server is on this host, else TCP.
    #[default]
    Auto,
    /// Shared memory or nothing.
    Shm,
    /// TCP, even on one host.
    Tcp,
}

impl TransportChoice {
    /// The choice of this name: `auto`, `shm` or `tcp`.
    pub fn parse(name: &str) -> Result<TransportChoice> {
        Choice::of_name(name)
    }
}

/// How to find and reach a group.
#[derive(Debug, Clone, Default)]
pub struct GroupOptions {
    /// A connection file's path, a group's name, or a connection file's text (it then begins with `{`);
    /// `None`: `FOREBAY_GROUP`, else the group named `default`.
    pub group: Option<String>,
    /// Which transport to use.
    pub transport: TransportChoice,
    /// The deadline of every wait; `None`: 30 seconds.
    pub timeout: Option<Duration>,
}

impl GroupOptions {
    /// The deadline of every wait.
    pub fn patience(&self) -> Duration {
        sane(self.timeout.unwrap_or(Duration::from_secs(30)))
    }
}

/// How often a connection file is looked at that is awaited to tell of something.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Within this, the connection file tells of a server that has joined.
const JUST_JOINED: Duration = Duration::from_secs(2);

/// A group that was found. Its servers come and go; what the connection file told last is remembered.
#[derive(Debug, Clone)]
pub struct Group {
    known: Arc<RwLock<Arc<Known>>>,
    here: HostId,
    options: GroupOptions,
    /// How long it may take to connect and to ask the first question, if that is not what was asked for.
    limit: Option<Duration>,
}

/// What a connection file told.
#[derive(Debug)]
pub struct Known {
    /// The file's content.
    pub file: ConnectionFile,
    /// The view that it describes.
    pub view: View,
    /// The highest number of a server that was ever told: ids grow, so that a lower one which is not there has left.
    highest: Option<ServerId>,
}

impl Known {
    fn new(file: ConnectionFile, before: Option<ServerId>) -> Arc<Known> {
        let view = file.view();
        let highest = view.members.last().copied().max(before);
        Arc::new(Known { view, file, highest })
    }

    /// Whether a server is none any more. One with a higher number than any that was told of may have just joined.
    pub(crate) fn has_left(&self, id: ServerId) -> bool {
        Some(id) <= self.highest && !self.view.members.contains(&id)
    }

    /// The highest number of a server that was ever told.
    pub(crate) fn highest(&self) -> Option<ServerId> {
        self.highest
    }

    /// How many servers there have been, at most: their numbers grow.
    pub(crate) fn ever(&self) -> usize {
        self.highest.map_or(0, |highest| highest.0 as usize + 1)
    }

    fn server(&self, id: ServerId) -> Option<&ServerEntry> {
        self.file.servers.iter().find(|server| server.id == id)
    }
}

fn read(options: &GroupOptions) -> Result<ConnectionFile> {
    match options.group.as_deref() {
        Some(text) if text.trim_start().starts_with('{') => ConnectionFile::parse(text, "the given text"),
        group => ConnectionFile::read(&path_of(group)?),
    }
}

pub(crate) fn look_again() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file cannot be waited for portably; only while servers come"
    )]
    std::thread::sleep(LOOK_AGAIN);
}

impl Group {
    /// Reads the connection file, waiting for a group that is forming. Connects to nothing.
    pub fn find(options: &GroupOptions) -> Result<Group> {
        let deadline = Instant::now() + options.patience();
        loop {
            let file = read(options)?;
            if file.is_complete() {
                let known = Arc::new(RwLock::new(Known::new(file, None)));
                return Ok(Group { known, here: host::this_host(), options: options.clone(), limit: None });
            }
            if Instant::now() >= deadline {
                return Err(Error::timeout(format!(
                    "the group did not become complete in time: {} of its {} servers are missing, each a `forebay serve` on \
                     this connection file",
                    file.awaited as usize - file.servers.len().min(file.awaited as usize),
                    file.awaited
                )));
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while("the group to become complete"));
            }
            look_again();
        }
    }

    /// What the connection file told when it was read last. Copies a pointer.
    pub fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the connection file again, if it is a file: servers come and go.
    pub fn refresh(&self) -> Result<()> {
        let file = read(&self.options)?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if file.lineage == known.file.lineage && file.epoch > known.file.epoch {
            *known = Known::new(file, known.highest);
        }
        Ok(())
    }

    /// A server is no member, and has not just joined either: nobody needs to wait for it again.
    fn note_gone(&self, id: ServerId) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.highest < Some(id) {
            *known = Known::new(known.file.clone(), Some(id));
        }
    }

    /// How it was asked to be reached.
    pub fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// The home server of a rank.
    pub fn home_of(&self, rank: u32) -> Result<ServerId> {
        self.home_of_but(rank, &[])
    }

    /// The same group, with less time to connect and to ask the first question.
    pub(crate) fn within(&self, limit: Duration) -> Group {
        Group { limit: Some(limit), ..self.clone() }
    }

    /// How long it may take to connect, and to ask the first question.
    pub(crate) fn limit(&self) -> Duration {
        self.limit.unwrap_or(self.options.patience())
    }

    /// The home server of a rank, of those that are left without these.
    pub(crate) fn home_of_but(&self, rank: u32, dead: &[ServerId]) -> Result<ServerId> {
        let known = self.known();
        let living = |id: ServerId| !dead.contains(&id);
        let here = |id: ServerId| known.server(id).is_some_and(|server| self.shm_name(server).is_some());
        let home = known.file.homes.home_of(rank, living, here);
        home.ok_or_else(|| Error::not_found("no server of the group is left"))
    }

    /// The server that coordinates a stream, if it was not used before the view became this one.
    fn coordinator_of(&self, stream: &str) -> Result<ServerId> {
        let coordinator = self.known().view.coordinator_of(stream);
        coordinator.ok_or_else(|| Error::not_found("the group has no server"))
    }

    /// Connects to the server that coordinates a stream and asks it something. Another server than the view names may
    /// do: the one that is asked knows. `call` asks over a connection, and is told how long that may take.
    pub(crate) fn at_coordinator(
        &self,
        stream: &str,
        deadline: Instant,
        call: impl Fn(&Rpc, Duration) -> Result<ToClient>,
    ) -> Result<(ServerId, Rpc, ToClient)> {
        self.outlive(deadline, || self.at_coordinator_now(stream, deadline, &call))
    }

    fn at_coordinator_now(
        &self,
        stream: &str,
        deadline: Instant,
        call: impl Fn(&Rpc, Duration) -> Result<ToClient>,
    ) -> Result<(ServerId, Rpc, ToClient)> {
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut server = self.coordinator_of(stream)?;
        loop {
            let rpc = self.within(left()).connect(server, Role::Consumer)?;
            match call(&rpc, left())? {
                // Two that name each other do not know the same view yet.
                ToClient::AskInstead(other) => {
                    look_again();
                    if left().is_zero() {
                        return Err(Error::timeout(format!("no server coordinates stream '{stream}'")));
                    }
                    server = other;
                }
                answer => return Ok((server, rpc, answer)),
            }
        }
    }

    fn shm_name(&self, server: &ServerEntry) -> Option<Address> {
        let addresses = server.parsed().ok()?;
        addresses
            .into_iter()
            .find(|address| matches!(address, Address::Shm { host, .. } if *host == self.here))
    }

    /// Connects to one server and greets it. While that does not answer it is looked whether it is still a member.
    pub(crate) fn connect(&self, id: ServerId, role: Role) -> Result<Rpc> {
        if self.limit().is_zero() {
            return Err(Error::timeout(format!("the deadline passed before {id} was connected to")));
        }
        let deadline = Instant::now() + self.limit();
        let (connection, address) = self.connection_to(id, deadline)?;
        let kind = connection.kind();
        let epoch = self.known().view.epoch;
        let rpc = Rpc::new(connection, epoch, self.options.patience()).of_member(self.clone(), id);
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = rpc.call_within(&self.hello(role, &address), None, left, "its welcome")?;
        let welcome = check_welcome(id, answer.message)?;
        Ok(rpc.with_sealed_payload(welcome.seal_payload, kind))
    }

    fn connection_to(&self, id: ServerId, deadline: Instant) -> Result<(Connection, Address)> {
        let next_look = || deadline.min(Instant::now() + LOOK_AT_MEMBERS);
        let mut patience = LOOK_AT_MEMBERS;
        let (opening, name, address) = loop {
            let (address, name) = self.place_of(id)?;
            let (known, until) = (self.known(), deadline.min(Instant::now() + patience));
            match Opening::connect(&address, &name, &Group::door(&known, &id.to_string()), until) {
                Ok(opening) => break (opening, name, address),
                // Whatever the error says: this was given up, and not refused.
                Err(_) if (until..deadline).contains(&Instant::now()) && !blocking::interrupted() => {
                    let _ = self.refresh();
                }
                Err(error) => return Err(error),
            }
            // The network may only be slow: each time it is given longer.
            patience *= 2;
        };
        opening.greet(deadline)?;
        // Over one connection: many that are given up would fill the queue of a server that stands still.
        while !wait_for_any(&[(opening.descriptor(), PollFlags::IN)], next_look())?.contains(&true) {
            if blocking::interrupted() {
                return Err(blocking::interrupted_while(format_args!("{name} to answer the handshake")));
            }
            let _ = self.refresh();
            if self.known().has_left(id) {
                let text = format!("{name} did not answer, and is no member of the group any more");
                return Err(Error::unreachable(text));
            }
            if Instant::now() >= deadline {
                let text = format!("the deadline passed while waiting for {name} to answer the handshake");
                return Err(Error::timeout(text));
            }
        }
        Ok((opening.finish(deadline)?, address))
    }

    /// What leads to a server of this group, which is called so in the handshake.
    pub(crate) fn door<'a>(known: &'a Known, name: &'a str) -> Door<'a> {
        Door { secret: &known.file.secret, lineage: &known.file.lineage, name }
    }

    /// Where to reach a server, and what to call it in errors. Waits for the connection file to tell of one that has
    /// just joined.
    pub(crate) fn place_of(&self, id: ServerId) -> Result<(Address, String)> {
        let deadline = Instant::now() + self.limit().min(JUST_JOINED);
        loop {
            let known = self.known();
            if let Some(server) = known.server(id) {
                let (address, why) = self.choose(server)?;
                tracing::debug!("{id}: {address}, since {why}");
                return Ok((address, format!("{id} (process {})", server.pid)));
            }
            self.refresh()?;
            let known = self.known();
            let passed = known.highest.is_some_and(|highest| highest >= id);
            if known.server(id).is_none() && (passed || Instant::now() >= deadline) {
                self.note_gone(id);
                return Err(Error::unreachable(format!("{id} is no member of the group any more")));
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while("the connection file to tell of a server"));
            }
            look_again();
        }
    }

    /// The greeting over a connection to this address.
    pub(crate) fn hello(&self, role: Role, address: &Address) -> ToServer {
        ToServer::Hello(Hello {
            role,
            pid: std::process::id(),
            host: host::process_space(),
            shared_memory: matches!(address, Address::Shm { .. }),
            patience_ms: u64::try_from(self.options.patience().as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn choose(&self, server: &ServerEntry) -> Result<(Address, &'static str)> {
        let shm = self.shm_name(server);
        let tcp = server.parsed()?.into_iter().find(|address| matches!(address, Address::Tcp(_)));
        match (self.options.transport, shm, tcp) {
            (TransportChoice::Auto | TransportChoice::Shm, Some(shm), _) => Ok((shm, "it is on this host")),
            (TransportChoice::Auto, None, Some(tcp)) => Ok((tcp, "it is on another host")),
            (TransportChoice::Tcp, _, Some(tcp)) => Ok((tcp, "TCP was asked for")),
            (TransportChoice::Shm, None, _) => Err(Error::unreachable(format!(
                "{} is not on this host, so it cannot be reached by shared memory; use transport auto or tcp",
                server.id
            ))),
            (_, _, None) => Err(Error::unreachable(format!(
                "{} listens on no TCP port; start it with --bind ADDRESS",
                server.id
            ))),
        }
    }
}

/// A server's answer to the greeting.
pub(crate) fn check_welcome(id: ServerId, answer: ToClient) -> Result<Welcome> {
    match answer {
        ToClient::Welcome(welcome) if welcome.server == id => Ok(welcome),
        ToClient::Welcome(welcome) => Err(Error::new(
            ErrorKind::ConnectionFile,
            format!("{} answered in the place of {id}", welcome.server),
        )),
        ToClient::Failed(error) => Err(error),
        _ => Err(Error::protocol(format!("{id} did not welcome"))),
    }
}
