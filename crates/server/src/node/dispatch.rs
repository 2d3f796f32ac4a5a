//! What each message between servers does to a server's state.

use super::{Components, Node};
use crate::questions::Answer;
use crate::streams::local_ranks::cuts_to_tell;
use forebay_core::ids::{RunNumber, ServerId};
use forebay_core::steps::{Joined, Joining, Rejoin};
use forebay_core::{Error, Result};
use forebay_wire::peer::streams::{self, JoinedRun};
use forebay_wire::peer::{PeerMessage, cluster};
use std::sync::Arc;

impl Node {
    /// Handles one message; what follows from it is queued.
    pub(crate) fn handle(&self, state: &mut Components, from: ServerId, message: PeerMessage) {
        match message {
            PeerMessage::Cluster(message) => self.on_cluster(state, from, message),
            PeerMessage::Streams(message) => self.on_streams(state, from, message),
            PeerMessage::Replication(message) => self.on_replication(state, from, message),
            PeerMessage::Directory(message) => self.on_directory(state, from, message),
            PeerMessage::Space(message) => {
                self.with_space(state, |space, cx, group| space.on_message(cx, group, from, message));
            }
            PeerMessage::Pipelines(message) => self.on_pipelines(state, from, message),
            PeerMessage::Evaluation(message) => self.on_evaluation(state, from, message),
            PeerMessage::Subscriptions(message) => self.on_subscriptions(state, from, message),
        }
    }

    fn on_cluster(&self, state: &mut Components, from: ServerId, message: cluster::Message) {
        use cluster::Message as M;
        match message {
            M::Leaving { token, may_go } => self.on_leaving(state, from, token, may_go),
            M::LeavingAnswer { token, result } => state.common.questions.answer(token, Answer::Done(result)),
            M::Stays => self.on_stays(state, from),
            // The cluster takes these by itself.
            M::Join(_)
            | M::QueryRoster
            | M::Admission(_)
            | M::Agreement(_)
            | M::Ping(_)
            | M::Pong(_)
            | M::Swim(_)
            | M::GroupEnds => {}
        }
    }

    /// A message about streams.
    fn on_streams(&self, state: &mut Components, from: ServerId, message: streams::Message) {
        if message.tells_coordinator().is_some_and(|stream| !state.coordination.has(stream)) {
            return self.not_coordinated(state, from, message);
        }
        use streams::Message as M;
        match message {
            M::Join { token, stream, joining, back_to } => {
                self.on_join(state, (from, token), stream, joining, back_to);
            }
            M::Joined { token, stream, rank, result } => {
                self.on_joined(state, (from, token), (stream, rank), result);
            }
            M::Done { token, result } => state.common.questions.answer(token, Answer::Done(result)),
            M::Redirect { token, server } => state.common.questions.answer(token, Answer::Redirect(server)),
            M::WhoReads { token, stream, run } => self.on_who_reads(state, (from, token), &stream, run),
            M::Readers { token, readers } => {
                state.common.questions.answer(token, Answer::Readers(*readers));
            }
            M::Locations { epoch, streams, arenas } => self.coordinates(state, from, epoch, streams, arenas),
            M::RunOver { stream, run, summary } => {
                state.replication.backups.on_run_over(&stream, run, &summary);
                state.pipelines.workers_mut().on_run_over(&stream, run, &summary);
                state.ranks.on_run_over(&stream, run, *summary);
            }
            M::StreamForgotten { stream } => self.coordinates_no_more(state, from, &stream),
            M::Define { .. } | M::SetAttr { .. } => self.on_declaration(state, from, message),
            M::Sync { token, .. } => drop(self.tell(state, from, M::Done { token, result: Ok(()) })),
            M::JoinAbandoned { .. }
            | M::RankBegan { .. }
            | M::HighestBegun { .. }
            | M::StepEnded { .. }
            | M::RankGone { .. }
            | M::RankMoves { .. }
            | M::BlocksStranded { .. }
            | M::MemoryPressure { .. }
            | M::CutPrepared { .. } => self.on_told_of_ranks(state, from, message),
            M::PrepareCut { .. } | M::Cut { .. } | M::Cuts { .. } | M::RankFailed { .. } => {
                self.on_told_by_coordinator(state, from, message);
            }
            M::Free { id, unseen_before } => self.free_step(state, &id, unseen_before),
            M::AttachmentChanged { stream, id, record } => {
                self.told_of_attachment(state, from, &stream, id, record);
            }
            M::CursorKept { stream, name, run, step } => {
                state.attachments.note_cursor(&stream, name, (run, step));
            }
            M::TakeOverAttachment { epoch, stream, id, record } => {
                self.inherit_attachment(state, from, epoch, stream, (id, *record));
            }
            M::TakeOverRun { epoch, stream, known } => self.inherit(state, from, epoch, stream, *known),
            M::StepsHeld { epoch, stream, steps } => self.told_again(state, from, epoch, &stream, steps),
            M::CoordinatedBy { stream, server } => self.coordinated_by(state, stream, server),
            M::Named { epoch, stream } => self.on_named(state, epoch, &stream),
            M::TellAgain { stream } => self.on_tell_again(state, from, stream),
            M::Counted { stream, counts } => {
                let standing = self.standing();
                let is_member = |server| standing.view.members.contains(&server);
                state.coordination.note_counts(from, stream, counts, is_member);
            }
        }
    }

    /// A rank waits for readers before its first step.
    fn on_who_reads(
        &self,
        state: &mut Components,
        (from, token): (ServerId, u64),
        stream: &str,
        run: RunNumber,
    ) {
        let answer = match self.place_of(state, stream) {
            Some(server) if server != self.id => streams::Message::Redirect { token, server },
            // One that takes the stream over is told of its readers still: none is known yet.
            _ => {
                let readers = Box::new(self.coordinator(state, stream).readers_of(run));
                streams::Message::Readers { token, readers }
            }
        };
        self.tell(state, from, answer);
    }

    /// A rank wants to join a stream.
    fn on_join(
        &self,
        state: &mut Components,
        (from, token): (ServerId, u64),
        stream: String,
        joining: Box<Joining>,
        back_to: Option<Rejoin>,
    ) {
        let rank = joining.rank;
        // A rank that comes first would begin another run while one is still told of.
        let telling = state.coordination.is_taking_over(&stream);
        let place = self.place_of(state, &stream).filter(|_| back_to.is_some() || !telling);
        let refuse =
            |error| streams::Message::Joined { token, stream: stream.clone(), rank, result: Err(error) };
        match place {
            Some(server) if server == self.id => {}
            Some(server) => {
                self.tell(state, from, streams::Message::Redirect { token, server });
                return;
            }
            None => {
                let stream = stream.clone();
                let join = streams::Message::Join { token, stream, joining, back_to };
                if !state.locations.defer(from, join) {
                    self.tell(state, from, refuse(too_much_waits()));
                }
                return;
            }
        }
        if let Some(back_to) = &back_to
            && !self.may_come_back(state, &stream, back_to.run, rank)
        {
            // What others tell of the rank in the place of its former home goes before what the new one will tell.
            let error = Error::unreachable("a server has gone, and not all others have told what it knew");
            self.tell(state, from, refuse(error));
            return;
        }
        let coordinator = self.coordinator(state, &stream);
        let joined = match back_to {
            None => coordinator.join((*joining).clone(), from),
            Some(back_to) => coordinator.rejoin((*joining).clone(), from, back_to, self.epoch()),
        };
        match joined {
            Ok((joined, effects)) => {
                // The answer goes first: a decision that follows must find the run there.
                let (demand, cuts) = cuts_to_tell(&joined.cuts);
                let Joined { run, agreeing, reported_below: below, began, .. } = joined;
                let result = Ok(JoinedRun { run, joining, demand, cuts, agreeing, below, began });
                let joined = streams::Message::Joined { token, stream: stream.clone(), rank, result };
                self.tell(state, from, joined);
                self.apply(state, &stream, effects);
                self.settle_if_told(state, &stream);
            }
            Err(error) => drop(self.tell(state, from, refuse(error))),
        }
    }

    /// A rank whose home this server is has joined, or not.
    fn on_joined(
        &self,
        state: &mut Components,
        (from, token): (ServerId, u64),
        (stream, rank): (String, u32),
        result: Result<JoinedRun>,
    ) {
        let Some(question) = state.common.questions.take(token) else {
            // It came too late: nobody would ever say that this rank has left.
            if let Ok(JoinedRun { run, .. }) = result {
                let coordinator = self.coordinator_of(state, &stream);
                self.tell(state, coordinator, streams::Message::JoinAbandoned { stream, run, rank });
            }
            return;
        };
        if let (Ok(joined), Some(about)) = (&result, question.about()) {
            // It coordinates the stream, also if the view has changed meanwhile.
            if !state.common.members.is_gone(from) {
                self.note_place(state, &about.stream, from);
            }
            state.ranks.on_joined(&about.stream, about.rank, joined);
        }
        question.answer(Answer::Joined(result));
    }

    /// A rank offers a field or sets an attribute. The rank's home knows a view that has the stream here; it may be
    /// elsewhere all the same, or this server still has to be told of the run.
    fn on_declaration(&self, state: &mut Components, from: ServerId, message: streams::Message) {
        use streams::Message as M;
        let (M::Define { token, ref stream, run, .. } | M::SetAttr { token, ref stream, run, .. }) = message
        else {
            return;
        };
        match self.place_of(state, stream) {
            Some(server) if server != self.id => {
                self.tell(state, from, M::Redirect { token, server });
                return;
            }
            Some(_) if !self.coordinator(state, stream).awaits_report_of(run) => {}
            _ => {
                if !state.locations.defer(from, message) {
                    self.tell(state, from, M::Done { token, result: Err(too_much_waits()) });
                }
                return;
            }
        }
        let result = match message {
            M::Define { stream, run, rank, field, .. } => {
                let defined = self.coordinator(state, &stream).define(run, rank, field);
                defined.map(|effects| self.apply(state, &stream, effects))
            }
            M::SetAttr { stream, run, field, key, attr, .. } => {
                self.coordinator(state, &stream).set_attr(run, field.as_deref(), &key, attr)
            }
            _ => return,
        };
        self.tell(state, from, M::Done { token, result });
    }

    /// A home tells the coordinator what its ranks have done.
    fn on_told_of_ranks(&self, state: &mut Components, from: ServerId, message: streams::Message) {
        use streams::Message as M;
        match message {
            M::JoinAbandoned { stream, run, rank } => {
                let effects = self.coordinator(state, &stream).on_join_abandoned(run, rank);
                self.apply(state, &stream, effects);
                self.forget_idle(state, &stream);
            }
            M::RankBegan { stream, run, rank, step } => {
                let effects = self.coordinator(state, &stream).on_step_begun(run, rank, step);
                self.apply(state, &stream, effects);
            }
            M::HighestBegun { stream, run, step } => {
                self.coordinator(state, &stream).note_highest_step_left(run, step);
                self.forget_idle(state, &stream);
            }
            M::StepEnded { stream, run, rank, ended, copied } => {
                let ended = Arc::unwrap_or_clone(ended);
                let coordinator = self.coordinator(state, &stream);
                if copied {
                    coordinator.on_step_replicated(run, rank, ended.step);
                }
                let effects = coordinator.on_step_ended(run, rank, from, ended);
                self.apply(state, &stream, effects);
            }
            M::RankGone { stream, run, rank, end } => {
                let effects = self.coordinator(state, &stream).on_rank_gone(run, rank, end);
                self.apply(state, &stream, effects);
                self.look_at_driven(state, Some(&stream));
            }
            M::RankMoves { stream, run, rank } => {
                self.coordinator(state, &stream).on_rank_released(run, rank, from);
            }
            M::BlocksStranded { id, rank } => {
                let effects =
                    self.coordinator(state, &id.stream).on_stranded_blocks(id.run, id.step, rank, from);
                self.apply(state, &id.stream, effects);
            }
            M::MemoryPressure { stream } => {
                let effects = self.coordinator(state, &stream).on_memory_pressure();
                self.apply(state, &stream, effects);
            }
            M::CutPrepared { stream, version, highest } => {
                let effects = self.coordinator(state, &stream).on_prepared(from, version, highest);
                self.apply(state, &stream, effects);
                self.agreed.notify_waiters();
            }
            _ => {}
        }
    }

    /// A stream's coordinator tells a home of ranks.
    fn on_told_by_coordinator(&self, state: &mut Components, from: ServerId, message: streams::Message) {
        use streams::Message as M;
        match message {
            M::PrepareCut { stream, run, version } => {
                let highest = state.ranks.on_prepare_cut(&stream, run, version);
                self.tell(state, from, M::CutPrepared { stream, version, highest });
            }
            M::Cut { stream, run, from: first, demand } => {
                state.ranks.on_cut(&stream, run, first, demand);
            }
            M::Cuts { stream, run, demand, cuts, agreeing } => {
                state.ranks.on_cuts(&stream, run, (demand, cuts), agreeing);
            }
            M::RankFailed { stream, run, rank, error } => {
                state.ranks.defer_error(&(stream, run, rank), error);
            }
            _ => {}
        }
    }

    /// A server tells of ranks of a stream that this one does not coordinate. It waits until it is known who does. If another
    /// one does, the sender hears so from that one, and tells it all again; if none does, the stream is forgotten.
    fn not_coordinated(&self, state: &mut Components, from: ServerId, message: streams::Message) {
        let place = message.tells_coordinator().map(|stream| self.place_of(state, stream));
        if place == Some(None) && !state.locations.defer(from, message) {
            tracing::warn!("what {from} tells is lost: too much waits for the group to know its view");
        }
    }

    /// Ranks that lost their home server are given up when they have not come back for too long.
    pub(crate) fn look_for_the_lost(&self) {
        let mut state = self.state.lock();
        let streams: Vec<String> = state.coordination.streams();
        for stream in streams {
            let effects = self.coordinator(&mut state, &stream).give_up_overdue();
            if !effects.is_empty() {
                self.apply(&mut state, &stream, effects);
            }
        }
        self.look_at_driven(&mut state, None);
        self.drain(&mut state);
    }

    /// Another server died: nothing is awaited from it any more. What it coordinated, another one does in the next view.
    pub(crate) fn peer_gone(&self, peer: ServerId) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.common.members.note_gone(peer) {
            return;
        }
        if state.common.members.leaves(peer) {
            tracing::info!("{peer} has left");
        } else {
            tracing::warn!("{peer} is gone");
        }
        let streams: Vec<String> = state.coordination.streams();
        for stream in streams {
            let effects = self.coordinator(state, &stream).on_server_gone(peer);
            self.apply(state, &stream, effects);
        }
        state.coordination.on_server_gone(peer);
        self.replicas_backup_lost(state, peer);
        self.registrations_peer_gone(state, peer);
        state.common.questions.on_server_gone(peer);
        self.agreed.notify_waiters();
        self.space_peer_gone(state, peer);
        self.pipelines_peer_gone(state, peer);
        self.subscriptions_peer_gone(state, peer);
        self.read_from.forget(peer);
        self.space_readers.forget(peer);
        self.places_told(state);
        self.drain(state);
    }
}

/// The error for a question that cannot wait until it is known who coordinates its stream.
fn too_much_waits() -> Error {
    Error::conflict("too much is asked while the group changes: try again")
}
