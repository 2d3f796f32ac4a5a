//! Answers that come when nobody waits for them any more.

use crate::{Group, PATIENCE};
use forebay_client::{Producer, ProducerOptions};
use forebay_core::ErrorKind;
use forebay_core::demand::Demand;
use forebay_core::identity::Identity;
use forebay_core::ids::{ServerId, Timestamp};
use forebay_core::steps::{Durability, Joining, Policy, RunOptions};
use forebay_wire::connection::Role;
use forebay_wire::peer::streams::{self, JoinedRun};
use std::time::Instant;

/// A rank whose home gave up waiting for the stream's coordinator has not joined: it may come again.
#[test]
fn a_rank_that_joined_too_late_may_come_again() {
    let group = Group::start(1);
    let mut options = ProducerOptions::new("s");
    options.group = group.options();
    let run_options = RunOptions {
        size: 1,
        policy: Policy::DropOldest,
        keep: 0,
        queue_bytes: 1 << 30,
        continues: None,
        replicas: 1,
        durability: Durability::Local,
        wait_for_readers: 0,
        job: String::new(),
    };
    let joining = Box::new(Joining { rank: 0, who: Identity::default(), options: run_options });
    let (stream, token) = ("s".to_owned(), 1 << 50);
    // Said by another server: the rank is open from now on, and its home is nobody who would ever close it.
    let mut home = group.connect(0, true, Role::Server(ServerId(7)));
    home.tell(&streams::Message::Join {
        token,
        stream: stream.clone(),
        joining: joining.clone(),
        back_to: None,
    })
    .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut run = 1;
    while let Ok(sim) = Producer::open(&options) {
        run = sim.run() + 1;
        sim.close().unwrap();
        assert!(Instant::now() < deadline, "the join does not arrive");
    }
    // The answer, which nobody waits for.
    let run = JoinedRun {
        run,
        joining,
        demand: Demand::default(),
        cuts: Vec::new(),
        agreeing: None,
        below: 0,
        began: Timestamp::default(),
    };
    home.tell(&streams::Message::Joined { token, stream, rank: 0, result: Ok(run) }).unwrap();
    while let Err(error) = Producer::open(&options) {
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert!(Instant::now() < deadline, "the rank stays open: {error}");
    }
    group.stop();
}
