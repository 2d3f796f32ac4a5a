use super::super::tests::{
    CLOSED, Checked, S0, S1, ends, freed, needs, options, step, stream, without_records,
};
use super::super::tests::{ended, field};
use super::*;
use crate::ErrorKind;
use crate::identity::Identity;
use crate::ids::ServerId;
use crate::steps::cohort::ToldStep;
use crate::steps::ledger::{RankReport, RunReport};
use crate::steps::options::Policy;
use crate::steps::share::Sharing;

const ID: AttachmentId = AttachmentId(20);

fn reader(window: u32) -> Attachment {
    let mut reader = Attachment::new(needs(1), S0, window);
    reader.reader = Some(Identity { name: Some("w".into()), host: "a".into(), pid: 5 });
    reader
}

fn sharer(sharing: Sharing) -> Sharer {
    Sharer { sharing, number: None, told: Vec::new() }
}

/// A reader comes: its number.
fn come(stream: &mut Checked, sharing: Sharing, window: u32) -> u32 {
    let (id, number, _) = stream.share(ID, false, sharer(sharing), reader(window), Start::Next).unwrap();
    assert_eq!(id, ID);
    number
}

/// A stream of two ranks, and so many readers, there before it begins.
fn shared(sharing: Sharing, readers: u32, window: u32) -> Checked {
    let mut stream = Checked::new("s", vec![S0, S1]);
    (0..readers).for_each(|number| assert_eq!(come(&mut stream, sharing, window), number));
    for rank in 0..2 {
        stream.join(rank, ServerId(rank), options(2, Policy::Block)).unwrap();
        stream.define(1, rank, field()).unwrap();
    }
    stream
}

/// Which steps are given to whom, and for the how manieth time.
fn given(effects: &[Effect]) -> Vec<(u32, StepNumber, u32)> {
    let given = effects.iter().filter_map(|effect| match effect {
        Effect::DeliverTo(_, readers, report) => Some((readers[0], report.id.step, report.attempt)),
        Effect::Deliver(..) => panic!("{effect:?} is for one of them"),
        _ => None,
    });
    given.collect()
}

fn steps(stream: &mut Checked, numbers: std::ops::Range<StepNumber>) -> Vec<(u32, StepNumber, u32)> {
    numbers.flat_map(|number| given(&step(stream, number))).collect()
}

#[test]
fn each_step_goes_to_one_of_them() {
    let mut stream = shared(Sharing::RoundRobin, 3, 2);
    assert_eq!(steps(&mut stream, 0..4), [(0, 0, 0), (1, 1, 0), (2, 2, 0), (0, 3, 0)]);
    assert_eq!(freed(&stream.release_by(ID, 1, (1, 0), false)), [0u64; 0], "that is another one's");
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 0), false)), [0]);
    assert_eq!(stream.status().readers[0].ranks, 3);
    let mut stream = shared(Sharing::OnDemand, 2, 1);
    assert_eq!(steps(&mut stream, 0..2), []);
    assert_eq!(given(&stream.on_asked_by(ID, 1, None)), [(1, 0, 0)]);
    assert_eq!(given(&stream.on_asked_by(ID, 1, None)), [], "it holds as many as it may");
    assert_eq!(given(&stream.on_asked_by(ID, 0, None)), [(0, 1, 0)]);
    assert_eq!(steps(&mut stream, 2..3), []);
    let effects = stream.release_by(ID, 1, (1, 0), false);
    assert_eq!((given(&effects), freed(&effects)), (vec![(1, 2, 0)], vec![0]));
}

#[test]
fn they_come_and_go() {
    let mut stream = shared(Sharing::RoundRobin, 1, 9);
    assert_eq!(steps(&mut stream, 0..2), [(0, 0, 0), (0, 1, 0)]);
    assert_eq!(come(&mut stream, Sharing::RoundRobin, 9), 1);
    assert_eq!(steps(&mut stream, 2..4), [(1, 2, 0), (0, 3, 0)]);
    // It has finished with one, looks at arrays of another one, and has not looked at the third.
    stream.release_by(ID, 0, (1, 0), false);
    let effects = stream.leave(ID, 0, &[(1, 1)], false);
    assert_eq!((given(&effects), freed(&effects)), (vec![(1, 3, 0)], vec![]), "which goes to the other one");
    let effects = stream.leave(ID, 0, &[], true);
    assert_eq!(given(&effects), [(1, 1, 1)], "its process has ended, and it had not finished with it");
    assert_eq!(come(&mut stream, Sharing::RoundRobin, 9), 2, "a number is of one reader");
    assert_eq!(steps(&mut stream, 4..6), [(2, 4, 0), (1, 5, 0)]);
}

#[test]
fn a_step_whose_reader_died_is_given_to_another_one() {
    let mut stream = shared(Sharing::RoundRobin, 3, 9);
    assert_eq!(steps(&mut stream, 0..4), [(0, 0, 0), (1, 1, 0), (2, 2, 0), (0, 3, 0)]);
    stream.release_by(ID, 0, (1, 0), true);
    // While its process may look at them, nothing is given.
    let held = stream.held_by_rank(ID, 0);
    assert_eq!(held, [(1, 0), (1, 3)]);
    assert_eq!(stream.leave(ID, 0, &held, true).len(), 1, "all that is to do is to tell others");
    let effects = stream.leave(ID, 0, &[], true);
    assert_eq!((given(&effects), freed(&effects)), (vec![(1, 3, 1)], vec![0]));
    let effects = stream.leave(ID, 1, &[], true);
    assert_eq!(given(&effects), [(2, 1, 1), (2, 3, 2)]);
    for number in [3, 1] {
        assert_eq!(freed(&stream.release_by(ID, 2, (1, number), false)), [number]);
    }
}

/// A step that is still read may be given once more: the end comes after it.
#[test]
fn the_end_comes_when_all_is_finished() {
    let mut stream = shared(Sharing::RoundRobin, 2, 9);
    assert_eq!(steps(&mut stream, 0..2), [(0, 0, 0), (1, 1, 0)]);
    (0..2).for_each(|rank| assert_eq!(ends(&stream.on_rank_gone(1, rank, CLOSED)), []));
    assert_eq!(ends(&stream.release_by(ID, 0, (1, 0), false)), []);
    let situation = stream.situation_of(ID, Some(0));
    assert!(situation.may_be_given_more() && situation.end.is_none());
    let situation = situation.to_string();
    assert!(
        situation.contains("process 5 on a (one of the readers 'w') has not finished with step 1"),
        "{situation}"
    );
    let effects = stream.leave(ID, 1, &[], true);
    assert_eq!((given(&effects), ends(&effects)), (vec![(0, 1, 1)], vec![]));
    // It waits for nobody but itself.
    let situation = stream.situation_of(ID, Some(0));
    assert!(!situation.may_be_given_more() && situation.end.is_some_and(|end| end.run == 1));
    assert_eq!(ends(&stream.release_by(ID, 0, (1, 1), false)), [(20, 0, ErrorKind::Ended)]);
    // Who comes now is told what the others were told.
    let (id, _, effects) =
        stream.share(AttachmentId(21), false, sharer(Sharing::RoundRobin), reader(1), Start::Next).unwrap();
    assert_eq!((id, ends(&effects)), (ID, vec![(20, 0, ErrorKind::Ended)]));
}

/// A step with which a reader that has closed had not finished is given to another one, once it is not looked at there any more.
#[test]
fn what_was_not_finished_goes_to_another_one() {
    let mut stream = shared(Sharing::RoundRobin, 2, 9);
    assert_eq!(steps(&mut stream, 0..3), [(0, 0, 0), (1, 1, 0), (0, 2, 0)]);
    let pinned = stream.release_by(ID, 0, (1, 2), true);
    assert_eq!((given(&pinned), freed(&pinned)), (vec![], vec![]));
    let left = stream.leave(ID, 0, &[(1, 0), (1, 2)], false);
    assert_eq!((given(&left), freed(&left)), (vec![], vec![]), "views of both live");
    assert_eq!(given(&stream.release_by(ID, 0, (1, 0), true)), [(1, 0, 1)], "its arrays live");
    assert_eq!(freed(&stream.release_by(ID, 1, (1, 0), false)), [0u64; 0], "as they do now");
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 0), false)), [0]);
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 2), false)), [2], "it had finished with that one");
}

#[test]
fn a_step_may_be_given_back() {
    let mut stream = shared(Sharing::OnDemand, 2, 1);
    assert_eq!(steps(&mut stream, 0..2), []);
    assert_eq!(given(&stream.on_asked_by(ID, 0, None)), [(0, 0, 0)]);
    let effects = stream.give_back(ID, Some(0), (1, 0), true);
    assert_eq!((given(&effects), freed(&effects)), (vec![], vec![]), "nobody has asked");
    assert_eq!(given(&stream.on_asked_by(ID, 1, None)), [(1, 0, 1)], "though arrays of it live");
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 0), false)), [0u64; 0]);
    // The same one may be given it again.
    stream.give_back(ID, Some(1), (1, 0), false);
    assert_eq!(given(&stream.on_asked_by(ID, 0, None)), [(0, 0, 2)]);
    stream.give_back(ID, Some(0), (1, 0), true);
    assert_eq!(given(&stream.on_asked_by(ID, 0, None)), [(0, 1, 0)], "arrays of the one before live here");
    let effects = stream.give_back(ID, Some(0), (1, 1), false);
    assert_eq!(given(&effects), [], "it has not asked");
    let effects = stream.release_by(ID, 0, (1, 0), false);
    assert_eq!((given(&effects), freed(&effects)), (vec![], vec![]), "it waits to be given again");
    assert_eq!(given(&stream.on_asked_by(ID, 0, None)), [(0, 0, 3)]);
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 0), false)), [0]);
    assert_eq!(given(&stream.give_back(ID, Some(0), (1, 0), false)), [], "it holds that no more");
    // All go, while arrays of one live that waits.
    assert_eq!(given(&stream.on_asked_by(ID, 0, None)), [(0, 1, 1)]);
    stream.give_back(ID, Some(0), (1, 1), true);
    stream.leave(ID, 1, &[], false);
    let effects = stream.leave(ID, 0, &[(1, 1)], true);
    assert!(effects.contains(&Effect::Cursor("w".into(), (1, 1))), "{effects:?}");
    assert_eq!(freed(&effects), [0u64; 0]);
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 1), false)), [1]);
}

/// The next of its name goes on with the first step that was not finished.
#[test]
fn when_all_are_gone_the_group_keeps_where_they_were() {
    let mut stream = shared(Sharing::RoundRobin, 2, 9);
    assert_eq!(steps(&mut stream, 0..3).len(), 3);
    stream.release_by(ID, 0, (1, 2), false);
    stream.release_by(ID, 1, (1, 1), false);
    stream.leave(ID, 1, &[], false);
    let effects = stream.leave(ID, 0, &[], true);
    assert!(effects.contains(&Effect::Cursor("w".into(), (1, 0))), "{effects:?}");
    assert_eq!(freed(&effects), [0]);
    assert!(stream.status().readers.is_empty());
}

#[test]
fn those_that_do_not_agree_are_refused() {
    let mut stream = shared(Sharing::RoundRobin, 1, 2);
    let refused = |stream: &mut Checked, sharer, reader, start| {
        stream.share(AttachmentId(30), false, sharer, reader, start).unwrap_err()
    };
    let other = refused(&mut stream, sharer(Sharing::OnDemand), reader(2), Start::Next);
    assert!(other.kind == ErrorKind::Conflict && other.text.contains("the same share"), "{other}");
    let mut other = reader(2);
    other.needs = needs(3).into();
    assert!(
        refused(&mut stream, sharer(Sharing::RoundRobin), other, Start::Next).text.contains("same fields")
    );
    let mut nameless = reader(2);
    nameless.reader = Some(Identity::default());
    assert!(refused(&mut stream, sharer(Sharing::RoundRobin), nameless, Start::Next).text.contains("`name`"));
    let mut newest = reader(2);
    newest.take = Take::Latest;
    assert_eq!(
        refused(&mut stream, sharer(Sharing::RoundRobin), newest, Start::Next).kind,
        ErrorKind::Invalid
    );
    let looks = refused(&mut stream, sharer(Sharing::RoundRobin), reader(2), Start::HELD);
    assert_eq!(looks.kind, ErrorKind::Invalid);
    // Others of the stream are told of all steps.
    let alone = Attachment::new(needs(1), S0, 9);
    stream.attach(AttachmentId(40), alone, Start::Next).unwrap();
    let whole = without_records(step(&mut stream, 0));
    assert!(whole.iter().any(|effect| matches!(effect, Effect::DeliverTo(ID, ..))), "{whole:?}");
}

/// A stream whose coordinator has died; its ranks have ended steps 1 to 4, and step 0 is freed. Rank 1 is `away` with its last
/// step. Two readers were there, who had been told of steps in turn, and had finished with all before `below`.
fn taken_over(away: bool, below: Option<(RunNumber, StepNumber)>) -> Checked {
    let mut stream = stream(Policy::Block, 1, 9);
    drop(std::mem::replace(&mut stream, Checked::new("s", vec![S0, S1])));
    let rank = |rank| RankReport {
        rank,
        who: Identity::default(),
        below: 4,
        safe_below: 0,
        begun: true,
        away: away && rank == 1,
    };
    for home in 0..2 {
        let report = RunReport {
            run: 1,
            options: options(2, Policy::Block),
            fields: vec![field()],
            attrs: Default::default(),
            cuts: None,
            highest_step_left: None,
            ranks: vec![rank(home)],
            begun: true,
            over: None,
            began: Default::default(),
        };
        stream.on_run_report(ServerId(home), 3, report).unwrap();
        for number in 1..5 - StepNumber::from(away && home == 1) {
            assert_eq!(stream.on_step_ended(1, home, ServerId(home), ended(home, number)), []);
        }
    }
    let mut known = Checked::new("s", vec![S0, S1]);
    (0..2).for_each(|number| assert_eq!(come(&mut known, Sharing::RoundRobin, 2), number));
    known.join(0, S0, options(2, Policy::Block)).unwrap();
    let mut record = known.attachments.get(&ID).and_then(|known| known.told.clone()).unwrap();
    if let Some(share) = &mut record.share {
        share.below = below;
    }
    stream.on_attachment_report(3, ID, record).unwrap();
    assert_eq!(given(&stream.settle(|| AttachmentId(99))), []);
    stream
}

/// A reader comes back, which holds a step and was told of these.
fn come_back(stream: &mut Checked, number: u32, held: HeldStep, told: &[StepNumber]) -> Vec<Effect> {
    let told = told.iter().map(|step| ToldStep { run: 1, step: *step, missed: 0, rewound: false });
    let back = Sharer { number: Some(number), told: told.collect(), ..sharer(Sharing::RoundRobin) };
    let holds = reader(2).with_held_steps(vec![held]);
    let (id, known, effects) = stream.share(ID, true, back, holds, Start::Rejoin(1, 4)).unwrap();
    assert_eq!((id, known), (ID, number));
    effects
}

/// One comes back with what it holds, one has died with the coordinator.
#[test]
fn another_coordinator_takes_them_up() {
    let mut stream = taken_over(false, None);
    let effects = come_back(&mut stream, 1, HeldStep { run: 1, step: 3, pinned: false }, &[0, 1, 3]);
    assert_eq!(given(&effects), [], "the other one may hold the rest");
    assert_eq!(freed(&effects), [1], "with which it has finished");
    (0..9).for_each(|_| assert_eq!(given(&stream.give_up_overdue()), []));
    assert_eq!(given(&stream.give_up_overdue()), [(1, 2, 1)], "which the other one may have had");
    assert_eq!(given(&stream.release_by(ID, 1, (1, 3), false)), [(1, 4, 1)]);
}

/// Nobody has to say it of the steps with which all had finished long ago.
#[test]
fn what_was_finished_before_is_not_given_again() {
    let mut stream = taken_over(false, Some((1, 3)));
    let effects = come_back(&mut stream, 0, HeldStep { run: 1, step: 4, pinned: false }, &[4]);
    assert_eq!((given(&effects), freed(&effects)), (vec![], vec![1, 2]));
    let effects = come_back(&mut stream, 1, HeldStep { run: 1, step: 3, pinned: true }, &[3]);
    assert_eq!((given(&effects), freed(&effects)), (vec![], vec![]));
    assert_eq!(freed(&stream.release_by(ID, 1, (1, 3), false)), [3]);
}

/// One that comes back holds arrays of a step that it had given back.
#[test]
fn what_was_given_back_is_given_by_the_next_coordinator() {
    let mut stream = taken_over(false, None);
    come_back(&mut stream, 0, HeldStep { run: 1, step: 4, pinned: true }, &[1, 2]);
    let effects = come_back(&mut stream, 1, HeldStep { run: 1, step: 3, pinned: true }, &[3]);
    assert_eq!(given(&effects), [(1, 4, 0)]);
    stream.release_by(ID, 0, (1, 4), false);
    assert_eq!(freed(&stream.release_by(ID, 1, (1, 4), false)), [4]);
}

/// Those that are left close while others may come back; then they do not.
#[test]
fn the_last_may_go_while_others_are_awaited() {
    let mut stream = taken_over(false, None);
    come_back(&mut stream, 1, HeldStep { run: 1, step: 3, pinned: false }, &[3]);
    let effects = stream.leave(ID, 1, &[], false);
    assert_eq!(freed(&effects), [0u64; 0], "the other one may come back");
    (0..10).for_each(|_| drop(stream.give_up_overdue()));
    assert!(stream.status().readers.is_empty());
}

/// A reader holds arrays of a step that is not closed here yet: it is not given again when it closes.
#[test]
fn an_open_step_that_is_held_is_not_given_again() {
    let mut stream = taken_over(true, None);
    come_back(&mut stream, 0, HeldStep { run: 1, step: 4, pinned: true }, &[2, 4]);
    let effects = come_back(&mut stream, 1, HeldStep { run: 1, step: 3, pinned: false }, &[1, 3]);
    assert_eq!(given(&effects), []);
    let closed = stream.on_step_ended(1, 1, S1, ended(1, 4));
    assert_eq!((given(&closed), freed(&closed)), (vec![], vec![]));
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 4), false)), [4]);
}

/// One holds arrays of a step that is not closed here yet, and has given it back: others are given it when it closes.
#[test]
fn an_open_step_that_was_given_back_is_given_again() {
    let mut stream = taken_over(true, None);
    come_back(&mut stream, 0, HeldStep { run: 1, step: 4, pinned: true }, &[2]);
    come_back(&mut stream, 1, HeldStep { run: 1, step: 3, pinned: false }, &[1, 3]);
    let closed = stream.on_step_ended(1, 1, S1, ended(1, 4));
    assert_eq!((given(&closed), freed(&closed)), (vec![(1, 4, 0)], vec![]));
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 4), false)), [0u64; 0]);
    assert_eq!(freed(&stream.release_by(ID, 1, (1, 4), false)), [4]);
    // The same, but another one reads it.
    let mut stream = taken_over(true, None);
    come_back(&mut stream, 0, HeldStep { run: 1, step: 4, pinned: true }, &[2]);
    let effects = come_back(&mut stream, 1, HeldStep { run: 1, step: 4, pinned: false }, &[1, 4]);
    assert_eq!(given(&effects), [(0, 3, 0)], "of which nobody has told");
    assert_eq!(given(&stream.on_step_ended(1, 1, S1, ended(1, 4))), []);
    stream.release_by(ID, 1, (1, 4), false);
    assert_eq!(freed(&stream.release_by(ID, 0, (1, 4), false)), [4]);
}
