//! What streams, ranks and other servers tell the pipelines of a server.

use super::Pipelines;
use super::driven::tell_driven;
use super::driven_steps::{Asker, DrivenSteps};
use super::execution::WorkerOutcome;
use super::members::WorkerLoss;
use super::pipeline::Pipeline;
use crate::context::Context;
use crate::streams::users::{StreamEvent, StreamUser, Streams};
use forebay_core::Error;
use forebay_core::contract::Needs;
use forebay_core::ids::ServerId;
use forebay_wire::drive::Drive;
use forebay_wire::execution::{CommMember, PipelineHistory, PipelineSpec};

/// What streams and ranks tell.
impl Pipelines {
    /// A stream tells a pipeline of a step, or that there will be none.
    pub(crate) fn on_stream_event(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        event: StreamEvent,
    ) {
        match event {
            StreamEvent::Step { user: StreamUser::Pipeline(name), report } => {
                if let Some(found) = self.coordinated.get_mut(&name) {
                    found.on_step(cx, streams, *report);
                }
            }
            StreamEvent::Attached { user: StreamUser::Pipeline(name) } => {
                let found = self.coordinated.get_mut(&name).and_then(|found| found.driven.as_mut());
                found.into_iter().for_each(DrivenSteps::end_takeover);
            }
            StreamEvent::Failed { user: StreamUser::Pipeline(name), error } => {
                self.end(cx, streams, &name, &error);
            }
            // For others.
            StreamEvent::Step { .. }
            | StreamEvent::Attached { .. }
            | StreamEvent::NotOffered { .. }
            | StreamEvent::Failed { .. } => {}
        }
    }

    /// A rank wants something of a pipeline that it drives; its home is answered when that is done.
    pub(crate) fn on_drive(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (from, token): (ServerId, u64),
        drive: &Drive,
    ) {
        let (name, stream) = (&drive.pipeline, &drive.stream);
        let is_settled = streams.have_all_told();
        let found = self.coordinated.get_mut(name);
        match found.filter(|found| is_settled || found.inherited.is_none()) {
            Some(pipeline) => pipeline.on_drive(cx, streams, drive, Asker { server: from, token }),
            None => {
                let error = match is_settled {
                    true => Error::not_found(format!("there is no pipeline '{name}' on stream '{stream}'")),
                    false => {
                        Error::unreachable(format!("not all servers have told of pipeline '{name}' yet"))
                    }
                };
                tell_driven(cx, from, token, Err(error));
            }
        }
    }

    /// Ranks of a stream may have left, or time has passed: its pipelines that are driven go on; of all streams without one.
    pub(crate) fn on_ranks_changed(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        stream: Option<&str>,
    ) {
        for pipeline in self.coordinated.values_mut() {
            let is_meant = stream.is_none_or(|stream| pipeline.spec.stream == stream);
            if is_meant && pipeline.driven.is_some() {
                pipeline.advance_driven(cx, streams, true);
            }
        }
    }
}

/// What servers with workers tell.
impl Pipelines {
    /// A server's worker is ready.
    pub(crate) fn on_worker_ready(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (pipeline, creation): (&str, u64),
        member: CommMember,
        needs: Option<Needs>,
    ) {
        if cx.members().stays(member.server, cx.me()) {
            self.tell(cx, streams, (pipeline, creation), |found, cx, streams| {
                found.on_worker_ready(cx, streams, member, needs)
            });
        }
    }

    /// A server's worker has died, or could not start.
    pub(crate) fn on_worker_gone(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: (&str, u64),
        from: ServerId,
        error: &str,
    ) {
        self.tell(cx, streams, id, |found, cx, streams| {
            found.on_worker_gone(cx, streams, from, WorkerLoss::Failed(error))
        });
    }

    /// A server leaves the group, and its worker is to run nothing more.
    pub(crate) fn on_worker_leaves(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: (&str, u64),
        from: ServerId,
    ) {
        self.tell(cx, streams, id, |found, cx, streams| found.on_worker_leaves(cx, streams, from));
    }

    /// A worker has ended an execution.
    pub(crate) fn on_executed(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (pipeline, from): (&str, ServerId),
        outcome: WorkerOutcome,
    ) {
        if let Some(found) = self.coordinated.get_mut(pipeline) {
            found.on_executed(cx, streams, from, outcome);
        }
    }

    /// A worker shows no memory of an execution's step any more.
    pub(crate) fn on_released(
        &mut self,
        streams: &mut dyn Streams,
        (pipeline, from): (&str, ServerId),
        execution: u64,
    ) {
        if let Some(found) = self.coordinated.get_mut(pipeline) {
            found.on_released(streams, from, Some(execution));
        }
    }

    /// A server has a worker of a pipeline whose coordinator has died, which this server is now.
    pub(crate) fn on_take_over(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        from: ServerId,
        (creation, spec): (u64, PipelineSpec),
        (member, history): (Option<CommMember>, PipelineHistory),
    ) {
        let (name, needs) = (spec.name.clone(), spec.needs.clone());
        let pipeline = self.coordinated.entry(name.clone());
        let pipeline = pipeline.or_insert_with(|| Pipeline::inherited(creation, spec));
        if pipeline.creation != creation {
            return;
        }
        if pipeline.attachment.is_none() {
            pipeline.on_inherited(from, member, history);
            if streams.have_all_told() {
                self.settle(cx, streams);
            }
        } else if let Some(member) = member.filter(|member| member.server == from) {
            // It has gone on without this one, which takes part once it is ready.
            self.on_worker_ready(cx, streams, (&name, creation), member, needs);
        }
    }
}

/// What becomes of the group.
impl Pipelines {
    /// All servers have told of the workers beside them: pipelines whose coordinator has died go on.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) {
        let inherited = self.coordinated.values().filter(|pipeline| pipeline.inherited.is_some());
        let inherited: Vec<(String, u64)> =
            inherited.map(|pipeline| (pipeline.spec.name.clone(), pipeline.creation)).collect();
        for (name, creation) in inherited {
            self.tell(cx, streams, (&name, creation), Pipeline::settle);
        }
    }

    /// Another server coordinates a stream, and is told of the pipelines that this one was about to take over.
    pub(crate) fn on_coordinated_elsewhere(&mut self, stream: &str) {
        self.coordinated.retain(|_, pipeline| pipeline.spec.stream != stream || pipeline.inherited.is_none());
    }

    /// Servers have joined: pipelines get workers there, and use them once they are ready.
    pub(crate) fn on_servers_joined(&self, cx: &mut Context<'_>, joined: &[ServerId]) {
        for pipeline in self.coordinated.values().filter(|pipeline| pipeline.created.is_none()) {
            joined.iter().for_each(|server| pipeline.tell_to_start(cx, *server));
        }
    }

    /// A server died, and its workers did too: pipelines go on without them.
    pub(crate) fn on_peer_gone(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, peer: ServerId) {
        for (name, creation) in self.names() {
            self.tell(cx, streams, (&name, creation), |found, cx, streams| {
                found.on_peer_gone(cx, streams, peer)
            });
        }
    }

    /// A server does not leave after all, maybe this one: pipelines go on, with a worker there.
    pub(crate) fn on_server_stays(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        server: ServerId,
    ) {
        for pipeline in self.coordinated.values_mut() {
            pipeline.on_server_stays(cx, server);
            pipeline.on_members_changed(cx, streams);
        }
    }

    /// This server leaves: tells the servers with workers what was run of its pipelines, of which none runs.
    pub(crate) fn tell_histories(&self, cx: &mut Context<'_>) {
        for pipeline in self.coordinated.values() {
            pipeline.servers.iter().for_each(|server| pipeline.tell_history(cx, *server));
        }
    }
}
