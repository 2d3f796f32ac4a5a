//! Times that users give, in seconds.

use forebay_core::{Error, Result};
use std::time::{Duration, Instant};

/// Longer than any simulation, and clocks do not overflow.
const FOREVER: Duration = Duration::from_secs(3_000_000_000);

/// How long something may take, in seconds: 0 or more, infinity too. `what` names it in errors.
pub fn seconds(given: f64, what: &str) -> Result<Duration> {
    if given.is_nan() || given < 0.0 {
        return Err(Error::invalid(format!("{what} is {given}: give seconds, 0 or more")));
    }
    Duration::try_from_secs_f64(given.min(FOREVER.as_secs_f64()))
        .map_err(|e| Error::invalid(format!("{what} is {given}: {e}")))
}

/// The deadline of a handle's waits, in seconds: zero would let nothing succeed.
pub fn patience(given: f64, what: &str) -> Result<Duration> {
    match seconds(given, what)? {
        Duration::ZERO => Err(Error::invalid(format!("{what} is 0: give the seconds that a call may wait"))),
        patience => Ok(patience),
    }
}

/// As much of it as clocks can take.
pub(crate) fn sane(given: Duration) -> Duration {
    given.min(FOREVER)
}

/// When so much time has passed.
pub(crate) fn deadline_after(given: Duration) -> Instant {
    Instant::now() + sane(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_sane() {
        for bad in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert!(seconds(bad, "x").is_err());
        }
        assert!(patience(0.0, "x").is_err());
        assert_eq!(seconds(0.5, "x").unwrap(), Duration::from_millis(500));
        for far in [f64::INFINITY, f64::MAX, 1e19] {
            assert!(deadline_after(seconds(far, "x").unwrap()) > Instant::now());
        }
        assert!(deadline_after(Duration::MAX) > Instant::now());
    }
}
