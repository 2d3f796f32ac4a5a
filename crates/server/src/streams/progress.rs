//! How fast the ranks whose home this server is go on: from looks at what they have begun, once a second.

use forebay_cluster::environment::HashMap;
use forebay_core::ids::{RunNumber, StepNumber};
use std::collections::VecDeque;
use tokio::time::Instant;

/// How many looks are remembered: a rate is that of so many seconds.
const LOOKS_MAX: usize = 10;

/// A run, by its stream and number.
type RunKey = (String, RunNumber);

/// What was seen of each run.
#[derive(Debug, Default)]
pub(crate) struct Progress(HashMap<RunKey, VecDeque<(Instant, StepNumber)>>);

impl Progress {
    /// At this moment ranks have begun these steps. Runs that are not among them are forgotten.
    pub(crate) fn look(&mut self, now: Instant, begun: Vec<(RunKey, StepNumber)>) {
        let mut before = std::mem::take(&mut self.0);
        for (key, step) in begun {
            let mut looks = before.remove(&key).unwrap_or_default();
            // One that went back has begun anew.
            if looks.back().is_some_and(|(_, last)| *last > step) {
                looks.clear();
            }
            if looks.len() == LOOKS_MAX {
                looks.pop_front();
            }
            looks.push_back((now, step));
            self.0.insert(key, looks);
        }
    }

    /// Steps a second of a run, which is at this step now; `None` if it was not looked at yet.
    pub(crate) fn rate(&self, key: &RunKey, now: Instant, step: StepNumber) -> Option<f64> {
        let (then, first) = *self.0.get(key)?.front()?;
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        (seconds > 0.0).then(|| step.saturating_sub(first) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let (start, key) = (Instant::now(), ("s".to_owned(), 1));
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = Progress::default();
        assert_eq!(progress.rate(&key, at(0), 0), None);
        for second in 0..30 {
            let step = if second < 20 { 100 * second } else { 2000 + second };
            progress.look(at(second), vec![(key.clone(), step)]);
        }
        assert_eq!(progress.rate(&key, at(30), 2030), Some(1.0));
        progress.look(at(30), vec![(key.clone(), 5)]);
        assert_eq!(progress.rate(&key, at(32), 9), Some(2.0), "it went back");
        progress.look(at(31), Vec::new());
        assert_eq!(progress.rate(&key, at(32), 9), None);
    }
}
