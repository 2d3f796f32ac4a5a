//! Whole groups in one thread, with those who use them and everything that can go wrong, from a seed.
//!
//! The servers are the real ones, each with a runtime and a clock of its own that run when the simulation says so; what is
//! simulated is what is around them ([`crate::surroundings`]): the network ([`network`]), time and processes ([`process`]),
//! and ranks and readers that speak to them as the library for clients does. After each moment what must always hold is
//! checked ([`world`], [`book`]). A seed that fails can be run again:
//! `SEED=n cargo test -p forebay-server one_seed -- --nocapture`.

mod book;
mod caller;
mod network;
mod plan;
mod process;
mod rank;
mod reader;
mod server;
mod world;

use forebay_core::seeded::{Bug, seed};
use plan::Plan;
use world::{Violation, World};

/// How many steps and blocks were read, or what has happened that must never happen.
fn simulate(seed: u64, plan: &Plan) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, plan);
    let ran = world.run();
    let history = || world.history().join("\n");
    ran.map_err(|Violation(what)| {
        format!("seed {seed}: {what}; run it again with SEED={seed}\n{}", history())
    })?;
    Ok(world.read())
}

/// Runs some seeds of a plan: `SEEDS` says how many.
fn all_hold(seeds: u64, plan: fn(u64) -> Plan) {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(seeds);
    let (mut steps, mut blocks) = (0, 0);
    for seed in 0..seeds {
        let read = simulate(seed, &plan(seed)).unwrap_or_else(|violation| panic!("{violation}"));
        (steps, blocks) = (steps + read.0, blocks + read.1);
    }
    println!("{seeds} seeds: {steps} steps and {blocks} blocks were read");
}

#[test]
fn one_host_holds() {
    all_hold(60, Plan::one_host);
}

#[test]
fn without_copies_nothing_is_lost_as_servers_leave() {
    all_hold(30, Plan::no_copies);
}

#[test]
fn many_servers_hold() {
    all_hold(3, Plan::many_servers);
}

/// Bugs that hardly any seed hides from.
const COMMON: [Bug; 5] = [
    Bug::KeepsNothing,
    Bug::FreesOnlyItsOwn,
    Bug::TellsNothingForTheDead,
    Bug::ClosesBeforeAllHaveTold,
    Bug::TellsOnlyOfRanksAway,
];

/// Bugs that hundreds of seeds may hide from: `BUG=BeginsAnotherRun SEEDS=5000` looks for one of them.
const RARE: [Bug; 11] = [
    Bug::DecidesBeforeAllHaveTold,
    Bug::TellsOnlyTheFirstWithoutIt,
    Bug::LeavesAmidEvictions,
    Bug::BelievesItsOldCuts,
    Bug::TakesCutsFromAnybody,
    Bug::BeginsAnotherRun,
    Bug::TellsOnceWhoHasGone,
    Bug::GivesAPartForAll,
    Bug::YieldsToTheGivenUp,
    Bug::AsksOnlyThoseItKnew,
    Bug::MakesNoCopiesAgain,
];

/// Bugs that are seeded on purpose are noticed: the common ones, or the one that `BUG` names.
#[test]
fn seeded_bugs_are_caught() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let bugs = match std::env::var("BUG") {
        Ok(name) => {
            COMMON.into_iter().chain(RARE).filter(|bug| format!("{bug:?}") == name).collect::<Vec<_>>()
        }
        Err(_) => COMMON.to_vec(),
    };
    assert!(!bugs.is_empty(), "there is no such bug");
    let plan = named(&std::env::var("PLAN").unwrap_or_default());
    let mut missed = Vec::new();
    for bug in bugs {
        seed(Some(bug));
        let caught = (0..seeds).find_map(|seed| simulate(seed, &plan(seed)).err());
        seed(None);
        match caught {
            Some(violation) => println!("{bug:?}: {}", violation.lines().next().unwrap_or_default()),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// The plan of this name; of one host if there is none.
fn named(name: &str) -> fn(u64) -> Plan {
    match name {
        "several_hosts" => Plan::several_hosts,
        "three_copies" => Plan::three_copies,
        "no_copies" => Plan::no_copies,
        "many_leave" => Plan::many_leave,
        "many_wake" => Plan::many_wake,
        "many_servers" => Plan::many_servers,
        _ => Plan::one_host,
    }
}

/// Runs the seed that `SEED` names, of the plan that `PLAN` names.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var("SEED").ok().and_then(|text| text.parse().ok()) else { return };
    let plan = named(&std::env::var("PLAN").unwrap_or_default())(seed);
    let _ = tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).try_init();
    let read = simulate(seed, &plan).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{read:?}");
}
