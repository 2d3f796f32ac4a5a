//! Whole groups in one thread, with those who use them and everything that can go wrong, from a seed.
//!
//! The servers are the real ones, each with a runtime and a clock of its own that run when the simulation says so; what is
//! simulated is what is around them ([`forebay_cluster::environment`]): the network ([`network`]), time and processes ([`process`]),
//! and ranks and readers that speak to them as the library for clients does. After each moment what must always hold is
//! checked ([`world`], [`book`]). A seed that fails can be run again:
//! `SEED=n cargo test -p forebay-server one_seed -- --nocapture`.

mod book;
mod caller;
mod conformance;
mod network;
mod plan;
mod process;
mod rank;
mod reader;
mod server;
mod subscriber;
mod world;

use std::ops::Range;

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
    all_hold(40, Plan::one_host);
}

#[test]
fn several_hosts_hold() {
    all_hold(20, Plan::several_hosts);
}

#[test]
fn three_copies_hold() {
    all_hold(20, Plan::three_copies);
}

#[test]
fn short_runs_hold() {
    all_hold(40, Plan::short_runs);
}

#[test]
fn it_holds_as_many_leave_and_wake() {
    all_hold(20, Plan::many_leave);
    all_hold(20, Plan::many_wake);
}

#[test]
fn without_copies_nothing_is_lost_as_servers_leave() {
    all_hold(30, Plan::no_copies);
}

#[test]
fn many_servers_hold() {
    all_hold(3, Plan::many_servers);
}

/// Bugs that are seeded on purpose, each with a plan of which few seeds hide it, and the first of the seeds that are looked at:
/// one shortly before one that shows it.
const CAUGHT: [(Bug, &str, u64); 9] = [
    (Bug::KeepsNothing, "one_host", 0),
    (Bug::FreesOnlyItsOwn, "one_host", 0),
    (Bug::KeepsProgressToItself, "one_host", 0),
    (Bug::TellsNothingForTheDead, "one_host", 0),
    (Bug::ClosesBeforeAllHaveTold, "one_host", 0),
    (Bug::TellsOnlyOfRanksAway, "one_host", 0),
    (Bug::DecidesBeforeAllHaveTold, "short_runs", 80),
    (Bug::TakesCutsFromAnybody, "short_runs", 94),
    (Bug::BelievesEachSuspicion, "several_hosts", 33),
];

/// Others, that hundreds of seeds may hide: `BUG=BeginsAnotherRun PLAN=many_leave SEEDS=5000 cargo test -p forebay-server one_bug`
/// looks for one.
const HIDDEN: [Bug; 13] = [
    Bug::TellsOnceWhoHasGone,
    Bug::TellsOnlyTheFirstWithoutIt,
    Bug::ForgetsCutsOfThoseGone,
    Bug::AnswersLeavesAtOnce,
    Bug::KeepsLeavesToItself,
    Bug::LeavesAmidEvictions,
    Bug::BelievesItsOldCuts,
    Bug::BeginsAnotherRun,
    Bug::GivesAPartForAll,
    Bug::YieldsToTheGivenUp,
    Bug::SettlesWhatComesLate,
    Bug::AsksOnlyThoseItKnew,
    Bug::MakesNoCopiesAgain,
];

/// In how many seeds a bug is looked for.
const LOOKS: u64 = 200;

/// The violation that the first seed shows in which a bug is noticed. Without the bug that seed holds.
fn caught(bug: Bug, plan: fn(u64) -> Plan, mut seeds: Range<u64>) -> Option<String> {
    seed(Some(bug));
    let caught = seeds.find_map(|seed| Some((seed, simulate(seed, &plan(seed)).err()?)));
    seed(None);
    let (number, violation) = caught?;
    simulate(number, &plan(number)).unwrap_or_else(|violation| panic!("without a bug: {violation}"));
    Some(violation)
}

/// Bugs that are seeded on purpose are noticed.
#[test]
fn seeded_bugs_are_caught() {
    let mut missed = Vec::new();
    for (bug, plan, first) in CAUGHT {
        match caught(bug, named(plan), first..first + LOOKS) {
            Some(violation) => println!("{bug:?}: {}", violation.lines().next().unwrap_or_default()),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// Looks for the bug that `BUG` names in `SEEDS` seeds of the plan that `PLAN` names.
#[test]
fn one_bug() {
    let Ok(name) = std::env::var("BUG") else { return };
    let all = CAUGHT.into_iter().map(|(bug, ..)| bug).chain(HIDDEN);
    let bug = all.into_iter().find(|bug| format!("{bug:?}") == name).expect("there is no such bug");
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(LOOKS);
    match caught(bug, named(&std::env::var("PLAN").unwrap_or_default()), 0..seeds) {
        Some(violation) => println!("{bug:?}: {}", violation.lines().next().unwrap_or_default()),
        None => panic!("not noticed: {bug:?}"),
    }
}

/// The plan of this name; of one host if there is none.
fn named(name: &str) -> fn(u64) -> Plan {
    match name {
        "several_hosts" => Plan::several_hosts,
        "three_copies" => Plan::three_copies,
        "no_copies" => Plan::no_copies,
        "many_leave" => Plan::many_leave,
        "many_wake" => Plan::many_wake,
        "short_runs" => Plan::short_runs,
        "many_servers" => Plan::many_servers,
        _ => Plan::one_host,
    }
}

/// Prints a hash of each trace, of as many seeds as `TRACES` says: what changes no behaviour leaves them as they are.
#[test]
fn traces() {
    let seeds = std::env::var("TRACES").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let plans =
        ["one_host", "several_hosts", "three_copies", "no_copies", "many_leave", "many_wake", "short_runs"];
    for seed in 0..seeds {
        let plan = plans[seed as usize % plans.len()];
        let mut world = World::new(seed, &named(plan)(seed));
        let ran = world.run();
        println!(
            "{plan} {seed}: {:016x}{}",
            world.trace(),
            ran.map_or_else(|Violation(what)| format!(", {what}"), |()| String::new())
        );
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
