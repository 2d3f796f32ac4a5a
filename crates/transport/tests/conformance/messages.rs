//! Messages and payloads, both ways.

use crate::ends::{DOOR, SECRET, Text, echo, pair, serve, soon};
use forebay_core::ErrorKind;
use forebay_store::{Access, Arena, Mapping};
use forebay_transport::Kind;
use forebay_transport::asynchronous::Payload;
use forebay_transport::blocking::Connection;
use forebay_wire::frame::{BODY_MAX, Header};
use rustix::fd::AsFd;
use std::io::Write;

pub(crate) fn messages_echo(kind: Kind) {
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

/// Those that are queued and those that are sent, of any size.
pub(crate) fn messages_keep_their_order(kind: Kind) {
    let (client, server) = pair(kind);
    let server = echo(server, SECRET);
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    for round in 0..10 {
        let requests = 100 * round + 1..=100 * round + 100;
        for request in requests.clone() {
            let message = Text(vec![request as u8; (request as usize * 37) % 900]);
            let header = Header { request, ..Header::default() };
            match request % 5 {
                0 => connection.sender.send(&header, &message, &[], soon()).unwrap(),
                _ => connection.sender.queue(&header, &message, soon()).unwrap(),
            }
        }
        connection.sender.flush(soon()).unwrap();
        for request in requests {
            let frame = connection.receiver.receive(soon(), "an echo").unwrap().frame;
            assert_eq!(frame.header.request, request);
            let expected = vec![request as u8; (request as usize * 37) % 900];
            assert_eq!(frame.message::<Text>().unwrap().0, expected);
        }
    }
    drop(connection);
    server.join().unwrap().unwrap();
}

/// A message beyond the limit is refused where it is sent, and the next one goes through.
pub(crate) fn a_message_that_is_too_long_is_not_sent(kind: Kind) {
    let (client, server) = pair(kind);
    let server = echo(server, SECRET);
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    let header = |request| Header { request, ..Header::default() };
    connection.sender.queue(&header(1), &Text(vec![1]), soon()).unwrap();
    let long = Text(vec![2; BODY_MAX]);
    let error = connection.sender.send(&header(2), &long, &[], soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    connection.sender.send(&header(3), &Text(vec![3]), &[], soon()).unwrap();
    for request in [1, 3] {
        let frame = connection.receiver.receive(soon(), "an echo").unwrap().frame;
        assert_eq!(
            (frame.header.request, frame.message::<Text>().unwrap().0),
            (request, vec![request as u8])
        );
    }
    drop(connection);
    server.join().unwrap().unwrap();
}

pub(crate) fn payloads_go_both_ways(kind: Kind, sealed: bool) {
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

#[test]
fn tcp_payloads_can_be_sealed() {
    payloads_go_both_ways(Kind::Tcp, true);
}
