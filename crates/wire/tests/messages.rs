//! One suite that every message of every protocol passes, by values that are made up of its type.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use forebay_core::{Error, ErrorKind};
use forebay_wire::client::{admin, consumer, meeting, placement, producer, reading, space, worker, writing};
use forebay_wire::comm;
use forebay_wire::connection::{CloseReason, Hello};
use forebay_wire::for_each_message;
use forebay_wire::frame::{Decoder, Frame, Header, encode};
use forebay_wire::peer::{
    cluster, directory, evaluation, pipelines, replication, space as space_directory, streams, subscriptions,
};
use forebay_wire::protocol::{Message, Protocol, Reply, Request};
use forebay_wire::testing::{Inventor, Plain, names_of, seeds};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::type_name;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// How many values of each type are made.
const VALUES: u64 = 3000;
/// How many are made at most until each kind is among them.
const VALUES_MAX: u64 = 20_000;

fn values<M: Message>() -> impl Iterator<Item = M> {
    let mut inventor = Inventor::new(VALUES);
    (0..VALUES).map(move |_| inventor.value())
}

/// What comes off the wire, and what is left there.
fn receive(bytes: &[u8]) -> (Option<Frame>, Decoder) {
    let (mut decoder, mut rest) = (Decoder::new(None), bytes);
    loop {
        let frame = decoder.next_frame().unwrap();
        if frame.is_some() || rest.is_empty() {
            return (frame, decoder);
        }
        let space = decoder.space();
        let (now, later) = rest.split_at(rest.len().min(space.len()));
        space[..now.len()].copy_from_slice(now);
        decoder.on_filled(now.len());
        rest = later;
    }
}

// ---- the suite --------------------------------------------------------------------------------------

/// A value that was sent is received as it was, under its protocol, with all that its header says.
fn it_arrives_as_it_was_sent<M: Message + Debug>() {
    for (request, message) in (0..).zip(values::<M>()) {
        let header = Header { request, epoch: 7, payload: 9, descriptors: 2, sealed_payload: true };
        let mut bytes = Vec::new();
        encode(&header, &message, None, &mut bytes).unwrap();
        let (frame, decoder) = receive(&bytes);
        let frame = frame.expect("the frame is whole");
        assert!(decoder.is_empty());
        assert_eq!((frame.header, frame.protocol()), (header, Ok(M::PROTOCOL)));
        // Not all that is sent can be compared: a number that is none is not equal to itself.
        assert_eq!(Plain::of(&frame.message::<M>().unwrap()), Plain::of(&message), "{message:?}");
    }
}

/// A peer that dies while it sends leaves nothing that would be taken for a message; nor is one read that has
/// more to it than its type.
fn it_is_whole_or_nothing<M: Message + Debug>() {
    for message in values::<M>().take(200) {
        let mut bytes = Vec::new();
        encode(&Header::default(), &message, None, &mut bytes).unwrap();
        for length in (0..bytes.len()).step_by(1 + bytes.len() / 50) {
            assert!(receive(&bytes[..length]).0.is_none(), "{length} bytes of {message:?}");
        }
        let whole = Plain::of(&message);
        for length in (0..whole.bytes.len()).step_by(1 + whole.bytes.len() / 50) {
            let part = Plain { bytes: whole.bytes[..length].to_vec(), ..whole.clone() };
            assert!(part.frame().message::<M>().is_err(), "{length} bytes of {message:?}");
        }
        let more = Plain { bytes: [&whole.bytes[..], &[0]].concat(), ..whole };
        assert!(more.frame().message::<M>().is_err(), "{message:?} and one byte");
    }
}

/// Under another protocol's number it is not read, whatever its bytes would mean there.
fn it_is_of_one_protocol<M: Message + Debug>() {
    for message in values::<M>().take(50) {
        let whole = Plain::of(&message);
        assert_eq!(whole.protocol, M::PROTOCOL as u8);
        for protocol in (0..=u8::MAX).filter(|number| *number != whole.protocol) {
            let frame = Plain { protocol, ..whole.clone() }.frame();
            assert_eq!(frame.message::<M>().unwrap_err().kind, ErrorKind::Protocol, "{message:?}");
        }
    }
}

/// Each kind of a protocol's requests, replies or events has a number of its own, which its encoding begins with: its place in
/// the enumeration, so that kinds can be appended.
fn its_kinds_differ<T: Serialize + DeserializeOwned + Debug>(seeds: Vec<T>) {
    let names = names_of::<T>();
    let mut missing: BTreeSet<&str> = names.iter().copied().collect();
    let mut inventor = Inventor::new(VALUES);
    for value in seeds.into_iter().chain((0..VALUES_MAX).map(|_| inventor.value())) {
        let text = format!("{value:?}");
        let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        let number = usize::from(postcard::to_allocvec(&value).unwrap()[0]);
        assert_eq!(names.get(number), Some(&name), "{}", type_name::<T>());
        missing.remove(name);
        if missing.is_empty() {
            return;
        }
    }
    // Chance does not come to those that hold blocks.
    assert!(2 * missing.len() <= names.len(), "{}: no value was made of {missing:?}", type_name::<T>());
}

/// What answers is of the protocol of what asks, and so is what failed, which is told as it was.
fn its_answers_belong_to_it<Q: Request>() {
    assert_eq!(<Q::Reply as Reply>::PROTOCOL, Q::PROTOCOL, "{}", type_name::<Q>());
    for error in values::<CloseReason>().take(100).map(|CloseReason(error)| error) {
        let answer = Plain::of(&Err::<Q::Reply, Error>(error.clone()));
        assert_eq!(answer.protocol, Q::PROTOCOL as u8);
        assert_eq!(answer.frame().message::<Result<Q::Reply, Error>>().unwrap().unwrap_err(), error);
    }
}

macro_rules! suite {
    ($($message:ty),* $(,)?) => {
        #[test]
        fn every_message_arrives_as_it_was_sent() { $(it_arrives_as_it_was_sent::<$message>();)* }

        #[test]
        fn every_message_is_whole_or_nothing() { $(it_is_whole_or_nothing::<$message>();)* }

        #[test]
        fn every_message_is_of_one_protocol() { $(it_is_of_one_protocol::<$message>();)* }

        /// A message of any type is read as one of another type only within its own protocol, where who speaks, and
        /// the number of the request, tell them apart.
        #[test]
        fn no_message_is_read_as_one_of_another_protocol() {
            $(for message in values::<$message>().take(100) {
                read_as_any(&Plain::of(&message), type_name::<$message>());
            })*
        }

        fn read_as_any(plain: &Plain, of: &str) {
            let frame = plain.frame();
            $(if frame.message::<$message>().is_ok() {
                assert_eq!(<$message as Message>::PROTOCOL as u8, plain.protocol, "{of} as {}", type_name::<$message>());
            })*
        }

        #[test]
        fn every_protocol_has_messages() {
            let spoken = BTreeSet::from([$(<$message as Message>::PROTOCOL),*]);
            assert_eq!(spoken, Protocol::ALL.iter().copied().collect());
        }
    };
}

for_each_message!(suite);

#[test]
fn every_request_is_answered_in_its_protocol() {
    its_answers_belong_to_it::<Hello>();
    its_answers_belong_to_it::<producer::Request>();
    its_answers_belong_to_it::<placement::Request>();
    its_answers_belong_to_it::<writing::Request>();
    its_answers_belong_to_it::<consumer::Request>();
    its_answers_belong_to_it::<reading::Request>();
    its_answers_belong_to_it::<space::Request>();
    its_answers_belong_to_it::<meeting::Request>();
    its_answers_belong_to_it::<worker::Request>();
    its_answers_belong_to_it::<admin::Request>();
}

#[test]
fn every_kind_has_a_number_of_its_own() {
    macro_rules! kinds {
        ($($protocol:ident: $($kind:ident),*;)*) => { $($(its_kinds_differ::<$protocol::$kind>(Vec::new());)*)* };
    }
    kinds! {
        producer: Request, Reply, Event;
        placement: Request, Reply, Event;
        writing: Request, Reply;
        consumer: Request, Reply, Event;
        reading: Request, Reply;
        space: Request;
        meeting: Request, Reply;
        worker: Request, Reply, Event;
        admin: Request, Reply;
        cluster: Message;
        streams: Message;
        replication: Message;
        directory: Message;
        space_directory: Message;
        pipelines: Message;
        evaluation: Message;
        subscriptions: Message;
        comm: CommMessage;
    }
    // Chance does not make what was found.
    its_kinds_differ(vec![seeds::found().unwrap()]);
}
