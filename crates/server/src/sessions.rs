//! One task for each connection: greets, then serves by role until the peer is gone.
//!
//! - this module: the greeting, and how a session of any role ([`role_session`]) is served;
//! - [`client`]: a client's connection, as all sessions use it;
//! - [`producer`], [`placement`], [`consumer`], [`space`], [`worker`], [`meeting`], [`admin`]: the sessions, one type for each
//!   role;
//! - [`evaluations`]: expressions that a client asks for once; [`subscriber`]: those that it watches for;
//! - [`reading`], [`writing`], [`receive`], [`payload`]: what several roles do: reading blocks, writing them, receiving their bytes;
//! - [`rank`], [`open_step`]: what a rank has done, as its home keeps it for the connection.

mod admin;
mod client;
mod consumer;
mod driving;
mod evaluations;
mod fetch;
mod meeting;
mod open_step;
mod payload;
mod placement;
mod producer;
mod rank;
mod reading;
mod receive;
mod role_session;
mod searches;
mod space;
mod subscriber;
mod worker;
mod writing;

use crate::node::Node;
use client::Client;
use forebay_cluster::failure::process::Process;
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::{self, Outbox, Receiver};
use forebay_transport::{Kind, Link, host};
use forebay_wire::connection::{CloseReason, Hello, Role, Welcome};
use forebay_wire::handshake::Prologue;
use role_session::{PATIENCE_MAX, RoleSession};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How long a handshake and a greeting may take.
const GREETING: Duration = Duration::from_secs(10);

/// How long to look for the end of a step that is expected at once.
const LOOK: Duration = Duration::from_micros(30);

/// Serves one connection until it ends. It is a stranger until it has shown that it holds the secret.
pub(crate) async fn run(node: Arc<Node>, link: Box<dyn Link>, stranger: OwnedSemaphorePermit) {
    let name = node.id.to_string();
    let prologue = Prologue { secret: &node.secret, lineage: &node.lineage, name: &name };
    let accepted = timeout(GREETING, asynchronous::accept(link, &prologue)).await;
    let (receiver, outbox) = match accepted {
        Ok(Ok(halves)) => halves,
        Ok(Err(error)) => return tracing::info!("a connection was refused: {error}"),
        Err(_) => return tracing::info!("a connection was refused: it did not finish its handshake"),
    };
    drop(stranger);
    converse(node, receiver, outbox.clone()).await;
    // Whatever was said or not: what sends would keep the connection open.
    outbox.close();
}

/// Serves a peer that holds the secret, by the role that it claims.
async fn converse(node: Arc<Node>, mut receiver: Receiver, outbox: Arc<Outbox>) {
    let greeting = timeout(GREETING, receiver.next()).await;
    let Ok(Ok(Some((frame, _)))) = greeting else { return };
    let Ok(hello) = frame.message::<Hello>() else { return };
    if let Role::Server(server) = hello.role {
        if server == node.id {
            return tracing::warn!("a connection was refused: it claims to be this server");
        }
        return node.serve(server, receiver, &outbox).await;
    }
    if let Err(error) = hello.who.check() {
        return tracing::warn!("a connection was refused: {error}");
    }
    let connection = node.state.lock().connections.add(hello.role.name(), &hello.who);
    // Over TCP on one host the process says itself who it is; it has proven that it holds the secret. Its number
    // means another process here if it comes from another PID namespace.
    let told = (hello.host == host::process_space()).then_some(hello.who.pid);
    let shared_memory = receiver.kind() == Kind::Shm && hello.shared_memory;
    let process = match receiver.peer_process().or(told).map(Process::watch) {
        // What it has mapped must not be used again while it lives.
        Some(Err(error)) if shared_memory => {
            node.tell_client(&outbox, &CloseReason(error));
            return;
        }
        process => process.and_then(Result::ok).map(Arc::new),
    };
    let patience = Duration::from_millis(hello.patience_ms / 10 * 9).min(PATIENCE_MAX);
    let client = Client { node: node.clone(), receiver, outbox, process, shared_memory, patience };
    let request = frame.header.request;
    match hello.role.clone() {
        Role::Producer => serve(producer::Session::new(client), &hello, request).await,
        Role::Placement => serve(placement::Session::new(client), &hello, request).await,
        Role::Consumer => serve(consumer::Session::new(client), &hello, request).await,
        Role::Space => serve(space::Session::new(client), &hello, request).await,
        Role::Worker { pipeline, instance } => {
            serve(worker::Session::new(client, pipeline, instance), &hello, request).await;
        }
        Role::Admin => serve(admin::Session::new(client), &hello, request).await,
        Role::Meeting => serve(meeting::Session::new(client, hello.who.clone()), &hello, request).await,
        Role::Server(_) => {}
    }
    node.state.lock().connections.remove(&connection);
}

/// Serves a client until its connection ends.
async fn serve(mut session: impl RoleSession, hello: &Hello, request: u64) {
    let result = converse_as(&mut session, request).await;
    let client = session.client();
    if let Err(error) = &result {
        tracing::info!("the connection of {} ({}) ends: {error}", hello.who, hello.role.name());
        // Told if it still listens: it may be a defect of its own.
        client.node.tell_client(&client.outbox, &CloseReason(error.clone()));
    }
    client.outbox.close();
    if !client.node.goes_on().await {
        // The others know better what has become of who was here. What is held ends with this server, or is offered.
        std::future::pending::<()>().await;
    }
    session.on_end(result.is_err()).await;
}

async fn converse_as(session: &mut impl RoleSession, request: u64) -> Result<()> {
    let node = session.client().node.clone();
    let welcome = Welcome {
        server: node.id,
        members: node.standing().view.members.clone(),
        seal_payload: node.seal_payload,
    };
    session.client().reply(request, Ok(welcome))?;
    session.on_welcomed()?;
    let process = session.client().process.clone();
    let mut gone = false;
    loop {
        let leaves = node.leaves.get();
        if leaves && session.on_leaving().await {
            return Ok(());
        }
        // A process that died is gone even if a forked child of it keeps the connection open; what it
        // said before is heard first.
        let next = tokio::select! {
            biased;
            next = session.client_mut().receiver.next() => next?,
            _ = node.leaves.wait_for(|now| now != leaves) => continue,
            () = client::process_ended(process.as_deref(), gone) => {
                if gone {
                    return Ok(());
                }
                gone = true;
                continue;
            }
        };
        let Some((frame, _descriptors)) = next else { return Ok(()) };
        let header = frame.header;
        if !node.goes_on().await {
            // The connection ends with all that this server had, its doors among it: who finds one open goes in again.
            std::future::pending::<()>().await;
        }
        session.on_frame(frame).await?;
        if header.request != 0 && session.client().outbox.is_closed() {
            return Err(Error::unreachable("it does not read its answers"));
        }
        if session.is_over() {
            return Ok(());
        }
        // A step of a few bytes ends as soon as it has begun: being woken for that is most of what it takes.
        if session.expects_more_at_once() {
            session.client_mut().receiver.spin(LOOK);
        }
    }
}
