//! A simulated client's connection to a server: questions and answers, as the library for clients asks and takes them.

use super::network::Place;
use forebay_cluster::peers::dialling::dial;
use forebay_core::identity::Identity;
use forebay_core::ids::ServerId;
use forebay_core::view::mix;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::Mapping;
use forebay_transport::asynchronous::{Outbox, Payload, Receiver};
use forebay_transport::{ConnectionFile, Kind};
use forebay_wire::client::reading;
use forebay_wire::connection::{Hello, HostId, Role};
use forebay_wire::frame::{Frame, Header};
use forebay_wire::protocol::{Message, Protocol, Request};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a client waits for an answer. No group takes so long, whatever happens to it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long it waits where it can ask another server.
pub(super) const SHORT: Duration = Duration::from_secs(3);

/// What a client knows of its group, and chance.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) place: Place,
    pub(super) group: PathBuf,
    pub(super) random: u64,
}

impl Client {
    /// A number below this one.
    pub(super) fn chance(&mut self, below: u64) -> u64 {
        self.random = mix(self.random.wrapping_add(0x9e37_79b9_7f4a_7c15));
        self.random % below.max(1)
    }

    pub(super) async fn pause(&mut self, longest: Duration) {
        let micros = self.chance(longest.as_micros() as u64);
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    /// What the connection file says, once the group is complete.
    pub(super) async fn file(&self) -> ConnectionFile {
        loop {
            match ConnectionFile::read(&self.group) {
                Ok(file) if file.is_complete() => return file,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Any member.
    pub(super) async fn any(&mut self) -> ServerId {
        let members = self.file().await.view().members;
        members[self.chance(members.len() as u64) as usize]
    }

    /// Connects to a server and greets it.
    pub(super) async fn greet(&self, server: ServerId, role: Role) -> Result<Caller> {
        let file = self.file().await;
        let entry = file.servers.iter().find(|entry| entry.id == server);
        let entry = entry.ok_or_else(|| Error::unreachable(format!("{server} is no member")))?;
        let dialled = timeout(SHORT, dial(&self.place, entry, &file.secret, &file.lineage)).await;
        let (receiver, outbox) = dialled.unwrap_or_else(|_| Err(late("a handshake")))?;
        let shared = receiver.kind() == Kind::Shm;
        let mut caller = Caller { server, receiver, outbox, last: 0, told: VecDeque::new() };
        // Its process is nobody's here: servers see its connection end.
        let host = HostId("a client's".into());
        let patience_ms = PATIENCE.as_millis() as u64;
        let hello = Hello { role, who: Identity::default(), host, shared_memory: shared, patience_ms };
        match timeout(SHORT, caller.ask(&hello, None)).await {
            Ok(welcome) => welcome.map(|_| caller),
            Err(_) => Err(late("a greeting")),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) server: ServerId,
    pub(super) receiver: Receiver,
    outbox: Arc<Outbox>,
    last: u64,
    /// What was told that is no answer.
    told: VecDeque<Frame>,
}

impl Caller {
    /// Asks something and waits for the answer, with its descriptors; what failed is an error.
    pub(super) async fn ask<Q: Request>(
        &mut self,
        question: &Q,
        payload: Option<Vec<u8>>,
    ) -> Result<(Q::Reply, Vec<OwnedFd>)> {
        self.last += 1;
        let header = Header { request: self.last, ..Header::default() };
        let payload = payload.map(|bytes| Payload::Generated {
            bytes: bytes.len() as u64,
            generator: Box::new(move |out: &mut Vec<u8>| {
                out.extend_from_slice(&bytes);
                Ok(())
            }),
        });
        self.outbox.push_with(header, question, Vec::new(), payload)?;
        loop {
            let received = timeout(PATIENCE, self.receiver.next()).await.map_err(|_| late("an answer"))?;
            let (frame, files) = received?.ok_or_else(|| self.gone())?;
            match frame.header.request {
                0 => self.told.push_back(frame),
                request if request == self.last => return Ok((frame.message::<Result<Q::Reply>>()??, files)),
                // To a question that was given up.
                _ => {}
            }
        }
    }

    /// As `ask`, where the answer comes without descriptors.
    pub(super) async fn call<Q: Request>(&mut self, question: &Q) -> Result<Q::Reply> {
        self.ask(question, None).await.map(|(answer, _)| answer)
    }

    /// Asks for the bytes of a block.
    pub(super) async fn fetch(
        &mut self,
        fetch: &reading::Request,
        through: &Mapping,
        into: &mut [u8],
    ) -> Result<()> {
        self.last += 1;
        self.outbox.push(Header { request: self.last, ..Header::default() }, fetch)?;
        loop {
            let (frame, _) = self.receiver.next().await?.ok_or_else(|| self.gone())?;
            if frame.header.request == 0 {
                self.told.push_back(frame);
                continue;
            }
            if frame.message::<Result<reading::Reply>>()?? == reading::Reply::Data {
                self.receiver.payload_into(through, 0, &frame.header).await?;
                return through.read(0, into);
            }
        }
    }

    /// Says something that is not answered.
    pub(super) fn tell<M: Message>(&self, message: &M) -> Result<()> {
        self.outbox.push(Header::default(), message)
    }

    /// What is told next. The caller sets the deadline.
    pub(super) async fn next_message<M: Message>(&mut self) -> Result<M> {
        loop {
            let frame = match self.told.pop_front() {
                Some(told) => told,
                None => self.receiver.next().await?.ok_or_else(|| self.gone())?.0,
            };
            // Else it answers a question that was given up, or says why the connection is about to end.
            if frame.header.request == 0 && frame.protocol()? != Protocol::Connection {
                return frame.message();
            }
        }
    }

    fn gone(&self) -> Error {
        Error::unreachable(format!("{} ended the connection", self.server))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

pub(super) fn late(what: &str) -> Error {
    Error::new(ErrorKind::Timeout, format!("{what} did not come in time"))
}

pub(super) fn unexpected(answer: &impl std::fmt::Debug) -> Error {
    Error::protocol(format!("an answer that was not asked for: {answer:?}"))
}

/// Whether it may be otherwise in a moment. A server that was given up may be met under the address of another one.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::WrongSecret)
}
