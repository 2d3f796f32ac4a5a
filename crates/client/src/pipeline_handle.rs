//! Pipelines that the ranks of a simulation drive themselves: activate a step, stage it, execute, deactivate.
//!
//! A handle is a [`Producer`] of the pipeline's stream, which asks its home server; that asks the one that coordinates the
//! pipeline. Each question tells all that has to be known of this rank, so that a server that takes the place of another
//! goes on where that was.

use crate::admin::Admin;
use crate::connection::deadline_mutex::DeadlineMutex;
use crate::connection::group::pause_before_retry;
use crate::connection::rpc::{Rpc, lock, unexpected};
use crate::producer::{OnLoss, Producer};
use crate::seconds::deadline_after;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::placement::Placement;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::producer::{Reply, Request};
use forebay_wire::drive::{DRIVEN_WINDOW, Drive, DriveAnswer, DriveOrder};
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
    pipeline: String,
    server: Option<ServerId>,
    steps: Mutex<Steps>,
}

/// The steps that this rank drives.
#[derive(Debug, Default)]
struct Steps {
    /// Those that are active, and how many executions of each are over.
    active: BTreeMap<StepNumber, u32>,
    /// Activations of which it is not known what came of them.
    activations: BTreeMap<StepNumber, Arc<Pending>>,
    /// The last one that was activated.
    latest: StepNumber,
    /// The servers whose workers run the next one that is activated, if that was told.
    promised: Option<Vec<ServerId>>,
}

/// What a pipeline was asked for, and what becomes of it.
#[derive(Debug)]
pub struct PipelineRequest(Arc<Pending>);

#[derive(Debug)]
struct Pending {
    driver: Arc<Driver>,
    order: DriveOrder,
    /// The connection over which it was asked, and the number of the question.
    asked: Mutex<Option<(Arc<Rpc>, u64)>>,
    /// One thread at a time waits for it.
    outcome: DeadlineMutex<Option<Result<Driven>>>,
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
    /// one server alone, which then holds what is staged. Waits for the answer of a server that knows the pipeline.
    pub fn open(producer: Arc<Producer>, pipeline: &str, server: Option<ServerId>) -> Result<PipelineHandle> {
        let group = producer.group();
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
            group.address_of(server)?;
            producer.place_by(Placement::On(server));
        }
        let (pipeline, steps) = (pipeline.to_owned(), Mutex::default());
        Ok(PipelineHandle(Arc::new(Driver { producer, pipeline, server, steps })))
    }

    /// The rank of the stream: declare fields with it, and put blocks of the step that is active. Steps are begun and ended
    /// by the handle.
    pub fn producer(&self) -> &Arc<Producer> {
        &self.0.producer
    }

    /// Begins a step; returns the servers whose workers run it, as far as they are there then. Those of the first step are
    /// fixed when it is activated, those of each later one when the one before is. Up to 4 steps may be active, of which the
    /// last one is staged. Waits for an answer of this rank's home; longer if other ranks have 4 steps active, one of which is
    /// not the one before; with the first step, for the pipeline's coordinator, too.
    pub fn activate(&self, step: StepNumber, time: f64) -> Result<Vec<ServerId>> {
        let driver = &self.0;
        // What came of the step before: most often it is there.
        driver.hear_of_activations(step, 0)?;
        let request = self.activate_async(step, time)?;
        if driver.producer.lost().is_some() {
            return Ok(Vec::new());
        }
        let promised = lock(&driver.steps).promised.clone();
        if let Some(promised) = promised.filter(|servers| !servers.is_empty()) {
            return Ok(promised);
        }
        match request.wait(None) {
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

    /// As [`PipelineHandle::activate`], but does not wait for the pipeline's coordinator, unless it has not answered for the
    /// four activations before: blocks may be put at once.
    pub fn activate_async(&self, step: StepNumber, time: f64) -> Result<PipelineRequest> {
        let driver = &self.0;
        driver.hear_of_activations(step, DRIVEN_WINDOW)?;
        let open = driver.producer.open_step()?;
        let is_open = open == Some(step);
        if let Some(open) = open.filter(|_| !is_open) {
            return Err(Error::step_order(format!(
                "step {open} is being staged: execute or deactivate it before step {step} is activated"
            )));
        }
        {
            let mut steps = lock(&driver.steps);
            match (steps.active.get(&step), steps.activations.get(&step)) {
                (Some(_), Some(request)) if is_open => return Ok(PipelineRequest(request.clone())),
                (Some(_), _) if !is_open => {
                    return Err(Error::step_order(format!("step {step} is active already")));
                }
                (None, _) if steps.active.len() >= DRIVEN_WINDOW => {
                    return Err(Error::conflict(format!(
                        "{DRIVEN_WINDOW} steps are active, so that step {step} cannot be: deactivate one first"
                    )));
                }
                _ => {}
            }
            steps.active.entry(step).or_default();
        }
        if !is_open && let Err(error) = driver.producer.begin(step, time) {
            lock(&driver.steps).active.remove(&step);
            return Err(error);
        }
        lock(&driver.steps).latest = step;
        // It goes out with what is put, at the latest with the step's end, and so before that.
        let request = driver.ask(DriveOrder::Activate(step), Rpc::post_later);
        lock(&driver.steps).activations.insert(step, request.clone());
        Ok(PipelineRequest(request))
    }

    /// Ends the step of this rank, and has the pipeline run on it once all ranks have; all ranks that ask are told of one
    /// execution. It may be executed again while it is active. Waits until it is over, `timeout` at most (default: the
    /// handle's deadline); after a time-out the same call waits on. Fails with `PipelineFailed` and the worker's traceback.
    pub fn execute(&self, step: StepNumber, timeout: Option<Duration>) -> Result<Driven> {
        let deadline = timeout.map(deadline_after);
        let request = self.execute_async(step)?;
        request.wait(deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())))
    }

    /// As [`PipelineHandle::execute`], but waits only until this rank has ended the step.
    pub fn execute_async(&self, step: StepNumber) -> Result<PipelineRequest> {
        let driver = &self.0;
        let attempt = driver.executions_of(step)?.saturating_add(1);
        driver.end_if_open(step)?;
        let order = DriveOrder::Execute { step, attempt };
        // It was not staged: nobody needs to run.
        if driver.producer.lost().is_some() {
            return Ok(PipelineRequest(Pending::over(driver, order, Ok(not_run(order)))));
        }
        Ok(PipelineRequest(driver.ask(order, |rpc, message| rpc.post(message, None))))
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

    /// Whether a step is being staged.
    pub fn is_staging(&self) -> bool {
        self.0.producer.open_step().is_ok_and(|open| open.is_some())
    }

    /// The steps that are active.
    pub fn active(&self) -> Vec<StepNumber> {
        lock(&self.0.steps).active.keys().copied().collect()
    }

    /// Ends the stream for this rank; steps that are active are deactivated. Closing twice is harmless.
    pub fn close(&self) -> Result<()> {
        let open = self.0.producer.open_step().unwrap_or_default();
        let ended = open.map_or(Ok(()), |open| self.0.end_if_open(open));
        ended.and(self.0.producer.close())
    }
}

impl Drop for PipelineHandle {
    fn drop(&mut self) {
        // Activations that nobody waits for any more keep the handle.
        lock(&self.0.steps).activations.clear();
    }
}

impl Driver {
    /// How many executions of a step are over; an error if it is not active.
    fn executions_of(&self, step: StepNumber) -> Result<u32> {
        let steps = lock(&self.steps);
        let executed = steps.active.get(&step).copied();
        executed.ok_or_else(|| Error::step_order(format!("step {step} is not active: activate it first")))
    }

    /// Waits until it is known what came of all activations before a step, but for the last few.
    fn hear_of_activations(&self, step: StepNumber, last: usize) -> Result<()> {
        loop {
            let (first, count) = {
                let steps = lock(&self.steps);
                let mut before = steps.activations.range(..step).map(|(_, request)| request.clone());
                (before.next(), before.count() + 1)
            };
            let Some(request) = first.filter(|_| count > last) else { return Ok(()) };
            match request.wait(None) {
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                // Whoever uses that step is told.
                _ => {}
            }
        }
    }

    fn end_if_open(&self, step: StepNumber) -> Result<()> {
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
    fn tell_steps(&self) {
        let _ = self.producer.home().rpc.tell(&self.tell(DriveOrder::Deactivate));
    }

    /// Asks for something, by one of the ways to do so; the request has the answer.
    fn ask(
        self: &Arc<Self>,
        order: DriveOrder,
        post: impl Fn(&Rpc, &Request) -> Result<u64>,
    ) -> Arc<Pending> {
        let rpc = self.producer.home().rpc.clone();
        // Where that fails, waiting for it asks again.
        let asked = post(&rpc, &self.tell(order)).ok().map(|request| (rpc, request));
        let asked = Mutex::new(asked);
        Arc::new(Pending { driver: self.clone(), order, asked, outcome: DeadlineMutex::default() })
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
fn not_run(order: DriveOrder) -> Driven {
    match order {
        DriveOrder::Execute { .. } => Driven::Executed { ran: false, seconds: 0.0 },
        _ => Driven::Activated(Vec::new()),
    }
}

impl PipelineRequest {
    /// Waits until it is done, `timeout` at most (default: the deadline that the handle was opened with): after
    /// `ErrorKind::Timeout` it can be waited for again. Later calls tell the same.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Driven> {
        self.0.wait(timeout)
    }
}

impl Pending {
    fn over(driver: &Arc<Driver>, order: DriveOrder, outcome: Result<Driven>) -> Arc<Pending> {
        let outcome = DeadlineMutex::new(Some(outcome));
        Arc::new(Pending { driver: driver.clone(), order, asked: Mutex::default(), outcome })
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

    fn wait(&self, timeout: Option<Duration>) -> Result<Driven> {
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
    fn answer(&self, deadline: Instant, what: &str) -> Result<Driven> {
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
                    return Ok(Driven::Activated(workers));
                }
                Ok(Reply::Driven(DriveAnswer::Executed { ran, seconds })) => {
                    return Ok(Driven::Executed { ran, seconds });
                }
                Err(error) if error.kind == ErrorKind::Timeout && Instant::now() >= deadline => {
                    *asked = Some((rpc, request));
                    return Err(error);
                }
                // The home has given up waiting, or is gone: it is asked again, or another one.
                Err(error)
                    if error.kind == ErrorKind::Timeout
                        || (error.kind == ErrorKind::Unreachable && rpc.is_broken()) => {}
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
