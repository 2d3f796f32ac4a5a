mod model;
mod runs;
mod starts;

use super::retention::WAITING_MAX;
use super::*;
use crate::attr::Attr;
use crate::block::{BlockRecord, Extent, Location};
use crate::contract::{Need, Terms};
use crate::dtype::Dtype;
use crate::identity::Identity;
use crate::ids::{BlockKey, StepNumber};
use crate::steps::attachment::{Delivery, Start, Take};
use crate::steps::contribution::{FieldContribution, RegisteredBlocks, StepContribution};
use crate::steps::effect::{Effect, Joined};
use crate::steps::options::{Durability, Policy, RunOptions};
use crate::steps::rank::{Joining, Rejoin};
use crate::steps::run_end::{RankCounts, RankEnd};
use crate::{Error, ErrorKind};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

pub(super) const S0: ServerId = ServerId(0);
pub(super) const S1: ServerId = ServerId(1);
pub(super) const CLOSED: RankEnd = RankEnd::Closed(RankCounts { begun: 0, skipped: 0 });

/// Who is told of its end: the attachment, how many steps it has missed, and what its reader sees.
pub(super) fn ends(effects: &[Effect]) -> Vec<(u64, u64, ErrorKind)> {
    let ends = effects.iter().filter_map(|effect| match effect {
        Effect::Ended(id, end) => Some((id.0, end.missed, end.error("s").kind)),
        _ => None,
    });
    ends.collect()
}

/// Of which runs all servers are told that they are over, and whether they crashed.
pub(super) fn told_over(effects: &[Effect]) -> Vec<(u64, bool)> {
    let over = effects.iter().filter_map(|effect| match effect {
        Effect::Over(run, summary) => Some((*run, summary.why_crashed().is_some())),
        _ => None,
    });
    over.collect()
}

/// A coordinator whose invariants are checked between any two events, and at the end.
pub(super) struct Checked(StreamCoordinator);

impl Checked {
    pub(super) fn new(name: &str, members: Vec<ServerId>) -> Checked {
        Checked(StreamCoordinator::new(name, members))
    }

    pub(super) fn with_versions_after(self, version: u64) -> Checked {
        let stream = StreamCoordinator::new(&self.name, self.members.clone());
        Checked(stream.with_versions_after(version))
    }

    /// A rank joins; it does not matter which process it is.
    pub(super) fn join(
        &mut self,
        rank: u32,
        server: ServerId,
        options: RunOptions,
    ) -> crate::Result<(Joined, Vec<Effect>)> {
        self.deref_mut().join(Joining { rank, who: Identity::default(), options }, server)
    }

    /// A rank comes back.
    pub(super) fn rejoin(
        &mut self,
        rank: u32,
        server: ServerId,
        options: RunOptions,
        back_to: Rejoin,
        epoch: Epoch,
    ) -> crate::Result<(Joined, Vec<Effect>)> {
        self.deref_mut().rejoin(Joining { rank, who: Identity::default(), options }, server, back_to, epoch)
    }

    fn check(&self) {
        self.0.sanity_check().unwrap_or_else(|text| panic!("{text}"));
    }
}

impl Deref for Checked {
    type Target = StreamCoordinator;

    fn deref(&self) -> &StreamCoordinator {
        &self.0
    }
}

impl DerefMut for Checked {
    /// Called before each event: what the one before has led to is checked.
    fn deref_mut(&mut self) -> &mut StreamCoordinator {
        self.check();
        &mut self.0
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

pub(super) fn options(size: u32, policy: Policy) -> RunOptions {
    let durability = Durability::Local;
    RunOptions {
        size,
        policy,
        keep: 0,
        queue_bytes: 100,
        continues: None,
        replicas: 1,
        durability,
        wait_for_readers: 0,
        job: String::new(),
    }
}

pub(super) fn field() -> Field {
    Field::new("U", Dtype::U8, Some(&[4, 10]), 2)
}

pub(super) fn ended(rank: u32, step: StepNumber) -> StepContribution {
    let block = BlockRecord {
        key: BlockKey::whole(rank, 0),
        level: 0,
        extent: Extent::new(Some(&[u64::from(rank) * 2, 0]), &[2, 10], &[], &[]).unwrap(),
        location: Location { server: ServerId(rank), arena: 0, offset: 0, bytes: 20, generation: step },
        inline: None,
        stats: None,
    };
    StepContribution {
        step,
        time: step as f64,
        fields: vec![FieldContribution::new(field(), vec![block])],
        attrs: Attrs::default(),
        dropped: false,
        torn: false,
        servers: Vec::new(),
    }
}

pub(super) fn needs(every: u32) -> Needs {
    Needs::Fields(vec![Need { terms: Terms::every(every), ..Need::new("U") }])
}

/// A stream with two ranks on two servers and one consumer attached before it begins.
pub(super) fn stream(policy: Policy, every: u32, window: u32) -> Checked {
    let mut stream = Checked::new("s", vec![S0, S1]);
    let attachment = Attachment::new(needs(every), S0, window);
    stream.attach(AttachmentId(7), attachment, Start::Next).unwrap();
    for rank in 0..2 {
        let (joined, _) = stream.join(rank, ServerId(rank), options(2, policy)).unwrap();
        assert_eq!(joined.run, 1);
        assert!(joined.cuts.at(0).wants(&field(), 0));
        stream.define(1, rank, field()).unwrap();
    }
    stream
}

pub(super) fn step(stream: &mut StreamCoordinator, number: StepNumber) -> Vec<Effect> {
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, number)), []);
    stream.on_step_ended(1, 1, S1, ended(1, number))
}

/// All but what the servers are told of attachments, and of where named ones stop.
pub(super) fn without_records(mut effects: Vec<Effect>) -> Vec<Effect> {
    effects.retain(|effect| !matches!(effect, Effect::Attachment(..) | Effect::Cursor(..)));
    effects
}

pub(super) fn delivered(effects: &[Effect]) -> Vec<(StepNumber, u64)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Deliver(_, report) => Some((report.id.step, report.missed)),
            _ => None,
        })
        .collect()
}

pub(super) fn freed(effects: &[Effect]) -> Vec<StepNumber> {
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
        ended.fields[0].registered = RegisteredBlocks { blocks: 3, bytes: 60 };
        ended.servers = vec![ServerId(rank), ServerId(5 + rank)];
        ended
    };
    assert_eq!(stream.on_step_ended(1, 0, S0, registered(0)), []);
    let effects = stream.on_step_ended(1, 1, S1, registered(1));
    let [Effect::Deliver(_, report)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((report.fields[0].blocks.len(), report.fields[0].registered), (0, 6));
    assert_eq!(stream.status().held, (120, 6));
    let effects = stream.release(AttachmentId(7), 1, 0, false);
    let servers = vec![S0, S1, ServerId(5), ServerId(6)];
    let id = StepId { stream: "s".into(), run: 1, step: 0 };
    assert_eq!(effects, [Effect::Free { id, servers, unseen_before: 0 }]);
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

/// What is kept is held anyway.
#[test]
fn what_is_kept_is_not_dropped_for_those_that_wait() {
    for (keep, missed) in [(9, 0), (3, 2), (0, 5)] {
        let mut stream = Checked::new("s", vec![S0, S1]);
        stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
        for rank in 0..2 {
            let options = RunOptions { keep, ..options(2, Policy::DropOldest) };
            stream.join(rank, ServerId(rank), options).unwrap();
            stream.define(1, rank, field()).unwrap();
        }
        assert_eq!(delivered(&step(&mut stream, 0)), [(0, 0)]);
        (1..8).for_each(|number| drop(step(&mut stream, number)));
        let next = delivered(&stream.release(AttachmentId(7), 1, 0, false));
        assert_eq!(next, [(1 + missed, missed)], "two wait, {keep} are kept");
    }
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
    assert_eq!(stream.on_memory_pressure(), []);
}

#[test]
fn pressure_takes_what_nobody_reads() {
    let mut stream = stream(Policy::DropOldest, 1, 1);
    step(&mut stream, 0);
    step(&mut stream, 1);
    assert_eq!(freed(&stream.on_memory_pressure()), [1], "step 0 is being read");
    assert_eq!(stream.on_memory_pressure(), []);
}

#[test]
fn a_contract_that_cannot_be_met_takes_nothing_from_who_reads() {
    for follow in [false, true] {
        let mut stream = stream(Policy::DropOldest, 1, 2);
        stream.attachments.get_mut(&AttachmentId(7)).unwrap().follow = follow;
        for number in 0..4 {
            step(&mut stream, number);
        }
        stream.release(AttachmentId(7), 1, 1, true);
        for rank in 0..2 {
            stream.on_rank_gone(1, rank, CLOSED);
        }
        // The next run offers something else. Without `follow` that is none of its business.
        stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
        stream.define(2, 0, Field::new("W", Dtype::U8, Some(&[4, 10]), 2)).unwrap();
        let effects = stream.on_step_begun(2, 0, 0);
        let failed = effects.iter().any(|effect| matches!(effect, Effect::Failed(AttachmentId(7), _)));
        assert_eq!(failed, follow);
        assert_eq!(freed(&effects), if follow { vec![3] } else { vec![] }, "it was told of 0, 1 and 2");
        for number in [0, 1, 2] {
            assert!(freed(&stream.release(AttachmentId(7), 1, number, false)).contains(&number));
        }
    }
}

#[test]
fn steps_of_who_may_come_back_are_kept_for_a_while() {
    let mut stream = stream(Policy::Block, 1, 2);
    for number in 0..3 {
        step(&mut stream, number);
    }
    // It was told of steps 0 and 1, and step 2 waits for it.
    assert_eq!(freed(&stream.await_back(AttachmentId(7))), []);
    let back = Attachment::new(needs(1), S0, 2);
    let effects = stream.attach(AttachmentId(8), back, Start::Rejoin(1, 1)).unwrap();
    assert_eq!(delivered(&effects), [(1, 0), (2, 0)]);
    let looked: Vec<Effect> = (0..20).flat_map(|_| stream.give_up_overdue()).collect();
    assert_eq!(freed(&looked), [0], "nobody else has come");
    // Of many not all are awaited.
    for number in 0..100 {
        let id = AttachmentId(100 + number);
        stream.attach(id, Attachment::new(needs(1), S0, 2), Start::Oldest).unwrap();
        stream.await_back(id);
    }
    let places = stream.attachments.values().filter(|attachment| attachment.is_stand_in()).count();
    assert_eq!(places, 64);
    assert_eq!(freed(&stream.await_back(AttachmentId(9))), [], "of nobody nothing is kept");
}

#[test]
fn who_cannot_be_told_of_a_step_keeps_what_it_was_told_of() {
    let mut stream = stream(Policy::Block, 1, 2);
    for number in 0..3 {
        step(&mut stream, number);
    }
    let error = Error::invalid("too long");
    let effects = stream.fail(AttachmentId(7), error.clone(), Some((1, 1)));
    assert_eq!(freed(&effects), [1, 2]);
    assert!(effects.contains(&Effect::Failed(AttachmentId(7), error)));
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 0, false)), [0]);
    assert!(stream.attachments.is_empty());
}

#[test]
fn steps_that_a_rank_leaves_out_are_torn() {
    let mut first = stream(Policy::DropOldest, 1, 9);
    for number in 0..3 {
        assert_eq!(first.on_step_ended(1, 0, S0, ended(0, number)), []);
    }
    // It says so when it begins a later one; what it left out closes, the step that it begins does not.
    let effects = first.on_step_begun(1, 1, 2);
    assert_eq!(delivered(&effects), [(0, 0), (1, 0)]);
    assert!(effects.iter().all(|effect| matches!(effect, Effect::Deliver(_, report) if report.torn)));
    let effects = first.on_step_ended(1, 1, S1, ended(1, 2));
    assert!(matches!(&effects[..], [Effect::Deliver(_, report)] if report.id.step == 2 && !report.torn));
    // A slower rank comes to a step that a faster one has left out.
    assert_eq!(first.on_step_ended(1, 0, S0, ended(0, 9)), []);
    assert_eq!(delivered(&first.on_step_ended(1, 1, S1, ended(1, 5))), [(5, 0)]);
    assert_eq!(delivered(&first.on_step_ended(1, 1, S1, ended(1, 9))), [(9, 0)]);
}

#[test]
fn who_takes_all_steps_is_told_of_those_that_were_dropped_or_torn_or_are_not_needed() {
    for takes in [Delivery::Whole, Delivery::Torn, Delivery::All] {
        let mut stream = stream(Policy::Block, 1, 9);
        let mut attachment = Attachment::new(needs(2), S0, 9);
        attachment.delivery = takes;
        stream.attach(AttachmentId(8), attachment, Start::Oldest).unwrap();
        stream.detach(AttachmentId(7));
        let mut told = Vec::new();
        let mut note = |effects: Vec<Effect>| {
            for effect in effects {
                let Effect::Deliver(_, report) = effect else { continue };
                told.push((report.id.step, report.torn, report.dropped, report.fields.len(), report.missed));
            }
        };
        for number in 0..4 {
            note(step(&mut stream, number));
        }
        stream.on_step_ended(1, 0, S0, StepContribution { dropped: true, ..ended(0, 4) });
        note(stream.on_step_ended(1, 1, S1, ended(1, 4)));
        stream.on_step_ended(1, 0, S0, ended(0, 6));
        note(stream.on_rank_gone(1, 1, RankEnd::Died));
        let [whole, torn] = [(2, false, false, 1, 0), (6, true, false, 1, 1)];
        let first = (0, false, false, 1, 0);
        assert_eq!(
            told,
            match takes {
                Delivery::Whole => vec![first, whole],
                Delivery::Torn => vec![first, whole, torn],
                Delivery::All => vec![
                    first,
                    (1, false, false, 0, 0),
                    whole,
                    (3, false, false, 0, 0),
                    (4, false, true, 1, 0),
                    (6, true, false, 1, 0),
                ],
            },
            "{takes:?}"
        );
    }
}

#[test]
fn drops_are_counted_where_they_were() {
    let mut stream = stream(Policy::Block, 1, 1);
    for number in 0..6 {
        stream.on_step_ended(1, 0, S0, ended(0, number));
        stream.on_step_ended(
            1,
            1,
            S1,
            StepContribution { dropped: number == 3 || number == 5, ..ended(1, number) },
        );
    }
    let mut told = Vec::new();
    for number in [0, 1, 2] {
        told.extend(delivered(&stream.release(AttachmentId(7), 1, number, false)));
    }
    assert_eq!(told, [(1, 0), (2, 0), (4, 1)]);
    stream.on_rank_gone(1, 0, CLOSED);
    let ended = stream.on_rank_gone(1, 1, CLOSED);
    assert_eq!(told_over(&ended), [(1, false)]);
    assert_eq!(ends(&ended), [(7, 1, ErrorKind::Ended)], "step 5 was dropped");
}

#[test]
fn overlaps_are_told_to_the_rank_that_caused_them() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    stream.on_step_ended(1, 0, S0, ended(0, 0));
    let mut bad = ended(1, 0);
    bad.fields[0].blocks[0].extent = Extent::new(Some(&[1, 0]), &[2, 10], &[], &[]).unwrap();
    let effects = stream.on_step_ended(1, 1, S1, bad);
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
fn steps_of_a_few_bytes_do_not_wait_without_end() {
    let mut stream = Checked::new("s", vec![S0]);
    stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
    let options = RunOptions { queue_bytes: u64::MAX, ..options(1, Policy::DropOldest) };
    stream.join(0, S0, options).unwrap();
    stream.define(1, 0, field()).unwrap();
    let last = WAITING_MAX as u64 + 50;
    for number in 0..=last {
        stream.on_step_ended(1, 0, S0, ended(0, number));
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
    forgetful.remembers_run = false;
    for (id, attachment) in [(8, Attachment::new(needs(1), S0, 8)), (9, forgetful)] {
        for effect in without_records(stream.attach(AttachmentId(id), attachment, Start::Next).unwrap()) {
            let Effect::Prepare { version, .. } = effect else { panic!("{effect:?}") };
            assert_eq!(stream.on_prepared(S0, version, Some(2)), []);
            stream.on_prepared(S1, version, Some(2));
        }
    }
    let a = || Some(vec!["a".to_owned()]);
    assert_eq!(told_attrs(&step(&mut stream, 3)), [None, a(), a()]);
    assert_eq!(told_attrs(&step(&mut stream, 4)), [None, None, a()]);
}
