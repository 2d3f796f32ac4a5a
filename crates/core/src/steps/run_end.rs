//! How ranks and runs end, as homes, readers and `status` are told of it.

use crate::ids::{RunNumber, StepNumber, Timestamp};
use crate::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// How a rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankEnd {
    /// It closed its handle.
    Closed(RankCounts),
    /// Its process has ended, or its handle is gone, and it had not closed; or it was given up.
    Died,
}

/// What a rank counted until it closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCounts {
    /// The steps that it has begun.
    pub begun: u64,
    /// Those of them that it began while no server took it: nothing of these was staged.
    pub skipped: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunOutcome {
    /// All its ranks have closed it.
    Finished,
    /// Not all have. The text says which ones, and what became of them.
    Crashed(String),
}

/// What is known of a run that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// How it ended.
    pub outcome: RunOutcome,
    /// When, as the server's clock said.
    pub at: Timestamp,
    /// The highest step that a rank is known to have begun.
    pub reached: Option<StepNumber>,
    /// What the rank counted that began the most steps; of those that died nobody knows.
    pub counts: RankCounts,
}

/// The end of a run, as one who is attached is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The run.
    pub run: RunNumber,
    /// What is known of it; `None` if it is so long ago that it was forgotten.
    pub summary: Option<RunSummary>,
    /// The run that goes on where this one crashed.
    pub continued_by: Option<RunNumber>,
    /// How many steps that were wanted were dropped after the last one that was told.
    pub missed: u64,
    /// Where it was over when the one who is told of it attached, and there was nothing to tell: how many of its steps are
    /// kept, before those that were asked for.
    pub late: Option<u64>,
    /// Whether no run has ended, but the one who is told of it wanted to know of what was held alone, and was told of all.
    pub looked: bool,
}

impl RunEnd {
    /// One that looks at what is held was told of all of it.
    pub(super) fn of_what_is_held(run: RunNumber, missed: u64) -> RunEnd {
        RunEnd { run, summary: None, continued_by: None, missed, late: None, looked: true }
    }

    /// How it is told to a reader: [`ErrorKind::Crashed`] if not all ranks have closed the run and no other run continues it,
    /// [`ErrorKind::NotFound`] if the reader came too late for its steps, else [`ErrorKind::Ended`].
    pub fn error(&self, stream: &str) -> Error {
        if self.looked {
            let text = format!("stream '{stream}' held no more steps when this reader came to look at them");
            return Error::new(ErrorKind::Ended, text);
        }
        let crash = self.summary.as_ref().and_then(RunSummary::why_crashed);
        let kind = match crash {
            Some(_) if self.continued_by.is_none() => ErrorKind::Crashed,
            _ if self.late.is_some() => ErrorKind::NotFound,
            _ => ErrorKind::Ended,
        };
        let mut text = format!("stream '{stream}' ");
        match &self.summary {
            Some(summary) => text += &summary.to_text(),
            None => text += "has ended",
        }
        if let Some(next) = self.continued_by {
            let _ = write!(text, "; run {next} continues it");
        }
        let and = if kind == ErrorKind::NotFound { " and keeps" } else { "; it keeps" };
        match self.late {
            Some(0) => {
                let _ = write!(
                    text,
                    "{and} none of its steps: attach before they are gone (`wait_for_readers` has the simulation wait for \
                     its readers), have it keep some (`keep`), or wait for its next run (`start` \"run\", or `follow`)"
                );
            }
            Some(kept) => {
                let _ = write!(
                    text,
                    "{and} {kept} of its steps: begin with the oldest (`start` \"oldest\") to read what is wanted of them, or wait \
                     for its next run (`start` \"run\", or `follow`)"
                );
            }
            None if self.missed > 0 => {
                let _ = write!(text, "; steps dropped after the last one that was told: {}", self.missed);
            }
            None => {}
        }
        Error::new(kind, text)
    }
}

impl RunSummary {
    /// Which ranks did not close the run, and what became of them, if it crashed.
    pub fn why_crashed(&self) -> Option<&str> {
        match &self.outcome {
            RunOutcome::Finished => None,
            RunOutcome::Crashed(why) => Some(why),
        }
    }

    /// What it says after the name of the stream.
    pub fn to_text(&self) -> String {
        let mut text = String::from(match &self.outcome {
            RunOutcome::Finished => "has ended",
            RunOutcome::Crashed(_) => "has crashed",
        });
        let RankCounts { begun, skipped } = self.counts;
        text += &match (&self.outcome, self.reached) {
            (RunOutcome::Crashed(_), Some(step)) => format!(" at step {step}"),
            (RunOutcome::Crashed(_), None) => " before its first step".into(),
            (RunOutcome::Finished, _) if begun == 1 => " after 1 step".into(),
            (RunOutcome::Finished, _) if begun > 1 => format!(" after {begun} steps"),
            (RunOutcome::Finished, _) => String::new(),
        };
        if let Some(why) = self.why_crashed() {
            let _ = write!(text, ": {why}");
        }
        if skipped > 0 {
            let _ = write!(text, "; a rank began {skipped} steps that no server took");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(outcome: RunOutcome) -> RunEnd {
        let counts = RankCounts { begun: 3, skipped: 0 };
        let summary = Some(RunSummary { outcome, at: Timestamp(0), reached: Some(2), counts });
        RunEnd { run: 1, summary, continued_by: None, missed: 0, late: None, looked: false }
    }

    #[test]
    fn an_end_says_how_the_run_ended_and_what_to_do() {
        let crashed = end(RunOutcome::Crashed("rank 1 of 2 ended without closing it".into()));
        let finished = end(RunOutcome::Finished);
        let late = |kept| RunEnd { late: Some(kept), ..finished.clone() };
        for (end, kind, parts) in [
            (&finished, ErrorKind::Ended, ["has ended after 3 steps", "'s'"]),
            (&crashed, ErrorKind::Crashed, ["crashed at step 2", "rank 1 of 2 ended without"]),
            (&late(0), ErrorKind::NotFound, ["ended after 3 steps and keeps none of its steps", "`follow`"]),
            (&late(2), ErrorKind::NotFound, ["and keeps 2 of its steps", "`start`"]),
            (
                &RunEnd { continued_by: Some(2), ..crashed.clone() },
                ErrorKind::Ended,
                ["run 2 continues it", "at step 2"],
            ),
            (
                &RunEnd { late: Some(0), ..crashed.clone() },
                ErrorKind::Crashed,
                ["at step 2", "; it keeps none"],
            ),
            (&RunEnd { missed: 4, ..finished.clone() }, ErrorKind::Ended, ["dropped after the last", ": 4"]),
            (&RunEnd { summary: None, ..finished.clone() }, ErrorKind::Ended, ["stream 's' has ended", ""]),
        ] {
            let error = end.error("s");
            assert_eq!(error.kind, kind, "{error}");
            for part in parts {
                assert!(error.text.contains(part), "{part:?} is not in {error}");
            }
        }
    }
}
