//! A server that its group gives up although it runs: it comes back as another member.

use crate::{Group, PATIENCE};
use forebay_client::status::ServerStatus;
use forebay_client::{Admin, Producer, ProducerOptions};
use forebay_core::ids::ServerId;
use forebay_wire::connection::Role;
use std::time::{Duration, Instant};

fn members(group: &Group) -> Vec<u32> {
    group.file().servers.iter().map(|server| server.id.0).collect()
}

fn wait_for_members(group: &Group, wanted: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    while members(group) != wanted {
        assert!(Instant::now() < deadline, "the members are {:?}, not {wanted:?}", members(group));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Somebody who claims to be a server hangs up: that server is taken for dead, and is told.
#[test]
fn it_comes_back_as_a_new_member() {
    let group = Group::start(3);
    for (claimed, others) in [(2, [0, 1, 3]), (1, [0, 3, 4])] {
        drop(group.connect(0, true, Role::Server(ServerId(claimed))));
        wait_for_members(&group, &others);
        let status = Admin::open(&group.options()).unwrap().status().unwrap();
        let agree = |server: &ServerStatus| server.error.is_none() && server.epoch == Some(status.epoch);
        assert!(status.servers.iter().all(agree));
        assert_eq!(status.lost.last().unwrap().server, u64::from(claimed));
    }
    // Some of these are where the new ones are.
    for number in 0..16 {
        let mut options = ProducerOptions::new(&format!("stream{number}"));
        options.group = group.options();
        Producer::open(&options).unwrap().close().unwrap();
    }
    group.stop();
}
