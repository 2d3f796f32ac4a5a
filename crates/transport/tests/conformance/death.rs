//! Peers that die: between messages, amid one, and as a process.

use crate::ends::{DOOR, SECRET, Text, accept, dial, listen, pair, serve, soon};
use forebay_core::{Error, ErrorKind};
use forebay_transport::blocking::Connection;
use forebay_transport::{Address, Kind, Link};
use forebay_wire::frame::{BODY_MAX, Header, encode};
use std::io::{ErrorKind as IoErrorKind, IoSlice, IoSliceMut};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

pub(crate) fn a_dead_peer_is_named(kind: Kind) {
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

/// What a peer had begun to say is not taken for a message, however far it came.
pub(crate) fn a_peer_that_dies_amid_a_message_has_not_said_it(kind: Kind) {
    let mut whole = Vec::new();
    encode(&Header::default(), &Text(vec![3; 300]), None, &mut whole).unwrap();
    for length in [1, 35, 36, 37, whole.len() - 1] {
        let (client, server) = pair(kind);
        let (told, heard) = sync_channel(1);
        let server = serve(server, SECRET, async move |mut receiver, _| {
            let first = receiver.next().await?.is_some();
            told.send((first, matches!(receiver.next().await, Ok(Some(_))))).unwrap();
            Ok(())
        });
        let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
        connection.sender.send(&Header::default(), &Text::default(), &[], soon()).unwrap();
        connection.sender.send_payload(&whole[..length], kind == Kind::Tcp, soon()).unwrap();
        drop(connection);
        assert_eq!(heard.recv().unwrap(), (true, false), "{length} bytes");
        server.join().unwrap().unwrap();
    }
}

/// Nobody reserves memory for what a frame claims: a body beyond the limit ends the connection.
pub(crate) fn a_frame_that_claims_too_much_is_refused(kind: Kind) {
    let (client, server) = pair(kind);
    let server = serve(server, SECRET, async |mut receiver, _| receiver.next().await.map(drop));
    let mut connection = Connection::from_link(client, "the server", &DOOR, soon()).unwrap();
    let mut head = Vec::new();
    encode(&Header::default(), &Text::default(), None, &mut head).unwrap();
    head[..4].copy_from_slice(&(BODY_MAX as u32 + 1).to_le_bytes());
    connection.sender.send_payload(&head, kind == Kind::Tcp, soon()).unwrap();
    let error = server.join().unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    assert_eq!(connection.receiver.receive(soon(), "an answer").unwrap_err().kind, ErrorKind::Unreachable);
}

/// The process at the other end is killed: all that it had said arrives, and then the end.
pub(crate) fn a_process_that_is_killed_is_gone(kind: Kind) {
    let listener = listen(kind);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_of_its_own", "--ignored"])
        .env(PEER, listener.address().to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let link = accept(&listener);
    assert!(link.peer_process().is_none_or(|process| process == child.id()));
    assert_eq!(receive_some(&*link), LAST_WORDS);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(receive_some(&*link), b"");
    let error = loop {
        match link.try_send(&[IoSlice::new(&[1; 1000])], &[]) {
            Ok(_) => {}
            Err(error) if error.kind() == IoErrorKind::WouldBlock => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), IoErrorKind::BrokenPipe | IoErrorKind::ConnectionReset), "{error}");
}

/// Where a process that a test starts connects to.
const PEER: &str = "FOREBAY_TEST_PEER";
const LAST_WORDS: &[u8] = b"these are my last words";

/// Says something and stands still until it is killed.
pub(crate) fn stand_still_in_a_process_of_its_own() {
    let address: Address = std::env::var(PEER).unwrap().parse().map_err(|error: Error| error.text).unwrap();
    let link = dial(&address);
    assert_eq!(link.try_send(&[IoSlice::new(LAST_WORDS)], &[]).unwrap(), LAST_WORDS.len());
    loop {
        std::thread::park();
    }
}

/// Some bytes; none mean that the peer is gone.
fn receive_some(link: &dyn Link) -> Vec<u8> {
    let (deadline, mut space) = (soon(), vec![0; 100]);
    loop {
        match link.try_receive(&mut [IoSliceMut::new(&mut space)], &mut Vec::new()) {
            Ok(length) => return space[..length].to_vec(),
            // What was not read at the other end may end a connection so.
            Err(error) if error.kind() == IoErrorKind::ConnectionReset => return Vec::new(),
            Err(error) => assert_eq!(error.kind(), IoErrorKind::WouldBlock),
        }
        assert!(Instant::now() < deadline, "nothing comes");
    }
}
