//! How threads that compute leave processors to a simulation that wants them.
//!
//! A low priority is not enough: where a system groups processes by sessions, each group has the same share whatever the priorities in
//! it. So a thread that had to wait for a processor rests after it has computed.

use std::time::{Duration, Instant};

/// Of a processor that others want it takes one part of so many.
const SHARE: u32 = 10;
/// A thread rests no longer at a time: its work is done in pieces of a few milliseconds.
const REST_MAX: Duration = Duration::from_millis(200);

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
        rest(ran().saturating_sub(self.ran), self.began.elapsed())
    }
}

/// For how long a thread rests that has run for so long, since so long ago: meanwhile it has waited.
fn rest(ran: Duration, passed: Duration) -> Duration {
    // Alone, or nearly so.
    if passed <= ran + ran / SHARE {
        return Duration::ZERO;
    }
    (ran * SHARE).saturating_sub(passed).min(REST_MAX)
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
        assert_eq!(rest(ms(5), ms(5)), ms(0), "nobody else wants it");
        assert_eq!(rest(ms(5), ms(10)), ms(40), "a tenth of it, what was waited counted");
        assert_eq!(rest(ms(2), ms(62)), ms(0), "its low priority was enough");
        assert_eq!(rest(ms(900), ms(1800)), REST_MAX);
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
