//! A server: the state of its components, shared by all its tasks, and what leads from one component to others.
//!
//! - this module: the state, and asking other servers;
//! - [`dispatch`]: which component each message between servers goes to;
//! - [`decisions`]: what follows from what a stream's coordinator decides;
//! - [`departures`]: what other servers say and ask before they leave;
//! - [`locations`], [`attachments`]: what servers tell each other of who coordinates streams, and of attachments;
//! - [`pipelines`], [`subscriptions`]: the events that these are told of, and what follows from them for streams
//!   ([`streams_at_hand`]);
//! - [`directory`], [`replication`], [`space`]: the same for what ranks end, for copies, and for the space; what waits for them;
//! - [`evaluation`]: expressions, evaluated by the servers that hold something of their fields;
//! - [`fetching`], [`held_bytes`]: bytes of blocks that this server reads, of others and of its own;
//! - [`feeding`], [`searching`]: what subscriptions are told of streams that other servers coordinate, and of the space;
//! - [`takeover`]: another server takes the place of a stream's coordinator.

mod attachments;
mod connections;
mod decisions;
mod departures;
mod directory;
mod dispatch;
mod evaluation;
mod feeding;
mod fetching;
mod held_bytes;
mod locations;
mod pipelines;
mod replication;
mod searching;
mod space;
mod streams_at_hand;
mod subscriptions;
mod takeover;

use connections::Connections;
pub(crate) use evaluation::Evaluating;
pub(crate) use held_bytes::HeldBytes;
pub(crate) use replication::copies_late;

use crate::context::{Common, Context};
use crate::directory::Directory;
use crate::evaluation::{Connections as ReadConnections, Pool};
use crate::meetings::Meetings;
use crate::options::ServerOptions;
use crate::pipelines::Pipelines;
use crate::questions::{Answer, QuestionSubject};
use crate::replication::Replication;
use crate::shared::Shared;
use crate::space::Space;
use crate::spawner::{Spawner, Spawns};
use crate::streams::attachments::Attachments;
use crate::streams::coordination::Coordination;
use crate::streams::holdings::Holdings;
use crate::streams::local_ranks::LocalRanks;
use crate::streams::locations::Locations;
use crate::streams::progress::Progress;
use crate::streams::users::{StreamEvent, StreamUser};
use crate::subscriptions::{SpaceReaders, Subscriptions};
use forebay_cluster::Cluster;
use forebay_cluster::forming::FormedMember;
use forebay_cluster::watched::Watched;
use forebay_core::ids::ServerId;
use forebay_core::steps::StreamCoordinator;
use forebay_core::tiles::TileCache;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::Store;
use forebay_store::budget::default_budget;
use forebay_wire::peer::PeerMessage;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// How long to wait before a server is asked again that named another one, which named it.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// A server: what does not change, what is locked by itself, and the state of its components.
#[derive(Debug)]
pub(crate) struct Node {
    shared: Shared,
    /// For tasks that outlive the call that starts them.
    pub(crate) me: Weak<Node>,
    /// Locked before `store`, never the other way round.
    pub(crate) state: Mutex<Components>,
    /// What computes for evaluations.
    pub(crate) pool: Pool,
    /// Connections to servers whose blocks are read.
    read_from: ReadConnections,
    /// Connections to owners in the space.
    space_readers: SpaceReaders,
}

impl Deref for Node {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What messages change.
#[derive(Debug, Default)]
pub(crate) struct Components {
    /// What all components share.
    pub(crate) common: Common,
    /// The streams that this server coordinates.
    pub(crate) coordination: Coordination,
    /// Which servers coordinate the others.
    pub(crate) locations: Locations,
    /// The ranks whose home this server is.
    pub(crate) ranks: LocalRanks,
    /// How fast these go on.
    pub(crate) progress: Progress,
    pub(crate) attachments: Attachments,
    /// The blocks of steps that are here.
    pub(crate) holdings: Holdings,
    pub(crate) pipelines: Pipelines,
    pub(crate) subscriptions: Subscriptions,
    /// What streams tell those who use them within this server, in order, before any other message is handled.
    pub(crate) stream_events: VecDeque<StreamEvent>,
    pub(crate) space: Space,
    pub(crate) directory: Directory,
    /// Which servers answer for which parts of fields.
    pub(crate) tiles: TileCache,
    pub(crate) replication: Replication,
    /// Who is connected.
    pub(crate) connections: Connections,
    pub(crate) meetings: Meetings,
}

#[cfg(test)]
impl Components {
    /// Checks what always holds between two events.
    pub(crate) fn sanity_check(&self) -> std::result::Result<(), String> {
        let found = [
            ("members", self.common.members.sanity_check()),
            ("coordination", self.coordination.sanity_check()),
            ("locations", self.locations.sanity_check()),
            ("ranks", self.ranks.sanity_check()),
            ("attachments", self.attachments.sanity_check()),
            ("holdings", self.holdings.sanity_check()),
            ("directory", self.directory.sanity_check()),
            ("replication", self.replication.sanity_check()),
            ("space", self.space.sanity_check()),
            ("pipelines", self.pipelines.sanity_check()),
            ("subscriptions", self.subscriptions.sanity_check()),
        ];
        let mut wrong =
            found.into_iter().filter_map(|(what, found)| Some(format!("{what}: {}", found.err()?)));
        wrong.next().map_or(Ok(()), Err)
    }
}

impl Node {
    pub(crate) fn new(options: &ServerOptions, formed: FormedMember) -> (Arc<Node>, Spawns) {
        let (spawner, spawns) = Spawner::new();
        let seal_payload = formed.roster.settings.seal_payload;
        let servers = (options.cluster.servers as usize).max(formed.roster.members.len());
        let budget = options.budget.unwrap_or_else(|| default_budget(servers as u64));
        let shared = |me: &Weak<Node>| Shared {
            cluster: Cluster::new(formed, me.clone()),
            seal_payload,
            started: Instant::now(),
            store: Mutex::new(Store::new(budget)),
            agreed: Notify::new(),
            places_known: Notify::new(),
            memory_freed: Notify::new(),
            leaves: Watched::new(false),
            spawner,
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let node = Arc::new_cyclic(|me| {
            let shared = shared(me);
            let pool = Pool::new(if shared.environment.has_threads() { threads } else { 0 });
            let read_from = ReadConnections::default();
            let space_readers = SpaceReaders::default();
            Node { shared, me: me.clone(), state: Mutex::default(), pool, read_from, space_readers }
        });
        node.cluster.dial_all();
        (node, spawns)
    }

    /// The coordinator of a stream, made at first use.
    pub(crate) fn coordinator<'a>(
        &self,
        state: &'a mut Components,
        stream: &str,
    ) -> &'a mut StreamCoordinator {
        let Components { common, coordination, .. } = state;
        coordination.at(&Context { server: &self.shared, common }, stream)
    }

    /// Whether a server is a member that is not known to have gone.
    pub(crate) fn is_member(&self, state: &Components, server: ServerId) -> bool {
        self.standing().view.members.contains(&server) && !state.common.members.is_gone(server)
    }

    /// Handles a message from another server, or from a session of this one. One that is no member any more is not heard: it
    /// may have stood still, and know nothing of what has happened since.
    pub(crate) fn dispatch(&self, from: ServerId, message: PeerMessage) {
        let mut state = self.state.lock();
        if self.standing().roster.has_left(from) {
            return;
        }
        state.common.queue(from, message);
        self.drain(&mut state);
    }

    /// Handles what is queued, until nothing is.
    pub(crate) fn drain(&self, state: &mut Components) {
        loop {
            if let Some(event) = state.stream_events.pop_front() {
                self.on_stream_event(state, event);
            } else if let Some((from, message)) = state.common.next() {
                self.handle(state, from, message);
            } else {
                return;
            }
        }
    }

    /// A stream tells one who uses it within this server something.
    fn on_stream_event(&self, state: &mut Components, event: StreamEvent) {
        match event.user() {
            StreamUser::Pipeline(_) => self.pipelines_stream_event(state, event),
            StreamUser::Subscriptions(_) => {
                self.with_subscriptions(state, |all, cx, streams| all.on_stream_event(cx, streams, event));
            }
        }
    }

    /// Tells a server something, maybe itself. `false` if it is gone.
    pub(crate) fn tell(&self, state: &mut Components, to: ServerId, message: impl Into<PeerMessage>) -> bool {
        self.context(state).tell(to, message)
    }

    /// What a component is given with an event.
    pub(crate) fn context<'a>(&'a self, state: &'a mut Components) -> Context<'a> {
        Context { server: &self.shared, common: &mut state.common }
    }

    /// Whether a server that could not be told something is there, but has not read what it was told for too long. One whose
    /// connection has ended is gone, be that noted already or not.
    pub(crate) fn is_too_far_behind(&self, state: &Components, server: ServerId) -> bool {
        !state.common.members.is_gone(server) && self.peers.reaches(server)
    }

    /// Asks a stream's coordinator something and waits for the answer; if it names another server, asks that one, and if
    /// it dies, the one that takes its place. The question must do no harm if it is asked twice.
    pub(crate) async fn ask_coordinator<M: Into<PeerMessage>>(
        &self,
        stream: &str,
        rank: u32,
        patience: Duration,
        question: impl Fn(u64) -> M,
    ) -> Result<Answer> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = match self.ask(stream, rank, left, &question).await {
                Err(error) if error.kind == ErrorKind::Unreachable && !left.is_zero() => {
                    tokio::time::sleep(ASK_AGAIN).await;
                    continue;
                }
                answer => answer?,
            };
            let Answer::Redirect(server) = answer else { return Ok(answer) };
            if left.is_zero() {
                return Err(Error::timeout(format!("no server coordinates stream '{stream}'")));
            }
            let again = {
                let state = &mut *self.state.lock();
                let again = state.locations.elsewhere(stream) == Some(server);
                self.note_place(state, stream, server);
                again
            };
            if again {
                // Those two do not know the same view yet.
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }

    /// Asks a stream's coordinator something and waits for the answer.
    async fn ask<M: Into<PeerMessage>>(
        &self,
        stream: &str,
        rank: u32,
        patience: Duration,
        question: impl FnOnce(u64) -> M,
    ) -> Result<Answer> {
        let (coordinator, token, mut answer) = {
            let mut state = self.state.lock();
            let coordinator = self.coordinator_of(&state, stream);
            let about = QuestionSubject { stream: stream.to_owned(), rank };
            let asked = self.context(&mut state).ask_about(coordinator, about, question);
            let (token, answer) = asked.ok_or_else(|| lost_coordinator(stream, coordinator))?;
            self.drain(&mut state);
            (coordinator, token, answer)
        };
        match tokio::time::timeout(patience, &mut answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(lost_coordinator(stream, coordinator)),
            Err(_) => {
                // An answer that came in this moment counts: what it says was done is done.
                if self.state.lock().common.questions.take(token).is_none()
                    && let Ok(answer) = answer.try_recv()
                {
                    return Ok(answer);
                }
                Err(Error::timeout(format!(
                    "{coordinator}, which coordinates stream '{stream}', did not answer"
                )))
            }
        }
    }

    /// Asks a server something that is not about one stream: the question's token, and where its answer will
    /// come; that ends without one if the server dies. `None` if it is gone.
    pub(crate) fn question<M: Into<PeerMessage>>(
        &self,
        state: &mut Components,
        server: ServerId,
        question: impl FnOnce(u64) -> M,
    ) -> Option<(u64, oneshot::Receiver<Answer>)> {
        self.context(state).ask(server, question)
    }
}

/// The error for a stream whose coordinator has died.
pub(crate) fn lost_coordinator(stream: &str, coordinator: ServerId) -> Error {
    let text = format!("{coordinator}, which coordinates stream '{stream}', is gone");
    Error::unreachable(text).about(coordinator)
}

/// Gives unused pages back and silent servers up, from time to time. Idle servers do next to nothing.
pub(crate) async fn housekeeping(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    // Looks are counted: after a standstill they are not made up for, before anybody could say anything.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !node.goes_on().await {
            return;
        }
        node.store.lock().trim();
        node.give_up_overdue_owners();
        node.look_for_the_lost();
        node.forget_replicas();
        node.look_at_progress();
        node.look_at_subscriptions();
    }
}
