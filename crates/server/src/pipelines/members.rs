//! What becomes of pipelines when servers join, leave or die, their coordinator among them.

use super::driven::Driven;
use super::execution::WorkerGone;
use super::{Pipeline, attachment_of};
use crate::node::{Node, State};
use forebay_core::ids::{Epoch, ServerId};
use forebay_wire::execution::{CommMember, PipelineHistory, PipelineSpec};
use forebay_wire::peer::{pipelines, streams};
use std::collections::{BTreeMap, BTreeSet};

impl Node {
    /// Workers whose servers leave take part in nothing more, unless they still run a step; the others go on.
    pub(super) fn let_workers_leave(&self, state: &mut State, name: &str) {
        let pipeline = state.pipelines.coordinated.get(name);
        if pipeline.is_none_or(|pipeline| pipeline.running.is_some()) {
            return;
        }
        self.end_leaving_workers(state, name);
        let pipeline = state.pipelines.coordinated.get(name);
        if pipeline.is_some_and(|pipeline| pipeline.ready.len() == pipeline.servers.len()) {
            self.pipeline_ready(state, name);
        }
        self.pipeline_goes_on(state, name);
    }

    /// Nothing runs: workers whose servers leave end.
    pub(super) fn end_leaving_workers(&self, state: &mut State, name: &str) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        for server in std::mem::take(&mut pipeline.leaving) {
            self.pipeline_released(state, name, server, None);
            let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
            pipeline.servers.remove(&server);
            pipeline.ready.remove(&server);
            let stop =
                pipelines::Message::StopWorker { pipeline: name.to_owned(), creation: pipeline.creation };
            self.tell(state, server, stop);
        }
    }

    /// Its workers are others: what waits may be run now, or can be no more.
    fn pipeline_goes_on(&self, state: &mut State, name: &str) {
        match state.pipelines.coordinated.get(name).map(|pipeline| pipeline.driven.is_some()) {
            Some(true) => self.driven_goes_on(state, name, false),
            Some(false) => self.pipeline_next(state, name),
            None => {}
        }
    }

    /// This server leaves: tells who has workers of pipelines that it coordinates, of which none runs, what was run.
    pub(crate) fn pipelines_pause(&self, state: &mut State) {
        let pipelines = state.pipelines.coordinated.iter();
        let told: Vec<(ServerId, pipelines::Message)> = pipelines
            .flat_map(|(name, pipeline)| {
                let history = pipeline.history();
                let creation = pipeline.creation;
                let was = pipelines::Message::History { pipeline: name.clone(), creation, history };
                pipeline.servers.iter().map(move |server| (*server, was.clone()))
            })
            .collect();
        for (server, was) in told {
            self.tell(state, server, was);
        }
    }

    /// A server does not leave after all, maybe this one: pipelines go on, with a worker there.
    pub(crate) fn pipelines_stay(&self, state: &mut State, server: ServerId) {
        let mut without = Vec::new();
        for pipeline in state.pipelines.coordinated.values_mut() {
            pipeline.leaving.remove(&server);
            if pipeline.created.is_none() && !pipeline.servers.contains(&server) {
                without.push((pipeline.creation, pipeline.spec.clone()));
            }
        }
        for (creation, spec) in without {
            self.tell(state, server, pipelines::Message::StartWorker { creation, spec });
        }
        let names: Vec<String> = state.pipelines.coordinated.keys().cloned().collect();
        names.iter().for_each(|name| self.pipeline_goes_on(state, name));
    }

    /// A server died: its worker did too, and pipelines go on without it.
    pub(crate) fn pipelines_peer_gone(&self, state: &mut State, peer: ServerId) {
        let names: Vec<String> = state.pipelines.coordinated.keys().cloned().collect();
        for name in names {
            // What it took part in is run again without it.
            let running = state.pipelines.coordinated.get_mut(&name).and_then(|p| p.running.as_mut());
            if let Some(running) = running.filter(|running| running.waiting_for.contains(&peer)) {
                running.lost_worker = true;
            }
            let why = match state.common.members.leaves(peer) {
                true => WorkerGone::Left,
                false => WorkerGone::Failed("its server died"),
            };
            self.pipeline_worker_gone(state, &name, peer, why);
            if let Some(pipeline) = state.pipelines.coordinated.get_mut(&name) {
                pipeline.servers.remove(&peer);
            }
            self.pipeline_goes_on(state, &name);
        }
    }

    /// Servers have joined: pipelines get workers there, and use them once they are ready.
    pub(crate) fn pipelines_grow(&self, state: &mut State, came: &[ServerId]) {
        let coordinated = state.pipelines.coordinated.values().filter(|pipeline| pipeline.created.is_none());
        let known: Vec<(u64, PipelineSpec)> =
            coordinated.map(|pipeline| (pipeline.creation, pipeline.spec.clone())).collect();
        for (creation, spec) in known {
            for server in came {
                self.tell(state, *server, pipelines::Message::StartWorker { creation, spec: spec.clone() });
            }
        }
    }

    /// A server has a worker of a pipeline whose coordinator has died.
    pub(super) fn inherit_pipeline(
        &self,
        state: &mut State,
        (from, epoch): (ServerId, Epoch),
        (creation, spec): (u64, PipelineSpec),
        member: Option<CommMember>,
        history: PipelineHistory,
    ) {
        if let Some(server) = self.elsewhere(state, epoch, &spec.stream) {
            self.tell(state, from, streams::Message::CoordinatedBy { stream: spec.stream, server });
            return;
        }
        state.locations.note_heard_of(epoch);
        let (name, needs) = (spec.name.clone(), spec.needs.clone());
        let pipeline = state.pipelines.coordinated.entry(name.clone()).or_insert_with(|| {
            let servers = BTreeSet::new();
            let mut pipeline = Pipeline::new(creation, spec, servers);
            pipeline.inherited = Some(BTreeMap::new());
            pipeline.driven.iter_mut().for_each(Driven::inherit);
            pipeline
        });
        if pipeline.creation != creation {
            return;
        }
        if pipeline.attachment.is_some() {
            // It has gone on without this one, which takes part once it is ready.
            if let Some(member) = member {
                let ready = pipelines::Message::WorkerReady { pipeline: name, creation, member, needs };
                self.on_pipelines(state, from, ready);
            }
            return;
        }
        pipeline.servers.insert(from);
        pipeline.ready.extend(member.map(|member| (from, member)));
        pipeline.inherited.get_or_insert_default().insert(from, history);
        if self.all_told(state) {
            self.settle_pipelines(state);
        }
    }

    /// All servers have told of the workers beside them: pipelines whose coordinator has died go on.
    pub(crate) fn settle_pipelines(&self, state: &mut State) {
        let told = state.pipelines.coordinated.iter().filter(|(_, pipeline)| pipeline.inherited.is_some());
        let told: Vec<String> = told.map(|(name, _)| name.clone()).collect();
        for name in told {
            let Some(pipeline) = state.pipelines.coordinated.get(&name) else { continue };
            let all_ready = pipeline.ready.len() == pipeline.servers.len();
            let (stream, id) = (&pipeline.spec.stream, attachment_of(pipeline.creation));
            // Steps wait for it even if a worker that has just joined, or died, is still to be ready.
            let was_attached = state.attachments.is_known(stream, id) || !pipeline.ready.is_empty();
            if all_ready {
                self.pipeline_ready(state, &name);
            } else if was_attached && let Err(error) = self.attach_pipeline(state, &name) {
                self.pipeline_failed(state, &name, &error);
            }
        }
    }
}
