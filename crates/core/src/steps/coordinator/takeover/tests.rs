use super::super::StreamPhase;
use super::super::tests::{
    CLOSED, Checked, S0, S1, delivered, ended, ends, field, freed, needs, options, step, stream, told_over,
    without_records,
};
use super::*;
use crate::ErrorKind;
use crate::attr::Attrs;
use crate::demand::Demand;
use crate::identity::Identity;
use crate::steps::attachment::{Delivery, Start, Take};
use crate::steps::counts::{HandedCounts, StepCounts};
use crate::steps::options::Policy;
use crate::steps::report::HeldStep;
use crate::steps::run_end::{RankCounts, RunOutcome, RunSummary};

fn demand(version: u64) -> Demand {
    Demand::union(version, [needs(1)].iter())
}

/// What servers were told of a reader that takes part from there on.
fn record(from: Option<(RunNumber, StepNumber)>) -> AttachmentRecord {
    let (delivery, take) = (Delivery::Torn, Take::All);
    AttachmentRecord {
        needs: needs(1).into(),
        follow: false,
        delivery,
        take,
        first_run: 0,
        from,
        cohort: None,
        share: None,
    }
}

/// How a rank comes back to a run, with a demand of this version.
fn back(run: RunNumber, version: u64) -> Rejoin {
    Rejoin { run, demand: demand(version), attempt: 1 }
}

#[test]
fn a_rank_whose_home_died_comes_back() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    assert_eq!(delivered(&step(&mut stream, 0)), [(0, 0)]);
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, 1)), []);
    assert_eq!(stream.on_server_gone(S1), []);
    (0..29).for_each(|_| assert_eq!(stream.give_up_overdue(), []));
    let (joined, _) = stream.rejoin(1, S0, options(2, Policy::DropOldest), back(1, 1), 3).unwrap();
    assert!(joined.run == 1 && joined.cuts.at(2).wants(&field(), 2));
    (0..99).for_each(|_| assert_eq!(stream.give_up_overdue(), []));
    let effects = stream.on_step_begun(1, 1, 2);
    let [Effect::Deliver(_, report)] = &effects[..] else { panic!("{effects:?}") };
    assert!(report.id.step == 1 && report.torn, "it was in it when its home died");
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, 2)), []);
    assert_eq!(delivered(&stream.on_step_ended(1, 1, S0, ended(1, 2))), [(2, 0)]);
}

/// Several servers held copies, each of some steps, and they do not tell in the order of the steps.
#[test]
fn what_a_dead_home_had_not_told_comes_in_any_order() {
    let mut stream = stream(Policy::DropOldest, 1, 9);
    assert_eq!(delivered(&step(&mut stream, 0)), [(0, 0)]);
    for number in 1..5 {
        assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, number)), []);
    }
    stream.on_server_gone(S1);
    let whole = |effects: &[Effect], number| {
        let [Effect::Deliver(_, report)] = effects else { panic!("{effects:?}") };
        assert!(report.id.step == number && !report.torn, "{report:?}");
    };
    whole(&stream.on_step_ended(1, 1, S0, ended(1, 3)), 3);
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, 5)), [], "others go on meanwhile");
    whole(&stream.on_step_ended(1, 1, S0, ended(1, 1)), 1);
    // Its home had told of step 0, so that it is not needed again; step 2 it has left out.
    assert_eq!(freed(&stream.release(AttachmentId(7), 1, 0, false)), [0]);
    assert_eq!(freed(&stream.on_step_ended(1, 1, S0, ended(1, 0))), [0]);
    let (joined, effects) = stream.rejoin(1, S0, options(2, Policy::DropOldest), back(1, 1), 3).unwrap();
    assert_eq!(joined.reported_below, 4);
    let [Effect::Deliver(_, report)] = &effects[..] else { panic!("{effects:?}") };
    assert!(report.id.step == 2 && report.torn);
    whole(&stream.on_step_ended(1, 1, S0, ended(1, 4)), 4);
    whole(&stream.on_step_ended(1, 1, S0, ended(1, 5)), 5);
}

#[test]
fn a_rank_that_does_not_come_back_is_given_up() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, 0)), []);
    assert_eq!(stream.on_server_gone(S1), []);
    (0..200).for_each(|_| assert_eq!(stream.give_up_overdue(), [], "it may compute"));
    (1..3).for_each(|step| assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, step)), []));
    let told = delivered(&stream.give_up_overdue());
    assert_eq!(told, [(0, 0), (1, 0), (2, 0)], "the other rank does not wait for it");
    let late = stream.rejoin(1, S0, options(2, Policy::DropOldest), back(1, 1), 3);
    assert_eq!(late.unwrap_err().kind, ErrorKind::NotFound);
    let mut effects: Vec<Effect> =
        (0..3).flat_map(|step| stream.release(AttachmentId(7), 1, step, false)).collect();
    effects.extend(stream.on_rank_gone(1, 0, CLOSED));
    assert_eq!(ends(&effects), [(7, 0, ErrorKind::Crashed)]);
    let StreamPhase::Over(summary) = stream.status().phase else { panic!("{:?}", stream.status()) };
    assert_eq!(summary.why_crashed(), Some("rank 1 of 2 lost its home server and did not come back"));
}

/// Nothing tells whether it still runs.
#[test]
fn a_rank_that_was_alone_is_given_up_late() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.join(0, S1, options(1, Policy::DropOldest)).unwrap();
    stream.on_server_gone(S1);
    let given_up = |stream: &StreamCoordinator| stream.runs[&1].is_over();
    (0..599).for_each(|_| drop(stream.give_up_overdue()));
    assert!(!given_up(&stream));
    stream.give_up_overdue();
    assert!(given_up(&stream));
}

/// Its steps are told by one home, and then by another.
#[test]
fn a_rank_whose_home_leaves_moves_once_that_has_told_all() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    let back =
        |stream: &mut Checked| stream.rejoin(1, S0, options(2, Policy::DropOldest), back(1, 1), 3).map(drop);
    assert_eq!(back(&mut stream).unwrap_err().kind, ErrorKind::Unreachable);
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, 0)), []);
    assert_eq!(delivered(&stream.on_step_ended(1, 1, S1, ended(1, 0))), [(0, 0)]);
    stream.on_rank_released(1, 1, S0);
    assert_eq!(back(&mut stream).unwrap_err().kind, ErrorKind::Unreachable, "that is not its home");
    stream.on_rank_released(1, 1, S1);
    back(&mut stream).unwrap();
    stream.on_rank_released(1, 1, S1);
    assert_eq!(stream.on_server_gone(S1), []);
    assert_eq!(stream.on_step_ended(1, 0, S0, ended(0, 1)), []);
    assert_eq!(delivered(&stream.on_step_ended(1, 1, S0, ended(1, 1))), [(1, 0)]);
}

/// A restart of the simulation does not wait for ranks of the run before it.
#[test]
fn a_new_run_gives_up_who_is_away() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    assert_eq!(stream.on_server_gone(S1), []);
    assert_eq!(stream.on_rank_gone(1, 0, RankEnd::Died), []);
    let (joined, _) = stream.join(0, S0, options(2, Policy::DropOldest)).unwrap();
    assert_eq!(joined.run, 2);
    let late = stream.rejoin(1, S0, options(2, Policy::DropOldest), back(1, 1), 3);
    assert_eq!(late.unwrap_err().kind, ErrorKind::NotFound);
}

/// What the home of one of two ranks tells of run 5.
fn told(rank: u32, below: StepNumber, later: Vec<(StepNumber, Demand)>) -> RunReport {
    RunReport {
        run: 5,
        options: options(2, Policy::DropOldest),
        fields: vec![field()],
        attrs: Attrs::default(),
        cuts: Some((demand(1), later)),
        highest_step_left: None,
        ranks: vec![RankReport {
            rank,
            who: Identity::default(),
            below,
            safe_below: 0,
            begun: below > 0,
            away: false,
        }],
        begun: true,
        over: None,
        began: Timestamp(3),
    }
}

/// The run was over, as the coordinator before this one had told.
fn over(outcome: RunOutcome) -> Option<Box<RunSummary>> {
    let counts = RankCounts::default();
    Some(Box::new(RunSummary { outcome, at: Timestamp(9), reached: Some(6), counts }))
}

/// Of two ranks that have left, one had its home where the coordinator was: both are dead.
#[test]
fn a_run_that_was_over_is_not_waited_for() {
    for was_over in [true, false] {
        let mut stream = Checked::new("s", vec![S1]);
        let over = over(RunOutcome::Finished).filter(|_| was_over);
        stream.on_run_report(S1, 3, RunReport { over, ..told(1, 7, Vec::new()) }).unwrap();
        let gone = stream.on_rank_gone(5, 1, CLOSED);
        let effects = settle(&mut stream);
        let tells = |effects: &[Effect]| told_over(effects) == [(5, false)];
        assert_eq!(tells(&gone) || tells(&effects), was_over, "whoever is next is told, too");
        assert_eq!(matches!(stream.status().phase, StreamPhase::Over(_)), was_over);
        // Nothing of the run that comes is taken for what is left of that one; but a rank may come after another has left.
        let (joined, _) = stream.join(0, S1, options(2, Policy::DropOldest)).unwrap();
        assert_eq!(joined.run, if was_over { 6 } else { 5 });
    }
}

/// A rank that died is told first, of others later or not at all: nobody is told that the run is over.
#[test]
fn a_run_is_not_over_since_others_are_not_told_yet() {
    for other_is_told in [true, false] {
        let mut stream = Checked::new("s", vec![S0, S1]);
        stream.on_run_report(S1, 3, told(1, 7, Vec::new())).unwrap();
        let mut effects = stream.on_rank_gone(5, 1, RankEnd::Died);
        if other_is_told {
            stream.on_run_report(S0, 3, told(0, 8, Vec::new())).unwrap();
        }
        effects.extend(settle(&mut stream));
        assert_eq!(told_over(&effects), [], "{effects:?}");
        if other_is_told {
            assert_eq!(told_over(&stream.on_rank_gone(5, 0, CLOSED)), [(5, true)]);
        }
    }
    // Until those of which nobody knows are given up.
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.on_run_report(S1, 3, told(1, 7, Vec::new())).unwrap();
    let mut effects = stream.on_rank_gone(5, 1, CLOSED);
    effects.extend(settle(&mut stream));
    assert_eq!(told_over(&effects), [], "{effects:?}");
    let looks = (0..AWAY_LOOKS).flat_map(|_| stream.give_up_overdue());
    assert_eq!(told_over(&looks.collect::<Vec<Effect>>()), [(5, true)]);
}

/// Copies of what a dead home told do not say where its rank went after it had moved.
#[test]
fn who_had_moved_is_not_waited_for_when_its_run_was_over() {
    for outcome in [RunOutcome::Finished, RunOutcome::Crashed("rank 1 of 2 ended without closing it".into())]
    {
        let mut stream = Checked::new("s", vec![S1]);
        let over = over(outcome);
        let mut told = RunReport { over: over.clone(), ..told(1, 7, Vec::new()) };
        told.ranks.push(RankReport { rank: 0, away: true, ..told.ranks[0].clone() });
        stream.on_run_report(S1, 3, told).unwrap();
        stream.on_rank_gone(5, 1, CLOSED);
        settle(&mut stream);
        assert_eq!(stream.status().phase, StreamPhase::Over(*over.unwrap()), "as it was told");
    }
}

fn settle(stream: &mut StreamCoordinator) -> Vec<Effect> {
    let mut next = 100;
    stream.settle(|| {
        next += 1;
        AttachmentId(next)
    })
}

/// Two homes have told: step 7 is closed, step 8 is not.
fn taken_over() -> (Checked, Vec<Effect>) {
    let mut stream = Checked::new("s", vec![S0, S1]).with_versions_after(1 << 40);
    stream.on_run_report(S0, 3, told(0, 8, Vec::new())).unwrap();
    for number in 7..9 {
        assert_eq!(stream.on_step_ended(5, 0, S0, ended(0, number)), []);
    }
    stream.on_run_report(S1, 3, told(1, 7, vec![(9, demand(2))])).unwrap();
    assert_eq!(stream.on_step_ended(5, 1, S1, ended(1, 7)), []);
    let effects = settle(&mut stream);
    (stream, effects)
}

/// One that looks at what is held while homes are still telling is told of what they tell, and of no later step.
#[test]
fn what_is_held_is_looked_at_when_it_is_known() {
    let mut stream = Checked::new("s", vec![S0, S1]).with_versions_after(1 << 40);
    stream.on_run_report(S0, 3, told(0, 8, Vec::new())).unwrap();
    stream.on_step_ended(5, 0, S0, ended(0, 7));
    let reader = Attachment::new(needs(1), S0, 9);
    assert_eq!(stream.attach(AttachmentId(7), reader, Start::HELD).unwrap(), []);
    stream.on_run_report(S1, 3, told(1, 7, vec![(7, demand(1))])).unwrap();
    assert_eq!(stream.on_step_ended(5, 1, S1, ended(1, 7)), []);
    let effects = settle(&mut stream);
    assert_eq!(delivered(&effects), [(7, 0)]);
    assert_eq!(ends(&effects), [(7, 0, ErrorKind::Ended)]);
    let mut later = stream.on_step_ended(5, 0, S0, ended(0, 8));
    later.extend(stream.on_step_ended(5, 1, S1, ended(1, 8)));
    assert!(!later.iter().any(|effect| matches!(effect, Effect::Deliver(AttachmentId(7), _))), "{later:?}");
}

/// A coordinator that left has handed over what it had counted; a step that closes again is not counted twice.
#[test]
fn what_was_counted_goes_on() {
    let mut stream = Checked::new("s", vec![S0, S1]).with_versions_after(1 << 40);
    let steps = StepCounts { closed: 8, dropped: 2, torn: 1 };
    let missed = vec![(AttachmentId(7), 5)];
    let counted = HandedCounts { run: 5, steps, since: 0, last_closed: Some(7), missed };
    stream.on_run_report(S0, 3, told(0, 7, Vec::new())).unwrap();
    stream.inherit_counts(&counted);
    stream.on_run_report(S1, 3, told(1, 7, vec![(7, demand(1))])).unwrap();
    for number in 7..9 {
        stream.on_step_ended(5, 0, S0, ended(0, number));
        stream.on_step_ended(5, 1, S1, ended(1, number));
    }
    settle(&mut stream);
    assert_eq!(stream.status().steps, StepCounts { closed: 9, ..steps });
    assert_eq!((stream.status().counted_since, stream.status().last_closed), (0, Some(8)));
    stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 9), Start::Next).unwrap();
    assert_eq!(stream.status().readers[0].missed, 5);
    assert_eq!(stream.counts_to_hand_over().unwrap().missed, [(AttachmentId(7), 5)]);
    // Of one that died nobody knows.
    let (stream, _) = taken_over();
    assert_eq!((stream.status().steps.closed, stream.status().counted_since), (1, 3));
}

/// Each attachment of which servers were told has a place of its own, until it is back or has not come for long.
#[test]
fn the_places_of_readers_are_kept_until_they_are_back() {
    let taken_over = |readers: &[u64]| {
        let mut stream = Checked::new("s", vec![S0, S1]).with_versions_after(1 << 40);
        for id in readers {
            stream.on_attachment_report(3, AttachmentId(*id), record(Some((5, 3)))).unwrap();
        }
        for (rank, server) in [(0, S0), (1, S1)] {
            stream.on_run_report(server, 3, told(rank, 8, Vec::new())).unwrap();
            assert_eq!(stream.on_step_ended(5, rank, server, ended(rank, 7)), []);
        }
        settle(&mut stream);
        assert_eq!(stream.status().readers.len(), 0);
        stream
    };
    let reader = || Attachment::new(needs(1), S0, 4);
    let mut stream = taken_over(&[7, 8]);
    let effects = stream.attach(AttachmentId(7), reader(), Start::Rejoin(5, 8)).unwrap();
    assert_eq!(
        (delivered(&effects), freed(&effects)),
        (vec![], vec![]),
        "it has had step 7, not so the other"
    );
    let effects = stream.attach(AttachmentId(8), reader(), Start::Next).unwrap();
    assert_eq!(delivered(&effects), [(7, 0)], "it was told of nothing before, and wanted all from step 3 on");
    assert_eq!(freed(&stream.release(AttachmentId(8), 5, 7, false)), [7], "nobody else is to come");
    let gone = stream.detach(AttachmentId(8));
    assert!(gone.contains(&Effect::Attachment(AttachmentId(8), None)), "{gone:?}");

    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.on_attachment_report(3, AttachmentId(7), record(None)).unwrap();
    settle(&mut stream);
    stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
    stream.define(1, 0, field()).unwrap();
    stream.on_step_ended(1, 0, S0, ended(0, 0));
    let effects = stream.attach(AttachmentId(7), reader(), Start::Next).unwrap();
    assert_eq!(delivered(&effects), [(0, 0)], "its first run began while it was away");

    let mut stream = taken_over(&[9]);
    (0..9).for_each(|_| assert_eq!(stream.give_up_overdue(), []));
    let effects = stream.give_up_overdue();
    assert_eq!(freed(&effects), [7]);
    assert!(effects.contains(&Effect::Attachment(AttachmentId(9), None)), "{effects:?}");
}

/// While homes still tell, and no run is known: it holds for the next one.
#[test]
fn a_contract_changes_amid_a_takeover() {
    let mut stream = Checked::new("s", vec![S0]).with_versions_after(1 << 40);
    let reader = AttachmentId(7);
    stream.on_attachment_report(3, reader, record(None)).unwrap();
    stream.attach(reader, Attachment::new(needs(1), S0, 9), Start::Next).unwrap();
    stream.change_needs(reader, needs(2)).unwrap();
    assert!(!stream.are_needs_agreed(reader));
    settle(&mut stream);
    assert!(stream.are_needs_agreed(reader));
    stream.join(0, S0, options(1, Policy::DropOldest)).unwrap();
    stream.define(1, 0, field()).unwrap();
    let told = (0..5).flat_map(|number| delivered(&stream.on_step_ended(1, 0, S0, ended(0, number))));
    assert_eq!(told.collect::<Vec<_>>(), [(0, 0), (2, 0), (4, 0)]);
}

/// Nobody else knew of the run; its rank comes back after the readers are known.
#[test]
fn nobody_stands_in_for_readers_that_are_known() {
    let mut stream = Checked::new("s", vec![S0]).with_versions_after(1 << 40);
    let record = record(Some((5, 3)));
    stream.on_attachment_report(3, AttachmentId(7), record).unwrap();
    settle(&mut stream);
    let reader = Attachment::new(needs(1), S0, 4);
    stream.attach(AttachmentId(7), reader, Start::Rejoin(5, 7)).unwrap();
    stream.rejoin(0, S0, options(1, Policy::DropOldest), back(5, 1), 3).unwrap();
    settle(&mut stream);
    stream.define(5, 0, field()).unwrap();
    assert_eq!(delivered(&stream.on_step_ended(5, 0, S0, ended(0, 7))), [(7, 0)]);
    assert_eq!(freed(&stream.release(AttachmentId(7), 5, 7, false)), [7]);
}

/// The server that takes a coordinator's place hears of that from others before it knows the view, and meanwhile a rank of its
/// own ends a step.
#[test]
fn what_comes_before_the_run_is_told_of_is_not_freed() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    let record = record(Some((5, 7)));
    stream.on_attachment_report(3, AttachmentId(7), record).unwrap();
    assert_eq!(stream.on_step_ended(5, 0, S0, ended(0, 7)), []);
    assert_eq!(stream.on_stranded_blocks(5, 7, 0, S1), []);
    for (rank, server) in [(0, S0), (1, S1)] {
        stream.on_run_report(server, 3, told(rank, 8, Vec::new())).unwrap();
        assert_eq!(stream.on_step_ended(5, rank, server, ended(rank, 7)), []);
    }
    settle(&mut stream);
    let effects =
        stream.attach(AttachmentId(7), Attachment::new(needs(1), S0, 4), Start::Rejoin(5, 7)).unwrap();
    let [.., Effect::Deliver(_, report)] = &effects[..] else { panic!("{effects:?}") };
    assert!(report.id.step == 7 && !report.torn);
}

#[test]
fn who_takes_a_coordinators_place_goes_on_where_it_was() {
    let (mut stream, effects) = taken_over();
    let [Effect::Cuts { run: 5, cuts, agreeing: None }, Effect::Prepare { run: 5, version }] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((cuts.at(8).version, cuts.at(9).version), (1, 2), "one of them had heard of it");
    assert!(*version > 1 << 40);
    let reader = Attachment::new(needs(1), S0, 4);
    let effects = stream.attach(AttachmentId(7), reader, Start::Rejoin(5, 7)).unwrap();
    assert_eq!(delivered(&effects), [(7, 0)]);
    assert_eq!(stream.active_from(AttachmentId(7)), Some((5, 7)));
    assert_eq!(delivered(&stream.on_step_ended(5, 1, S1, ended(1, 8))), [(8, 0)]);
    for number in 7..9 {
        assert_eq!(freed(&stream.release(AttachmentId(7), 5, number, false)), [], "others may come back");
    }
    assert_eq!(stream.status().readers.len(), 1);
    let effects: Vec<Effect> = (0..10).flat_map(|_| stream.give_up_overdue()).collect();
    let unseen = |step: StepNumber| {
        effects.iter().any(|e| matches!(e, Effect::Free { id, unseen_before: 3, .. } if id.step == step))
    };
    assert!(unseen(7), "who held it at the other coordinator may look at it still: {effects:?}");
    assert_eq!(freed(&effects), [7, 8]);
}

/// Until all have told, not all readers are known: a demand without theirs would leave gaps in their steps.
#[test]
fn nothing_is_agreed_until_all_have_told() {
    let mut stream = Checked::new("s", vec![S0, S1]).with_versions_after(1 << 40);
    let needs_all = record(Some((5, 0)));
    stream.on_attachment_report(3, AttachmentId(7), needs_all).unwrap();
    stream.on_run_report(S0, 3, told(0, 8, Vec::new())).unwrap();
    let seldom = Attachment::new(needs(5), S0, 4);
    let effects = stream.attach(AttachmentId(8), seldom, Start::Rejoin(5, 8)).unwrap();
    assert!(!effects.iter().any(|e| matches!(e, Effect::Prepare { .. })), "{effects:?}");
    assert_eq!(without_records(stream.detach(AttachmentId(9))), []);
    let effects = settle(&mut stream);
    let prepares = effects.iter().filter(|e| matches!(e, Effect::Prepare { .. })).count();
    assert_eq!(prepares, 1, "{effects:?}");
    assert!(stream.demand().includes(&needs(1)) && stream.demand().includes(&needs(5)));
}

/// A server that holds copies tells late what a dead one knew, while a change is being agreed.
#[test]
fn a_change_that_is_being_agreed_stays_so_when_more_is_told() {
    let (mut stream, effects) = taken_over();
    let Some(Effect::Prepare { version, .. }) = effects.last() else { panic!("{effects:?}") };
    assert_eq!(stream.on_prepared(S0, *version, Some(8)), []);
    stream.on_run_report(S1, 3, told(1, 7, vec![(99, demand(3))])).unwrap();
    let effects = settle(&mut stream);
    let [Effect::Cuts { run: 5, cuts, agreeing }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(
        *agreeing,
        Some(*version),
        "a rank must not begin step 9 before it is decided what holds there"
    );
    assert_eq!(cuts.at(99).version, 2, "the servers were told what holds, and begin steps by that");
    let effects = stream.on_prepared(S1, *version, Some(8));
    let Some(Effect::Decide(decision)) = effects.iter().find(|e| matches!(e, Effect::Decide(_))) else {
        panic!("{effects:?}")
    };
    assert_eq!(decision.from, 9);
}

#[test]
fn a_reader_that_comes_back_holds_what_it_held() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.take_over(3);
    let held = |step, pinned| HeldStep { run: 5, step, pinned };
    let reader = |held: Vec<HeldStep>| Attachment::new(needs(1), S0, 4).with_held_steps(held);
    // The first comes before the homes have told, and has let go of one step by then; the other comes later.
    let (early, late) = (AttachmentId(7), AttachmentId(8));
    let attach = stream.attach(early, reader(vec![held(6, true), held(7, false)]), Start::Rejoin(5, 9));
    assert_eq!(without_records(attach.unwrap()), []);
    for (rank, server) in [(0, S0), (1, S1)] {
        stream.on_run_report(server, 3, told(rank, 9, Vec::new())).unwrap();
        for number in 6..9 {
            stream.on_step_ended(5, rank, server, ended(rank, number));
        }
    }
    assert_eq!(stream.release(early, 5, 6, false), []);
    assert_eq!(freed(&settle(&mut stream)), [6], "the oldest, since those that wait are too large");
    assert_eq!(stream.held_by(early), [(5, 7)]);
    stream
        .attach(late, reader(vec![held(8, true), held(7, true), held(5, true)]), Start::Rejoin(5, 9))
        .unwrap();
    assert_eq!(stream.held_by(late), [(5, 7), (5, 8)], "what is not there any more nobody holds");
    let effects: Vec<Effect> = (0..10).flat_map(|_| stream.give_up_overdue()).collect();
    assert_eq!(freed(&effects), [], "though others have not come back");
    assert_eq!(freed(&stream.release(early, 5, 7, false)), []);
    assert_eq!(freed(&stream.release(late, 5, 7, false)), [7]);
    assert_eq!(freed(&stream.detach(late)), [8]);
}

/// What was dropped while it was away, and what it had before, and what others have missed but is kept.
#[test]
fn a_reader_that_comes_back_is_told_how_many_steps_it_has_missed() {
    let come_back = |keep: u32| {
        let mut stream = Checked::new("s", vec![S0, S1]);
        let record = record(Some((5, 3)));
        stream.on_attachment_report(3, AttachmentId(7), record).unwrap();
        for (rank, server) in [(0, S0), (1, S1)] {
            let told = told(rank, 9, Vec::new());
            let options = RunOptions { keep, ..told.options };
            stream.on_run_report(server, 3, RunReport { options, ..told }).unwrap();
            (3..9).for_each(|number| {
                stream.on_step_ended(5, rank, server, ended(rank, number));
            });
        }
        let freed = freed(&settle(&mut stream));
        let reader = Attachment::new(needs(1), S0, 9);
        (freed, delivered(&stream.attach(AttachmentId(7), reader, Start::Rejoin(5, 5)).unwrap()))
    };
    let (freed, told) = come_back(0);
    assert_eq!(freed, [3, 4, 5, 6], "those that wait are too large");
    assert_eq!(told, [(7, 2), (8, 0)]);
    assert_eq!(come_back(9), (vec![], vec![(5, 0), (6, 0), (7, 0), (8, 0)]));
}

#[test]
fn a_reader_that_comes_back_is_told_of_what_is_left_and_of_the_end() {
    let (mut stream, _) = taken_over();
    stream.on_step_ended(5, 1, S1, ended(1, 8));
    for rank in 0..2 {
        stream.on_rank_gone(5, rank, CLOSED);
    }
    let mut reader = Attachment::new(needs(1), S0, 4);
    reader.follow = false;
    let effects = stream.attach(AttachmentId(7), reader, Start::Rejoin(5, 8)).unwrap();
    assert_eq!(delivered(&effects), [(8, 0)]);
    assert_eq!(ends(&effects), [(7, 0, ErrorKind::Ended)], "{effects:?}");
}

/// Its blocks were whole when it was told first: a rank's part of it may be lost since.
#[test]
fn a_reader_that_comes_back_is_not_told_again_of_what_closes_late() {
    let (mut stream, _) = taken_over();
    let reader = Attachment::new(needs(1), S0, 4);
    let effects = stream.attach(AttachmentId(7), reader, Start::Rejoin(5, 9)).unwrap();
    assert_eq!(delivered(&effects), []);
    assert_eq!(delivered(&stream.on_step_ended(5, 1, S1, ended(1, 8))), []);
    stream.on_step_ended(5, 0, S0, ended(0, 9));
    assert_eq!(delivered(&stream.on_step_ended(5, 1, S1, ended(1, 9))), [(9, 0)]);
}

#[test]
fn what_nobody_tells_of_is_freed_and_what_is_still_being_put_is_not() {
    let mut stream = Checked::new("s", vec![S0, S1]);
    stream.on_run_report(S0, 3, told(0, 8, Vec::new())).unwrap();
    stream.on_run_report(S1, 3, told(1, 8, Vec::new())).unwrap();
    stream.on_step_ended(5, 0, S0, ended(0, 7));
    stream.on_blocks_held(ServerId(2), [(4, 1), (5, 7), (5, 9), (5, 10)]);
    assert_eq!(freed(&settle(&mut stream)), [1], "of a run that nobody knows");
    stream.on_step_ended(5, 0, S0, ended(0, 9));
    stream.on_step_ended(5, 0, S0, ended(0, 11));
    assert_eq!(freed(&stream.give_up_overdue()), [], "the other rank may put it yet");
    stream.on_step_ended(5, 1, S1, ended(1, 9));
    stream.on_step_ended(5, 1, S1, ended(1, 11));
    assert_eq!(freed(&stream.give_up_overdue()), [10]);
    let effects: Vec<Effect> = (0..9).flat_map(|_| stream.give_up_overdue()).collect();
    assert_eq!(freed(&effects), [7, 9, 11]);
    for effect in effects {
        if let Effect::Free { id, servers, .. } = effect {
            assert_eq!(servers.contains(&ServerId(2)), id.step < 10, "{id}");
        }
    }
}

#[test]
fn a_run_whose_ranks_all_lost_their_home_is_learned_of_from_those_that_come_back() {
    let mut stream = Checked::new("s", vec![S0]).with_versions_after(1 << 40);
    let attachment = Attachment::new(needs(1), S0, 4);
    let attach = stream.attach(AttachmentId(7), attachment, Start::Rejoin(5, 3));
    assert_eq!(without_records(attach.unwrap()), []);
    assert_eq!(stream.active_from(AttachmentId(7)), None);
    // What its homes tell before they have told of the run belongs to nobody.
    assert_eq!(freed(&stream.on_step_ended(5, 0, S0, ended(0, 8))), [8]);
    for rank in 0..2 {
        let back = stream.rejoin(rank, S0, options(2, Policy::DropOldest), back(5, 9), 3);
        assert!(back.unwrap().0.cuts.at(0).wants(&field(), 0), "as it knew before");
        settle(&mut stream);
        stream.define(5, rank, field()).unwrap();
    }
    assert_eq!(stream.active_from(AttachmentId(7)), Some((5, 3)));
    assert_eq!(stream.on_step_ended(5, 0, S0, ended(0, 9)), []);
    assert_eq!(delivered(&stream.on_step_ended(5, 1, S0, ended(1, 9))), [(9, 0)]);
    let other = stream.rejoin(0, S0, options(2, Policy::DropOldest), back(7, 9), 3);
    assert_eq!(other.unwrap_err().kind, ErrorKind::NotFound, "run 5 is not over");
    let other = stream.rejoin(0, S0, options(3, Policy::DropOldest), back(5, 9), 3);
    assert_eq!(other.unwrap_err().kind, ErrorKind::NotFound, "its ranks were 2");
}

#[test]
fn ranks_that_nobody_tells_of_are_awaited_and_then_given_up() {
    let mut stream = Checked::new("s", vec![S0]);
    stream.on_run_report(S0, 3, told(0, 8, Vec::new())).unwrap();
    stream.on_step_ended(5, 0, S0, ended(0, 8));
    settle(&mut stream);
    let reader = Attachment::new(needs(1), S0, 4);
    let attach = stream.attach(AttachmentId(7), reader, Start::Rejoin(5, 8));
    assert_eq!(without_records(attach.unwrap()), []);
    (0..30).for_each(|_| assert_eq!(stream.give_up_overdue(), []));
    (9..11).for_each(|step| assert_eq!(stream.on_step_ended(5, 0, S0, ended(0, step)), []));
    let effects = stream.give_up_overdue();
    let [Effect::Deliver(_, report), ..] = &effects[..] else { panic!("{effects:?}") };
    assert!(report.torn && report.id.step == 8, "{effects:?}");
}

/// A server stood still while a rank asked it to be its home, which went to another one then.
#[test]
fn what_a_rank_has_given_up_comes_late() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    assert_eq!(stream.on_server_gone(S1), []);
    let comes_back = |stream: &mut Checked, server, attempt| {
        let back_to = Rejoin { attempt, ..back(1, 1) };
        stream.rejoin(1, server, options(2, Policy::DropOldest), back_to, 3).map(drop).map_err(|e| e.kind)
    };
    assert_eq!(comes_back(&mut stream, S0, 2), Ok(()));
    assert_eq!(comes_back(&mut stream, S0, 1), Err(ErrorKind::Conflict));
    assert_eq!(comes_back(&mut stream, ServerId(7), 3), Err(ErrorKind::Unreachable), "its home has it still");
    stream.on_rank_released(1, 1, S0);
    assert_eq!(comes_back(&mut stream, ServerId(7), 3), Ok(()));
    // Nobody waited for the answer.
    assert_eq!(stream.on_join_abandoned(1, 1), []);
    assert_eq!(comes_back(&mut stream, S0, 4), Ok(()));
}

/// Blocks that a rank put which then died with its home, and of which nobody told before the simulation began anew.
#[test]
fn what_nobody_claimed_goes_with_its_run() {
    let (mut stream, _) = taken_over();
    assert_eq!(without_records(stream.on_blocks_held(S0, [(5, 9)])), []);
    let mut effects = stream.on_rank_gone(5, 0, RankEnd::Died);
    effects.extend(stream.on_server_gone(S1));
    (0..10).for_each(|_| effects.extend(stream.give_up_overdue()));
    effects.extend(stream.join(0, S0, options(2, Policy::DropOldest)).unwrap().1);
    assert_eq!(freed(&effects), [7, 8, 9], "{effects:?}");
}

/// A coordinator that stood still is told once more of what it knows: who reads is not told the end before the last step closes.
#[test]
fn the_end_comes_after_all_that_is_told_again() {
    let mut stream = stream(Policy::DropOldest, 1, 4);
    stream.take_over(4);
    for rank in 0..2 {
        assert_eq!(stream.on_step_ended(1, rank, ServerId(rank), ended(rank, 0)), []);
        assert_eq!(stream.on_rank_gone(1, rank, CLOSED), []);
    }
    let effects = stream.settle(|| AttachmentId(99));
    assert_eq!(delivered(&effects), [(0, 0)]);
    assert_eq!(ends(&effects), [(7, 0, ErrorKind::Ended)]);
}
