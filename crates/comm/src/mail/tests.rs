use super::*;
use crate::operation::{Datatype, Operation};
use crate::target::Place;

fn envelope(source: u32, bytes: u64) -> Envelope {
    Envelope { label: Label { source, space: 0, tag: 5 }, bytes }
}

const WANTED: Wanted = Wanted { source: Some(1), space: 0, tag: Some(5) };

fn made() -> Target {
    Target::Made(Vec::new())
}

/// The bytes of a receive that has ended.
fn bytes(mail: &mut Mail, id: ReceiveId) -> Option<Vec<u8>> {
    match mail.take(id) {
        Some(Received::Whole(_, Target::Made(bytes))) => Some(bytes),
        _ => None,
    }
}

fn receive(mail: &mut Mail, comm: u64) -> Option<Vec<u8>> {
    let id = mail.post(comm, WANTED, made());
    let found = bytes(mail, id);
    mail.cancel(id);
    found
}

#[test]
fn early_messages_are_bounded_and_found_when_the_comm_opens() {
    let mut mail = Mail::default();
    let quarter = EARLY_MAX / 4;
    for _ in 0..3 {
        assert!(mail.begin(7, envelope(1, quarter)).is_ok());
    }
    assert_eq!(mail.begin(8, envelope(1, quarter)), Err(Admission::Wait));
    mail.open(7);
    assert_eq!(mail.early_bytes, 0);
    let stream = mail.begin(8, envelope(1, quarter)).unwrap();
    mail.fail(stream);
    assert_eq!(mail.early_bytes, 0);
    assert_eq!(mail.unread_bytes, 3 * cost(quarter));
    mail.close(7);
    assert_eq!(mail.unread_bytes, 0);
    assert_eq!(mail.begin(7, envelope(1, 0)), Err(Admission::Discard));
    mail.close(9);
    assert_eq!((mail.early_bytes, mail.early.len()), (0, 0));
}

#[test]
fn the_bound_yields_to_who_is_awaited() {
    let mut mail = Mail::default();
    mail.open(1);
    assert!(mail.begin(1, envelope(0, 2 * UNREAD_MAX)).is_ok(), "alone, any size passes");
    assert_eq!(mail.begin(1, envelope(2, 1)), Err(Admission::Wait));
    mail.want(1, Some(2), true);
    assert!(mail.begin(1, envelope(2, 1)).is_ok());
    assert_eq!(mail.begin(1, envelope(3, 1)), Err(Admission::Wait));
    mail.want(1, Some(2), false);
    assert_eq!(mail.begin(1, envelope(2, 1)), Err(Admission::Wait));
    mail.close(1);
    mail.open(2);
    assert_eq!(mail.begin(1, envelope(2, 1)), Err(Admission::Discard));
}

#[test]
fn absurd_lengths_upset_no_account() {
    let mut mail = Mail::default();
    mail.open(1);
    mail.want(1, Some(2), true);
    let absurd = mail.begin(1, envelope(0, u64::MAX)).unwrap();
    assert_eq!(mail.begin(1, envelope(2, 1)), Err(Admission::Discard), "more than can be counted");
    mail.fail(absurd);
    assert_eq!(mail.unread_bytes, 0);
    let id = mail.post(1, Wanted { source: Some(0), ..WANTED }, made());
    let absurd = mail.begin(1, envelope(0, u64::MAX)).unwrap();
    assert!(matches!(mail.take(id), Some(Received::NoMemory(_))));
    mail.fail(absurd);
}

#[test]
fn messages_come_in_the_order_in_which_they_were_sent() {
    let mut mail = Mail::default();
    mail.open(1);
    let whole = |mail: &mut Mail, source, byte: u8| {
        let fill = |space: &mut [u8]| {
            space.fill(byte);
            Ok::<(), ()>(())
        };
        mail.whole(1, envelope(source, 1), fill).unwrap()
    };
    let growing = mail.begin(1, envelope(1, 2)).unwrap();
    whole(&mut mail, 1, 2);
    // The first one is still coming, the receive is for it.
    let id = mail.post(1, WANTED, made());
    assert!(bytes(&mut mail, id).is_none());
    mail.more(growing, &[1]);
    mail.more(growing, &[1]);
    assert_eq!(bytes(&mut mail, id), Some(vec![1, 1]));
    assert_eq!(receive(&mut mail, 1), Some(vec![2]));
    // Any rank, any tag.
    let any = mail.post(1, Wanted { source: None, tag: None, ..WANTED }, made());
    let first = mail.post(1, WANTED, made());
    whole(&mut mail, 1, 3);
    whole(&mut mail, 1, 4);
    assert_eq!((bytes(&mut mail, any), bytes(&mut mail, first)), (Some(vec![3]), Some(vec![4])));
    assert_eq!((mail.unread_bytes, mail.receives.len(), mail.streams.len()), (0, 0, 0));
}

#[test]
fn a_message_that_does_not_come_whole_is_awaited_again() {
    let mut mail = Mail::default();
    mail.open(1);
    let id = mail.post(1, WANTED, made());
    let stream = mail.begin(1, envelope(1, 2)).unwrap();
    mail.more(stream, &[1]);
    mail.fail(stream);
    assert!(mail.take(id).is_none());
    let stream = mail.begin(1, envelope(1, 2)).unwrap();
    mail.more(stream, &[2, 3]);
    assert_eq!(bytes(&mut mail, id), Some(vec![2, 3]));
    // What has made something of the bytes cannot begin again.
    let mut sum = [0u8; 2];
    // SAFETY: it is dropped before the array.
    #[allow(unsafe_code)]
    let place = unsafe { Place::new(sum.as_mut_ptr(), sum.len()) };
    let combine = Operation::Sum.of(Datatype::UInt8).unwrap().with_higher;
    let id = mail.post(1, WANTED, Target::Combined(place, combine, None));
    let stream = mail.begin(1, envelope(1, 2)).unwrap();
    mail.more(stream, &[1]);
    mail.fail(stream);
    assert!(matches!(mail.take(id), Some(Received::Broken(_))));
}

#[test]
fn a_loan_is_read_for_who_waits_and_else_when_there_is_nothing_else_to_do() {
    let mut mail = Mail::default();
    mail.open(1);
    let lent = |address| Lent { link: 3, place: 0, turn: 1, address };
    let id = mail.post(1, WANTED, made());
    assert_eq!(mail.lend(1, envelope(1, 4), lent(10)), Admission::Take);
    let (stream, due) = mail.next_due().unwrap();
    assert_eq!(due, lent(10));
    mail.more(stream, &[1, 2, 3, 4]);
    assert_eq!(bytes(&mut mail, id), Some(vec![1, 2, 3, 4]));
    // Nobody waits. Alone any size passes.
    assert_eq!(mail.lend(1, envelope(1, 2 * UNREAD_MAX), lent(20)), Admission::Take);
    assert!(mail.next_due().is_none());
    assert!(mail.pull() && !mail.pull());
    assert_eq!(mail.lend(1, envelope(2, 4), lent(25)), Admission::Take);
    assert!(!mail.pull(), "there is no room");
    let (stream, _) = mail.next_due().unwrap();
    mail.fail(stream);
    assert!(mail.pull());
    let (stream, _) = mail.next_due().unwrap();
    mail.more(stream, &[5; 4]);
    let id = mail.post(1, Wanted { source: Some(2), ..WANTED }, made());
    assert_eq!(bytes(&mut mail, id), Some(vec![5; 4]));
    assert_eq!(mail.unread_bytes, 0);
    // Its connection ends, and the comm closes.
    mail.lend(1, envelope(1, 4), lent(30));
    mail.forget_loans(3);
    assert_eq!(mail.unread_bytes, 0);
    mail.lend(1, envelope(1, 4), lent(40));
    mail.close(1);
    mail.lend(1, envelope(1, 4), lent(50));
    assert_eq!(mail.take_declined(), [lent(40), lent(50)]);
}
