//! How a connection to a server is made: link, handshake, greeting.

use crate::connection::group::{Group, KnownGroup};
use crate::connection::rpc::{LOOK_AT_MEMBERS, Rpc};
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking::{self, Connection, PendingConnection, PollFlags, wait_for_any};
use forebay_transport::{Address, host};
use forebay_wire::connection::{Hello, Role, Welcome};
use forebay_wire::handshake::Prologue;
use std::time::Instant;

impl Group {
    /// Connects to a server and greets it. While the server does not answer, this process looks whether it is still a member.
    pub(crate) fn connect(&self, id: ServerId, role: Role) -> Result<Rpc> {
        self.connect_in_time(id, role).map_err(|error| error.about(id))
    }

    fn connect_in_time(&self, id: ServerId, role: Role) -> Result<Rpc> {
        if self.limit().is_zero() {
            return Err(Error::timeout(format!("the deadline passed before {id} was connected to")));
        }
        let deadline = Instant::now() + self.limit();
        let connected = self.connection_to(id, deadline);
        let (connection, address) = connected.map_err(|error| self.with_remedy(id, error))?;
        let kind = connection.kind();
        let epoch = self.known().view.epoch;
        let rpc = Rpc::new(connection, epoch, self.options().patience()).of_member(self.clone(), id);
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = rpc.call_within(&self.hello(role, &address), None, left, "its welcome")?;
        let welcome = check_welcome(id, answer.message)?;
        Ok(rpc.with_sealed_payload(welcome.seal_payload, kind))
    }

    fn connection_to(&self, id: ServerId, deadline: Instant) -> Result<(Connection, Address)> {
        let next_look = || deadline.min(Instant::now() + LOOK_AT_MEMBERS);
        let mut patience = LOOK_AT_MEMBERS;
        let (opening, name, address) = loop {
            let (address, name) = self.address_of(id)?;
            let (known, until) = (self.known(), deadline.min(Instant::now() + patience));
            match PendingConnection::connect(
                &address,
                &name,
                &Group::prologue(&known, &id.to_string()),
                until,
            ) {
                Ok(opening) => break (opening, name, address),
                // Whatever the error says: this process gave the attempt up, and the server did not refuse it.
                Err(_) if (until..deadline).contains(&Instant::now()) && !blocking::interrupted() => {
                    let _ = self.refresh();
                }
                Err(error) => return Err(error),
            }
            // The network may only be slow: each attempt takes longer.
            patience *= 2;
        };
        opening.greet(deadline)?;
        // This waits for one connection: many that are given up would fill the queue of a server that stands still.
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

    /// The error of a server that is not reached, with what helps if it listens where nobody on this host can reach it.
    pub(crate) fn with_remedy(&self, id: ServerId, mut error: Error) -> Error {
        let known = self.known();
        let not_reached = error.kind == ErrorKind::Unreachable;
        let server = known.server(id).filter(|_| not_reached);
        if let Some(remedy) = server.and_then(|server| server.remedy_from(&host::this_host())) {
            error.text = format!("{}: {remedy}", error.text);
        }
        error
    }

    /// What the handshake with a server of this group needs; `name` is what it calls the server.
    pub(crate) fn prologue<'a>(known: &'a KnownGroup, name: &'a str) -> Prologue<'a> {
        Prologue { secret: &known.file.secret, lineage: &known.file.lineage, name }
    }

    /// The greeting over a connection to this address.
    pub(crate) fn hello(&self, role: Role, address: &Address) -> Hello {
        Hello {
            role,
            who: self.identity(),
            host: host::process_space(),
            shared_memory: matches!(address, Address::Shm { .. }),
            patience_ms: u64::try_from(self.options().patience().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Checks that the server that was meant has answered the greeting.
pub(crate) fn check_welcome(id: ServerId, welcome: Welcome) -> Result<Welcome> {
    if welcome.server == id {
        return Ok(welcome);
    }
    let text = format!("{} answered in the place of {id}", welcome.server);
    Err(Error::new(ErrorKind::ConnectionFile, text))
}
