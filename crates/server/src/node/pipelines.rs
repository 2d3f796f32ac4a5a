//! Pipelines within a server: which of its events they are told of, and what follows from them for its streams.

use super::streams_at_hand::StreamsAtHand;
use super::{Components, Node};
use crate::context::Context;
use crate::pipelines::{
    Creation, LocalWorkers, Pipelines, WorkerHost, WorkerOutcome, WorkerStart, keep_alive,
};
use crate::questions::Answer;
use crate::shared::Shared;
use crate::streams::users::StreamEvent;
use forebay_cluster::failure::process::Process;
use forebay_core::ids::{Epoch, ServerId};
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::worker::Request;
use forebay_wire::drive::Drive;
use forebay_wire::execution::PipelineSpec;
use forebay_wire::peer::pipelines::Message;
use forebay_wire::peer::streams::Message as StreamsMessage;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the processes of workers may take to end when the server ends.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// How often it is looked whether they have ended.
const LOOK: Duration = Duration::from_millis(10);

impl Node {
    /// Tells the pipelines of an event, and then does what follows for streams.
    fn with_pipelines<T>(
        &self,
        state: &mut Components,
        event: impl FnOnce(&mut Pipelines, &mut Context<'_>, &mut StreamsAtHand<'_>) -> T,
    ) -> T {
        self.with_streams(state, |users, cx, streams| event(users.pipelines, cx, streams))
    }

    /// Tells the pipelines of an event from outside the server's own messages.
    fn tell_pipelines<T>(
        &self,
        event: impl FnOnce(&mut Pipelines, &mut Context<'_>, &mut StreamsAtHand<'_>) -> T,
    ) -> T {
        let mut state = self.state.lock();
        let result = self.with_pipelines(&mut state, event);
        self.drain(&mut state);
        result
    }

    /// A stream tells a pipeline something.
    pub(super) fn pipelines_stream_event(&self, state: &mut Components, event: StreamEvent) {
        self.with_pipelines(state, |pipelines, cx, streams| pipelines.on_stream_event(cx, streams, event));
    }

    /// A message about pipelines.
    pub(crate) fn on_pipelines(&self, state: &mut Components, from: ServerId, message: Message) {
        use Message as M;
        match message {
            M::StartWorker { creation, spec } => self.start_worker(state, from, creation, spec),
            M::StopWorker { pipeline, creation } => {
                state.pipelines.workers_mut().on_stop(&pipeline, creation)
            }
            M::Execute { pipeline, mut order } => {
                state.directory.holder.complete(&mut order.report);
                self.with_pipelines(state, |pipelines, cx, _| {
                    pipelines.workers_mut().on_execute(cx, from, pipeline, order);
                });
            }
            M::History { pipeline, creation, history } => {
                state.pipelines.workers_mut().on_history(&pipeline, creation, history);
            }
            M::TakeOverPipeline { epoch, creation, spec, member, history } => {
                if self.takes_over_from(state, (from, epoch), &spec.stream) {
                    self.with_pipelines(state, |pipelines, cx, streams| {
                        pipelines.on_take_over(cx, streams, from, (creation, spec), (member, history));
                    });
                }
            }
            M::Drive { token, drive } => self.drive_pipeline(state, from, token, drive),
            M::Driven { token, result } => state.common.questions.answer(token, Answer::Driven(result)),
            M::Redirect { token, server } => state.common.questions.answer(token, Answer::Redirect(server)),
            M::WorkerReady { .. }
            | M::WorkerGone { .. }
            | M::WorkerLeaves { .. }
            | M::Released { .. }
            | M::Executed { .. } => self.on_told_of_worker(state, from, message),
        }
    }

    /// A server tells of its worker.
    fn on_told_of_worker(&self, state: &mut Components, from: ServerId, message: Message) {
        use Message as M;
        self.with_pipelines(state, |pipelines, cx, streams| match message {
            M::WorkerReady { pipeline, creation, member, needs } if member.server == from => {
                pipelines.on_worker_ready(cx, streams, (&pipeline, creation), member, needs);
            }
            M::WorkerGone { pipeline, creation, error } => {
                pipelines.on_worker_gone(cx, streams, (&pipeline, creation), from, &error);
            }
            M::WorkerLeaves { pipeline, creation } => {
                pipelines.on_worker_leaves(cx, streams, (&pipeline, creation), from);
            }
            M::Released { pipeline, execution } => {
                pipelines.on_released(streams, (&pipeline, from), execution);
            }
            M::Executed { pipeline, execution, error, seconds } => {
                let outcome = WorkerOutcome { execution, error, seconds };
                pipelines.on_executed(cx, streams, (&pipeline, from), outcome);
            }
            // Of another server's worker than the sender's; the rest is not about workers.
            _ => {}
        });
    }

    /// Whether this server takes a stream over from a coordinator that has died, as another one tells it in this epoch; if a
    /// third one does, the sender is told so.
    fn takes_over_from(
        &self,
        state: &mut Components,
        (from, epoch): (ServerId, Epoch),
        stream: &str,
    ) -> bool {
        if let Some(server) = self.elsewhere(state, epoch, stream) {
            self.tell(state, from, StreamsMessage::CoordinatedBy { stream: stream.to_owned(), server });
            return false;
        }
        state.locations.note_heard_of(epoch);
        true
    }

    /// A rank of which another server is the home wants something of a pipeline: it is answered by whichever server
    /// coordinates the pipeline's stream, once that is known.
    fn drive_pipeline(&self, state: &mut Components, from: ServerId, token: u64, drive: Box<Drive>) {
        match self.place_of(state, &drive.stream) {
            Some(server) if server == self.id => {
                self.with_pipelines(state, |pipelines, cx, streams| {
                    pipelines.on_drive(cx, streams, (from, token), &drive);
                });
            }
            Some(server) => drop(self.tell(state, from, Message::Redirect { token, server })),
            None => {
                if !state.locations.defer(from, Message::Drive { token, drive }) {
                    let error = Error::unreachable("too many ranks ask while the group changes");
                    self.tell(state, from, Message::Driven { token, result: Err(error) });
                }
            }
        }
    }

    /// Ranks of a stream may have left, or time has passed: its pipelines that are driven go on.
    pub(crate) fn look_at_driven(&self, state: &mut Components, stream: Option<&str>) {
        self.with_pipelines(state, |pipelines, cx, streams| pipelines.on_ranks_changed(cx, streams, stream));
    }

    /// All servers have told of the workers beside them.
    pub(crate) fn settle_pipelines(&self, state: &mut Components) {
        self.with_pipelines(state, |pipelines, cx, streams| pipelines.settle(cx, streams));
    }

    /// A server died.
    pub(crate) fn pipelines_peer_gone(&self, state: &mut Components, peer: ServerId) {
        self.with_pipelines(state, |pipelines, cx, streams| pipelines.on_peer_gone(cx, streams, peer));
    }

    /// Servers have joined.
    pub(crate) fn pipelines_grow(&self, state: &mut Components, joined: &[ServerId]) {
        self.with_pipelines(state, |pipelines, cx, _| pipelines.on_servers_joined(cx, joined));
    }

    /// A server does not leave after all, maybe this one.
    pub(crate) fn pipelines_stay(&self, state: &mut Components, server: ServerId) {
        self.with_pipelines(state, |pipelines, cx, streams| pipelines.on_server_stays(cx, streams, server));
    }

    /// This server leaves: the others are told what was run of its pipelines.
    pub(crate) fn pipelines_pause(&self, state: &mut Components) {
        self.with_pipelines(state, |pipelines, cx, _| pipelines.tell_histories(cx));
    }

    /// This server leaves: its workers are to run nothing more.
    pub(crate) fn let_workers_go(&self) {
        self.tell_pipelines(|pipelines, cx, _| pipelines.workers().announce_leaving(cx));
    }

    /// Another server coordinates a stream: it is told of the workers of the stream's pipelines here.
    pub(crate) fn tell_workers_again(&self, state: &mut Components, stream: &str, to: ServerId) {
        self.with_pipelines(state, |pipelines, cx, _| pipelines.workers_mut().tell_again(cx, stream, to));
    }

    /// Creates a pipeline, for an administrator.
    pub(crate) fn create_pipeline(&self, mut spec: PipelineSpec) -> Result<Creation> {
        if let Some(subscription) = &spec.on {
            // Unless its code says otherwise it needs what is watched.
            let state = &mut self.state.lock();
            let needs = self.with_subscriptions(state, |all, _, streams| {
                all.needs_of(streams, &spec.stream, subscription)
            })?;
            spec.otherwise_needs = Some(needs);
        }
        self.tell_pipelines(|pipelines, cx, _| pipelines.create(cx, spec))
    }

    /// An administrator waits no more for a pipeline to be ready.
    pub(crate) fn pipeline_given_up(&self, name: &str, creation: u64, error: &Error) {
        self.tell_pipelines(|pipelines, cx, streams| {
            pipelines.on_given_up(cx, streams, (name, creation), error);
        });
    }

    /// Ends a pipeline and its workers, for an administrator.
    pub(crate) fn destroy_pipeline(&self, name: &str) -> Result<()> {
        self.tell_pipelines(|pipelines, cx, streams| pipelines.destroy(cx, streams, name))
    }

    /// Starts a worker, and again whenever it dies, until it is stopped.
    fn start_worker(&self, state: &mut Components, coordinator: ServerId, creation: u64, spec: PipelineSpec) {
        let stream = spec.stream.clone();
        let start = state.pipelines.workers_mut().on_start(coordinator, creation, spec);
        if self.standing().view.members.contains(&coordinator) {
            self.note_place(state, &stream, coordinator);
        } else {
            // It has died since it said so: the one that takes its place does not know of this worker yet.
            let to = self.coordinator_of(state, &stream);
            self.tell_workers_again(state, &stream, to);
        }
        self.supervise(start);
    }

    fn supervise(&self, start: WorkerStart) {
        if let Some(node) = self.me.upgrade() {
            tokio::spawn(keep_alive(node, start));
        }
    }

    /// A worker's process has connected.
    pub(crate) fn worker_connected(&self, pipeline: &str, instance: u64, outbox: Arc<Outbox>) -> Result<()> {
        self.with_workers(|workers| workers.on_connected(pipeline, instance, outbox))
    }

    /// A worker's connection ended.
    pub(crate) fn worker_disconnected(&self, pipeline: &str, outbox: &Arc<Outbox>) {
        self.with_workers(|workers| workers.on_disconnected(pipeline, outbox));
    }

    /// The server ends: so do its workers. Waits for their processes, but not for long.
    pub(crate) async fn stop_workers(&self) {
        let pids = self.with_workers(LocalWorkers::stop_all);
        let deadline = Instant::now() + STOP_PATIENCE;
        let is_alive = |pid: &u32| Process::watch(*pid).is_ok();
        while pids.iter().any(is_alive) && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl WorkerHost for Node {
    fn server(&self) -> &Shared {
        &self.shared
    }

    fn with_workers<T>(&self, note: impl FnOnce(&mut LocalWorkers) -> T) -> T {
        note(self.state.lock().pipelines.workers_mut())
    }

    fn on_worker_request(&self, pipeline: &str, instance: u64, request: Request) {
        self.tell_pipelines(|pipelines, cx, _| {
            pipelines.workers_mut().on_request(cx, pipeline, instance, request);
        });
    }
}
