//! This server as a reader of blocks that others hold.

use super::Node;
use forebay_cluster::peers::dialling::dial_to_ask;
use forebay_core::block::Location;
use forebay_core::identity::Identity;
use forebay_core::ids::ServerId;
use forebay_core::selection::Selection;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{Arena, Mapping};
use forebay_transport::asynchronous::{Requester, Target};
use forebay_transport::host;
use forebay_wire::client::reading::{Fetch, Part, Reply, Request};
use forebay_wire::connection::{Hello, Role};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long it may take to be greeted by a server whose bytes are to be fetched.
const GREETING: Duration = Duration::from_secs(10);
/// How long bytes may take that are fetched.
const FETCHED: Duration = Duration::from_secs(30);

/// A part of a block that another server holds.
pub(super) struct Wanted<'a> {
    pub(super) location: &'a Location,
    pub(super) stored: &'a [u64],
    pub(super) element: usize,
    pub(super) from: &'a Selection,
}

impl Node {
    /// The elements of a part of a block on another server, dense and row-major from the beginning of the mapping.
    pub(super) async fn fetch_part(&self, wanted: &Wanted<'_>) -> Result<Arc<Mapping>> {
        let Wanted { location, stored, element, from } = wanted;
        let server = location.server;
        let bytes = from.volume() * *element as u64;
        let scratch = Arena::create(bytes.max(1))?.mapping()?;
        if bytes == 0 {
            return Ok(scratch);
        }
        let deadline = Instant::now() + FETCHED;
        let connection = self.read_from.to(server);
        let mut connection = connection.lock().await;
        let requester = match &mut *connection {
            Some(requester) => requester,
            None => connection.insert(greet(self, (server, Role::Consumer), deadline).await?),
        };
        let part = Part { offset: from.offset.clone(), shape: from.shape.clone(), step: from.step.clone() };
        let fetch = Request::Fetch(Fetch {
            arena: location.arena,
            offset: location.offset,
            bytes: location.bytes,
            generation: location.generation,
            stored: (*stored).into(),
            element: *element as u8,
            part,
        });
        let target = Target { mapping: &scratch, offset: 0, bytes };
        match requester.fetch(&fetch, target, deadline, "a part of a block").await {
            Ok(Reply::Data) => Ok(scratch),
            Ok(_) => Err(Error::protocol(format!("{server} sent something else than a part of a block"))),
            Err(error) => {
                *connection = None;
                Err(error)
            }
        }
    }
}

impl Node {
    /// Whether a server holds a block, maybe this one.
    pub(super) async fn has_block(&self, location: &Location) -> bool {
        let Location { server, arena, offset, bytes, generation } = *location;
        if server == self.id {
            return self.store.lock().check_committed(arena, offset, generation, bytes).is_ok();
        }
        let question = Request::HasBlock { arena, offset, bytes, generation };
        let deadline = Instant::now() + GREETING;
        self.ask_holder(server, &question, deadline, "whether it holds a block").await.is_ok()
    }

    /// Asks another server what it holds, or knows of what others hold.
    pub(super) async fn ask_holder(
        &self,
        server: ServerId,
        question: &Request,
        deadline: Instant,
        what: &str,
    ) -> Result<Reply> {
        let connection = self.read_from.to(server);
        let mut connection = connection.lock().await;
        let requester = match &mut *connection {
            Some(requester) => requester,
            None => connection.insert(greet(self, (server, Role::Consumer), deadline).await?),
        };
        let answer = requester.ask(question, deadline, what).await;
        // After an error of the connection it is of no more use.
        if answer
            .as_ref()
            .is_err_and(|error| matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Timeout))
        {
            *connection = None;
        }
        answer
    }
}

/// Connects to a server as one of its clients, until a deadline.
pub(super) async fn greet(
    node: &Node,
    (from, role): (ServerId, Role),
    deadline: Instant,
) -> Result<Requester> {
    let standing = node.standing();
    let member = standing.roster.members.iter().find(|member| member.id == from);
    let gone = || Error::unreachable(format!("{from} is no member"));
    let entry = forebay_cluster::membership::entry(member.ok_or_else(gone)?);
    let mut requester =
        dial_to_ask(&*node.environment, &entry, &node.secret, &node.lineage, deadline).await?;
    let hello = Hello {
        role,
        who: Identity { name: Some(node.id.to_string()), pid: std::process::id(), ..Identity::default() },
        host: host::process_space(),
        shared_memory: false,
        patience_ms: FETCHED.as_millis() as u64,
    };
    requester.ask(&hello, deadline.min(Instant::now() + GREETING), "its greeting").await?;
    Ok(requester)
}
