//! Waiting for a step, by a reader that shares steps with others and is given those that it asks for.

use crate::connection::rpc::lock;
use crate::consumer::handle::Consumer;
use crate::consumer::told::{Told, ToldStep};
use crate::reading::held_steps::StepSource;
use forebay_core::{ErrorKind, Result};
use forebay_wire::client::consumer::Request;
use std::time::{Duration, Instant};

/// How long the answer to a question for a step may take, however little time the caller gives.
const ANSWER: Duration = Duration::from_millis(500);

impl Consumer {
    /// The next step that is given to this reader, where steps are shared out on demand: it asks for one.
    pub(super) fn asked_until(&self, deadline: Instant) -> Result<Option<ToldStep>> {
        lock(&self.state).asks.waiting += 1;
        let told = self.ask_and_listen(deadline);
        lock(&self.state).asks.waiting -= 1;
        if matches!(told, Ok(Some(_))) {
            // Other threads may wait that could not ask; what fails here they are told themselves.
            let _ = self.ask(&self.held.source(), deadline);
        }
        told
    }

    fn ask_and_listen(&self, deadline: Instant) -> Result<Option<ToldStep>> {
        loop {
            let source = self.held.source();
            match self.ask(&source, deadline) {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    self.on_coordinator_lost(deadline, &source, error)?;
                    continue;
                }
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                Err(error) => return Err(self.note_over(error)),
            }
            match self.listen(&source, deadline, deadline)? {
                Told::Step(step) => return Ok(Some(step)),
                Told::Nothing => return Ok(None),
                Told::Moved(_) => {}
            }
        }
    }

    /// Asks for a step, unless as many were asked for as calls wait for some, or as the reader may hold.
    fn ask(&self, source: &StepSource, deadline: Instant) -> Result<()> {
        let Some(attachment) = source.attachment() else { return Ok(()) };
        {
            let asks = &mut lock(&self.state).asks;
            if asks.asked >= asks.waiting.min(self.attach.window) {
                return Ok(());
            }
            asks.asked += 1;
        }
        let question = Request::Next { attachment, has_spare: false, after: None };
        let left = deadline.saturating_duration_since(Instant::now()).max(ANSWER);
        let asked = source.rpc.call_within(&question, None, left, "to give this reader a step");
        asked.map(drop).inspect_err(|_| lock(&self.state).asks.note_step())
    }
}
