//! What becomes of a pipeline when servers with workers of it join, leave or die, its coordinator among them.

use super::driven_steps::DrivenSteps;
use super::execution::WorkerOutcome;
use super::pipeline::Pipeline;
use crate::context::Context;
use crate::streams::users::Streams;
use forebay_core::contract::Needs;
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::execution::{CommMember, PipelineHistory, PipelineSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Why a worker is gone.
#[derive(Debug, Clone, Copy)]
pub(super) enum WorkerLoss<'a> {
    /// Its server left the group, as somebody wanted.
    ServerLeft,
    /// It died, or its server did, as this says.
    Failed(&'a str),
}

impl Pipeline {
    /// A pipeline that was coordinated by a server that has died, of which those with workers are still to tell.
    pub(super) fn inherited(creation: u64, spec: PipelineSpec) -> Pipeline {
        let mut pipeline = Pipeline::new(creation, spec, BTreeSet::new());
        pipeline.inherited = Some(BTreeMap::new());
        pipeline.driven.iter_mut().for_each(DrivenSteps::inherit);
        pipeline
    }

    /// A server tells of its worker, and what that knows of the executions, since the pipeline's coordinator has died.
    pub(super) fn on_inherited(
        &mut self,
        from: ServerId,
        member: Option<CommMember>,
        history: PipelineHistory,
    ) {
        self.servers.insert(from);
        self.ready.extend(member.map(|member| (from, member)));
        self.inherited.get_or_insert_default().insert(from, history);
    }

    /// All servers have told of the workers beside them: the pipeline goes on if it can.
    pub(super) fn settle(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) -> Result<()> {
        if self.are_all_ready() {
            return self.on_all_ready(cx, streams);
        }
        // Steps wait for it even if a worker that has just joined, or died, is still to be ready.
        let was_attached = streams.was_attached(&self.spec.stream, self.attachment_id());
        if was_attached || !self.ready.is_empty() {
            return self.attach(cx, streams);
        }
        Ok(())
    }

    /// A server's worker is ready: one that has just joined takes part now that it can.
    pub(super) fn on_worker_ready(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        member: CommMember,
        needs: Option<Needs>,
    ) -> Result<()> {
        let server = member.server;
        self.servers.insert(server);
        self.ready.insert(server, member);
        if self.spec.needs.is_none() {
            self.spec.needs = needs;
        }
        if self.attachment.is_some() {
            self.tell_history(cx, server);
        }
        if self.are_all_ready() {
            return self.on_all_ready(cx, streams);
        }
        // What is to be run may not need all.
        self.run_next(cx, streams);
        Ok(())
    }

    /// A server has no worker any more that is ready. Fails if none was ever ready there.
    pub(super) fn on_worker_gone(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        from: ServerId,
        why: WorkerLoss<'_>,
    ) -> Result<()> {
        self.on_released(streams, from, None);
        self.ready.remove(&from);
        let error = match why {
            WorkerLoss::ServerLeft => "its server left",
            WorkerLoss::Failed(error) => error,
        };
        let text = worker_gone(&self.spec.name, from, error).text;
        if matches!(why, WorkerLoss::Failed(_)) {
            self.last_error = Some(text.clone());
        }
        if self.created.is_some() {
            // It never was ready: most likely its code is wrong, and starting it again will not help.
            return Err(Error::new(ErrorKind::PipelineFailed, text));
        }
        let running = self.running.as_ref().filter(|running| running.awaited.contains(&from));
        if let Some(execution) = running.map(|running| running.number) {
            let outcome = WorkerOutcome { execution, error: Some(text), seconds: 0.0 };
            self.on_executed(cx, streams, from, outcome);
        }
        Ok(())
    }

    /// A server died, and its worker with it: what that took part in is run again without it.
    pub(super) fn on_peer_gone(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        peer: ServerId,
    ) -> Result<()> {
        if let Some(running) = self.running.as_mut().filter(|running| running.awaited.contains(&peer)) {
            running.lost_worker = true;
        }
        let why = match cx.members().leaves(peer) {
            true => WorkerLoss::ServerLeft,
            false => WorkerLoss::Failed("its server died"),
        };
        self.on_worker_gone(cx, streams, peer, why)?;
        self.servers.remove(&peer);
        self.on_members_changed(cx, streams);
        Ok(())
    }

    /// The server of a worker leaves the group: the worker takes part in nothing more, unless it still runs a step.
    pub(super) fn on_worker_leaves(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        server: ServerId,
    ) -> Result<()> {
        self.leaving.insert(server);
        if self.running.is_some() {
            return Ok(());
        }
        self.end_leaving_workers(cx, streams);
        if self.are_all_ready() {
            self.on_all_ready(cx, streams)?;
        }
        self.on_members_changed(cx, streams);
        Ok(())
    }

    /// Nothing runs: workers whose servers leave end.
    pub(super) fn end_leaving_workers(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) {
        for server in std::mem::take(&mut self.leaving) {
            self.on_released(streams, server, None);
            self.servers.remove(&server);
            self.ready.remove(&server);
            self.tell_to_stop(cx, server);
        }
    }

    /// A server does not leave after all: it has a worker again.
    pub(super) fn on_server_stays(&mut self, cx: &mut Context<'_>, server: ServerId) {
        self.leaving.remove(&server);
        if self.created.is_none() && !self.servers.contains(&server) {
            self.tell_to_start(cx, server);
        }
    }

    /// Its workers are others, or it may begin steps again: what waits may be run now, or can be no more.
    pub(super) fn on_members_changed(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams) {
        match self.driven {
            Some(_) => self.advance_driven(cx, streams, false),
            None => self.run_next(cx, streams),
        }
    }
}

/// An error with which a pipeline's worker is told to be gone.
fn worker_gone(pipeline: &str, server: ServerId, why: &str) -> Error {
    let text = format!("the worker of pipeline '{pipeline}' on {server} is gone: {why}");
    Error::unreachable(text).about(server)
}
