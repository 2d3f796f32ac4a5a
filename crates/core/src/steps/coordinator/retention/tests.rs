//! How long the static fields of a run are held, and who is told of them.

use super::super::tests::{
    CLOSED, Checked, S0, S1, delivered, ended, field, freed, needs, options, step, stream,
};
use super::*;
use crate::contract::{Field, Need, Needs};
use crate::ids::ServerId;
use crate::steps::attachment::{AttachmentId, Start};
use crate::steps::cohort::CohortRank;
use crate::steps::contribution::StepContribution;
use crate::steps::gathering::Coming;
use crate::steps::ledger::{RankReport, RunReport};
use crate::steps::options::RunOptions;
use crate::steps::report::{HeldStep, StepReport};
use crate::steps::share::{Sharer, Sharing};

const ID: AttachmentId = AttachmentId(7);

/// The static field that ranks put beside the other one.
fn mesh() -> Field {
    Field { name: "mesh".into(), is_static: true, ..field() }
}

/// What a rank puts of it.
fn statics(rank: u32) -> StepContribution {
    let mut put = ended(rank, STATIC_STEP);
    put.fields[0].field = mesh();
    put
}

/// Both ranks put it, and then a step.
fn first_step(stream: &mut Checked) -> Vec<Effect> {
    for rank in 0..2 {
        stream.define(1, rank, mesh()).unwrap();
        assert_eq!(stream.on_step_ended(1, rank, ServerId(rank), statics(rank)), []);
    }
    step(stream, 0)
}

/// With which steps static fields are told to whom, and how many blocks of them.
fn told(effects: &[Effect]) -> Vec<(u64, StepNumber, usize)> {
    let blocks = |report: &StepReport| report.statics.as_ref().map(|fields| fields[0].blocks.len());
    let told = effects.iter().filter_map(|effect| match effect {
        Effect::Deliver(id, report) | Effect::DeliverTo(id, _, report) => {
            Some((id.0, report.id.step, blocks(report)?))
        }
        _ => None,
    });
    told.collect()
}

#[test]
fn static_fields_are_told_once_and_held_until_the_run_is_over() {
    let mut stream = stream(Policy::DropOldest, 1, 2);
    let effects = first_step(&mut stream);
    assert_eq!(told(&effects), [(7, 0, 2)]);
    let Effect::Deliver(_, report) = &effects[0] else { panic!() };
    assert_eq!(report.fields.len(), 1, "they are no fields of the step");
    assert_eq!((stream.status().held, stream.status().held_steps), ((80, 4), 1));
    assert_eq!(freed(&stream.release(ID, 1, 0, false)), [0]);
    let effects = step(&mut stream, 1);
    assert_eq!((delivered(&effects), told(&effects)), (vec![(1, 0)], vec![]));
    assert_eq!(stream.status().readers[0].held, 1, "they are no step that it holds");
    assert_eq!(freed(&stream.release(ID, 1, 1, false)), [1]);
    assert_eq!(freed(&stream.on_rank_gone(1, 0, CLOSED)), [0u64; 0]);
    assert_eq!(freed(&stream.on_rank_gone(1, 1, CLOSED)), [0u64; 0], "the reader has them");
    assert!(!stream.is_idle());
    assert_eq!(freed(&stream.release(ID, 1, STATIC_STEP, false)), [STATIC_STEP]);
    stream.detach(ID);
    assert!(stream.is_idle());
}

#[test]
fn who_comes_late_is_told_of_them_whatever_it_needs() {
    let mut stream = stream(Policy::DropOldest, 1, 9);
    first_step(&mut stream);
    let only = |name: &str| Needs::Fields(vec![Need::new(name)]);
    stream.attach(AttachmentId(8), Attachment::new(needs(1), S0, 9), Start::Oldest).unwrap();
    let effects =
        stream.attach(AttachmentId(9), Attachment::new(only("mesh"), S0, 9), Start::Oldest).unwrap();
    assert_eq!(told(&effects), [(9, 0, 2)], "those who need nothing else are told of each step");
    let Some(Effect::Deliver(_, report)) =
        effects.iter().find(|effect| matches!(effect, Effect::Deliver(..)))
    else {
        panic!("{effects:?}")
    };
    assert_eq!(report.fields, []);
    assert_eq!(stream.status().held.0, 80);
    // All but one let go, and then that one dies.
    stream.detach(ID);
    stream.detach(AttachmentId(8));
    (0..2).for_each(|rank| assert_eq!(freed(&stream.on_rank_gone(1, rank, CLOSED)), [0u64; 0]));
    let gone = freed(&stream.detach(AttachmentId(9)));
    assert_eq!(gone, [0, STATIC_STEP], "of a run that keeps nothing nothing is left");
}

#[test]
fn whoever_does_not_remember_a_run_is_told_each_time_and_holds_no_more_than_its_steps() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    let mut pipeline = Attachment::new(needs(1), S0, 2);
    (pipeline.remembers_run, pipeline.follow) = (false, true);
    stream.attach(ID, pipeline, Start::Next).unwrap();
    for rank in 0..2 {
        stream.join(rank, ServerId(rank), options(2, Policy::DropOldest)).unwrap();
        stream.define(1, rank, field()).unwrap();
    }
    assert_eq!(told(&first_step(&mut stream)), [(7, 0, 2)]);
    assert_eq!(told(&step(&mut stream, 1)), [(7, 1, 2)]);
    stream.release(ID, 1, 0, false);
    (0..2).for_each(|rank| assert_eq!(freed(&stream.on_rank_gone(1, rank, CLOSED)), [0u64; 0]));
    assert_eq!(freed(&stream.release(ID, 1, 1, false)), [1, STATIC_STEP]);
}

#[test]
fn a_run_that_keeps_steps_keeps_static_fields_and_so_does_one_with_a_successor() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    let kept = || RunOptions { keep: 1, ..options(2, Policy::DropOldest) };
    for rank in 0..2 {
        stream.join(rank, ServerId(rank), kept()).unwrap();
        stream.define(1, rank, field()).unwrap();
    }
    first_step(&mut stream);
    (0..2).for_each(|rank| assert_eq!(freed(&stream.on_rank_gone(1, rank, CLOSED)), [0u64; 0]));
    let effects = stream.attach(ID, Attachment::new(needs(1), S0, 1), Start::HELD).unwrap();
    assert_eq!(told(&effects), [(7, 0, 2)], "those who only look are told, too");
    let (_, effects) = stream.join(0, S0, kept()).unwrap();
    assert_eq!(freed(&effects), [0u64; 0], "the one that looks holds the step");
    assert_eq!(freed(&stream.release(ID, 1, 0, false)), [0]);
    assert_eq!(freed(&stream.release(ID, 1, STATIC_STEP, false)), [STATIC_STEP]);
    assert!(!stream.runs.contains_key(&1));
}

#[test]
fn ranks_must_agree_on_them() {
    let mut stream = stream(Policy::DropOldest, 1, 2);
    stream.define(1, 0, mesh()).unwrap();
    let other = stream.define(1, 1, Field { is_static: false, ..mesh() }).unwrap_err();
    assert!(other.text.contains("with static false, not true"), "{other}");
    stream.on_step_ended(1, 0, S0, statics(0));
    let mut shifted = statics(1);
    shifted.fields[0].field.origin = vec![1.0, 2.0];
    let effects = stream.on_step_ended(1, 1, S1, shifted);
    let [Effect::RankError { rank: 1, error, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert!(error.text.contains("gives field 'mesh' at the static fields another way"), "{error}");
}

/// A rank that puts them later than others: those who were told of the others are told again.
#[test]
fn more_of_them_are_told_as_they_come() {
    let mut stream = stream(Policy::DropOldest, 1, 9);
    stream.define(1, 0, mesh()).unwrap();
    stream.on_step_ended(1, 0, S0, statics(0));
    stream.on_step_begun(1, 1, 1);
    let effects = stream.on_step_ended(1, 0, S0, ended(0, 0));
    assert_eq!(told(&effects), [(7, 0, 1)], "the other rank has left this step out");
    stream.on_step_ended(1, 1, S1, statics(1));
    assert_eq!(told(&step(&mut stream, 1)), [(7, 1, 2)]);
    assert_eq!(told(&step(&mut stream, 2)), []);
    // What was told twice is held once.
    stream.detach(ID);
    stream.on_rank_gone(1, 0, CLOSED);
    assert_eq!(freed(&stream.on_rank_gone(1, 1, CLOSED)), [STATIC_STEP]);
}

#[test]
fn a_cohort_holds_them_until_its_last_rank_lets_go() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    for rank in 0..2 {
        let mut attachment = Attachment::new(needs(1), S0, 2);
        attachment.reader =
            Some(crate::identity::Identity { name: Some("r".into()), host: "a".into(), pid: rank });
        let told = CohortRank { rank, size: 2, host: "a".into(), goes_on: false, told: Vec::new() };
        stream.come(ID, false, Coming { rank: told, token: 1, attachment, start: Start::Next }).unwrap();
    }
    for rank in 0..2 {
        stream.join(rank, ServerId(rank), options(2, Policy::DropOldest)).unwrap();
        stream.define(1, rank, field()).unwrap();
    }
    assert_eq!(told(&first_step(&mut stream)), [(7, 0, 2)]);
    for step in [0, STATIC_STEP] {
        assert_eq!(freed(&stream.release_by(ID, 0, (1, step), false)), [0u64; 0]);
    }
    (0..2).for_each(|rank| drop(stream.on_rank_gone(1, rank, CLOSED)));
    assert_eq!(freed(&stream.release_by(ID, 1, (1, 0), false)), [0]);
    assert_eq!(freed(&stream.release_by(ID, 1, (1, STATIC_STEP), false)), [STATIC_STEP]);
}

/// One of those that share steps is told of them once more with a step that another one has given back, while what it says of the
/// run before is on its way.
#[test]
fn one_that_is_told_of_them_again_holds_them() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    for pid in 0..2 {
        let mut reader = Attachment::new(needs(1), S0, 3);
        reader.follow = true;
        reader.reader = Some(crate::identity::Identity { name: Some("w".into()), host: "a".into(), pid });
        let shares = Sharer { sharing: Sharing::RoundRobin, number: None, told: Vec::new() };
        stream.share(ID, false, shares, reader, Start::Next).unwrap();
    }
    let begin = |stream: &mut Checked, run| {
        for rank in 0..2 {
            stream.join(rank, ServerId(rank), options(2, Policy::Block)).unwrap();
            stream.define(run, rank, field()).unwrap();
        }
    };
    begin(&mut stream, 1);
    assert_eq!(told(&first_step(&mut stream)), [(7, 0, 2)]);
    stream.release_by(ID, 0, (1, 0), false);
    assert_eq!(told(&step(&mut stream, 1)), [(7, 1, 2)]);
    (0..2).for_each(|rank| drop(stream.on_rank_gone(1, rank, CLOSED)));
    begin(&mut stream, 2);
    for rank in 0..2 {
        stream.on_step_ended(2, rank, ServerId(rank), ended(rank, 0));
    }
    let effects = stream.leave(ID, 1, &[], true);
    assert_eq!(told(&effects), [(7, 1, 2)], "reader 0 has been told of a step of run 2 since");
    assert_eq!(freed(&stream.release_by(ID, 0, (1, STATIC_STEP), false)), [0u64; 0], "of the time before");
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 1), true)), [0u64; 0]);
    assert_eq!(freed(&stream.release_by(ID, 0, (1, STATIC_STEP), false)), [0u64; 0], "arrays of step 1 live");
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 1), false)), [1, STATIC_STEP]);
}

/// A reader that has read all looks at them, and its coordinator dies: they stay until it has come back, or will not.
#[test]
fn they_are_there_when_a_reader_comes_back() {
    for comes_back in [true, false] {
        let mut before = stream(Policy::DropOldest, 1, 2);
        before.tell_attachments(&mut Vec::new());
        let record = before.attachments.get(&ID).and_then(|reader| reader.told.clone()).unwrap();
        let mut stream = Checked::new("s", vec![S0, S1]);
        let who = |rank| RankReport {
            rank,
            who: Default::default(),
            below: 1,
            safe_below: 0,
            begun: true,
            away: false,
        };
        for home in 0..2 {
            let report = RunReport {
                run: 1,
                options: options(2, Policy::DropOldest),
                fields: vec![field(), mesh()],
                attrs: Default::default(),
                cuts: None,
                highest_step_left: None,
                ranks: vec![who(home)],
                begun: true,
                over: None,
                began: Default::default(),
            };
            stream.on_run_report(ServerId(home), 3, report).unwrap();
            stream.on_step_ended(1, home, ServerId(home), statics(home));
        }
        stream.on_attachment_report(3, ID, record).unwrap();
        stream.settle(|| AttachmentId(99));
        (0..2).for_each(|rank| assert_eq!(freed(&stream.on_rank_gone(1, rank, CLOSED)), [0u64; 0]));
        if comes_back {
            let held = vec![HeldStep { run: 1, step: STATIC_STEP, pinned: true }];
            let back = Attachment::new(needs(1), S0, 2).with_held_steps(held);
            assert_eq!(freed(&stream.attach(ID, back, Start::Rejoin(1, 1)).unwrap()), [0u64; 0]);
            assert_eq!(freed(&stream.release(ID, 1, STATIC_STEP, false)), [STATIC_STEP]);
        } else {
            (0..9).for_each(|_| assert_eq!(freed(&stream.give_up_overdue()), [0u64; 0]));
            assert_eq!(freed(&stream.give_up_overdue()), [STATIC_STEP]);
        }
    }
}

/// The homes of the ranks tell of them again, and a reader comes back that held them.
#[test]
fn another_coordinator_knows_them() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    let rank = |rank| RankReport {
        rank,
        who: Default::default(),
        below: 1,
        safe_below: 0,
        begun: true,
        away: false,
    };
    for home in 0..2 {
        let report = RunReport {
            run: 1,
            options: options(2, Policy::DropOldest),
            fields: vec![field(), mesh()],
            attrs: Default::default(),
            cuts: None,
            highest_step_left: None,
            ranks: vec![rank(home)],
            begun: true,
            over: None,
            began: Default::default(),
        };
        stream.on_run_report(ServerId(home), 3, report).unwrap();
        assert_eq!(stream.on_step_ended(1, home, ServerId(home), statics(home)), []);
    }
    assert_eq!(stream.on_blocks_held(S1, [(1, STATIC_STEP)]), []);
    let held = vec![HeldStep { run: 1, step: STATIC_STEP, pinned: true }];
    let back = Attachment::new(needs(1), S0, 2).with_held_steps(held);
    stream.attach(ID, back, Start::Rejoin(1, 1)).unwrap();
    assert_eq!(freed(&stream.settle(|| AttachmentId(99))), [0u64; 0]);
    assert_eq!(told(&step(&mut stream, 1)), [(7, 1, 2)], "in this term they were not told");
    stream.release(ID, 1, 1, false);
    (0..2).for_each(|rank| assert_eq!(freed(&stream.on_rank_gone(1, rank, CLOSED)), [0u64; 0]));
    let effects = stream.release(ID, 1, STATIC_STEP, false);
    let [Effect::Free { id, servers, unseen_before: 3 }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((id.step, &servers[..]), (STATIC_STEP, &[S0, S1][..]));
}
