//! Why no step has come in time, and what can be done.

use crate::connection::rpc::{lock, unexpected};
use crate::consumer::handle::Consumer;
use forebay_core::ids::StepNumber;
use forebay_core::steps::Situation;
use forebay_core::{Error, Result};
use forebay_wire::client::consumer::{Reply, Request};
use std::time::Duration;

impl Consumer {
    /// What this reader waits for, as the coordinator sees it. Waits for its answer.
    pub(super) fn situation(&self) -> Result<Situation> {
        let source = self.held.source();
        let Some(attachment) = source.attachment() else { return Ok(Situation::default()) };
        let what = format!("to tell what stream '{}' does", self.stream);
        match source.rpc.call(&Request::Look { attachment }, &what)?.message {
            Reply::Situation(situation) => Ok(*situation),
            other => Err(unexpected(&other)),
        }
    }

    /// The same, if the coordinator tells it in time.
    pub(super) fn situation_within(&self, patience: Duration) -> Option<Situation> {
        let source = self.held.source();
        let look = Request::Look { attachment: source.attachment()? };
        let told = source.rpc.call_within(&look, None, patience, "to tell what a stream does");
        match told.ok()?.message {
            Reply::Situation(situation) => Some(*situation),
            _ => None,
        }
    }

    /// The error where no step has come in time. No server is late here: none has a step to tell.
    pub(super) fn too_late(&self, waited: Duration, situation: Option<&Situation>) -> Error {
        let stream = &self.stream;
        let mut text = format!("no step of stream '{stream}' has come within {} s", waited.as_secs_f64());
        match lock(&self.state).latest {
            None => text += "; none that this reader wants has since it attached",
            Some(step) => text += &format!("; the last one that came was step {step}"),
        }
        match situation {
            Some(situation) => {
                text += &format!("; {situation}");
                let unreleased = self.held.unreleased();
                if situation.may_be_given_more() && !unreleased.is_empty() {
                    text += &format!(
                        "; this reader itself holds {}: release what it has finished with, others may wait for it",
                        listed(&unreleased)
                    );
                }
            }
            None => {
                text += "; a longer timeout waits for slower simulations, and `forebay ls` shows what the stream offers"
            }
        }
        Error::timeout(text)
    }
}

/// Steps by their numbers.
pub(super) fn listed(steps: &[StepNumber]) -> String {
    format!("step{} {}", if steps.len() == 1 { "" } else { "s" }, numbers(steps))
}

/// The same without the noun.
pub(super) fn numbers(steps: &[StepNumber]) -> String {
    steps.iter().map(StepNumber::to_string).collect::<Vec<_>>().join(", ")
}
