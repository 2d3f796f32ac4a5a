//! What each message between servers does to a server's state.

use crate::node::{Attached, LocalRank, Node, State};
use crate::silence::ToDo;
use forebay_core::cut::Cuts;
use forebay_core::demand::Demand;
use forebay_core::error::{Error, ErrorKind};
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, Effect, Joined, StepReport, StreamCoordinator};
use forebay_wire::frame::{BODY_MAX, encoded_bytes};
use forebay_wire::message::ToClient;
use forebay_wire::peer::{JoinedRun, PeerMessage};
use std::sync::Arc;

/// How many streams that nobody uses any more are remembered, for `forebay ls`.
const IDLE_MAX: usize = 256;
/// How many bytes of earlier demands a rank's home is told when the rank joins: they travel in one message.
const CUTS_TOLD_MAX: usize = BODY_MAX / 2;

impl Node {
    /// The coordinator of a stream, made at first use.
    pub(crate) fn coordinator<'a>(&self, state: &'a mut State, stream: &str) -> &'a mut StreamCoordinator {
        if !state.coordinators.contains_key(stream) {
            let standing = self.standing();
            let members = standing.view.members.iter().copied().filter(|id| !state.gone.contains(id));
            // What other servers still know of a forgotten stream of this name must not be taken for the new one's.
            let made = StreamCoordinator::new(stream, members.collect())
                .with_runs_after(state.forgotten_run)
                .with_versions_after(self.unique());
            state.coordinators.insert(stream.to_owned(), made);
            tracing::info!("this server coordinates stream '{stream}' from now on");
        }
        state
            .coordinators
            .entry(stream.to_owned())
            .or_insert_with(|| StreamCoordinator::new(stream, Vec::new()))
    }

    /// Handles one message; what follows from it is queued.
    pub(crate) fn handle(&self, state: &mut State, from: ServerId, message: PeerMessage) {
        use PeerMessage as M;
        if message.tells_coordinator().is_some_and(|stream| !state.coordinators.contains_key(stream)) {
            return self.not_coordinated(state, from, message);
        }
        match message {
            M::Join { token, stream, rank, options, back_to } => {
                // A rank that comes first would begin another run while one is still told of.
                let telling = state.coordinators.get(&stream).is_some_and(|stream| stream.is_taking_over());
                let place = self.place_of(state, &stream).filter(|_| back_to.is_some() || !telling);
                match place {
                    Some(server) if server == self.id => {}
                    Some(server) => {
                        self.tell(state, from, M::AskInstead { token, server });
                        return;
                    }
                    None => {
                        let join = M::Join { token, stream, rank, options, back_to };
                        return self.defer(state, from, token, join);
                    }
                }
                if let Some(back_to) = &back_to
                    && !self.may_come_back(state, &stream, back_to.run, rank)
                {
                    // What others tell of the rank in the place of its former home goes before what the new one will tell.
                    let error =
                        Error::unreachable("a server has gone, and not all others have told what it knew");
                    self.tell(state, from, M::Joined { token, stream, rank, result: Err(error) });
                    return;
                }
                let coordinator = self.coordinator(state, &stream);
                let joined = match back_to {
                    None => coordinator.join(rank, from, options.clone()),
                    Some(back_to) => {
                        coordinator.come_back(rank, from, options.clone(), back_to, self.epoch())
                    }
                };
                let result = match joined {
                    Ok((joined, effects)) => {
                        // The answer goes first: a decision that follows must find the run there.
                        let (demand, cuts) = cuts_to_tell(&joined.cuts);
                        let Joined { run, agreeing, below, .. } = joined;
                        let result = Ok(JoinedRun { run, options, demand, cuts, agreeing, below });
                        self.tell(state, from, M::Joined { token, stream: stream.clone(), rank, result });
                        self.apply(state, &stream, effects);
                        if self.all_told(state) {
                            self.settle(state, &stream);
                        }
                        return;
                    }
                    Err(error) => Err(error),
                };
                self.tell(state, from, M::Joined { token, stream, rank, result });
            }
            M::Joined { token, stream, rank, result } => {
                let Some(pending) = state.pending.remove(&token) else {
                    // It came too late: nobody would ever say that this rank has left.
                    if let Ok(JoinedRun { run, .. }) = result {
                        let coordinator = self.coordinator_of(state, &stream);
                        self.tell(state, coordinator, M::NeverCame { stream, run, rank });
                    }
                    return;
                };
                if let Ok(JoinedRun { run, options, demand, cuts, agreeing, .. }) = &result {
                    // It coordinates the stream, also if the view has changed meanwhile.
                    if !state.gone.contains(&from) {
                        self.note_place(state, &pending.stream, from);
                    }
                    let member = state.members.entry(pending.stream.clone()).or_default();
                    let cuts = Cuts::from_parts(demand.clone(), cuts.clone());
                    member.cut.open_run(*run, cuts, *agreeing);
                    member.ranks.insert((*run, pending.rank), LocalRank::default());
                    state.ledger.joined(&pending.stream, *run, pending.rank, options.clone());
                }
                let _ = pending.reply.send(M::Joined { token, stream, rank, result });
            }
            M::AskInstead { token, server } => {
                if let Some(pending) = state.pending.remove(&token) {
                    let _ = pending.reply.send(M::AskInstead { token, server });
                }
            }
            M::Leaves { token, may_go } => self.leaves(state, from, token, may_go),
            M::Stays => self.stays(state, from),
            M::GroupEnds => self.group_ends(from),
            M::Coordinates { epoch, streams, arenas } => {
                self.coordinates(state, from, epoch, streams, arenas);
            }
            M::GuardRun { stream, coordinator, told } => {
                self.guard_run(state, from, &stream, coordinator, *told);
            }
            M::Keep { token, keep } => self.keep_for(state, from, token, keep),
            M::GuardNoMore(arena) => self.guard_no_more(state, from, arena),
            M::KeepNoMore { token, id } => self.guarded_no_more(state, from, token, id),
            M::RunOver { stream, run } => {
                state.ledger.over(&stream, run);
                state.guarded.values_mut().for_each(|guarded| guarded.run_over(&stream, run));
            }
            M::GuardedRankGone { stream, run, rank, died } => {
                if let Some(guarded) = state.guarded.get_mut(&from) {
                    guarded.rank_gone(&stream, run, rank, died);
                }
            }
            M::CoordinatesNoMore { stream } => self.coordinates_no_more(state, from, &stream),
            M::NeverCame { stream, run, rank } => {
                let effects = self.coordinator(state, &stream).never_came(run, rank);
                self.apply(state, &stream, effects);
                self.forget_idle(state, &stream);
            }
            // The rank's home knows a view that has the stream here; it may be elsewhere all the same.
            M::Define { token, ref stream, .. } | M::SetAttr { token, ref stream, .. }
                if self.place_of(state, stream) != Some(self.id) =>
            {
                match self.place_of(state, stream) {
                    Some(server) => drop(self.tell(state, from, M::AskInstead { token, server })),
                    None => self.defer(state, from, token, message),
                }
            }
            // The rank's home may learn of this coordinator before it has told it of the run.
            M::Define { token, ref stream, run, .. } | M::SetAttr { token, ref stream, run, .. }
                if self.coordinator(state, stream).is_still_to_be_told(run) =>
            {
                self.defer(state, from, token, message);
            }
            M::Define { token, stream, run, rank, field } => {
                let result = self.coordinator(state, &stream).define(run, rank, field);
                self.tell(state, from, M::Answer { token, result });
            }
            M::Heard { token, .. } => {
                self.tell(state, from, M::Answer { token, result: Ok(()) });
            }
            M::SetAttr { token, stream, run, field, key, attr } => {
                let result = self.coordinator(state, &stream).set_attr(run, field.as_deref(), &key, attr);
                self.tell(state, from, M::Answer { token, result });
            }
            M::Answer { token, result } => {
                // Answers about what a rank has ended, or what was freed, are nobody's to wait for.
                if self.step_registered(state, token, Vec::new(), None)
                    || self.kept_no_more(state, from, token)
                {
                    return;
                }
                if let Some(pending) = state.pending.remove(&token) {
                    let _ = pending.reply.send(M::Answer { token, result });
                }
            }
            M::Begun { stream, run, rank, step } => {
                let effects = self.coordinator(state, &stream).begun(run, rank, step);
                self.apply(state, &stream, effects);
            }
            M::Reached { stream, run, step } => {
                self.coordinator(state, &stream).reached(run, step);
                self.forget_idle(state, &stream);
            }
            M::StepEnded { stream, run, rank, ended, copied } => {
                let ended = Arc::unwrap_or_clone(ended);
                let coordinator = self.coordinator(state, &stream);
                if copied {
                    coordinator.has_copies(run, rank, ended.step);
                }
                let effects = coordinator.step_ended(run, rank, from, ended);
                self.apply(state, &stream, effects);
            }
            M::RankGone { stream, run, rank, died } => {
                let effects = self.coordinator(state, &stream).rank_gone(run, rank, died);
                self.apply(state, &stream, effects);
                self.look_at_driven(state, Some(&stream));
            }
            M::RankMoves { stream, run, rank } => {
                self.coordinator(state, &stream).rank_moves(run, rank, from);
            }
            M::Stranded { id, rank } => {
                let effects = self.coordinator(state, &id.stream).stranded(id.run, id.step, rank, from);
                self.apply(state, &id.stream, effects);
            }
            M::Pressure { stream } => {
                let effects = self.coordinator(state, &stream).pressure();
                self.apply(state, &stream, effects);
            }
            M::Drive { token, drive } => self.handle_drive(state, from, token, drive),
            M::Driven { token, result } => {
                if let Some(pending) = state.pending.remove(&token) {
                    let _ = pending.reply.send(M::Driven { token, result });
                }
            }
            M::Prepare { stream, run, version } => {
                let highest = state.members.get_mut(&stream).and_then(|member| {
                    member.must_ask(run);
                    member.cut.prepare(run, version)
                });
                self.tell(state, from, M::Prepared { stream, version, highest });
            }
            M::Prepared { stream, version, highest } => {
                let effects = self.coordinator(state, &stream).prepared(from, version, highest);
                self.apply(state, &stream, effects);
                self.agreed.notify_waiters();
            }
            M::Decide { stream, run, from: first, demand } => {
                if let Some(member) = state.members.get_mut(&stream) {
                    member.cut.decide(run, first, Arc::new(demand));
                    member.changed.notify_waiters();
                    state.ledger.demand_changed(&stream, run);
                }
            }
            M::StepRegister { token, id, owned, held } => {
                self.step_register(state, from, token, id, (owned, held));
            }
            M::StepRegistered { token, refused, error } => {
                self.step_registered(state, token, refused, error);
            }
            M::StepUnregister { token, id, blocks } => {
                self.step_unregister(state, from, token, &id, &blocks);
            }
            M::Cuts { stream, run, demand, cuts, agreeing } => {
                if let Some(member) = state.members.get_mut(&stream) {
                    // Whatever was in force before may not be any more.
                    member.must_ask(run);
                    member.cut.move_run(run, Cuts::from_parts(demand, cuts), agreeing);
                    member.changed.notify_waiters();
                    state.ledger.demand_changed(&stream, run);
                }
            }
            M::Free { id, unseen_before } => self.free_step(state, &id, unseen_before),
            M::Attachment { stream, id, record } => self.told_of_attachment(state, from, &stream, id, record),
            M::InheritAttachment { epoch, stream, id, record } => {
                self.inherit_attachment(state, from, epoch, stream, (id, *record));
            }
            M::Inherit { epoch, stream, told } => self.inherit(state, from, epoch, stream, *told),
            M::Holds { epoch, stream, steps } => self.told_again(state, from, epoch, &stream, steps),
            M::CoordinatedBy { stream, server } => self.coordinated_by(state, stream, server),
            M::RankError { stream, run, rank, error } => {
                let rank =
                    state.members.get_mut(&stream).and_then(|member| member.ranks.get_mut(&(run, rank)));
                if let Some(rank) = rank {
                    rank.note(error);
                }
            }
            M::StepKnow { id, owned } => self.step_know(state, &id, owned),
            M::SpaceRegister { .. } => self.space_register(state, from, message),
            M::SpaceKnow { step, description, report } => {
                self.space_know(state, from, step, description, report);
            }
            M::SpaceRegistered { token, result } => self.space_registered(state, token, result),
            M::SpaceUnregister { field, step, blocks } => self.space_unregister(state, field, step, blocks),
            M::SpaceRevoke { token, description } => self.space_revoke(state, from, token, description),
            M::SpaceForget { token, field, step, description } => {
                self.space_forget(state, field, step, description);
                self.tell(state, from, M::Answer { token, result: Ok(()) });
            }
            M::SpaceFree { token, locations } => self.space_free_held(state, (from, token), &locations),
            M::SpaceFreed(token) => self.space_freed(state, from, token),
            M::StartPipeline { .. }
            | M::StopPipeline { .. }
            | M::WorkerReady { .. }
            | M::WorkerGone { .. }
            | M::Execute { .. }
            | M::Executed { .. }
            | M::Released { .. }
            | M::WorkerLeaves { .. }
            | M::PipelineWas { .. }
            | M::InheritPipeline { .. } => self.handle_pipeline(state, from, message),
            // If too much of it waits, it is lost, as datagrams may be.
            M::Gossip(said) => drop(self.watching.try_send(ToDo::Hear(from, said))),
            // Their connections take these by themselves.
            M::AreYouThere(_)
            | M::IAmThere(_)
            | M::Guard { .. }
            | M::JoinGroup(_)
            | M::WhichRoster
            | M::Admitted(_)
            | M::Membership(_) => {}
        }
    }

    /// A question waits until it is known who coordinates its stream.
    fn defer(&self, state: &mut State, from: ServerId, token: u64, question: PeerMessage) {
        if !state.places.defer(from, question) {
            let error = Error::conflict("too much is asked while the group changes: try again");
            self.tell(state, from, PeerMessage::Answer { token, result: Err(error) });
        }
    }

    /// A server tells of ranks of a stream that this one does not coordinate. It waits until it is known who does. If another
    /// one does, the sender hears so from that one, and tells it all again; if none does, the stream is forgotten.
    fn not_coordinated(&self, state: &mut State, from: ServerId, message: PeerMessage) {
        let place = message.tells_coordinator().map(|stream| self.place_of(state, stream));
        if place == Some(None) && !state.places.defer(from, message) {
            tracing::warn!("what {from} tells is lost: too much waits for the group to know its view");
        }
    }

    /// Ranks that lost their home server are given up when they have not come back for too long.
    pub(crate) fn look_for_the_lost(&self) {
        let mut state = self.state.lock();
        let streams: Vec<String> = state.coordinators.keys().cloned().collect();
        for stream in streams {
            let effects = self.coordinator(&mut state, &stream).look_for_the_lost();
            if !effects.is_empty() {
                self.apply(&mut state, &stream, effects);
            }
        }
        self.look_at_driven(&mut state, None);
        self.drain(&mut state);
    }

    /// Does what a stream's coordinator says must be done.
    pub(crate) fn apply(&self, state: &mut State, stream: &str, effects: Vec<Effect>) {
        let name = || stream.to_owned();
        for effect in effects {
            match effect {
                Effect::Prepare { run, version } => {
                    for server in self.standing().view.members.iter().copied() {
                        if !self.tell(state, server, PeerMessage::Prepare { stream: name(), run, version }) {
                            let effects = self.coordinator(state, stream).prepared(server, version, None);
                            self.apply(state, stream, effects);
                        }
                    }
                }
                Effect::Decide(decision) => {
                    for server in self.standing().view.members.iter().copied() {
                        let demand = (*decision.demand).clone();
                        let decide = PeerMessage::Decide {
                            stream: name(),
                            run: decision.run,
                            from: decision.from,
                            demand,
                        };
                        self.tell(state, server, decide);
                    }
                }
                Effect::Deliver(attachment, report) => {
                    self.deliver(state, stream, attachment, report);
                }
                Effect::Ended(attachment, missed) => {
                    if let Some(Attached::Consumer { outbox }) = state.attachments.get(&attachment) {
                        self.tell_client(outbox, &ToClient::Ended { attachment, missed });
                    }
                }
                Effect::Attachment(id, record) => self.tell_of_attachment(state, stream, id, record),
                Effect::Failed(attachment, error) => match state.attachments.remove(&attachment) {
                    Some(Attached::Consumer { outbox }) => {
                        self.tell_client(&outbox, &ToClient::Detached { attachment, error });
                    }
                    Some(Attached::Pipeline { name }) => self.pipeline_failed(state, &name, &error),
                    None => {}
                },
                Effect::Free { id, servers, unseen_before } => {
                    for server in servers {
                        self.tell(state, server, PeerMessage::Free { id: id.clone(), unseen_before });
                    }
                }
                Effect::Cuts { run, cuts, agreeing } => {
                    for server in self.standing().view.members.iter().copied() {
                        let (stream, (demand, cuts)) = (name(), cuts_to_tell(&cuts));
                        self.tell(state, server, PeerMessage::Cuts { stream, run, demand, cuts, agreeing });
                    }
                }
                Effect::Over(run) => {
                    for server in self.standing().view.members.iter().copied() {
                        self.tell(state, server, PeerMessage::RunOver { stream: name(), run });
                    }
                }
                Effect::RankError { server, run, rank, error } => {
                    self.tell(state, server, PeerMessage::RankError { stream: name(), run, rank, error });
                }
            }
        }
        self.forget_idle(state, stream);
    }

    /// Tells an attachment of a step.
    fn deliver(&self, state: &mut State, stream: &str, attachment: AttachmentId, report: Box<StepReport>) {
        match state.attachments.get(&attachment).cloned() {
            Some(Attached::Consumer { outbox }) => {
                let id = report.id.clone();
                let (run, step) = (id.run, id.step);
                let told = outbox.push(self.header(0), &ToClient::Step { attachment, report });
                if let Err(error) = told
                    && error.kind == ErrorKind::Invalid
                {
                    // The step's blocks fill more than one message: its reader would wait for ever.
                    let error = error.during(id.to_string());
                    let coordinator = self.coordinator(state, stream);
                    let effects = coordinator.fail(attachment, error, Some((run, step)));
                    self.apply(state, stream, effects);
                }
            }
            Some(Attached::Pipeline { name }) => self.pipeline_step(state, &name, *report),
            None => {
                // It failed at a step before this one: nobody will release what was not told.
                let (run, step) = (report.id.run, report.id.step);
                let effects = self.coordinator(state, stream).release(attachment, run, step, false);
                self.apply(state, stream, effects);
            }
        }
    }

    /// Forgets a stream that nobody uses any more, if it never ran or too many others were used since.
    pub(crate) fn forget_idle(&self, state: &mut State, stream: &str) {
        let Some(idle) = state.coordinators.get(stream).filter(|found| found.is_idle()) else { return };
        if idle.last_run().is_none() {
            return self.forget_stream(state, stream);
        }
        state.idle.retain(|known| known != stream);
        state.idle.push_back(stream.to_owned());
        while state.idle.len() > IDLE_MAX {
            let Some(oldest) = state.idle.pop_front() else { break };
            let last_run = state.coordinators.get(&oldest).filter(|found| found.is_idle());
            if let Some(run) = last_run.and_then(StreamCoordinator::last_run) {
                state.forgotten_run = state.forgotten_run.max(run);
                self.forget_stream(state, &oldest);
            }
        }
    }

    fn forget_stream(&self, state: &mut State, stream: &str) {
        state.coordinators.remove(stream);
        if state.places.elsewhere.get(stream) == Some(&self.id) {
            state.places.elsewhere.remove(stream);
        }
        for server in self.standing().view.members.iter().filter(|id| **id != self.id) {
            self.tell(state, *server, PeerMessage::CoordinatesNoMore { stream: stream.to_owned() });
        }
    }

    /// Another server died: nothing is awaited from it any more. What it coordinated, another one does in the next view.
    pub(crate) fn peer_gone(&self, peer: ServerId) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.gone.contains(&peer) {
            return;
        }
        if state.leaving.others.contains(&peer) {
            tracing::info!("{peer} has left");
        } else {
            tracing::warn!("{peer} is gone");
        }
        state.gone.push(peer);
        let streams: Vec<String> = state.coordinators.keys().cloned().collect();
        for stream in streams {
            let effects = self.coordinator(state, &stream).server_gone(peer);
            self.apply(state, &stream, effects);
        }
        self.keep_without(state, peer);
        self.endings_peer_gone(state, peer);
        let lost: Vec<u64> = state
            .pending
            .iter()
            .filter(|(_, pending)| pending.server == peer)
            .map(|(token, _)| *token)
            .collect();
        for token in lost {
            // Dropping the sender ends the wait.
            state.pending.remove(&token);
        }
        self.agreed.notify_waiters();
        self.space_peer_gone(state, peer);
        self.pipelines_peer_gone(state, peer);
        self.places_told(state);
        self.drain(state);
    }
}

/// An error with which a pipeline's worker is told to be gone.
pub(crate) fn worker_gone(pipeline: &str, server: ServerId, why: &str) -> Error {
    Error::unreachable(format!("the worker of pipeline '{pipeline}' on {server} is gone: {why}"))
}

/// From which step each demand holds, as far as it fits into a message: no rank is likely to begin steps from the time of
/// the oldest.
pub(crate) fn cuts_to_tell(cuts: &Cuts) -> (Demand, Vec<(StepNumber, Demand)>) {
    let (demand, mut cuts) = cuts.to_parts();
    while encoded_bytes(&cuts).unwrap_or(0) > CUTS_TOLD_MAX {
        cuts.remove(0);
    }
    (demand, cuts)
}
