//! One suite that every transport passes, through both drivers: the blocking client and the asynchronous
//! server, with real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use forebay_core::ErrorKind;
use forebay_core::ids::Lineage;
use forebay_store::{Access, Arena, Mapping};
use forebay_transport::asynchronous::{self, Payload};
use forebay_transport::blocking::Connection;
use forebay_transport::{Kind, Link, Listener, inprocess};
use forebay_wire::frame::Header;
use forebay_wire::handshake::{Initiator, Prologue, Secret};
use forebay_wire::protocol::{Message, Protocol};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::io::{IoSlice, IoSliceMut, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is said in these tests.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Text(Vec<u8>);

impl Message for Text {
    const PROTOCOL: Protocol = Protocol::Comm;
}

const SECRET: Secret = Secret([5; 32]);
const LINEAGE: Lineage = Lineage([6; 16]);
const DOOR: Prologue<'_> = Prologue { secret: &SECRET, lineage: &LINEAGE, name: "server0" };

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A fresh connected pair of links of one kind.
fn pair(kind: Kind) -> (Box<dyn Link>, Box<dyn Link>) {
    let listener = match kind {
        Kind::InProcess => {
            let (a, b) = inprocess::pair().unwrap();
            return (Box::new(a), Box::new(b));
        }
        Kind::Shm => {
            let name = format!("forebay-test-{}-{:?}", std::process::id(), std::thread::current().id());
            Listener::shm(&name).unwrap()
        }
        Kind::Tcp => Listener::tcp(&"127.0.0.1:0".parse().unwrap()).unwrap(),
    };
    let client: Box<dyn Link> = match listener.address() {
        forebay_transport::Address::Shm { name, .. } => {
            Box::new(forebay_transport::shm::ShmLink::connect(name).unwrap())
        }
        forebay_transport::Address::Tcp(address) => {
            Box::new(forebay_transport::tcp::TcpLink::connect(address, Duration::from_secs(5)).unwrap())
        }
    };
    let server = loop {
        match listener.try_accept() {
            Ok(link) => break link,
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
        }
    };
    (client, server)
}

/// Runs a server on one end, in a thread of its own.
fn serve<F, Fut>(
    link: Box<dyn Link>,
    secret: Secret,
    server: F,
) -> std::thread::JoinHandle<Result<(), forebay_core::Error>>
where
    F: FnOnce(asynchronous::Receiver, Arc<asynchronous::Outbox>) -> Fut + Send + 'static,
    Fut: std::future::Future<Output = Result<(), forebay_core::Error>>,
{
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (receiver, outbox) =
                asynchronous::accept(link, &Prologue { secret: &secret, ..DOOR }).await?;
            let result = server(receiver, outbox.clone()).await;
            outbox.close();
            tokio::task::yield_now().await;
            result
        })
    })
}

/// Echoes messages until the peer closes.
fn echo(link: Box<dyn Link>, secret: Secret) -> std::thread::JoinHandle<Result<(), forebay_core::Error>> {
    serve(link, secret, async |mut receiver, outbox| {
        while let Some((frame, descriptors)) = receiver.next().await? {
            assert_eq!(frame.header.payload, 0);
            outbox.push_with(frame.header, &frame.message::<Text>()?, descriptors, None)?;
        }
        Ok(())
    })
}

fn messages_echo(kind: Kind) {
    let (client, server) = pair(kind);
    let server = echo(server, SECRET);
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    assert_eq!(connection.kind(), kind);
    for (request, size) in [(1u64, 0usize), (2, 10), (3, 5_000_000), (4, 1)] {
        let message: Vec<u8> = (0..size).map(|i| (i * 31) as u8).collect();
        connection
            .sender
            .send(&Header { request, epoch: 9, ..Header::default() }, &Text(message.clone()), &[], soon())
            .unwrap();
        let received = connection.receiver.receive(soon(), "an echo").unwrap();
        assert_eq!((received.frame.header.request, received.frame.header.epoch), (request, 9));
        assert_eq!(received.frame.message::<Text>().unwrap().0, message);
    }
    drop(connection);
    server.join().unwrap().unwrap();
}

fn payloads_go_both_ways(kind: Kind, sealed: bool) {
    let (client, server) = pair(kind);
    let bytes: Vec<u8> = (0..7_000_003u32).map(|i| (i ^ (i >> 9)) as u8).collect();
    let length = bytes.len() as u64;
    let server = serve(server, SECRET, async move |mut receiver, outbox| {
        let mut arena = Arena::create(1 << 24).unwrap();
        let range = arena.reserve(length).unwrap();
        let mapping = arena.mapping().unwrap();
        while let Some((frame, _)) = receiver.next().await? {
            receiver.payload_into(&mapping, range.offset, &frame.header).await?;
            let guard = Box::new(());
            let payload =
                Payload::Mapped { mapping: mapping.clone(), offset: range.offset, bytes: length, guard };
            outbox.push_with(frame.header, &Text::default(), Vec::new(), Some(payload))?;
            let (copy, mut at) = (mapping.clone(), 0);
            let generator = Box::new(move |out: &mut Vec<u8>| {
                let n = (length - at).min(123_457);
                copy.with_readable(range.offset + at, n, |b| out.extend_from_slice(b))?;
                at += n;
                Ok(())
            });
            outbox.push_with(
                frame.header,
                &Text::default(),
                Vec::new(),
                Some(Payload::Generated { generator, bytes: length }),
            )?;
        }
        Ok(())
    });
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    for _ in 0..2 {
        let header = Header { payload: length, sealed_payload: sealed, ..Header::default() };
        connection.sender.send(&header, &Text::default(), &[], soon()).unwrap();
        connection.sender.send_payload(&bytes, sealed, soon()).unwrap();
        for _ in 0..2 {
            let received = connection.receiver.receive(soon(), "an echo").unwrap();
            assert_eq!(received.frame.header.sealed_payload, sealed);
            let mut back = vec![0; received.frame.header.payload as usize];
            connection.receiver.receive_payload(&mut back, sealed, soon()).unwrap();
            assert!(back == bytes);
        }
    }
    drop(connection);
    server.join().unwrap().unwrap();
}

fn a_wrong_secret_is_refused(kind: Kind) {
    let (client, server) = pair(kind);
    let server = echo(server, Secret([9; 32]));
    let error = Connection::from_link(client, "the server", &DOOR, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongSecret, "{error}");
    assert_eq!(server.join().unwrap().unwrap_err().kind, ErrorKind::WrongSecret);
}

fn a_dead_peer_is_named(kind: Kind) {
    let (client, server) = pair(kind);
    let server = serve(server, SECRET, async |mut receiver, _| {
        receiver.next().await?;
        Ok(())
    });
    let mut connection = Connection::from_link(client, "server3", &DOOR, soon()).unwrap();
    connection.sender.send(&Header::default(), &Text::default(), &[], soon()).unwrap();
    let error = connection.receiver.receive(soon(), "an answer").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.text.contains("server3"), "{error}");
    assert_eq!(
        connection.receiver.receive(soon(), "an answer").unwrap_err().kind,
        ErrorKind::Unreachable,
        "it stays so"
    );
    server.join().unwrap().unwrap();
}

fn a_silent_peer_meets_the_deadline(kind: Kind) {
    let (client, server) = pair(kind);
    let (done, wait) = tokio::sync::oneshot::channel::<()>();
    let server = serve(server, SECRET, async move |_receiver, _outbox| {
        let _ = wait.await;
        Ok(())
    });
    let mut connection = Connection::from_link(client, "server3", &DOOR, soon()).unwrap();
    let error = connection
        .receiver
        .receive(Instant::now() + Duration::from_millis(50), "the cut of step 4")
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(error.text.contains("server3") && error.text.contains("the cut of step 4"), "{error}");
    assert!(
        connection.receiver.try_receive("anything").unwrap().is_none(),
        "a time-out does not break the connection"
    );
    // It does not read either: sending is not waited for without end.
    let big = Text(vec![0u8; 15 << 20]);
    let error = (0..64)
        .find_map(|_| {
            connection
                .sender
                .send(&Header::default(), &big, &[], Instant::now() + Duration::from_millis(50))
                .err()
        })
        .unwrap();
    assert_eq!(error.kind, ErrorKind::Timeout);
    done.send(()).unwrap();
    server.join().unwrap().unwrap();
}

/// A link on which sending can be stopped, and that is sealed where its kind is.
#[derive(Debug)]
struct Stoppable {
    link: Box<dyn Link>,
    stopped: Arc<AtomicBool>,
}

impl Link for Stoppable {
    fn kind(&self) -> Kind {
        self.link.kind()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    fn try_send(&self, bytes: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<usize> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        self.link.try_send(bytes, descriptors)
    }

    fn try_receive(
        &self,
        bytes: &mut [IoSliceMut<'_>],
        descriptors: &mut Vec<OwnedFd>,
    ) -> std::io::Result<usize> {
        self.link.try_receive(bytes, descriptors)
    }
}

/// A message of which no byte was taken is as if it had never been sent; those that were queued before stay.
fn what_could_not_be_sent_is_not_missed(kind: Kind) {
    let (client, server) = pair(kind);
    let server = echo(server, SECRET);
    let stopped = Arc::new(AtomicBool::new(false));
    let client = Box::new(Stoppable { link: client, stopped: stopped.clone() });
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    let header = |request| Header { request, ..Header::default() };
    connection.sender.queue(&header(1), &Text(vec![1u8; 5]), soon()).unwrap();
    stopped.store(true, Ordering::Relaxed);
    let error =
        connection.sender.send(&header(2), &Text(vec![2u8; 200_000]), &[], Instant::now()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    // More than may be queued: it is to be sent at once.
    let error = connection.sender.queue(&header(3), &Text(vec![3u8; 100_000]), Instant::now()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    stopped.store(false, Ordering::Relaxed);
    connection.sender.send(&header(4), &Text(vec![4u8; 7]), &[], soon()).unwrap();
    for (request, message) in [(1, vec![1u8; 5]), (4, vec![4u8; 7])] {
        let frame = connection.receiver.receive(soon(), "an echo").unwrap().frame;
        assert_eq!((frame.header.request, frame.message::<Text>().unwrap().0), (request, message));
    }
    drop(connection);
    server.join().unwrap().unwrap();
}

fn a_slow_reader_is_cut_off_in_bounds(kind: Kind) {
    let (client, server) = pair(kind);
    let server = serve(server, SECRET, async |mut receiver, outbox| {
        receiver.next().await?;
        let big = Text(vec![0u8; 8 << 20]);
        let refused = (0..64).find_map(|_| outbox.push(Header::default(), &big).err());
        assert_eq!(refused.unwrap().kind, ErrorKind::Unreachable);
        assert!(outbox.is_closed());
        Ok(())
    });
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    connection.sender.send(&Header::default(), &Text::default(), &[], soon()).unwrap();
    server.join().unwrap().unwrap();
}

/// Everything that an honest client said, up to what it sealed, said again to the same server by somebody without
/// the secret: nothing of it is served.
fn what_was_heard_opens_nothing(kind: Kind) {
    let heard = {
        let (client, server) = pair(kind);
        let (initiator, opening) = Initiator::start(&DOOR, &kind.to_string()).unwrap();
        let server = echo(server, SECRET);
        say(&*client, &opening);
        let (_, confirmation) = initiator.finish(&hear_answer(&*client)).unwrap();
        say(&*client, &confirmation);
        drop(client);
        server.join().unwrap().expect("the honest one is let in");
        [opening, confirmation]
    };
    let mut frame = Vec::new();
    forebay_wire::frame::encode(&Header::default(), &Text(vec![1u8]), None, &mut frame).unwrap();
    for said in [&frame[..], &heard[1]] {
        let (client, server) = pair(kind);
        let server = echo(server, SECRET);
        say(&*client, &heard[0]);
        hear_answer(&*client);
        say(&*client, said);
        drop(client);
        let error = server.join().unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::WrongSecret, "{error}");
    }
}

fn say(link: &dyn Link, bytes: &[u8]) {
    assert_eq!(link.try_send(&[IoSlice::new(bytes)], &[]).unwrap(), bytes.len());
}

fn hear_answer(link: &dyn Link) -> Vec<u8> {
    let (mut heard, deadline) = (Vec::new(), soon());
    while Initiator::answer_length(&heard).unwrap() != Some(heard.len()) {
        assert!(Instant::now() < deadline, "the server does not answer");
        let mut byte = [0];
        match link.try_receive(&mut [IoSliceMut::new(&mut byte)], &mut Vec::new()) {
            Ok(0) => panic!("the server closed the connection"),
            Ok(_) => heard.push(byte[0]),
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    heard
}

/// Whoever answers in the place of one server passes what it hears on to another one: that one refuses it.
fn what_is_meant_for_another_is_refused(kind: Kind) {
    let (client, server) = pair(kind);
    let server = echo(server, SECRET);
    let other = Prologue { name: "server1", ..DOOR };
    let error = Connection::from_link(client, "server1", &other, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongSecret, "{error}");
    assert_eq!(server.join().unwrap().unwrap_err().kind, ErrorKind::WrongSecret);
}

/// Who keeps what is to be said until there is room never reaches the bound at which a peer is cut off.
fn a_peer_that_stands_still_is_waited_for(kind: Kind) {
    let (client, server) = pair(kind);
    let (full, is_full) = std::sync::mpsc::sync_channel(1);
    let server = serve(server, SECRET, async move |mut receiver, outbox| {
        let big = Text(vec![7u8; 12 << 20]);
        // More than may be queued, in all.
        for _ in 0..8 {
            let room = outbox.has_room();
            tokio::pin!(room);
            if tokio::time::timeout(Duration::ZERO, room.as_mut()).await.is_err() {
                let _ = full.try_send(());
                room.await;
            }
            outbox.push(Header::default(), &big)?;
        }
        receiver.next().await.map(drop)
    });
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    // It reads nothing before.
    is_full.recv_timeout(Duration::from_secs(20)).expect("there is room without end");
    for _ in 0..8 {
        let received = connection.receiver.receive(soon(), "a message").unwrap();
        assert_eq!(received.frame.message::<Text>().unwrap().0.len(), 12 << 20);
    }
    drop(connection);
    server.join().unwrap().unwrap();
}

/// A client that stops at any byte of its first messages leaves a server that is done with it, no more.
fn streams_cut_anywhere_end_cleanly(kind: Kind) {
    let (_, whole) = Initiator::start(&DOOR, &kind.to_string()).unwrap();
    for cut in (0..whole.len()).step_by(7) {
        let (client, server) = pair(kind);
        let server = echo(server, SECRET);
        if cut > 0 {
            client.try_send(&[IoSlice::new(&whole[..cut])], &[]).unwrap();
        }
        drop(client);
        assert!(server.join().unwrap().is_err());
    }
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 300], b"FOREBAY\n\x01\x00\xff\xff"] {
        let (client, server) = pair(kind);
        let server = echo(server, SECRET);
        client.try_send(&[IoSlice::new(garbage)], &[]).unwrap();
        drop(client);
        assert!(server.join().unwrap().is_err());
    }
}

macro_rules! suite {
    ($($module:ident => $kind:expr),*) => {$(
        mod $module {
            use super::*;
            #[test] fn messages_echo() { super::messages_echo($kind); }
            #[test] fn payloads_go_both_ways() { super::payloads_go_both_ways($kind, false); }
            #[test] fn a_wrong_secret_is_refused() { super::a_wrong_secret_is_refused($kind); }
            #[test] fn a_dead_peer_is_named() { super::a_dead_peer_is_named($kind); }
            #[test] fn a_silent_peer_meets_the_deadline() { super::a_silent_peer_meets_the_deadline($kind); }
            #[test] fn what_could_not_be_sent_is_not_missed() { super::what_could_not_be_sent_is_not_missed($kind); }
            #[test] fn a_slow_reader_is_cut_off_in_bounds() { super::a_slow_reader_is_cut_off_in_bounds($kind); }
            #[test] fn what_was_heard_opens_nothing() { super::what_was_heard_opens_nothing($kind); }
            #[test] fn what_is_meant_for_another_is_refused() { super::what_is_meant_for_another_is_refused($kind); }
            #[test] fn a_peer_that_stands_still_is_waited_for() { super::a_peer_that_stands_still_is_waited_for($kind); }
            #[test] fn streams_cut_anywhere_end_cleanly() { super::streams_cut_anywhere_end_cleanly($kind); }
        }
    )*};
}

suite!(shm => Kind::Shm, tcp => Kind::Tcp, in_process => Kind::InProcess);

#[test]
fn tcp_payloads_can_be_sealed() {
    payloads_go_both_ways(Kind::Tcp, true);
}

#[test]
fn shm_carries_arenas() {
    let (client, server) = pair(Kind::Shm);
    let server = echo(server, SECRET);
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    let mut file =
        std::fs::File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(b"shared").unwrap();
    connection.sender.send(&Header::default(), &Text(vec![1u8]), &[file.as_fd()], soon()).unwrap();
    let received = connection.receiver.receive(soon(), "an echo").unwrap();
    let mapping = Mapping::new(received.descriptors[0].as_fd(), 6, Access::Read).unwrap();
    let mut bytes = [0; 6];
    mapping.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"shared");
    drop(connection);
    server.join().unwrap().unwrap();
}
