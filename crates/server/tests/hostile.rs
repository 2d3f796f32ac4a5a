//! What no honest process says, from one that holds the secret: a server refuses it or does as it is told,
//! never panics, never writes or frees what is another's, and serves everybody else as before.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "../../wire/tests/common/mod.rs"]
mod invent;
#[path = "../../wire/tests/common/seeds.rs"]
mod seeds;

use common::{BUDGET, Group, PATIENCE, Raw};
use forebay_client::{Admin, Block, Consumer, ConsumerOptions, Producer, ProducerOptions, Selection};
use forebay_core::ErrorKind;
use forebay_core::block::{Extent, Location};
use forebay_core::contract::{Field, Need, Needs};
use forebay_core::dtype::Dtype;
use forebay_core::ids::{Lineage, ServerId};
use forebay_core::membership::Message;
use forebay_core::region::Region;
use forebay_core::roster::Roster;
use forebay_core::steps::{Durability, Policy, RunOptions};
use forebay_store::strided::{Source, Target};
use forebay_wire::frame::{self, Frame, Header};
use forebay_wire::message::{Bytes, Part, Role, ToClient, ToServer};
use forebay_wire::peer::{self, PeerMessage};
use invent::{Inventor, Plain, spoil};
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

/// Panics of a server's tasks: tokio catches them, so that nobody else would notice.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        #[expect(clippy::disallowed_methods, reason = "this process is the test's own")]
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some("forebay") {
                PANICS.lock().unwrap().push(panic.to_string());
            }
            others(panic);
        }));
    });
}

fn check_no_panic() {
    assert_eq!(PANICS.lock().unwrap().as_slice(), [] as [String; 0]);
}

fn run_options(size: u32) -> RunOptions {
    RunOptions {
        size,
        policy: Policy::DropOldest,
        keep: 1,
        queue_bytes: 1 << 20,
        continues: None,
        replicas: 1,
        durability: Durability::Local,
    }
}

/// A step of a stream of its own goes through, whole.
fn check_it_works(group: &Group) {
    static COUNTER: AtomicUsize = AtomicUsize::new(0);
    let stream = format!("works {}", COUNTER.fetch_add(1, Ordering::Relaxed));
    let mut options = ConsumerOptions::new(&stream);
    options.group = group.options();
    let reader = Consumer::open(&options).unwrap();
    let mut options = ProducerOptions::new(&stream);
    options.group = group.options();
    let sim = Producer::open(&options).unwrap();
    sim.array(Field::new("U", Dtype::U8, Some(&[60, 70]), 2)).unwrap();
    let values: Vec<u8> = (0..60 * 70).map(|i| (i * 7 % 251) as u8).collect();
    sim.begin(0, 0.0).unwrap();
    let extent = Extent::new(Some(&[0, 0]), &[60, 70], &[], &[]).unwrap();
    let block = Block { field: "U", number: 0, level: 0, extent };
    sim.put(&block, &Source::of(&values, &[60, 70]).unwrap()).unwrap();
    sim.end().unwrap();
    let step = reader.next_step(Some(PATIENCE)).unwrap();
    let mut found = vec![0; values.len()];
    let mut target = Target::of(&mut found, &[60, 70]).unwrap();
    step.read("U", &Selection::region(&Region::whole(&[60, 70]).unwrap()), &mut target).unwrap();
    assert_eq!(found, values);
    sim.close().unwrap();
}

/// A message of a client, without those that wait long or end the server.
fn client_message(inventor: &mut Inventor) -> ToServer {
    if inventor.below(3) == 0 {
        let seeds = seeds::to_server();
        let index = inventor.below(seeds.len() as u64) as usize;
        return seeds[index].clone();
    }
    loop {
        let mut message: ToServer = inventor.value();
        match &mut message {
            ToServer::Shutdown | ToServer::LeaveGroup { .. } => continue,
            ToServer::Begin { patience_ms, .. }
            | ToServer::Reserve { patience_ms, .. }
            | ToServer::CreatePipeline { patience_ms, .. }
            | ToServer::SpaceFind { patience_ms, .. } => *patience_ms %= 3,
            _ => {}
        }
        return message;
    }
}

/// As it is encoded.
fn encoded<M: Serialize>(message: &M) -> Plain {
    let mut bytes = Vec::new();
    frame::encode(&Header::default(), message, None, &mut bytes).unwrap();
    Plain(bytes.split_off(frame::HEADER))
}

/// Spoils some of the messages, on their way. None becomes one that waits long or ends the server.
fn spoil_some<M: Serialize>(messages: &[M], inventor: &mut Inventor) -> Vec<Plain> {
    let mut said: Vec<Plain> = messages.iter().map(encoded).collect();
    for Plain(bytes) in &mut said {
        if inventor.below(4) == 0 {
            let changes = 1 + inventor.below(3);
            let spoilt = spoil(bytes.clone(), inventor, changes);
            let frame = Frame { header: Header::default(), body: spoilt };
            let about_members =
                frame.message::<PeerMessage>().is_ok_and(|message| is_about_members(&message));
            if !about_members && !frame.message::<ToServer>().is_ok_and(|message| is_trouble(&message)) {
                *bytes = frame.body;
            }
        }
    }
    said
}

fn is_trouble(message: &ToServer) -> bool {
    match message {
        ToServer::Shutdown | ToServer::LeaveGroup { .. } => true,
        ToServer::Begin { patience_ms, .. }
        | ToServer::Reserve { patience_ms, .. }
        | ToServer::CreatePipeline { patience_ms, .. }
        | ToServer::SpaceFind { patience_ms, .. } => *patience_ms > 1000,
        _ => false,
    }
}

#[test]
fn anything_a_client_may_say() {
    count_panics();
    let group = Group::start(1);
    for seed in 0..2000 {
        let mut inventor = Inventor::new(seed);
        let role = if seed % 2 == 0 { Role::Producer } else { Role::Consumer };
        let mut raw = group.connect(0, seed % 3 == 0, role);
        let mut said = Vec::new();
        if seed % 2 == 0 {
            // As a rank that has opened its stream, so that the rest of what it says has a meaning.
            let stream = format!("s{seed}");
            said.push(encoded(&ToServer::Produce {
                stream,
                rank: 0,
                options: run_options(1),
                back_to: None,
            }));
            said.push(encoded(&ToServer::Define(seeds::field())));
            said.push(encoded(&ToServer::Begin { step: 3, time: 0.0, known: 0, patience_ms: 1000 }));
        }
        let messages: Vec<ToServer> = (0..12).map(|_| client_message(&mut inventor)).collect();
        said.extend(spoil_some(&messages, &mut inventor));
        for (index, message) in said.iter().enumerate() {
            let request = if index % 2 == 0 { 0 } else { 1 << 40 };
            if raw.say(Header { request, ..Header::default() }, message, &[]).is_err() {
                break;
            }
        }
        // It has taken in all of it, or ended the connection.
        let _ = raw.ask(&ToServer::Status);
        if seed % 100 == 99 {
            check_it_works(&group);
        }
    }
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

#[test]
fn anything_a_server_may_say() {
    count_panics();
    let group = Group::start(1);
    for seed in 0..2000 {
        let mut inventor = Inventor::new(10_000 + seed);
        // One that is not a member, and one that claims to be this server itself.
        let claimed = if seed % 10 == 0 { 0 } else { 1 + seed as u32 % 5 };
        let mut raw = group.connect(0, seed % 3 == 0, Role::Server(ServerId(claimed)));
        let seeds = seeds::peer();
        let messages: Vec<PeerMessage> = (0..12)
            .map(|_| match inventor.below(2) {
                0 => seeds[inventor.below(seeds.len() as u64) as usize].clone(),
                _ => inventor.value(),
            })
            .filter(|message| !is_about_members(message))
            .collect();
        for message in spoil_some(&messages, &mut inventor) {
            if raw.tell(&message).is_err() {
                break;
            }
        }
        if seed % 100 == 99 {
            check_it_works(&group);
        }
    }
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

/// Who holds the secret may join, and is believed to vote.
fn is_about_members(message: &PeerMessage) -> bool {
    matches!(message, peer::cluster::Message::Join(_) | peer::cluster::Message::Agreement(_))
}

/// What contradicts itself is not believed; whatever it is, nobody panics over it.
#[test]
fn anything_about_the_members() {
    count_panics();
    let group = Group::start(1);
    let mut server = group.connect(0, true, Role::Server(ServerId(7)));
    server.tell(&peer::cluster::Message::QueryRoster).unwrap();
    let peer::cluster::Message::Admission(Ok(roster)) = said(&mut server) else { panic!("no roster") };
    let later = Roster { epoch: 1 << 40, ..(*roster).clone() };
    let nobody = Roster { members: Vec::new(), ..later.clone() };
    let unknown = Roster { next_id: ServerId(0), ..later.clone() };
    let another = Roster { lineage: Lineage([9; 16]), ..later };
    for roster in [nobody, unknown, another] {
        server.tell(&peer::cluster::Message::Agreement(Message::InForce(Arc::new(roster)))).unwrap();
    }
    for seed in 0..2000 {
        let message: Message = Inventor::new(30_000 + seed).value();
        let by_whom = matches!(message, Message::Wish(_) | Message::Ask(..) | Message::InForce(_));
        if !by_whom {
            server.tell(&peer::cluster::Message::Agreement(message)).unwrap();
        }
    }
    is_heard(&mut server);
    assert_eq!(group.file().epoch, 1);
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

/// What a server says over the connection on which it was asked.
fn said(server: &mut Raw) -> PeerMessage {
    let received = server.connection.receiver.receive(Instant::now() + PATIENCE, "to answer").unwrap();
    received.frame.message().unwrap()
}

/// A field whose dimensions contradict its shape: what looks for blocks in it relies on both.
#[test]
fn a_field_that_contradicts_itself() {
    count_panics();
    let group = Group::start(1);
    let mut report = seeds::field_report();
    report.field.shape = Some([20][..].into());
    let mut server = group.connect(0, true, Role::Server(ServerId(3)));
    server
        .tell(&peer::space::Message::Register { token: 1, step: 3, description: 0, report: report.clone() })
        .unwrap();
    // Were it taken, this would be the next to fail.
    server.tell(&peer::space::Message::Register { token: 2, step: 3, description: 0, report }).unwrap();
    is_heard(&mut server);
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

/// The server has taken what this other server told it: it answers what comes after it.
fn is_heard(server: &mut Raw) {
    server.tell(&peer::cluster::Message::QueryRoster).unwrap();
    loop {
        match said(server) {
            peer::cluster::Message::Admission(Ok(roster)) => return assert!(roster.contains(ServerId(0))),
            // Answers to what it said before.
            peer::cluster::Message::Agreement(_) => {}
            answer => panic!("{answer:?}"),
        }
    }
}

/// A message that cannot be read costs that message, not the server that sent it.
#[test]
fn a_message_of_a_server_that_cannot_be_read() {
    count_panics();
    let group = Group::start(2);
    let mut server = group.connect(0, true, Role::Server(ServerId(1)));
    for garbage in [&[0xff; 20][..], &[], &[5]] {
        server.tell(&Plain(garbage.to_vec())).unwrap();
    }
    is_heard(&mut server);
    // It has not ended, so that it says nothing of the server that it claims to be.
    for server in status(&group) {
        assert_eq!(server["gone"].as_array().map(Vec::len), Some(0), "{server}");
    }
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

/// A place that no arena has, said by a rank to its home: refused there, since the coordinator could not read it.
#[test]
fn blocks_that_are_placed_nowhere() {
    count_panics();
    let group = Group::start(2);
    for home in 0..2 {
        for stream in ["a", "b", "c", "d"] {
            let stream = format!("{stream} {home}");
            let mut rank = group.connect(home, true, Role::Producer);
            rank.ask(&ToServer::Produce { stream, rank: 0, options: run_options(1), back_to: None }).unwrap();
            rank.ask(&ToServer::Define(seeds::field())).unwrap();
            rank.ask(&ToServer::Begin { step: 0, time: 0.0, known: 0, patience_ms: 1000 }).unwrap();
            let place =
                Location { server: ServerId(0), arena: 1, offset: 1 << 60, bytes: 216, generation: 1 };
            let answer = rank.ask(&ToServer::Put(seeds::put(Bytes::Placed(place))));
            assert!(!matches!(answer, Ok(ToClient::Done)), "{answer:?}");
            let _ = rank.tell(&ToServer::End { step: 0, blocks: 1, dropped: false });
            let _ = rank.ask(&ToServer::Flush);
        }
    }
    check_it_works(&group);
    for server in status(&group) {
        assert_eq!(server["gone"].as_array().map(Vec::len), Some(0), "{server}");
    }
    check_no_panic();
    group.stop();
}

/// What each server says of itself.
fn status(group: &Group) -> Vec<serde_json::Value> {
    let status = Admin::open(&group.options()).unwrap().status().unwrap();
    status["servers"].as_array().unwrap().clone()
}

fn staged_bytes(group: &Group) -> u64 {
    status(group).iter().map(|server| server["staged_bytes"].as_u64().unwrap()).sum()
}

/// What a rank may write lies in ranges that it was granted, and only once.
#[test]
fn ranges_that_were_not_granted() {
    count_panics();
    let group = Group::start(1);
    let mut rank = group.connect(0, true, Role::Producer);
    let produce = ToServer::Produce { stream: "s".into(), rank: 0, options: run_options(1), back_to: None };
    let ToClient::Producing { arena: Some((arena, _)), .. } = rank.ask(&produce).unwrap() else {
        panic!("no arena");
    };
    rank.ask(&ToServer::Define(seeds::field())).unwrap();
    rank.ask(&ToServer::Begin { step: 0, time: 0.0, known: 0, patience_ms: 1000 }).unwrap();
    for bytes in [u64::MAX, u64::MAX - 4095, BUDGET * 2, 1 << 63] {
        let answer = rank.ask(&ToServer::Reserve { bytes, patience_ms: 0 }).unwrap();
        assert!(matches!(answer, ToClient::Failed(error) if error.kind == ErrorKind::OverBudget));
    }
    let answer = rank.ask(&ToServer::Reserve { bytes: 216, patience_ms: 1000 }).unwrap();
    let ToClient::Granted(Some(grant)) = answer else { panic!("{answer:?}") };
    let other =
        |arena, offset, generation| ToServer::Put(seeds::put(Bytes::Granted { arena, offset, generation }));
    for wrong in [
        other(arena, grant.offset + 4096, grant.generation),
        other(arena, grant.offset, grant.generation + 1),
        other(arena + 1, grant.offset, grant.generation),
        other(arena, u64::MAX, grant.generation),
    ] {
        // Each ends its connection: an honest client cannot say it. So each has a rank of its own.
        let mut liar = group.connect(0, false, Role::Producer);
        let stream = format!("liar {wrong:?}").chars().filter(|c| !c.is_control()).take(200).collect();
        liar.ask(&ToServer::Produce { stream, rank: 0, options: run_options(1), back_to: None }).unwrap();
        liar.ask(&ToServer::Define(seeds::field())).unwrap();
        liar.ask(&ToServer::Begin { step: 0, time: 0.0, known: 0, patience_ms: 1000 }).unwrap();
        let refused = liar.ask(&wrong);
        assert!(!matches!(refused, Ok(ToClient::Done)), "{refused:?}");
    }
    let good = other(arena, grant.offset, grant.generation);
    assert!(matches!(rank.ask(&good).unwrap(), ToClient::Done));
    assert!(!matches!(rank.ask(&good), Ok(ToClient::Done)), "twice");
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

/// A hold on blocks of the space is given back by who has it, by nobody else.
#[test]
fn a_lease_of_another_client() {
    count_panics();
    let group = Group::start(1);
    let mut owner = group.connect(0, false, Role::Consumer);
    let put = ToServer::SpacePut(Box::new(seeds::space_put(Bytes::Payload)));
    let data = vec![5; 216];
    owner.say(Header { request: 77, payload: 216, ..Header::default() }, &put, &data).unwrap();
    assert!(matches!(owner.answer(77).unwrap().0, ToClient::Done));
    let region = Some(Region::new(&[4, 0], &[2, 7]).unwrap());
    let find = ToServer::SpaceFind {
        field: "U".into(),
        step: 3,
        region,
        shape: seeds::field().shape,
        patience_ms: 1000,
    };
    let search = Header { request: 79, ..Header::default() };
    owner.say(search, &find, &[]).unwrap();
    let ToClient::Found { held: true, report, .. } = owner.answer(79).unwrap().0 else { panic!("not found") };

    let mut stranger = group.connect(0, false, Role::Consumer);
    stranger.tell(&ToServer::SpaceRelease { request: 79 }).unwrap();
    stranger.ask(&ToServer::SpaceRemove { field: "U".into(), step: 3 }).unwrap();
    assert!(staged_bytes(&group) > 0, "the block was freed although somebody holds it");
    let place = report.blocks[0].location;
    let fetch = ToServer::Fetch {
        arena: place.arena,
        offset: place.offset,
        bytes: 216,
        generation: place.generation,
        stored: [3, 9][..].into(),
        element: 8,
        part: Part { offset: [0, 0][..].into(), shape: [3, 9][..].into(), step: [1, 1][..].into() },
    };
    owner.say(Header { request: 78, ..Header::default() }, &fetch, &[]).unwrap();
    let (answer, bytes) = owner.answer(78).unwrap();
    assert!(matches!(answer, ToClient::Data), "{answer:?}");
    assert_eq!(bytes, data);
    owner.tell(&ToServer::SpaceRelease { request: 79 }).unwrap();
    owner.ask(&ToServer::Status).unwrap();
    assert_eq!(staged_bytes(&group), 0);

    // Two searches of one number: what the first one found would be held for ever.
    owner.say(Header { request: 80, payload: 216, ..Header::default() }, &put, &data).unwrap();
    assert!(matches!(owner.answer(80).unwrap().0, ToClient::Done));
    owner.say(search, &find, &[]).unwrap();
    owner.answer(79).unwrap();
    owner.say(search, &find, &[]).unwrap();
    // The connection ends with all that was held over it.
    let mut other = group.connect(0, false, Role::Consumer);
    other.ask(&ToServer::SpaceRemove { field: "U".into(), step: 3 }).unwrap();
    let began = Instant::now();
    while staged_bytes(&group) > 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "what was found is held for ever");
    }
    check_no_panic();
    group.stop();
}

/// A contract of very many fields is refused before it is compared with itself.
#[test]
fn absurd_contracts() {
    count_panics();
    let group = Group::start(1);
    let need = |i: u32| Need { field: i.to_string(), dtype: None, every: 1 };
    let needs = Needs::Fields((0..1_000_000).map(need).collect());
    let mut reader = group.connect(0, false, Role::Consumer);
    let attach = ToServer::Attach {
        stream: "s".into(),
        needs,
        window: 1,
        start: Default::default(),
        follow: false,
        held: Vec::new(),
        back: None,
    };
    let answer = reader.ask(&attach).unwrap();
    assert!(matches!(&answer, ToClient::Failed(error) if error.kind == ErrorKind::Invalid), "{answer:?}");
    check_it_works(&group);
    group.stop();
}

fn put_many(sim: &Producer, from: u64, count: u64) {
    let values = vec![3u8; 1000];
    let source = Source::of(&values, &[1000]).unwrap();
    for number in from..from + count {
        let extent = Extent::new(None, &[1000], &[], &[]).unwrap();
        sim.put(&Block { field: "x", number, level: 0, extent }, &source).unwrap();
    }
}

/// More small blocks than one message can tell of: said to who put them, or to who would read them, and no
/// server is taken for dead.
#[test]
fn very_many_small_blocks() {
    count_panics();
    let group = Group::start(2);
    let mut options = ConsumerOptions::new("many");
    options.group = group.options();
    let reader = Consumer::open(&options).unwrap();
    let ranks: Vec<Producer> = (0..4)
        .map(|rank| {
            let mut options = ProducerOptions::new("many");
            (options.group, options.rank, options.size) = (group.options(), rank, 4);
            let sim = Producer::open(&options).unwrap();
            sim.array(Field::new("x", Dtype::U8, None, 1)).unwrap();
            sim
        })
        .collect();
    // One rank has too many: it is told, and its step is a gap for readers.
    for sim in &ranks {
        sim.begin(0, 0.0).unwrap();
    }
    put_many(&ranks[0], 0, 17_000);
    for sim in &ranks {
        sim.end().unwrap();
    }
    let told: Vec<_> = ranks.iter().filter_map(|sim| sim.flush().err()).collect();
    assert_eq!(told.iter().map(|error| error.kind).collect::<Vec<_>>(), [ErrorKind::OverBudget], "{told:?}");
    // A step in bounds goes through.
    for sim in &ranks {
        sim.begin(1, 0.0).unwrap();
        put_many(sim, 0, 2);
        sim.end().unwrap();
    }
    let step = reader.next_step(Some(PATIENCE)).unwrap();
    assert_eq!((step.number(), step.report().missed), (1, 1));
    assert_eq!(step.records("x").unwrap().len(), 8);
    step.release();
    // Each rank is in bounds, but all of them together are not: the reader is told.
    for sim in &ranks {
        sim.begin(2, 0.0).unwrap();
        put_many(sim, 0, 6_000);
        sim.end().unwrap();
    }
    let error = reader.next_step(Some(PATIENCE)).unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.text.contains("step 2"), "{error}");
    ranks.iter().for_each(|sim| sim.close().unwrap());
    for server in status(&group) {
        assert_eq!(server["gone"].as_array().map(Vec::len), Some(0), "{server}");
    }
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A client that dies between its handshake and its greeting leaves nothing behind.
#[test]
fn connections_that_never_greet() {
    let group = Group::start(1);
    check_it_works(&group);
    for shm in [true, false] {
        for _ in 0..200 {
            drop(group.dial(0, shm));
        }
    }
    let deadline = Instant::now() + PATIENCE;
    // Other tests of this process have files open too, but not this many.
    while open_files() > 300 {
        assert!(Instant::now() < deadline, "{} files are open", open_files());
        std::thread::yield_now();
    }
    check_it_works(&group);
    group.stop();
}
