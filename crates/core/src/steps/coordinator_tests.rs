use super::*;
use crate::block::{BlockRecord, Extent, Location};
use crate::contract::Need;
use crate::dtype::Dtype;
use crate::ids::BlockKey;
use crate::steps::{EndedField, Registered};

const S0: ServerId = ServerId(0);
const S1: ServerId = ServerId(1);

fn options(size: u32, policy: Policy) -> RunOptions {
    RunOptions { size, policy, keep: 0, queue_bytes: 100, continues: None }
}

fn field() -> Field {
    Field::new("U", Dtype::U8, Some(&[4, 10]), 2)
}

fn ended(rank: u32, step: StepNumber) -> StepEnded {
    let block = BlockRecord {
        key: BlockKey { rank, number: 0 },
        level: 0,
        extent: Extent::new(Some(&[u64::from(rank) * 2, 0]), &[2, 10], &[], &[]).unwrap(),
        location: Location { server: ServerId(rank), arena: 0, offset: 0, bytes: 20, generation: step },
        inline: None,
        stats: None,
    };
    StepEnded {
        step,
        time: step as f64,
        fields: vec![EndedField::new(field(), vec![block])],
        dropped: false,
        torn: false,
        servers: Vec::new(),
    }
}

fn needs(every: u32) -> Needs {
    Needs::Fields(vec![Need { field: "U".into(), dtype: None, every }])
}

/// A stream with two ranks on two servers and one consumer attached before it begins.
fn stream(policy: Policy, every: u32, window: u32) -> StreamCoordinator {
    let mut stream = StreamCoordinator::new("s", vec![S0, S1]);
    let attachment = Attachment::new(needs(every), S0, window);
    assert_eq!(stream.attach(AttachmentId(7), attachment, Start::Next).unwrap(), []);
    for rank in 0..2 {
        let (joined, _) = stream.join(rank, ServerId(rank), options(2, policy)).unwrap();
        assert_eq!(joined.run, 1);
        assert!(joined.demand.wants(&field(), 0));
        stream.define(1, rank, field()).unwrap();
    }
    stream
}

fn step(stream: &mut StreamCoordinator, number: StepNumber) -> Vec<Effect> {
    assert_eq!(stream.step_ended(1, 0, S0, ended(0, number)), []);
    stream.step_ended(1, 1, S1, ended(1, number))
}

fn delivered(effects: &[Effect]) -> Vec<(StepNumber, u64)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Deliver(_, report) => Some((report.id.step, report.missed)),
            _ => None,
        })
        .collect()
}

fn freed(effects: &[Effect]) -> Vec<StepNumber> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Free { id, .. } => Some(id.step),
            _ => None,
        })
        .collect()
}

#[test]
fn blocks_that_owners_know_are_counted_and_freed_there() {
    let mut stream = stream(Policy::Block, 1, 1);
    let registered = |rank| {
        let mut ended = ended(rank, 0);
        ended.fields[0].blocks.clear();
        ended.fields[0].registered = Registered { blocks: 3, bytes: 60 };
        ended.servers = vec![ServerId(rank), ServerId(5 + rank)];
        ended
    };
    assert_eq!(stream.step_ended(1, 0, S0, registered(0)), []);
    let effects = stream.step_ended(1, 1, S1, registered(1));
    let [Effect::Deliver(_, report)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((report.fields[0].blocks.len(), report.fields[0].registered), (0, 6));
    assert_eq!(stream.status().held, (120, 6));
    let effects = stream.release(AttachmentId(7), 1, 0, false);
    let servers = vec![S0, S1, ServerId(5), ServerId(6)];
    let id = StepId { stream: "s".into(), run: 1, step: 0 };
    assert_eq!(effects, [Effect::Free { id, servers }]);
}

#[test]
fn a_step_closes_with_its_last_rank_and_is_freed_on_release() {
    let mut stream = stream(Policy::DropOldest, 1, 2);
    let effects = step(&mut stream, 0);
    assert_eq!(delivered(&effects), [(0, 0)]);
    let Effect::Deliver(_, report) = &effects[0] else { panic!() };
    assert_eq!(report.fields[0].blocks.len(), 2);
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 0, true)), [0u64; 0]);
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 0, false)), [0]);
}

#[test]
fn undemanded_steps_are_freed_at_once() {
    let mut stream = stream(Policy::DropOldest, 2, 2);
    assert_eq!(freed(&step(&mut stream, 1)), [1]);
    assert_eq!(delivered(&step(&mut stream, 2)), [(2, 0)]);
}

#[test]
fn a_full_queue_drops_the_oldest_and_says_so() {
    let mut stream = stream(Policy::DropOldest, 1, 1);
    assert_eq!(delivered(&step(&mut stream, 0)), [(0, 0)]);
    // Steps have 40 bytes each, 100 may wait.
    assert_eq!(freed(&step(&mut stream, 1)), [0u64; 0]);
    assert_eq!(freed(&step(&mut stream, 2)), [0u64; 0]);
    assert_eq!(freed(&step(&mut stream, 3)), [1]);
    assert_eq!(delivered(&stream.release(AttachmentId(7), 1, 0, false)), [(2, 1)]);
}

#[test]
fn latest_keeps_one() {
    let mut stream = stream(Policy::Latest, 1, 1);
    for number in 0..5 {
        step(&mut stream, number);
    }
    assert_eq!(delivered(&stream.release(AttachmentId(7), 1, 0, false)), [(4, 3)]);
}

#[test]
fn blocking_streams_drop_nothing_even_under_pressure() {
    let mut stream = stream(Policy::Block, 1, 1);
    for number in 0..5 {
        assert_eq!(freed(&step(&mut stream, number)), [0u64; 0]);
    }
    assert_eq!(stream.pressure(), []);
}

#[test]
fn pressure_takes_what_nobody_reads() {
    let mut stream = stream(Policy::DropOldest, 1, 1);
    step(&mut stream, 0);
    step(&mut stream, 1);
    assert_eq!(freed(&stream.pressure()), [1], "step 0 is being read");
    assert_eq!(stream.pressure(), []);
}

#[test]
fn a_dead_rank_tears_its_step_and_ends_the_run() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    step(&mut stream, 0);
    stream.step_ended(1, 0, S0, ended(0, 1));
    let effects = stream.rank_gone(1, 1, true);
    let Effect::Deliver(_, report) = &effects[0] else { panic!("{effects:?}") };
    assert!(report.torn);
    assert_eq!(stream.rank_gone(1, 0, false), []);
    stream.release(AttachmentId(7), 1, 0, false);
    assert!(stream.release(AttachmentId(7), 1, 1, false).contains(&Effect::Ended(AttachmentId(7))));
}

#[test]
fn what_a_dead_rank_had_put_stays_in_its_torn_step() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    stream.step_ended(1, 1, S1, StepEnded { torn: true, ..ended(1, 0) });
    assert_eq!(stream.rank_gone(1, 1, true), []);
    let effects = stream.step_ended(1, 0, S0, ended(0, 0));
    let Effect::Deliver(_, report) = &effects[0] else { panic!("{effects:?}") };
    assert!(report.torn);
    assert_eq!(report.fields[0].blocks.len(), 2);
}

#[test]
fn a_restart_is_a_new_run_and_readers_that_follow_rewind() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    stream.attachments.get_mut(&AttachmentId(7)).unwrap().follow = true;
    step(&mut stream, 5);
    stream.rank_gone(1, 0, true);
    stream.rank_gone(1, 1, true);
    for rank in 0..2 {
        assert_eq!(stream.join(rank, S0, options(2, Policy::DropOldest)).unwrap().0.run, 2);
        stream.define(2, rank, field()).unwrap();
    }
    stream.step_ended(2, 0, S0, ended(0, 4));
    let effects = stream.step_ended(2, 1, S0, ended(1, 4));
    let Effect::Deliver(_, report) = &effects[0] else { panic!("{effects:?}") };
    assert!(report.rewound && report.id.run == 2);
}

#[test]
fn attaching_while_running_goes_through_a_cut() {
    let mut stream = StreamCoordinator::new("s", vec![S0, S1]);
    stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
    stream.define(1, 0, field()).unwrap();
    stream.begun(1);
    let wrong =
        Attachment::new(Needs::Fields(vec![Need { field: "W".into(), dtype: None, every: 1 }]), S0, 1);
    assert_eq!(stream.attach(AttachmentId(1), wrong, Start::Next).unwrap_err().kind, ErrorKind::NotFound);
    let effects = stream.attach(AttachmentId(2), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
    let [Effect::Prepare { run: 1, version }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!(stream.prepared(S0, version, Some(9)), []);
    let effects = stream.prepared(S1, version, None);
    let [Effect::Decide(decision)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((decision.run, decision.from), (1, 10));
    let one = |number| {
        let mut ended = ended(0, number);
        ended.fields[0].blocks[0].location.server = S0;
        ended
    };
    assert_eq!(delivered(&stream.step_ended(1, 0, S0, one(9))), []);
    assert_eq!(delivered(&stream.step_ended(1, 0, S0, one(10))), [(10, 0)]);
}

#[test]
fn overlaps_are_told_to_the_rank_that_caused_them() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    stream.step_ended(1, 0, S0, ended(0, 0));
    let mut bad = ended(1, 0);
    bad.fields[0].blocks[0].extent = Extent::new(Some(&[1, 0]), &[2, 10], &[], &[]).unwrap();
    let effects = stream.step_ended(1, 1, S1, bad);
    assert!(
        matches!(&effects[0], Effect::RankError { rank: 1, error, .. } if error.kind == ErrorKind::Conflict)
    );
}

#[test]
fn a_closed_handle_keeps_only_what_its_arrays_show() {
    let mut stream = stream(Policy::DropOldest, 1, 2);
    for number in 0..4 {
        step(&mut stream, number);
    }
    let effects = stream.close(AttachmentId(7), &[(1, 1)]);
    assert_eq!(freed(&effects), [0, 2, 3]);
    assert!(!stream.demand().wants(&field(), 4), "its demand ended");
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 1, false)), [1]);
    assert!(stream.attachments.is_empty());
}

#[test]
fn a_reader_that_does_not_follow_belongs_to_one_run() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    step(&mut stream, 0);
    stream.rank_gone(1, 0, false);
    stream.rank_gone(1, 1, false);
    // It has not read to the end when the next run begins.
    let (joined, _) = stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
    assert!(joined.run == 2 && !joined.demand.wants(&field(), 0));
}

#[test]
fn ranks_need_not_be_open_at_the_same_time() {
    let mut stream = StreamCoordinator::new("s", vec![S0]);
    stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
    for rank in 0..2 {
        assert_eq!(stream.join(rank, S0, options(2, Policy::Block)).unwrap().0.run, 1);
        stream.define(1, rank, field()).unwrap();
        let mut ended = ended(rank, 0);
        ended.fields[0].blocks[0].location.server = S0;
        let effects = stream.step_ended(1, rank, S0, ended);
        assert_eq!(delivered(&effects).len(), rank as usize);
        stream.rank_gone(1, rank, false);
    }
}

#[test]
fn what_a_rank_left_on_another_server_goes_with_its_step_or_at_once() {
    let free = |step| {
        let id = StepId { stream: "s".into(), run: 1, step };
        Effect::Free { id, servers: vec![ServerId(2)] }
    };
    // The rank's home is heard first: the step is there and its blocks go when it goes.
    let mut first = stream(Policy::DropOldest, 1, 4);
    assert_eq!(first.step_ended(1, 0, S0, ended(0, 1)), []);
    assert_eq!(first.stranded(1, 1, 0, ServerId(2)), []);
    step(&mut first, 2);
    let freed = first.detach(AttachmentId(7));
    assert!(
        freed.iter().any(
            |effect| matches!(effect, Effect::Free { id, servers } if id.step == 2 && !servers.contains(&ServerId(2)))
        )
    );
    // The other server is heard first: nothing is freed before the home has said what it knows.
    let mut second = stream(Policy::DropOldest, 1, 4);
    assert_eq!(second.stranded(1, 3, 0, ServerId(2)), []);
    assert!(second.rank_gone(1, 0, true).contains(&free(3)));
    // Or it says so when the rank is known to be gone.
    assert_eq!(second.stranded(1, 4, 0, ServerId(2)), [free(4)]);
    assert_eq!(second.stranded(9, 4, 0, ServerId(2)).len(), 1, "nobody knows the run");
}

#[test]
fn steps_of_a_few_bytes_do_not_wait_without_end() {
    let mut stream = StreamCoordinator::new("s", vec![S0]);
    stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
    let options = RunOptions { queue_bytes: u64::MAX, ..options(1, Policy::DropOldest) };
    stream.join(0, S0, options).unwrap();
    stream.define(1, 0, field()).unwrap();
    let last = WAITING_MAX as u64 + 50;
    for number in 0..=last {
        stream.step_ended(1, 0, S0, ended(0, number));
    }
    // One is with the reader, the newest wait.
    assert_eq!(stream.status().held.1, 1 + WAITING_MAX as u64);
    assert_eq!(delivered(&stream.release(AttachmentId(7), 1, 0, false)), [(51, 50)]);
}

/// The keys of the stream's attributes that each delivered step tells; `None` if it tells nothing of them.
fn told_attrs(effects: &[Effect]) -> Vec<Option<Vec<String>>> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Deliver(_, report) => Some(
                report.attrs.as_ref().map(|attrs| attrs.of(None).map(|(key, _)| key.to_owned()).collect()),
            ),
            _ => None,
        })
        .collect()
}

#[test]
fn attributes_are_told_when_they_are_new() {
    let one = |value| Attr { list: false, values: crate::attr::AttrValues::Int(vec![value]) };
    let mut stream = stream(Policy::DropOldest, 1, 8);
    assert_eq!(told_attrs(&step(&mut stream, 0)), [None]);
    stream.set_attr(1, None, "a", one(1)).unwrap();
    stream.set_attr(1, Some("U"), "b", one(1)).unwrap();
    assert_eq!(told_attrs(&step(&mut stream, 1)), [Some(vec!["a".to_owned()])]);
    stream.set_attr(1, None, "a", one(1)).unwrap();
    assert_eq!(stream.set_attr(1, None, "a", one(2)).unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(stream.set_attr(1, Some("V"), "a", one(2)).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(told_attrs(&step(&mut stream, 2)), [None]);

    // One that comes later learns them with its first step, one that forgets with each.
    let mut forgetful = Attachment::new(needs(1), S0, 8);
    forgetful.remembers_attrs = false;
    for (id, attachment) in [(8, Attachment::new(needs(1), S0, 8)), (9, forgetful)] {
        for effect in stream.attach(AttachmentId(id), attachment, Start::Next).unwrap() {
            let Effect::Prepare { version, .. } = effect else { panic!("{effect:?}") };
            assert_eq!(stream.prepared(S0, version, Some(2)), []);
            stream.prepared(S1, version, Some(2));
        }
    }
    let a = || Some(vec!["a".to_owned()]);
    assert_eq!(told_attrs(&step(&mut stream, 3)), [None, a(), a()]);
    assert_eq!(told_attrs(&step(&mut stream, 4)), [None, None, a()]);
}

#[test]
fn a_new_run_has_no_attributes_of_the_last() {
    let one = Attr { list: false, values: crate::attr::AttrValues::Int(vec![1]) };
    let mut stream = StreamCoordinator::new("s", vec![S0]);
    let mut attachment = Attachment::new(needs(1), S0, 8);
    attachment.follow = true;
    stream.attach(AttachmentId(7), attachment, Start::Next).unwrap();
    let mut told = Vec::new();
    for run in 1..=2 {
        stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
        stream.define(run, 0, field()).unwrap();
        if run == 1 {
            stream.set_attr(run, None, "a", one.clone()).unwrap();
        }
        told.extend(told_attrs(&stream.step_ended(run, 0, S0, ended(0, run))));
        stream.rank_gone(run, 0, false);
    }
    assert_eq!(told, [Some(vec!["a".to_owned()]), Some(vec![])]);
}
