//! A member that writes nonsense into memory that it shares: whoever talks with it is told, and nobody else is disturbed.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{LINEAGE, Over, SECRET, group, on_all};
use forebay_comm::Comm;
use forebay_core::{Error, ErrorKind};
use forebay_store::{Access, Mapping};
use forebay_transport::asynchronous::{self, Outbox, Receiver};
use forebay_transport::shm::ShmLink;
use forebay_wire::comm::CommMessage;
use forebay_wire::frame::Header;
use forebay_wire::handshake::Prologue;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use std::sync::Arc;
use std::time::Duration;

/// The memory that two processes share, as the design has it: for each direction counts, words of loans, and a ring.
const RING: u64 = 64 << 10;
const DATA: u64 = 4096;
const DIRECTION: u64 = DATA + RING;
const TAKEN: u64 = 64;
const PAGE: u64 = 4096;

fn file(bytes: u64, sealed: bool) -> OwnedFd {
    let file =
        rustix::fs::memfd_create("defective", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    if sealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    }
    file
}

/// Rank 1: it is connected with rank 0, and shares this memory with it.
struct Defective {
    memory: Mapping,
    receiver: Receiver,
    _outbox: Arc<Outbox>,
    runtime: tokio::runtime::Runtime,
}

impl Defective {
    fn meet(address: &str, own: &str, memory: OwnedFd, descriptors: usize) -> Defective {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let name = address.rsplit_once('/').unwrap().1;
        let (receiver, outbox) = runtime.block_on(async {
            let link = ShmLink::connect(name).unwrap();
            let prologue = Prologue { secret: &SECRET, lineage: &LINEAGE, name: address };
            asynchronous::connect(Box::new(link), &prologue).await.unwrap()
        });
        let hello = CommMessage::Hello { addresses: vec![own.to_owned()], name: "defective".into() };
        outbox.push(Header::default(), &hello).unwrap();
        let size = rustix::fs::fstat(&memory).unwrap().st_size as u64;
        let mapping = Mapping::new(memory.as_fd(), size, Access::Write).unwrap();
        let share = CommMessage::Share { probe: 16, number: 5 };
        let passed = [memory, file(PAGE, true)].into_iter().take(descriptors).collect();
        outbox.push_with(Header::default(), &share, passed, None).unwrap();
        Defective { memory: mapping, receiver, _outbox: outbox, runtime }
    }

    /// The next message of the other side that is no hello.
    fn heard(&mut self) -> Option<CommMessage> {
        loop {
            let next = async { tokio::time::timeout(Duration::from_secs(20), self.receiver.next()).await };
            let next = self.runtime.block_on(next).unwrap().ok().flatten()?;
            match next.0.message().unwrap() {
                CommMessage::Hello { .. } | CommMessage::Wait { .. } => {}
                other => return Some(other),
            }
        }
    }

    /// Writes a record: its head, in which these bytes are set, and says that so many bytes were written.
    fn write(&self, head: &[(usize, &[u8])], written: u64) {
        let mut record = [0; 64];
        for (at, bytes) in head {
            record[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.memory.write(DATA, &record).unwrap();
        self.memory.atomic(0).unwrap().store(written, std::sync::atomic::Ordering::Release);
    }
}

/// Rank 0 is this test's own, rank 1 defective, rank 2 sound; what rank 0 is told when it receives from rank 1.
fn told(act: impl FnOnce(&mut Defective, &Comm)) -> Error {
    let (endpoints, members) = group(2, Over::Shm);
    let own = format!("{}-defective", members[0][0]);
    let all = vec![members[0].clone(), vec![own.clone()], members[1].clone()];
    let comm = endpoints[0].comm(1, 0, all.clone()).unwrap();
    let sound = endpoints[1].comm(1, 2, all).unwrap();
    comm.set_timeout(Duration::from_secs(20));
    let mut defective = Defective::meet(&members[0][0], &own, file(2 * DIRECTION, true), 2);
    assert!(matches!(defective.heard(), Some(CommMessage::Shared { reads: false, .. })));
    act(&mut defective, &comm);
    let error = comm.recv(1, 0).unwrap_err();
    // The others go on, in this comm and the next.
    sound.send(0, 5, b"sound").unwrap();
    assert_eq!(comm.recv(2, 5).unwrap(), b"sound");
    let next: Vec<Comm> = (0..)
        .zip(&endpoints)
        .map(|(rank, endpoint)| endpoint.comm(2, rank, members.clone()).unwrap())
        .collect();
    on_all(&next, |comm| comm.barrier().unwrap());
    error
}

#[test]
fn nonsense_in_shared_memory_ends_the_connection_alone() {
    let four = |value: u32| value.to_le_bytes();
    let far = 7u64.to_le_bytes();
    // (what the head says, how much is said to be written)
    type Nonsense<'a> = (&'a str, Vec<(usize, Vec<u8>)>, u64);
    let cases: [Nonsense<'_>; 8] = [
        ("a count that is no multiple of a line", vec![], 65),
        ("a count beyond the ring", vec![], RING + 64),
        ("a count that goes back", vec![], u64::MAX - 63),
        ("a record of no kind", vec![(0, vec![99])], 64),
        ("a record that is longer than what was written", vec![(4, four(100).into()), (48, vec![100])], 64),
        ("a record that is too long", vec![(4, four(u32::MAX).into())], 128),
        ("a length that contradicts the message's", vec![(4, four(5).into()), (48, vec![6])], 64),
        (
            "a loan that there is not",
            vec![(0, vec![4]), (4, four(8).into()), (8, four(99).into()), (48, far.into())],
            64,
        ),
    ];
    for (what, head, written) in cases {
        let error = told(|defective, _| {
            let head: Vec<(usize, &[u8])> = head.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
            defective.write(&head, written);
        });
        assert_eq!(error.kind, ErrorKind::Unreachable, "{what}: {error}");
        assert!(error.text.contains("rank 1 ('defective') is gone"), "{what}: {error}");
    }
}

#[test]
fn a_count_of_what_was_taken_that_makes_no_sense_fails_the_send() {
    let error = told(|defective, comm| {
        defective.memory.atomic(DIRECTION + TAKEN).unwrap().store(1, std::sync::atomic::Ordering::Release);
        let error = (0..100).find_map(|_| comm.send(1, 0, &[0; 4000]).err()).unwrap();
        assert!(error.text.contains("make no sense"), "{error}");
    });
    assert!(error.text.contains("rank 1 ('defective') is gone"), "{error}");
}

/// A message that is lent by one whose memory cannot be read: it never could have been.
#[test]
fn a_loan_that_cannot_be_read_is_no_message() {
    let error = told(|defective, _| {
        let (kind, bytes, length) = ([4], 8u32.to_le_bytes(), 100_000u64.to_le_bytes());
        let comm = 1u64.to_le_bytes();
        let source = 1u32.to_le_bytes();
        defective.write(&[(0, &kind), (4, &bytes), (16, &source), (24, &comm), (48, &length)], 64);
    });
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
}

#[test]
fn memory_that_can_be_cut_off_is_not_shared() {
    for (size, sealed) in [(2 * DIRECTION, false), (PAGE, true), (4 * DIRECTION, true)] {
        let (endpoints, members) = group(1, Over::Shm);
        let own = format!("{}-defective", members[0][0]);
        let comm = endpoints[0].comm(1, 0, vec![members[0].clone(), vec![own.clone()]]).unwrap();
        comm.set_timeout(Duration::from_secs(20));
        let mut defective = Defective::meet(&members[0][0], &own, file(size, sealed), 2);
        assert_eq!(defective.heard(), Some(CommMessage::Apart), "{size} {sealed}");
        // Messages go through the socket.
        comm.send(1, 3, b"by socket").unwrap();
        assert!(matches!(defective.heard(), Some(CommMessage::Data { bytes: 9, .. })));
    }
}

#[test]
fn memory_without_a_descriptor_is_not_shared() {
    let (endpoints, members) = group(1, Over::Shm);
    let own = format!("{}-defective", members[0][0]);
    let mut defective = Defective::meet(&members[0][0], &own, file(2 * DIRECTION, true), 1);
    assert_eq!(defective.heard(), Some(CommMessage::Apart));
    drop(endpoints);
}
