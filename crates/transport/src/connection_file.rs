//! The connection file: how a group is found. JSON, readable by its owner only.

use crate::witness::Witness;
use crate::{Address, written};
use forebay_core::home_assignment::HomeAssignment;
use forebay_core::ids::{Epoch, Lineage, ServerId};
use forebay_core::roster::{Member, Roster};
use forebay_core::shards::Shards;
use forebay_core::view::View;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::connection::HostId;
use forebay_wire::handshake::Secret;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FORMAT: u32 = 1;
/// No connection file is larger.
const BYTES_MAX: usize = 4 << 20;

/// One server, as the connection file lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerEntry {
    /// Its id.
    pub id: ServerId,
    /// Its process.
    pub pid: u32,
    /// Where it can be reached, best first.
    pub addresses: Vec<String>,
}

impl ServerEntry {
    /// The addresses, parsed.
    pub fn parsed(&self) -> Result<Vec<Address>> {
        self.addresses.iter().map(|text| text.parse()).collect()
    }

    /// What helps where it cannot be reached from this host, if it is on another one, and listens there for itself alone.
    pub fn remedy_from(&self, here: &HostId) -> Option<String> {
        let addresses = self.parsed().ok()?;
        let is_here =
            addresses.iter().any(|address| matches!(address, Address::Shm { host, .. } if host == here));
        let mut tcp = addresses.iter().filter_map(|address| match address {
            Address::Tcp(address) => Some(address.ip().is_loopback()),
            Address::Shm { .. } => None,
        });
        let for_itself = !is_here && tcp.clone().next().is_some() && tcp.all(|is_loopback| is_loopback);
        for_itself.then(|| {
            format!(
                "{} listens on a loopback address, which is another machine's own: for a group of several hosts start its \
                 servers with --bind \"$(hostname -i)\", or another address that all of them reach",
                self.id
            )
        })
    }
}

/// What a connection file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionFile {
    /// The group's lineage.
    pub lineage: Lineage,
    /// The group's secret.
    pub secret: Secret,
    /// The epoch at which it was written.
    pub epoch: Epoch,
    /// How many servers the group waits for before it is used; 0 once they have come.
    pub awaited: u32,
    /// The servers.
    pub servers: Vec<ServerEntry>,
    /// The servers when all had come that were waited for. They own the tiles of the directory.
    pub shards: Shards,
    /// In which order the servers are homes of ranks.
    pub homes: HomeAssignment,
}

#[derive(Serialize, Deserialize)]
struct OnDisk {
    forebay: u32,
    lineage: String,
    secret: String,
    epoch: Epoch,
    awaited: u32,
    shards: Shards,
    homes: HomeAssignment,
    servers: Vec<ServerEntry>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::ConnectionFile, text)
}

impl ConnectionFile {
    /// The view that it describes.
    pub fn view(&self) -> View {
        let mut members: Vec<ServerId> = self.servers.iter().map(|server| server.id).collect();
        members.sort_unstable();
        View { lineage: self.lineage, epoch: self.epoch, members }
    }

    /// What is to be written when this roster is in force.
    pub fn of(roster: &Roster, secret: Secret) -> ConnectionFile {
        let entry = |member: &Member| ServerEntry {
            id: member.id,
            pid: member.server.pid,
            addresses: member.server.addresses.clone(),
        };
        ConnectionFile {
            lineage: roster.lineage,
            secret,
            epoch: roster.epoch,
            awaited: roster.awaited,
            servers: roster.members.iter().map(entry).collect(),
            shards: roster.shards.clone(),
            homes: roster.homes.clone(),
        }
    }

    /// Whether all servers have come that the group waited for.
    pub fn is_complete(&self) -> bool {
        self.awaited == 0
    }

    /// Parses the file's text.
    pub fn parse(text: &str, origin: &str) -> Result<ConnectionFile> {
        let damaged = |why: &str| bad(format!("{origin} is no connection file of Forebay: {why}"));
        if text.len() > BYTES_MAX {
            return Err(damaged("it is too large"));
        }
        let disk: OnDisk = serde_json::from_str(text).map_err(|e| damaged(&e.to_string()))?;
        if disk.forebay != FORMAT {
            return Err(bad(format!(
                "{origin} has format {}, this release reads {FORMAT}: install the release that the group runs",
                disk.forebay
            )));
        }
        let lineage =
            Lineage(unhex(&disk.lineage).ok_or_else(|| damaged("its lineage is not 32 hexadecimal digits"))?);
        let secret =
            Secret(unhex(&disk.secret).ok_or_else(|| damaged("its secret is not 64 hexadecimal digits"))?);
        if disk.servers.is_empty() {
            return Err(damaged("it lists no server"));
        }
        if disk.awaited == 0 && disk.shards.is_empty() {
            return Err(damaged("it names no owner of a shard"));
        }
        let listed = |id: ServerId| disk.servers.iter().any(|server| server.id == id);
        if disk.homes.members().next().is_none() || !disk.homes.members().all(listed) {
            return Err(damaged("its homes of ranks are not its servers"));
        }
        for server in &disk.servers {
            server.parsed().map_err(|e| e.during(origin))?;
        }
        let OnDisk { epoch, awaited, shards, homes, servers, .. } = disk;
        Ok(ConnectionFile { lineage, secret, epoch, awaited, servers, shards, homes })
    }

    /// The file's text.
    pub fn to_text(&self) -> Result<String> {
        let disk = OnDisk {
            forebay: FORMAT,
            lineage: hex(&self.lineage.0),
            secret: hex(&self.secret.0),
            epoch: self.epoch,
            awaited: self.awaited,
            shards: self.shards.clone(),
            homes: self.homes.clone(),
            servers: self.servers.clone(),
        };
        serde_json::to_string_pretty(&disk)
            .map_err(|e| Error::internal(format!("cannot write a connection file: {e}")))
    }

    /// Reads a file. It must belong to this user and be readable by nobody else.
    pub fn read(path: &Path) -> Result<ConnectionFile> {
        let shown = path.display();
        // Without waiting: what stands there may be a pipe that nobody writes to.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = opened.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => bad(format!(
                "there is no connection file {shown}: start a group with `forebay up`, or name it with --group, group= or \
                 FOREBAY_GROUP"
            )),
            _ if e.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => Error::new(
                ErrorKind::Io,
                format!(
                    "cannot read the connection file {shown}: this process has as many descriptors open as it may: \
                     raise `ulimit -n`"
                ),
            ),
            _ => bad(format!("cannot read the connection file {shown}: {e}")),
        })?;
        let metadata = file.metadata().map_err(|e| bad(format!("cannot look at {shown}: {e}")))?;
        // First: nobody should be told to change the mode of a device or a directory.
        if !metadata.is_file() {
            return Err(bad(format!(
                "{shown} is no regular file, so no connection file of Forebay: name another with --group, group= or FOREBAY_GROUP"
            )));
        }
        let me = rustix::process::geteuid().as_raw();
        if metadata.uid() != me {
            return Err(bad(format!(
                "{shown} belongs to user {}, not to you: a connection file of somebody else is not used",
                metadata.uid()
            )));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(bad(format!(
                "{shown} can be read by others (mode {:o}), and a connection file holds the group's secret: if it is \
                 one, `chmod 600` it, and start the group again if others may have seen it",
                metadata.mode() & 0o777
            )));
        }
        if metadata.len() > BYTES_MAX as u64 {
            return Err(bad(format!("{shown} is no connection file of Forebay")));
        }
        let text = std::io::read_to_string(file.take(BYTES_MAX as u64 + 1))
            .map_err(|e| bad(format!("cannot read {shown}: {e}")))?;
        ConnectionFile::parse(&text, &shown.to_string())
    }

    /// Creates the file; fails with `ErrorKind::Conflict` if it exists. Readers see all of it or nothing.
    pub fn create(&self, path: &Path) -> Result<()> {
        let temporary = self.write_beside(path)?;
        let linked = written::publish(&temporary, path);
        let _ = fs::remove_file(&temporary);
        linked.map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::conflict(format!("{} exists already", path.display()))
            }
            _ => bad(Error::io(format!("cannot create {} (link)", path.display()), &e).text),
        })
    }

    /// Replaces the file if it tells of an earlier epoch of this group, under the lock of the [witness](crate::witness): one
    /// that was removed is not made again, unless this process is stopped just then. Waits for the lock for a second at most.
    /// Whether it was replaced.
    pub fn replace_earlier(&self, path: &Path, witness: &Witness) -> Result<bool> {
        let told = || ConnectionFile::read(path);
        // Before the lock is had: a disk may be slow.
        let temporary = self.write_beside(path)?;
        let replaced = witness.locked_to_the_end(|| {
            let before = told()?;
            let is_earlier = before.lineage == self.lineage && before.epoch < self.epoch;
            if is_earlier {
                fs::rename(&temporary, path)
                    .map_err(|e| bad(format!("cannot replace {}: {e}", path.display())))?;
            }
            Ok(is_earlier)
        });
        let _ = fs::remove_file(&temporary);
        let (replaced, in_time) = replaced?;
        // The group may have ended while this process was stopped.
        let is_ours = |file: ConnectionFile| file.lineage == self.lineage && file.epoch == self.epoch;
        if !in_time && witness.is_gone() && told().is_ok_and(is_ours) {
            let _ = fs::remove_file(path);
        }
        match in_time {
            true => replaced,
            false => Err(Error::timeout(format!(
                "{} was locked for too long while it was replaced",
                path.display()
            ))),
        }
    }

    fn write_beside(&self, path: &Path) -> Result<PathBuf> {
        let text = self.to_text()?;
        let written = written::beside(path, |mut file| file.write_all(text.as_bytes()));
        written.map_err(|e| bad(format!("cannot write a file beside {}: {e}", path.display())))
    }
}

/// The path of a group's connection file: `group` is a path if it contains `/`, else a name in the user's
/// runtime directory; without it `FOREBAY_GROUP` says, and otherwise it is the name `default`.
pub fn path_of(group: Option<&str>) -> Result<PathBuf> {
    let from_environment = std::env::var("FOREBAY_GROUP").ok().filter(|value| !value.is_empty());
    let group = group.map(str::to_owned).or(from_environment).unwrap_or_else(|| "default".into());
    if group.contains('/') {
        return Ok(PathBuf::from(group));
    }
    forebay_core::ids::check_name("group", &group)?;
    Ok(runtime_directory()?.join(format!("{group}.json")))
}

/// The directory of named groups: `$XDG_RUNTIME_DIR/forebay`, or `/tmp/forebay-UID`; made if missing.
pub fn runtime_directory() -> Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        Some(base) => PathBuf::from(base).join("forebay"),
        None => std::env::temp_dir().join(format!("forebay-{uid}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(bad(format!("cannot make {}: {e}", directory.display()))),
    }
    let metadata = fs::symlink_metadata(&directory)
        .map_err(|e| bad(format!("cannot look at {}: {e}", directory.display())))?;
    if !metadata.is_dir() || metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
        return Err(bad(format!(
            "{} must be a directory of yours that nobody else can use: remove it or `chmod 700` it",
            directory.display()
        )));
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn example() -> ConnectionFile {
        let server = ServerEntry { id: ServerId(0), pid: 7, addresses: vec!["tcp:127.0.0.1:9".into()] };
        ConnectionFile {
            lineage: Lineage([1; 16]),
            secret: Secret([2; 32]),
            epoch: 1,
            awaited: 0,
            servers: vec![server],
            shards: Shards::of([ServerId(0)]),
            homes: HomeAssignment::of([ServerId(0)]),
        }
    }

    #[test]
    fn files_are_private_and_created_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("g.json");
        example().create(&path).unwrap();
        assert_eq!(example().create(&path).unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!(ConnectionFile::read(&path).unwrap(), example());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = ConnectionFile::read(&path).unwrap_err();
        assert!(error.kind == ErrorKind::ConnectionFile && error.text.contains("chmod 600"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
    }

    /// As servers in containers of their own do, whose process ids are equal.
    #[test]
    fn many_that_create_one_file_at_once() {
        for _ in 0..50 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("g.json");
            let barrier = std::sync::Barrier::new(4);
            let create = |lineage| {
                let file = ConnectionFile { lineage: Lineage([lineage; 16]), ..example() };
                barrier.wait();
                file.create(&path).map(|()| file)
            };
            let results: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|lineage| scope.spawn(move || create(lineage))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let (made, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
            let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
            assert_eq!(made, [ConnectionFile::read(&path).unwrap()]);
            let refused: Vec<_> = refused.into_iter().map(|e| e.unwrap_err().kind).collect();
            assert_eq!(refused, [ErrorKind::Conflict; 3]);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file is left");
        }
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("g.json");
        let witness = Witness::create(&path, example().lineage).unwrap();
        fs::create_dir(&path).unwrap();
        let error = example().replace_earlier(&path, &witness).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ConnectionFile);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "a temporary file is left");
        fs::remove_dir(&path).unwrap();
        example().create(&path).unwrap();
        let later = ConnectionFile { epoch: 2, ..example() };
        for replaced in [true, false] {
            assert_eq!(later.replace_earlier(&path, &witness), Ok(replaced));
        }
        assert_eq!(ConnectionFile::read(&path).unwrap(), later);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "a temporary file is left");
    }

    #[test]
    fn a_pipe_is_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("g.json");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(ConnectionFile::read(&path).unwrap_err().kind, ErrorKind::ConnectionFile);
    }

    proptest! {
        #[test]
        fn any_text_is_a_file_or_an_error(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>(), any::<bool>()), 0..4),
        ) {
            let mut text: Vec<char> = example().to_text().unwrap().chars().collect();
            for (place, character, cut) in changes {
                let at = place.index(text.len().max(1));
                if cut {
                    text.truncate(at);
                } else if at < text.len() {
                    text[at] = character;
                }
            }
            let text: String = text.into_iter().collect();
            match ConnectionFile::parse(&text, "g.json") {
                Ok(file) => {
                    prop_assert!(file.servers.iter().all(|server| server.parsed().is_ok()));
                    prop_assert!(file.view().coordinator_of("s").is_some());
                    let again = ConnectionFile::parse(&file.to_text().unwrap(), "again").unwrap();
                    prop_assert_eq!(again, file);
                }
                Err(error) => prop_assert!(error.text.contains("g.json"), "{}", error),
            }
        }
    }

    #[test]
    fn damaged_files_are_named() {
        let good = example().to_text().unwrap();
        for (from, to) in
            [("\"forebay\": 1", "\"forebay\": 2"), ("0101", "01zz"), ("tcp:", "udp:"), ("{", "[")]
        {
            let error = ConnectionFile::parse(&good.replace(from, to), "g.json").unwrap_err();
            assert!(error.kind == ErrorKind::ConnectionFile && error.text.contains("g.json"), "{error}");
        }
        assert_eq!(
            ConnectionFile::read(Path::new("/nonexistent/x")).unwrap_err().kind,
            ErrorKind::ConnectionFile
        );
    }
}
