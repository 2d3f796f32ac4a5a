//! Random sequences of collectives, in random groups, against what they should give.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Over, comms, group, on_all, pattern};
use forebay_comm::Operation::Product;
use forebay_comm::{Comm, Datatype, Reduction};
use forebay_core::ErrorKind;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Operation {
    Barrier,
    Broadcast { root: u32, bytes: usize },
    Gather { root: u32, bytes: Vec<usize> },
    Allgather { bytes: Vec<usize> },
    Reduce { root: u32 },
    Allreduce { bytes: usize },
    Bcast { root: u32, bytes: usize },
    ReduceNumbers { root: u32, count: usize },
    AllreduceNumbers { count: usize },
    ReduceScatter { counts: Vec<usize> },
    Scan { count: usize, exclusive: bool },
    GatherInto { root: u32, bytes: Vec<usize> },
    AllgatherInto { bytes: Vec<usize> },
    AllgatherEqual { bytes: usize },
    Scatter { root: u32, bytes: Vec<usize> },
    Alltoall { bytes: usize },
    Alltoallv { bytes: Vec<usize> },
    Shift { by: u32, bytes: usize },
    NextComm,
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        3 => Just(0usize),
        5 => 1..2000usize,
        3 => (15 << 10)..(40usize << 10),
        1 => (500 << 10)..(1600usize << 10),
    ]
}

fn operation(size: u32) -> impl Strategy<Value = Operation> {
    let each = || prop::collection::vec(bytes(), size as usize);
    prop_oneof![
        Just(Operation::Barrier),
        (0..size, bytes()).prop_map(|(root, bytes)| Operation::Broadcast { root, bytes }),
        (0..size, each()).prop_map(|(root, bytes)| Operation::Gather { root, bytes }),
        each().prop_map(|bytes| Operation::Allgather { bytes }),
        (0..size).prop_map(|root| Operation::Reduce { root }),
        bytes().prop_map(|bytes| Operation::Allreduce { bytes }),
        (0..size, bytes()).prop_map(|(root, bytes)| Operation::Bcast { root, bytes }),
        (0..size, bytes()).prop_map(|(root, bytes)| Operation::ReduceNumbers { root, count: bytes / 8 }),
        bytes().prop_map(|bytes| Operation::AllreduceNumbers { count: bytes / 8 }),
        each().prop_map(|bytes| Operation::ReduceScatter {
            counts: bytes.into_iter().map(|bytes| bytes / 64).collect()
        }),
        (bytes(), any::<bool>())
            .prop_map(|(bytes, exclusive)| Operation::Scan { count: bytes / 8, exclusive }),
        (0..size, each()).prop_map(|(root, bytes)| Operation::GatherInto { root, bytes }),
        each().prop_map(|bytes| Operation::AllgatherInto { bytes }),
        bytes().prop_map(|bytes| Operation::AllgatherEqual { bytes: bytes / 8 }),
        (0..size, each()).prop_map(|(root, bytes)| Operation::Scatter { root, bytes }),
        bytes().prop_map(|bytes| Operation::Alltoall { bytes: bytes / 8 }),
        each().prop_map(|bytes| Operation::Alltoallv { bytes }),
        (0..size, bytes()).prop_map(|(by, bytes)| Operation::Shift { by, bytes }),
        Just(Operation::NextComm),
    ]
}

fn case() -> impl Strategy<Value = (Over, u32, Vec<Operation>)> {
    (prop_oneof![Just(Over::Shm), Just(Over::Tcp)], 1..=9u32).prop_flat_map(|(over, size)| {
        prop::collection::vec(operation(size), 1..25).prop_map(move |operations| (over, size, operations))
    })
}

/// Neither commutes nor associates: shows the whole order.
fn sum(datatype: Datatype) -> Reduction {
    Reduction::new(datatype, forebay_comm::Operation::Sum).unwrap()
}

fn bracket(a: &mut Vec<u8>, b: &[u8]) {
    *a = [b"(", &a[..], b" ", b, b")"].concat();
}

/// The order that the documentation states.
fn bracketed(size: u32) -> Vec<u8> {
    let mut runs: Vec<Vec<u8>> = (0..size).map(|rank| rank.to_string().into_bytes()).collect();
    while runs.len() > 1 {
        runs = runs
            .chunks(2)
            .map(|pair| {
                pair[1..].iter().fold(pair[0].clone(), |mut a, b| {
                    bracket(&mut a, b);
                    a
                })
            })
            .collect();
    }
    runs.remove(0)
}

/// Numbers whose sum depends on the order.
fn number(rank: u32, place: usize) -> f64 {
    let seed = (place as u64 * 31 + u64::from(rank) * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (seed >> 11) as f64 / 1e15 - 4.0
}

fn numbers(rank: u32, count: usize) -> Vec<u8> {
    (0..count).flat_map(|place| number(rank, place).to_ne_bytes()).collect()
}

/// The order that the documentation states: some of the first ranks are added to the next one, then pairs of pairs.
fn summed(size: u32, count: usize) -> Vec<u8> {
    let places = 1 << size.ilog2();
    let rest = size - places;
    let sum = |place: usize| {
        let first = (0..rest).map(|pair| number(2 * pair, place) + number(2 * pair + 1, place));
        let mut sums: Vec<f64> = first.chain((2 * rest..size).map(|rank| number(rank, place))).collect();
        while sums.len() > 1 {
            sums = sums.chunks(2).map(|pair| pair[0] + pair[1]).collect();
        }
        sums[0]
    };
    (0..count).flat_map(|place| sum(place).to_ne_bytes()).collect()
}

fn bytes_of(numbers: impl Iterator<Item = f64>) -> Vec<u8> {
    numbers.flat_map(f64::to_ne_bytes).collect()
}

/// The sum in the order of ranks.
fn added(ranks: std::ops::Range<u32>, place: usize) -> Option<f64> {
    ranks.map(|rank| number(rank, place)).reduce(|a, b| a + b)
}

fn number_of(from: u32, to: u32) -> usize {
    from as usize * 100 + to as usize
}

fn check(comm: &Comm, number: usize, operation: &Operation) {
    let (rank, size) = (comm.rank(), comm.size());
    let block = |rank: u32, bytes: usize| pattern(number + 1000 * rank as usize, bytes);
    match operation {
        Operation::Barrier => comm.barrier().unwrap(),
        Operation::Broadcast { root, bytes } => {
            let mine = if rank == *root { block(rank, *bytes) } else { vec![0xee; 3] };
            assert!(comm.broadcast(*root, mine).unwrap() == block(*root, *bytes));
        }
        Operation::Gather { root, bytes } => {
            let gathered = comm.gather(*root, &block(rank, bytes[rank as usize])).unwrap();
            let expected = (rank == *root).then(|| (0..size).map(|r| block(r, bytes[r as usize])).collect());
            assert!(gathered == expected);
        }
        Operation::Allgather { bytes } => {
            let gathered = comm.allgather(&block(rank, bytes[rank as usize])).unwrap();
            assert!(gathered == (0..size).map(|r| block(r, bytes[r as usize])).collect::<Vec<_>>());
        }
        Operation::Reduce { root } => {
            let reduced = comm.reduce_by(*root, rank.to_string().into_bytes(), bracket).unwrap();
            assert_eq!(reduced, (rank == *root).then(|| bracketed(size)));
        }
        Operation::Allreduce { bytes } => {
            let add =
                |a: &mut Vec<u8>, b: &[u8]| a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_add(*b));
            let reduced = comm.allreduce_by(block(rank, *bytes), add).unwrap();
            let mut expected = block(0, *bytes);
            (1..size).for_each(|r| add(&mut expected, &block(r, *bytes)));
            assert!(reduced == expected);
        }
        Operation::Bcast { root, bytes } => {
            let mut mine = if rank == *root { block(rank, *bytes) } else { vec![0xee; *bytes] };
            comm.bcast(*root, &mut mine).unwrap();
            assert!(mine == block(*root, *bytes));
        }
        Operation::ReduceNumbers { root, count } => {
            let mut mine = numbers(rank, *count);
            comm.reduce(*root, Some(&mine.clone()), &mut mine, &sum(Datatype::Float64)).unwrap();
            assert!(rank != *root || mine == summed(size, *count));
        }
        Operation::AllreduceNumbers { count } => {
            let mut mine = numbers(rank, *count);
            comm.allreduce(None, &mut mine, &sum(Datatype::Float64)).unwrap();
            assert!(mine == summed(size, *count));
        }
        Operation::Shift { by, bytes } => {
            // The user's tags are all of 64 bits, also those that collectives use inside.
            let tag = [0, 1, u64::MAX][number % 3];
            comm.send((rank + by) % size, tag, &block(rank, *bytes)).unwrap();
            let from = (rank + size - by) % size;
            assert!(comm.recv(from, tag).unwrap() == block(from, *bytes));
        }
        Operation::NextComm => {}
        blocks => check_blocks(comm, number, blocks),
    }
}

/// Those of which each rank has a block.
fn check_blocks(comm: &Comm, seed: usize, operation: &Operation) {
    let (rank, size) = (comm.rank(), comm.size());
    let block = |rank: u32, bytes: usize| pattern(seed + 1000 * rank as usize, bytes);
    match operation {
        Operation::ReduceScatter { counts } => {
            let lengths: Vec<usize> = counts.iter().map(|count| 8 * count).collect();
            let all: usize = counts.iter().sum();
            let before: usize = counts[..rank as usize].iter().sum();
            let mut mine = vec![0xee; lengths[rank as usize]];
            comm.reduce_scatter(&numbers(rank, all), &lengths, &mut mine, &sum(Datatype::Float64)).unwrap();
            let expected =
                (before..before + counts[rank as usize]).map(|place| added(0..size, place).unwrap());
            assert!(mine == bytes_of(expected));
        }
        Operation::Scan { count, exclusive } => {
            // Whole numbers, whose sum depends on no order.
            let whole = |rank: u32, place: usize| number(rank, place).round();
            let mut mine = bytes_of((0..*count).map(|place| whole(rank, place)));
            let upto = if *exclusive { rank } else { rank + 1 };
            if *exclusive {
                comm.exscan(&mut mine, &sum(Datatype::Float64)).unwrap();
            } else {
                comm.scan(&mut mine, &sum(Datatype::Float64)).unwrap();
            }
            let sum = |place| (0..upto).map(|rank| whole(rank, place)).sum();
            assert!(upto == 0 || mine == bytes_of((0..*count).map(sum)));
        }
        Operation::GatherInto { root, bytes } => {
            let expected: Vec<u8> = (0..size).flat_map(|r| block(r, bytes[r as usize])).collect();
            let mut all = if rank == *root { vec![0xee; expected.len()] } else { Vec::new() };
            let counts = if rank == *root { &bytes[..] } else { &[] };
            comm.gather_into(*root, &block(rank, bytes[rank as usize]), &mut all, counts).unwrap();
            assert!(rank != *root || all == expected);
        }
        Operation::AllgatherInto { bytes } => {
            let expected: Vec<u8> = (0..size).flat_map(|r| block(r, bytes[r as usize])).collect();
            let mut all = vec![0xee; expected.len()];
            comm.allgather_into(&block(rank, bytes[rank as usize]), &mut all, bytes).unwrap();
            assert!(all == expected);
        }
        Operation::AllgatherEqual { bytes } => {
            let expected: Vec<u8> = (0..size).flat_map(|r| block(r, *bytes)).collect();
            let mut all = vec![0xee; expected.len()];
            comm.allgather_into(&block(rank, *bytes), &mut all, &vec![*bytes; size as usize]).unwrap();
            assert!(all == expected);
        }
        Operation::Scatter { root, bytes } => {
            let all: Vec<u8> = (0..size).flat_map(|r| block(r, bytes[r as usize])).collect();
            let given = if rank == *root { &all[..] } else { &[] };
            let mut mine = vec![0xee; bytes[rank as usize]];
            comm.scatter(*root, given, bytes, &mut mine).unwrap();
            assert!(mine == block(rank, bytes[rank as usize]));
        }
        Operation::Alltoall { bytes } => {
            let between = |from: u32, to: u32| pattern(number_of(from, to), *bytes);
            let given: Vec<u8> = (0..size).flat_map(|to| between(rank, to)).collect();
            let mut into = vec![0xee; given.len()];
            comm.alltoall(&given, &mut into).unwrap();
            assert!(into == (0..size).flat_map(|from| between(from, rank)).collect::<Vec<_>>());
        }
        Operation::Alltoallv { bytes } => {
            // How long a block is depends on both.
            let length = |from: u32, to: u32| bytes[from as usize] / (to as usize + 1);
            let between = |from: u32, to: u32| pattern(number_of(from, to), length(from, to));
            let given: Vec<u8> = (0..size).flat_map(|to| between(rank, to)).collect();
            let expected: Vec<u8> = (0..size).flat_map(|from| between(from, rank)).collect();
            let sent: Vec<usize> = (0..size).map(|to| length(rank, to)).collect();
            let received: Vec<usize> = (0..size).map(|from| length(from, rank)).collect();
            let mut into = vec![0xee; expected.len()];
            comm.alltoallv((&given, &sent), (&mut into, &received)).unwrap();
            assert!(into == expected);
        }
        other => panic!("{other:?} has no blocks"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn collectives_give_what_they_should((over, size, operations) in case()) {
        let (endpoints, members) = group(size as usize, over);
        let parts: Vec<_> = operations.split(|operation| matches!(operation, Operation::NextComm)).collect();
        on_all_parts(&endpoints, &members, &parts);
    }
}

/// Every rank goes from one comm to the next when it is done, whether the others are or not.
fn on_all_parts(endpoints: &[forebay_comm::Endpoint], members: &[Vec<String>], parts: &[&[Operation]]) {
    std::thread::scope(|scope| {
        for (rank, endpoint) in endpoints.iter().enumerate() {
            scope.spawn(move || {
                for (id, part) in parts.iter().enumerate() {
                    let comm = endpoint.comm(id as u64, rank as u32, members.to_vec()).unwrap();
                    comm.set_timeout(std::time::Duration::from_secs(20));
                    part.iter().enumerate().for_each(|(number, operation)| check(&comm, number, operation));
                }
            });
        }
    });
}

#[test]
fn large_blocks_are_gathered_and_broadcast() {
    let (endpoints, members) = group(4, Over::Shm);
    on_all(&comms(&endpoints, &members, 1), |comm| {
        let mine = pattern(comm.rank() as usize, 70 << 20);
        let all = comm.gather(2, &mine).unwrap();
        for (rank, block) in all.iter().flatten().enumerate() {
            assert!(*block == pattern(rank, 70 << 20));
        }
        let whole = comm.broadcast(2, all.map(|blocks| blocks.concat()).unwrap_or_default()).unwrap();
        assert_eq!(whole.len(), 280 << 20);
        assert!(whole[70 << 20..140 << 20] == pattern(1, 70 << 20));
    });
}

#[test]
fn ranks_that_call_different_things_meet_the_deadline() {
    let (endpoints, members) = group(2, Over::Shm);
    let errors = on_all(&comms(&endpoints, &members, 1), |comm| {
        comm.set_timeout(std::time::Duration::from_millis(100));
        if comm.rank() == 0 { comm.recv(1, 0).unwrap_err() } else { comm.barrier().unwrap_err() }
    });
    for error in errors {
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    }
}

/// A collective that some ranks call as others do not.
type Call<'a> = &'a (dyn Fn(&Comm, u32) -> forebay_core::Result<()> + Sync);

#[test]
fn ranks_that_do_not_agree_are_told_at_once() {
    let (endpoints, members) = group(3, Over::Shm);
    let (sums, products) = (sum(Datatype::Int32), Reduction::new(Datatype::Int32, Product).unwrap());
    let floats = sum(Datatype::Float32);
    let calls: [(&str, Call<'_>); 4] = [
        ("barrier", &|comm, rank| {
            if rank == 1 { comm.barrier() } else { comm.allreduce(None, &mut [0; 8], &sums) }
        }),
        ("Product of Int32", &|comm, rank| {
            comm.allreduce(None, &mut [0; 8], if rank == 1 { &products } else { &sums })
        }),
        ("Sum of Float32", &|comm, rank| {
            comm.reduce(0, Some(&[0; 8]), &mut [0; 8], if rank == 1 { &floats } else { &sums })
        }),
        ("bcast with root 1", &|comm, rank| comm.bcast(u32::from(rank == 1), &mut [0; 8])),
    ];
    for ((told, call), id) in calls.into_iter().zip(1..) {
        let results = on_all(&comms(&endpoints, &members, id), |comm| {
            comm.set_timeout(std::time::Duration::from_secs(30));
            let called = call(comm, comm.rank());
            // What only sends does not wait for those who receive: it hears of it in the next collective.
            called.and_then(|()| comm.barrier()).unwrap_err().text
        });
        assert!(results.iter().any(|text| text.contains(told)), "{told}: {results:?}");
    }
}

#[test]
fn functions_combine_in_the_order_of_ranks_and_fail_everywhere() {
    for size in [1, 2, 3, 5, 8] {
        let (endpoints, members) = group(size, Over::Shm);
        // Affine maps (a, b): x -> a x + b, one after the other: that does not commute.
        let compose = |_: usize, first: &[u8], second: &mut [u8]| {
            for (first, second) in first.chunks_exact(2).zip(second.chunks_exact_mut(2)) {
                let (a, b) = (second[0], second[1]);
                second[0] = a.wrapping_mul(first[0]);
                second[1] = a.wrapping_mul(first[1]).wrapping_add(b);
            }
            Ok(())
        };
        let composed = Reduction::by(2, std::sync::Arc::new(compose)).unwrap();
        let map = |rank: u32, place: usize| [(2 * rank as usize + 3 + place) as u8, 7 * rank as u8 + 1];
        let of = |ranks: std::ops::RangeInclusive<u32>, place: usize| {
            let mut all = map(*ranks.start(), place).to_vec();
            for rank in ranks.skip(1) {
                let mut next = map(rank, place).to_vec();
                compose(2, &all, &mut next).unwrap();
                all = next;
            }
            all
        };
        on_all(&comms(&endpoints, &members, 1), |comm| {
            let last = comm.size() - 1;
            for count in [1, 3, 10_000] {
                let mine: Vec<u8> = (0..count).flat_map(|place| map(comm.rank(), place)).collect();
                let (mut all, mut at_root, mut upto) = (mine.clone(), mine.clone(), mine);
                comm.allreduce(None, &mut all, &composed).unwrap();
                comm.reduce(last, Some(&at_root.clone()), &mut at_root, &composed).unwrap();
                comm.scan(&mut upto, &composed).unwrap();
                let wanted: Vec<u8> = (0..count).flat_map(|place| of(0..=last, place)).collect();
                assert!(all == wanted && (comm.rank() != last || at_root == wanted));
                assert!(upto == (0..count).flat_map(|place| of(0..=comm.rank(), place)).collect::<Vec<_>>());
            }
        });
        let fails =
            |_: usize, _: &[u8], _: &mut [u8]| Err(forebay_core::Error::invalid("one of these was negative"));
        let fails = Reduction::by(2, std::sync::Arc::new(fails)).unwrap();
        let failed = on_all(&comms(&endpoints, &members, 2), |comm| {
            comm.allreduce(None, &mut [0; 64], &fails)
                .and_then(|()| comm.barrier())
                .err()
                .map(|error| error.text)
        });
        let told = |text: &Option<String>| {
            text.as_ref().is_some_and(|text| text.contains("one of these was negative"))
        };
        assert!(if size == 1 { failed == [None] } else { failed.iter().all(told) }, "{failed:?}");
    }
}

#[test]
fn different_sizes_are_told_to_all() {
    let (endpoints, members) = group(4, Over::Shm);
    // Some go the same way, some do not.
    for (id, (bytes, more)) in
        (1..).zip([(64, 8), (100_000, 8), (16 << 10, 16 << 10), (512 << 10, 512 << 10)])
    {
        for size in [2, 4] {
            let members = &members[..size];
            let errors = on_all(&comms(&endpoints[..size], members, 10 * id + size as u64), |comm| {
                let bytes = bytes + if comm.rank() == 1 { more } else { 0 };
                let mut mine = vec![0; bytes];
                let all = comm.allreduce(None, &mut mine, &sum(Datatype::UInt8));
                // One that does not need the others' may not notice.
                let to_one = comm.reduce(0, Some(&vec![0; bytes]), &mut mine, &sum(Datatype::UInt8));
                let after = comm.barrier();
                assert!(after.is_err() && (all.is_err() || to_one.is_err()));
                [all, to_one, after].map(|ended| ended.err().map(|error| (error.kind, error.text)))
            });
            let all = || errors.iter().flatten().flatten();
            assert!(all().all(|(kind, _)| *kind != ErrorKind::Timeout), "{errors:?}");
            let told = |text: &str| text.contains("where rank") || text.contains("as many bytes");
            assert!(all().any(|(_, text)| told(text)), "{errors:?}");
        }
    }
    for (id, bytes) in [(100, 512 << 10), (101, 100)] {
        let errors = on_all(&comms(&endpoints[..2], &members[..2], id), |comm| {
            let bytes = bytes * (1 + comm.rank() as usize);
            let mut into = vec![0; if comm.rank() == 0 { bytes } else { 0 }];
            comm.reduce(0, Some(&vec![0; bytes]), &mut into, &sum(Datatype::UInt8))
                .and_then(|()| comm.barrier())
        });
        assert!(
            errors.iter().all(|ended| ended.as_ref().is_err_and(|error| error.kind != ErrorKind::Timeout))
        );
    }
    let comm = &comms(&endpoints, &members, 200_000)[0];
    let refused = comm.allreduce(None, &mut [0; 7], &sum(Datatype::Float64)).unwrap_err();
    assert!(refused.text.contains("7 bytes are no whole number of elements of 8"), "{refused}");
}

#[test]
fn parts_have_messages_and_collectives_of_their_own() {
    for over in [Over::Shm, Over::Tcp] {
        let (endpoints, members) = group(5, over);
        on_all(&comms(&endpoints, &members, 1), |comm| {
            let rank = comm.rank();
            // The even ranks downwards, the odd ones upwards but for 3, which is in none.
            let color = (rank != 3).then_some(rank % 2);
            let key = if rank % 2 == 0 { -i64::from(rank) } else { i64::from(rank) };
            let part = comm.split(color, key).unwrap();
            let copy = comm.dup().unwrap();
            copy.send((rank + 1) % 5, 0, b"in the copy").unwrap();
            comm.send((rank + 1) % 5, 0, b"in the whole").unwrap();
            assert_eq!(comm.recv_any(None, None).unwrap().1, b"in the whole");
            let Some(part) = part else {
                assert_eq!(rank, 3);
                return assert_eq!(copy.recv(2, 0).unwrap(), b"in the copy");
            };
            let expected: &[u32] = if rank % 2 == 0 { &[4, 2, 0] } else { &[1] };
            assert_eq!((part.size(), expected[part.rank() as usize]), (expected.len() as u32, rank));
            let mut all = vec![0; expected.len()];
            part.allgather_into(&[rank as u8], &mut all, &vec![1; expected.len()]).unwrap();
            assert_eq!(all, expected.iter().map(|rank| *rank as u8).collect::<Vec<_>>());
            // Parts of parts, and messages to ranks that count there.
            let below = part.split(Some(0), -i64::from(part.rank())).unwrap().unwrap();
            assert_eq!(below.rank(), part.size() - 1 - part.rank());
            below.send(0, 7, &[rank as u8]).unwrap();
            if below.rank() == 0 {
                for _ in 0..below.size() {
                    let (status, bytes) = below.recv_any(None, Some(7)).unwrap();
                    let whole = expected[(part.size() - 1 - status.source) as usize];
                    assert_eq!(bytes, [whole as u8]);
                }
            }
            assert_eq!(copy.recv((rank + 4) % 5, 0).unwrap(), b"in the copy");
        });
    }
}

/// What was sent in a part that the receiver has closed takes no room, and later parts are not disturbed.
#[test]
fn parts_come_and_go() {
    let (endpoints, members) = group(2, Over::Shm);
    on_all(&comms(&endpoints, &members, 1), |comm| {
        for round in 0..200u32 {
            let part = comm.dup().unwrap();
            if comm.rank() == 0 {
                part.send(1, 0, &[1; 100]).unwrap();
                part.send(1, 1, &round.to_le_bytes()).unwrap();
            } else {
                assert_eq!(part.recv(0, 1).unwrap(), round.to_le_bytes());
            }
        }
        comm.barrier().unwrap();
    });
}
