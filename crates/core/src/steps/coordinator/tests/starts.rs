//! Where readers begin: the next step, the oldest, the newest, a cursor, whole runs, what is held.

use super::*;

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
