//! The handle with which a rank drives a pipeline.

use crate::admin::Admin;
use crate::connection::rpc::{Rpc, lock};
use crate::pipeline_handle::driver::{DriveOutcome, DriveRequest, Driver, PipelineRequest, not_run};
use crate::producer::Producer;
use crate::seconds::deadline_after;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::placement::Placement;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::drive::{DRIVEN_WINDOW, DriveOrder};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One rank that drives a pipeline. All ranks of its stream do the same, in the same order; each may be called from one
/// thread at a time.
#[derive(Debug)]
pub struct PipelineHandle(Arc<Driver>);

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
            Ok(DriveOutcome::Activated(servers)) => Ok(servers),
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
        // The order goes out with what is put, at the latest with the step's end, and so before that.
        let request = driver.ask(DriveOrder::Activate(step), Rpc::post_later);
        lock(&driver.steps).activations.insert(step, request.clone());
        Ok(PipelineRequest(request))
    }

    /// Ends the step of this rank, and has the pipeline run on it once all ranks have; all ranks that ask are told of one
    /// execution. It may be executed again while it is active. Waits until it is over, `timeout` at most (default: the
    /// handle's deadline); after a time-out the same call waits on. Fails with `PipelineFailed` and the worker's traceback.
    pub fn execute(&self, step: StepNumber, timeout: Option<Duration>) -> Result<DriveOutcome> {
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
        // The step was not staged: no worker needs to run.
        if driver.producer.lost().is_some() {
            return Ok(PipelineRequest(DriveRequest::over(driver, order, Ok(not_run(order)))));
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

    /// Gives up this rank without closing the stream, as [`Producer::abandon`] does.
    pub fn abandon(&self) {
        self.0.producer.abandon();
    }
}

impl Drop for PipelineHandle {
    fn drop(&mut self) {
        // Activations that nobody waits for any more keep the handle.
        lock(&self.0.steps).activations.clear();
    }
}
