//! Which server coordinates which stream: the one that the view has it fall to, unless it was coordinated elsewhere before.
//! (Design note 10.)

use crate::members::Members;
use crate::node::{Node, State};
use crate::surroundings::HashMap;
use forebay_core::ids::{Epoch, RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::view::View;
use forebay_wire::peer::{PeerMessage, streams};
use std::collections::BTreeSet;

impl Node {
    /// The server that coordinates a stream, as far as this one knows.
    pub(crate) fn coordinator_of(&self, state: &State, stream: &str) -> ServerId {
        if state.coordinators.contains_key(stream) {
            return self.id;
        }
        let elsewhere = state.places.elsewhere.get(stream).copied();
        elsewhere.or_else(|| self.standing.read().view.coordinator_of(stream)).unwrap_or(self.id)
    }

    /// It is heard that a server coordinates a stream. If it takes the place of one that has died, this may be before that
    /// is known here: what was told to that one will have to be told again all the same.
    pub(crate) fn note_place(&self, state: &mut State, stream: &str, server: ServerId) {
        if self.standing().roster.has_left(server) {
            // It was heard late.
            return;
        }
        let before = self.coordinator_of(state, stream);
        // Also where the view in force has it there: the next one may not.
        state.places.elsewhere.insert(stream.to_owned(), server);
        if before == server {
            return;
        }
        state.places.moved.entry(stream.to_owned()).or_default().insert(before);
        if server != self.id
            && !state.common.members.is_gone(before)
            && state.known_streams().contains(stream)
        {
            // This server is new, and has told one that knows nothing of the stream.
            self.tell_again(state, stream);
        }
    }

    /// Who answers for a stream: `None` if that is not known yet.
    pub(crate) fn place_of(&self, state: &State, stream: &str) -> Option<ServerId> {
        if state.coordinators.contains_key(stream) {
            return Some(self.id);
        }
        if let Some(server) = state.places.elsewhere.get(stream) {
            // The next view has another one in the place of one that is gone: not the one that this view alone names.
            return Some(*server).filter(|server| !state.common.members.is_gone(*server));
        }
        let standing = self.standing();
        let natural = standing.view.coordinator_of(stream).unwrap_or(self.id);
        let known = natural != self.id || self.knows_places(state, &standing.view);
        (known && !state.common.members.is_gone(natural)).then_some(natural)
    }

    /// Whether all has been told that follows from the view in force, no member is known to be gone, and nobody has told
    /// of a later view: then nothing is to be told of streams any more whose coordinator died before.
    pub(crate) fn all_told(&self, state: &State) -> bool {
        let standing = self.standing();
        let here = standing.view.members.iter().all(|id| !state.common.members.is_gone(*id));
        here && state.places.heard_of <= standing.view.epoch && self.knows_places(state, &standing.view)
    }

    /// Whether a rank that has lost its home may have another one now: where that lives, and has let it go, at once; else
    /// when all have told.
    pub(crate) fn may_come_back(&self, state: &State, stream: &str, run: RunNumber, rank: u32) -> bool {
        let coordinator = state.coordinators.get(stream);
        let former = coordinator.and_then(|coordinator| coordinator.moved_from(run, rank));
        former.is_some_and(|id| self.is_member(state, id)) || self.all_told(state)
    }

    /// Whether every other member has told which streams it coordinates in the place of others.
    pub(crate) fn knows_places(&self, state: &State, view: &View) -> bool {
        state.places.are_known(self.id, &state.common.members, view)
    }

    /// Waits until every other member has told what follows from the view in force: blocks that are registered with this
    /// server in the place of one that has gone among it. The caller sets the deadline.
    pub(crate) async fn told_by_all(&self) {
        loop {
            let known = self.places_known.notified();
            tokio::pin!(known);
            known.as_mut().enable();
            if self.knows_places(&self.state.lock(), &self.standing().view) {
                return;
            }
            known.await;
        }
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

    /// The view changes: streams stay with the servers that coordinate them.
    pub(crate) fn keep_places(&self, state: &mut State, next: &View) {
        for stream in state.known_streams() {
            let place = self.coordinator_of(state, &stream);
            if place != self.id
                && next.members.contains(&place)
                && next.coordinator_of(&stream) != Some(place)
            {
                state.places.elsewhere.insert(stream, place);
            }
        }
    }

    /// Tells every other member which streams this server coordinates that the view alone would have elsewhere: one that
    /// comes to hold something of such a stream must know whom to tell of it, and whose death concerns it.
    pub(crate) fn tell_places(&self, state: &mut State, view: &View) {
        let astray = |stream: &&String| view.coordinator_of(stream).is_some_and(|natural| natural != self.id);
        let streams: Vec<String> = state.coordinators.keys().filter(astray).cloned().collect();
        let arenas = {
            let store = self.store.lock();
            state.answers.by(self.id, |arena| store.has_arena(arena))
        };
        for server in view.members.iter().filter(|id| **id != self.id) {
            let (epoch, streams, arenas) = (view.epoch, streams.clone(), arenas.clone());
            self.tell(state, *server, streams::Message::Locations { epoch, streams, arenas });
        }
        self.places_told(state);
    }

    /// Another member has told which streams it coordinates in another one's place.
    pub(crate) fn coordinates(
        &self,
        state: &mut State,
        from: ServerId,
        epoch: Epoch,
        streams: Vec<String>,
        arenas: Vec<(ServerId, u32, u32)>,
    ) {
        for (dead, theirs, arena) in arenas {
            state.answers.add((dead, theirs), from, arena);
        }
        let standing = self.standing();
        for stream in streams {
            if state.coordinators.get(&stream).is_some_and(|stream| stream.term() > epoch)
                && !seeded(Bug::YieldsToTheGivenUp)
            {
                // Others have told this one already of a view without that one.
                continue;
            }
            if standing.view.coordinator_of(&stream) == Some(self.id) {
                self.yield_to(state, &stream, from);
            }
            self.note_place(state, &stream, from);
        }
        let told = state.places.told.entry(from).or_default();
        *told = epoch.max(*told);
        self.places_told(state);
    }

    /// A stream is forgotten by who coordinated it.
    pub(crate) fn coordinates_no_more(&self, state: &mut State, from: ServerId, stream: &str) {
        if state.places.elsewhere.get(stream) == Some(&from) && !state.members.contains_key(stream) {
            state.places.elsewhere.remove(stream);
        }
    }

    /// If all is known, those who waited for it go on.
    pub(crate) fn places_told(&self, state: &mut State) {
        if self.knows_places(state, &self.standing().view) {
            self.settle_all(state);
            self.space_told_by_all(state);
            state.common.queue_all(state.places.take_deferred());
            self.places_known.notify_waiters();
        }
    }
}

/// Which servers coordinate streams that are not where the view alone would have them.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) elsewhere: HashMap<String, ServerId>,
    /// Who was thought to coordinate streams before others were heard to, since the view in force was adopted.
    pub(crate) moved: HashMap<String, BTreeSet<ServerId>>,
    /// Of which epoch each member has told what it coordinates in another one's place.
    told: HashMap<ServerId, Epoch>,
    /// The latest epoch of which others have told what follows from it.
    heard_of: Epoch,
    /// Messages that wait until all have told.
    deferred: Vec<(ServerId, PeerMessage)>,
}

/// How many messages may wait until it is known who coordinates their streams.
const DEFERRED_MAX: usize = 1 << 16;

impl Places {
    /// Whether every other member has told which streams it coordinates in the place of others.
    pub(crate) fn are_known(&self, me: ServerId, members: &Members, view: &View) -> bool {
        let told = |id: &ServerId| self.told.get(id).is_some_and(|epoch| *epoch >= view.epoch);
        view.members.iter().all(|id| *id == me || told(id) || members.is_gone(*id))
    }

    /// Another server tells what follows from the view of this epoch.
    pub(crate) fn heard_of(&mut self, epoch: Epoch) {
        self.heard_of = self.heard_of.max(epoch);
    }

    /// The message waits; `false` if too many do.
    pub(crate) fn defer(&mut self, from: ServerId, message: impl Into<PeerMessage>) -> bool {
        if self.deferred.len() >= DEFERRED_MAX {
            return false;
        }
        self.deferred.push((from, message.into()));
        true
    }

    /// What has waited is looked at again: it may wait once more.
    pub(crate) fn take_deferred(&mut self) -> Vec<(ServerId, PeerMessage)> {
        std::mem::take(&mut self.deferred)
    }
}
