//! What no honest process says, from one that holds the secret: a server refuses it or does as it is told,
//! never panics, never writes or frees what is another's, and serves everybody else as before.

use crate::{BUDGET, Group, PATIENCE, Raw};
use forebay_client::status::ServerStatus;
use forebay_client::{Admin, Block, Consumer, ConsumerOptions, Producer, ProducerOptions, Selection};
use forebay_core::ErrorKind;
use forebay_core::block::{Extent, Location};
use forebay_core::contract::{Field, Need, Needs};
use forebay_core::dtype::Dtype;
use forebay_core::identity::Identity;
use forebay_core::ids::{Lineage, ServerId};
use forebay_core::membership;
use forebay_core::region::Region;
use forebay_core::roster::Roster;
use forebay_core::steps::{Durability, Joining, Policy, RunOptions, Take};
use forebay_store::strided::{Source, Target};
use forebay_wire::client::block::BytesLocation;
use forebay_wire::client::{admin, consumer, placement, producer, reading, space, worker, writing};
use forebay_wire::connection::{CloseReason, Role};
use forebay_wire::frame::Header;
use forebay_wire::peer::{cluster, directory, pipelines, replication, streams};
use forebay_wire::protocol::Protocol;
use forebay_wire::testing::{Inventor, Plain, seeds, spoil};
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
        wait_for_readers: 0,
        job: String::new(),
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

/// Any message of a client, of whatever protocol; none that waits long or ends the server.
fn client_message(inventor: &mut Inventor) -> Plain {
    if inventor.below(3) == 0 {
        let seeds::Requests { producer, consumer, reading, space } = seeds::requests();
        let mut seeds: Vec<Plain> = producer.iter().map(Plain::of).collect();
        seeds.extend(consumer.iter().map(Plain::of));
        seeds.extend(reading.iter().map(Plain::of));
        seeds.extend(space.iter().map(Plain::of));
        return seeds.swap_remove(inventor.below(seeds.len() as u64) as usize);
    }
    match inventor.below(8) {
        0 => {
            let mut request = inventor.value();
            if let producer::Request::Begin { patience_ms, .. } = &mut request {
                *patience_ms %= 3;
            }
            Plain::of(&request)
        }
        1 => Plain::of(&inventor.value::<placement::Request>()),
        2 => {
            let mut request = inventor.value();
            if let writing::Request::Reserve { patience_ms, .. } = &mut request {
                *patience_ms %= 3;
            }
            Plain::of(&request)
        }
        3 => Plain::of(&inventor.value::<consumer::Request>()),
        4 => Plain::of(&inventor.value::<reading::Request>()),
        5 => {
            let mut request = inventor.value();
            if let space::Request::Find(search) = &mut request {
                search.patience_ms %= 3;
            }
            Plain::of(&request)
        }
        6 => Plain::of(&inventor.value::<worker::Request>()),
        _ => loop {
            let mut request = inventor.value();
            match &mut request {
                admin::Request::Shutdown | admin::Request::LeaveGroup { .. } => continue,
                admin::Request::CreatePipeline { patience_ms, .. } => *patience_ms %= 3,
                _ => {}
            }
            return Plain::of(&request);
        },
    }
}

/// Any message of a server, but those about the members.
fn server_message(inventor: &mut Inventor) -> Plain {
    if inventor.below(2) == 0 {
        let mut seeds = seeds::peer();
        return Plain::from(&seeds.swap_remove(inventor.below(seeds.len() as u64) as usize));
    }
    match inventor.below(6) {
        0 => loop {
            let message = inventor.value();
            if !is_about_members(&message) {
                return Plain::of(&message);
            }
        },
        1 => Plain::of(&inventor.value::<streams::Message>()),
        2 => Plain::of(&inventor.value::<replication::Message>()),
        3 => Plain::of(&inventor.value::<directory::Message>()),
        4 => Plain::of(&inventor.value::<forebay_wire::peer::space::Message>()),
        _ => Plain::of(&inventor.value::<pipelines::Message>()),
    }
}

/// Spoils some of the messages, on their way. None becomes one that waits long, ends the server, or votes.
fn spoil_some(messages: &mut [Plain], inventor: &mut Inventor) {
    for message in messages {
        if inventor.below(4) == 0 {
            let changes = 1 + inventor.below(3);
            let bytes = spoil(message.bytes.clone(), inventor, changes);
            let spoilt = Plain { bytes, ..message.clone() };
            if !is_trouble(&spoilt) {
                *message = spoilt;
            }
        }
    }
}

fn is_trouble(message: &Plain) -> bool {
    let frame = message.frame();
    let is_about_members = frame.message().is_ok_and(|message| is_about_members(&message));
    let waits = match message.protocol {
        number if number == Protocol::Admin as u8 => match frame.message() {
            Ok(admin::Request::Shutdown | admin::Request::LeaveGroup { .. }) => Some(u64::MAX),
            Ok(admin::Request::CreatePipeline { patience_ms, .. }) => Some(patience_ms),
            _ => None,
        },
        number if number == Protocol::Producer as u8 => match frame.message() {
            Ok(producer::Request::Begin { patience_ms, .. }) => Some(patience_ms),
            _ => None,
        },
        number if number == Protocol::Writing as u8 => match frame.message() {
            Ok(writing::Request::Reserve { patience_ms, .. }) => Some(patience_ms),
            _ => None,
        },
        number if number == Protocol::Space as u8 => match frame.message() {
            Ok(space::Request::Find(search)) => Some(search.patience_ms),
            _ => None,
        },
        _ => None,
    };
    is_about_members || waits.is_some_and(|millis| millis > 1000)
}

/// What a rank says first at its home.
fn join(stream: String) -> producer::Request {
    let joining = Joining { rank: 0, who: Identity::default(), options: run_options(1) };
    producer::Request::Join { stream, joining: Box::new(joining), back_to: None }
}

fn define() -> producer::Request {
    producer::Request::Define(seeds::field())
}

fn begin(step: u64) -> producer::Request {
    producer::Request::Begin { step, time: 0.0, known: 0, patience_ms: 1000 }
}

#[test]
fn anything_a_client_may_say() {
    count_panics();
    let group = Group::start(1);
    let roles = [Role::Producer, Role::Consumer, Role::Producer, Role::Space, Role::Placement, Role::Admin];
    for seed in 0..2000 {
        let mut inventor = Inventor::new(seed);
        let role = roles[seed as usize % roles.len()].clone();
        let mut raw = group.connect(0, seed % 3 == 0, role.clone());
        let mut said = Vec::new();
        if role == Role::Producer {
            // As a rank that has opened its stream, so that the rest of what it says has a meaning.
            said.extend([Plain::of(&join(format!("s{seed}"))), Plain::of(&define()), Plain::of(&begin(3))]);
        }
        let mut messages = Vec::new();
        while messages.len() < 12 {
            let message = client_message(&mut inventor);
            // What its role does not speak ends the connection: mostly it says what it may.
            if inventor.below(40) == 0 || speaks(&role, message.protocol) {
                messages.push(message);
            }
        }
        spoil_some(&mut messages, &mut inventor);
        said.extend(messages);
        for (index, message) in said.iter().enumerate() {
            let request = if index % 2 == 0 { 0 } else { 1 << 40 };
            if raw.say(Header { request, ..Header::default() }, message, &[]).is_err() {
                break;
            }
        }
        // It has taken in all of it, or ended the connection.
        let _ = raw.ask(&reading::Request::HasBlock { arena: 0, offset: 0, bytes: 0, generation: 0 });
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
        let mut messages: Vec<Plain> = (0..12).map(|_| server_message(&mut inventor)).collect();
        spoil_some(&mut messages, &mut inventor);
        for message in messages {
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
fn is_about_members(message: &cluster::Message) -> bool {
    matches!(message, cluster::Message::Join(_) | cluster::Message::Agreement(_))
}

/// Whether a role speaks a protocol.
fn speaks(role: &Role, protocol: u8) -> bool {
    let spoken: &[Protocol] = match role {
        Role::Producer => &[Protocol::Producer, Protocol::Writing],
        Role::Placement => &[Protocol::Placement, Protocol::Writing],
        Role::Consumer => &[Protocol::Consumer, Protocol::Reading],
        Role::Space => &[Protocol::Space, Protocol::Writing, Protocol::Reading],
        Role::Worker { .. } => &[Protocol::Worker, Protocol::Reading],
        Role::Admin => &[Protocol::Admin],
        Role::Meeting => &[Protocol::Meeting],
        Role::Server(_) => &[],
    };
    spoken.iter().any(|spoken| *spoken as u8 == protocol)
}

/// What another role would say does not parse: it ends the connection, and does nothing. So a reader can neither produce nor
/// end the group.
#[test]
fn what_another_role_would_say() {
    count_panics();
    let group = Group::start(1);
    let said: [(Protocol, Plain); 8] = [
        (Protocol::Producer, Plain::of(&join("another role's".into()))),
        (Protocol::Placement, Plain::of(&placement::Request::End { step: 1 })),
        (Protocol::Writing, Plain::of(&writing::Request::Reserve { bytes: 8, patience_ms: 0 })),
        (Protocol::Consumer, Plain::of(&seeds::requests().consumer[0])),
        (Protocol::Reading, Plain::of(&seeds::requests().reading[0])),
        (Protocol::Space, Plain::of(&space::Request::Open)),
        (Protocol::Worker, Plain::of(&worker::Request::Released { execution: 1 })),
        (Protocol::Admin, Plain::of(&admin::Request::Shutdown)),
    ];
    for role in [Role::Producer, Role::Placement, Role::Consumer, Role::Space, Role::Admin] {
        for (protocol, message) in &said {
            if speaks(&role, *protocol as u8) {
                continue;
            }
            let mut raw = group.connect(0, false, role.clone());
            raw.say(Header { request: 9, ..Header::default() }, message, &[]).unwrap();
            let CloseReason(error) = last_words(&mut raw);
            assert_eq!(error.kind, ErrorKind::Protocol, "{role:?}: {error}");
            assert!(error.text.contains(protocol.name()), "{role:?}: {error}");
        }
    }
    check_it_works(&group);
    let streams = Admin::open(&group.options()).unwrap().status().unwrap().to_json()["streams"].to_string();
    assert!(!streams.contains("another role's"), "{streams}");
    check_no_panic();
    group.stop();
}

/// Why a server ends a connection.
fn last_words(raw: &mut Raw) -> CloseReason {
    let received = raw.connection.receiver.receive(Instant::now() + PATIENCE, "to end the connection");
    received.unwrap().frame.message().unwrap()
}

/// What contradicts itself is not believed; whatever it is, nobody panics over it.
#[test]
fn anything_about_the_members() {
    count_panics();
    let group = Group::start(1);
    let mut server = group.connect(0, true, Role::Server(ServerId(7)));
    server.tell(&cluster::Message::QueryRoster).unwrap();
    let cluster::Message::Admission(Ok(roster)) = said(&mut server) else { panic!("no roster") };
    let later = Roster { epoch: 1 << 40, ..(*roster).clone() };
    let nobody = Roster { members: Vec::new(), ..later.clone() };
    let unknown = Roster { next_id: ServerId(0), ..later.clone() };
    let another = Roster { lineage: Lineage([9; 16]), ..later };
    for roster in [nobody, unknown, another] {
        server.tell(&cluster::Message::Agreement(membership::Message::InForce(Arc::new(roster)))).unwrap();
    }
    for seed in 0..2000 {
        let message: membership::Message = Inventor::new(30_000 + seed).value();
        let by_whom = {
            use membership::Message as M;
            matches!(message, M::Wish(_) | M::Ask(..) | M::InForce(_))
        };
        if !by_whom {
            server.tell(&cluster::Message::Agreement(message)).unwrap();
        }
    }
    is_heard(&mut server);
    assert_eq!(group.file().epoch, 1);
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

/// What a server says over the connection on which it was asked.
fn said(server: &mut Raw) -> cluster::Message {
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
        .tell_peer(forebay_wire::peer::space::Message::Register {
            token: 1,
            step: 3,
            description: 0,
            report: report.clone(),
        })
        .unwrap();
    // Were it taken, this would be the next to fail.
    server
        .tell_peer(forebay_wire::peer::space::Message::Register { token: 2, step: 3, description: 0, report })
        .unwrap();
    is_heard(&mut server);
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

/// The server has taken what this other server told it: it answers what comes after it.
fn is_heard(server: &mut Raw) {
    server.tell(&cluster::Message::QueryRoster).unwrap();
    loop {
        match said(server) {
            cluster::Message::Admission(Ok(roster)) => return assert!(roster.contains(ServerId(0))),
            // Answers to what it said before.
            cluster::Message::Agreement(_) => {}
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
        for protocol in [Protocol::Streams as u8, Protocol::Cluster as u8, Protocol::Producer as u8, 200] {
            server.tell(&Plain { protocol, bytes: garbage.to_vec() }).unwrap();
        }
    }
    is_heard(&mut server);
    // It has not ended, so that it says nothing of the server that it claims to be.
    for server in status(&group) {
        assert_eq!(server.gone, Some(Vec::new()), "{server:?}");
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
            rank.ask(&join(stream)).unwrap();
            rank.ask(&define()).unwrap();
            rank.ask(&begin(0)).unwrap();
            let place =
                Location { server: ServerId(0), arena: 1, offset: 1 << 60, bytes: 216, generation: 1 };
            let answer = rank.ask(&producer::Request::Put(seeds::put(BytesLocation::Placed(place))));
            assert!(!matches!(answer, Ok(producer::Reply::Done)), "{answer:?}");
            let _ = rank.tell(&producer::Request::End {
                step: 0,
                blocks: 1,
                dropped: false,
                stats: Vec::new(),
                attrs: Default::default(),
            });
            let _ = rank.ask(&producer::Request::Flush);
        }
    }
    check_it_works(&group);
    for server in status(&group) {
        assert_eq!(server.gone, Some(Vec::new()), "{server:?}");
    }
    check_no_panic();
    group.stop();
}

/// What each server says of itself.
fn status(group: &Group) -> Vec<ServerStatus> {
    let status = Admin::open(&group.options()).unwrap().status().unwrap();
    status.servers
}

fn staged_bytes(group: &Group) -> u64 {
    status(group).iter().map(|server| server.staged_bytes.unwrap()).sum()
}

/// What a rank may write lies in ranges that it was granted, and only once.
#[test]
fn ranges_that_were_not_granted() {
    count_panics();
    let group = Group::start(1);
    let mut rank = group.connect(0, true, Role::Producer);
    let producer::Reply::Joined { arena: Some((arena, _)), .. } = rank.ask(&join("s".into())).unwrap() else {
        panic!("no arena");
    };
    rank.ask(&define()).unwrap();
    rank.ask(&begin(0)).unwrap();
    for bytes in [u64::MAX, u64::MAX - 4095, BUDGET * 2, 1 << 63] {
        let error = rank.ask(&writing::Request::Reserve { bytes, patience_ms: 0 }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::OverBudget);
    }
    let answer = rank.ask(&writing::Request::Reserve { bytes: 216, patience_ms: 1000 }).unwrap();
    let writing::Reply::Granted(Some(grant)) = answer else { panic!("{answer:?}") };
    let other = |arena, offset, generation| {
        producer::Request::Put(seeds::put(BytesLocation::Granted { arena, offset, generation }))
    };
    for wrong in [
        other(arena, grant.offset + 4096, grant.generation),
        other(arena, grant.offset, grant.generation + 1),
        other(arena + 1, grant.offset, grant.generation),
        other(arena, u64::MAX, grant.generation),
    ] {
        // Each ends its connection: an honest client cannot say it. So each has a rank of its own.
        let mut liar = group.connect(0, false, Role::Producer);
        let stream = format!("liar {wrong:?}").chars().filter(|c| !c.is_control()).take(200).collect();
        liar.ask(&join(stream)).unwrap();
        liar.ask(&define()).unwrap();
        liar.ask(&begin(0)).unwrap();
        let refused = liar.ask(&wrong);
        assert!(!matches!(refused, Ok(producer::Reply::Done)), "{refused:?}");
    }
    let good = other(arena, grant.offset, grant.generation);
    assert_eq!(rank.ask(&good).unwrap(), producer::Reply::Done);
    assert!(!matches!(rank.ask(&good), Ok(producer::Reply::Done)), "twice");
    check_it_works(&group);
    check_no_panic();
    group.stop();
}

/// A hold on blocks of the space is given back by who has it, by nobody else.
#[test]
fn a_lease_of_another_client() {
    count_panics();
    let group = Group::start(1);
    let mut owner = group.connect(0, false, Role::Space);
    let put = space::Request::Put(Box::new(seeds::space_put(BytesLocation::Payload)));
    let data = vec![5; 216];
    owner.say(Header { request: 77, payload: 216, ..Header::default() }, &put, &data).unwrap();
    assert_eq!(owner.answer::<space::Reply>(77).unwrap().0, space::Reply::Done);
    let region = Some(Region::new(&[4, 0], &[2, 7]).unwrap());
    let find = space::Request::Find(Box::new(space::Search {
        field: "U".into(),
        step: 3,
        region,
        shape: seeds::field().shape,
        patience_ms: 1000,
    }));
    let search = Header { request: 79, ..Header::default() };
    owner.say(search, &find, &[]).unwrap();
    let space::Reply::Found { held: true, report, .. } = owner.answer(79).unwrap().0 else {
        panic!("not found")
    };

    let mut stranger = group.connect(0, false, Role::Space);
    stranger.tell(&space::Request::Release { request: 79 }).unwrap();
    stranger.ask(&space::Request::Remove { field: "U".into(), step: 3 }).unwrap();
    assert!(staged_bytes(&group) > 0, "the block was freed although somebody holds it");
    let place = report.blocks[0].location;
    let fetch = reading::Request::Fetch(reading::Fetch {
        arena: place.arena,
        offset: place.offset,
        bytes: 216,
        generation: place.generation,
        stored: [3, 9][..].into(),
        element: 8,
        part: reading::Part { offset: [0, 0][..].into(), shape: [3, 9][..].into(), step: [1, 1][..].into() },
    });
    owner.say(Header { request: 78, ..Header::default() }, &fetch, &[]).unwrap();
    let (answer, bytes) = owner.answer::<reading::Reply>(78).unwrap();
    assert_eq!(answer, reading::Reply::Data);
    assert_eq!(bytes, data);
    owner.tell(&space::Request::Release { request: 79 }).unwrap();
    // It has been heard once what comes after it is answered.
    owner.ask(&space::Request::Open).unwrap();
    assert_eq!(staged_bytes(&group), 0);

    // Two searches of one number: what the first one found would be held for ever.
    owner.say(Header { request: 80, payload: 216, ..Header::default() }, &put, &data).unwrap();
    assert_eq!(owner.answer::<space::Reply>(80).unwrap().0, space::Reply::Done);
    owner.say(search, &find, &[]).unwrap();
    owner.answer::<space::Reply>(79).unwrap();
    owner.say(search, &find, &[]).unwrap();
    // The connection ends with all that was held over it.
    let mut other = group.connect(0, false, Role::Space);
    other.ask(&space::Request::Remove { field: "U".into(), step: 3 }).unwrap();
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
    let need = |i: u32| Need::new(&i.to_string());
    let needs = Needs::Fields((0..1_000_000).map(need).collect());
    let mut reader = group.connect(0, false, Role::Consumer);
    let attach = consumer::Attach {
        take: Take::All,
        reader: Identity::default(),
        stream: "s".into(),
        needs: needs.into(),
        window: 1,
        start: Default::default(),
        follow: false,
        held: Vec::new(),
        given_back: None,
        back: None,
        patience_ms: 20_000,
        cohort: None,
        sharer: None,
        is_followed: false,
        listen: None,
    };
    let error = reader.ask(&consumer::Request::Attach(Box::new(attach))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
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
        assert_eq!(server.gone, Some(Vec::new()), "{server:?}");
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
