//! A process that has no descriptors left. It stands alone here: the limit is that of the whole process.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Over, comms, group, on_all};
use forebay_core::ErrorKind;
use rustix::fd::AsRawFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;

#[test]
fn descriptors_that_run_out_are_told_and_the_next_communicator_works() {
    let (endpoints, members) = group(3, Over::Shm);
    let opened = comms(&endpoints, &members, 1);
    let limit = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), ..limit }).unwrap();
    let told = on_all(&opened, |comm| comm.barrier().unwrap_err());
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(told.iter().all(|error| error.kind == ErrorKind::Unreachable), "{told:?}");
    assert!(told.iter().any(|error| error.text.contains("open files")), "{told:?}");
    drop(opened);
    // Descriptors are there again, and what was not to be reached is.
    let opened = comms(&endpoints, &members, 2);
    on_all(&opened, |comm| comm.barrier().unwrap());
}
