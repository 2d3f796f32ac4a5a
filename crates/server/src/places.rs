//! Which server coordinates which stream: the one that the view has it fall to, unless it was coordinated elsewhere before.
//! When its coordinator has died, the homes of its ranks tell the next one of it. (Design note 10.)

use crate::node::{Member, Node, State};
use forebay_core::ids::{Epoch, RunNumber, ServerId};
use forebay_core::view::View;
use forebay_core::{Error, Result};
use forebay_wire::peer::PeerMessage;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How long a stream's new coordinator may take to answer.
const MOVE_PATIENCE: Duration = Duration::from_secs(20);

/// A rank of a stream.
type RankKey = (String, RunNumber, u32);

impl Node {
    /// The server that coordinates a stream, as far as this one knows.
    pub(crate) fn coordinator_of(&self, state: &State, stream: &str) -> ServerId {
        if state.coordinators.contains_key(stream) {
            return self.id;
        }
        let elsewhere = state.places.elsewhere.get(stream).copied();
        elsewhere.or_else(|| self.standing.read().view.coordinator_of(stream)).unwrap_or(self.id)
    }

    /// Who answers for a stream: `None` if that is not known yet.
    pub(crate) fn place_of(&self, state: &State, stream: &str) -> Option<ServerId> {
        if state.coordinators.contains_key(stream) {
            return Some(self.id);
        }
        let elsewhere = state.places.elsewhere.get(stream).filter(|server| !state.gone.contains(server));
        if let Some(server) = elsewhere {
            return Some(*server);
        }
        let standing = self.standing();
        let natural = standing.view.coordinator_of(stream).unwrap_or(self.id);
        (natural != self.id || self.knows_places(state, &standing.view)).then_some(natural)
    }

    /// Whether every other member has told which streams it coordinates in this server's place.
    fn knows_places(&self, state: &State, view: &View) -> bool {
        let told = |id: &ServerId| state.places.told.get(id).is_some_and(|epoch| *epoch >= view.epoch);
        view.members.iter().all(|id| *id == self.id || told(id) || state.gone.contains(id))
    }

    /// Waits until it is known who answers for a stream. The caller sets the deadline.
    pub(crate) async fn find_place(&self, stream: &str) -> ServerId {
        loop {
            let known = self.places_known.notified();
            tokio::pin!(known);
            known.as_mut().enable();
            let place = self.place_of(&self.state.lock(), stream);
            if let Some(place) = place {
                return place;
            }
            known.await;
        }
    }

    /// This server has become a member: it tells the others that it coordinates nothing yet.
    pub(crate) fn introduce(&self) {
        let mut state = self.state.lock();
        self.tell_places(&mut state, &self.standing().view);
    }

    /// Ranks whose home this server is, of streams that these servers coordinate.
    pub(crate) fn ranks_coordinated_by(&self, state: &State, servers: &[ServerId]) -> Vec<RankKey> {
        let theirs = |stream: &str| servers.contains(&self.coordinator_of(state, stream));
        let members = state.members.iter().filter(|(stream, _)| theirs(stream));
        let ranks = |(stream, member): (&String, &Member)| {
            let stream = stream.clone();
            member.ranks.keys().map(move |(run, rank)| (stream.clone(), *run, *rank)).collect::<Vec<_>>()
        };
        members.flat_map(ranks).collect()
    }

    /// The view changes: streams stay with the servers that coordinate them.
    pub(crate) fn keep_places(&self, state: &mut State, next: &View) {
        let held = state.held.keys().chain(state.directory.steps()).map(|id| &id.stream);
        let known: BTreeSet<String> = state.members.keys().chain(held).cloned().collect();
        for stream in known {
            let place = self.coordinator_of(state, &stream);
            if place != self.id
                && next.members.contains(&place)
                && next.coordinator_of(&stream) != Some(place)
            {
                state.places.elsewhere.insert(stream, place);
            }
        }
    }

    /// Tells every other member which streams this server coordinates in its place.
    pub(crate) fn tell_places(&self, state: &mut State, view: &View) {
        let mut by_server: HashMap<ServerId, Vec<String>> = HashMap::new();
        for stream in state.coordinators.keys() {
            if let Some(natural) = view.coordinator_of(stream).filter(|natural| *natural != self.id) {
                by_server.entry(natural).or_default().push(stream.clone());
            }
        }
        for server in view.members.iter().filter(|id| **id != self.id) {
            let streams = by_server.remove(server).unwrap_or_default();
            self.tell(state, *server, PeerMessage::Coordinates { epoch: view.epoch, streams });
        }
        self.places_told(state);
    }

    /// Another member has told which streams it coordinates in this server's place.
    pub(crate) fn coordinates(&self, state: &mut State, from: ServerId, epoch: Epoch, streams: Vec<String>) {
        for stream in streams {
            state.places.elsewhere.insert(stream, from);
        }
        let told = state.places.told.entry(from).or_default();
        *told = epoch.max(*told);
        self.places_told(state);
    }

    /// A stream is forgotten by who coordinated it in this server's place.
    pub(crate) fn coordinates_no_more(&self, state: &mut State, from: ServerId, stream: &str) {
        if state.places.elsewhere.get(stream) == Some(&from) && !state.members.contains_key(stream) {
            state.places.elsewhere.remove(stream);
        }
    }

    /// If all is known, those who waited for it go on.
    pub(crate) fn places_told(&self, state: &mut State) {
        if self.knows_places(state, &self.standing().view) {
            state.queue.extend(state.places.deferred.drain(..));
            self.places_known.notify_waiters();
        }
    }
}

/// Another server coordinates a stream, since the one that did has died: it is told of a rank whose home this server is,
/// and of what that rank offers.
pub(crate) async fn move_rank(node: Arc<Node>, stream: String, run: RunNumber, rank: u32) {
    if let Err(error) = told_again(&node, &stream, run, rank).await {
        tracing::warn!("rank {rank} of stream '{stream}' goes on without being staged: {error}");
    }
    // Whatever was in force before is not any more.
    if let Some(member) = node.state.lock().members.get_mut(&stream) {
        member.must_ask(run);
        member.changed.notify_waiters();
    }
}

async fn told_again(node: &Node, stream: &str, run: RunNumber, rank: u32) -> Result<()> {
    let (options, fields, attrs) = {
        let mut state = node.state.lock();
        let Some(local) = state.rank_mut(stream, run, rank) else { return Ok(()) };
        let Some(options) = local.options.clone() else { return Ok(()) };
        (options, local.fields.clone(), local.attrs.clone())
    };
    let name = || stream.to_owned();
    let join = |token| PeerMessage::Join {
        token,
        stream: name(),
        rank,
        options: options.clone(),
        back_to: Some(run),
    };
    match node.ask_coordinator(stream, rank, MOVE_PATIENCE, join).await? {
        PeerMessage::Joined { result, .. } => drop(result?),
        _ => return Err(Error::internal("a coordinator gave another answer than asked for")),
    }
    for field in fields.into_values() {
        let define = |token| PeerMessage::Define { token, stream: name(), run, rank, field: field.clone() };
        if let PeerMessage::Answer { result, .. } =
            node.ask_coordinator(stream, rank, MOVE_PATIENCE, define).await?
        {
            result?;
        }
    }
    for ((field, key), attr) in attrs {
        let set = |token| {
            let (field, key, attr) = (field.clone(), key.clone(), attr.clone());
            PeerMessage::SetAttr { token, stream: name(), run, field, key, attr }
        };
        if let PeerMessage::Answer { result, .. } =
            node.ask_coordinator(stream, rank, MOVE_PATIENCE, set).await?
        {
            result?;
        }
    }
    Ok(())
}

/// Which servers coordinate streams that are not where the view alone would have them.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) elsewhere: HashMap<String, ServerId>,
    /// Of which epoch each member has told what it coordinates in this server's place.
    told: HashMap<ServerId, Epoch>,
    /// Messages that wait until all have told.
    deferred: Vec<(ServerId, PeerMessage)>,
}

/// How many messages may wait until it is known who coordinates their streams.
const DEFERRED_MAX: usize = 1 << 16;

impl Places {
    /// The message waits; `false` if too many do.
    pub(crate) fn defer(&mut self, from: ServerId, message: PeerMessage) -> bool {
        if self.deferred.len() >= DEFERRED_MAX {
            return false;
        }
        self.deferred.push((from, message));
        true
    }
}
