//! What a rank asks of the coordinator of a pipeline that it drives, and what it remembers of that.

use crate::connection::deadline_mutex::DeadlineMutex;
use crate::connection::group::pause_before_retry;
use crate::connection::rpc::{Rpc, lock, unexpected};
use crate::on_loss::OnLoss;
use crate::producer::Producer;
use crate::seconds::deadline_after;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::producer::{Reply, Request};
use forebay_wire::drive::{Drive, DriveAnswer, DriveOrder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a handle and its requests share.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) producer: Arc<Producer>,
    pub(super) pipeline: String,
    pub(super) server: Option<ServerId>,
    pub(super) steps: Mutex<Steps>,
}

/// The steps that this rank drives.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The steps that are active, and how many executions of each are over.
    pub(super) active: BTreeMap<StepNumber, u32>,
    /// Activations that nobody has heard the outcome of.
    pub(super) activations: BTreeMap<StepNumber, Arc<DriveRequest>>,
    /// The last step that was activated.
    pub(super) latest: StepNumber,
    /// The servers whose workers run the next step that is activated, if the coordinator has told that.
    pub(super) promised: Option<Vec<ServerId>>,
}

/// What a pipeline was asked for, and what becomes of it.
#[derive(Debug)]
pub struct PipelineRequest(pub(super) Arc<DriveRequest>);

/// A question to the pipeline's coordinator, asked again where its answer is lost with a server.
#[derive(Debug)]
pub(super) struct DriveRequest {
    driver: Arc<Driver>,
    order: DriveOrder,
    /// The connection over which the rank asked, and the number of the request.
    asked: Mutex<Option<(Arc<Rpc>, u64)>>,
    /// Locked by the one thread that waits for the answer.
    outcome: DeadlineMutex<Option<Result<DriveOutcome>>>,
}

/// What became of what a pipeline was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum DriveOutcome {
    /// A step is active: the servers whose workers take part, in order. None if staging was given up.
    Activated(Vec<ServerId>),
    /// An execution is over.
    Executed {
        /// Whether the workers ran. Not at steps at which the pipeline's contract needs nothing, nor if staging was given up.
        ran: bool,
        /// How long that took, in seconds.
        seconds: f64,
    },
}

impl Driver {
    /// How many executions of a step are over; an error if it is not active.
    pub(super) fn executions_of(&self, step: StepNumber) -> Result<u32> {
        let steps = lock(&self.steps);
        let executed = steps.active.get(&step).copied();
        executed.ok_or_else(|| Error::step_order(format!("step {step} is not active: activate it first")))
    }

    /// Waits for the outcome of all activations before a step, but for the last few.
    pub(super) fn hear_of_activations(&self, step: StepNumber, last: usize) -> Result<()> {
        loop {
            let (first, count) = {
                let steps = lock(&self.steps);
                let mut before = steps.activations.range(..step).map(|(_, request)| request.clone());
                (before.next(), before.count() + 1)
            };
            let Some(request) = first.filter(|_| count > last) else { return Ok(()) };
            match request.wait(None) {
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                // The call that uses that step tells its error.
                _ => {}
            }
        }
    }

    pub(super) fn end_if_open(&self, step: StepNumber) -> Result<()> {
        match self.producer.open_step()? {
            Some(open) if open == step => self.producer.end(),
            _ => Ok(()),
        }
    }

    /// What the coordinator is told with each question.
    fn tell(&self, order: DriveOrder) -> Request {
        let steps = lock(&self.steps);
        Request::Drive(Box::new(Drive {
            pipeline: self.pipeline.clone(),
            stream: self.producer.stream().to_owned(),
            run: self.producer.run(),
            rank: self.producer.rank(),
            server: self.server,
            active: steps.active.keys().copied().collect(),
            latest: steps.latest,
            order,
        }))
    }

    /// Tells the coordinator which steps are active. If that is lost with a server, the next question tells it.
    pub(super) fn tell_steps(&self) {
        let _ = self.producer.home().rpc.tell(&self.tell(DriveOrder::Deactivate));
    }

    /// Asks for something, by one of the ways to do so; the request has the answer.
    pub(super) fn ask(
        self: &Arc<Self>,
        order: DriveOrder,
        post: impl Fn(&Rpc, &Request) -> Result<u64>,
    ) -> Arc<DriveRequest> {
        let rpc = self.producer.home().rpc.clone();
        // Where that fails, the wait asks again.
        let asked = post(&rpc, &self.tell(order)).ok().map(|request| (rpc, request));
        let asked = Mutex::new(asked);
        Arc::new(DriveRequest { driver: self.clone(), order, asked, outcome: DeadlineMutex::default() })
    }

    /// What was asked for is over, whatever came of it.
    fn note_over(&self, order: DriveOrder) {
        let mut steps = lock(&self.steps);
        match order {
            DriveOrder::Execute { step, attempt } => {
                if let Some(executed) = steps.active.get_mut(&step) {
                    *executed = attempt.max(*executed);
                }
            }
            DriveOrder::Activate(step) => drop(steps.activations.remove(&step)),
            DriveOrder::Deactivate => {}
        }
    }
}

/// What becomes of what is asked for while staging is given up.
pub(super) fn not_run(order: DriveOrder) -> DriveOutcome {
    match order {
        DriveOrder::Execute { .. } => DriveOutcome::Executed { ran: false, seconds: 0.0 },
        _ => DriveOutcome::Activated(Vec::new()),
    }
}

impl PipelineRequest {
    /// Waits until it is done, `timeout` at most (default: the deadline that the handle was opened with): after
    /// `ErrorKind::Timeout` it can be waited for again. Later calls tell the same.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<DriveOutcome> {
        self.0.wait(timeout)
    }
}

impl DriveRequest {
    pub(super) fn over(
        driver: &Arc<Driver>,
        order: DriveOrder,
        outcome: Result<DriveOutcome>,
    ) -> Arc<DriveRequest> {
        let outcome = DeadlineMutex::new(Some(outcome));
        Arc::new(DriveRequest { driver: driver.clone(), order, asked: Mutex::default(), outcome })
    }

    /// What is waited for, in words.
    fn what(&self) -> String {
        let name = &self.driver.pipeline;
        match self.order {
            DriveOrder::Activate(step) => format!("to activate step {step} of pipeline '{name}'"),
            DriveOrder::Execute { step, .. } => {
                format!("to run pipeline '{name}' on step {step}, which all ranks must have ended")
            }
            DriveOrder::Deactivate => format!("to take note of active steps of pipeline '{name}'"),
        }
    }

    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<DriveOutcome> {
        let producer = &self.driver.producer;
        let deadline = deadline_after(timeout.unwrap_or(producer.group().options().patience()));
        let what = self.what();
        let mut outcome =
            self.outcome.lock_until(deadline, format_args!("another thread that waits {what}"))?;
        if let Some(outcome) = &*outcome {
            return outcome.clone();
        }
        let told = match self.answer(deadline, &what) {
            Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
            Err(error) if error.kind == ErrorKind::Unreachable && producer.on_loss() == OnLoss::Skip => {
                tracing::warn!("pipeline '{}' is not driven: {error}", self.driver.pipeline);
                Ok(not_run(self.order))
            }
            told => told,
        };
        self.driver.note_over(self.order);
        *outcome = Some(told.clone());
        told
    }

    /// The answer, through another home if the one that was asked is gone.
    fn answer(&self, deadline: Instant, what: &str) -> Result<DriveOutcome> {
        let (driver, mut asked) = (&self.driver, lock(&self.asked));
        loop {
            let (rpc, request) = match asked.take() {
                Some(asked) => asked,
                None => {
                    let message = driver.tell(self.order);
                    let post = |rpc: &Arc<Rpc>| Ok((rpc.clone(), rpc.post(&message, None)?));
                    let rank = driver.producer.lock_rank()?;
                    match driver.producer.ask_home(&rank, post)? {
                        Some(asked) => asked,
                        None => return Ok(not_run(self.order)),
                    }
                }
            };
            let flushed = rpc.flush(deadline);
            let answer = flushed.and_then(|()| rpc.collect_until::<Request>(request, deadline, what));
            match answer {
                Ok(Reply::Driven(DriveAnswer::Activated { workers, next })) => {
                    lock(&driver.steps).promised = Some(next);
                    return Ok(DriveOutcome::Activated(workers));
                }
                Ok(Reply::Driven(DriveAnswer::Executed { ran, seconds })) => {
                    return Ok(DriveOutcome::Executed { ran, seconds });
                }
                Err(error) if error.kind == ErrorKind::Timeout && Instant::now() >= deadline => {
                    *asked = Some((rpc, request));
                    return Err(error);
                }
                // The home server has given up waiting, or is gone: the rank asks it again, or the next home.
                Err(error) if error.kind == ErrorKind::Timeout || rpc.ended_with(&error) => {}
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => return Err(error),
            }
            if blocking::interrupted() {
                return Err(blocking::interrupted_while(what));
            }
            pause_before_retry();
        }
    }
}
