//! Who coordinates a stream, as this server knows it: what others tell of that, what it tells them, and waits until it is
//! known. (Design note 10.)

use super::{Components, Node};
use crate::shared::Shared;
use crate::streams::coordination::Coordination;
use crate::streams::locations::Locations;
use forebay_core::ids::{Epoch, RunNumber, ServerId};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::view::View;
use forebay_wire::peer::streams;

impl Node {
    /// The server that coordinates a stream, as far as this one knows.
    pub(crate) fn coordinator_of(&self, state: &Components, stream: &str) -> ServerId {
        coordinator(&self.shared, &state.coordination, &state.locations, stream)
    }

    /// It is heard that a server coordinates a stream. If it takes the place of one that has died, this may be before that
    /// is known here: what was told to that one will have to be told again all the same.
    pub(crate) fn note_place(&self, state: &mut Components, stream: &str, server: ServerId) {
        if self.standing().roster.has_left(server) {
            // It was heard late.
            return;
        }
        let before = self.coordinator_of(state, stream);
        // Also where the view in force has it there: the next one may not.
        state.locations.note(stream, server);
        if before == server {
            return;
        }
        state.locations.note_moved(stream, before);
        if server != self.id
            && !state.common.members.is_gone(before)
            && state.known_streams().contains(stream)
        {
            // This server is new, and has told one that knows nothing of the stream.
            self.tell_again(state, stream);
        }
    }

    /// Who answers for a stream: `None` if that is not known yet.
    pub(crate) fn place_of(&self, state: &Components, stream: &str) -> Option<ServerId> {
        if state.coordination.has(stream) {
            return Some(self.id);
        }
        if let Some(server) = state.locations.elsewhere(stream) {
            // The next view has another one in the place of one that is gone: not the one that this view alone names.
            return Some(server).filter(|server| !state.common.members.is_gone(*server));
        }
        let standing = self.standing();
        let natural = standing.view.coordinator_of(stream).unwrap_or(self.id);
        let known = natural != self.id || self.knows_places(state, &standing.view);
        (known && !state.common.members.is_gone(natural)).then_some(natural)
    }

    /// Whether all has been told that follows from the view in force, no member is known to be gone, and nobody has told
    /// of a later view: then nothing is to be told of streams any more whose coordinator died before.
    pub(crate) fn all_told(&self, state: &Components) -> bool {
        let standing = self.standing();
        let here = standing.view.members.iter().all(|id| !state.common.members.is_gone(*id));
        here && !state.locations.have_heard_of_later(standing.view.epoch)
            && self.knows_places(state, &standing.view)
    }

    /// Whether a rank that has lost its home may have another one now: where that lives, and has let it go, at once; else
    /// when all have told.
    pub(crate) fn may_come_back(&self, state: &Components, stream: &str, run: RunNumber, rank: u32) -> bool {
        let coordinator = state.coordination.get(stream);
        let former = coordinator.and_then(|coordinator| coordinator.released_by(run, rank));
        former.is_some_and(|id| self.is_member(state, id)) || self.all_told(state)
    }

    /// Whether every other member has told which streams it coordinates in the place of others.
    pub(crate) fn knows_places(&self, state: &Components, view: &View) -> bool {
        state.locations.all_told(view, self.id, |id| state.common.members.is_gone(id))
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
    pub(crate) fn keep_places(&self, state: &mut Components, next: &View) {
        for stream in state.known_streams() {
            let place = self.coordinator_of(state, &stream);
            if place != self.id
                && next.members.contains(&place)
                && next.coordinator_of(&stream) != Some(place)
            {
                state.locations.note(&stream, place);
            }
        }
    }

    /// Tells every other member which streams this server coordinates that the view alone would have elsewhere: one that
    /// comes to hold something of such a stream must know whom to tell of it, and whose death concerns it.
    pub(crate) fn tell_places(&self, state: &mut Components, view: &View) {
        let astray = |stream: &&String| view.coordinator_of(stream).is_some_and(|natural| natural != self.id);
        let streams: Vec<String> =
            state.coordination.all().map(|(stream, _)| stream).filter(astray).cloned().collect();
        let arenas = {
            let store = self.store.lock();
            state.replication.successors.of_server(self.id, |arena| store.has_arena(arena))
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
        state: &mut Components,
        from: ServerId,
        epoch: Epoch,
        streams: Vec<String>,
        arenas: Vec<(ServerId, u32, u32)>,
    ) {
        for (dead, theirs, arena) in arenas {
            state.replication.successors.add((dead, theirs), from, arena);
        }
        let standing = self.standing();
        for stream in streams {
            if state.coordination.get(&stream).is_some_and(|stream| stream.term() > epoch)
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
        state.locations.on_member_reported(from, epoch);
        self.places_told(state);
    }

    /// A stream is forgotten by who coordinated it.
    pub(crate) fn coordinates_no_more(&self, state: &mut Components, from: ServerId, stream: &str) {
        if !state.ranks.has_stream(stream) {
            state.locations.forget(stream, from);
        }
    }

    /// If all is known, those who waited for it go on.
    pub(crate) fn places_told(&self, state: &mut Components) {
        if self.knows_places(state, &self.standing().view) {
            self.settle_all(state);
            self.space_told_by_all(state);
            state.common.queue_all(state.locations.take_deferred());
            self.places_known.notify_waiters();
        }
    }
}

/// The server that coordinates a stream, as far as this one knows.
pub(super) fn coordinator(
    server: &Shared,
    coordination: &Coordination,
    locations: &Locations,
    stream: &str,
) -> ServerId {
    if coordination.has(stream) {
        return server.id;
    }
    let elsewhere = locations.elsewhere(stream);
    elsewhere.or_else(|| server.standing().view.coordinator_of(stream)).unwrap_or(server.id)
}
