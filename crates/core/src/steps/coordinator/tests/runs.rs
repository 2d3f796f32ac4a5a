//! Ranks that come, go and come again, and runs that follow each other.

use super::*;

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
