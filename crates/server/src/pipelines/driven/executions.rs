//! Which steps are run that ranks ask for, and who is told of that.

use super::{Pipeline, Streams};
use crate::pipelines::driven_steps::{DrivenStep, Outcome};
use crate::pipelines::execute::too_long;
use crate::pipelines::pipeline::QueuedStep;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::{AttachmentId, StepReport, StreamCoordinator};
use forebay_core::{Error, ErrorKind};
use forebay_wire::drive::DriveAnswer;

/// How many executions of one step are remembered, for ranks that ask late.
const OUTCOMES_MAX: usize = 16;

/// What becomes of a step that ranks want to be run.
enum Verdict {
    /// It is run.
    Runs(StepReport),
    /// It is known without a run what became of it.
    Over(Outcome),
    /// Its report is still to come.
    Waits,
}

/// A pipeline at its stream, for what it needs of a step.
struct PipelineAtStream<'a> {
    pipeline: &'a str,
    run: RunNumber,
    attachment: AttachmentId,
    coordinator: &'a StreamCoordinator,
}

impl PipelineAtStream<'_> {
    /// What becomes of a step, as far as its stream goes.
    fn verdict(&self, number: StepNumber, step: &DrivenStep) -> Verdict {
        let name = self.pipeline;
        let from = self.coordinator.active_from(self.attachment);
        if from.is_some_and(|from| (self.run, number) < from) {
            // The pipeline's demand was not in force yet: nothing was staged for it.
            return Verdict::Over(Ok(DriveAnswer::Executed { ran: false, seconds: 0.0 }));
        }
        let Some(report) = &step.report else { return Verdict::Waits };
        if report.torn {
            let text =
                format!("pipeline '{name}' does not run on step {number}: a rank died in it, or left it out");
            return Verdict::Over(Err(Error::new(ErrorKind::Torn, text)));
        }
        if report.dropped {
            let text =
                format!("pipeline '{name}' does not run on step {number}: something of it found no room");
            return Verdict::Over(Err(Error::new(ErrorKind::Dropped, text)));
        }
        if !self.coordinator.is_wanted_by(self.attachment, self.run, number) {
            return Verdict::Over(Ok(DriveAnswer::Executed { ran: false, seconds: 0.0 }));
        }
        match too_long(report) {
            Some(error) => Verdict::Over(Err(failed(name, &error))),
            None => Verdict::Runs(report.clone()),
        }
    }
}

fn failed(pipeline: &str, text: &str) -> Error {
    Error::new(ErrorKind::PipelineFailed, format!("pipeline '{pipeline}': {text}"))
}

impl Pipeline {
    /// Has steps run that are asked for; what became of those that cannot be.
    pub(super) fn queue_wanted(&mut self, streams: &dyn Streams) -> Vec<(StepNumber, Outcome)> {
        let (Some(driven), Some(attachment)) = (self.driven.as_mut(), self.attachment) else {
            return Vec::new();
        };
        let Some(coordinator) = streams.coordinator(&self.spec.stream) else { return Vec::new() };
        let run = driven.run;
        let stream = PipelineAtStream { pipeline: &self.spec.name, run, attachment, coordinator };
        let running = self.running.as_ref().map(|running| running.step);
        let mut over = Vec::new();
        for (number, step) in &mut driven.steps {
            step.wanted = step.wanted.or(step.next_wanted());
            let Some(attempt) = step.wanted else { continue };
            let lost: Option<ServerId> = step.server.filter(|server| !self.servers.contains(server));
            if let Some(server) = lost {
                self.queue.retain(|queued| queued.step() != (run, *number));
                if running != Some((run, *number)) {
                    let text = format!("step {number} was to run on {server} alone, which is gone");
                    over.push((*number, Err(failed(&self.spec.name, &text))));
                }
                continue;
            }
            if step.queued {
                continue;
            }
            match stream.verdict(*number, step) {
                Verdict::Runs(report) => {
                    step.queued = true;
                    self.queue.push_back(QueuedStep { report, attempt, again: false });
                }
                Verdict::Over(outcome) => over.push((*number, outcome)),
                Verdict::Waits => {}
            }
        }
        over
    }

    /// An execution of a step is over, or there is none: all who asked for it are told.
    pub(in crate::pipelines) fn on_driven_outcome(
        &mut self,
        (run, step): (RunNumber, StepNumber),
        outcome: Outcome,
    ) {
        // Of a run that has ended, nobody waits for it.
        let Some(driven) = self.driven.as_mut().filter(|driven| driven.run == run) else { return };
        let Some(entry) = driven.steps.get_mut(&step) else { return };
        entry.queued = false;
        let Some(attempt) = entry.wanted.take() else { return };
        // Who asked for an earlier one, at a coordinator that has died, is told of this one.
        let answered: Vec<_> = {
            let is_told = |_: &u32, (asked, _): &mut (u32, super::Asker)| *asked <= attempt;
            entry.waiting.extract_if(.., is_told).map(|(_, (_, asker))| asker).collect()
        };
        entry.outcomes.insert(attempt, outcome.clone());
        if entry.outcomes.len() > OUTCOMES_MAX {
            entry.outcomes.pop_first();
        }
        entry.wanted = entry.next_wanted();
        for asker in answered {
            driven.answer(asker, outcome.clone());
        }
    }
}
