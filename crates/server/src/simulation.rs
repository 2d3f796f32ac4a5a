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

use plan::Plan;
use world::World;

fn simulate(seed: u64, plan: &Plan) -> (u64, u64) {
    let mut world = World::new(seed, plan);
    if let Err(violation) = world.run() {
        let history = world.history().join("\n");
        panic!("seed {seed}: {}; run it again with SEED={seed}\n{history}", violation.0);
    }
    world.read()
}

/// Runs some seeds of a plan: `SEEDS` says how many.
fn all_hold(seeds: u64, plan: fn(u64) -> Plan) {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(seeds);
    let (mut steps, mut blocks) = (0, 0);
    for seed in 0..seeds {
        let read = simulate(seed, &plan(seed));
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

/// Runs the seed that `SEED` names, of the plan that `PLAN` names.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var("SEED").ok().and_then(|text| text.parse().ok()) else { return };
    let plan = match std::env::var("PLAN").as_deref() {
        Ok("several_hosts") => Plan::several_hosts(seed),
        Ok("three_copies") => Plan::three_copies(seed),
        Ok("no_copies") => Plan::no_copies(seed),
        Ok("many_servers") => Plan::many_servers(seed),
        _ => Plan::one_host(seed),
    };
    let _ = tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).try_init();
    println!("{:?}", simulate(seed, &plan));
}
