//! Dialling other servers: a connection, and the question which roster is in force.

use crate::cluster::Cluster;
use crate::environment::Environment;
use forebay_core::ids::{Lineage, ServerId};
use forebay_core::roster::Roster;
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::{self, Outbox, Receiver};
use forebay_transport::connection_file::{ConnectionFile, ServerEntry};
use forebay_transport::{Address, host};
use forebay_wire::connection::{Hello, Role};
use forebay_wire::frame::Header;
use forebay_wire::handshake::{Prologue, Secret};
use forebay_wire::peer::cluster;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long one handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long one server may take to be connected to when it is only looked whether it is there.
const KNOCK: Duration = Duration::from_millis(300);
/// Who has no id yet.
pub(crate) const NOBODY: ServerId = ServerId(u32::MAX);

/// Dials a server; on the same host through shared memory.
pub async fn dial(
    environment: &dyn Environment,
    server: &ServerEntry,
    secret: &Secret,
    lineage: &Lineage,
) -> Result<(Receiver, Arc<Outbox>)> {
    let mut last = Error::unreachable(format!("{} has no address that can be reached from here", server.id));
    for address in server.parsed()? {
        if matches!(&address, Address::Shm { host, .. } if host != environment.host()) {
            continue;
        }
        match environment.connect(address.clone()).await {
            Err(e) => last = Error::unreachable(format!("cannot reach {} at {address}: {e}", server.id)),
            Ok(link) => {
                let door = Prologue { secret, lineage, name: &server.id.to_string() };
                return timeout(HANDSHAKE, asynchronous::connect(link, &door))
                    .await
                    .map_err(|_| Error::timeout(format!("{} does not answer the handshake", server.id)))?;
            }
        }
    }
    Err(last)
}

/// The greeting of one server to another.
pub(crate) fn hello(from: ServerId) -> Hello {
    let pid = std::process::id();
    let (role, host) = (Role::Server(from), host::process_space());
    Hello { role, pid, host, shared_memory: false, patience_ms: 0 }
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
    let mut asked = JoinSet::new();
    for server in servers.filter(|server| server.id != cluster.id) {
        let (environment, file) = (cluster.environment.clone(), file.clone());
        asked.spawn(async move {
            let answer = timeout(patience, ask_roster(&*environment, &server, &file)).await;
            Some((server.id, answer.ok()?.ok()?))
        });
    }
    asked
}

/// Asks a server for the roster that it knows.
pub(crate) async fn ask_roster(
    environment: &dyn Environment,
    server: &ServerEntry,
    file: &ConnectionFile,
) -> Result<Arc<Roster>> {
    ask(environment, server, file, cluster::Message::QueryRoster).await
}

pub(crate) async fn ask(
    environment: &dyn Environment,
    server: &ServerEntry,
    file: &ConnectionFile,
    question: cluster::Message,
) -> Result<Arc<Roster>> {
    let (mut receiver, outbox) = dial(environment, server, &file.secret, &file.lineage).await?;
    let outbox = Closing(outbox);
    outbox.0.push(Header::default(), &hello(NOBODY))?;
    outbox.0.push(Header::default(), &question)?;
    let left = || Error::unreachable(format!("{} ended the connection", server.id));
    let (frame, _) = receiver.next().await?.ok_or_else(left)?;
    match frame.message::<cluster::Message>()? {
        cluster::Message::Admission(result) => result.and_then(|roster| roster.check().map(|()| roster)),
        _ => Err(Error::protocol(format!("{} answered something else than a roster", server.id))),
    }
}

/// A connection that ends with this, also where its answer is not waited for any more.
struct Closing(Arc<Outbox>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
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
