//! What a simulation does to a group, and what those do who use it.

use super::process::Micros;
use forebay_core::ids::StepNumber;
use forebay_core::steps::Durability;
use std::time::Duration;

/// How often each thing goes wrong, of all that do.
#[derive(Debug, Clone)]
pub(super) struct Odds {
    pub(super) starts: u64,
    pub(super) leaves: u64,
    pub(super) dies: u64,
    pub(super) stands_still: u64,
    pub(super) is_cut_off: u64,
    pub(super) is_healed: u64,
    pub(super) goes_on: u64,
    /// Another reader comes, for a few steps.
    pub(super) reads: u64,
}

/// What a simulation does.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Servers at first, and at most.
    pub(super) servers: u32,
    pub(super) servers_max: usize,
    pub(super) hosts: usize,
    /// Bytes that each server may hold.
    pub(super) budget: u64,
    /// How long a server may be silent.
    pub(super) silence: Duration,
    pub(super) ranks: u32,
    pub(super) readers: usize,
    pub(super) steps: StepNumber,
    /// Blocks that each rank puts in a step.
    pub(super) blocks: u64,
    pub(super) replicas: u32,
    pub(super) durability: Durability,
    /// Whether each rank puts a static field, and whether readers change their contracts now and then.
    pub(super) statics: bool,
    pub(super) changes: bool,
    /// Whether some readers are ranks of one that is parallel, or share steps.
    pub(super) company: bool,
    /// How many subscribers there are.
    pub(super) subscribers: usize,
    /// Whether servers die, stand still, or are cut off.
    pub(super) harms: bool,
    pub(super) odds: Odds,
    /// The longest that a rank computes, and a reader looks at a step.
    pub(super) computes: Duration,
    /// Microseconds between two things that go wrong, on average.
    pub(super) faults_apart: Micros,
    /// The longest that a byte takes between two hosts, in microseconds.
    pub(super) slowest: Micros,
    /// The longest time in which a process runs once.
    pub(super) moment: Micros,
}

impl Plan {
    /// Servers of one host, which share its memory; death is proven.
    pub(super) fn one_host(seed: u64) -> Plan {
        Plan {
            servers: 3,
            servers_max: 5,
            hosts: 1,
            budget: 64 << 20,
            silence: Duration::from_secs(1),
            ranks: 1 + (seed % 3) as u32,
            readers: 1 + (seed / 3 % 3) as usize,
            steps: 100,
            blocks: 1 + seed / 9 % 2,
            replicas: 2,
            durability: if seed.is_multiple_of(2) { Durability::Local } else { Durability::Replicated },
            // In half of the seeds.
            statics: seed % 4 < 2,
            changes: seed % 4 == 1,
            company: seed.is_multiple_of(4),
            subscribers: (seed % 3) as usize,
            harms: true,
            odds: Odds {
                starts: 3,
                leaves: 1,
                dies: 3,
                stands_still: 1,
                is_cut_off: 1,
                is_healed: 1,
                goes_on: 2,
                reads: 0,
            },
            computes: Duration::from_millis(60),
            faults_apart: 300_000,
            slowest: 1_000,
            moment: 2_000,
        }
    }

    /// Servers of several hosts, which are cut off now and then.
    pub(super) fn several_hosts(seed: u64) -> Plan {
        let slowest = [500, 2_000, 20_000][(seed / 4 % 3) as usize];
        Plan { servers: 4, servers_max: 7, hosts: 2 + (seed % 3) as usize, slowest, ..Plan::one_host(seed) }
    }

    /// Three copies of each block.
    pub(super) fn three_copies(seed: u64) -> Plan {
        let hosts = 1 + (seed % 3) as usize;
        Plan { servers: 5, servers_max: 8, hosts, replicas: 3, faults_apart: 200_000, ..Plan::one_host(seed) }
    }

    /// No copies: servers come and leave, and nothing is lost.
    pub(super) fn no_copies(seed: u64) -> Plan {
        Plan { hosts: 1 + (seed % 2) as usize, replicas: 1, harms: false, ..Plan::one_host(seed) }
    }

    /// Servers come and leave all the time, and some die.
    pub(super) fn many_leave(seed: u64) -> Plan {
        let odds = Odds { starts: 6, leaves: 5, dies: 2, ..Plan::one_host(seed).odds };
        Plan { servers: 4, servers_max: 7, odds, faults_apart: 150_000, ..Plan::one_host(seed) }
    }

    /// Servers stand still, often for so long that they are given up, and wake.
    pub(super) fn many_wake(seed: u64) -> Plan {
        let odds = Odds { stands_still: 4, goes_on: 1, ..Plan::one_host(seed).odds };
        Plan {
            servers: 4,
            servers_max: 7,
            odds,
            computes: Duration::from_millis(100),
            ..Plan::one_host(seed)
        }
    }

    /// Short runs, so that ranks often come and go just as servers do, and readers that change what is wanted.
    pub(super) fn short_runs(seed: u64) -> Plan {
        let odds =
            Odds { starts: 6, leaves: 3, dies: 4, stands_still: 2, reads: 3, ..Plan::one_host(seed).odds };
        Plan {
            servers: 4,
            servers_max: 7,
            ranks: 2 + (seed % 3) as u32,
            steps: 12,
            odds,
            faults_apart: 70_000,
            ..Plan::one_host(seed)
        }
    }

    /// Many servers.
    pub(super) fn many_servers(seed: u64) -> Plan {
        let servers = 20 + (seed % 3) as u32 * 10;
        Plan {
            servers,
            servers_max: servers as usize + 5,
            ranks: 6,
            steps: 40,
            faults_apart: 100_000,
            ..Plan::one_host(seed)
        }
    }
}
