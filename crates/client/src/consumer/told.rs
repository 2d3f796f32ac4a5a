//! What the coordinator of a stream tells a reader: steps, and the end.

use crate::connection::rpc::lock;
use crate::consumer::handle::Consumer;
use crate::reading::block_access::ARENAS_KEPT;
use crate::reading::held_steps::{Hold, StepSource};
use crate::reading::statics::RunStatics;
use forebay_core::attr::Attrs;
use forebay_core::steps::StepReport;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::consumer::Event;
use std::sync::Arc;
use std::time::Instant;

/// A step as it was told, with the attributes and the static fields of its run. It is held from then on.
pub(super) struct ToldStep {
    pub(super) report: Box<StepReport>,
    pub(super) hold: Arc<Hold>,
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

/// What was taken of what a server has told.
enum Taken {
    /// A step, and the static fields of another run that are not remembered any more.
    Step(ToldStep, Option<RunStatics>),
    /// There will be no more steps.
    Over(Error),
    /// The event is for an earlier attachment, or of a server that is gone.
    Nothing,
}

impl Consumer {
    /// Waits until the coordinator tells something, or it is `until`. If it is gone, another one is looked for until the deadline.
    pub(super) fn listen(&self, source: &StepSource, until: Instant, deadline: Instant) -> Result<Told> {
        let what = format!("to tell the next step of stream '{}'", self.stream);
        loop {
            // Of several threads that wait one takes the end, of which all are told.
            let is_over = || lock(&self.state).over.clone().map(Taken::Over);
            match source.rpc.next_event_unless(until, &what, is_over, |event| self.take(source, event)) {
                Ok(Taken::Step(step, outdated)) => {
                    // Its server is told that it is let go of.
                    drop(outdated);
                    self.held.pool.forget_unused_arenas(ARENAS_KEPT, step.report.term);
                    return Ok(Told::Step(step));
                }
                Ok(Taken::Over(error)) => return Err(error),
                Ok(Taken::Nothing) => {}
                Err(error) if error.kind == ErrorKind::Timeout => return Ok(Told::Nothing),
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    return self.on_coordinator_lost(deadline, source, error).map(Told::Moved);
                }
                Err(error) => return Err(self.note_over(error)),
            }
        }
    }

    /// Takes what is told to this reader, in the order in which it is: another thread that attaches again tells of it.
    fn take(&self, source: &StepSource, event: Event) -> Taken {
        let is_mine = |attachment| Some(attachment) == source.attachment();
        match event {
            Event::Step { attachment, report } if is_mine(attachment) => self.take_step(source, report),
            Event::Ended { attachment, end } if is_mine(attachment) => {
                Taken::Over(self.note_over(end.error(&self.stream)))
            }
            Event::Detached { attachment, error } if is_mine(attachment) => {
                Taken::Over(self.note_over(error))
            }
            _ => Taken::Nothing,
        }
    }

    fn take_step(&self, source: &StepSource, mut report: Box<StepReport>) -> Taken {
        let Some(hold) = self.held.take_told(source, &report) else { return Taken::Nothing };
        let mut attrs = lock(&self.attrs);
        report.attrs.take().into_iter().for_each(|told| *attrs = Arc::from(told));
        let (statics, outdated) = self.statics.on_step(&self.held, &mut report);
        let mut state = lock(&self.state);
        state.latest = Some(report.id.step);
        state.told.note(&report);
        state.asks.note_step();
        state.next = Some((report.id.run, report.id.step.saturating_add(1)));
        Taken::Step(ToldStep { report, hold, attrs: attrs.clone(), statics }, outdated)
    }
}
