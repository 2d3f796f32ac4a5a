//! Pipelines and their executions, as administrators, servers and workers speak of them.

use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::StepReport;
use serde::{Deserialize, Serialize};

/// A pipeline as it is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineSpec {
    /// Its name.
    pub name: String,
    /// The stream it runs on.
    pub stream: String,
    /// The program that runs a worker, and its first arguments.
    pub command: Vec<String>,
    /// The user's code, as `path:Class`.
    pub code: String,
    /// Its configuration, as JSON.
    pub config: String,
    /// What it needs; empty means that the code says it.
    pub needs: Option<Needs>,
    /// What it needs if neither that nor the code says it.
    pub otherwise_needs: Option<Needs>,
    /// Whether it runs when the ranks say so, instead of on each closed step.
    pub driven: bool,
    /// The subscription of its stream at whose events it runs, if it does so alone.
    pub on: Option<String>,
    /// The directory it runs in.
    pub directory: String,
}

/// One member of a pipeline's comm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommMember {
    /// Its server.
    pub server: ServerId,
    /// Where it listens.
    pub addresses: Vec<String>,
}

/// What became of a pipeline's steps so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineCounts {
    /// The number of the last execution.
    pub last: u64,
    /// Steps that were run without an error.
    pub executed: u64,
    /// Steps whose execution failed.
    pub failed: u64,
    /// Executions that lost a worker with its server, and were repeated.
    pub repeated: u64,
    /// Steps that were dropped before they could be run.
    pub missed: u64,
}

impl PipelineCounts {
    /// A step was run.
    pub fn count_run(&mut self, failed: bool) {
        let count = if failed { &mut self.failed } else { &mut self.executed };
        *count = count.saturating_add(1);
    }
}

/// What is known of a pipeline's executions, for the server that takes the place of one that coordinated it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineHistory {
    /// The last step of which an execution is over for all, if there is one.
    pub done: Option<(RunNumber, StepNumber)>,
    /// What became of the steps up to that one; `last` may be the number of the execution after it.
    pub counts: PipelineCounts,
    /// An execution after that, which may be over or not.
    pub open: Option<OpenExecution>,
}

/// An execution of which it is not known whether it is over for all that take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenExecution {
    /// The step's run.
    pub run: RunNumber,
    /// The step.
    pub step: StepNumber,
    /// The how many-th time, if ranks ask for it; else 0.
    pub attempt: u32,
    /// The servers whose workers take part.
    pub together: Vec<ServerId>,
    /// Whether it failed, as far as that is known; `None` if it has not ended for one that lives.
    pub failed: Option<bool>,
}

/// An order to run a pipeline on a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Execute {
    /// Names this execution within the pipeline: numbers grow.
    pub execution: u64,
    /// The last step of which an execution is over, if there is one.
    pub done: Option<(RunNumber, StepNumber)>,
    /// What became of the steps up to that one.
    pub counts: PipelineCounts,
    /// The how many-th time ranks want the step run, if they drive the pipeline; else 0.
    pub attempt: u32,
    /// The members of the comm, in the order of their ranks.
    pub members: Vec<CommMember>,
    /// This worker's rank.
    pub rank: u32,
    /// Whether every server that may hold blocks has a worker among the members.
    pub beside_all: bool,
    /// The step, with all its blocks; of those that owners of tiles know, only the ones that the worker's
    /// server holds.
    pub report: StepReport,
}
