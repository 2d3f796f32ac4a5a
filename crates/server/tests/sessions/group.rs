//! Groups of servers inside this process.

use super::raw::Raw;
use super::{BUDGET, PATIENCE};
use forebay_client::{Admin, GroupOptions};
use forebay_cluster::ClusterOptions;
use forebay_core::Result;
use forebay_core::identity::Identity;
use forebay_core::ids::ServerId;
use forebay_server::ServerOptions;
use forebay_transport::blocking::Connection;
use forebay_transport::{Address, ConnectionFile, host};
use forebay_wire::connection::{Hello, HostId, Role};
use forebay_wire::handshake::Prologue;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Instant;

/// A private group, gone with it.
pub(crate) struct Group {
    directory: tempfile::TempDir,
    servers: Vec<JoinHandle<Result<()>>>,
}

impl Group {
    pub(crate) fn start(size: u32) -> Group {
        let directory = tempfile::tempdir().unwrap();
        let options = ServerOptions {
            cluster: ClusterOptions {
                group: directory.path().join("group.json"),
                servers: size,
                lineage: Some(forebay_server::new_lineage().unwrap()),
                bind: vec!["127.0.0.1".parse().unwrap()],
                advertise: None,
                ports: None,
                seal_payload: false,
                silence: None,
            },
            budget: Some(BUDGET),
            watch_parent: None,
            private_place: None,
            leash: None,
        };
        let (told, ready) = sync_channel(size as usize);
        let start = || {
            let (options, told) = (options.clone(), told.clone());
            std::thread::spawn(move || forebay_server::run(options, move |_| told.send(()).unwrap()))
        };
        let servers: Vec<_> = (0..size).map(|_| start()).collect();
        for _ in 0..size {
            ready.recv_timeout(PATIENCE).expect("a server does not start");
        }
        Group { directory, servers }
    }

    pub(crate) fn file(&self) -> ConnectionFile {
        ConnectionFile::read(&self.directory.path().join("group.json")).unwrap()
    }

    /// How the client's library finds it.
    pub(crate) fn options(&self) -> GroupOptions {
        let path = self.directory.path().join("group.json");
        GroupOptions { group: Some(path.to_str().unwrap().to_owned()), ..GroupOptions::default() }
    }

    /// A connection to one of its servers that has proven the secret and said nothing yet.
    pub(crate) fn dial(&self, server: u32, shm: bool) -> Connection {
        let file = self.file();
        let entry = file.servers.iter().find(|entry| entry.id == ServerId(server)).unwrap();
        let addresses = entry.parsed().unwrap();
        let address = addresses.iter().find(|address| matches!(address, Address::Shm { .. }) == shm).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let prologue = Prologue { secret: &file.secret, lineage: &file.lineage, name: &entry.id.to_string() };
        Connection::connect(address, "the server", &prologue, deadline).unwrap()
    }

    /// A connection that has greeted the server in this role.
    pub(crate) fn connect(&self, server: u32, shm: bool, role: Role) -> Raw {
        let mut raw = Raw::over(self.dial(server, shm));
        // Over TCP from another host, as far as the server knows: no process of it can be watched.
        let host = if shm { host::process_space() } else { HostId("elsewhere".into()) };
        let answers = !matches!(role, Role::Server(_));
        let who = Identity { pid: std::process::id(), ..Identity::default() };
        let hello = Hello { role, who, host, shared_memory: shm, patience_ms: 30_000 };
        if answers {
            raw.ask(&hello).unwrap();
        } else {
            raw.tell(&hello).unwrap();
        }
        raw
    }

    /// Stops the servers and says how they ended.
    pub(crate) fn stop(mut self) {
        Admin::open(&self.options()).unwrap().shutdown().unwrap();
        for server in self.servers.drain(..) {
            server.join().expect("a server panicked").unwrap();
        }
    }
}
