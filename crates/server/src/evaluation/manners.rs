//! How threads that compute leave processors to a simulation that wants them.
//!
//! A low priority is not enough: where a system groups processes by sessions, each group has the same share whatever the priorities in
//! it, and one that has used less than its share goes before. So while more threads want to run than there are processors, a thread
//! rests after it has computed.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Of a processor that others want a thread takes one part of so many: there are several threads, and maybe servers.
const SHARE: u32 = 64;
/// A thread rests no longer at a time: its work is done in pieces of some milliseconds.
const REST_MAX: Duration = Duration::from_secs(1);

/// A thread that computes.
#[derive(Debug)]
pub(super) struct Manners {
    began: Instant,
    /// For how long it had run before.
    ran: Duration,
}

impl Manners {
    /// It begins to compute.
    pub(super) fn begin() -> Manners {
        Manners { began: Instant::now(), ran: ran() }
    }

    /// It has computed: for how long it is to rest.
    pub(super) fn rest(self) -> Duration {
        rest(ran().saturating_sub(self.ran), self.began.elapsed(), is_crowded())
    }
}

/// For how long a thread rests that has run for so long, since so long ago; whether others want its processor.
fn rest(ran: Duration, passed: Duration, is_crowded: bool) -> Duration {
    let has_waited = passed > ran + ran / 8;
    match is_crowded || has_waited {
        true => (ran * SHARE).saturating_sub(passed).min(REST_MAX),
        false => Duration::ZERO,
    }
}

/// Whether more threads want to run than there are processors.
fn is_crowded() -> bool {
    let processors = *PROCESSORS.get_or_init(|| {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        count(online.trim()).unwrap_or(usize::MAX)
    });
    let told = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    running(&told).is_some_and(|running| running > processors)
}

static PROCESSORS: OnceLock<usize> = OnceLock::new();

/// How many there are in a list as `0-3,6`.
fn count(list: &str) -> Option<usize> {
    let one = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    list.split(',').map(one).sum()
}

/// How many threads want to run: the fourth entry of the system's load.
fn running(told: &str) -> Option<usize> {
    told.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// For how long this thread has run.
fn ran() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(clock.tv_sec.max(0) as u64, clock.tv_nsec.clamp(0, 999_999_999) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_where_others_want_the_processor() {
        let ms = Duration::from_millis;
        assert_eq!(rest(ms(2), ms(2), false), ms(0), "nobody else wants it");
        assert_eq!(rest(ms(2), ms(4), false), ms(124), "what was waited counts");
        assert_eq!(rest(ms(2), ms(2), true), ms(126));
        assert_eq!(rest(ms(2), ms(190), true), ms(0), "its low priority was enough");
        assert_eq!(rest(ms(90), ms(1800), true), REST_MAX);
        assert_eq!((count("0-3,6"), count("0"), count("")), (Some(5), Some(1), None));
        assert_eq!((running("0.5 0.4 0.3 3/812 4711"), running("")), (Some(3), None));
    }

    #[test]
    fn the_system_tells_for_how_long_a_thread_has_run() {
        let began = Manners::begin();
        while ran() == began.ran {
            std::hint::spin_loop();
        }
        assert!(began.rest() <= REST_MAX);
    }
}
