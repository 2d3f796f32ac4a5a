//! Servers inside this process, and plain connections to them that say whatever a test wants.

#![allow(dead_code, reason = "each test uses a part")]

use forebay_client::{Admin, GroupOptions};
use forebay_cluster::ClusterOptions;
use forebay_core::Result;
use forebay_core::ids::ServerId;
use forebay_server::ServerOptions;
use forebay_transport::blocking::Connection;
use forebay_transport::{Address, ConnectionFile, host};
use forebay_wire::connection::{Hello, HostId, Role};
use forebay_wire::frame::Header;
use forebay_wire::handshake::Prologue;
use forebay_wire::peer::PeerMessage;
use forebay_wire::protocol::{Message, Reply, Request};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing that is waited for takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of blocks that each server may hold.
pub(crate) const BUDGET: u64 = 64 << 20;

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
        let door = Prologue { secret: &file.secret, lineage: &file.lineage, name: &entry.id.to_string() };
        Connection::connect(address, "the server", &door, deadline).unwrap()
    }

    /// A connection that has greeted the server in this role.
    pub(crate) fn connect(&self, server: u32, shm: bool, role: Role) -> Raw {
        let mut raw = Raw { connection: self.dial(server, shm), requests: 1 };
        // Over TCP from another host, as far as the server knows: no process of it can be watched.
        let host = if shm { host::process_space() } else { HostId("elsewhere".into()) };
        let answers = !matches!(role, Role::Server(_));
        let hello = Hello { role, pid: std::process::id(), host, shared_memory: shm, patience_ms: 30_000 };
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

/// A connection that says what it is told to.
pub(crate) struct Raw {
    pub(crate) connection: Connection,
    requests: u64,
}

impl Raw {
    /// Sends a message that asks for no answer.
    pub(crate) fn tell<M: Message>(&mut self, message: &M) -> Result<()> {
        self.connection.sender.send(&Header::default(), message, &[], Instant::now() + PATIENCE)
    }

    /// Sends a message with a header of the test's choice, and raw bytes after it.
    pub(crate) fn say<M: Message>(&mut self, header: Header, message: &M, payload: &[u8]) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        self.connection.sender.send(&header, message, &[], deadline)?;
        self.connection.sender.send_payload(payload, false, deadline)
    }

    /// As another server: tells a message of any protocol.
    pub(crate) fn tell_peer(&mut self, message: impl Into<PeerMessage>) -> Result<()> {
        match message.into() {
            PeerMessage::Cluster(message) => self.tell(&message),
            PeerMessage::Streams(message) => self.tell(&message),
            PeerMessage::Replication(message) => self.tell(&message),
            PeerMessage::Directory(message) => self.tell(&message),
            PeerMessage::Space(message) => self.tell(&message),
            PeerMessage::Pipelines(message) => self.tell(&message),
        }
    }

    /// Asks and waits for the answer; what is told meanwhile is passed over. What failed is an error.
    pub(crate) fn ask<Q: Request>(&mut self, message: &Q) -> Result<Q::Reply> {
        self.requests += 1;
        let header = Header { request: self.requests, ..Header::default() };
        self.say(header, message, &[])?;
        self.answer::<Q::Reply>(self.requests).map(|(answer, _)| answer)
    }

    /// The answer to a request, with its payload.
    pub(crate) fn answer<R: Reply>(&mut self, request: u64) -> Result<(R, Vec<u8>)> {
        loop {
            let deadline = Instant::now() + PATIENCE;
            let received = self.connection.receiver.receive(deadline, "to answer")?;
            let header = received.frame.header;
            let mut payload = vec![0; header.payload as usize];
            self.connection.receiver.receive_payload(&mut payload, false, deadline)?;
            if header.request == request {
                return Ok((received.frame.message::<Result<R>>()??, payload));
            }
        }
    }
}
