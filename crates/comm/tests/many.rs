//! As many members on one host as a large node has.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Over, comms, group, on_all};
use forebay_comm::{Datatype, Operation, Reduction};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;

const MEMBERS: usize = 64;

#[test]
fn sixty_four_members_of_one_host_each_talk_to_all_others() {
    // Both ends of each of the 2016 connections are in this process.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (endpoints, members) = group(MEMBERS, Over::Shm);
    let comms = comms(&endpoints, &members, 1);
    let sum = Reduction::new(Datatype::UInt64, Operation::Sum).unwrap();
    on_all(&comms, |comm| {
        comm.set_timeout(Duration::from_secs(120));
        let rank = u64::from(comm.rank());
        comm.barrier().unwrap();
        for numbers in [1, 1000, 20_000] {
            let own = rank.to_ne_bytes().repeat(numbers);
            let mut all = vec![0; own.len()];
            comm.allreduce(Some(&own), &mut all, &sum).unwrap();
            assert!(all == 2016u64.to_ne_bytes().repeat(numbers));
        }
        let mut first = vec![comm.rank() as u8; 30_000];
        comm.bcast(63, &mut first).unwrap();
        assert!(first == vec![63; 30_000]);
        let given: Vec<u8> = (0..MEMBERS).flat_map(|to| [comm.rank() as u8, to as u8]).collect();
        let mut taken = vec![0; 2 * MEMBERS];
        comm.alltoall(&given, &mut taken).unwrap();
        let expected: Vec<u8> = (0..MEMBERS).flat_map(|from| [from as u8, comm.rank() as u8]).collect();
        assert_eq!(taken, expected);
    });
}
