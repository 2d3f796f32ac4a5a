//! Pipelines that the ranks of a simulation drive themselves: activate a step, stage it, execute, deactivate.
//!
//! A handle is a [`Producer`] of the pipeline's stream, and questions to the server that coordinates the pipeline. Each of
//! them tells all that it has to know of this rank, so that one that takes its place goes on where it was.

use crate::admin::Admin;
use crate::group::{GIVEN_UP, Group, look_again};
use crate::producer::{OnLoss, Producer};
use crate::rpc::{Rpc, lock, unexpected};
use crate::seconds::deadline_after;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::placement::Placement;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::message::{DRIVEN_WINDOW, Drive, DriveOrder, ToClient, ToServer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One rank that drives a pipeline. All ranks of its stream do the same, in the same order; each may be called from one
/// thread at a time.
#[derive(Debug)]
pub struct PipelineHandle(Arc<Driver>);

#[derive(Debug)]
struct Driver {
    producer: Arc<Producer>,
    group: Group,
    pipeline: String,
    server: Option<ServerId>,
    /// The server that coordinates the pipeline: another one when it has died.
    coordinator: Mutex<Arc<Rpc>>,
    steps: Mutex<Steps>,
}

/// The steps that this rank drives.
#[derive(Debug, Default)]
struct Steps {
    /// Those that are active, and how many executions of each are over.
    active: BTreeMap<StepNumber, u32>,
    /// The last one that was activated.
    latest: StepNumber,
}

/// What a pipeline was asked for, and what becomes of it.
#[derive(Debug)]
pub struct PipelineRequest {
    driver: Arc<Driver>,
    order: DriveOrder,
    /// The connection over which it was asked, and the number of the question.
    asked: Mutex<Option<(Arc<Rpc>, u64)>>,
    outcome: Mutex<Option<Result<Driven>>>,
}

/// What became of what a pipeline was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Driven {
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

impl PipelineHandle {
    /// A handle of a pipeline that was created to be driven, for a rank of its stream: on all servers, or on the worker of
    /// one server alone, which then holds what is staged. Waits for answers of two servers.
    pub fn open(producer: Arc<Producer>, pipeline: &str, server: Option<ServerId>) -> Result<PipelineHandle> {
        let group = producer.group().clone();
        let found = Admin::of(group.clone()).find_pipeline(pipeline)?;
        if !found.driven {
            return Err(Error::invalid(format!(
                "pipeline '{pipeline}' runs by itself on each closed step: create it with driven=True (--driven) to drive it"
            )));
        }
        if found.stream != producer.stream() {
            return Err(Error::invalid(format!(
                "pipeline '{pipeline}' runs on stream '{}', not on '{}'",
                found.stream,
                producer.stream()
            )));
        }
        if let Some(server) = server {
            group.place_of(server)?;
            producer.place_by(Placement::On(server));
        }
        let pipeline = pipeline.to_owned();
        let steps = Steps::default();
        let tell = tell_steps(&producer, &pipeline, server, &steps, DriveOrder::Deactivate);
        let coordinator = Mutex::new(connect(&group, producer.stream(), &tell)?);
        let steps = Mutex::new(steps);
        Ok(PipelineHandle(Arc::new(Driver { producer, group, pipeline, server, coordinator, steps })))
    }

    /// The rank of the stream: declare fields with it, and put blocks of the step that is active. Steps are begun and ended
    /// by the handle.
    pub fn producer(&self) -> &Arc<Producer> {
        &self.0.producer
    }

    /// Begins a step, and fixes which workers run it: what joins later takes part in later steps. Up to 4 steps may be
    /// active, of which the last one is staged. Waits for an answer of this rank's home and of the pipeline's coordinator,
    /// longer if other ranks have 4 steps active; after a time-out the same call waits on.
    pub fn activate(&self, step: StepNumber, time: f64) -> Result<Vec<ServerId>> {
        match self.activate_async(step, time)?.wait(None) {
            Ok(Driven::Activated(servers)) => Ok(servers),
            Ok(_) => Err(Error::protocol("another answer than to an activation")),
            Err(error) if error.kind == ErrorKind::Timeout => Err(error),
            Err(error) => {
                // Whatever comes of that, the first error is the one to tell.
                let _ = self.deactivate(step);
                Err(error)
            }
        }
    }

    /// As [`PipelineHandle::activate`], but waits only for this rank's home: blocks may be put at once.
    pub fn activate_async(&self, step: StepNumber, time: f64) -> Result<PipelineRequest> {
        let driver = &self.0;
        let is_open = driver.producer.open_step()? == Some(step);
        {
            let mut steps = lock(&driver.steps);
            let known = steps.active.contains_key(&step);
            if known && !is_open {
                return Err(Error::step_order(format!("step {step} is active already")));
            }
            if !known && steps.active.len() >= DRIVEN_WINDOW {
                return Err(Error::conflict(format!(
                    "{DRIVEN_WINDOW} steps are active, so that step {step} cannot be: deactivate one first"
                )));
            }
            steps.active.entry(step).or_default();
            steps.latest = steps.latest.max(step);
        }
        // Asked before the step begins: the two take their time together.
        let request = driver.ask(DriveOrder::Activate(step));
        if !is_open && let Err(error) = driver.producer.begin(step, time) {
            lock(&driver.steps).active.remove(&step);
            driver.tell_steps();
            return Err(error);
        }
        Ok(request)
    }

    /// Ends the step of this rank, and has the pipeline run on it once all ranks have; all ranks that ask are told of one
    /// execution. It may be executed again while it is active. Waits until it is over, `timeout` at most (default: the
    /// handle's deadline); after a time-out the same call waits on. Fails with `PipelineFailed` and the worker's traceback.
    pub fn execute(&self, step: StepNumber, timeout: Option<Duration>) -> Result<Driven> {
        self.execute_async(step)?.wait(timeout)
    }

    /// As [`PipelineHandle::execute`], but waits only until this rank has ended the step.
    pub fn execute_async(&self, step: StepNumber) -> Result<PipelineRequest> {
        let driver = &self.0;
        let attempt = driver.executions_of(step)?.saturating_add(1);
        driver.end_if_open(step)?;
        let order = DriveOrder::Execute { step, attempt };
        // It was not staged: nobody needs to run.
        if driver.producer.lost().is_some() {
            return Ok(PipelineRequest::over(
                driver,
                order,
                Ok(Driven::Executed { ran: false, seconds: 0.0 }),
            ));
        }
        Ok(driver.ask(order))
    }

    /// Has finished with a step: when all ranks have, its memory is free. Ends the step of this rank if it is open. Waits for
    /// nothing else.
    pub fn deactivate(&self, step: StepNumber) -> Result<()> {
        let driver = &self.0;
        driver.executions_of(step)?;
        let ended = driver.end_if_open(step);
        lock(&driver.steps).active.remove(&step);
        driver.tell_steps();
        ended
    }

    /// The steps that are active.
    pub fn active(&self) -> Vec<StepNumber> {
        lock(&self.0.steps).active.keys().copied().collect()
    }

    /// Ends the stream for this rank; steps that are active are deactivated. Closing twice is harmless.
    pub fn close(&self) -> Result<()> {
        if let Some(open) = self.0.producer.open_step().unwrap_or_default() {
            self.0.end_if_open(open)?;
        }
        self.0.producer.close()
    }
}

impl Driver {
    /// How many executions of a step are over; an error if it is not active.
    fn executions_of(&self, step: StepNumber) -> Result<u32> {
        lock(&self.steps)
            .active
            .get(&step)
            .copied()
            .ok_or_else(|| Error::step_order(format!("step {step} is not active: activate it first")))
    }

    fn end_if_open(&self, step: StepNumber) -> Result<()> {
        match self.producer.open_step()? {
            Some(open) if open == step => self.producer.end(),
            _ => Ok(()),
        }
    }

    fn tell(&self, order: DriveOrder) -> ToServer {
        tell_steps(&self.producer, &self.pipeline, self.server, &lock(&self.steps), order)
    }

    /// Tells the coordinator which steps are active. One that is gone needs not know: the next question tells it.
    fn tell_steps(&self) {
        let coordinator = lock(&self.coordinator).clone();
        let _ = coordinator.tell(&self.tell(DriveOrder::Deactivate));
    }

    /// Asks for something; the request has the answer.
    fn ask(self: &Arc<Self>, order: DriveOrder) -> PipelineRequest {
        let rpc = lock(&self.coordinator).clone();
        // Where that fails, waiting for it asks again.
        let asked = rpc.post(&self.tell(order), None).ok().map(|request| (rpc, request));
        PipelineRequest { driver: self.clone(), order, asked: Mutex::new(asked), outcome: Mutex::default() }
    }

    /// A connection to the coordinator, another one than this, which is of no use any more.
    fn coordinator_after(&self, before: Option<&Arc<Rpc>>) -> Result<Arc<Rpc>> {
        let mut coordinator = lock(&self.coordinator);
        if before.is_none_or(|before| Arc::ptr_eq(before, &coordinator)) || coordinator.is_broken() {
            let tell = self.tell(DriveOrder::Deactivate);
            *coordinator = connect(&self.group, self.producer.stream(), &tell)?;
        }
        Ok(coordinator.clone())
    }

    /// An execution is over, whatever came of it.
    fn note_over(&self, order: DriveOrder) {
        if let DriveOrder::Execute { step, attempt } = order
            && let Some(executions) = lock(&self.steps).active.get_mut(&step)
        {
            *executions = attempt.max(*executions);
        }
    }
}

/// What a rank tells with each question.
fn tell_steps(
    producer: &Producer,
    pipeline: &str,
    server: Option<ServerId>,
    steps: &Steps,
    order: DriveOrder,
) -> ToServer {
    ToServer::Drive(Box::new(Drive {
        pipeline: pipeline.to_owned(),
        stream: producer.stream().to_owned(),
        run: producer.run(),
        rank: producer.rank(),
        server,
        active: steps.active.keys().copied().collect(),
        latest: steps.latest,
        order,
    }))
}

/// Connects to the server that coordinates the pipeline, and tells it this.
fn connect(group: &Group, stream: &str, tell: &ToServer) -> Result<Arc<Rpc>> {
    let ask =
        |rpc: &Rpc| Ok(rpc.call_within(tell, None, group.limit(), "to take note of active steps")?.message);
    match group.at_coordinator(stream, ask)? {
        (_, rpc, ToClient::Done) => Ok(Arc::new(rpc)),
        (.., other) => Err(unexpected(&other)),
    }
}

impl PipelineRequest {
    fn over(driver: &Arc<Driver>, order: DriveOrder, outcome: Result<Driven>) -> PipelineRequest {
        let outcome = Mutex::new(Some(outcome));
        PipelineRequest { driver: driver.clone(), order, asked: Mutex::default(), outcome }
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

    /// Waits until it is done, `timeout` at most (default: the deadline that the handle was opened with): after
    /// `ErrorKind::Timeout` it can be waited for again. Later calls tell the same.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Driven> {
        let driver = &self.driver;
        let deadline = deadline_after(timeout.unwrap_or(driver.group.options().patience()));
        // One thread at a time.
        let mut outcome = lock(&self.outcome);
        if let Some(outcome) = &*outcome {
            return outcome.clone();
        }
        let told = match self.answer(deadline) {
            Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
            Err(error)
                if error.kind == ErrorKind::Unreachable && driver.producer.on_loss() == OnLoss::Skip =>
            {
                tracing::warn!("pipeline '{}' is not driven: {error}", driver.pipeline);
                Ok(match self.order {
                    DriveOrder::Execute { .. } => Driven::Executed { ran: false, seconds: 0.0 },
                    _ => Driven::Activated(Vec::new()),
                })
            }
            told => told,
        };
        driver.note_over(self.order);
        *outcome = Some(told.clone());
        told
    }

    /// The answer, of another coordinator if the one that was asked is gone.
    fn answer(&self, deadline: Instant) -> Result<Driven> {
        let mut asked = lock(&self.asked);
        let mut before = None;
        let given_up = Instant::now() + GIVEN_UP;
        loop {
            let (rpc, request) = match asked.take() {
                Some(asked) => asked,
                None => {
                    let rpc = self.driver.coordinator_after(before.as_ref())?;
                    let request = rpc.post(&self.driver.tell(self.order), None)?;
                    (rpc, request)
                }
            };
            let answer = rpc.collect_until(request, deadline, &self.what());
            match answer {
                Ok(ToClient::Activated { workers }) => return Ok(Driven::Activated(workers)),
                Ok(ToClient::Executed { ran, seconds }) => return Ok(Driven::Executed { ran, seconds }),
                Err(error) if error.kind == ErrorKind::Timeout => {
                    *asked = Some((rpc, request));
                    return Err(error);
                }
                // Another server coordinates it by now, or will.
                Ok(ToClient::AskInstead(_)) if Instant::now() < deadline => {}
                Err(error)
                    if error.kind == ErrorKind::Unreachable
                        && (rpc.is_broken() || Instant::now() < given_up)
                        && Instant::now() < deadline => {}
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => return Err(error),
            }
            before = Some(rpc);
            if blocking::interrupted() {
                return Err(blocking::interrupted_while(self.what()));
            }
            look_again();
        }
    }
}
