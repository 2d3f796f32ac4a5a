//! Dialling other servers: a connection over which this server tells, one over which it asks, and the question which roster is
//! in force.

use crate::cluster::Cluster;
use crate::environment::Environment;
use forebay_core::identity::Identity;
use forebay_core::ids::{Lineage, ServerId};
use forebay_core::roster::Roster;
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::{Outbox, Receiver, Requester};
use forebay_transport::connection_file::{ConnectionFile, ServerEntry};
use forebay_transport::{Address, Link, host};
use forebay_wire::connection::{Hello, Role};
use forebay_wire::handshake::{Prologue, Secret};
use forebay_wire::peer::cluster;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// How long one handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long one server may take to be connected to when it is only looked whether it is there.
const KNOCK: Duration = Duration::from_millis(300);
/// Who has no id yet.
pub(crate) const NOBODY: ServerId = ServerId(u32::MAX);

/// Dials a server; on the same host through shared memory. For a connection over which this server tells and nobody asks.
pub async fn dial(
    environment: &dyn Environment,
    server: &ServerEntry,
    secret: &Secret,
    lineage: &Lineage,
) -> Result<(Receiver, Arc<Outbox>)> {
    let link = link_to(environment, server).await?;
    let prologue = Prologue { secret, lineage, name: &server.id.to_string() };
    let requester = Requester::connect(link, &prologue, Instant::now() + HANDSHAKE).await?;
    Ok(requester.into_halves())
}

/// As [`dial`], until a deadline, for a connection over which this server asks: it greets next.
pub async fn dial_to_ask(
    environment: &dyn Environment,
    server: &ServerEntry,
    secret: &Secret,
    lineage: &Lineage,
    deadline: Instant,
) -> Result<Requester> {
    let late = |_| Err(Error::timeout(format!("the deadline passed before {} was connected to", server.id)));
    let about_it = |error: Error| error.about(server.id);
    let link = timeout_at(deadline, link_to(environment, server)).await.unwrap_or_else(late);
    let prologue = Prologue { secret, lineage, name: &server.id.to_string() };
    let deadline = deadline.min(Instant::now() + HANDSHAKE);
    Requester::connect(link.map_err(about_it)?, &prologue, deadline).await.map_err(about_it)
}

/// Connects to the first of a server's addresses that can be reached from here.
async fn link_to(environment: &dyn Environment, server: &ServerEntry) -> Result<Box<dyn Link>> {
    let mut last = Error::unreachable(format!("{} has no address that can be reached from here", server.id));
    for address in server.parsed()? {
        if matches!(&address, Address::Shm { host, .. } if host != environment.host()) {
            continue;
        }
        match environment.connect(address.clone()).await {
            Err(e) => last = Error::unreachable(format!("cannot reach {} at {address}: {e}", server.id)),
            Ok(link) => return Ok(link),
        }
    }
    if let Some(remedy) = server.remedy_from(environment.host()) {
        last.text = format!("{}: {remedy}", last.text);
    }
    Err(last)
}

/// The greeting of one server to another.
pub(crate) fn hello(from: ServerId) -> Hello {
    let who = Identity { pid: std::process::id(), ..Identity::default() };
    let (role, host) = (Role::Server(from), host::process_space());
    Hello { role, who, host, shared_memory: false, patience_ms: 0 }
}

/// Asks all other members for the rosters that they know, and these servers: what those tell that answer in time, as it comes.
pub(crate) fn ask_members(
    cluster: &Cluster,
    also: Vec<ServerEntry>,
    patience: Duration,
) -> JoinSet<Option<(ServerId, Arc<Roster>)>> {
    let file = Arc::new(ConnectionFile::of(&cluster.standing().roster, cluster.secret.clone()));
    let is_none = |server: &ServerEntry| !file.servers.iter().any(|member| member.id == server.id);
    let servers = file.servers.iter().cloned().chain(also.into_iter().filter(is_none));
    let deadline = Instant::now() + patience;
    let mut asked = JoinSet::new();
    for server in servers.filter(|server| server.id != cluster.id) {
        let (environment, file) = (cluster.environment.clone(), file.clone());
        asked.spawn(async move {
            let answer = ask_roster(&*environment, &server, &file, deadline).await;
            Some((server.id, answer.ok()?))
        });
    }
    asked
}

/// Asks a server for the roster that it knows.
pub(crate) async fn ask_roster(
    environment: &dyn Environment,
    server: &ServerEntry,
    file: &ConnectionFile,
    deadline: Instant,
) -> Result<Arc<Roster>> {
    ask(environment, server, file, cluster::Message::QueryRoster, deadline, "its roster").await
}

/// Asks a server something that it answers with a roster. Messages between servers have no request numbers: this server, which is
/// no member there, asks nothing else over the connection.
pub(crate) async fn ask(
    environment: &dyn Environment,
    server: &ServerEntry,
    file: &ConnectionFile,
    question: cluster::Message,
    deadline: Instant,
    what: &str,
) -> Result<Arc<Roster>> {
    let mut requester = dial_to_ask(environment, server, &file.secret, &file.lineage, deadline).await?;
    requester.tell(&hello(NOBODY))?;
    requester.tell(&question)?;
    match requester.next_event(deadline, what).await.map_err(|error| error.about(server.id))? {
        cluster::Message::Admission(result) => result.and_then(|roster| roster.check().map(|()| roster)),
        _ => Err(Error::protocol(format!("{} answered something else than a roster", server.id))),
    }
}

/// Whether somebody listens where one of these servers is to be reached.
pub(crate) async fn one_listens(environment: &dyn Environment, servers: Vec<ServerEntry>) -> bool {
    for address in servers.iter().flat_map(|server| server.parsed().unwrap_or_default()) {
        let elsewhere = matches!(&address, Address::Shm { host, .. } if host != environment.host());
        if !elsewhere && timeout(KNOCK, environment.connect(address)).await.is_ok_and(|link| link.is_ok()) {
            return true;
        }
    }
    false
}
