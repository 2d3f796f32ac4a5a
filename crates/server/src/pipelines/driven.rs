//! Pipelines that ranks drive themselves: they activate a step, stage it, have it executed and deactivate it.
//!
//! With each question a rank tells all that its pipeline's coordinator has to know of it (see [`forebay_wire::drive::Drive`]),
//! so that the server that takes the place of one which has died learns it from the next question. Which workers run a step is
//! fixed when the first rank activates it. A step is retired when all ranks have deactivated it, or have left the run.
//!
//! - [`super::driven_steps`]: the steps that are active, and who waits for what of them;
//! - [`orders`]: what ranks ask for;
//! - [`executions`]: which steps are run, and who is told of that.

mod executions;
mod orders;

use super::driven_steps::{Asker, DrivenStep, DrivenSteps, RETIRED_MAX};
use super::pipeline::Pipeline;
use crate::context::Context;
use crate::streams::users::Streams;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::{StepReport, StreamCoordinator};
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::drive::DriveAnswer;
use forebay_wire::peer::pipelines::Message;

/// Tells the home of a rank what became of what the rank wanted.
pub(super) fn tell_driven(cx: &mut Context<'_>, server: ServerId, token: u64, result: Result<DriveAnswer>) {
    cx.tell(server, Message::Driven { token, result });
}

impl Pipeline {
    /// Sends the answers that have become known.
    fn send_answers(&mut self, cx: &mut Context<'_>) {
        let answers = self.driven.as_mut().map(|driven| std::mem::take(&mut driven.answers));
        for (Asker { server, token }, result) in answers.unwrap_or_default() {
            tell_driven(cx, server, token, result);
        }
    }

    /// The pipeline ends: whoever waits for a step of it is told why.
    pub(super) fn refuse_all_waiting(&mut self, cx: &mut Context<'_>, why: &Error) {
        for Asker { server, token } in self.driven.iter_mut().flat_map(DrivenSteps::take_all_waiting) {
            tell_driven(cx, server, token, Err(why.clone()));
        }
    }

    /// Another run drives the pipeline.
    fn begin_run(&mut self, streams: &mut dyn Streams, run: RunNumber) {
        let why = format!("run {run} of its stream has begun");
        for step in self.driven.as_ref().map(DrivenSteps::active).unwrap_or_default() {
            self.retire(streams, step, &why);
        }
        let Some(mut before) = self.driven.take() else { return };
        for asker in before.take_all_waiting() {
            before.answer(asker, Err(Error::new(ErrorKind::Closed, why.clone())));
        }
        let inherited = before.inherited && before.heard.is_empty();
        self.driven = Some(DrivenSteps {
            run,
            inherited,
            taking_over: before.taking_over,
            answers: before.answers,
            ..DrivenSteps::default()
        });
    }

    /// All ranks have ended a step, or are gone.
    pub(super) fn on_driven_step(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        report: StepReport,
    ) {
        let (run, step) = (report.id.run, report.id.step);
        let is_earlier =
            |driven: &DrivenSteps| driven.inherited && driven.heard.is_empty() && driven.run < run;
        if self.driven.as_ref().is_some_and(is_earlier) {
            self.begin_run(streams, run);
        }
        let Some(driven) = self.driven.as_mut() else { return };
        // What a rank says of it may be on its way, if its home or the coordinator has died.
        let may_come = (driven.inherited || !driven.heard.is_empty()) && !driven.retired.contains(&step);
        let entry = match run == driven.run {
            true if may_come => Some(driven.entry(step)),
            true => driven.steps.get_mut(&step),
            false => None,
        };
        match entry {
            Some(entry) => entry.report = Some(report),
            // No rank has activated it.
            None => {
                self.counts.missed = self.counts.missed.saturating_add(1);
                self.release(streams, (run, step), self.uses((run, step)));
            }
        }
        self.advance_driven(cx, streams, false);
    }

    /// A step is active no more; whoever waits for it is told why.
    fn retire(&mut self, streams: &mut dyn Streams, step: StepNumber, why: &str) {
        let Some(driven) = self.driven.as_mut() else { return };
        let Some(entry) = driven.steps.get(&step) else { return };
        if driven.is_unheard(entry) {
            // Nor is anybody of the others.
            driven.inherited = false;
        }
        let Some(entry) = driven.steps.remove(&step) else { return };
        let id = (driven.run, step);
        driven.retired.push_back(step);
        if driven.retired.len() > RETIRED_MAX {
            driven.retired.pop_front();
        }
        self.queue.retain(|queued| queued.step() != id);
        for (_, (_, asker)) in entry.waiting {
            let text =
                format!("step {step} was let go of before pipeline '{}' ran on it: {why}", self.spec.name);
            driven.answer(asker, Err(Error::new(ErrorKind::Closed, text)));
        }
        if entry.report.is_some() {
            self.release(streams, id, self.uses(id));
        }
    }

    /// Retires what all ranks have deactivated, activates what waits for room, and runs what is asked for.
    /// `thorough`: ranks may have left.
    pub(super) fn advance_driven(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, thorough: bool) {
        for step in self.finished_steps(streams, thorough) {
            self.retire(streams, step, "all ranks have deactivated it");
        }
        self.settle_driven(streams);
        self.activate_waiting();
        let Some(run) = self.driven.as_ref().map(|driven| driven.run) else { return };
        for (step, outcome) in self.queue_wanted(streams) {
            self.on_driven_outcome((run, step), outcome);
        }
        self.run_next(cx, streams);
        self.send_answers(cx);
    }

    /// What was open at the coordinator before is past if no rank will ask for it again.
    fn settle_driven(&mut self, streams: &dyn Streams) {
        let (Some(driven), Some(open)) = (&self.driven, &self.open) else { return };
        let Some(coordinator) = streams.coordinator(&self.spec.stream) else { return };
        let heard = |rank| driven.heard.get(&rank).is_some_and(|heard| heard.is_done_with(open.step));
        let all_done = coordinator.size_of(open.run).is_some() && coordinator.have_all_left(open.run, heard);
        if driven.run == open.run && !driven.steps.contains_key(&open.step) && all_done {
            self.settle_past();
        }
    }

    /// Steps that no rank needs any more, and of which no worker runs.
    fn finished_steps(&self, streams: &dyn Streams, thorough: bool) -> Vec<StepNumber> {
        let Some(driven) = self.driven.as_ref() else { return Vec::new() };
        let coordinator = streams.coordinator(&self.spec.stream);
        let ranks = coordinator.and_then(|coordinator| coordinator.size_of(driven.run));
        let is_done = |number: StepNumber, step: &DrivenStep| {
            let left = |coordinator: &StreamCoordinator| {
                coordinator.have_all_left(driven.run, |rank| step.done.contains(&rank))
            };
            let all = ranks.is_some_and(|ranks| step.done.len() >= ranks as usize);
            let done = all || driven.is_unheard(step) || (thorough && coordinator.is_none_or(left));
            done && !self.is_running((driven.run, number))
        };
        let finished = driven.steps.iter().filter(|(number, step)| is_done(**number, step));
        finished.map(|(number, _)| *number).collect()
    }
}
