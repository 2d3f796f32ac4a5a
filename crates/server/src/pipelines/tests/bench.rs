//! The first of two servers, which coordinates the stream "s" and its pipeline "p": events go in, what is told comes out.

use crate::context::{Common, Context};
use crate::node::Node;
use crate::pipelines::*;
use crate::streams::users::{StreamEvent, StreamUser, Streams};
use forebay_cluster::ClusterOptions;
use forebay_cluster::environment::Machine;
use forebay_cluster::forming::become_member;
use forebay_core::Result;
use forebay_core::attr::Attrs;
use forebay_core::block::{BlockRecord, Extent, Location};
use forebay_core::contract::{Field, Needs};
use forebay_core::dtype::Dtype;
use forebay_core::identity::Identity;
use forebay_core::ids::{BlockKey, Lineage};
use forebay_core::roster::{Candidate, Incarnation, Member};
use forebay_core::steps::{
    Attachment, AttachmentId, Durability, Effect, FieldContribution, Joining, Policy, RunOptions, Start,
    StepContribution, StreamCoordinator,
};
use forebay_transport::connection_file::ServerEntry;
use forebay_wire::drive::{Drive, DriveOrder};
use forebay_wire::execution::{CommMember, Execute};
use forebay_wire::peer::PeerMessage;
use forebay_wire::peer::pipelines::Message;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::mpsc;

pub(crate) const S0: ServerId = ServerId(0);
pub(super) const S1: ServerId = ServerId(1);

/// The stream, and what became of its steps.
#[derive(Debug)]
pub(super) struct TestStreams {
    coordinator: StreamCoordinator,
    events: VecDeque<StreamEvent>,
    pub(super) freed: Vec<StepNumber>,
    pub(super) have_all_told: bool,
}

impl TestStreams {
    pub(super) fn new() -> TestStreams {
        TestStreams {
            coordinator: StreamCoordinator::new("s", vec![S0, S1]),
            events: VecDeque::new(),
            freed: Vec::new(),
            have_all_told: true,
        }
    }

    /// What pipelines are told and were not told yet.
    pub(super) fn take_events(&mut self) -> Vec<StreamEvent> {
        self.events.drain(..).collect()
    }

    /// Something happens to the stream.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut StreamCoordinator) -> Vec<Effect>) {
        let effects = change(&mut self.coordinator);
        self.apply(effects);
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Deliver(_, report) => {
                    self.events
                        .push_back(StreamEvent::Step { user: StreamUser::Pipeline("p".into()), report });
                }
                Effect::Free { id, .. } => self.freed.push(id.step),
                _ => {}
            }
        }
    }

    /// The only rank ends a step.
    fn end_step(&mut self, step: StepNumber) {
        self.change(|stream| stream.on_step_ended(1, 0, S0, ended(step)));
    }
}

/// What the only rank has put in a step.
pub(super) fn ended(step: StepNumber) -> StepContribution {
    let block = BlockRecord {
        key: BlockKey::whole(0, 0),
        level: 0,
        extent: Extent::new(Some(&[0, 0]), &[4, 10], &[], &[]).unwrap(),
        location: Location { server: S0, arena: 0, offset: 0, bytes: 40, generation: step },
        inline: None,
        stats: None,
    };
    let fields = vec![FieldContribution::new(field(), vec![block])];
    StepContribution {
        step,
        time: 0.0,
        fields,
        dropped: false,
        torn: false,
        attrs: Attrs::default(),
        servers: Vec::new(),
    }
}

/// The only rank of a run, as it joins.
pub(super) fn joining(keep: u32) -> Joining {
    let (policy, durability) = (Policy::Block, Durability::Local);
    let options = RunOptions {
        size: 1,
        policy,
        keep,
        queue_bytes: 100,
        continues: None,
        replicas: 1,
        durability,
        wait_for_readers: 0,
        job: String::new(),
    };
    Joining { rank: 0, who: Identity::default(), options }
}

impl Streams for TestStreams {
    fn attach(
        &mut self,
        _: &Context<'_>,
        stream: &str,
        user: StreamUser,
        id: AttachmentId,
        attachment: Attachment,
        start: Start,
    ) -> Result<()> {
        assert_eq!((stream, &user), ("s", &StreamUser::Pipeline("p".to_owned())));
        let effects = self.coordinator.attach(id, attachment, start)?;
        self.apply(effects);
        self.events.push_back(StreamEvent::Attached { user });
        Ok(())
    }

    fn release(&mut self, _: &str, id: AttachmentId, (run, step): (RunNumber, StepNumber), pinned: bool) {
        let effects = self.coordinator.release(id, run, step, pinned);
        self.apply(effects);
    }

    fn choose(&mut self, _: &str, id: AttachmentId, (run, step): (RunNumber, StepNumber)) {
        let effects = self.coordinator.choose(id, run, step);
        self.apply(effects);
    }

    fn change_needs(&mut self, _: &str, id: AttachmentId, needs: Needs) -> Result<()> {
        let effects = self.coordinator.change_needs(id, needs)?;
        self.apply(effects);
        Ok(())
    }

    fn set_window(&mut self, _: &str, id: AttachmentId, window: u32) {
        let effects = self.coordinator.set_window(id, window);
        self.apply(effects);
    }

    fn detach(&mut self, _: &str, id: AttachmentId) {
        let effects = self.coordinator.detach(id);
        self.apply(effects);
    }

    fn coordinator(&self, stream: &str) -> Option<&StreamCoordinator> {
        (stream == "s").then_some(&self.coordinator)
    }

    fn was_attached(&self, _: &str, _: AttachmentId) -> bool {
        false
    }

    fn have_all_told(&self) -> bool {
        self.have_all_told
    }

    fn are_holders_members(&self) -> bool {
        true
    }
}

pub(super) fn field() -> Field {
    Field::new("U", Dtype::U8, Some(&[4, 10]), 2)
}

/// The first of two servers, of which the other one is not there.
pub(crate) async fn first_of_two() -> (Arc<Node>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let group = directory.path().join("g.json");
    let options = crate::ServerOptions {
        cluster: ClusterOptions {
            group,
            servers: 1,
            lineage: None,
            bind: Vec::new(),
            advertise: None,
            ports: None,
            seal_payload: false,
            silence: None,
        },
        budget: Some(1 << 20),
        watch_parent: None,
        private_place: None,
        leash: None,
    };
    let candidate = |pid| Candidate {
        incarnation: Incarnation(u64::from(pid)),
        pid,
        addresses: Vec::new(),
        formerly: None,
    };
    let lineage = Lineage([7; 16]);
    let environment = Arc::new(Machine::this());
    let formed = become_member(&options.cluster, lineage, candidate(1), environment).await.unwrap();
    let mut roster = (*formed.roster).clone();
    roster.members.push(Member { id: S1, server: candidate(2) });
    let (node, _) = Node::new(&options, formed);
    node.cluster.set_roster(Arc::new(roster));
    (node, directory)
}

/// The first of two servers.
pub(super) struct Bench {
    node: Arc<Node>,
    common: Common,
    pub(super) pipelines: Pipelines,
    pub(super) streams: TestStreams,
    other: mpsc::Receiver<(PeerMessage, Option<OwnedFd>)>,
    told: Vec<(ServerId, Message)>,
    _directory: tempfile::TempDir,
}

impl Bench {
    pub(super) async fn new() -> Bench {
        let (node, directory) = first_of_two().await;
        let other = node.peers.intercept(&ServerEntry { id: S1, pid: 2, addresses: Vec::new() });
        Bench {
            node,
            common: Common::default(),
            pipelines: Pipelines::default(),
            streams: TestStreams::new(),
            other: other.unwrap(),
            told: Vec::new(),
            _directory: directory,
        }
    }

    /// Something happens, and what the stream has to say to it; all that must hold does afterwards.
    pub(super) fn event<T>(
        &mut self,
        event: impl FnOnce(&mut Pipelines, &mut Context<'_>, &mut TestStreams) -> T,
    ) -> T {
        let mut cx = Context { server: &self.node, common: &mut self.common };
        let result = event(&mut self.pipelines, &mut cx, &mut self.streams);
        self.pipelines.sanity_check().unwrap();
        while let Some(event) = self.streams.events.pop_front() {
            self.pipelines.on_stream_event(&mut cx, &mut self.streams, event);
            self.pipelines.sanity_check().unwrap();
        }
        let own = std::iter::from_fn(|| self.common.next()).collect::<Vec<_>>();
        let other = std::iter::from_fn(|| self.other.try_recv().ok().map(|(message, _)| (S1, message)));
        for (to, message) in own.into_iter().chain(other) {
            let PeerMessage::Pipelines(message) = message else { panic!("{message:?}") };
            self.told.push((to, message));
        }
        result
    }

    /// What was told since this was asked last.
    pub(super) fn told(&mut self) -> Vec<(ServerId, Message)> {
        std::mem::take(&mut self.told)
    }

    /// Who was ordered to run which step, and with how many workers.
    pub(super) fn orders(&mut self) -> Vec<(ServerId, Execute)> {
        let orders = self.told().into_iter().filter_map(|(to, message)| match message {
            Message::Execute { order, .. } => Some((to, *order)),
            _ => None,
        });
        orders.collect()
    }

    pub(super) fn create(&mut self, driven: bool) -> Creation {
        let creation = self.event(|pipelines, cx, _| pipelines.create(cx, spec(driven))).unwrap();
        let starts = |message: &Message| matches!(message, Message::StartWorker { .. });
        let told = self.told();
        assert!(told.iter().all(|(_, message)| starts(message)), "{told:?}");
        assert_eq!(told.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [S0, S1]);
        creation
    }

    /// A pipeline with a worker on each server, and a run of one rank that has said what it offers.
    pub(super) fn ready(&mut self, driven: bool) -> u64 {
        let (creation, mut created) = self.create(driven);
        for server in [S0, S1] {
            assert!(created.try_recv().is_err(), "not all workers are ready");
            self.event(|pipelines, cx, streams| {
                pipelines.on_worker_ready(cx, streams, ("p", creation), member(server), None);
            });
        }
        assert_eq!(created.try_recv().unwrap(), Ok(()));
        self.begin_run();
        self.told();
        creation
    }

    pub(super) fn begin_run(&mut self) {
        self.streams.coordinator.join(joining(0), S0).unwrap();
        self.streams.coordinator.define(1, 0, field()).unwrap();
    }

    pub(super) fn end_step(&mut self, step: StepNumber) {
        self.event(|_, _, streams| streams.end_step(step));
    }

    pub(super) fn executed(&mut self, from: ServerId, execution: u64) {
        let outcome = WorkerOutcome { execution, error: None, seconds: 0.1 };
        self.event(|pipelines, cx, streams| pipelines.on_executed(cx, streams, ("p", from), outcome));
    }

    pub(super) fn released(&mut self, from: ServerId, execution: u64) {
        self.event(|pipelines, _, streams| pipelines.on_released(streams, ("p", from), execution));
    }

    pub(super) fn status(&self) -> Value {
        self.pipelines.status(|_, _, _| false)["coordinated"][0].clone()
    }

    pub(super) fn drive(&mut self, token: u64, active: &[StepNumber], order: DriveOrder) {
        let (pipeline, stream, active) = ("p".into(), "s".into(), active.to_vec());
        let drive = Drive { pipeline, stream, run: 1, rank: 0, server: None, active, latest: 0, order };
        self.event(|pipelines, cx, streams| pipelines.on_drive(cx, streams, (S1, token), &drive));
    }
}

pub(super) fn spec(driven: bool) -> PipelineSpec {
    PipelineSpec {
        name: "p".into(),
        stream: "s".into(),
        command: vec!["none".into()],
        code: "none.py:None".into(),
        config: "{}".into(),
        needs: None,
        driven,
        on: None,
        otherwise_needs: None,
        directory: "/".into(),
    }
}

pub(super) fn member(server: ServerId) -> CommMember {
    CommMember { server, addresses: Vec::new() }
}
