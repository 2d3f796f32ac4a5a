//! What goes wrong, and how often.

/// What a simulation does to a group.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Servers that are started at first.
    pub(super) servers: usize,
    /// Milliseconds during which things go wrong.
    pub(super) millis: u64,
    /// Things that go wrong, on average, in a second.
    pub(super) faults_per_second: f64,
    /// How many of a thousand messages are lost.
    pub(super) lost: u64,
    /// How many of a thousand messages come twice.
    pub(super) twice: u64,
    /// The longest that a message takes, in microseconds.
    pub(super) slowest: u64,
    /// How many hosts there are: on one host, death is proven.
    pub(super) hosts: usize,
    /// Milliseconds within which everybody agrees when all is well again.
    pub(super) patience: u64,
}

impl Plan {
    /// A few servers, of which things are asked all the time.
    pub(super) fn small(seed: u64) -> Plan {
        Plan {
            servers: 2 + (seed % 6) as usize,
            millis: 20_000,
            faults_per_second: 2.0,
            lost: [0, 10, 100][(seed / 6 % 3) as usize],
            twice: 20,
            slowest: [500, 5_000, 100_000][(seed / 18 % 3) as usize],
            hosts: 1 + (seed % 4) as usize,
            patience: 60_000,
        }
    }

    /// More at once, and messages that take as long as attempts do.
    pub(super) fn rough(seed: u64) -> Plan {
        Plan {
            faults_per_second: 6.0,
            lost: [50, 200][(seed % 2) as usize],
            twice: 200,
            slowest: [20_000, 400_000, 1_500_000][(seed / 2 % 3) as usize],
            hosts: 3,
            ..Plan::small(seed)
        }
    }

    /// Cuts that last for seconds, so that whole epochs are missed.
    pub(super) fn long_cuts(seed: u64) -> Plan {
        Plan {
            servers: 5 + (seed % 4) as usize,
            millis: 40_000,
            faults_per_second: 0.7,
            lost: [50, 200, 400][(seed % 3) as usize],
            slowest: [20_000, 200_000, 800_000][(seed / 3 % 3) as usize],
            ..Plan::rough(seed)
        }
    }

    /// Many servers, for a short time.
    pub(super) fn large(seed: u64) -> Plan {
        Plan { servers: 30 + (seed * 17 % 71) as usize, millis: 5_000, lost: 10, ..Plan::small(seed) }
    }

    /// A group of this size, of which nothing is asked.
    pub(super) fn quiet(servers: usize) -> Plan {
        Plan { servers, millis: 0, ..Plan::small(0) }
    }
}
