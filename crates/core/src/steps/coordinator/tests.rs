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

/// A reader that comes as a run ends, while a server does not answer.
#[test]
fn who_takes_part_from_the_end_on_is_told_of_it() {
    let mut stream = stream(Policy::Block, 1, 1);
    let effects = stream.attach(AttachmentId(8), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
    let [Effect::Prepare { version, .. }] = without_records(effects)[..] else { panic!() };
    assert_eq!(stream.on_prepared(S0, version, Some(0)), []);
    assert_eq!(delivered(&step(&mut stream, 0)), [(0, 0)]);
    stream.on_rank_gone(1, 0, CLOSED);
    assert_eq!(ends(&stream.on_rank_gone(1, 1, CLOSED)), [(7, 0, ErrorKind::Ended)]);
    let effects = stream.on_prepared(S1, version, Some(0));
    assert_eq!(stream.active_from(AttachmentId(8)), Some((1, 1)));
    assert_eq!(ends(&effects), [(8, 0, ErrorKind::Ended)]);
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

/// Of a run that goes on, of one that is over, and of one that never was.
#[test]
fn a_cursor_goes_on_where_another_reader_stopped() {
    let options = || RunOptions { keep: 20, ..options(1, Policy::DropOldest) };
    let mut stream = Checked::new("s", vec![S0]);
    let reader = |follow| {
        let mut reader = Attachment::new(needs(1), S0, 20);
        reader.follow = follow;
        reader
    };
    let steps = |stream: &mut Checked, run| {
        stream.join(0, S0, options()).unwrap();
        stream.define(run, 0, field()).unwrap();
        (0..4).for_each(|number| drop(stream.on_step_ended(run, 0, S0, ended(0, number))));
    };
    steps(&mut stream, 1);
    let effects = stream.attach(AttachmentId(7), reader(false), Start::Cursor(1, 2)).unwrap();
    assert_eq!(delivered(&effects), [(2, 0), (3, 0)]);
    let version = effects.iter().find_map(|effect| match effect {
        Effect::Prepare { version, .. } => Some(*version),
        _ => None,
    });
    stream.on_prepared(S0, version.unwrap(), Some(3));
    assert_eq!(stream.active_from(AttachmentId(7)), Some((1, 4)), "its demand is in force from then on");
    stream.attach(AttachmentId(8), reader(true), Start::Cursor(1, 9)).unwrap();
    let over = stream.on_rank_gone(1, 0, CLOSED);
    assert_eq!(ends(&over), [(7, 0, ErrorKind::Ended)], "{over:?}");
    let effects = stream.attach(AttachmentId(9), reader(false), Start::Cursor(1, 3)).unwrap();
    assert_eq!(delivered(&effects), [(3, 0)]);
    assert_eq!(ends(&effects), [(9, 0, ErrorKind::Ended)], "{effects:?}");
    steps(&mut stream, 2);
    let effects = stream.attach(AttachmentId(10), reader(true), Start::Cursor(1, 3)).unwrap();
    assert_eq!(delivered(&effects), [(3, 0), (0, 0), (1, 0), (2, 0), (3, 0)], "the first is held by others");
    let effects = stream.attach(AttachmentId(11), reader(false), Start::Cursor(1, 3)).unwrap();
    assert_eq!(delivered(&effects), [(3, 0)]);
    let unknown = stream.attach(AttachmentId(12), reader(true), Start::Cursor(3, 0)).unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::NotFound);
    assert!(unknown.text.contains("run 3") && unknown.text.contains("its latest is 2"), "{}", unknown.text);
    assert_eq!(stream.status().readers.len(), 5);
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
fn a_dead_rank_tears_its_step_and_ends_the_run() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    step(&mut stream, 0);
    stream.on_step_ended(1, 0, S0, ended(0, 1));
    let effects = stream.on_rank_gone(1, 1, RankEnd::Died);
    let Effect::Deliver(_, report) = &effects[0] else { panic!("{effects:?}") };
    assert!(report.torn);
    let ended = stream.on_rank_gone(1, 0, CLOSED);
    assert_eq!(told_over(&ended), [(1, true)]);
    assert_eq!(ends(&ended), [(7, 0, ErrorKind::Crashed)], "it holds both steps");
    let StreamPhase::Over(summary) = stream.status().phase else { panic!("{:?}", stream.status()) };
    assert_eq!(summary.why_crashed(), Some("rank 1 of 2 ended without closing it"));
    assert_eq!(summary.reached, Some(1));
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 0, false)), [0]);
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 1, false)), [1]);
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
fn a_rank_that_comes_late_is_told_what_held_before() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.join(0, S0, options(2, Policy::DropOldest)).unwrap();
    stream.define(1, 0, field()).unwrap();
    let effects = stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
    let effects = without_records(effects);
    let [Effect::Prepare { run: 1, version }] = effects[..] else { panic!("{effects:?}") };
    // The first rank leaves while that is being agreed: its home knows no more how far it was.
    stream.note_highest_step_left(1, 4);
    stream.on_rank_gone(1, 0, CLOSED);
    stream.on_prepared(S0, version, None);
    let (joined, _) = stream.join(1, S1, options(2, Policy::DropOldest)).unwrap();
    assert_eq!((joined.run, joined.agreeing), (1, Some(version)));
    assert!(joined.cuts.at(StepNumber::MAX).is_empty());
    let effects = stream.on_prepared(S1, version, None);
    let effects = without_records(effects);
    let [Effect::Decide(decision)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(decision.from, 5);
    // Whoever comes after the decision is told of it, and that nothing held before.
    stream.on_join_abandoned(1, 1);
    let (joined, _) = stream.join(1, S1, options(2, Policy::DropOldest)).unwrap();
    assert_eq!((joined.run, joined.agreeing), (1, None));
    assert!(!joined.cuts.at(4).wants(&field(), 4) && joined.cuts.at(5).wants(&field(), 5));
}

#[test]
fn a_rank_that_never_came_may_come_again() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
    assert_eq!(stream.join(0, S0, options(2, Policy::Block)).unwrap_err().kind, ErrorKind::Conflict);
    stream.on_join_abandoned(1, 0);
    assert!(stream.is_idle());
    assert_eq!(stream.join(0, S0, options(2, Policy::Block)).unwrap().0.run, 1);
    assert_eq!(stream.join(1, S0, options(2, Policy::Block)).unwrap().0.run, 1);
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
fn the_oldest_and_all_after_it() {
    let mut stream = Checked::new("s", vec![S0]);
    let options = RunOptions { keep: 20, ..options(1, Policy::DropOldest) };
    stream.join(0, S0, options).unwrap();
    stream.define(1, 0, field()).unwrap();
    for number in 0..3 {
        stream.on_step_ended(1, 0, S0, ended(0, number));
    }
    // Two steps run while somebody attaches: one closes before its demand is agreed, one after.
    let mut effects = without_records(
        stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 9), Start::Oldest).unwrap(),
    );
    let [.., Effect::Deliver(..)] = effects[..] else { panic!("{effects:?}") };
    let Effect::Prepare { version, .. } = effects[0] else { panic!("{effects:?}") };
    effects.extend(stream.on_step_ended(1, 0, S0, ended(0, 3)));
    effects.extend(stream.on_prepared(S0, version, Some(4)));
    effects.extend(stream.on_step_ended(1, 0, S0, ended(0, 4)));
    effects.extend(stream.on_step_ended(1, 0, S0, ended(0, 5)));
    assert_eq!(delivered(&effects), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
    // One that comes after the end is told of that at once, though it holds the steps.
    stream.on_rank_gone(1, 0, CLOSED);
    let effects = stream.attach(AttachmentId(8), Attachment::new(needs(1), S0, 9), Start::Oldest).unwrap();
    assert_eq!(delivered(&effects).len(), 6);
    assert_eq!(ends(&effects), [(8, 0, ErrorKind::Ended)]);
    // What one wants that begins with the next step is past.
    let effects = stream.attach(AttachmentId(9), Attachment::new(needs(1), S0, 9), Start::Next).unwrap();
    assert_eq!(ends(&effects), [(9, 0, ErrorKind::NotFound)]);
}

#[test]
fn one_that_looks_at_what_is_held_demands_nothing() {
    let mut stream = Checked::new("s", vec![S0]);
    let options = RunOptions { keep: 2, ..options(1, Policy::DropOldest) };
    stream.join(0, S0, options).unwrap();
    stream.define(1, 0, field()).unwrap();
    for number in 0..3 {
        stream.on_step_ended(1, 0, S0, ended(0, number));
    }
    // Neither servers nor ranks hear of it; it is told of what there is, and of the end of that.
    let reader = || Attachment::new(needs(1), S0, 1);
    let effects = stream.attach(AttachmentId(7), reader(), Start::HELD).unwrap();
    assert_eq!(delivered(&effects), [(1, 0)]);
    assert_eq!(effects.len(), 1, "{effects:?}");
    // What it has not been told of stays, what comes later is not for it.
    for number in 3..6 {
        stream.on_step_ended(1, 0, S0, ended(0, number));
    }
    let effects = stream.release(AttachmentId(7), 1, 1, false);
    assert_eq!(delivered(&effects), [(2, 0)]);
    assert_eq!(ends(&effects), [(7, 0, ErrorKind::Ended)]);
    let effects = stream.release(AttachmentId(7), 1, 2, false);
    assert_eq!(freed(&effects), [2], "it is not kept any more");
    assert!(stream.detach(AttachmentId(7)).is_empty());
    // The newest alone; and of a stream that holds nothing, nothing.
    let newest = Attachment { take: Take::Latest, ..reader() };
    assert_eq!(delivered(&stream.attach(AttachmentId(8), newest, Start::HELD).unwrap()), []);
    assert_eq!(delivered(&stream.on_asked(AttachmentId(8), false)), [(5, 1)]);
    let mut empty = Checked::new("t", vec![S0]);
    let effects = empty.attach(AttachmentId(9), reader(), Start::HELD).unwrap();
    assert_eq!(ends(&effects), [(9, 0, ErrorKind::Ended)]);
}

#[test]
fn the_newest_and_all_after_it() {
    let mut stream = Checked::new("s", vec![S0]);
    let options = RunOptions { keep: 20, ..options(1, Policy::DropOldest) };
    stream.join(0, S0, options).unwrap();
    stream.define(1, 0, field()).unwrap();
    let reader = || Attachment::new(needs(1), S0, 9);
    let agreed = |stream: &mut Checked, id, start, highest| {
        let mut effects = without_records(stream.attach(AttachmentId(id), reader(), start).unwrap());
        let version = effects.iter().find_map(|effect| match effect {
            Effect::Prepare { version, .. } => Some(*version),
            _ => None,
        });
        effects.extend(stream.on_prepared(S0, version.unwrap(), highest));
        effects
    };
    assert_eq!(delivered(&agreed(&mut stream, 6, Start::Latest, None)), []);
    assert_eq!(
        delivered(&stream.on_step_ended(1, 0, S0, ended(0, 0))),
        [(0, 0)],
        "without any it is the next one"
    );
    for number in 1..3 {
        stream.on_step_ended(1, 0, S0, ended(0, number));
    }
    assert_eq!(delivered(&agreed(&mut stream, 7, Start::Latest, Some(2))), [(2, 0)]);
    assert_eq!(delivered(&stream.on_step_ended(1, 0, S0, ended(0, 3))), [(3, 0), (3, 0)]);
    stream.on_rank_gone(1, 0, CLOSED);
    let effects = stream.attach(AttachmentId(8), reader(), Start::Latest).unwrap();
    assert_eq!((delivered(&effects), ends(&effects)), (vec![(3, 0)], vec![(8, 0, ErrorKind::Ended)]));
}

#[test]
fn one_that_wants_whole_runs_waits_for_the_next_where_one_has_begun() {
    let mut stream = Checked::new("s", vec![S0]);
    let agree = |stream: &mut Checked, effects: Vec<Effect>, highest| {
        let mut told = Vec::new();
        let mut left: Vec<Effect> = effects;
        while let Some(version) = left.iter().find_map(|effect| match effect {
            Effect::Prepare { version, .. } => Some(*version),
            _ => None,
        }) {
            left = stream.on_prepared(S0, version, highest);
            told.extend(left.clone());
        }
        told
    };
    let attach = |stream: &mut Checked, id, highest| {
        let effects = stream.attach(AttachmentId(id), Attachment::new(needs(1), S0, 9), Start::Run).unwrap();
        agree(stream, effects, highest);
        stream.active_from(AttachmentId(id))
    };
    let options = || options(1, Policy::DropOldest);
    stream.join(0, S0, options()).unwrap();
    stream.define(1, 0, field()).unwrap();
    assert_eq!(attach(&mut stream, 7, None), Some((1, 0)), "no step has begun");
    assert_eq!(delivered(&stream.on_step_ended(1, 0, S0, ended(0, 0))), [(0, 0)]);
    assert_eq!(attach(&mut stream, 8, Some(0)), None, "one has");
    assert_eq!(
        delivered(&stream.on_step_ended(1, 0, S0, ended(0, 1))),
        [(1, 0)],
        "the other one is not told"
    );
    let gone = stream.on_rank_gone(1, 0, CLOSED);
    assert_eq!(ends(&gone), [(7, 0, ErrorKind::Ended)]);
    assert_eq!(attach(&mut stream, 9, None), None, "it waits for a run, whatever has ended");
    stream.join(0, S0, options()).unwrap();
    stream.define(2, 0, field()).unwrap();
    assert_eq!(delivered(&stream.on_step_ended(2, 0, S0, ended(0, 0))), [(0, 0), (0, 0)]);
    assert_eq!(
        ends(&stream.on_rank_gone(2, 0, CLOSED)),
        [(8, 0, ErrorKind::Ended), (9, 0, ErrorKind::Ended)]
    );
}

#[test]
fn one_that_takes_the_newest_alone_is_told_of_it_when_it_asks() {
    for policy in [Policy::Block, Policy::DropOldest] {
        let mut stream = stream(policy, 1, 4);
        let mut live = Attachment::new(needs(1), S0, 4);
        live.take = Take::Latest;
        let effects = stream.attach(AttachmentId(8), live, Start::Next).unwrap();
        let version = effects.iter().find_map(|effect| match effect {
            Effect::Prepare { version, .. } => Some(*version),
            _ => None,
        });
        stream.on_prepared(S0, version.unwrap(), None);
        stream.on_prepared(S1, version.unwrap(), None);
        for number in 0..3 {
            assert_eq!(delivered(&step(&mut stream, number)), [(number, 0)], "to the other one");
        }
        assert_eq!(delivered(&stream.on_asked(AttachmentId(8), false)), [(2, 2)], "it has missed two");
        assert_eq!(delivered(&stream.on_asked(AttachmentId(8), false)), [], "it waits for the next");
        let told: Vec<_> = delivered(&step(&mut stream, 3));
        assert_eq!(told, [(3, 0), (3, 0)]);
        step(&mut stream, 4);
        for number in 0..5 {
            stream.release(AttachmentId(7), 1, number, false);
        }
        assert_eq!(freed(&stream.on_memory_pressure()), [4], "what waits for it holds nobody up");
        step(&mut stream, 5);
        stream.on_rank_gone(1, 0, CLOSED);
        assert_eq!(
            ends(&stream.on_rank_gone(1, 1, CLOSED)),
            [(7, 0, ErrorKind::Ended)],
            "it has a step to ask for"
        );
        stream.release(AttachmentId(7), 1, 5, false);
        let effects = stream.on_asked(AttachmentId(8), false);
        assert_eq!((delivered(&effects), ends(&effects)), (vec![(5, 1)], vec![(8, 0, ErrorKind::Ended)]));
    }
}

/// A reader as it sees itself.
struct Reader {
    id: AttachmentId,
    /// The steps that it wants, in the order in which they closed.
    wanted: Vec<StepNumber>,
    /// How many of them it was told of, or told that they were dropped.
    accounted: usize,
    holds: Vec<StepNumber>,
    closed: bool,
    ended: u32,
}

/// A stream of two ranks, and all that is known of it from outside.
struct Model {
    stream: Checked,
    next: [StepNumber; 2],
    /// Steps that a rank has ended, and those of them that have closed.
    touched: BTreeSet<StepNumber>,
    closed: BTreeSet<StepNumber>,
    readers: Vec<Reader>,
}

impl Model {
    fn new(policy: Policy, keep: u32) -> Model {
        let mut stream = Checked::new("s", vec![S0, S1]);
        for rank in 0..2 {
            stream.join(rank, ServerId(rank), RunOptions { keep, ..options(2, policy) }).unwrap();
            stream.define(1, rank, field()).unwrap();
        }
        let (touched, closed) = (BTreeSet::new(), BTreeSet::new());
        Model { stream, next: [0; 2], touched, closed, readers: Vec::new() }
    }

    /// Takes in what follows, and checks that it agrees with what is known.
    fn apply(&mut self, effects: Vec<Effect>) {
        self.see_closed();
        for effect in effects {
            match effect {
                Effect::Prepare { version, .. } => {
                    for server in [S0, S1] {
                        let highest = self.next[server.0 as usize].checked_sub(1);
                        let effects = self.stream.on_prepared(server, version, highest);
                        self.apply(effects);
                    }
                }
                Effect::Deliver(id, report) => {
                    let reader = self.readers.iter_mut().find(|reader| reader.id == id).unwrap();
                    assert!(!reader.closed && reader.ended == 0);
                    reader.accounted += report.missed as usize;
                    assert_eq!(reader.wanted.get(reader.accounted), Some(&report.id.step), "{id:?}");
                    reader.accounted += 1;
                    reader.holds.push(report.id.step);
                }
                Effect::Ended(id, end) => {
                    let reader = self.readers.iter_mut().find(|reader| reader.id == id).unwrap();
                    reader.accounted += end.missed as usize;
                    assert_eq!(reader.accounted, reader.wanted.len(), "{id:?}");
                    reader.ended += 1;
                }
                Effect::Free { id, .. } => {
                    assert!(!self.readers.iter().any(|reader| reader.holds.contains(&id.step)), "{id:?}");
                }
                _ => {}
            }
        }
        self.see_closed();
        self.check();
    }

    fn see_closed(&mut self) {
        let open = &self.stream.runs[&1].open;
        let closed: Vec<_> =
            self.touched.difference(open).filter(|s| !self.closed.contains(s)).copied().collect();
        for step in closed {
            self.closed.insert(step);
            for reader in self.readers.iter_mut().filter(|reader| !reader.closed) {
                let attachment = &self.stream.attachments[&reader.id];
                if attachment.oldest || attachment.from().is_some_and(|from| from <= (1, step)) {
                    reader.wanted.push(step);
                }
            }
        }
    }

    fn check(&self) {
        let run = &self.stream.runs[&1];
        assert!(run.kept.len() <= run.options.keep as usize);
        for (number, step) in &run.steps {
            assert_eq!(step.is_closed(), !run.open.contains(number));
            let holds = self
                .stream
                .attachments
                .values()
                .filter(|a| a.holds().any(|held| held == (1, *number)))
                .count();
            assert_eq!(step.holds as usize, holds, "step {number}");
            assert!(!step.is_closed() || holds > 0 || run.kept.contains(number), "step {number} is nobody's");
        }
        // No rank stays behind a step that it has left out.
        for number in &run.open {
            assert!(self.next.iter().any(|next| next <= number), "step {number} waits for nobody");
        }
    }

    fn rank_ends(&mut self, rank: u32, skip: u64, dropped: bool, says_begun: bool) {
        let number = self.next[rank as usize] + skip;
        if says_begun {
            let effects = self.stream.on_step_begun(1, rank, number);
            self.apply_after_begin(rank, number, effects);
        }
        self.touched.insert(number);
        let effects = self.stream.on_step_ended(
            1,
            rank,
            ServerId(rank),
            StepContribution { dropped, ..ended(rank, number) },
        );
        self.next[rank as usize] = number + 1;
        self.apply(effects);
    }

    fn apply_after_begin(&mut self, rank: u32, number: StepNumber, effects: Vec<Effect>) {
        self.next[rank as usize] = number;
        self.apply(effects);
    }

    fn attach(&mut self, window: u32, start: Start) {
        let id = AttachmentId(self.readers.len() as u64);
        let mut wanted = Vec::new();
        if start == Start::Oldest {
            let steps = &self.stream.runs[&1].steps;
            wanted.extend(steps.iter().filter(|(_, step)| step.is_closed()).map(|(number, _)| *number));
        }
        let reader = Reader { id, wanted, accounted: 0, holds: Vec::new(), closed: false, ended: 0 };
        self.readers.push(reader);
        let effects = self.stream.attach(id, Attachment::new(needs(1), S0, window), start).unwrap();
        self.apply(effects);
    }

    fn release(&mut self, who: usize, pin: bool) {
        let Some(reader) = self.readers.get_mut(who).filter(|reader| !reader.holds.is_empty()) else {
            return;
        };
        let (id, step) = (reader.id, reader.holds[0]);
        if pin {
            let effects = self.stream.release(id, 1, step, true);
            self.apply(effects);
        }
        self.readers[who].holds.remove(0);
        let effects = self.stream.release(id, 1, step, false);
        self.apply(effects);
    }

    fn close(&mut self, who: usize, keeps: bool) {
        let Some(reader) = self.readers.get_mut(who).filter(|reader| !reader.closed) else { return };
        reader.closed = true;
        reader.holds.truncate(usize::from(keeps));
        let held: Vec<_> = reader.holds.iter().map(|step| (1, *step)).collect();
        let effects = self.stream.close(reader.id, &held);
        self.apply(effects);
    }
}

proptest! {
    /// Whatever ranks and readers do: each step that a reader wants is told or counted, in its place; nothing is
    /// freed that somebody holds, and nothing stays that nobody does.
    #[test]
    fn steps_are_told_or_counted_and_freed(
        (policy, keep) in (0u8..3, 0u32..3),
        actions in prop::collection::vec((0u8..12, 0u32..2, 0usize..4, any::<bool>()), 1..150),
    ) {
        let policy = [Policy::DropOldest, Policy::Latest, Policy::Block][usize::from(policy)];
        let mut model = Model::new(policy, keep);
        for (what, rank, who, yes) in actions {
            match what {
                0..=4 => model.rank_ends(rank, 0, what == 0 && yes, false),
                5 => model.rank_ends(rank, 1 + who as u64, false, yes),
                6 if model.readers.len() < 4 => {
                    // All is staged from the first step on only if some of it is kept.
                    let start = if yes && keep > 0 { Start::Oldest } else { Start::Next };
                    model.attach(1 + who as u32, start);
                }
                7 => {
                    let effects = model.stream.on_memory_pressure();
                    model.apply(effects);
                }
                8 if rank == 0 => model.close(who, yes),
                _ => model.release(who, yes),
            }
        }
        for rank in 0..2 {
            let effects = model.stream.on_rank_gone(1, rank, CLOSED);
            // It ends nothing any more.
            model.next[rank as usize] = 0;
            model.apply(effects);
        }
        for who in 0..model.readers.len() {
            while !model.readers[who].holds.is_empty() {
                model.release(who, false);
            }
            let reader = &model.readers[who];
            prop_assert_eq!(reader.ended, u32::from(!reader.closed));
        }
        let run = &model.stream.runs[&1];
        prop_assert!(run.steps.keys().eq(&run.kept));
    }
}

#[test]
fn what_a_dead_rank_had_put_stays_in_its_torn_step() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    stream.on_step_ended(1, 1, S1, StepContribution { torn: true, ..ended(1, 0) });
    assert_eq!(stream.on_rank_gone(1, 1, RankEnd::Died), []);
    let effects = stream.on_step_ended(1, 0, S0, ended(0, 0));
    let Effect::Deliver(_, report) = &effects[0] else { panic!("{effects:?}") };
    assert!(report.torn);
    assert_eq!(report.fields[0].blocks.len(), 2);
}

#[test]
fn a_restart_is_a_new_run_and_readers_that_follow_rewind() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    stream.attachments.get_mut(&AttachmentId(7)).unwrap().follow = true;
    step(&mut stream, 5);
    stream.on_rank_gone(1, 0, RankEnd::Died);
    stream.on_rank_gone(1, 1, RankEnd::Died);
    for rank in 0..2 {
        assert_eq!(stream.join(rank, S0, options(2, Policy::DropOldest)).unwrap().0.run, 2);
        stream.define(2, rank, field()).unwrap();
    }
    stream.on_step_ended(2, 0, S0, ended(0, 4));
    let effects = stream.on_step_ended(2, 1, S0, ended(1, 4));
    let Effect::Deliver(_, report) = &effects[0] else { panic!("{effects:?}") };
    assert!(report.rewound && report.id.run == 2);
}

#[test]
fn attaching_while_running_goes_through_a_cut() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
    stream.define(1, 0, field()).unwrap();
    stream.on_step_begun(1, 0, 0);
    let wrong = Attachment::new(Needs::Fields(vec![Need::new("W")]), S0, 1);
    assert_eq!(stream.attach(AttachmentId(1), wrong, Start::Next).unwrap_err().kind, ErrorKind::NotFound);
    let effects = stream.attach(AttachmentId(2), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
    let effects = without_records(effects);
    let [Effect::Prepare { run: 1, version }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!(stream.on_prepared(S0, version, Some(9)), []);
    let effects = stream.on_prepared(S1, version, None);
    let effects = without_records(effects);
    let [Effect::Decide(decision)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((decision.run, decision.from), (1, 10));
    let one = |number| {
        let mut ended = ended(0, number);
        ended.fields[0].blocks[0].location.server = S0;
        ended
    };
    assert_eq!(delivered(&stream.on_step_ended(1, 0, S0, one(9))), []);
    assert_eq!(delivered(&stream.on_step_ended(1, 0, S0, one(10))), [(10, 0)]);
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
fn ranks_that_never_came_are_awaited_until_the_next_run() {
    let mut stream = Checked::new("s", vec![S0]);
    let run_of = |stream: &mut Checked| {
        let (joined, effects) = stream.join(0, S0, options(2, Policy::DropOldest)).unwrap();
        (joined.run, effects)
    };
    stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 8), Start::Next).unwrap();
    assert_eq!(run_of(&mut stream).0, 1);
    stream.define(1, 0, field()).unwrap();
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, 0)), []);
    assert_eq!(stream.on_rank_gone(1, 0, CLOSED), []);
    // Rank 1 may come yet. That rank 0 comes again says that it will not.
    let (run, effects) = run_of(&mut stream);
    assert_eq!((run, delivered(&effects)), (2, vec![(0, 0)]));
    assert_eq!(ends(&effects), [(7, 0, ErrorKind::Crashed)], "rank 1 never came");
    let Effect::Deliver(_, report) = &effects[0] else { unreachable!() };
    assert!(report.torn);
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 0, false)), [0]);
    // The late one belongs to the run that is there.
    assert_eq!(stream.join(1, S0, options(2, Policy::DropOldest)).unwrap().0.run, 2);
}

#[test]
fn a_rank_that_never_came_to_a_run_that_is_followed_is_not_awaited() {
    let mut stream = Checked::new("s", vec![S0]);
    let options = || options(2, Policy::DropOldest);
    stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 8), Start::Next).unwrap();
    for rank in 0..2 {
        assert_eq!(stream.join(rank, S0, options()).unwrap().0.run, 1);
    }
    stream.define(1, 0, field()).unwrap();
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, 0)), []);
    assert_eq!(stream.on_rank_gone(1, 0, CLOSED), []);
    // Rank 1 is still taken for open.
    let (joined, effects) = stream.join(0, S0, options()).unwrap();
    assert_eq!((joined.run, effects), (2, vec![]));
    let effects = stream.on_join_abandoned(1, 1);
    assert_eq!(delivered(&effects), [(0, 0)]);
    assert_eq!(ends(&effects), [(7, 0, ErrorKind::Crashed)], "rank 1 never came");
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 0, false)), [0]);
    assert_eq!(stream.runs.keys().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_reader_that_does_not_follow_belongs_to_one_run() {
    let mut stream = stream(Policy::DropOldest, 1, 1);
    step(&mut stream, 0);
    step(&mut stream, 1);
    assert_eq!(stream.on_rank_gone(1, 0, CLOSED), []);
    assert_eq!(told_over(&stream.on_rank_gone(1, 1, CLOSED)), [(1, false)]);
    // It has not read to the end when the next run begins.
    let (joined, _) = stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
    assert!(joined.run == 2 && !joined.cuts.at(0).wants(&field(), 0));
    let effects = stream.release(AttachmentId(7), 1, 0, false);
    assert_eq!(delivered(&effects), [(1, 0)]);
    assert_eq!(ends(&effects), [(7, 0, ErrorKind::Ended)], "the end of its own run: {effects:?}");
}

#[test]
fn ranks_need_not_be_open_at_the_same_time() {
    let mut stream = Checked::new("s", vec![S0]);
    stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 1), Start::Next).unwrap();
    for rank in 0..2 {
        assert_eq!(stream.join(rank, S0, options(2, Policy::Block)).unwrap().0.run, 1);
        stream.define(1, rank, field()).unwrap();
        let mut ended = ended(rank, 0);
        ended.fields[0].blocks[0].location.server = S0;
        let effects = stream.on_step_ended(1, rank, S0, ended);
        assert_eq!(delivered(&effects).len(), rank as usize);
        stream.on_rank_gone(1, rank, CLOSED);
    }
}

#[test]
fn what_a_rank_left_on_another_server_goes_with_its_step_or_at_once() {
    let free = |step| {
        let id = StepId { stream: "s".into(), run: 1, step };
        Effect::Free { id, servers: vec![ServerId(2)], unseen_before: 0 }
    };
    // The rank's home is heard first: the step is there and its blocks go when it goes.
    let mut first = stream(Policy::DropOldest, 1, 4);
    assert_eq!(first.on_step_ended(1, 0, S0, ended(0, 1)), []);
    assert_eq!(first.on_stranded_blocks(1, 1, 0, ServerId(2)), []);
    step(&mut first, 2);
    let freed = first.detach(AttachmentId(7));
    assert!(
        freed.iter().any(
            |effect| matches!(effect, Effect::Free { id, servers, .. } if id.step == 2 && !servers.contains(&ServerId(2)))
        )
    );
    // The other server is heard first: nothing is freed before the home has said what it knows.
    let mut second = stream(Policy::DropOldest, 1, 4);
    assert_eq!(second.on_stranded_blocks(1, 3, 0, ServerId(2)), []);
    assert!(second.on_rank_gone(1, 0, RankEnd::Died).contains(&free(3)));
    // Or it says so when the rank is known to be gone.
    assert_eq!(second.on_stranded_blocks(1, 4, 0, ServerId(2)), [free(4)]);
    assert_eq!(second.on_stranded_blocks(9, 4, 0, ServerId(2)).len(), 1, "nobody knows the run");
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

#[test]
fn a_new_run_has_no_attributes_of_the_last() {
    let one = Attr { list: false, values: crate::attr::AttrValues::Int(vec![1]) };
    let mut stream = Checked::new("s", vec![S0]);
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
        told.extend(told_attrs(&stream.on_step_ended(run, 0, S0, ended(0, run))));
        stream.on_rank_gone(run, 0, CLOSED);
    }
    assert_eq!(told, [Some(vec!["a".to_owned()]), Some(vec![])]);
}

/// The ranks of a next run come in any order, and may be more.
#[test]
fn a_run_that_is_over_takes_no_more_ranks() {
    let mut stream = Checked::new("s", vec![S0]);
    assert_eq!(stream.join(0, S0, options(1, Policy::Block)).unwrap().0.run, 1);
    stream.on_rank_gone(1, 0, CLOSED);
    assert_eq!(stream.join(1, S0, options(2, Policy::Block)).unwrap().0.run, 2);
    assert_eq!(stream.join(0, S0, options(2, Policy::Block)).unwrap().0.run, 2);
}

#[test]
fn a_rank_that_is_far_ahead_gives_way_to_those_behind() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    for number in 0..5 {
        assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, number)), []);
    }
    assert_eq!(freed(&stream.on_memory_pressure()), [4]);
    assert_eq!(freed(&stream.on_memory_pressure()), [3]);
    for number in 0..3 {
        assert_eq!(delivered(&stream.on_step_ended(1, 1, S1, ended(1, number))), [(number, 0)]);
        stream.release(AttachmentId(7), 1, number, false);
    }
    assert_eq!(freed(&stream.on_step_ended(1, 1, S1, ended(1, 3))), [3], "of no use any more");
    stream.on_step_ended(1, 0, S0, ended(0, 5));
    assert_eq!(freed(&stream.on_step_ended(1, 1, S1, ended(1, 4))), [4]);
    assert_eq!(delivered(&stream.on_step_ended(1, 1, S1, ended(1, 5))), [(5, 2)]);
    assert_eq!(stream.status().steps, StepCounts { closed: 6, dropped: 2, torn: 0 });
}
