use super::super::tests::{Checked, S0, S1, ended, field, freed, needs, options, step, without_records};
use super::*;
use crate::identity::Identity;
use crate::ids::ServerId;
use crate::steps::attachment::{Attachment, Start, Take};
use crate::steps::cohort::{CohortRank, ToldStep};
use crate::steps::ledger::{RankReport, RunReport};
use crate::steps::options::{Policy, RunOptions};
use crate::steps::report::HeldStep;

const ID: AttachmentId = AttachmentId(7);

/// A rank of a cohort of three.
fn coming(rank: u32, start: Start, told: Vec<ToldStep>, held: Vec<HeldStep>) -> Coming {
    let mut attachment = Attachment::new(needs(1), S0, 2).with_held_steps(held);
    attachment.reader = Some(Identity { name: Some("render".into()), host: "a".into(), pid: 10 + rank });
    let rank = CohortRank { rank, size: 3, host: "a".into(), goes_on: false, told };
    Coming { rank, token: 1, attachment, start }
}

fn fresh(rank: u32) -> Coming {
    coming(rank, Start::Next, Vec::new(), Vec::new())
}

fn that_go_on(rank: u32) -> Coming {
    let mut coming = fresh(rank);
    coming.rank.goes_on = true;
    coming
}

/// Two ranks write, a cohort of three reads.
fn stream(policy: Policy, ranks: impl Fn(u32) -> Coming) -> Checked {
    let mut stream = Checked::new("s", vec![S0, S1]);
    for rank in 0..3 {
        let text = format!("{:?}", stream.arrival(ID, rank, 1));
        assert!(!text.contains("Attached"), "{text}");
        let (id, _) = stream.come(AttachmentId(7 + u64::from(rank)), false, ranks(rank)).unwrap();
        assert_eq!(id, ID, "the first one names it");
    }
    assert!((0..3).all(|rank| stream.arrival(ID, rank, 1) == Arrival::Attached));
    for rank in 0..2 {
        stream.join(rank, ServerId(rank), options(2, policy)).unwrap();
        stream.define(1, rank, field()).unwrap();
    }
    stream
}

/// Which steps all are told of, and which some are: with the ranks.
fn told(effects: &[Effect]) -> Vec<(StepNumber, Option<Vec<u32>>)> {
    let told = effects.iter().filter_map(|effect| match effect {
        Effect::Deliver(_, report) => Some((report.id.step, None)),
        Effect::DeliverTo(_, ranks, report) => Some((report.id.step, Some(ranks.clone()))),
        _ => None,
    });
    told.collect()
}

fn failed(effects: &[Effect]) -> Option<&Error> {
    effects.iter().find_map(|effect| match effect {
        Effect::Failed(_, error) => Some(error),
        _ => None,
    })
}

#[test]
fn it_takes_part_once_all_have_come() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.come(ID, false, fresh(0)).unwrap();
    stream.come(AttachmentId(8), false, fresh(2)).unwrap();
    assert_eq!(stream.arrival(ID, 0, 1), Arrival::Waits);
    let who = stream.who_lacks(ID);
    assert_eq!(who, "rank 1 of the 3 did not come");
    stream.join(0, S0, options(2, Policy::DropOldest)).unwrap();
    assert!(!stream.demand().wants(&field(), 0), "nothing is demanded for it yet");
    // One gives up, and comes once more.
    stream.give_up_coming(ID, 0, 1);
    stream.come(AttachmentId(9), false, Coming { token: 2, ..fresh(0) }).unwrap();
    assert!(matches!(stream.arrival(ID, 0, 1), Arrival::Refused(_)), "that was another attempt");
    stream.come(AttachmentId(9), false, fresh(1)).unwrap();
    assert_eq!(stream.arrival(ID, 0, 2), Arrival::Attached);
    assert!(stream.demand().wants(&field(), 0));
    let error = stream.come(AttachmentId(9), false, fresh(1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.text.contains("all readers 'render' of stream 's' have come"), "{error}");
}

#[test]
fn all_are_told_why_they_cannot_attach() {
    let mut stream = Checked::new("s", vec![S0]);
    let cursor = |rank| coming(rank, Start::Cursor(9, 1), Vec::new(), Vec::new());
    for rank in 0..3 {
        stream.come(ID, false, cursor(rank)).unwrap();
    }
    for rank in 0..3 {
        let Arrival::Refused(error) = stream.arrival(ID, rank, 1) else { panic!() };
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
        stream.give_up_coming(ID, rank, 1);
    }
    assert!(stream.is_idle());
}

#[test]
fn a_step_is_held_until_the_last_rank_has_released_it() {
    let mut stream = stream(Policy::Block, fresh);
    assert_eq!(told(&step(&mut stream, 0)), [(0, None)]);
    assert_eq!(told(&step(&mut stream, 1)), [(1, None)]);
    assert_eq!(told(&step(&mut stream, 2)), [], "its window is full");
    assert_eq!(stream.release_by(ID, 0, (1, 0), false), []);
    assert_eq!(stream.release_by(ID, 2, (1, 0), true), []);
    let behind = stream.situation_of(ID, Some(0)).behind.unwrap();
    assert!(
        behind.contains("rank 1 (process 11 on a) of the 3 readers 'render' has not finished with step 0")
    );
    let effects = stream.release_by(ID, 1, (1, 0), false);
    assert_eq!((told(&effects), freed(&effects)), (vec![(2, None)], vec![]), "arrays live at one rank");
    assert_eq!(freed(&stream.release_by(ID, 2, (1, 0), false)), [0]);
    assert_eq!(stream.held_by_rank(ID, 0), [(1, 1), (1, 2)]);
}

#[test]
fn the_end_of_a_rank_is_that_of_all() {
    for died in [true, false] {
        let mut stream = stream(Policy::Block, fresh);
        step(&mut stream, 0);
        let effects = stream.leave(ID, 1, &[], died);
        let error = failed(&effects).unwrap();
        assert_eq!(error.kind, if died { ErrorKind::Lost } else { ErrorKind::Closed });
        assert!(error.text.starts_with("rank 1 (process 11 on a) of the 3 readers 'render'"), "{error}");
        assert!(!stream.demand().wants(&field(), 0) || stream.demand().version > 0);
        assert_eq!(freed(&stream.leave(ID, 0, &[(1, 0)], false)), [0u64; 0]);
        assert_eq!(freed(&stream.release_by(ID, 2, (1, 0), false)), [0u64; 0]);
        let effects = stream.leave(ID, 2, &[], false);
        assert_eq!((failed(&effects), freed(&effects)), (None, vec![]), "arrays of rank 0 live");
        assert_eq!(freed(&stream.release_by(ID, 0, (1, 0), false)), [0]);
        // Its name is free.
        stream.come(ID, false, fresh(0)).unwrap();
    }
}

/// All close, and had not looked at a step that they were told of: the next of their name do.
#[test]
fn what_nobody_has_looked_at_is_read_by_the_next() {
    for ranks in [fresh, that_go_on] {
        let mut stream = stream(Policy::Block, ranks);
        (0..2).for_each(|number| drop(step(&mut stream, number)));
        (0..3).for_each(|rank| drop(stream.release_by(ID, rank, (1, 0), false)));
        let effects: Vec<Effect> = (0..3).flat_map(|rank| stream.leave(ID, rank, &[], false)).collect();
        let cursors = effects.iter().rev().find(|effect| matches!(effect, Effect::Cursor(..)));
        assert_eq!(cursors, Some(&Effect::Cursor("render".into(), (1, 1))));
    }
}

/// One closes before the others have said that they have finished with the same steps: the next of their name do not read them again.
#[test]
fn what_others_finish_with_after_the_first_has_closed_is_not_read_again() {
    for looked_at in [2, 1] {
        let mut stream = stream(Policy::Block, fresh);
        (0..2).for_each(|number| drop(step(&mut stream, number)));
        (0..2).for_each(|number| drop(stream.release_by(ID, 1, (1, number), false)));
        let mut effects = stream.leave(ID, 1, &[], false);
        for rank in [0, 2] {
            (0..looked_at).for_each(|number| effects.extend(stream.release_by(ID, rank, (1, number), false)));
        }
        for rank in [0, 2] {
            effects.extend(stream.leave(ID, rank, &[], false));
        }
        let cursors = effects.iter().rev().find(|effect| matches!(effect, Effect::Cursor(..)));
        assert_eq!(cursors, Some(&Effect::Cursor("render".into(), (1, looked_at))));
    }
}

#[test]
fn others_go_on_without_a_rank_if_they_want_to() {
    let mut stream = stream(Policy::Block, that_go_on);
    step(&mut stream, 0);
    step(&mut stream, 1);
    stream.release_by(ID, 0, (1, 0), false);
    stream.release_by(ID, 2, (1, 0), false);
    let effects = stream.leave(ID, 1, &[], true);
    assert_eq!((failed(&effects), freed(&effects)), (None, vec![0]), "it was the last that held it");
    let [Effect::Attachment(ID, Some(record)), ..] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(record.cohort.as_ref().unwrap().gone, BTreeSet::from([1]), "all servers know");
    let effects = step(&mut stream, 2);
    let [Effect::Deliver(_, report)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(report.absent, [1]);
    stream.leave(ID, 0, &[], false);
    let effects = stream.leave(ID, 2, &[], false);
    assert_eq!(freed(&effects), [1, 2]);
    assert_eq!(stream.status().readers.len(), 0);
}

#[test]
fn the_first_that_asks_for_the_newest_has_it_chosen_for_all() {
    let latest = |rank| {
        let mut coming = fresh(rank);
        coming.attachment.take = Take::Latest;
        coming
    };
    let mut stream = stream(Policy::DropOldest, latest);
    step(&mut stream, 0);
    step(&mut stream, 1);
    assert_eq!(told(&stream.on_asked_by(ID, 0, None)), [(1, None)]);
    step(&mut stream, 2);
    assert_eq!(told(&stream.on_asked_by(ID, 0, None)), [], "that one is on its way to it");
    assert_eq!(told(&stream.on_asked_by(ID, 0, Some((1, 1)))), [(2, None)]);
}

/// A coordinator that is told of a run with steps 6 to 8, and of a cohort that was told of some of them.
fn taken_over(goes_on: bool) -> Checked {
    let mut before = stream(Policy::Block, if goes_on { that_go_on } else { fresh });
    step(&mut before, 5);
    let record = before.attachments.get(&ID).unwrap().told.clone().unwrap();
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.on_attachment_report(3, ID, record).unwrap();
    for (rank, server) in [(0, S0), (1, S1)] {
        let options = RunOptions { policy: Policy::Block, ..options(2, Policy::Block) };
        let told =
            RankReport { rank, who: Identity::default(), below: 9, safe_below: 0, begun: true, away: false };
        stream.on_run_report(server, 3, report(options, told)).unwrap();
        for number in 6..9 {
            stream.on_step_ended(1, rank, server, ended(rank, number));
        }
    }
    stream
}

fn report(options: RunOptions, told: RankReport) -> RunReport {
    RunReport {
        run: 1,
        options,
        fields: vec![field()],
        attrs: crate::attr::Attrs::default(),
        begun: true,
        ranks: vec![told],
        highest_step_left: None,
        over: None,
        cuts: None,
        began: crate::ids::Timestamp(3),
    }
}

fn told_of(steps: &[StepNumber]) -> Vec<ToldStep> {
    steps.iter().map(|step| ToldStep { run: 1, step: *step, missed: *step, rewound: false }).collect()
}

fn back(rank: u32, steps: &[StepNumber]) -> Coming {
    let held = steps.iter().map(|step| HeldStep { run: 1, step: *step, pinned: false }).collect();
    let next = steps.last().map_or(5, |last| last + 1);
    coming(rank, Start::Rejoin(1, next), told_of(steps), held)
}

fn settled(stream: &mut Checked) -> Vec<Effect> {
    let mut ids = 100..;
    stream.settle(|| AttachmentId(ids.next().unwrap()))
}

#[test]
fn ranks_that_come_back_are_told_what_others_had() {
    for early in [true, false] {
        let mut stream = taken_over(false);
        let mut effects = Vec::new();
        if !early {
            effects.extend(settled(&mut stream));
        }
        for (rank, steps) in [(0, &[6, 7][..]), (1, &[6]), (2, &[])] {
            effects.extend(stream.come(ID, true, back(rank, steps)).unwrap().1);
        }
        if early {
            effects.extend(settled(&mut stream));
        }
        let caught_up = told(&effects);
        assert_eq!(caught_up, [(6, Some(vec![2])), (7, Some(vec![1, 2]))], "early: {early}");
        let missed = effects.iter().filter_map(|effect| match effect {
            Effect::DeliverTo(_, _, report) => Some(report.missed),
            _ => None,
        });
        assert_eq!(missed.collect::<Vec<_>>(), [6, 7], "as others were told");
        assert_eq!(freed(&effects), [0u64; 0]);
        for rank in 0..2 {
            assert_eq!(stream.release_by(ID, rank, (1, 6), false), []);
        }
        let effects = stream.release_by(ID, 2, (1, 6), false);
        assert_eq!((told(&effects), freed(&effects)), (vec![(8, None)], vec![6]));
    }
}

#[test]
fn what_only_some_ranks_had_and_is_gone_ends_the_cohort() {
    let mut stream = taken_over(false);
    for (rank, steps) in [(0, &[5, 6][..]), (1, &[]), (2, &[5])] {
        stream.come(ID, true, back(rank, steps)).unwrap();
    }
    let effects = settled(&mut stream);
    let error = failed(&effects).unwrap();
    assert_eq!(error.kind, ErrorKind::Lost);
    assert!(
        error.text.contains("step 5 of stream 's' is gone") && error.text.contains("1 have not (rank 1)"),
        "{error}"
    );
}

#[test]
fn a_cohort_that_goes_on_does_not_wait_for_ranks_that_stay_away() {
    let mut stream = taken_over(true);
    settled(&mut stream);
    for (rank, steps) in [(0, &[6][..]), (2, &[6])] {
        let mut back = back(rank, steps);
        back.rank.goes_on = true;
        stream.come(ID, true, back).unwrap();
    }
    let effects: Vec<Effect> = (0..10).flat_map(|_| stream.give_up_overdue()).collect();
    assert_eq!(told(&effects), [(7, None)], "{:?}", without_records(effects));
    let Effect::Attachment(_, Some(record)) = &stream.tell_again()[0] else { panic!() };
    assert_eq!(record.cohort.as_ref().unwrap().gone, BTreeSet::from([1]));
    let error = stream.come(ID, true, back(1, &[6])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
}

impl StreamCoordinator {
    /// What servers were told of attachments.
    fn tell_again(&self) -> Vec<Effect> {
        let told = self.attachments.iter();
        told.map(|(id, attachment)| Effect::Attachment(*id, attachment.told.clone().map(Box::new))).collect()
    }
}
