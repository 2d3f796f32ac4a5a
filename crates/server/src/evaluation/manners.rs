//! How threads that compute leave processors to a simulation that wants them.
//!
//! A low priority is not enough: where a system groups processes by sessions, each group has the same share whatever the priorities in
//! it. So a thread that had to wait for a processor rests after it has computed.

use std::time::{Duration, Instant};

/// Of a processor that others want it takes one part of so many.
const SHARE: u32 = 10;
/// A thread rests no longer at a time: its work is done in pieces of a few milliseconds.
const REST_MAX: Duration = Duration::from_millis(200);

/// What the system says of a thread: for how long it has run, and for how long it has waited for a processor.
#[derive(Debug, Clone, Copy)]
struct Used {
    ran: Duration,
    waited: Duration,
}

/// A thread that computes.
#[derive(Debug)]
pub(super) struct Manners {
    since: Option<(Instant, Used)>,
}

impl Manners {
    /// It begins to compute.
    pub(super) fn begin() -> Manners {
        Manners { since: used().map(|used| (Instant::now(), used)) }
    }

    /// It has computed: for how long it is to rest.
    pub(super) fn rest(self) -> Duration {
        let (Some((began, before)), Some(now)) = (self.since, used()) else { return Duration::ZERO };
        rest(now.ran.saturating_sub(before.ran), now.waited.saturating_sub(before.waited), began.elapsed())
    }
}

/// For how long a thread rests that has run and waited for so long, since so long ago.
fn rest(ran: Duration, waited: Duration, passed: Duration) -> Duration {
    // Alone, or nearly so.
    if waited <= ran / SHARE {
        return Duration::ZERO;
    }
    (ran * SHARE).saturating_sub(passed).min(REST_MAX)
}

/// What the system says of this thread; nothing where it keeps no such account.
fn used() -> Option<Used> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = told.split_whitespace().map(|number| number.parse().ok().map(Duration::from_nanos));
    Some(Used { ran: numbers.next()??, waited: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_where_others_want_the_processor() {
        let ms = Duration::from_millis;
        assert_eq!(rest(ms(5), ms(0), ms(5)), ms(0), "nobody else wants it");
        assert_eq!(rest(ms(5), ms(5), ms(10)), ms(40), "a tenth of it, what was waited counted");
        assert_eq!(rest(ms(2), ms(60), ms(62)), ms(0), "its low priority was enough");
        assert_eq!(rest(ms(900), ms(900), ms(1800)), REST_MAX);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_tells_of_a_thread() {
        let began = Manners::begin();
        assert!(began.since.is_none_or(|(_, used)| used.ran > Duration::ZERO));
        assert!(began.rest() <= REST_MAX);
    }
}
