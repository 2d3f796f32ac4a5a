//! A group as its connection file tells it: who its members are, and where each is reached.

use crate::group_options::{GroupOptions, TransportChoice};
use crate::identity::identity;
use forebay_core::identity::Identity;
use forebay_core::ids::{ServerId, check_name};
use forebay_core::view::View;
use forebay_core::{Error, Result};
use forebay_transport::blocking;
use forebay_transport::connection_file::{ConnectionFile, ServerEntry, path_of};
use forebay_transport::{Address, host};
use forebay_wire::connection::HostId;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long this process waits before it reads a connection file again that is to tell of something, or asks servers again.
const PAUSE: Duration = Duration::from_millis(20);
/// Under which name a text for other processes tells of the file that it was made of.
const FILE: &str = "file";
/// Within this, the connection file tells of a server that has joined.
const JUST_JOINED: Duration = Duration::from_secs(2);

/// A group that was found. Its servers come and go; the handle remembers what the connection file told last.
#[derive(Debug, Clone)]
pub struct Group {
    known: Arc<RwLock<Arc<KnownGroup>>>,
    here: HostId,
    options: GroupOptions,
    /// How long this process may take to connect and to ask the first question, if that is not what the user asked for.
    limit: Option<Duration>,
}

/// What a connection file told.
#[derive(Debug)]
pub struct KnownGroup {
    /// The file's content.
    pub file: ConnectionFile,
    /// The view that it describes.
    pub view: View,
    /// The highest number of a server that the connection file ever told: numbers grow, so that a server with a lower one which
    /// is not there has left.
    highest: Option<ServerId>,
}

impl KnownGroup {
    fn new(file: ConnectionFile, before: Option<ServerId>) -> Arc<KnownGroup> {
        let view = file.view();
        let highest = view.members.last().copied().max(before);
        Arc::new(KnownGroup { view, file, highest })
    }

    /// Whether a server is no member any more. A server with a higher number than any that the file told may have just joined.
    pub(crate) fn has_left(&self, id: ServerId) -> bool {
        Some(id) <= self.highest && !self.view.members.contains(&id)
    }

    /// The highest number of a server that the connection file ever told.
    pub(crate) fn highest(&self) -> Option<ServerId> {
        self.highest
    }

    /// How many servers there have been, at most: their numbers grow.
    pub(crate) fn ever(&self) -> usize {
        self.highest.map_or(0, |highest| highest.0 as usize + 1)
    }

    pub(crate) fn server(&self, id: ServerId) -> Option<&ServerEntry> {
        self.file.servers.iter().find(|server| server.id == id)
    }
}

fn read(options: &GroupOptions) -> Result<ConnectionFile> {
    match given_text(options) {
        Some(text) => ConnectionFile::parse(text, "the given text"),
        None => ConnectionFile::read(&path_of(options.group.as_deref())?),
    }
}

/// The same for a group that was found: what has changed since a text was made stands in the file that it was made of, if that is seen here.
fn read_again(options: &GroupOptions) -> Result<ConnectionFile> {
    let file = given_text(options).and_then(|text| {
        let told: serde_json::Value = serde_json::from_str(text).ok()?;
        ConnectionFile::read(Path::new(told.get(FILE)?.as_str()?)).ok()
    });
    file.map_or_else(|| read(options), Ok)
}

fn given_text(options: &GroupOptions) -> Option<&str> {
    options.group.as_deref().filter(|group| group.trim_start().starts_with('{'))
}

/// Waits a moment before something is tried again that other processes must first change.
pub(crate) fn pause_before_retry() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file cannot be waited for portably; only while servers come"
    )]
    std::thread::sleep(PAUSE);
}

impl Group {
    /// Reads the connection file, waiting for a group that is forming. Connects to nothing.
    pub fn find(options: &GroupOptions) -> Result<Group> {
        options.name.iter().try_for_each(|name| check_name("name", name))?;
        let deadline = Instant::now() + options.patience();
        loop {
            let file = read(options)?;
            if file.is_complete() {
                let known = Arc::new(RwLock::new(KnownGroup::new(file, None)));
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
            pause_before_retry();
        }
    }

    /// The text of the connection file, for other processes: it names the file, so that those that see it learn there of servers that
    /// join later. Waits for a group that is forming.
    pub fn text_for_others(options: &GroupOptions) -> Result<String> {
        let group = Group::find(options)?;
        if let Some(text) = given_text(options) {
            return Ok(text.to_owned());
        }
        let cannot =
            |why: &dyn fmt::Display| Error::internal(format!("cannot tell of a connection file: {why}"));
        let mut told: serde_json::Value =
            serde_json::from_str(&group.known().file.to_text()?).map_err(|e| cannot(&e))?;
        let path = std::path::absolute(path_of(options.group.as_deref())?).map_err(|e| cannot(&e))?;
        // A path that is no text is not told: it is only a help.
        if let (Some(told), Some(path)) = (told.as_object_mut(), path.to_str()) {
            told.insert(FILE.to_owned(), path.into());
        }
        serde_json::to_string_pretty(&told).map_err(|e| cannot(&e))
    }

    /// What the connection file told when it was read last. Copies a pointer.
    pub fn known(&self) -> Arc<KnownGroup> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the connection file again, if it is seen here: servers come and go.
    pub fn refresh(&self) -> Result<()> {
        let file = read_again(&self.options)?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if file.lineage == known.file.lineage && file.epoch > known.file.epoch {
            *known = KnownGroup::new(file, known.highest);
        }
        Ok(())
    }

    /// A server is no member, and has not just joined either: nobody needs to wait for it again.
    fn note_gone(&self, id: ServerId) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.highest < Some(id) {
            *known = KnownGroup::new(known.file.clone(), Some(id));
        }
    }

    /// How the user asked to reach it.
    pub fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// Who the handle is that uses it, as servers tell others.
    pub(crate) fn identity(&self) -> Identity {
        identity(self.options.name.as_deref())
    }

    /// The home server of a rank.
    pub fn home_of(&self, rank: u32) -> Result<ServerId> {
        self.home_of_but(rank, &[])
    }

    /// The same group, with less time to connect and to ask the first question.
    pub(crate) fn within(&self, limit: Duration) -> Group {
        Group { limit: Some(limit), ..self.clone() }
    }

    /// How long this process may take to connect, and to ask the first question.
    pub(crate) fn limit(&self) -> Duration {
        self.limit.unwrap_or(self.options.patience())
    }

    /// The home server of a rank among the members that are left without the `dead`.
    pub(crate) fn home_of_but(&self, rank: u32, dead: &[ServerId]) -> Result<ServerId> {
        let known = self.known();
        let living = |id: ServerId| !dead.contains(&id);
        let here = |id: ServerId| known.server(id).is_some_and(|server| self.shm_name(server).is_some());
        let home = known.file.homes.home_of(rank, living, here);
        home.ok_or_else(|| Error::not_found("no server of the group is left"))
    }

    fn shm_name(&self, server: &ServerEntry) -> Option<Address> {
        let addresses = server.parsed().ok()?;
        addresses
            .into_iter()
            .find(|address| matches!(address, Address::Shm { host, .. } if *host == self.here))
    }

    /// The host of a server, as hosts name themselves; `None` if it is not known.
    pub(crate) fn host_of(&self, id: ServerId) -> Option<String> {
        let addresses = self.known().server(id)?.parsed().ok()?;
        addresses.into_iter().find_map(|address| match address {
            Address::Shm { host, .. } => Some(host.0),
            _ => None,
        })
    }

    /// The host of this process.
    pub(crate) fn here(&self) -> &str {
        &self.here.0
    }

    /// Where to reach a server, and what to call it in errors. Waits for the connection file to tell of one that has
    /// just joined.
    pub(crate) fn address_of(&self, id: ServerId) -> Result<(Address, String)> {
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
            pause_before_retry();
        }
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
