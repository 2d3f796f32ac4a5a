//! One suite that the session of every role passes: its welcome, its answers, and its end, however that comes about.

use crate::{Group, PATIENCE, Raw};
use forebay_client::Admin;
use forebay_core::contract::Needs;
use forebay_core::identity::Identity;
use forebay_core::steps::{Durability, Joining, Policy, RunOptions, Take};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::consumer::Attach;
use forebay_wire::client::{admin, consumer, placement, producer, space};
use forebay_wire::connection::{CloseReason, Role};
use forebay_wire::frame::{Frame, Header, encode};
use forebay_wire::protocol::{Protocol, Request};
use forebay_wire::testing::Plain;
use std::time::{Duration, Instant};

/// What the suite needs to know of a role.
struct Case {
    role: Role,
    /// Something that the server answers.
    question: Plain,
    /// Whether a frame is an answer to that; what was refused is one too.
    is_answer: fn(&Frame) -> bool,
    /// What this role does not say.
    foreign: Plain,
}

impl Case {
    fn new<Q: Request>(role: Role, question: &Q) -> Case {
        let foreign = match role {
            Role::Admin => Plain::of(&space::Request::Open),
            _ => Plain::of(&admin::Request::Status),
        };
        let is_answer = |frame: &Frame| frame.message::<Result<Q::Reply>>().is_ok();
        Case { role, question: Plain::of(question), is_answer, foreign }
    }

    /// Asks under this number, and does not wait.
    fn ask(&self, raw: &mut Raw, number: u64) {
        raw.say(Header { request: number, ..Header::default() }, &self.question, &[]).unwrap();
    }

    /// Waits for the answer under this number; what is told meanwhile is passed over.
    fn expect_answer(&self, raw: &mut Raw, number: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let frame = raw.connection.receiver.receive(deadline, "to answer").unwrap().frame;
            if frame.header.request == number {
                assert!((self.is_answer)(&frame), "{:?}", self.role);
                return;
            }
            assert_eq!(frame.header.request, 0, "an answer to what was not asked");
        }
    }
}

fn cases() -> Vec<Case> {
    let options = RunOptions {
        size: 1,
        policy: Policy::DropOldest,
        keep: 1,
        queue_bytes: 1 << 20,
        continues: None,
        replicas: 1,
        durability: Durability::Local,
        wait_for_readers: 0,
        job: String::new(),
    };
    let joining = Box::new(Joining { rank: 0, who: Identity::default(), options });
    let join = producer::Request::Join { stream: "s".into(), joining, back_to: None };
    let place = placement::Request::Open {
        stream: "s".into(),
        run: 1,
        rank: 0,
        policy: Policy::Block,
        copies: 0,
        durability: Durability::Local,
    };
    let attach = Attach {
        take: Take::All,
        reader: Identity::default(),
        stream: "s".into(),
        needs: Needs::all(1).into(),
        window: 3,
        start: Default::default(),
        follow: true,
        held: Vec::new(),
        given_back: None,
        back: None,
        patience_ms: 20_000,
        cohort: None,
        sharer: None,
        is_followed: false,
        listen: None,
    };
    vec![
        Case::new(Role::Producer, &join),
        Case::new(Role::Placement, &place),
        Case::new(Role::Consumer, &consumer::Request::Attach(Box::new(attach))),
        Case::new(Role::Space, &space::Request::Open),
        Case::new(Role::Admin, &admin::Request::Status),
    ]
}

/// How many connections of a role the server has.
fn connections(group: &Group, role: &Role) -> u64 {
    let status = Admin::open(&group.options()).unwrap().status().unwrap();
    let counted = status.servers[0].connections.as_ref().unwrap().get(role.name()).copied().unwrap_or(0);
    // The one that asks is an administrator's.
    counted - u64::from(*role == Role::Admin)
}

fn wait_for_connections(group: &Group, role: &Role, wanted: u64) {
    let deadline = Instant::now() + PATIENCE;
    while connections(group, role) != wanted {
        assert!(
            Instant::now() < deadline,
            "{role:?}: {} connections, not {wanted}",
            connections(group, role)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the server says last, if it says anything.
fn last_words(raw: &mut Raw) -> Option<Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match raw.connection.receiver.receive(deadline, "to end the connection") {
            Ok(received) => {
                if let Ok(CloseReason(error)) = received.frame.message() {
                    return Some(error);
                }
            }
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
                return None;
            }
        }
    }
}

/// Runs a test for every role.
fn with_each(test: impl Fn(&Group, &Case)) {
    let group = Group::start(1);
    cases().iter().for_each(|case| test(&group, case));
    group.stop();
}

/// Runs a test for every role over TCP. Whatever is done in it, nothing is left. (What a process shares memory with stays until
/// that process ends, which is this one's own over shared memory.)
fn without_a_trace(test: impl Fn(&Group, &Case)) {
    with_each(|group, case| {
        test(group, case);
        wait_for_connections(group, &case.role, 0);
        let status = Admin::open(&group.options()).unwrap().status().unwrap();
        assert_eq!(status.servers[0].staged_bytes, Some(0));
        assert!(status.streams.iter().all(|stream| stream.ranks.open == 0), "{status:?}");
    });
}

#[test]
fn it_is_welcomed_and_counted() {
    without_a_trace(|group, case| {
        let first = group.connect(0, false, case.role.clone());
        wait_for_connections(group, &case.role, 1);
        let second = group.connect(0, false, case.role.clone());
        wait_for_connections(group, &case.role, 2);
        drop(first);
        wait_for_connections(group, &case.role, 1);
        drop(second);
    });
}

#[test]
fn what_it_asks_is_answered_under_its_number() {
    for shm in [true, false] {
        with_each(|group, case| {
            let mut raw = group.connect(0, shm, case.role.clone());
            case.ask(&mut raw, 4711);
            case.expect_answer(&mut raw, 4711);
        });
    }
}

#[test]
fn what_another_role_says_ends_it_with_the_reason() {
    for shm in [true, false] {
        with_each(|group, case| {
            let mut raw = group.connect(0, shm, case.role.clone());
            raw.say(Header { request: 9, ..Header::default() }, &case.foreign, &[]).unwrap();
            let error = last_words(&mut raw).expect("the reason is told");
            assert_eq!(error.kind, ErrorKind::Protocol, "{:?}: {error}", case.role);
            let protocol = Protocol::of_number(case.foreign.protocol).unwrap();
            assert!(error.text.contains(protocol.name()), "{:?}: {error}", case.role);
        });
    }
}

/// It dies when it has just asked, and nobody takes the answer.
#[test]
fn it_dies_with_a_question_open() {
    without_a_trace(|group, case| {
        let mut raw = group.connect(0, false, case.role.clone());
        case.ask(&mut raw, 1);
    });
}

/// It dies amid a message: what it had done is undone, and what it had begun to say is not done.
#[test]
fn it_dies_amid_a_message() {
    without_a_trace(|group, case| {
        let mut raw = group.connect(0, false, case.role.clone());
        case.ask(&mut raw, 1);
        case.expect_answer(&mut raw, 1);
        let mut whole = Vec::new();
        encode(&Header::default(), &case.question, None, &mut whole).unwrap();
        let half = &whole[..whole.len() / 2];
        raw.connection.sender.send_payload(half, true, Instant::now() + PATIENCE).unwrap();
    });
}

/// The server ends, and the connection with it.
#[test]
fn it_ends_with_the_server() {
    for shm in [true, false] {
        let group = Group::start(1);
        let mut all: Vec<Raw> = cases().into_iter().map(|case| group.connect(0, shm, case.role)).collect();
        group.stop();
        for raw in &mut all {
            last_words(raw);
        }
    }
}

/// Of workers, only those have a session that the server has started; Python's tests play those.
#[test]
fn a_worker_that_nobody_has_started_is_refused() {
    let group = Group::start(1);
    let role = Role::Worker { pipeline: "none".into(), instance: 1 };
    let mut raw = group.connect(0, false, role.clone());
    let error = last_words(&mut raw).expect("the reason is told");
    assert!(error.text.contains("none"), "{error}");
    wait_for_connections(&group, &role, 0);
    group.stop();
}
