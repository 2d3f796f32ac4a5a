//! Changing what a reader needs while it is attached.

use crate::connection::rpc::{lock, unexpected};
use crate::consumer::handle::Consumer;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::consumer::{Reply, Request};
use std::time::Instant;

impl Consumer {
    /// Changes what this reader needs. Returns the run and the step from which on that holds, `None` if it waits for a run: steps
    /// before it come as they were needed before. Waits until the servers have agreed on it, and for the server that takes the
    /// place of one that dies. What the run cannot meet is an error, and the contract is the one before.
    pub fn need(&self, needs: &Needs) -> Result<Option<(RunNumber, StepNumber)>> {
        self.held.guard.check("consumer")?;
        needs.check()?;
        let deadline = Instant::now() + self.group.limit();
        let mut source = self.held.source();
        loop {
            if let Some(over) = lock(&self.state).over.clone() {
                return Err(over);
            }
            let Some(attachment) = source.attachment() else { return Ok(None) };
            let request = Request::Need { attachment, needs: Box::new(needs.clone()) };
            let left = deadline.saturating_duration_since(Instant::now());
            let asked = source.rpc.call_within(&request, None, left, "to change what a reader needs");
            match asked.map(|answer| answer.message) {
                Ok(Reply::Needed { from }) => {
                    if let Some((run, step)) = from {
                        lock(&self.state).needs.change(run, step, needs.clone());
                    }
                    return Ok(from);
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) if error.kind == ErrorKind::Unreachable && Instant::now() < deadline => {
                    source = self.on_coordinator_lost(deadline, &source, error)?;
                }
                Err(error) => return Err(self.about_stream(error)),
            }
        }
    }

    fn about_stream(&self, error: Error) -> Error {
        error.during(format!("the contract of a reader of stream '{}'", self.stream))
    }
}
