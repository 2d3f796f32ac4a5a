//! Waiting for the newest step, by a reader that takes it alone.

use crate::consumer::handle::Consumer;
use crate::consumer::told::{Told, ToldStep};
use crate::reading::held_steps::StepSource;
use forebay_core::{ErrorKind, Result};
use forebay_wire::client::consumer::Request;
use std::time::Instant;

impl Consumer {
    /// The newest step that is closed and was not told before; else the next one, if it comes in time.
    pub(super) fn newest_until(&self, deadline: Instant) -> Result<Option<ToldStep>> {
        let mut newest = None;
        loop {
            let source = self.held.source();
            let Some(attachment) = source.attachment() else { return Ok(None) };
            let left = deadline.saturating_duration_since(Instant::now());
            let asked =
                source.rpc.call_within(&Request::Next { attachment }, None, left, "to tell the newest step");
            match asked {
                Ok(_) => {}
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    self.on_coordinator_lost(deadline, &source, error)?;
                    continue;
                }
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                Err(error) => return Err(self.note_over(error)),
            }
            // A step may have come since this was asked last, in vain. What the answer brought comes after it.
            loop {
                let until = if newest.is_some() { Instant::now() } else { deadline };
                match self.listen(&source, until) {
                    Ok(Told::Step(step)) => newest = Some(pass_over(&source, newest.take(), step)),
                    Ok(Told::Nothing) => return Ok(newest),
                    Ok(Told::Moved(_)) if newest.is_some() => return Ok(newest),
                    Ok(Told::Moved(_)) => break,
                    // What has ended it is told when it asks for the next.
                    Err(_) if newest.is_some() => return Ok(newest),
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// A newer step, which has missed the one before it, too.
fn pass_over(source: &StepSource, before: Option<ToldStep>, (mut report, attrs): ToldStep) -> ToldStep {
    if let Some((before, _)) = before {
        report.missed += before.missed + 1;
        report.rewound |= before.rewound;
        source.release(before.id.run, before.id.step, false);
    }
    (report, attrs)
}
