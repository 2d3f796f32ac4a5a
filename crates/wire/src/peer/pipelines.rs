//! About pipelines: between the server that coordinates one, the servers with its workers, and the homes of ranks that drive
//! it.

use crate::drive::{Drive, DriveAnswer};
use crate::execution::{CommMember, Execute, PipelineHistory, PipelineSpec};
use crate::protocol::speaks;
use forebay_core::contract::Needs;
use forebay_core::error::Error;
use forebay_core::ids::{Epoch, ServerId};
use serde::{Deserialize, Serialize};

/// What servers say about pipelines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    // From a pipeline's coordinator to servers with workers.
    /// Start a worker of this pipeline. Answer: `WorkerReady`, or `WorkerGone`.
    StartWorker {
        /// Tells this pipeline from earlier ones of the same name.
        creation: u64,
        /// What to run.
        spec: PipelineSpec,
    },
    /// End the worker of this pipeline.
    StopWorker {
        /// Its name.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
    },
    /// Run this on the worker beside the receiver. Answer: `Executed`, and `Released` when its memory is needed no more.
    Execute {
        /// The pipeline.
        pipeline: String,
        /// What.
        order: Box<Execute>,
    },
    /// What the sender knows, which coordinates the pipeline. To a server whose worker has become ready; and to all when the
    /// sender leaves, and begins nothing more.
    History {
        /// The pipeline.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
        /// What is known of its executions.
        history: PipelineHistory,
    },

    // To a pipeline's coordinator.
    /// The sender's worker is ready.
    WorkerReady {
        /// The pipeline.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
        /// Where it listens.
        member: CommMember,
        /// What its code says it needs.
        needs: Option<Needs>,
    },
    /// The sender's worker is gone or could not start.
    WorkerGone {
        /// The pipeline.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
        /// Why.
        error: String,
    },
    /// The sender leaves the group, its worker is to run nothing more.
    WorkerLeaves {
        /// The pipeline.
        pipeline: String,
        /// Which one of that name.
        creation: u64,
    },
    /// The sender's worker ran a step.
    Executed {
        /// The pipeline.
        pipeline: String,
        /// Which execution.
        execution: u64,
        /// `None`, or the traceback.
        error: Option<String>,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// Nothing on the sender's worker shows memory of that step any more.
    Released {
        /// The pipeline.
        pipeline: String,
        /// Which execution.
        execution: u64,
    },
    /// To the server that takes the place of a pipeline's coordinator: there is a worker of it beside the sender.
    TakeOverPipeline {
        /// The epoch in which the sender tells it.
        epoch: Epoch,
        /// Which one of that name.
        creation: u64,
        /// What it runs.
        spec: PipelineSpec,
        /// Where it listens, if it is ready.
        member: Option<CommMember>,
        /// What is known of its executions beside the sender.
        history: PipelineHistory,
    },

    // Between the home of a rank that drives a pipeline and the pipeline's coordinator.
    /// A rank at the sender drives a pipeline. Answer: `Driven`, or `Redirect`.
    Drive {
        /// Ties the answer to it; 0 where nobody waits for an answer.
        token: u64,
        /// What the rank wants.
        drive: Box<Drive>,
    },
    /// To `Drive`.
    Driven {
        /// The question's token.
        token: u64,
        /// What became of it.
        result: Result<DriveAnswer, Error>,
    },
    /// To `Drive`: ask this server.
    Redirect {
        /// The question's token.
        token: u64,
        /// The server that coordinates the pipeline's stream.
        server: ServerId,
    },
}

speaks!(Pipelines: Message);
