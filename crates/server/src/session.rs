//! One task for each connection: greets, then serves by role until the peer is gone.

mod admin;
mod consumer;
mod driving;
mod producer;
mod producing;
mod reserve;
mod searches;
mod storing;
mod writing;

use crate::forming::NOBODY;
use crate::heal::Healed;
use crate::node::Node;
use crate::process::{self, Process};
use forebay_core::ids::ServerId;
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::{Attachment, AttachmentId};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::{self, Outbox, Receiver};
use forebay_transport::{Kind, Link, host};
use forebay_wire::frame::{Frame, Header};
use forebay_wire::handshake::Door;
use forebay_wire::message::{ANSWERS_PATIENCE, Hello, Role, ToClient, ToServer, Welcome};
use forebay_wire::peer::PeerMessage;
use producing::Producing;
use rustix::fd::OwnedFd;
use searches::Searches;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use storing::Storing;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;
use writing::Writing;

pub(crate) use writing::BeginPage;

/// How long a handshake and a greeting may take.
const GREETING: Duration = Duration::from_secs(10);

/// How long to look for the end of a step that is expected at once.
const LOOK: Duration = Duration::from_micros(30);

/// The longest that a client can ask a server to wait on its behalf by default.
const PATIENCE_MAX: Duration = Duration::from_secs(600);

/// A client's connection.
pub(crate) struct Session {
    pub(crate) node: Arc<Node>,
    pub(crate) receiver: Receiver,
    pub(crate) outbox: Arc<Outbox>,
    /// Its process, watched, if it is on this host: proves its death.
    pub(crate) process: Option<Arc<Process>>,
    shared_memory: bool,
    /// How long the server waits at most on the peer's behalf where it does not say so: a little less than it waits
    /// itself, so that it hears why.
    patience: Duration,
    role: Role,
    producing: Option<Producing>,
    storing: Option<Storing>,
    space_writing: Option<Writing>,
    attachments: Vec<(AttachmentId, String)>,
    /// What it looks for in the space, and holds of it.
    searches: Searches,
    /// What it asked for of pipelines that it drives, and is answered later.
    driving: JoinSet<()>,
    /// The numbers of its mappings of arenas.
    readers: BTreeSet<u64>,
}

/// Serves one connection until it ends. It is a stranger until it has shown that it holds the secret.
pub(crate) async fn run(node: Arc<Node>, link: Box<dyn Link>, stranger: OwnedSemaphorePermit) {
    let name = node.id.to_string();
    let door = Door { secret: &node.secret, lineage: &node.lineage, name: &name };
    let accepted = timeout(GREETING, asynchronous::accept(link, &door)).await;
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
    let Ok(ToServer::Hello(hello)) = frame.message() else { return };
    if let Role::Server(peer) = hello.role {
        if peer == node.id {
            return tracing::warn!("a connection was refused: it claims to be this server");
        }
        return serve_peer(&node, peer, receiver, &outbox).await;
    }
    let name = match &hello.role {
        Role::Producer => "producers",
        Role::Consumer => "consumers",
        Role::Worker { .. } => "workers",
        Role::Server(_) => "servers",
    };
    *node.state.lock().connections.entry(name).or_default() += 1;
    // Over TCP on one host the process says itself who it is; it has proven that it holds the secret. Its number
    // means another process here if it comes from another PID namespace.
    let told = (hello.host == host::process_space()).then_some(hello.pid);
    let shared_memory = receiver.kind() == Kind::Shm && hello.shared_memory;
    let process = match receiver.peer_process().or(told).map(Process::watch) {
        // What it has mapped must not be used again while it lives.
        Some(Err(error)) if shared_memory => {
            node.tell_client(&outbox, &ToClient::Failed(error));
            return;
        }
        process => process.and_then(Result::ok).map(Arc::new),
    };
    let mut session = Session {
        shared_memory,
        patience: Duration::from_millis(hello.patience_ms / 10 * 9).min(PATIENCE_MAX),
        node,
        receiver,
        outbox,
        process,
        role: hello.role.clone(),
        producing: None,
        storing: None,
        space_writing: None,
        attachments: Vec::new(),
        searches: Searches::default(),
        driving: JoinSet::new(),
        readers: BTreeSet::new(),
    };
    let result = session.serve(&hello, frame.header.request).await;
    if let Err(error) = &result {
        tracing::info!("the connection of process {} ({name}) ends: {error}", hello.pid);
        // Told if it still listens: it may be a defect of its own.
        session.node.tell_client(&session.outbox, &ToClient::Failed(error.clone()));
    }
    session.outbox.close();
    session.end(result.is_err()).await;
    if let Some(count) = session.node.state.lock().connections.get_mut(name) {
        *count = count.saturating_sub(1);
    }
}

/// Takes messages of another server.
async fn serve_peer(node: &Arc<Node>, peer: ServerId, mut receiver: Receiver, outbox: &Arc<Outbox>) {
    if peer != NOBODY {
        crate::peers::outlast_outages(peer, outbox, node.silence);
    }
    let mut joining = None;
    let mut heard = node.hearing.open(peer, receiver.kind());
    loop {
        let (frame, mut files) = match heard.next(&mut receiver).await {
            Ok(Some(received)) => received,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!("the connection of {peer} ends: {error}");
                break;
            }
        };
        match frame.message() {
            Ok(PeerMessage::JoinGroup(candidate)) => {
                match node.wants_to_join(candidate.clone(), outbox.clone()) {
                    Ok(()) => joining = Some(candidate),
                    Err(error) => {
                        let _ = outbox.push(Header::default(), &PeerMessage::Admitted(Err(error)));
                    }
                }
            }
            Ok(PeerMessage::WhichRoster) => {
                let roster = node.standing().roster.clone();
                let _ = outbox.push(Header::default(), &PeerMessage::Admitted(Ok(roster)));
            }
            Ok(PeerMessage::Membership(message)) => node.heard_of_members(peer, message, Some(outbox)),
            Ok(PeerMessage::AreYouThere(number)) => {
                let _ = node.peers.send(peer, PeerMessage::IAmThere(number));
            }
            Ok(PeerMessage::IAmThere(number)) => node.checking.answered(peer, number),
            Ok(PeerMessage::Guard { arena, bytes }) => node.guard(peer, arena, bytes, files.pop()),
            Ok(message) => {
                if node.goes_on().await {
                    node.dispatch(peer, message);
                }
            }
            // It costs that message. What it was about ends at its deadline; all that both servers hold does not.
            Err(error) => tracing::error!("a message of {peer} cannot be read and is passed over: {error}"),
        }
    }
    drop(heard);
    match joining {
        Some(candidate) => node.wants_no_more(&candidate),
        None => {
            if node.goes_on().await {
                node.lost(peer, false);
            }
        }
    }
}

impl Session {
    async fn serve(&mut self, hello: &Hello, request: u64) -> Result<()> {
        let welcome = Welcome {
            server: self.node.id,
            members: self.node.standing().view.members.clone(),
            seal_payload: self.node.seal_payload,
        };
        self.reply(request, ToClient::Welcome(welcome))?;
        if let Role::Worker { pipeline, instance } = &hello.role {
            self.node.worker_connected(pipeline, *instance, self.outbox.clone())?;
        }
        let process = self.process.clone();
        let mut gone = false;
        loop {
            let leaves = self.node.leaves.get();
            if leaves && self.let_go().await {
                break;
            }
            // A process that died is gone even if a forked child of it keeps the connection open; what it
            // said before is heard first.
            let next = tokio::select! {
                biased;
                next = self.receiver.next() => next?,
                _ = self.node.leaves.wait_for(|now| now != leaves) => continue,
                () = process_ended(process.as_deref(), gone) => {
                    if gone {
                        break;
                    }
                    gone = true;
                    continue;
                }
            };
            let Some((frame, _descriptors)) = next else { break };
            let header = frame.header;
            if !self.node.goes_on().await {
                // The connection ends with all that this server had, its doors among it: who finds one open goes in again.
                std::future::pending::<()>().await;
            }
            match self.answer(frame).await {
                Ok(Some(answer)) if header.request != 0 => self.reply(header.request, answer)?,
                Ok(_) => {}
                Err(error) if header.request != 0 && !self.is_fatal(&error) => {
                    self.reply(header.request, ToClient::Failed(error))?;
                }
                Err(error) if !self.is_fatal(&error) => self.note(error),
                Err(error) => return Err(error),
            }
            if header.request != 0 && self.outbox.is_closed() {
                return Err(Error::unreachable("it does not read its answers"));
            }
            if self.producing.as_ref().is_some_and(Producing::has_moved) {
                break;
            }
            // A step of a few bytes ends as soon as it has begun: being woken for that is most of what it takes.
            if self.producing.as_ref().is_some_and(Producing::ends_at_once) {
                self.receiver.look(LOOK);
            }
        }
        Ok(())
    }

    /// Something went wrong with a message that is not answered: the next answer tells it.
    fn note(&mut self, error: Error) {
        match &mut self.producing {
            Some(producing) => producing.note(error),
            None => tracing::info!("an unanswered message failed: {error}"),
        }
    }

    pub(crate) fn reply(&self, request: u64, answer: ToClient) -> Result<()> {
        let header = self.node.header(request);
        match self.outbox.push(header, &answer) {
            // Longer than a message may be: the connection is as good as before.
            Err(error) if error.kind == ErrorKind::Invalid => {
                self.outbox.push(header, &ToClient::Failed(error))
            }
            sent => sent,
        }
    }

    fn reply_with(&self, request: u64, answer: ToClient, descriptor: OwnedFd) -> Result<()> {
        self.outbox.push_with(self.node.header(request), &answer, vec![descriptor], None)
    }

    /// Handles one message. What says that something is kept is said only while the group stands behind this server.
    async fn answer(&mut self, frame: Frame) -> Result<Option<ToClient>> {
        let header = frame.header;
        let message = frame.message::<ToServer>()?;
        let acknowledges = header.request != 0 && self.acknowledges(&message);
        let answer = self.handle(header, message).await?;
        if acknowledges && matches!(answer, Some(ToClient::Done | ToClient::Placed(_))) {
            self.node.may_acknowledge(self.patience).await?;
        }
        Ok(answer)
    }

    /// Whether the answer to a message says that what was put is kept, whatever happens to this server.
    fn acknowledges(&self, message: &ToServer) -> bool {
        use ToServer as M;
        let copies_at_once = self.producing.as_ref().is_some_and(Producing::copies_at_once)
            || self.storing.as_ref().is_some_and(Storing::copies_at_once);
        match message {
            M::End { .. } | M::Flush | M::SpacePut(_) | M::SpaceRemove { .. } => true,
            M::Leave => !seeded(Bug::AnswersLeavesAtOnce),
            M::Put(_) | M::Place { .. } => copies_at_once,
            _ => false,
        }
    }

    /// Handles one message; `None` if it is answered already or needs no answer.
    async fn handle(&mut self, header: Header, message: ToServer) -> Result<Option<ToClient>> {
        let takes_payload =
            matches!(message, ToServer::Put(_) | ToServer::Place { .. } | ToServer::SpacePut(_));
        if header.payload > 0 && !takes_payload {
            return Err(Error::protocol("a payload with a message that has none"));
        }
        use ToServer as M;
        match message {
            M::Settles => {
                self.settles();
                Ok(None)
            }
            M::Produce { stream, rank, options, back_to } => {
                self.produce(header.request, stream, rank, options, back_to).await
            }
            M::Reserve { bytes, patience_ms } => {
                let grant = self.reserve(bytes, Duration::from_millis(patience_ms)).await?;
                Ok(Some(ToClient::Granted(grant)))
            }
            M::Abort { offset, generation, .. } => {
                let node = self.node.clone();
                self.writing()?.0.abort(&node, offset, generation);
                Ok(None)
            }
            M::End { .. } | M::Leave if self.storing.is_some() => self.storing_message(&message).await,
            M::Define(_)
            | M::Begin { .. }
            | M::Began { .. }
            | M::Passed { .. }
            | M::Put(_)
            | M::End { .. }
            | M::Flush
            | M::Leave
            | M::GoElsewhere
            | M::SetAttr { .. } => self.producer_message(&header, message).await,
            M::Store { stream, run, rank, policy, copies, durability } => {
                self.store(header.request, stream, run, rank, policy, (copies, durability))
            }
            M::Place { step, size, bytes } => self.place(&header, step, size, &bytes).await,
            M::Attach { stream, needs, window, start, follow, held, back } => {
                let mut attachment = Attachment::new(needs, self.node.id, window).holding(held);
                attachment.follow = follow;
                self.attach(stream, attachment, start, back).await.map(Some)
            }
            M::Release { attachment, run, step, pinned } => {
                self.release(attachment, run, step, pinned);
                Ok(None)
            }
            M::Detach { attachment, held } => {
                self.close_attachment(attachment, &held);
                Ok(Some(ToClient::Done))
            }
            M::WhoAnswers { server, arena } => {
                let deadline = tokio::time::Instant::now() + self.patience.min(ANSWERS_PATIENCE);
                let servers = self.node.who_answers(server, arena, deadline).await?;
                Ok(Some(ToClient::AnswersFor { servers }))
            }
            M::HasBlock { arena, offset, bytes, generation } => {
                self.node.store.lock().check_committed(arena, offset, generation, bytes)?;
                Ok(Some(ToClient::Done))
            }
            M::OpenArena { arena, term } => self.open_arena(header.request, arena, term),
            M::CloseArena { reader } => {
                self.close_arena(reader);
                Ok(None)
            }
            M::Fetch { .. } => self.fetch(header.request, message),
            M::SpaceStore => {
                let writing = Writing::open(&self.node, self.shared_memory)?;
                let told = self.share(header.request, &writing, ToClient::Storing);
                if let Some(before) = self.space_writing.replace(writing) {
                    before.close(&self.node);
                }
                told
            }
            M::FindBlocks { id, field, region, skip } => {
                let patience = self.patience.min(ANSWERS_PATIENCE);
                let found = self.node.find_blocks(&id, &field, region.as_ref(), skip as usize);
                let found = timeout(patience, found).await.map_err(|_| not_told())?;
                found.map(Some)
            }
            M::SpacePut(put) => self.space_put(&header, *put).await,
            M::SpaceFind { .. } => self.space_find(header.request, message).await,
            M::SpaceRelease { request } => {
                self.searches.release(&self.node, request);
                Ok(None)
            }
            M::SpaceRemove { field, step } => {
                let removed = self.node.space_remove(&field, step).await?;
                Ok(Some(if removed { ToClient::Done } else { ToClient::NotOwned }))
            }
            M::Status | M::CreatePipeline { .. } | M::DestroyPipeline { .. } | M::Shutdown => {
                self.admin(message).await
            }
            M::Heal { force } => {
                let Healed { kept, given_up } = self.node.heal(force).await?;
                Ok(Some(ToClient::Healed { kept, given_up }))
            }
            M::FindPipeline { name } => self.node.find_pipeline(&name).map(Some),
            M::Drive(drive) => self.drive(header.request, *drive).await,
            M::LeaveGroup { discard, patience_ms } => {
                self.leave_group(header.request, discard, Duration::from_millis(patience_ms)).await
            }
            M::WorkerReady { .. }
            | M::WorkerDone { .. }
            | M::WorkerReleased { .. }
            | M::WorkerFailed { .. } => {
                let Role::Worker { pipeline, instance } = &self.role else {
                    return Err(Error::protocol("only a worker can say that"));
                };
                self.node.worker_said(pipeline, *instance, message);
                Ok(Some(ToClient::Done))
            }
            M::Hello(_) => Err(Error::protocol("a second greeting")),
        }
    }

    /// Whether the connection cannot go on after an error. That another server cannot be reached does not harm a reader's.
    fn is_fatal(&self, error: &Error) -> bool {
        let of_another = error.kind == ErrorKind::Unreachable && self.role == Role::Consumer;
        matches!(error.kind, ErrorKind::Protocol | ErrorKind::Unreachable) && !of_another
    }

    /// The server leaves the group: a rank that uses it is let go, if it is between two steps. Returns whether the
    /// connection is to end.
    async fn let_go(&mut self) -> bool {
        self.steps_are_told().await;
        let lets_go = self.let_rank_go() || self.storing.as_ref().is_some_and(Storing::is_between_steps);
        if lets_go {
            self.node.tell_client(&self.outbox, &ToClient::Leaves);
        }
        lets_go
    }

    /// The connection has ended: releases what the peer held. What it may still write to or look at in shared memory
    /// is given back only when its process has ended.
    async fn end(&mut self, dubious: bool) {
        if !self.node.goes_on().await {
            // The others know better what has become of who was here. What is held ends with this server, or is offered.
            std::future::pending::<()>().await;
        }
        self.searches.wait_no_more();
        let mut producing = self.producing.take();
        if let Some(producing) = &mut producing {
            producing.leave(&self.node, true);
        }
        let mut storing = self.storing.take();
        if let Some(storing) = &mut storing {
            storing.leave(&self.node);
        }
        let space_writing = self.space_writing.take();
        if let Role::Worker { pipeline, .. } = &self.role {
            self.node.worker_disconnected(pipeline, &self.outbox);
        }
        let writings = producing.iter().map(|producing| &producing.writing);
        let writings = writings.chain(storing.iter().map(|storing| &storing.writing)).chain(&space_writing);
        let writes = writings.into_iter().any(|writing| !writing.is_idle());
        let reads = self.shared_memory && self.stop_reading();
        let maps_memory = self.shared_memory && (writes || reads || dubious);
        if let (true, Some(process)) = (maps_memory, &self.process) {
            process.ended().await;
        }
        if let Some(producing) = producing {
            producing.give_back(&self.node);
        }
        for writing in storing.map(|storing| storing.writing).into_iter().chain(space_writing) {
            writing.close(&self.node);
        }
        for (attachment, stream) in std::mem::take(&mut self.attachments) {
            self.node.detach(attachment, Some(stream));
        }
        self.searches.release_all(&self.node);
        for reader in std::mem::take(&mut self.readers) {
            self.node.reader_gone(reader);
        }
    }

    /// Tells the peer of no further steps; returns whether it may still look at some that it was told of.
    fn stop_reading(&mut self) -> bool {
        let mut reads = self.searches.hold_something();
        let node = self.node.clone();
        let mut state = node.state.lock();
        for (id, stream) in &self.attachments {
            let held = node.coordinator(&mut state, stream).held_by(*id);
            if !held.is_empty() {
                reads = true;
                let effects = node.coordinator(&mut state, stream).close(*id, &held);
                node.apply(&mut state, stream, effects);
            }
        }
        node.drain(&mut state);
        reads
    }
}

/// Waits until a client has closed its connection, or its process has ended: what is done for it needs not go on.
async fn left(receiver: &Receiver, process: Option<&Process>) {
    tokio::select! {
        biased;
        () = receiver.hung_up() => {}
        () = process::ended(process) => {}
    }
}

/// Waits until a process has ended. Once that is known, only lets what has arrived be taken first.
async fn process_ended(process: Option<&Process>, known: bool) {
    match process {
        Some(_) if known => tokio::time::sleep(Duration::from_millis(20)).await,
        process => process::ended(process).await,
    }
}

/// The error where it is not known in time what an owner knew that has gone.
fn not_told() -> Error {
    Error::timeout("not all servers have told in time which blocks they hold: one stands still")
}
