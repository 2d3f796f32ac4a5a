//! Messages between two ranks: content, order, size, bounds and deadlines.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Over, comms, endpoint, group, on_all, pattern};
use forebay_comm::{EARLY_MAX, Endpoint, EndpointOptions};
use forebay_core::ErrorKind;
use forebay_wire::handshake::Secret;
use std::time::{Duration, Instant};

#[test]
fn messages_of_every_size_arrive_in_order() {
    for over in [Over::Shm, Over::Tcp] {
        let (endpoints, members) = group(3, over);
        endpoints[0].seal_payload(true);
        let sizes = [0, 1, 1000, 16 << 10, (16 << 10) + 1, 512 << 10, (512 << 10) + 1, 9_000_001, 3];
        on_all(&comms(&endpoints, &members, 1), |comm| {
            let (next, last) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
            for round in 0..2 {
                for (i, size) in sizes.into_iter().enumerate() {
                    comm.send(next, round, &pattern(i + comm.rank() as usize, size)).unwrap();
                }
            }
            // The second round's tag first.
            for round in [1, 0] {
                for (i, size) in sizes.into_iter().enumerate() {
                    let message = comm.recv(last, round).unwrap();
                    assert!(message == pattern(i + last as usize, size), "{over:?} {round} {size}");
                }
            }
        });
    }
}

#[test]
fn hundreds_of_mebibytes_go_both_ways() {
    for over in [Over::Shm, Over::Tcp] {
        let (endpoints, members) = group(2, over);
        // More than may be unread: alone it passes.
        let big = pattern(1, 300 << 20);
        let began = Instant::now();
        on_all(&comms(&endpoints, &members, 1), |comm| {
            comm.send(1 - comm.rank(), 7, &big).unwrap();
            assert!(comm.recv(1 - comm.rank(), 7).unwrap() == big);
        });
        println!("2 x 300 MiB over {over:?}: {:?}", began.elapsed());
    }
}

#[test]
fn messages_of_any_rank_and_any_tag_are_looked_at_and_received() {
    for over in [Over::Shm, Over::Tcp] {
        let (endpoints, members) = group(3, over);
        on_all(&comms(&endpoints, &members, 1), |comm| {
            // Short and long ones, which a receiver reads where they lie.
            for bytes in [0, 5, 100_000] {
                comm.barrier().unwrap();
                if comm.rank() > 0 {
                    comm.send(0, 10 + u64::from(comm.rank()), &pattern(comm.rank() as usize, bytes)).unwrap();
                    continue;
                }
                let mut from = Vec::new();
                for _ in 0..2 {
                    let found = comm.probe(None, None).unwrap();
                    assert_eq!(comm.iprobe(Some(found.source), None).unwrap(), Some(found));
                    assert_eq!((found.tag, found.bytes), (10 + u64::from(found.source), bytes as u64));
                    assert_eq!(comm.iprobe(Some(found.source), Some(99)).unwrap(), None);
                    let expected = pattern(found.source as usize, bytes);
                    if from.is_empty() {
                        assert_eq!(comm.recv_any(None, Some(found.tag)).unwrap(), (found, expected));
                    } else {
                        // Into more room than it needs.
                        let mut room = vec![7; bytes + 3];
                        assert_eq!(comm.recv_into(None, None, &mut room).unwrap(), found);
                        assert!(room[..bytes] == expected && room[bytes..] == [7; 3]);
                    }
                    from.push(found.source);
                }
                from.sort_unstable();
                assert_eq!(from, [1, 2]);
            }
            comm.barrier().unwrap();
            if comm.rank() == 1 {
                comm.send(0, 0, &pattern(1, 100_000)).unwrap();
                comm.send(0, 0, b"the next").unwrap();
            } else if comm.rank() == 0 {
                let error = comm.recv_into(Some(1), Some(0), &mut [0; 99]).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Invalid);
                assert!(
                    error.text.contains("rank 1 sent 100000 bytes, more than there is room for"),
                    "{error}"
                );
                assert_eq!(comm.recv(1, 0).unwrap(), b"the next");
            }
        });
    }
}

#[test]
fn many_small_messages_do_not_fill_the_window_for_good() {
    let (endpoints, members) = group(2, Over::Shm);
    on_all(&comms(&endpoints, &members, 1), |comm| {
        for i in 0..200_000u64 {
            match comm.rank() {
                0 => comm.send(1, 0, if i % 2 == 0 { b"" } else { b"x" }).unwrap(),
                _ => assert_eq!(comm.recv(0, 0).unwrap().len() as u64, i % 2),
            }
        }
    });
}

#[test]
fn one_rank_alone_needs_nobody() {
    let endpoint = endpoint("alone");
    let comm = endpoint.comm(1, 0, vec![endpoint.addresses()]).unwrap();
    comm.send(0, 3, b"to myself").unwrap();
    comm.send(0, 3, b"again").unwrap();
    assert_eq!(comm.recv(0, 3).unwrap(), b"to myself");
    assert_eq!(comm.recv(0, 3).unwrap(), b"again");
    comm.barrier().unwrap();
    assert_eq!(comm.broadcast(0, vec![1]).unwrap(), [1]);
    assert_eq!(comm.gather(0, &[2]).unwrap().unwrap(), [[2]]);
    assert_eq!(comm.allgather(&[3]).unwrap(), [[3]]);
    assert_eq!(comm.reduce_by(0, vec![4], |_, _| unreachable!()).unwrap().unwrap(), [4]);
    assert_eq!(comm.allreduce_by(vec![5], |_, _| unreachable!()).unwrap(), [5]);
    comm.set_timeout(Duration::from_millis(30));
    let error = comm.recv(0, 4).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    comm.set_timeout(Duration::from_secs(60));
    // What is not received is bounded here too.
    let block = vec![0; 100 << 20];
    comm.send(0, 9, &block).unwrap();
    comm.send(0, 9, &block).unwrap();
    assert_eq!(comm.send(0, 9, &block).unwrap_err().kind, ErrorKind::Full);
    comm.recv(0, 9).unwrap();
    comm.send(0, 9, &block).unwrap();
}

#[test]
fn deadlines_name_what_was_awaited() {
    let (endpoints, members) = group(2, Over::Shm);
    let mut all = comms(&endpoints, &members, 4);
    let (one, zero) = (all.pop().unwrap(), all.pop().unwrap());
    // So that the name is known.
    one.send(0, 1, b"x").unwrap();
    zero.recv(1, 1).unwrap();
    zero.set_timeout(Duration::from_millis(50));
    let error = zero.recv(1, 77).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert_eq!(
        error.text,
        "rank 0 waited 50ms for a message with tag 77 in communicator 4 from rank 1 ('w1'): nothing came"
    );
    let error = zero.barrier().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert_eq!(
        error.text,
        "rank 0 waited 50ms for the barrier (collective 1 of communicator 4) from rank 1 ('w1'): nothing came"
    );
    assert_eq!(zero.recv(2, 0).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(zero.broadcast(2, vec![]).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn wrong_members_are_refused() {
    let (endpoints, members) = group(2, Over::Shm);
    let refused = |id, rank, members: Vec<Vec<String>>| endpoints[0].comm(id, rank, members).unwrap_err();
    assert_eq!(refused(1, 2, members.clone()).kind, ErrorKind::Invalid);
    assert_eq!(refused(1, 0, vec![]).kind, ErrorKind::Invalid);
    let same = vec![members[0].clone(), members[1].clone(), members[1].clone()];
    assert!(refused(1, 0, same).text.contains("ranks 1 and 2 are at one address"));
    assert!(refused(1, 1, members.clone()).text.contains("one address"));
    drop(endpoints[0].comm(5, 0, members.clone()).unwrap());
    assert!(refused(5, 0, members.clone()).text.contains("numbers must grow"));
    assert!(refused(4, 0, members.clone()).text.contains("numbers must grow"));
    let nowhere = endpoints[0].comm(6, 0, vec![members[0].clone(), vec!["shm:elsewhere/x".into()]]).unwrap();
    let error = nowhere.send(1, 0, b"").unwrap_err();
    assert!(error.kind == ErrorKind::Unreachable && error.text.contains("listen on TCP"), "{error}");
}

#[test]
fn a_wrong_secret_is_refused() {
    for over in [Over::Shm, Over::Tcp] {
        let (endpoints, mut members) = group(1, over);
        let options = EndpointOptions {
            secret: Secret([9; 32]),
            lineage: common::LINEAGE,
            tcp: Some("127.0.0.1:0".parse().unwrap()),
            name: "stranger".into(),
        };
        let stranger = Endpoint::new(options).unwrap();
        members.push(common::only(stranger.addresses(), over));
        let ours = endpoints[0].comm(1, 0, members.clone()).unwrap();
        let theirs = stranger.comm(1, 1, members).unwrap();
        for error in [
            ours.send(1, 0, b"x").unwrap_err(),
            theirs.recv(0, 0).unwrap_err(),
            theirs.barrier().unwrap_err(),
        ] {
            assert_eq!(error.kind, ErrorKind::WrongSecret, "{error}");
            assert!(error.text.contains("rank "), "{error}");
        }
    }
}

#[test]
fn early_messages_wait_in_bounds() {
    // Long ones of one host lie with their sender until they are received; short ones lie in the memory that both share, from which they
    // are taken once: when the sender asks, as it waits.
    let megabytes = (EARLY_MAX - (64 << 20))..=EARLY_MAX + (40 << 20);
    for (over, bytes, bound) in
        [(Over::Tcp, 32 << 20, megabytes), (Over::Shm, 4 << 10, (32 << 10)..=128 << 10)]
    {
        let (endpoints, members) = group(2, over);
        let sender = endpoints[0].comm(3, 0, members.clone()).unwrap();
        sender.set_timeout(Duration::from_millis(300));
        let block = pattern(3, bytes);
        // The other side has not opened the comm: it takes so much and no more, then the sender waits.
        let mut sent = 0;
        let error = loop {
            match sender.send(1, 0, &block) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 40, "no bound");
        };
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert!(error.text.contains("does not receive what was sent before"), "{error}");
        let taken = sent * block.len() as u64;
        assert!(bound.contains(&taken), "{taken}");
        // It opens: all that was sent whole is there, and what was given up in the middle is not.
        let receiver = endpoints[1].comm(3, 1, members).unwrap();
        receiver.set_timeout(Duration::from_secs(20));
        for _ in 0..sent {
            assert!(receiver.recv(0, 0).unwrap() == block);
        }
        sender.set_timeout(Duration::from_secs(20));
        sender.send(1, 0, b"end").unwrap();
        assert_eq!(receiver.recv(0, 0).unwrap(), b"end");
    }
}

/// A long one that its sender has given up is not there, whatever its bytes have become.
#[test]
fn a_message_that_was_given_up_never_comes() {
    let (endpoints, members) = group(2, Over::Shm);
    let all = comms(&endpoints, &members, 1);
    on_all(&all, |comm| comm.barrier().unwrap());
    all[0].set_timeout(Duration::from_millis(100));
    let mut block = pattern(3, 8 << 20);
    let error = all[0].send(1, 0, &block).unwrap_err();
    assert!(error.text.ends_with("to rank 1 ('w1'): it does not receive it"), "{error}");
    block.fill(7);
    all[0].send(1, 0, b"the next").unwrap();
    assert_eq!(all[1].recv(0, 0).unwrap(), b"the next");
}

#[test]
fn what_is_awaited_comes_past_what_is_not() {
    let (endpoints, members) = group(3, Over::Shm);
    on_all(&comms(&endpoints, &members, 1), |comm| match comm.rank() {
        0 => {
            // Far more than may be unread comes before it, from both.
            assert_eq!(comm.recv(2, 1).unwrap(), b"two");
            assert_eq!(comm.recv(1, 1).unwrap(), b"one");
        }
        rank => {
            let block = vec![0; 40 << 20];
            (0..6).for_each(|_| comm.send(0, 0, &block).unwrap());
            comm.send(0, 1, if rank == 1 { b"one" } else { b"two" }).unwrap();
        }
    });
}

#[test]
fn a_straggler_of_an_old_comm_disturbs_nobody() {
    let (endpoints, members) = group(2, Over::Tcp);
    let old = comms(&endpoints, &members, 1);
    on_all(&old, |comm| comm.barrier().unwrap());
    let mut old = old.into_iter();
    let straggler = old.next().unwrap();
    drop(old);
    std::thread::scope(|scope| {
        // Still at it, until it is told that nobody listens.
        let sending = scope.spawn(|| {
            let began = Instant::now();
            loop {
                if let Err(error) = straggler.send(1, 0, &[9; 100_000]) {
                    break error;
                }
                assert!(began.elapsed() < Duration::from_secs(10));
            }
        });
        let new = comms(&endpoints, &members, 2);
        for round in 0..50u8 {
            let sums = on_all(&new, |comm| {
                comm.send(1 - comm.rank(), 0, &[round]).unwrap();
                assert_eq!(comm.recv(1 - comm.rank(), 0).unwrap(), [round]);
                comm.allreduce_by(vec![comm.rank() as u8 + round], |a, b| a[0] = a[0].wrapping_add(b[0]))
                    .unwrap()[0]
            });
            assert_eq!(sums, [2 * round + 1; 2]);
        }
        let error = sending.join().unwrap();
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.text.contains("rank 1 ('w1') is gone: it has closed this communicator"), "{error}");
    });
    let error = straggler.recv(1, 5).unwrap_err();
    assert!(error.text.contains("has closed this communicator"), "{error}");
}
