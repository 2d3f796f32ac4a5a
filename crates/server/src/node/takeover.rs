//! A stream's coordinator has died: the homes of the stream's ranks tell the server that takes its place what they had told
//! that one, and servers with workers of a pipeline tell of that. All of it goes before what else they tell of the stream.

use super::{Components, Node};
use forebay_core::ids::{Epoch, RunNumber, STATIC_STEP, ServerId, StepId, StepNumber};
use forebay_core::seeded::{Bug, seeded};
use forebay_core::steps::{AttachmentId, AttachmentRecord, RankLedger, RunReport, StepContribution};
use forebay_wire::peer::streams;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many steps of a rank are kept for a coordinator that is still to be found.
const UNTOLD_MAX: usize = 4096;

impl Components {
    /// The streams of which this server knows ranks, steps, workers or attachments.
    pub(crate) fn known_streams(&self) -> BTreeSet<String> {
        let held = self.holdings.steps().chain(self.directory.owner.steps()).map(|id| &id.stream);
        let ranks = self.ranks.streams().chain(self.ranks.ledger().streams());
        let workers = self.pipelines.workers().streams();
        let replicated = self.replication.backups.streams();
        let attached = self.attachments.streams();
        let watched = self.subscriptions.streams();
        held.chain(ranks).chain(workers).chain(replicated).chain(attached).chain(watched).cloned().collect()
    }
}

impl Node {
    /// The known streams that these servers coordinated. Others may have told of them already.
    pub(crate) fn streams_coordinated_by(&self, state: &Components, servers: &[ServerId]) -> Vec<String> {
        let taking_over = |stream: &str| state.coordination.is_taking_over(stream);
        let theirs = |stream: &String| {
            let moved = state.locations.was_coordinated_by(stream, servers);
            moved || taking_over(stream) || servers.contains(&self.coordinator_of(state, stream))
        };
        state.known_streams().into_iter().filter(theirs).collect()
    }

    /// Tells the server that coordinates a stream now all that this one knows of it.
    pub(crate) fn tell_again(&self, state: &mut Components, stream: &str) {
        let epoch = self.epoch();
        let to = self.coordinator_of(state, stream);
        let mut messages = self.inherited_attachments(state, epoch, stream);
        messages.extend(known_of_runs(state, epoch, stream));
        let known =
            state.holdings.steps().chain(state.directory.owner.steps()).filter(|id| id.stream == stream);
        let steps: BTreeSet<(RunNumber, StepNumber)> = known.map(|id| (id.run, id.step)).collect();
        let steps = steps.into_iter().collect();
        messages.push(streams::Message::StepsHeld { epoch, stream: stream.to_owned(), steps });
        tracing::info!("{to} coordinates stream '{stream}' now: it is told {} messages", messages.len());
        for message in messages {
            self.tell(state, to, message);
        }
        self.tell_workers_again(state, stream, to);
        self.tell_copies_again(state, stream, to);
    }

    /// A rank has ended a step, which has as many copies as it is to have or not: tells its stream's coordinator, and whichever
    /// takes that one's place.
    pub(crate) fn tell_ended(
        &self,
        state: &mut Components,
        (stream, run, rank): (String, RunNumber, u32),
        ended: Arc<StepContribution>,
        copied: bool,
    ) {
        let coordinator = self.coordinator_of(state, &stream);
        let key = (stream, run, rank);
        let kept = state.ranks.on_ended(&key, ended.clone(), copied);
        let (stream, run, rank) = key;
        let id = StepId { stream: stream.clone(), run, step: ended.step };
        let told =
            self.tell(state, coordinator, streams::Message::StepEnded { stream, run, rank, ended, copied });
        if !told && (self.is_too_far_behind(state, coordinator) || kept > UNTOLD_MAX) {
            // Nobody will ever read it.
            self.forget_step(state, &id);
        }
    }

    /// The server that coordinates a stream, if this one does not although it did so in this epoch, or it is known that
    /// another one has since.
    pub(crate) fn elsewhere(&self, state: &Components, epoch: Epoch, stream: &str) -> Option<ServerId> {
        let known = epoch <= self.epoch();
        self.place_of(state, stream).filter(|place| known && *place != self.id)
    }

    /// A home tells of a run of a stream whose coordinator has died.
    pub(crate) fn inherit(
        &self,
        state: &mut Components,
        from: ServerId,
        epoch: Epoch,
        stream: String,
        told: RunReport,
    ) {
        if let Some(server) = self.elsewhere(state, epoch, &stream) {
            self.tell(state, from, streams::Message::CoordinatedBy { stream, server });
            return;
        }
        state.locations.note_heard_of(epoch);
        let run = told.run;
        if let Err(error) = self.coordinator(state, &stream).on_run_report(from, epoch, told) {
            tracing::warn!("what {from} tells of stream '{stream}' is not taken over: {error}");
        }
        state.coordination.inherit_counts(&stream, run);
    }

    /// A server tells of an attachment of a stream whose coordinator has died.
    pub(crate) fn inherit_attachment(
        &self,
        state: &mut Components,
        from: ServerId,
        epoch: Epoch,
        stream: String,
        (id, record): (AttachmentId, AttachmentRecord),
    ) {
        if self.elsewhere(state, epoch, &stream).is_some() {
            return;
        }
        state.locations.note_heard_of(epoch);
        if let Err(error) = self.coordinator(state, &stream).on_attachment_report(epoch, id, record) {
            tracing::warn!("what {from} tells of a reader of stream '{stream}' is not taken over: {error}");
        }
    }

    /// A server has told all that it knows of a stream whose coordinator has died.
    pub(crate) fn told_again(
        &self,
        state: &mut Components,
        from: ServerId,
        epoch: Epoch,
        stream: &str,
        steps: Vec<(RunNumber, StepNumber)>,
    ) {
        if self.elsewhere(state, epoch, stream).is_some() {
            return;
        }
        state.locations.note_heard_of(epoch);
        state.coordination.note_told_by(stream, from);
        let coordinated = state.coordination.has(stream);
        if !coordinated && !self.all_told(state) {
            // Others may have more to tell of it.
            self.coordinator(state, stream).take_over(epoch);
        }
        let coordinator = self.coordinator(state, stream);
        if !coordinated {
            coordinator.begin_term(epoch);
        }
        let effects = coordinator.on_blocks_held(from, steps);
        self.apply(state, stream, effects);
        self.settle_if_told(state, stream);
    }

    /// A server was to take over a stream, and has named this one to those who told it, since the next view had come
    /// meanwhile. They tell this one at any time, also when all have told what follows from the view: all are asked, so that
    /// it is known when all is known.
    pub(crate) fn on_named(&self, state: &mut Components, epoch: Epoch, stream: &str) {
        let goes_on = state.coordination.has(stream) && !state.coordination.is_taking_over(stream);
        let asked = goes_on || state.coordination.collects(stream) || seeded(Bug::SettlesWhatComesLate);
        if asked || self.elsewhere(state, epoch, stream).is_some() {
            return;
        }
        state.locations.note_heard_of(epoch);
        let others = self.others(state);
        self.coordinator(state, stream).take_over(epoch);
        state.coordination.collect(stream, others.iter().copied());
        for server in others {
            self.tell(state, server, streams::Message::TellAgain { stream: stream.to_owned() });
        }
    }

    /// A server that has taken over a stream wants to be told of it.
    pub(crate) fn on_tell_again(&self, state: &mut Components, from: ServerId, stream: String) {
        if state.coordination.has(&stream) {
            let server = self.id;
            self.tell(state, from, streams::Message::CoordinatedBy { stream, server });
            return;
        }
        state.locations.note(&stream, from);
        self.tell_again(state, &stream);
    }

    /// A stream goes on if all has been told that is known of it.
    pub(crate) fn settle_if_told(&self, state: &mut Components, stream: &str) {
        if self.all_told(state) && !state.coordination.collects(stream) {
            self.settle(state, stream);
        }
    }

    /// All members have told: streams whose coordinator has died go on, and so does what waited to be decided.
    pub(crate) fn settle_all(&self, state: &mut Components) {
        if !self.all_told(state) {
            return;
        }
        let streams: Vec<String> = state.coordination.streams();
        for stream in streams {
            let effects = self.coordinator(state, &stream).on_all_reported();
            if !effects.is_empty() {
                self.apply(state, &stream, effects);
                self.agreed.notify_waiters();
            }
        }
        let telling = state.coordination.all().filter(|(_, stream)| stream.is_taking_over());
        let telling: Vec<String> = telling.map(|(stream, _)| stream.clone()).collect();
        for stream in telling {
            self.settle_if_told(state, &stream);
        }
        // They know at which steps pipelines are still to run.
        self.settle_subscriptions(state);
        self.settle_pipelines(state);
    }

    /// What was known of a stream has been told: it goes on.
    pub(crate) fn settle(&self, state: &mut Components, stream: &str) {
        let effects = self.coordinator(state, stream).settle(|| AttachmentId(self.unique()));
        self.apply(state, stream, effects);
        self.agreed.notify_waiters();
        // Ranks that join, until now.
        state.common.queue_all(state.locations.take_deferred());
    }

    /// Another server coordinates a stream that homes have told this one of: they are to tell that one.
    pub(crate) fn yield_to(&self, state: &mut Components, stream: &str, server: ServerId) {
        let Some(taking_over) = state.coordination.get(stream).filter(|found| found.is_taking_over()) else {
            return;
        };
        let homes: Vec<ServerId> = taking_over.reported_homes().collect();
        state.coordination.remove(stream);
        state.pipelines.on_coordinated_elsewhere(stream);
        state.subscriptions.on_coordinated_elsewhere(stream);
        self.agreed.notify_waiters();
        state.common.queue_all(state.locations.take_deferred());
        for home in homes {
            self.tell(state, home, streams::Message::CoordinatedBy { stream: stream.to_owned(), server });
        }
    }

    /// A server that was told of a stream says that another one coordinates it.
    pub(crate) fn coordinated_by(&self, state: &mut Components, stream: String, server: ServerId) {
        if state.common.members.is_gone(server) || self.coordinator_of(state, &stream) == server {
            return;
        }
        self.yield_to(state, &stream, server);
        state.locations.note(&stream, server);
        let epoch = self.epoch();
        self.tell(state, server, streams::Message::Named { epoch, stream: stream.clone() });
        self.tell_again(state, &stream);
    }
}

/// What a server knows of the runs of a stream, for who is to coordinate it.
pub(crate) fn known_of_runs(state: &Components, epoch: Epoch, stream: &str) -> Vec<streams::Message> {
    let mut messages = Vec::new();
    for (run, ledger) in state.ranks.ledger().runs_of(stream) {
        let cuts = state.ranks.cuts_of(stream, run);
        let known = Box::new(ledger.report(run, cuts));
        messages.push(streams::Message::TakeOverRun { epoch, stream: stream.to_owned(), known });
        let told = ledger.ranks().filter(|(_, told)| told.is_away() || !seeded(Bug::TellsOnlyOfRanksAway));
        told.for_each(|(rank, told)| tell_rank(stream, run, rank, told, &mut messages));
    }
    messages
}

/// What a coordinator is told of a rank: the steps that it has ended, and whether it is gone.
fn tell_rank(
    stream: &str,
    run: RunNumber,
    rank: u32,
    told: &RankLedger,
    messages: &mut Vec<streams::Message>,
) {
    let name = || stream.to_owned();
    // Static fields are known before the steps that have them.
    let statics = told.steps.get(&STATIC_STEP).into_iter();
    let steps = told.steps.range(..STATIC_STEP).map(|(_, ended)| ended);
    messages.extend(statics.chain(steps).cloned().map(|ended| {
        let copied = told.is_safe(ended.step);
        streams::Message::StepEnded { stream: name(), run, rank, ended, copied }
    }));
    messages.extend(told.gone.map(|end| streams::Message::RankGone { stream: name(), run, rank, end }));
}
