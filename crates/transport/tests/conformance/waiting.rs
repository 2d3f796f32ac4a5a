//! Peers that do not read or do not answer: they are waited for, in bounds of time and memory.

use crate::ends::{DOOR, SECRET, Text, echo, pair, serve, soon};
use forebay_core::ErrorKind;
use forebay_transport::blocking::Connection;
use forebay_transport::{Kind, Link};
use forebay_wire::frame::Header;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn a_silent_peer_meets_the_deadline(kind: Kind) {
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

pub(crate) fn a_slow_reader_is_cut_off_in_bounds(kind: Kind) {
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

/// Who keeps what is to be said until there is room never reaches the bound at which a peer is cut off.
pub(crate) fn a_peer_that_stands_still_is_waited_for(kind: Kind) {
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
pub(crate) fn what_could_not_be_sent_is_not_missed(kind: Kind) {
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
