//! Pipelines on two servers, of which the first coordinates their stream: events go in, and what is told comes out.

use super::*;
use crate::context::Common;
use crate::forming::become_member;
use crate::membership::Standing;
use crate::node::Node;
use crate::surroundings::Machine;
use forebay_core::block::{BlockRecord, Extent, Location};
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{BlockKey, Lineage};
use forebay_core::roster::{Candidate, Incarnation, Member};
use forebay_core::steps::{
    Attachment, AttachmentId, Durability, Effect, EndedField, Policy, RunOptions, Start, StepEnded,
    StreamCoordinator,
};
use forebay_transport::group_file::ServerEntry;
use forebay_wire::drive::{DriveAnswer, DriveOrder};
use forebay_wire::execution::{Execute, OpenExecution, PipelineCounts};
use forebay_wire::peer::PeerMessage;
use forebay_wire::peer::pipelines::Message;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::mpsc;

const S0: ServerId = ServerId(0);
const S1: ServerId = ServerId(1);

/// The stream, and what became of its steps.
#[derive(Debug)]
struct TestStreams {
    coordinator: StreamCoordinator,
    events: VecDeque<StreamEvent>,
    freed: Vec<StepNumber>,
    have_all_told: bool,
}

impl TestStreams {
    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Deliver(_, report) => {
                    self.events.push_back(StreamEvent::Step { pipeline: "p".into(), report });
                }
                Effect::Free { id, .. } => self.freed.push(id.step),
                _ => {}
            }
        }
    }

    /// The only rank ends a step.
    fn end_step(&mut self, step: StepNumber) {
        let block = BlockRecord {
            key: BlockKey { rank: 0, number: 0 },
            level: 0,
            extent: Extent::new(Some(&[0, 0]), &[4, 10], &[], &[]).unwrap(),
            location: Location { server: S0, arena: 0, offset: 0, bytes: 40, generation: step },
            inline: None,
            stats: None,
        };
        let fields = vec![EndedField::new(field(), vec![block])];
        let servers = Vec::new();
        let ended = StepEnded { step, time: 0.0, fields, dropped: false, torn: false, servers };
        let effects = self.coordinator.step_ended(1, 0, S0, ended);
        self.apply(effects);
    }
}

impl Streams for TestStreams {
    fn attach(
        &mut self,
        _: &Context<'_>,
        stream: &str,
        pipeline: &str,
        id: AttachmentId,
        attachment: Attachment,
        start: Start,
    ) -> Result<()> {
        assert_eq!((stream, pipeline), ("s", "p"));
        let effects = self.coordinator.attach(id, attachment, start)?;
        self.apply(effects);
        self.events.push_back(StreamEvent::Attached { pipeline: pipeline.to_owned() });
        Ok(())
    }

    fn release(&mut self, _: &str, id: AttachmentId, (run, step): (RunNumber, StepNumber), pinned: bool) {
        let effects = self.coordinator.release(id, run, step, pinned);
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

fn field() -> Field {
    Field::new("U", Dtype::U8, Some(&[4, 10]), 2)
}

/// The first of two servers.
struct Bench {
    node: Arc<Node>,
    common: Common,
    pipelines: Pipelines,
    streams: TestStreams,
    other: mpsc::Receiver<(PeerMessage, Option<OwnedFd>)>,
    told: Vec<(ServerId, Message)>,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("g.json");
        let options = crate::ServerOptions {
            group,
            servers: 1,
            lineage: None,
            budget: Some(1 << 20),
            bind: Vec::new(),
            advertise: None,
            ports: None,
            seal_payload: false,
            silence: None,
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
        let around = Arc::new(Machine::new());
        let formed = become_member(&options, Lineage([7; 16]), candidate(1), around).await.unwrap();
        let mut roster = (*formed.roster).clone();
        roster.members.push(Member { id: S1, server: candidate(2) });
        let (node, _, _) = Node::new(&options, formed).unwrap();
        *node.standing.write() = Arc::new(Standing::new(Arc::new(roster)));
        let other = node.peers.intercept(&ServerEntry { id: S1, pid: 2, addresses: Vec::new() });
        let streams = TestStreams {
            coordinator: StreamCoordinator::new("s", vec![S0, S1]),
            events: VecDeque::new(),
            freed: Vec::new(),
            have_all_told: true,
        };
        Bench {
            node,
            common: Common::default(),
            pipelines: Pipelines::default(),
            streams,
            other: other.unwrap(),
            told: Vec::new(),
            _directory: directory,
        }
    }

    /// Something happens, and what the stream has to say to it; all that must hold does afterwards.
    fn event<T>(&mut self, event: impl FnOnce(&mut Pipelines, &mut Context<'_>, &mut TestStreams) -> T) -> T {
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
    fn told(&mut self) -> Vec<(ServerId, Message)> {
        std::mem::take(&mut self.told)
    }

    /// Who was ordered to run which step, and with how many workers.
    fn orders(&mut self) -> Vec<(ServerId, Execute)> {
        let orders = self.told().into_iter().filter_map(|(to, message)| match message {
            Message::Execute { order, .. } => Some((to, *order)),
            _ => None,
        });
        orders.collect()
    }

    fn create(&mut self, driven: bool) -> Creation {
        let creation = self.event(|pipelines, cx, _| pipelines.create(cx, spec(driven))).unwrap();
        let starts = |message: &Message| matches!(message, Message::StartWorker { .. });
        let told = self.told();
        assert!(told.iter().all(|(_, message)| starts(message)), "{told:?}");
        assert_eq!(told.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [S0, S1]);
        creation
    }

    /// A pipeline with a worker on each server, and a run of one rank that has said what it offers.
    fn ready(&mut self, driven: bool) -> u64 {
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

    fn begin_run(&mut self) {
        let (policy, durability) = (Policy::Block, Durability::Local);
        let size = 1;
        let options =
            RunOptions { size, policy, keep: 0, queue_bytes: 100, continues: None, replicas: 1, durability };
        self.streams.coordinator.join(0, S0, options).unwrap();
        self.streams.coordinator.define(1, 0, field()).unwrap();
    }

    fn end_step(&mut self, step: StepNumber) {
        self.event(|_, _, streams| streams.end_step(step));
    }

    fn executed(&mut self, from: ServerId, execution: u64) {
        let outcome = WorkerOutcome { execution, error: None, seconds: 0.1 };
        self.event(|pipelines, cx, streams| pipelines.on_executed(cx, streams, ("p", from), outcome));
    }

    fn released(&mut self, from: ServerId, execution: u64) {
        self.event(|pipelines, _, streams| pipelines.on_released(streams, ("p", from), execution));
    }

    fn status(&self) -> Value {
        self.pipelines.status(|_, _, _| false)["coordinated"][0].clone()
    }

    fn drive(&mut self, token: u64, active: &[StepNumber], order: DriveOrder) {
        let (pipeline, stream, active) = ("p".into(), "s".into(), active.to_vec());
        let drive = Drive { pipeline, stream, run: 1, rank: 0, server: None, active, latest: 0, order };
        self.event(|pipelines, cx, streams| pipelines.on_drive(cx, streams, (S1, token), &drive));
    }
}

fn spec(driven: bool) -> PipelineSpec {
    PipelineSpec {
        name: "p".into(),
        stream: "s".into(),
        command: vec!["none".into()],
        code: "none.py:None".into(),
        config: "{}".into(),
        needs: None,
        driven,
        directory: "/".into(),
    }
}

fn member(server: ServerId) -> CommMember {
    CommMember { server, addresses: Vec::new() }
}

#[tokio::test]
async fn a_step_is_run_by_all_workers_and_held_while_one_shows_it() {
    let mut bench = Bench::new().await;
    bench.ready(false);
    bench.end_step(0);
    let orders = bench.orders();
    let ran: Vec<_> = orders.iter().map(|(to, order)| (*to, order.rank, order.report.id.step)).collect();
    assert_eq!(ran, [(S0, 0, 0), (S1, 1, 0)]);
    assert!(orders.iter().all(|(_, order)| order.beside_all && order.members.len() == 2));
    bench.end_step(1);
    bench.executed(S0, 1);
    assert_eq!(bench.orders().len(), 0, "the next step waits for the other worker");
    bench.executed(S1, 1);
    assert_eq!(bench.orders().len(), 2);
    assert_eq!(bench.status()["executed"], 1);
    bench.released(S0, 1);
    assert_eq!(bench.streams.freed, Vec::<StepNumber>::new(), "the other worker still shows it");
    bench.released(S1, 1);
    assert_eq!(bench.streams.freed, [0]);
}

#[tokio::test]
async fn an_execution_that_loses_a_server_is_repeated_by_those_that_are_left() {
    let mut bench = Bench::new().await;
    bench.ready(false);
    bench.end_step(0);
    bench.executed(S0, 1);
    assert_eq!(bench.orders().len(), 2);
    bench.event(|pipelines, cx, streams| {
        cx.common.members.note_gone(S1);
        pipelines.on_peer_gone(cx, streams, S1);
    });
    let orders = bench.orders();
    let [(S0, order)] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!((order.execution, order.report.id.step, order.members.len()), (2, 0, 1));
    assert!(!order.beside_all, "nobody runs beside what the other server held");
    bench.executed(S0, 2);
    let status = bench.status();
    assert_eq!((status["executed"].as_u64(), status["repeated"].as_u64()), (Some(1), Some(1)));
    bench.released(S0, 1);
    assert_eq!(bench.streams.freed, Vec::<StepNumber>::new(), "the second execution's memory is shown");
    bench.released(S0, 2);
    assert_eq!(bench.streams.freed, [0]);
}

#[tokio::test]
async fn a_pipeline_whose_worker_never_came_up_ends() {
    let mut bench = Bench::new().await;
    let (creation, mut created) = bench.create(false);
    bench.event(|pipelines, cx, streams| {
        pipelines.on_worker_gone(cx, streams, ("p", creation + 1), S1, "of an earlier one");
    });
    assert!(created.try_recv().is_err());
    bench.event(|pipelines, cx, streams| {
        pipelines.on_worker_gone(cx, streams, ("p", creation), S1, "no such module");
    });
    let error = created.try_recv().unwrap().unwrap_err();
    assert!(error.text.contains("no such module"), "{error}");
    let stops = |to| (to, Message::StopWorker { pipeline: "p".into(), creation });
    assert_eq!(bench.told(), [stops(S0), stops(S1)]);
    assert!(bench.pipelines.find("p").is_err());
}

#[tokio::test]
async fn ranks_that_drive_a_pipeline_are_told_when_it_has_run() {
    let mut bench = Bench::new().await;
    bench.ready(true);
    bench.drive(1, &[0], DriveOrder::Activate(0));
    let workers = vec![S0, S1];
    let result = Ok(DriveAnswer::Activated { workers: workers.clone(), next: workers });
    assert_eq!(bench.told(), [(S1, Message::Driven { token: 1, result })]);
    bench.end_step(0);
    assert_eq!(bench.orders().len(), 0, "no rank has asked for it");
    bench.drive(2, &[0], DriveOrder::Execute { step: 0, attempt: 1 });
    assert_eq!(bench.orders().len(), 2);
    bench.executed(S0, 1);
    bench.executed(S1, 1);
    let told = bench.told();
    let [(S1, Message::Driven { token: 2, result: Ok(DriveAnswer::Executed { ran: true, .. }) })] = &told[..]
    else {
        panic!("{told:?}")
    };
    [S0, S1].into_iter().for_each(|server| bench.released(server, 1));
    assert_eq!(bench.streams.freed, Vec::<StepNumber>::new(), "it is active");
    bench.drive(0, &[], DriveOrder::Deactivate);
    assert_eq!(bench.streams.freed, [0]);
    assert_eq!(bench.status()["active_steps"], json!([]));
}

#[tokio::test]
async fn what_was_open_at_a_coordinator_that_has_died_is_run_again() {
    let mut bench = Bench::new().await;
    bench.begin_run();
    bench.streams.have_all_told = false;
    let history = |failed| PipelineHistory {
        done: Some((1, 3)),
        counts: PipelineCounts { last: 5, executed: 4, ..PipelineCounts::default() },
        open: Some(OpenExecution {
            run: 1,
            step: 4,
            attempt: 0,
            together: vec![S0, S1, ServerId(2)],
            failed,
        }),
    };
    for (server, failed) in [(S0, None), (S1, Some(false))] {
        bench.streams.have_all_told = server == S1;
        let told = (Some(member(server)), history(failed));
        bench.event(|pipelines, cx, streams| {
            pipelines.on_take_over(cx, streams, server, (9, spec(false)), told);
        });
    }
    bench.end_step(3);
    assert_eq!(bench.orders().len(), 0, "it was run");
    bench.end_step(4);
    let orders = bench.orders();
    let ran: Vec<_> = orders.iter().map(|(to, order)| (*to, order.execution, order.report.id.step)).collect();
    assert_eq!(ran, [(S0, 6, 4), (S1, 6, 4)]);
    let status = bench.status();
    assert_eq!((status["executed"].as_u64(), status["repeated"].as_u64()), (Some(4), Some(1)));
}
