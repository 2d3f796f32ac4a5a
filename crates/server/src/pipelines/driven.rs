//! Pipelines that ranks drive themselves: they activate a step, stage it, have it executed and deactivate it.
//!
//! With each question a rank tells all that its pipeline's coordinator has to know of it (see [`Drive`]), so that the server
//! that takes the place of one which has died learns it from the next question. Which workers run a step is fixed when the
//! first rank activates it. A step is let go of when all ranks have deactivated it, or have left the run.

mod known;

pub(super) use known::Driven;

use super::execution::too_long;
use super::{Pipeline, Waiting};
use crate::node::{Node, State};
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::StepReport;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::drive::{DRIVEN_WINDOW, Drive, DriveAnswer, DriveOrder};
use forebay_wire::peer::pipelines;
use known::{Asker, DrivenStep, Outcome, PASSED_MAX};

/// How many executions of one step are remembered, for ranks that ask late.
const OUTCOMES_MAX: usize = 16;

impl Node {
    /// What is known of a pipeline, for a rank that is to drive it: its stream, and whether it is driven.
    pub(crate) fn find_pipeline(&self, name: &str) -> Result<(String, bool)> {
        let state = self.state.lock();
        let coordinated = state.pipelines.coordinated.get(name).map(|pipeline| &pipeline.spec);
        let spec = coordinated.or_else(|| state.pipelines.workers.get(name).map(|worker| &worker.spec));
        let spec = spec.ok_or_else(|| Error::not_found(format!("there is no pipeline '{name}'")))?;
        Ok((spec.stream.clone(), spec.driven))
    }

    /// A rank wants something of a pipeline that it drives; its home is answered when that is done.
    pub(crate) fn handle_drive(&self, state: &mut State, from: ServerId, token: u64, drive: Box<Drive>) {
        match self.place_of(state, &drive.stream) {
            Some(server) if server == self.id => {}
            Some(server) => {
                self.tell(state, from, pipelines::Message::Redirect { token, server });
                return;
            }
            None => {
                let again = pipelines::Message::Drive { token, drive };
                if !state.locations.defer(from, again) {
                    let error = Error::unreachable("too many ranks ask while the group changes");
                    self.tell(state, from, pipelines::Message::Driven { token, result: Err(error) });
                }
                return;
            }
        }
        let (name, asker) = (drive.pipeline.clone(), Asker { server: from, token });
        if let Err(error) = self.drive(state, *drive, asker) {
            self.tell(state, from, pipelines::Message::Driven { token, result: Err(error) });
        }
        self.driven_goes_on(state, &name, false);
    }

    fn drive(&self, state: &mut State, drive: Drive, asker: Asker) -> Result<()> {
        let name = drive.pipeline.clone();
        self.check_drive(state, &drive)?;
        let Some(pipeline) = state.pipelines.coordinated.get_mut(&name) else { return Ok(()) };
        let before = pipeline.driven.as_ref().map_or(0, |driven| driven.run);
        if drive.run < before {
            return Err(Error::not_found(format!(
                "run {} of stream '{}' has ended: run {before} drives pipeline '{name}' now",
                drive.run, drive.stream
            )));
        }
        if drive.run > before {
            self.drives_anew(state, &name, drive.run);
        }
        let Some(pipeline) = state.pipelines.coordinated.get_mut(&name) else { return Ok(()) };
        let Some(driven) = pipeline.driven.as_mut() else { return Ok(()) };
        driven.hear(&drive);
        match drive.order {
            DriveOrder::Activate(step) => {
                let is_room = driven.steps.len() < DRIVEN_WINDOW || driven.steps.contains_key(&step);
                if is_room {
                    let activated = pipeline.activate(step, drive.server)?;
                    pipeline.driven.iter_mut().for_each(|driven| driven.answer(asker, Ok(activated.clone())));
                } else {
                    driven.awaiting_room.insert((step, drive.rank), (drive.server, asker));
                }
            }
            DriveOrder::Execute { step, attempt } => {
                if driven.passed.contains(&step) && !driven.steps.contains_key(&step) {
                    return Err(Error::not_found(format!(
                        "step {step} of stream '{}' is held no more: a server has died while it was active",
                        drive.stream
                    )));
                }
                pipeline.activate(step, drive.server)?;
                let Some(driven) = pipeline.driven.as_mut() else { return Ok(()) };
                let Some(entry) = driven.steps.get_mut(&step) else { return Ok(()) };
                match entry.outcomes.range(attempt..).next() {
                    Some((_, outcome)) => {
                        let outcome = outcome.clone();
                        driven.answer(asker, outcome);
                    }
                    None => drop(entry.waiting.insert(drive.rank, (attempt, asker))),
                }
            }
            DriveOrder::Deactivate => {}
        }
        Ok(())
    }

    /// Whether a rank may drive a pipeline here and now.
    fn check_drive(&self, state: &State, drive: &Drive) -> Result<()> {
        let (name, stream) = (&drive.pipeline, &drive.stream);
        let settled = self.all_told(state);
        let found = state.pipelines.coordinated.get(name);
        let Some(pipeline) = found.filter(|found| settled || found.inherited.is_none()) else {
            return Err(match settled {
                true => Error::not_found(format!("there is no pipeline '{name}' on stream '{stream}'")),
                false => Error::unreachable(format!("not all servers have told of pipeline '{name}' yet")),
            });
        };
        if pipeline.spec.stream != *stream {
            return Err(Error::conflict(format!(
                "pipeline '{name}' runs on stream '{}' now: open the handle again",
                pipeline.spec.stream
            )));
        }
        if !pipeline.spec.driven {
            return Err(not_driven(name));
        }
        if drive.active.len() > DRIVEN_WINDOW {
            return Err(Error::protocol("a rank with too many active steps"));
        }
        let ranks = state.coordination.get(stream).and_then(|coordinator| coordinator.size_of(drive.run));
        match ranks {
            Some(ranks) if drive.rank < ranks => Ok(()),
            Some(ranks) => Err(Error::protocol(format!("rank {} of {ranks}", drive.rank))),
            // Its ranks come back one after the other.
            None => Err(Error::unreachable(format!("run {} of stream '{stream}' is not known", drive.run))),
        }
    }

    /// Sends the answers that have become known.
    fn send_answers(&self, state: &mut State, name: &str) {
        let driven = state.pipelines.coordinated.get_mut(name).and_then(|pipeline| pipeline.driven.as_mut());
        for (Asker { server, token }, result) in
            driven.map(|driven| std::mem::take(&mut driven.answers)).unwrap_or_default()
        {
            self.tell(state, server, pipelines::Message::Driven { token, result });
        }
    }

    /// Another run drives a pipeline.
    fn drives_anew(&self, state: &mut State, name: &str, run: RunNumber) {
        let driven = |state: &mut State| -> Option<Vec<StepNumber>> {
            Some(state.pipelines.coordinated.get(name)?.driven.as_ref()?.active())
        };
        for step in driven(state).into_iter().flatten() {
            self.let_go_of(state, name, step, &format!("run {run} of its stream has begun"));
        }
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        let Some(mut before) = pipeline.driven.take() else { return };
        let error = || Error::new(ErrorKind::Closed, format!("run {run} of its stream has begun"));
        for asker in before.take_all_waiting() {
            before.answer(asker, Err(error()));
        }
        let inherited = before.inherited && before.heard.is_empty();
        pipeline.driven = Some(Driven {
            run,
            inherited,
            taking_over: before.taking_over,
            answers: before.answers,
            ..Driven::default()
        });
    }

    /// All ranks have ended a step, or are gone.
    pub(super) fn driven_report(&self, state: &mut State, name: &str, report: StepReport) {
        let (run, step) = (report.id.run, report.id.step);
        let driven = state.pipelines.coordinated.get(name).and_then(|pipeline| pipeline.driven.as_ref());
        if driven.is_some_and(|driven| driven.inherited && driven.heard.is_empty() && driven.run < run) {
            self.drives_anew(state, name, run);
        }
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        let Some(driven) = pipeline.driven.as_mut() else { return };
        // What a rank says of it may be on its way, if its home or the coordinator has died.
        let may_come = (driven.inherited || !driven.heard.is_empty()) && !driven.passed.contains(&step);
        let entry = match run == driven.run {
            true if may_come => Some(driven.entry(step)),
            true => driven.steps.get_mut(&step),
            false => None,
        };
        match entry {
            Some(entry) => entry.report = Some(report),
            // No rank has activated it.
            None => {
                pipeline.counts.missed = pipeline.counts.missed.saturating_add(1);
                self.release_driven(state, name, run, step);
            }
        }
        self.driven_goes_on(state, name, false);
    }

    fn release_driven(&self, state: &mut State, name: &str, run: RunNumber, step: StepNumber) {
        let Some(pipeline) = state.pipelines.coordinated.get(name) else { return };
        let (pinned, stream) = (pipeline.uses(run, step), pipeline.spec.stream.clone());
        if let Some(attachment) = pipeline.attachment {
            let effects = self.coordinator(state, &stream).release(attachment, run, step, pinned);
            self.apply(state, &stream, effects);
        }
    }

    /// A step is held no more; whoever waits for it is told why.
    fn let_go_of(&self, state: &mut State, name: &str, step: StepNumber, why: &str) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        let Some(driven) = pipeline.driven.as_mut() else { return };
        let Some(entry) = driven.steps.get(&step) else { return };
        if driven.is_unheard(entry) {
            // Nor is anybody of the others.
            driven.inherited = false;
        }
        let Some(entry) = driven.steps.remove(&step) else { return };
        let run = driven.run;
        driven.passed.push_back(step);
        if driven.passed.len() > PASSED_MAX {
            driven.passed.pop_front();
        }
        pipeline.waiting.retain(|waiting| (waiting.report.id.run, waiting.report.id.step) != (run, step));
        for (_, (_, asker)) in entry.waiting {
            let text = format!("step {step} was let go of before pipeline '{name}' ran on it: {why}");
            driven.answer(asker, Err(Error::new(ErrorKind::Closed, text)));
        }
        if entry.report.is_some() {
            self.release_driven(state, name, run, step);
        }
    }

    /// Lets go of what all ranks have deactivated, activates what waits for room, and runs what is asked for.
    /// `thorough`: ranks may have left.
    pub(super) fn driven_goes_on(&self, state: &mut State, name: &str, thorough: bool) {
        for step in self.done_with(state, name, thorough) {
            self.let_go_of(state, name, step, "all ranks have deactivated it");
        }
        self.settle_driven(state, name);
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        loop {
            let Some(driven) = pipeline.driven.as_mut() else { return };
            let Some((step, _)) = driven.awaiting_room.keys().next().copied() else { break };
            if driven.steps.len() >= DRIVEN_WINDOW && !driven.steps.contains_key(&step) {
                break;
            }
            let Some((_, (server, asker))) = driven.awaiting_room.pop_first() else { break };
            let activated = pipeline.activate(step, server);
            pipeline.driven.iter_mut().for_each(|driven| driven.answer(asker, activated.clone()));
        }
        let run = pipeline.driven.as_ref().map_or(0, |driven| driven.run);
        for (step, outcome) in self.begin_driven(state, name) {
            self.driven_executed(state, name, (run, step), outcome);
        }
        self.pipeline_next(state, name);
        self.send_answers(state, name);
    }

    /// What was open at the coordinator before is past if no rank will ask for it again.
    fn settle_driven(&self, state: &mut State, name: &str) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        let (Some(driven), Some(open)) = (&pipeline.driven, &pipeline.open) else { return };
        let Some(coordinator) = state.coordination.get(&pipeline.spec.stream) else { return };
        let heard = |rank| driven.heard.get(&rank).is_some_and(|heard| heard.is_done_with(open.step));
        let all_done = coordinator.size_of(open.run).is_some() && coordinator.have_all_left(open.run, heard);
        if driven.run == open.run && !driven.steps.contains_key(&open.step) && all_done {
            pipeline.settle_past();
        }
    }

    /// Steps that no rank needs any more, and of which no worker runs.
    fn done_with(&self, state: &State, name: &str, thorough: bool) -> Vec<StepNumber> {
        let Some(pipeline) = state.pipelines.coordinated.get(name) else { return Vec::new() };
        let Some(driven) = pipeline.driven.as_ref() else { return Vec::new() };
        let coordinator = state.coordination.get(&pipeline.spec.stream);
        let ranks = coordinator.and_then(|coordinator| coordinator.size_of(driven.run));
        let running = pipeline.running.as_ref().map(|running| (running.run, running.step));
        let is_done = |number: StepNumber, step: &DrivenStep| {
            let left = |coordinator: &forebay_core::steps::StreamCoordinator| {
                coordinator.have_all_left(driven.run, |rank| step.done.contains(&rank))
            };
            let all = ranks.is_some_and(|ranks| step.done.len() >= ranks as usize);
            let done = all || driven.is_unheard(step) || (thorough && coordinator.is_none_or(left));
            done && running != Some((driven.run, number))
        };
        driven
            .steps
            .iter()
            .filter(|(number, step)| is_done(**number, step))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Has steps run that are asked for; what became of those that cannot be.
    fn begin_driven(&self, state: &mut State, name: &str) -> Vec<(StepNumber, Outcome)> {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return Vec::new() };
        let (Some(driven), Some(attachment)) = (pipeline.driven.as_mut(), pipeline.attachment) else {
            return Vec::new();
        };
        let Some(coordinator) = state.coordination.get(&pipeline.spec.stream) else { return Vec::new() };
        let (run, from) = (driven.run, coordinator.takes_part_from(attachment));
        let failed =
            |text: String| Err(Error::new(ErrorKind::PipelineFailed, format!("pipeline '{name}': {text}")));
        let mut over = Vec::new();
        for (number, entry) in &mut driven.steps {
            entry.wanted = entry.wanted.or(entry.next_wanted());
            let gone = entry.server.filter(|server| !pipeline.servers.contains(server));
            let Some(attempt) = entry.wanted else { continue };
            if let Some(server) = gone {
                pipeline
                    .waiting
                    .retain(|waiting| (waiting.report.id.run, waiting.report.id.step) != (run, *number));
                let running = pipeline.running.as_ref();
                if running.is_none_or(|running| (running.run, running.step) != (run, *number)) {
                    let text = format!("step {number} was to run on {server} alone, which is gone");
                    over.push((*number, failed(text)));
                }
                continue;
            }
            if entry.queued {
                continue;
            }
            let too_early = from.is_some_and(|from| (run, *number) < from);
            let Some(report) = entry.report.as_ref().filter(|_| !too_early) else {
                // Its demand was not in force yet: nothing was staged for it.
                over.extend(
                    too_early.then_some((*number, Ok(DriveAnswer::Executed { ran: false, seconds: 0.0 }))),
                );
                continue;
            };
            if report.torn {
                let text = format!(
                    "pipeline '{name}' does not run on step {number}: a rank died in it, or left it out"
                );
                over.push((*number, Err(Error::new(ErrorKind::Torn, text))));
            } else if report.dropped {
                let text =
                    format!("pipeline '{name}' does not run on step {number}: something of it found no room");
                over.push((*number, Err(Error::new(ErrorKind::Dropped, text))));
            } else if !coordinator.is_wanted_by(attachment, run, *number) {
                over.push((*number, Ok(DriveAnswer::Executed { ran: false, seconds: 0.0 })));
            } else if let Some(error) = too_long(report) {
                over.push((*number, failed(error)));
            } else {
                entry.queued = true;
                pipeline.waiting.push_back(Waiting { report: report.clone(), attempt, again: false });
            }
        }
        over
    }

    /// An execution of a step is over, or there is none: all who asked for it are told.
    pub(super) fn driven_executed(
        &self,
        state: &mut State,
        name: &str,
        (run, step): (RunNumber, StepNumber),
        outcome: Outcome,
    ) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        // Of a run that has ended, nobody waits for it.
        let Some(driven) = pipeline.driven.as_mut().filter(|driven| driven.run == run) else { return };
        let Some(entry) = driven.steps.get_mut(&step) else { return };
        entry.queued = false;
        let Some(attempt) = entry.wanted.take() else { return };
        // Who asked for an earlier one, at a coordinator that has died, is told of this one.
        let mut answered = Vec::new();
        let told: Vec<u32> =
            entry.waiting.iter().filter(|(_, (asked, _))| *asked <= attempt).map(|(rank, _)| *rank).collect();
        for rank in told {
            answered.extend(entry.waiting.remove(&rank).map(|(_, asker)| asker));
        }
        entry.outcomes.insert(attempt, outcome.clone());
        if entry.outcomes.len() > OUTCOMES_MAX {
            entry.outcomes.pop_first();
        }
        entry.wanted = entry.next_wanted();
        for asker in answered {
            driven.answer(asker, outcome.clone());
        }
    }

    /// A pipeline ends: whoever waits for it is told why.
    pub(super) fn driven_ends(&self, state: &mut State, pipeline: &mut Pipeline, error: &Error) {
        for Asker { server, token } in pipeline.driven.iter_mut().flat_map(Driven::take_all_waiting) {
            self.tell(state, server, pipelines::Message::Driven { token, result: Err(error.clone()) });
        }
    }

    /// Ranks of a stream may have left, or time has passed: its pipelines that are driven go on.
    pub(crate) fn look_at_driven(&self, state: &mut State, stream: Option<&str>) {
        let pipelines = state.pipelines.coordinated.values();
        let of_stream = |pipeline: &&Pipeline| stream.is_none_or(|stream| pipeline.spec.stream == stream);
        let driven = pipelines.filter(of_stream).filter(|pipeline| pipeline.driven.is_some());
        let names: Vec<String> = driven.map(|pipeline| pipeline.spec.name.clone()).collect();
        for name in names {
            self.driven_goes_on(state, &name, true);
        }
    }
}

fn not_driven(name: &str) -> Error {
    Error::invalid(format!(
        "pipeline '{name}' runs by itself on each closed step: create it with driven=True (--driven) to drive it"
    ))
}
