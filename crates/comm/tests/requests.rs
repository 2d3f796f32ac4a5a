//! Operations that go on while their callers do something else.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Over, comms, group, pattern};
use forebay_comm::{Comm, Datatype, Memory, Operation, Reduction, Request};
use forebay_core::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs the same on every rank, each in a thread of its own.
fn on_all(over: Over, size: usize, work: impl Fn(&Arc<Comm>) + Sync) {
    let (endpoints, members) = group(size, over);
    let all: Vec<Arc<Comm>> = comms(&endpoints, &members, 1).into_iter().map(Arc::new).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|comm| scope.spawn(|| work(comm))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The memory of a vector, which lives longer than what it is given to.
fn memory(bytes: &mut [u8]) -> Memory {
    // SAFETY: tests wait for their requests, or drop them, before their vectors.
    #[allow(unsafe_code)]
    unsafe {
        Memory::new(bytes.as_mut_ptr(), bytes.len())
    }
}

#[test]
fn messages_cross_whatever_the_order_of_waits() {
    for over in [Over::Shm, Over::Tcp] {
        on_all(over, 3, |comm| {
            let (rank, size) = (comm.rank(), comm.size());
            let sizes = [0, 8, 16 << 10, 100_000, 3_000_000, 1];
            let block = |from: u32, to: u32, place: usize| {
                pattern(100 * from as usize + 10 * to as usize + place, sizes[place])
            };
            let mut given: Vec<(u32, usize, Vec<u8>)> = (0..size)
                .flat_map(|to| (0..sizes.len()).map(move |place| (to, place)))
                .map(|(to, place)| (to, place, block(rank, to, place)))
                .collect();
            let sends: Vec<Request> = given
                .iter_mut()
                .map(|(to, place, bytes)| comm.isend(*to, *place as u64, memory(bytes)).unwrap())
                .collect();
            let mut room: Vec<(u32, usize, Vec<u8>)> = (0..size)
                .flat_map(|from| (0..sizes.len()).map(move |place| (from, place)))
                .map(|(from, place)| (from, place, vec![0xee; sizes[place]]))
                .collect();
            let receives: Vec<Request> = room
                .iter_mut()
                .map(|(from, place, bytes)| {
                    comm.irecv(Some(*from), Some(*place as u64), Some(memory(bytes))).unwrap()
                })
                .collect();
            // The last ones first.
            for (place, request) in receives.iter().enumerate().rev() {
                let status = request.wait(comm).unwrap().status.unwrap();
                assert_eq!(status.bytes as usize, sizes[place % sizes.len()]);
            }
            for (from, place, bytes) in &room {
                assert!(*bytes == block(*from, rank, *place));
            }
            sends.iter().for_each(|request| drop(request.wait(comm).unwrap()));
            let again = sends[0].wait(comm).unwrap_err();
            assert_eq!(again.kind, ErrorKind::Closed);
        });
    }
}

#[test]
fn a_short_message_goes_once_there_is_a_connection() {
    let received = AtomicBool::new(false);
    on_all(Over::Shm, 2, |comm| {
        if comm.rank() == 1 {
            assert_eq!(comm.recv(0, 1).unwrap(), b"now");
            return received.store(true, Ordering::Relaxed);
        }
        let mut bytes = b"now".to_vec();
        let request = comm.isend(1, 1, memory(&mut bytes)).unwrap();
        // Nothing is called here meanwhile.
        let since = Instant::now();
        while !received.load(Ordering::Relaxed) {
            assert!(since.elapsed() < Duration::from_secs(30));
            std::thread::yield_now();
        }
        request.wait(comm).unwrap();
    });
}

#[test]
fn what_fails_one_collective_fails_those_that_were_begun_after_it() {
    for over in [Over::Shm, Over::Tcp] {
        on_all(over, 3, |comm| {
            let added = Reduction::new(Datatype::UInt8, Operation::Sum).unwrap();
            // Rank 1 gives more than the others.
            let mut sum = vec![1u8; if comm.rank() == 1 { 400 } else { 100 }];
            let first = comm.iallreduce(None, memory(&mut sum), &added).unwrap();
            let second = comm.ibarrier();
            assert_ne!(first.wait(comm).unwrap_err().kind, ErrorKind::Timeout);
            // It may have been over before that.
            assert!(second.wait(comm).err().is_none_or(|error| error.kind != ErrorKind::Timeout));
        });
    }
}

#[test]
fn requests_get_on_though_the_next_message_is_always_there() {
    on_all(Over::Shm, 3, |comm| match comm.rank() {
        0 => {
            let request = comm.ibarrier();
            // Rank 1 sends until it hears from rank 2, which waits for the barrier.
            while comm.recv(1, 1).unwrap() != b"last" {}
            request.wait(comm).unwrap();
        }
        1 => {
            let request = comm.ibarrier();
            while comm.iprobe(Some(2), Some(7)).unwrap().is_none() {
                comm.send(0, 1, b"more").unwrap();
            }
            comm.send(0, 1, b"last").unwrap();
            request.wait(comm).unwrap();
            comm.recv(2, 7).unwrap();
        }
        _ => {
            comm.ibarrier().wait(comm).unwrap();
            comm.send(1, 7, b"enough").unwrap();
        }
    });
}

#[test]
fn the_first_of_several_is_told_and_others_go_on() {
    on_all(Over::Shm, 3, |comm| {
        if comm.rank() > 0 {
            if comm.rank() == 1 {
                comm.recv(0, 9).unwrap();
            }
            return comm.send(0, 1, &[comm.rank() as u8; 40_000]).unwrap();
        }
        let requests = [comm.irecv(Some(1), None, None).unwrap(), comm.irecv(Some(2), None, None).unwrap()];
        assert_eq!(requests[0].test().unwrap(), None);
        let (place, done) = Request::wait_any(&[&requests[0], &requests[1]], comm).unwrap();
        assert_eq!((place, done.unwrap().bytes), (1, vec![2; 40_000]));
        comm.send(1, 9, b"now").unwrap();
        let done = loop {
            if let Some(done) = requests[0].test().unwrap() {
                break done;
            }
            std::thread::yield_now();
        };
        assert_eq!((done.bytes, done.status.unwrap().tag), (vec![1; 40_000], 1));
    });
}

#[test]
fn collectives_go_on_while_others_are_waited_for() {
    for over in [Over::Shm, Over::Tcp] {
        on_all(over, 4, |comm| {
            let (rank, size) = (comm.rank() as usize, comm.size() as usize);
            let added = Reduction::new(Datatype::UInt8, Operation::Sum).unwrap();
            let mut sum = vec![1u8; 100_000];
            let mut first = vec![rank as u8; 50_000];
            let mut all = vec![0u8; 20_000 * size];
            let mut mine = vec![rank as u8; 20_000];
            let mut crossed = vec![0u8; 40 * size];
            let mut given: Vec<u8> = (0..40 * size).map(|byte| (byte / 40 + 10 * rank) as u8).collect();
            let mut upto = vec![1u8; 30];
            let requests = [
                comm.ibarrier(),
                comm.iallreduce(None, memory(&mut sum), &added).unwrap(),
                comm.ibcast(2, memory(&mut first)).unwrap(),
                comm.iallgather_into(memory(&mut mine), memory(&mut all), &vec![20_000; size]).unwrap(),
                comm.ialltoall(memory(&mut given), memory(&mut crossed)).unwrap(),
                comm.iscan(false, memory(&mut upto), &added).unwrap(),
            ];
            // One that is waited for, begun after them.
            comm.barrier().unwrap();
            requests.iter().rev().for_each(|request| drop(request.wait(comm).unwrap()));
            assert!(sum.iter().all(|byte| *byte == 4) && first.iter().all(|byte| *byte == 2));
            assert!(
                (0..size).all(|from| all[from * 20_000..][..20_000].iter().all(|byte| *byte == from as u8))
            );
            assert!((0..size).all(|from| crossed[from * 40] == (rank + 10 * from) as u8));
            assert!(upto.iter().all(|byte| *byte == rank as u8 + 1));
        });
    }
}

#[test]
fn what_is_given_up_writes_nothing_more() {
    on_all(Over::Shm, 2, |comm| {
        if comm.rank() == 0 {
            let mut room = vec![7u8; 100_000];
            drop(comm.irecv(Some(1), Some(0), Some(memory(&mut room))).unwrap());
            comm.send(1, 0, b"go on").unwrap();
            let mut next = vec![0u8; 100_000];
            comm.recv_into(Some(1), Some(0), &mut next).unwrap();
            assert!(next == pattern(3, 100_000) && room.iter().all(|byte| *byte == 7));
            comm.set_timeout(Duration::from_millis(50));
            let error = comm.irecv(Some(1), Some(5), None).unwrap().wait(comm).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Timeout);
            assert!(error.text.contains("with tag 5"), "{error}");
        } else {
            comm.recv(0, 0).unwrap();
            comm.send(0, 0, &pattern(3, 100_000)).unwrap();
        }
    });
}
