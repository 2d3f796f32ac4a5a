//! What happens at the same time: the first contact, threads that split, ranks that leave while others go on, and failures of some.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Over, comms, group};
use forebay_comm::{Comm, Datatype, Memory, Operation, Reduction, Request, UNREAD_MAX};
use forebay_core::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn open(size: usize, over: Over) -> (Vec<forebay_comm::Endpoint>, Vec<Arc<Comm>>) {
    let (endpoints, members) = group(size, over);
    let all = comms(&endpoints, &members, 1).into_iter().map(Arc::new).collect();
    (endpoints, all)
}

/// Runs something else on each rank.
fn on_each<T: Send>(all: &[Arc<Comm>], work: impl Fn(&Arc<Comm>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|comm| scope.spawn(|| work(comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[allow(unsafe_code)]
fn memory(bytes: &mut [u8]) -> Memory {
    // SAFETY: tests wait for their requests, or drop them, before their vectors.
    unsafe { Memory::new(bytes.as_mut_ptr(), bytes.len()) }
}

fn sum() -> Reduction {
    Reduction::new(Datatype::Int64, Operation::Sum).unwrap()
}

fn summed(comm: &Comm, number: i64) -> Result<i64, forebay_core::Error> {
    let mut into = number.to_ne_bytes();
    comm.allreduce(None, &mut into, &sum()).map(|()| i64::from_ne_bytes(into))
}

#[test]
fn messages_of_the_first_contact_keep_their_order() {
    const COUNT: u32 = 2000;
    for round in 0..10 {
        let over = if round % 2 == 0 { Over::Shm } else { Over::Tcp };
        let (_endpoints, all) = open(2, over);
        on_each(&all, |comm| {
            if comm.rank() == 1 {
                for number in 0..COUNT {
                    assert_eq!(comm.recv(0, 7).unwrap(), number.to_le_bytes(), "{over:?}");
                }
                return;
            }
            let mut given: Vec<[u8; 4]> = (0..COUNT).map(u32::to_le_bytes).collect();
            let sends: Vec<Request> =
                given.iter_mut().map(|bytes| comm.isend(1, 7, memory(bytes)).unwrap()).collect();
            sends.iter().for_each(|send| drop(send.wait(comm).unwrap()));
        });
    }
}

#[test]
fn one_that_is_given_up_before_there_is_a_connection_holds_nobody_up() {
    for over in [Over::Shm, Over::Tcp] {
        let (_endpoints, all) = open(2, over);
        on_each(&all, |comm| {
            if comm.rank() == 0 {
                let (mut first, mut second) = ([1], [2]);
                let request = comm.isend(1, 0, memory(&mut first)).unwrap();
                drop(request);
                comm.isend(1, 1, memory(&mut second)).unwrap().wait(comm).unwrap();
            } else {
                assert_eq!(comm.recv(0, 1).unwrap(), [2]);
            }
        });
    }
}

#[test]
fn one_that_has_left_does_not_end_the_wait_for_others() {
    for over in [Over::Shm, Over::Tcp] {
        let (_endpoints, all) = open(3, over);
        let mut all = all.into_iter();
        let [zero, one, two] = std::array::from_fn(|_| all.next().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (status, bytes) = zero.recv_any(None, None).unwrap();
                assert_eq!((status.source, bytes), (1, vec![1]));
                zero.send(2, 9, &[]).unwrap();
                let (status, bytes) = zero.recv_any(None, None).unwrap();
                assert_eq!((status.source, bytes), (2, vec![2]));
                // Nobody is left.
                let told = zero.recv_any(None, None).unwrap_err();
                assert_eq!(told.kind, ErrorKind::Unreachable);
                assert!(told.text.contains("has closed this communicator"), "{}", told.text);
            });
            scope.spawn(move || {
                one.send(0, 1, &[1]).unwrap();
                drop(one);
                two.recv(0, 9).unwrap();
                two.send(0, 2, &[2]).unwrap();
            });
        });
    }
}

#[test]
fn requests_get_on_while_one_only_looks_for_a_message() {
    for over in [Over::Shm, Over::Tcp] {
        let (_endpoints, all) = open(2, over);
        on_each(&all, |comm| {
            let mut numbers = vec![1u8; 800_000];
            if comm.rank() == 1 {
                comm.allreduce(None, &mut numbers, &sum()).unwrap();
                comm.send(0, 5, &[]).unwrap();
                return;
            }
            let request = comm.iallreduce(None, memory(&mut numbers), &sum()).unwrap();
            let until = Instant::now() + Duration::from_secs(15);
            while comm.iprobe(Some(1), Some(5)).unwrap().is_none() {
                assert!(Instant::now() < until, "nothing gets on");
            }
            request.wait(comm).unwrap();
            assert!(numbers.iter().all(|number| *number == 2));
        });
    }
}

#[test]
fn a_collective_that_one_has_given_up_fails_on_those_who_come_late() {
    for over in [Over::Shm, Over::Tcp] {
        let (_endpoints, all) = open(2, over);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| {
                // The other one says so once it has given up.
                all[1].recv(0, 0).unwrap();
                // What it had sent before may still be there, but nothing that it does later is taken for a part of this.
                (summed(&all[1], 2), summed(&all[1], 200).unwrap_err())
            });
            all[0].set_timeout(Duration::from_millis(50));
            assert_eq!(summed(&all[0], 1).unwrap_err().kind, ErrorKind::Timeout);
            all[0].send(1, 0, &[]).unwrap();
            let again = summed(&all[0], 100).unwrap_err();
            let (first, second) = late.join().unwrap();
            assert!(first.is_err() || first == Ok(3), "{first:?}");
            for told in [again, second].into_iter().chain(first.err()) {
                assert!(told.text.contains("rank 0 waited 50ms"), "{}", told.text);
            }
        });
    }
}

#[test]
fn a_failure_in_a_part_leaves_the_whole_and_other_parts_alone() {
    let (_endpoints, all) = open(3, Over::Shm);
    on_each(&all, |comm| {
        let rank = comm.rank();
        let left = comm.split((rank < 2).then_some(0), 0).unwrap();
        let right = comm.split((rank > 0).then_some(0), 0).unwrap();
        if let Some(left) = left {
            // With another size on each rank.
            let mut into = vec![0; 8 * (1 + rank as usize)];
            let told = left.allreduce(None, &mut into, &sum()).unwrap_err();
            assert!(told.kind != ErrorKind::Timeout, "{}", told.text);
            assert!(summed(&left, 1).is_err());
        }
        if let Some(right) = right {
            assert_eq!(summed(&right, i64::from(rank)).unwrap(), 3);
        }
        assert_eq!(summed(comm, 1).unwrap(), 3);
        assert_eq!(summed(&comm.dup().unwrap(), 2).unwrap(), 6);
    });
}

#[test]
fn threads_that_split_at_once_get_parts_of_their_own() {
    let (_endpoints, all) = open(3, Over::Shm);
    let rounds = AtomicU32::new(0);
    on_each(&all, |comm| {
        let two = [comm.dup().unwrap(), comm.dup().unwrap()];
        std::thread::scope(|scope| {
            for (number, comm) in two.iter().enumerate() {
                let rounds = &rounds;
                scope.spawn(move || {
                    for round in 0..60 {
                        let copy = comm.dup().unwrap();
                        let own = [number as u8, round];
                        copy.send((copy.rank() + 1) % 3, 0, &own).unwrap();
                        assert_eq!(copy.recv((copy.rank() + 2) % 3, 0).unwrap(), own);
                        assert_eq!(summed(&copy, own[0].into()).unwrap(), 3 * i64::from(own[0]));
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
    });
    assert_eq!(rounds.into_inner(), 360);
}

#[test]
fn what_is_sent_to_oneself_waits_for_room_in_its_order() {
    let (_endpoints, all) = open(1, Over::Shm);
    let comm = &all[0];
    let mut long = vec![3; UNREAD_MAX as usize / 2 + 1000];
    let (mut also, mut short) = (long.clone(), [4]);
    let sends = [memory(&mut long), memory(&mut also), memory(&mut short)]
        .map(|bytes| comm.isend(0, 0, bytes).unwrap());
    assert!(sends[0].test().unwrap().is_some());
    assert!(sends[1].test().unwrap().is_none());
    // One that would wait for its own thread does not.
    assert_eq!(comm.send(0, 0, &[5]).unwrap_err().kind, ErrorKind::Full);
    for bytes in [long.len(), long.len(), 1] {
        assert_eq!(comm.recv(0, 0).unwrap().len(), bytes);
    }
    sends[1..].iter().for_each(|send| drop(send.wait(comm).unwrap()));
}
