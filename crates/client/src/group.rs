//! Finding a group and connecting to its servers.

use crate::rpc::Rpc;
use crate::seconds::sane;
use forebay_core::ids::ServerId;
use forebay_core::placement::home_of;
use forebay_core::view::View;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking::{self, Connection};
use forebay_transport::group_file::{ConnectionFile, ServerEntry, path_of};
use forebay_transport::{Address, host};
use forebay_wire::handshake::Door;
use forebay_wire::message::{Hello, HostId, Role, ToClient, ToServer, Welcome};
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
        match name {
            "auto" => Ok(TransportChoice::Auto),
            "shm" => Ok(TransportChoice::Shm),
            "tcp" => Ok(TransportChoice::Tcp),
            _ => Err(Error::invalid(format!("transport '{name}' is not known: use auto, shm or tcp"))),
        }
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

/// A group that was found.
#[derive(Debug, Clone)]
pub struct Group {
    file: ConnectionFile,
    view: View,
    here: HostId,
    options: GroupOptions,
}

impl Group {
    /// Reads the connection file, waiting for a group that is forming. Connects to nothing.
    pub fn find(options: &GroupOptions) -> Result<Group> {
        let deadline = Instant::now() + options.patience();
        loop {
            let file = match options.group.as_deref() {
                Some(text) if text.trim_start().starts_with('{') => {
                    ConnectionFile::parse(text, "the given text")?
                }
                group => ConnectionFile::read(&path_of(group)?)?,
            };
            if file.is_complete() {
                let view = file.view();
                return Ok(Group { file, view, here: host::this_host(), options: options.clone() });
            }
            if Instant::now() >= deadline {
                return Err(Error::timeout(format!(
                    "the group did not become complete in time: {} of its {} servers are missing",
                    file.size as usize - file.servers.len().min(file.size as usize),
                    file.size
                )));
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while("the group to become complete"));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a file cannot be waited for portably; only while forming"
            )]
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The view that the connection file describes.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// How it was asked to be reached.
    pub fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// The connection file's content.
    pub fn file(&self) -> &ConnectionFile {
        &self.file
    }

    /// The home server of a rank.
    pub fn home_of(&self, rank: u32) -> Result<ServerId> {
        let mut local: Vec<ServerId> = self
            .file
            .servers
            .iter()
            .filter(|server| self.shm_name(server).is_some())
            .map(|server| server.id)
            .collect();
        local.sort_unstable();
        home_of(&self.view, &local, rank).ok_or_else(|| Error::not_found("the group has no server"))
    }

    /// The server that coordinates a stream.
    pub fn coordinator_of(&self, stream: &str) -> Result<ServerId> {
        self.view.coordinator_of(stream).ok_or_else(|| Error::not_found("the group has no server"))
    }

    fn shm_name(&self, server: &ServerEntry) -> Option<Address> {
        let addresses = server.parsed().ok()?;
        addresses
            .into_iter()
            .find(|address| matches!(address, Address::Shm { host, .. } if *host == self.here))
    }

    /// Connects to one server and greets it.
    pub(crate) fn connect(&self, id: ServerId, role: Role) -> Result<Rpc> {
        let deadline = Instant::now() + self.options.patience();
        let (address, name) = self.place_of(id)?;
        let connection = Connection::connect(&address, &name, &self.door(&id.to_string()), deadline)?;
        let kind = connection.kind();
        let rpc = Rpc::new(connection, self.view.epoch, self.options.patience());
        let answer = rpc.call(&self.hello(role, &address), "its welcome")?;
        let welcome = check_welcome(id, answer.message)?;
        Ok(rpc.with_sealed_payload(welcome.seal_payload, kind))
    }

    /// What leads to a server of this group, which is called so in the handshake.
    pub(crate) fn door<'a>(&'a self, name: &'a str) -> Door<'a> {
        Door { secret: &self.file.secret, lineage: &self.file.lineage, name }
    }

    /// Where to reach a server, and what to call it in errors.
    pub(crate) fn place_of(&self, id: ServerId) -> Result<(Address, String)> {
        let server = self.file.servers.iter().find(|server| server.id == id).ok_or_else(|| {
            Error::new(ErrorKind::ConnectionFile, format!("{id} is not in the connection file"))
        })?;
        let (address, why) = self.choose(server)?;
        tracing::debug!("{id}: {address}, since {why}");
        Ok((address, format!("{id} (process {})", server.pid)))
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
