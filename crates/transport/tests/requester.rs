//! Asking over an asynchronous connection: answers, their data, what comes late, and how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use forebay_core::ids::Lineage;
use forebay_core::steps::{AttachmentId, RunEnd};
use forebay_core::{Error, ErrorKind};
use forebay_store::{Access, Mapping};
use forebay_transport::asynchronous::{self, Outbox, Payload, Receiver, Requester, Target};
use forebay_transport::{Link, inprocess};
use forebay_wire::client::consumer::Event;
use forebay_wire::client::reading::{Fetch, Part, Reply, Request};
use forebay_wire::connection::CloseReason;
use forebay_wire::frame::Header;
use forebay_wire::handshake::{Prologue, Secret};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const SECRET: Secret = Secret([5; 32]);
const LINEAGE: Lineage = Lineage([6; 16]);
const DOOR: Prologue<'_> = Prologue { secret: &SECRET, lineage: &LINEAGE, name: "server7" };
/// How many bytes an arena of these tests has.
const ARENA: u64 = 1 << 16;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A deadline that passes, since nothing comes.
fn at_once() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

/// Runs `test` against a peer that does `peer`, both on one thread.
fn with_peer<P, T>(peer: impl FnOnce(Receiver, Arc<Outbox>) -> P + 'static, test: impl FnOnce(Requester) -> T)
where
    P: Future<Output = ()> + 'static,
    T: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (near, far) = inprocess::pair().unwrap();
    let set = tokio::task::LocalSet::new();
    set.block_on(&runtime, async {
        let peer = tokio::task::spawn_local(async {
            let (receiver, outbox) = asynchronous::accept(Box::new(far), &DOOR).await.unwrap();
            peer(receiver, outbox).await;
        });
        let requester = Requester::connect(Box::new(near) as Box<dyn Link>, &DOOR, soon()).await.unwrap();
        test(requester).await;
        peer.await.unwrap();
    });
}

/// The number of the next request, and what it asks.
async fn asked(receiver: &mut Receiver) -> (u64, Request) {
    let (frame, _) = receiver.next().await.unwrap().expect("a request");
    (frame.header.request, frame.message().unwrap())
}

/// The connection ends, since the requester was dropped.
async fn ends(receiver: &mut Receiver) {
    assert!(receiver.next().await.unwrap().is_none());
}

fn answer(outbox: &Outbox, request: u64, reply: Result<Reply, Error>, data: &[u8]) {
    let bytes = data.to_vec();
    let payload = (!data.is_empty()).then(|| Payload::Generated {
        bytes: bytes.len() as u64,
        generator: Box::new(move |out: &mut Vec<u8>| {
            out.extend_from_slice(&bytes);
            Ok(())
        }),
    });
    outbox.push_with(Header { request, ..Header::default() }, &reply, Vec::new(), payload).unwrap();
}

fn tell(outbox: &Outbox, missed: u64) {
    let end =
        Box::new(RunEnd { run: 1, summary: None, continued_by: None, missed, late: None, looked: false });
    outbox.push(Header::default(), &Event::Ended { attachment: AttachmentId(1), end }).unwrap();
}

fn fetch(bytes: u64) -> Request {
    let one = |n: u64| [n][..].into();
    let part = Part { offset: one(0), shape: one(bytes), step: one(1) };
    Request::Fetch(Fetch { arena: 0, offset: 0, bytes, generation: 1, stored: one(bytes), element: 1, part })
}

fn arena() -> Mapping {
    let file = rustix::fs::memfd_create("forebay-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, ARENA).unwrap();
    Mapping::new(file.as_fd(), ARENA, Access::Write).unwrap()
}

fn target(mapping: &Mapping, bytes: u64) -> Target<'_> {
    Target { mapping, offset: 8, bytes }
}

#[test]
fn requests_are_answered_and_events_are_told_in_between() {
    let peer = async |mut receiver: Receiver, outbox: Arc<Outbox>| {
        let (first, _) = asked(&mut receiver).await;
        tell(&outbox, 3);
        answer(&outbox, first, Ok(Reply::Done), b"");
        let (second, _) = asked(&mut receiver).await;
        answer(&outbox, second, Err(Error::not_found("no such arena")), b"");
        tell(&outbox, 4);
        ends(&mut receiver).await;
    };
    with_peer(peer, async |mut requester| {
        assert_eq!(requester.ask(&fetch(1), soon(), "an answer").await.unwrap(), Reply::Done);
        let error = requester.ask(&fetch(1), soon(), "an answer").await.unwrap_err();
        assert_eq!(
            error,
            Error::not_found("no such arena"),
            "what failed is an error, the connection goes on"
        );
        for told in [3, 4] {
            let Event::Ended { end, .. } = requester.next_event(soon(), "an event").await.unwrap() else {
                panic!("another event")
            };
            assert_eq!(end.missed, told);
        }
    });
}

#[test]
fn an_answer_that_comes_late_is_passed_over_with_its_data() {
    let peer = async |mut receiver: Receiver, outbox: Arc<Outbox>| {
        let (late, _) = asked(&mut receiver).await;
        let (next, _) = asked(&mut receiver).await;
        answer(&outbox, late, Ok(Reply::Data), &[9; 30_000]);
        answer(&outbox, next, Ok(Reply::Data), b"the bytes");
        ends(&mut receiver).await;
    };
    with_peer(peer, async |mut requester| {
        let mapping = arena();
        let error = requester.fetch(&fetch(30_000), target(&mapping, 30_000), at_once(), "a block").await;
        let error = error.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert!(error.text.contains("server7: a block did not come"), "{error}");
        let reply = requester.fetch(&fetch(9), target(&mapping, 9), soon(), "a block").await.unwrap();
        assert_eq!(reply, Reply::Data);
        let mut bytes = [0; 18];
        mapping.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, *b"\0\0\0\0\0\0\0\0the bytes\0");
    });
}

#[test]
fn after_other_data_than_was_asked_for_the_connection_is_of_no_use() {
    let peer = async |mut receiver: Receiver, outbox: Arc<Outbox>| {
        let (first, _) = asked(&mut receiver).await;
        answer(&outbox, first, Ok(Reply::Data), b"too short");
        ends(&mut receiver).await;
    };
    with_peer(peer, async |mut requester| {
        let mapping = arena();
        let first = requester.fetch(&fetch(10), target(&mapping, 10), soon(), "a block").await.unwrap_err();
        assert_eq!(first.kind, ErrorKind::Protocol);
        assert!(first.text.contains("9 bytes came from server7"), "{first}");
        assert_eq!(requester.ask(&fetch(1), soon(), "an answer").await.unwrap_err(), first);
    });
}

#[test]
fn a_peer_that_ends_within_data_is_named_and_so_is_one_that_ends_before() {
    let peer = async |mut receiver: Receiver, outbox: Arc<Outbox>| {
        let (first, _) = asked(&mut receiver).await;
        let payload = Payload::Generated { bytes: 100, generator: Box::new(|_| Ok(())) };
        let header = Header { request: first, ..Header::default() };
        outbox.push_with(header, &Ok::<_, Error>(Reply::Data), Vec::new(), Some(payload)).unwrap();
        outbox.close();
    };
    with_peer(peer, async |mut requester| {
        let mapping = arena();
        let error = requester.fetch(&fetch(100), target(&mapping, 100), soon(), "a block").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.text.starts_with("server7: "), "{error}");
        assert_eq!(requester.ask(&fetch(1), soon(), "an answer").await.unwrap_err(), error);
    });
    with_peer(
        async |_, outbox| outbox.close(),
        async |mut requester| {
            let error = requester.next_event::<Event>(soon(), "an event").await.unwrap_err();
            assert_eq!(error, Error::unreachable("server7 ended the connection"));
        },
    );
}

#[test]
fn last_words_say_why_it_ends() {
    let why = Error::timeout("you took nothing for a minute");
    let words = CloseReason(why.clone());
    with_peer(
        async move |mut receiver, outbox| {
            asked(&mut receiver).await;
            outbox.push(Header::default(), &words).unwrap();
        },
        async |mut requester| {
            assert_eq!(requester.ask(&fetch(1), soon(), "an answer").await.unwrap_err(), why);
        },
    );
}

#[test]
fn a_handshake_has_a_deadline_that_names_the_peer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (near, _silent) = inprocess::pair().unwrap();
    let connecting = async { Requester::connect(Box::new(near) as Box<dyn Link>, &DOOR, at_once()).await };
    let error = runtime.block_on(connecting).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(error.text.contains("server7: its handshake did not come"), "{error}");
}

#[test]
fn halves_outlive_the_requester() {
    with_peer(
        async |mut receiver, outbox| {
            asked(&mut receiver).await;
            tell(&outbox, 1);
            ends(&mut receiver).await;
        },
        async |requester| {
            let (mut receiver, outbox) = requester.into_halves();
            outbox.push(Header { request: 1, ..Header::default() }, &fetch(1)).unwrap();
            assert!(receiver.next().await.unwrap().is_some());
            outbox.close();
        },
    );
}
