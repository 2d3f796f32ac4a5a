//! Waiting for the newest step, by a reader that takes it alone.

use crate::connection::rpc::lock;
use crate::consumer::handle::Consumer;
use crate::consumer::told::{Told, ToldStep};
use crate::reading::held_steps::StepSource;
use forebay_core::{ErrorKind, Result};
use forebay_wire::client::consumer::Request;
use std::time::{Duration, Instant};

/// How long the answer to the question for the newest step may take, however little time the caller gives: `next` with a
/// `timeout` of 0 asks, too.
const ANSWER: Duration = Duration::from_millis(500);

impl Consumer {
    /// The newest step that is closed and was not told before; else the next one, if it comes in time.
    pub(super) fn newest_until(&self, deadline: Instant) -> Result<Option<ToldStep>> {
        if self.seat.is_some() {
            return self.chosen_until(deadline);
        }
        let mut newest = None;
        loop {
            let source = self.held.source();
            let Some(attachment) = source.attachment() else { return Ok(None) };
            // A step may have come since this was asked last, in vain. It may be an old one by now.
            let now = Instant::now();
            if self.take_newest(&source, &mut newest, now, deadline)? && newest.is_none() {
                continue;
            }
            let question = Request::Next { attachment, has_spare: newest.is_some(), after: None };
            let left = deadline.saturating_duration_since(Instant::now()).max(ANSWER);
            match source.rpc.call_within(&question, None, left, "to tell the newest step") {
                Ok(_) => {}
                // What is wrong it is told when it asks for the next.
                Err(_) if newest.is_some() => return Ok(newest),
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    self.on_coordinator_lost(deadline, &source, error)?;
                    continue;
                }
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                Err(error) => return Err(self.note_over(error)),
            }
            let moved = self.take_newest(&source, &mut newest, deadline, deadline)?;
            if newest.is_some() || !moved {
                return Ok(newest);
            }
        }
    }

    /// Of a rank of several: the newest step that was chosen for all of them; else one is chosen for all.
    fn chosen_until(&self, deadline: Instant) -> Result<Option<ToldStep>> {
        loop {
            let source = self.held.source();
            let Some(attachment) = source.attachment() else { return Ok(None) };
            match self.listen(&source, Instant::now(), deadline)? {
                Told::Step(step) => return Ok(Some(step)),
                Told::Moved(_) => continue,
                Told::Nothing => {}
            }
            let after = lock(&self.state).told.last().map(|told| (told.run, told.step));
            let question = Request::Next { attachment, has_spare: false, after };
            let left = deadline.saturating_duration_since(Instant::now()).max(ANSWER);
            match source.rpc.call_within(&question, None, left, "to tell the newest step") {
                Ok(_) => {}
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    self.on_coordinator_lost(deadline, &source, error)?;
                    continue;
                }
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                Err(error) => return Err(self.note_over(error)),
            }
            match self.listen(&source, deadline.max(Instant::now()), deadline)? {
                Told::Step(step) => return Ok(Some(step)),
                Told::Nothing => return Ok(None),
                Told::Moved(_) => {}
            }
        }
    }

    /// Takes what it is told, and waits for that `until` then as long as there is none: the newest one, which passes over those
    /// before it. Whether another server is to be asked: one is looked for until the deadline.
    fn take_newest(
        &self,
        source: &StepSource,
        newest: &mut Option<ToldStep>,
        until: Instant,
        deadline: Instant,
    ) -> Result<bool> {
        loop {
            let until = if newest.is_some() { Instant::now() } else { until };
            match self.listen(source, until, deadline) {
                Ok(Told::Step(step)) => *newest = Some(pass_over(newest.take(), step)),
                Ok(Told::Nothing) => return Ok(false),
                Ok(Told::Moved(_)) => return Ok(true),
                // What has ended it is told when it asks for the next.
                Err(_) if newest.is_some() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// A newer step, which has missed the one before it, too.
fn pass_over(before: Option<ToldStep>, mut newer: ToldStep) -> ToldStep {
    if let Some(ToldStep { report: before, .. }) = before {
        let report = &mut newer.report;
        report.missed += before.missed + 1;
        report.rewound |= before.rewound;
    }
    newer
}
