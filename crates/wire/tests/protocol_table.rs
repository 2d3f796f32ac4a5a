//! The tables of `docs/protocols.md` name each message of each protocol, and no other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use forebay_wire::connection::Role;
use forebay_wire::protocol::Protocol;
use forebay_wire::testing::names_of;
use forebay_wire::{client, comm, connection, peer};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

// ---- what the code has ------------------------------------------------------------------------------

fn names<T: DeserializeOwned>() -> BTreeSet<String> {
    names_of::<T>().iter().map(|name| (*name).to_owned()).collect()
}

/// What stands in a protocol's section: by the kind of the message, the names.
type Section = BTreeMap<&'static str, BTreeSet<String>>;

/// The messages of a protocol.
fn messages_of(protocol: Protocol) -> Section {
    macro_rules! section {
        ($($kind:literal: $type:ty),*) => { Section::from([$(($kind, names::<$type>())),*]) };
    }
    match protocol {
        Protocol::Connection => section! {
            "request": connection::Hello, "reply": connection::Welcome, "event": connection::CloseReason
        },
        Protocol::Producer => section! {
            "request": client::producer::Request, "reply": client::producer::Reply, "event": client::producer::Event
        },
        Protocol::Placement => section! {
            "request": client::placement::Request, "reply": client::placement::Reply,
            "event": client::placement::Event
        },
        Protocol::Writing => {
            section! { "request": client::writing::Request, "reply": client::writing::Reply }
        }
        Protocol::Consumer => section! {
            "request": client::consumer::Request, "reply": client::consumer::Reply, "event": client::consumer::Event
        },
        Protocol::Reading => {
            section! { "request": client::reading::Request, "reply": client::reading::Reply }
        }
        Protocol::Space => section! { "request": client::space::Request, "reply": client::space::Reply },
        Protocol::Worker => section! {
            "request": client::worker::Request, "reply": client::worker::Reply, "event": client::worker::Event
        },
        Protocol::Admin => section! { "request": client::admin::Request, "reply": client::admin::Reply },
        Protocol::Comm => section! { "message": comm::CommMessage },
        Protocol::Meeting => {
            section! { "request": client::meeting::Request, "reply": client::meeting::Reply }
        }
        Protocol::Cluster => section! {
            "message": peer::cluster::Message, "part": forebay_core::membership::Message
        },
        Protocol::Streams => section! { "message": peer::streams::Message },
        Protocol::Replication => section! { "message": peer::replication::Message },
        Protocol::Directory => section! { "message": peer::directory::Message },
        Protocol::SpaceDirectory => section! { "message": peer::space::Message },
        Protocol::Pipelines => section! { "message": peer::pipelines::Message },
        Protocol::Evaluation => section! { "message": peer::evaluation::Message },
        Protocol::Subscriptions => section! { "message": peer::subscriptions::Message },
    }
}

// ---- what the tables say ----------------------------------------------------------------------------

/// A line of a table.
#[derive(Debug)]
struct Line {
    section: String,
    /// What the table's first column is called.
    kind: String,
    name: String,
    /// The fourth column: what answers, or, of a reply, what it answers.
    answers: BTreeSet<String>,
}

/// The words of a cell that stand in backticks.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocols.md");
    std::fs::read_to_string(path).unwrap()
}

/// All lines of tables of five columns, by the sections in which they stand.
fn lines() -> Vec<Line> {
    let (mut section, mut kind, mut lines) = (String::new(), None, Vec::new());
    for text in page().lines() {
        if text.starts_with('#') {
            section = quoted(text).pop_first().unwrap_or_default();
        }
        let Some(row) = text.strip_prefix('|') else {
            kind = None;
            continue;
        };
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
        if cells.len() != 5 || cells[0].starts_with("---") {
            continue;
        }
        let Some(kind) = &kind else {
            kind = Some(cells[0].to_owned());
            continue;
        };
        assert!(cells.iter().all(|cell| !cell.is_empty()), "an empty cell: {text}");
        let name = quoted(cells[0]).pop_first().expect(text);
        let (section, kind, answers) = (section.clone(), kind.clone(), quoted(cells[3]));
        lines.push(Line { section, kind, name, answers });
    }
    lines
}

fn of_kind<'a>(lines: &'a [Line], protocol: &'a str, kind: &'a str) -> impl Iterator<Item = &'a Line> {
    lines.iter().filter(move |line| line.section == protocol && line.kind == kind)
}

// ---- that they are equal ----------------------------------------------------------------------------

#[test]
fn each_message_has_one_line_and_each_line_a_message() {
    let lines = lines();
    for protocol in Protocol::ALL {
        let name = protocol.name();
        let messages = messages_of(*protocol);
        let kinds: BTreeSet<&str> =
            lines.iter().filter(|line| line.section == name).map(|line| line.kind.as_str()).collect();
        assert_eq!(kinds, messages.keys().copied().collect(), "the tables of '{name}'");
        for (kind, messages) in messages {
            let told: Vec<String> = of_kind(&lines, name, kind).map(|line| line.name.clone()).collect();
            let once: BTreeSet<String> = told.iter().cloned().collect();
            assert_eq!(told.len(), once.len(), "a {kind} of '{name}' has two lines: {told:?}");
            assert_eq!(once, messages, "each {kind} of '{name}': the page, then the code");
        }
    }
    let known: BTreeSet<&str> = Protocol::ALL.iter().map(|protocol| protocol.name()).collect();
    for line in &lines {
        assert!(known.contains(line.section.as_str()), "no protocol '{}': {line:?}", line.section);
    }
}

#[test]
fn what_answers_is_there_and_answers_that() {
    let lines = lines();
    let mut answered = 0;
    for line in &lines {
        let kind = match line.kind.as_str() {
            "request" => "reply",
            "reply" => "request",
            "event" => {
                assert!(line.answers.is_empty(), "nobody answers an event: {line:?}");
                continue;
            }
            same => same,
        };
        for answer in &line.answers {
            let mut found = of_kind(&lines, &line.section, kind).filter(|other| other.name == *answer);
            let found = found.next().unwrap_or_else(|| panic!("there is no {kind} '{answer}': {line:?}"));
            let of_clients = kind != line.kind;
            assert!(
                !of_clients || found.answers.contains(&line.name),
                "the page says otherwise there: {line:?}, {found:?}"
            );
            answered += 1;
        }
        assert!(line.kind != "reply" || !line.answers.is_empty(), "a reply to nothing: {line:?}");
    }
    assert!(answered > 100, "{answered}");
}

#[test]
fn each_role_has_a_line_with_its_protocols() {
    let page = page();
    let rows = page.lines().skip_while(|line| !line.starts_with("| role |")).skip(2);
    let mut roles = BTreeSet::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').collect();
        roles.extend(quoted(cells[1]));
        for protocol in quoted(cells[3]) {
            assert!(Protocol::ALL.iter().any(|known| known.name() == protocol), "no protocol '{protocol}'");
        }
    }
    assert_eq!(roles, names::<Role>());
}
