//! One execution of a pipeline on a step, as its coordinator knows it: who is still to end it, and what went wrong.

use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::StepReport;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::drive::DriveAnswer;
use std::collections::BTreeSet;
use std::time::Instant;

/// An execution that runs.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) number: u64,
    pub(super) step: (RunNumber, StepNumber),
    pub(super) attempt: u32,
    /// The servers whose workers have not ended it.
    pub(super) awaited: BTreeSet<ServerId>,
    /// The servers whose workers show memory of the step.
    pub(super) holders: BTreeSet<ServerId>,
    /// The step, as long as it may be run again if this loses a worker.
    pub(super) report: Option<StepReport>,
    /// Whether it lost a worker with its server.
    pub(super) lost_worker: bool,
    /// What went wrong, and at which workers' servers.
    pub(super) errors: Vec<(String, Vec<ServerId>)>,
    pub(super) started: Instant,
}

impl Execution {
    /// What went wrong at which servers, once for all that say the same.
    pub(super) fn describe_errors(&self) -> String {
        let line = |(error, servers): &(String, Vec<ServerId>)| {
            let servers: Vec<String> = servers.iter().map(ServerId::to_string).collect();
            format!("{}: {error}", servers.join(", "))
        };
        self.errors.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn note_error(&mut self, error: String, server: ServerId) {
        match self.errors.iter_mut().find(|(known, _)| *known == error) {
            Some((_, servers)) => servers.push(server),
            None => self.errors.push((error, vec![server])),
        }
    }

    /// What ranks are told who asked for it.
    pub(super) fn outcome(&self, pipeline: &str, seconds: f64) -> Result<DriveAnswer> {
        if self.errors.is_empty() {
            return Ok(DriveAnswer::Executed { ran: true, seconds });
        }
        let text =
            format!("pipeline '{pipeline}' failed at step {}: {}", self.step.1, self.describe_errors());
        Err(Error::new(ErrorKind::PipelineFailed, text))
    }

    /// What must hold whenever it is looked at.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        let number = self.number;
        if self.awaited.is_empty() {
            return Err(format!("execution {number} waits for nobody, but is not over"));
        }
        Ok(())
    }
}

/// How an execution ended at one worker.
#[derive(Debug)]
pub(crate) struct WorkerOutcome {
    pub(crate) execution: u64,
    /// `None`, or the traceback.
    pub(crate) error: Option<String>,
    pub(crate) seconds: f64,
}
