//! Pipelines on two servers, driven through their public face, without sockets and processes.

pub(crate) mod bench;
pub(crate) mod conformance;

use super::*;
use bench::{Bench, S0, S1, member, spec};
use forebay_wire::drive::{DriveAnswer, DriveOrder};
use forebay_wire::execution::{OpenExecution, PipelineCounts, PipelineHistory};
use forebay_wire::peer::pipelines::Message;

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
