//! Running a pipeline: one execution at a time, on all servers whose workers take part, and again on those that are left if
//! it loses one with its server.

use super::{Execution, Kept, Waiting, told};
use crate::node::worker_gone;
use crate::node::{Node, State};
use forebay_core::ids::ServerId;
use forebay_core::steps::StepReport;
use forebay_core::{Error, ErrorKind};
use forebay_wire::drive::DriveAnswer;
use forebay_wire::execution::Execute;
use forebay_wire::frame::{BODY_MAX, encoded_bytes};
use forebay_wire::peer::pipelines;
use std::collections::BTreeSet;
use std::time::Instant;

/// How much there may be to tell of a step, encoded: it goes to every worker in one message, with the members.
const REPORT_MAX: usize = BODY_MAX - (1 << 20);

impl Node {
    /// A closed step for a pipeline.
    pub(crate) fn pipeline_step(&self, state: &mut State, name: &str, report: StepReport) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        pipeline.counts.missed = pipeline.counts.missed.saturating_add(report.missed);
        if pipeline.driven.is_some() {
            return self.driven_report(state, name, report);
        }
        if let Some(error) = too_long(&report) {
            // It cannot be told to a worker: counted as failed, and nobody waits for it.
            pipeline.counts.ran(true);
            pipeline.last_error = Some(error);
            let (attachment, stream) = (pipeline.attachment, pipeline.spec.stream.clone());
            if let Some(attachment) = attachment {
                let effects = self.coordinator(state, &stream).release(
                    attachment,
                    report.id.run,
                    report.id.step,
                    false,
                );
                self.apply(state, &stream, effects);
            }
            return;
        }
        pipeline.waiting.push_back(Waiting { report, attempt: 0, again: false });
        self.pipeline_next(state, name);
    }

    /// Runs the next step, if all workers that take part are ready and none runs.
    pub(super) fn pipeline_next(&self, state: &mut State, name: &str) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        if pipeline.running.is_some() || state.common.members.pauses() {
            return;
        }
        let Some(next) = pipeline.waiting.front().map(|waiting| &waiting.report.id) else { return };
        let Some(members) = pipeline.members(next.run, next.step) else { return };
        let Some(Waiting { report, attempt, again }) = pipeline.waiting.pop_front() else { return };
        pipeline.settle_begun((report.id.run, report.id.step), attempt);
        pipeline.counts.last = pipeline.counts.last.saturating_add(1);
        let (number, done, counts) = (pipeline.counts.last, pipeline.last_step, pipeline.counts);
        let taking_part: BTreeSet<ServerId> = members.iter().map(|member| member.server).collect();
        let view = &self.standing().view;
        let has_worker = |id: &ServerId| taking_part.contains(id);
        let beside_all = state.answers.is_empty() && view.members.iter().all(has_worker);
        pipeline.running = Some(Execution {
            number,
            run: report.id.run,
            step: report.id.step,
            attempt,
            waiting_for: taking_part.clone(),
            holders: taking_part,
            report: (!again).then(|| report.clone()),
            lost_worker: false,
            errors: Vec::new(),
            started: Instant::now(),
        });
        for (rank, member) in members.iter().enumerate() {
            let order = Execute {
                execution: number,
                done,
                counts,
                attempt,
                members: members.clone(),
                rank: rank as u32,
                beside_all,
                report: report.clone(),
            };
            let message = pipelines::Message::Execute { pipeline: name.to_owned(), order: Box::new(order) };
            self.tell(state, member.server, message);
        }
    }

    pub(super) fn pipeline_executed(
        &self,
        state: &mut State,
        name: &str,
        from: ServerId,
        execution: u64,
        error: Option<String>,
        seconds: f64,
    ) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        let Some(running) = pipeline.running.as_mut().filter(|running| running.number == execution) else {
            return;
        };
        running.waiting_for.remove(&from);
        if let Some(error) = error {
            match running.errors.iter_mut().find(|(known, _)| *known == error) {
                Some((_, servers)) => servers.push(from),
                None => running.errors.push((error, vec![from])),
            }
        }
        pipeline.last_seconds =
            seconds.max(if running.waiting_for.is_empty() { 0.0 } else { pipeline.last_seconds });
        if !running.waiting_for.is_empty() {
            return;
        }
        let Some(mut done) = pipeline.running.take() else { return };
        // Before the next step is begun: there may always be one that waits.
        done.holders.retain(|server| !pipeline.leaving.contains(server));
        self.end_leaving_workers(state, name);
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        if done.lost_worker
            && let Some(report) = done.report
        {
            pipeline.counts.repeated = pipeline.counts.repeated.saturating_add(1);
            pipeline.last_error = Some(format!("step {}, run again: {}", done.step, told(&done.errors)));
            if !done.holders.is_empty() {
                let kept = Kept { run: done.run, step: done.step, holders: done.holders };
                pipeline.kept.insert(done.number, kept);
            }
            pipeline.waiting.push_front(Waiting { report, attempt: done.attempt, again: true });
            return self.pipeline_next(state, name);
        }
        pipeline.last_step = Some((done.run, done.step));
        pipeline.last_seconds = done.started.elapsed().as_secs_f64();
        pipeline.counts.ran(!done.errors.is_empty());
        if !done.errors.is_empty() {
            let mut text = format!("step {}: {}", done.step, told(&done.errors));
            text.truncate(text.floor_char_boundary(64 << 10));
            pipeline.last_error = Some(text);
        }
        let (attachment, stream) = (pipeline.attachment, pipeline.spec.stream.clone());
        if !done.holders.is_empty() {
            let kept = Kept { run: done.run, step: done.step, holders: done.holders };
            pipeline.kept.insert(done.number, kept);
        }
        let pinned = pipeline.uses(done.run, done.step);
        if let Some(driven) = &pipeline.driven {
            let let_go_of = !driven.holds(done.run, done.step) && !pinned;
            let failure = || {
                let text = format!("pipeline '{name}' failed at step {}: {}", done.step, told(&done.errors));
                Error::new(ErrorKind::PipelineFailed, text)
            };
            let outcome = match done.errors.is_empty() {
                true => Ok(DriveAnswer::Executed { ran: true, seconds: pipeline.last_seconds }),
                false => Err(failure()),
            };
            self.driven_executed(state, name, (done.run, done.step), outcome);
            if let Some(attachment) = attachment.filter(|_| let_go_of) {
                // Another run has begun meanwhile.
                let effects =
                    self.coordinator(state, &stream).release(attachment, done.run, done.step, false);
                self.apply(state, &stream, effects);
            }
            return self.driven_goes_on(state, name, false);
        }
        if let Some(attachment) = attachment {
            let effects = self.coordinator(state, &stream).release(attachment, done.run, done.step, pinned);
            self.apply(state, &stream, effects);
        }
        self.pipeline_next(state, name);
    }

    /// A worker shows no memory of an execution's step any more; of none, if it is gone.
    pub(super) fn pipeline_released(
        &self,
        state: &mut State,
        name: &str,
        from: ServerId,
        execution: Option<u64>,
    ) {
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        let meant = |number: u64| execution.is_none_or(|execution| execution == number);
        if let Some(running) = pipeline.running.as_mut().filter(|running| meant(running.number)) {
            running.holders.remove(&from);
        }
        let mut free = Vec::new();
        pipeline.kept.retain(|number, kept| {
            if meant(*number) {
                kept.holders.remove(&from);
            }
            if kept.holders.is_empty() {
                free.push((kept.run, kept.step));
            }
            !kept.holders.is_empty()
        });
        let driven = |run, step| pipeline.driven.as_ref().is_some_and(|driven| driven.holds(run, step));
        free.retain(|(run, step)| !pipeline.uses(*run, *step) && !driven(*run, *step));
        let (attachment, stream) = (pipeline.attachment, pipeline.spec.stream.clone());
        if let Some(attachment) = attachment {
            for (run, step) in free {
                let effects = self.coordinator(state, &stream).release(attachment, run, step, false);
                self.apply(state, &stream, effects);
            }
        }
    }

    pub(super) fn pipeline_worker_gone(
        &self,
        state: &mut State,
        name: &str,
        from: ServerId,
        why: WorkerGone<'_>,
    ) {
        self.pipeline_released(state, name, from, None);
        let Some(pipeline) = state.pipelines.coordinated.get_mut(name) else { return };
        pipeline.ready.remove(&from);
        let error = match why {
            WorkerGone::Left => "its server left",
            WorkerGone::Failed(error) => {
                pipeline.last_error = Some(worker_gone(name, from, error).text);
                error
            }
        };
        if pipeline.created.is_some() {
            // It never was ready: most likely its code is wrong, and starting it again will not help.
            let failure = Error::new(ErrorKind::PipelineFailed, worker_gone(name, from, error).text);
            return self.pipeline_failed(state, name, &failure);
        }
        let running = pipeline.running.as_ref().filter(|running| running.waiting_for.contains(&from));
        if let Some(execution) = running.map(|running| running.number) {
            let text = worker_gone(name, from, error).text;
            self.pipeline_executed(state, name, from, execution, Some(text), 0.0);
        }
    }
}

/// Why a worker is gone.
#[derive(Debug, Clone, Copy)]
pub(super) enum WorkerGone<'a> {
    /// With its server, as somebody wanted.
    Left,
    Failed(&'a str),
}

/// Why a step cannot be told to a worker, if there is too much to tell of it.
pub(super) fn too_long(report: &StepReport) -> Option<String> {
    let bytes = encoded_bytes(report).unwrap_or(usize::MAX);
    (bytes > REPORT_MAX).then(|| {
        format!(
            "{}: what there is to tell of its blocks takes {bytes} bytes, more than the limit of {REPORT_MAX}: put fewer \
             blocks a step, or larger ones",
            report.id
        )
    })
}
