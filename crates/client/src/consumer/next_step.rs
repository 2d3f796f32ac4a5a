//! Waiting for the next step of a stream.

use crate::connection::rpc::lock;
use crate::consumer::handle::Consumer;
use crate::reading::block_access::ARENAS_KEPT;
use crate::reading::step::Step;
use crate::seconds::deadline_after;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::consumer::Event;
use std::sync::Arc;
use std::time::Duration;

impl Consumer {
    /// The next step that is wanted, waiting no longer than `timeout` (default: the deadline it was opened
    /// with). `ErrorKind::Ended` when the simulation has ended.
    pub fn next_step(&self, timeout: Option<Duration>) -> Result<Step> {
        self.held.guard.check("consumer")?;
        if let Some(over) = lock(&self.state).over.clone() {
            return Err(over);
        }
        let deadline = deadline_after(timeout.unwrap_or(self.group.options().patience()));
        let what = format!("to tell the next step of stream '{}'", self.stream);
        let mut source = self.held.source();
        loop {
            let id = source.attachment();
            let with_attrs = |mut message| {
                let mut attrs = lock(&self.attrs);
                if let Event::Step { attachment, report } = &mut message
                    && Some(*attachment) == id
                    && let Some(told) = report.attrs.take()
                {
                    *attrs = Arc::from(told);
                }
                (message, attrs.clone())
            };
            match source.rpc.next_event(deadline, &what, with_attrs) {
                Ok((Event::Step { attachment, report }, attrs)) if Some(attachment) == id => {
                    self.held.pool.forget_unused_arenas(ARENAS_KEPT, report.term);
                    let mut state = lock(&self.state);
                    state.latest = Some(report.id.step);
                    state.next = Some((report.id.run, report.id.step.saturating_add(1)));
                    drop(state);
                    return Ok(Step::new(self.held.clone(), *report, attrs));
                }
                Ok((Event::Ended { attachment, missed }, _)) if Some(attachment) == id => {
                    let mut text = format!("stream '{}' has ended", self.stream);
                    if missed > 0 {
                        text += &format!("; steps dropped after the last one that was told: {missed}");
                    }
                    return Err(self.note_over(Error::new(ErrorKind::Ended, text)));
                }
                Ok((Event::Detached { attachment, error }, _)) if Some(attachment) == id => {
                    return Err(self.note_over(error));
                }
                // The event is for an earlier attachment.
                Ok(_) => {}
                Err(error) if error.kind == ErrorKind::Timeout => return Err(self.too_late(&error)),
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    source = self.on_coordinator_lost(deadline, &source, error)?;
                }
                Err(error) => return Err(self.note_over(error)),
            }
        }
    }

    /// The error where no step has come in time, with what can be done.
    fn too_late(&self, error: &Error) -> Error {
        let stream = &self.stream;
        let seen = lock(&self.state).latest;
        let hint = match seen {
            None => format!(
                "no step that it wants has come since it attached: see `forebay ls` for whether stream '{stream}' is \
                 there, with the fields it needs"
            ),
            Some(step) => format!("the last one that came was step {step}"),
        };
        // No server is late here: none has a step to tell.
        Error::timeout(format!("{}; {hint}; a longer timeout waits for slower simulations", error.text))
    }
}
