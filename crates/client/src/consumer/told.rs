//! What the coordinator of a stream tells a reader: steps, and the end.

use crate::connection::rpc::lock;
use crate::consumer::handle::Consumer;
use crate::reading::block_access::ARENAS_KEPT;
use crate::reading::held_steps::StepSource;
use crate::reading::statics::RunStatics;
use forebay_core::attr::Attrs;
use forebay_core::steps::StepReport;
use forebay_core::{ErrorKind, Result};
use forebay_wire::client::consumer::Event;
use std::sync::Arc;
use std::time::Instant;

/// A step as it was told, with the attributes and the static fields of its run.
pub(super) struct ToldStep {
    pub(super) report: Box<StepReport>,
    pub(super) attrs: Arc<Attrs>,
    pub(super) statics: Option<RunStatics>,
}

/// What came of waiting for a step.
pub(super) enum Told {
    Step(ToldStep),
    /// None came in time.
    Nothing,
    /// Another server coordinates the stream now.
    Moved(StepSource),
}

impl Consumer {
    /// Waits until the coordinator tells something, or it is `until`. If it is gone, another one is looked for until the deadline.
    pub(super) fn listen(&self, source: &StepSource, until: Instant, deadline: Instant) -> Result<Told> {
        let id = source.attachment();
        let what = format!("to tell the next step of stream '{}'", self.stream);
        // What is let go of thereby is dropped by whoever waits: its server is told.
        let with_run = |mut message| {
            let (mut attrs, mut statics) = (lock(&self.attrs), (None, None));
            if let Event::Step { attachment, report } = &mut message
                && Some(*attachment) == id
            {
                report.attrs.take().into_iter().for_each(|told| *attrs = Arc::from(told));
                statics = self.statics.on_step(&self.held, report);
            }
            (message, attrs.clone(), statics)
        };
        loop {
            match source.rpc.next_event(until, &what, with_run) {
                Ok((Event::Step { attachment, report }, attrs, (statics, _))) if Some(attachment) == id => {
                    self.held.pool.forget_unused_arenas(ARENAS_KEPT, report.term);
                    let mut state = lock(&self.state);
                    state.latest = Some(report.id.step);
                    state.told.note(&report);
                    state.asks.note_step();
                    state.next = Some((report.id.run, report.id.step.saturating_add(1)));
                    return Ok(Told::Step(ToldStep { report, attrs, statics }));
                }
                Ok((Event::Ended { attachment, end }, ..)) if Some(attachment) == id => {
                    return Err(self.note_over(end.error(&self.stream)));
                }
                Ok((Event::Detached { attachment, error }, ..)) if Some(attachment) == id => {
                    return Err(self.note_over(error));
                }
                // The event is for an earlier attachment.
                Ok(_) => {}
                Err(error) if error.kind == ErrorKind::Timeout => return Ok(Told::Nothing),
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    return self.on_coordinator_lost(deadline, source, error).map(Told::Moved);
                }
                Err(error) => return Err(self.note_over(error)),
            }
        }
    }
}
