//! Running a pipeline: one execution at a time, on all servers whose workers take part, and again on those that are left if
//! it loses one with its server.

use super::execution::{Execution, WorkerOutcome};
use super::pipeline::{HeldStep, Pipeline, QueuedStep};
use crate::context::Context;
use crate::streams::users::Streams;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::StepReport;
use forebay_wire::execution::{CommMember, Execute};
use forebay_wire::frame::{BODY_MAX, encoded_bytes};
use forebay_wire::peer::pipelines::Message;
use std::collections::BTreeSet;
use std::time::Instant;

/// How much there may be to tell of a step, encoded: it goes to every worker in one message, with the members.
const REPORT_MAX: usize = BODY_MAX - (1 << 20);
/// How much of what went wrong in a step is shown.
const ERROR_MAX: usize = 64 << 10;

impl Pipeline {
    /// A step of the stream is closed.
    pub(super) fn on_step(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, report: StepReport) {
        self.counts.missed = self.counts.missed.saturating_add(report.missed);
        if self.driven.is_some() {
            return self.on_driven_step(cx, streams, report);
        }
        if let Some(error) = too_long(&report) {
            // It cannot be told to a worker: it counts as failed, and nobody waits for it.
            self.counts.count_run(true);
            self.last_error = Some(error);
            return self.release(streams, (report.id.run, report.id.step), false);
        }
        self.queue.push_back(QueuedStep { report, attempt: 0, again: false });
        self.run_next(cx, streams);
    }

    /// Runs the next step, if all workers that take part are ready and none runs.
    pub(super) fn run_next(&mut self, cx: &mut Context<'_>, streams: &dyn Streams) {
        if self.running.is_some() || cx.members().pauses() {
            return;
        }
        let Some(next) = self.queue.front().map(QueuedStep::step) else { return };
        let Some(members) = self.members_for(next) else { return };
        let Some(QueuedStep { report, attempt, again }) = self.queue.pop_front() else { return };
        self.settle_begun(next, attempt);
        self.counts.last = self.counts.last.saturating_add(1);
        let taking_part: BTreeSet<ServerId> = members.iter().map(|member| member.server).collect();
        self.running = Some(Execution {
            number: self.counts.last,
            step: next,
            attempt,
            awaited: taking_part.clone(),
            holders: taking_part.clone(),
            report: (!again).then(|| report.clone()),
            lost_worker: false,
            errors: Vec::new(),
            started: Instant::now(),
        });
        let view = &cx.server.standing().view;
        let has_worker = |id: &ServerId| taking_part.contains(id);
        let beside_all = streams.are_holders_members() && view.members.iter().all(has_worker);
        self.order(cx, &members, beside_all, &report, attempt);
    }

    /// Tells the servers of the execution that has just begun.
    fn order(
        &self,
        cx: &mut Context<'_>,
        members: &[CommMember],
        beside_all: bool,
        report: &StepReport,
        attempt: u32,
    ) {
        for (rank, member) in members.iter().enumerate() {
            let order = Execute {
                execution: self.counts.last,
                done: self.last_step,
                counts: self.counts,
                attempt,
                members: members.to_vec(),
                rank: rank as u32,
                beside_all,
                report: report.clone(),
            };
            let pipeline = self.spec.name.clone();
            cx.tell(member.server, Message::Execute { pipeline, order: Box::new(order) });
        }
    }

    /// The workers that are to run a step; `None` while one of them is not ready. Of a step that ranks drive, those that were
    /// there when it was activated and are still, or all if none is.
    fn members_for(&self, step: (RunNumber, StepNumber)) -> Option<Vec<CommMember>> {
        let fixed = self.driven.as_ref().and_then(|driven| driven.workers_of(step));
        let left = fixed.map(|(workers, alone)| {
            (workers.intersection(&self.servers).copied().collect::<BTreeSet<ServerId>>(), alone)
        });
        let servers = match &left {
            Some((left, alone)) if !left.is_empty() || *alone => left,
            _ => &self.servers,
        };
        let ready = servers.iter().map(|server| self.ready.get(server).cloned());
        ready.collect::<Option<Vec<_>>>().filter(|ready| !ready.is_empty())
    }

    /// A worker has ended an execution, or will never do so.
    pub(super) fn on_executed(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        from: ServerId,
        outcome: WorkerOutcome,
    ) {
        let WorkerOutcome { execution, error, seconds } = outcome;
        let running = self.running.as_mut().filter(|running| running.number == execution);
        let Some(running) = running else { return };
        running.awaited.remove(&from);
        error.into_iter().for_each(|error| running.note_error(error, from));
        let longest = if running.awaited.is_empty() { 0.0 } else { self.last_seconds };
        self.last_seconds = seconds.max(longest);
        if !running.awaited.is_empty() {
            return;
        }
        let Some(mut done) = self.running.take() else { return };
        // Before the next step is begun: there may always be one that waits.
        done.holders.retain(|server| !self.leaving.contains(server));
        self.end_leaving_workers(cx, streams);
        if done.lost_worker
            && let Some(report) = done.report.take()
        {
            self.counts.repeated = self.counts.repeated.saturating_add(1);
            let (step, errors) = (done.step.1, done.describe_errors());
            self.last_error = Some(format!("step {step}, run again: {errors}"));
            self.hold(&done);
            self.queue.push_front(QueuedStep { report, attempt: done.attempt, again: true });
            return self.run_next(cx, streams);
        }
        self.finish(cx, streams, &done);
    }

    /// Workers still show memory of an execution's step.
    fn hold(&mut self, done: &Execution) {
        if !done.holders.is_empty() {
            let held = HeldStep { step: done.step, holders: done.holders.clone() };
            self.held.insert(done.number, held);
        }
    }

    /// An execution is over, and its step will not be run again by itself.
    fn finish(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, done: &Execution) {
        self.last_step = Some(done.step);
        self.last_seconds = done.started.elapsed().as_secs_f64();
        self.counts.count_run(!done.errors.is_empty());
        if !done.errors.is_empty() {
            let mut text = format!("step {}: {}", done.step.1, done.describe_errors());
            text.truncate(text.floor_char_boundary(ERROR_MAX));
            self.last_error = Some(text);
        }
        self.hold(done);
        let pinned = self.uses(done.step);
        let Some(driven) = &self.driven else {
            self.release(streams, done.step, pinned);
            return self.run_next(cx, streams);
        };
        let is_retired = !driven.holds(done.step) && !pinned;
        let outcome = done.outcome(&self.spec.name, self.last_seconds);
        self.on_driven_outcome(done.step, outcome);
        if is_retired {
            // Another run has begun meanwhile.
            self.release(streams, done.step, false);
        }
        self.advance_driven(cx, streams, false);
    }

    /// A worker shows no memory of an execution's step any more; of no step at all without `execution`, since it is gone.
    pub(super) fn on_released(&mut self, streams: &mut dyn Streams, from: ServerId, execution: Option<u64>) {
        let is_meant = |number: u64| execution.is_none_or(|execution| execution == number);
        if let Some(running) = self.running.as_mut().filter(|running| is_meant(running.number)) {
            running.holders.remove(&from);
        }
        let mut free = Vec::new();
        self.held.retain(|number, held| {
            if is_meant(*number) {
                held.holders.remove(&from);
            }
            if held.holders.is_empty() {
                free.push(held.step);
            }
            !held.holders.is_empty()
        });
        let is_driven = |step| self.driven.as_ref().is_some_and(|driven| driven.holds(step));
        free.retain(|step| !self.uses(*step) && !is_driven(*step));
        for step in free {
            self.release(streams, step, false);
        }
    }
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
