//! Whole groups in one thread, with everything that can go wrong between and to their servers, from a seed.
//!
//! The state machines are those that servers run; what is simulated is what is around them: a network that loses,
//! repeats, delays and reorders messages and is cut one way or both, clocks that run at different speeds, processes that
//! stop, wake and die, a failure detector that is sometimes wrong. After each event what must always hold is checked
//! ([`checks`]). A seed that fails can be run again: `SEED=n cargo test -p forebay-core one_seed -- --nocapture`.

mod checks;
mod faults;
mod world;

use crate::seeded::{Bug, seed};
use checks::Violation;
use faults::Plan;
use world::{Ending, World};

fn simulate(seed: u64, plan: &Plan) -> Result<(Ending, World), Violation> {
    let mut world = World::new(seed, plan);
    world.run_with_faults(plan)?;
    world.heal_everything();
    let ending = world.settle(plan)?;
    Ok((ending, world))
}

fn report(seed: u64, violation: &Violation) -> String {
    format!("seed {seed}: {violation}; run it again with SEED={seed}")
}

/// Runs seeds of which none breaks anything, and all but a few end with a group that agrees.
fn all_hold(seeds: u64, plan: fn(u64) -> Plan) {
    let mut without_quorum = 0;
    for seed in 0..seeds {
        match simulate(seed, &plan(seed)) {
            Ok((Ending::Agreed, _)) => {}
            Ok((Ending::NoQuorum, _)) => without_quorum += 1,
            Err(violation) => panic!("{}", report(seed, &violation)),
        }
    }
    assert!(without_quorum < seeds / 2, "{without_quorum} of {seeds} groups had no quorum in the end");
}

#[test]
fn small_groups_hold() {
    all_hold(300, Plan::small);
}

#[test]
fn rough_times_are_held_out() {
    all_hold(300, Plan::rough);
}

#[test]
fn long_cuts_are_held_out() {
    all_hold(300, Plan::long_cuts);
}

#[test]
fn large_groups_hold() {
    all_hold(4, Plan::large);
}

/// Messages grow with the members, and rounds not at all.
#[test]
fn a_join_takes_few_messages_and_rounds() {
    for servers in [10, 100, 1000] {
        let mut world = World::new(3, &Plan::quiet(servers));
        let taken = world.messages_and_rounds_of_a_join();
        let (messages, rounds) = taken.unwrap_or_else(|violation| panic!("{violation}"));
        println!("{servers} servers: {messages} messages, {rounds:.1} times the longest that one takes");
        assert!(messages <= 6 * servers as u64 && rounds < 14.0, "{servers}: {messages}, {rounds}");
    }
}

/// Each bug that is seeded on purpose is noticed; [`Bug::StandsByForEver`] and [`Bug::DoesNotWaitForTheFormer`], which
/// chance hardly ever brings to light, in the tests of `membership`.
#[test]
fn seeded_bugs_are_caught() {
    let bugs = [
        Bug::AcceptsBelowItsPromise,
        Bug::ForgetsWhatItAccepted,
        Bug::KeepsItsOwnValue,
        Bug::TakesOverFromTheLowest,
        Bug::HalfIsEnough,
        Bug::EverybodySkipsTheFirstPhase,
        Bug::AnswersAboutAnyEpoch,
        Bug::TakesAcceptedForDecided,
        Bug::DoesNotWaitForLeases,
        Bug::LeaseCountsFromItsGrant,
        Bug::GrantsToTheEvicted,
        Bug::AcknowledgesWithoutALease,
        Bug::AcknowledgesWhileItLeaves,
        Bug::GivesIdsAgain,
        Bug::WitnessForgets,
    ];
    let mut missed = Vec::new();
    for bug in bugs {
        seed(Some(bug));
        let caught =
            (0..5000).find_map(|seed| simulate(seed, &Plan::rough(seed)).err().map(|found| (seed, found)));
        seed(None);
        match caught {
            Some((seed, violation)) => println!("{bug:?}: {}", report(seed, &violation)),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// Prints a hash of each trace, of as many seeds as `TRACES` says: what changes no behaviour leaves them as they are.
#[test]
fn traces() {
    let seeds = std::env::var("TRACES").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in 0..seeds {
        for (name, plan) in
            [("small", Plan::small(seed)), ("rough", Plan::rough(seed)), ("long_cuts", Plan::long_cuts(seed))]
        {
            let (_, world) =
                simulate(seed, &plan).unwrap_or_else(|violation| panic!("{}", report(seed, &violation)));
            println!("{name} {seed}: {:016x}", world.trace());
        }
    }
}

/// Runs the seed that `SEED` names.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var("SEED").ok().and_then(|text| text.parse().ok()) else { return };
    for plan in [Plan::small(seed), Plan::rough(seed), Plan::long_cuts(seed)] {
        if let Err(violation) = simulate(seed, &plan) {
            panic!("{}", report(seed, &violation));
        }
    }
}
