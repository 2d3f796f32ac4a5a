//! Who is let in: nobody without the secret, nor with what was heard or is meant for another server.

use crate::ends::{DOOR, SECRET, Text, echo, pair, soon};
use forebay_core::ErrorKind;
use forebay_transport::blocking::Connection;
use forebay_transport::{Kind, Link};
use forebay_wire::frame::Header;
use forebay_wire::handshake::{Initiator, Prologue, Secret};
use std::io::{IoSlice, IoSliceMut};
use std::time::Instant;

pub(crate) fn a_wrong_secret_is_refused(kind: Kind) {
    let (client, server) = pair(kind);
    let server = echo(server, Secret([9; 32]));
    let error = Connection::from_link(client, "the server", &DOOR, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongSecret, "{error}");
    assert_eq!(server.join().unwrap().unwrap_err().kind, ErrorKind::WrongSecret);
}

/// Everything that an honest client said, up to what it sealed, said again to the same server by somebody without
/// the secret: nothing of it is served.
pub(crate) fn what_was_heard_opens_nothing(kind: Kind) {
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

/// Whoever answers in the place of one server passes what it hears on to another one: that one refuses it.
pub(crate) fn what_is_meant_for_another_is_refused(kind: Kind) {
    let (client, server) = pair(kind);
    let server = echo(server, SECRET);
    let other = Prologue { name: "server1", ..DOOR };
    let error = Connection::from_link(client, "server1", &other, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongSecret, "{error}");
    assert_eq!(server.join().unwrap().unwrap_err().kind, ErrorKind::WrongSecret);
}

/// A client that stops at any byte of its first messages leaves a server that is done with it, no more.
pub(crate) fn streams_cut_anywhere_end_cleanly(kind: Kind) {
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
