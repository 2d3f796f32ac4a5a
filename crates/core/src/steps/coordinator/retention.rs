//! How long steps are held, and which go when memory is short.

use super::StreamCoordinator;
use crate::ids::{RunNumber, STATIC_STEP, StepId, StepNumber};
use crate::steps::attachment::{Attachment, Take};
use crate::steps::effect::Effect;
use crate::steps::options::Policy;
use crate::steps::queued::Queued;
use crate::steps::report::RECORDS_TRAVEL_RANKS_MAX;
use crate::steps::run::Run;
use crate::steps::step::Step;
use std::collections::BTreeMap;

/// How many steps may wait for readers before the oldest are dropped, however small they are: steps of a few bytes
/// would not fill any limit in bytes, but memory all the same.
pub(super) const WAITING_MAX: usize = 1024;

impl StreamCoordinator {
    /// Drops closed steps that wait for readers, as the run's policy says.
    pub(super) fn enforce_policy(&mut self, number: RunNumber, effects: &mut Vec<Effect>) {
        self.drop_outdated(effects);
        let Some(run) = self.runs.get(&number) else { return };
        match run.options.policy {
            Policy::Block => {}
            Policy::Latest => {
                let mut dropped = Vec::new();
                for attachment in self.attachments.values_mut() {
                    while attachment.queue.len() > 1 {
                        let Some(oldest) = attachment.drop_at(0) else { break };
                        dropped.push((oldest.run, oldest.step));
                    }
                }
                for (run, step) in dropped {
                    self.let_go(run, step, effects);
                }
            }
            Policy::DropOldest => {
                let limit = run.options.queue_bytes;
                let mut waiting: BTreeMap<StepNumber, u64> = BTreeMap::new();
                // What is kept anyway is there for those that wait, too.
                let counts = |queued: &&Queued| queued.run == number && !run.kept.contains(&queued.step);
                for attachment in self.attachments.values() {
                    // The one at the head may be about to be delivered: a queue of one is no backlog.
                    for Queued { step, .. } in attachment.queue.iter().filter(counts) {
                        waiting.insert(*step, run.steps.get(step).map_or(0, |step| step.bytes));
                    }
                }
                let mut bytes: u64 = waiting.values().sum();
                let mut steps = waiting.len();
                let last = waiting.keys().next_back().copied();
                for (step, size) in waiting {
                    if (bytes <= limit && steps <= WAITING_MAX) || Some(step) == last {
                        break;
                    }
                    (bytes, steps) = (bytes - size, steps - 1);
                    self.drop_queued(number, step, effects);
                }
            }
        }
    }

    /// Those who take the newest step alone do not wait for others.
    pub(super) fn drop_outdated(&mut self, effects: &mut Vec<Effect>) {
        let outdated = self.attachments.values_mut().flat_map(Attachment::drop_outdated);
        for (run, step) in outdated.collect::<Vec<_>>() {
            self.let_go(run, step, effects);
        }
    }

    fn drop_queued(&mut self, run: RunNumber, step: StepNumber, effects: &mut Vec<Effect>) {
        let waited =
            self.attachments.values_mut().filter_map(|a| a.drop_queued(run, step).then_some(())).count();
        for _ in 0..waited {
            self.let_go(run, step, effects);
        }
    }

    /// Memory is short on some server: gives up the oldest closed step that nobody reads right now, if the
    /// policy allows. The effects are empty if nothing could be given up.
    pub fn on_memory_pressure(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let candidate = self.runs.values().find_map(|run| {
            let busy = |step: StepNumber| {
                self.attachments.values().any(|attachment| {
                    let id = (run.number, step);
                    attachment.delivered.contains(&id) || attachment.pinned.contains(&id)
                })
            };
            let step = if run.options.policy == Policy::Block {
                // What nobody holds is there only if it is kept; what waits for those who take the newest alone must not hold
                // the simulation up.
                let waits = |step: StepNumber| {
                    let latest = self.attachments.values().filter(|other| other.take == Take::Latest);
                    latest
                        .filter(|other| other.queue.iter().any(|q| (q.run, q.step) == (run.number, step)))
                        .count()
                };
                let kept =
                    run.kept.iter().find(|step| run.steps.get(step).is_some_and(|step| step.holds == 0));
                let mut closed = run.steps.iter().filter(|(_, step)| step.is_closed());
                kept.or_else(|| closed.find(|(n, step)| step.holds as usize == waits(**n)).map(|(n, _)| n))
            } else {
                let mut closed = run.steps.iter().filter(|(_, step)| step.is_closed()).map(|(step, _)| step);
                closed.find(|step| !busy(**step))
            };
            step.map(|step| (run.number, *step))
        });
        if candidate.is_none() {
            return self.give_up_open_step_ahead();
        }
        if let Some((run, step)) = candidate {
            self.drop_queued(run, step, &mut effects);
            self.free(run, step, &mut effects);
            self.end_if_over(&mut effects);
            self.forget_empty_runs(&mut effects);
        }
        effects
    }

    /// Where nothing that is closed can be given up: a rank that is far ahead of the others fills the memory that they need
    /// to end the steps before. So the latest step that is open goes, unless it is the only one.
    fn give_up_open_step_ahead(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let name = &self.name;
        for run in self.runs.values_mut().filter(|run| run.options.policy != Policy::Block) {
            let mut latest = run.open.iter().skip(1).rev();
            let held = |step: &&StepNumber| run.steps.get(*step).is_some_and(|step| step.bytes > 0);
            let Some(number) = latest.find(held).copied() else { continue };
            let Some(step) = run.steps.get_mut(&number) else { continue };
            let servers = step.drop_content();
            let id = StepId { stream: name.clone(), run: run.number, step: number };
            effects.push(Effect::Free { id, servers, unseen_before: step.unseen_before });
            break;
        }
        effects
    }

    /// An attachment does not hold a step any more, or the static fields of a run, which stay as long as that does.
    pub(super) fn let_go(&mut self, number: RunNumber, step: StepNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        let Some(found) = run.held_mut(step) else { return };
        found.holds = found.holds.saturating_sub(1);
        self.free_if_unneeded(number, step, effects);
    }

    pub(super) fn free_if_unneeded(
        &mut self,
        number: RunNumber,
        step: StepNumber,
        effects: &mut Vec<Effect>,
    ) {
        let Some(run) = self.runs.get(&number) else { return };
        let unheld = run.steps.get(&step).is_some_and(|step| step.is_closed() && step.holds == 0);
        if unheld && !run.kept.contains(&step) {
            self.free(number, step, effects);
        }
    }

    fn free(&mut self, number: RunNumber, step: StepNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        run.kept.remove(&step);
        if let Some(freed) = run.steps.remove(&step) {
            for rank in &freed.ended {
                if let Some(rank) = run.ranks.get_mut(rank) {
                    rank.note_safe_below(step.saturating_add(1));
                }
            }
            let is_large = run.options.size > RECORDS_TRAVEL_RANKS_MAX;
            effects.push(self.freed((number, step), freed, is_large));
        }
    }

    /// Nobody needs what is held of a step, or of static fields, of a run that may be large.
    fn freed(&self, (run, step): (RunNumber, StepNumber), mut freed: Step, is_large: bool) -> Effect {
        if is_large {
            // Owners may know blocks of a rank that died before it could say so.
            freed.servers.extend(self.members.iter().copied());
        }
        let servers = freed.servers.into_iter().collect();
        Effect::Free { id: self.step_id(run, step), servers, unseen_before: freed.unseen_before }
    }

    /// Frees the static fields of a run that is over, of which nothing else is held, unless somebody holds them.
    fn free_statics_if_unneeded(&mut self, number: RunNumber, effects: &mut Vec<Effect>) {
        // Readers that have not come back may look at them.
        let waits = self.waits_to_settle() || self.attachments.values().any(Attachment::awaits_readers);
        let Some(run) = self.runs.get_mut(&number) else { return };
        let is_over = match number < self.last_run {
            true => run.is_over(),
            // Ranks may come back.
            false => run.is_known_to_be_over(),
        };
        if is_over
            && !waits
            && run.steps.is_empty()
            && let Some(freed) = run.statics.take_unheld()
        {
            let is_large = run.options.size > RECORDS_TRAVEL_RANKS_MAX;
            effects.push(self.freed((number, STATIC_STEP), freed, is_large));
        }
    }

    /// Runs that are over are kept only for their steps; the latest also for its contract.
    pub(super) fn forget_empty_runs(&mut self, effects: &mut Vec<Effect>) {
        let last = self.last_run;
        self.free_statics_if_unneeded(last, effects);
        let over: Vec<RunNumber> = self.runs.keys().copied().filter(|run| *run < last).collect();
        for number in over {
            // Only the latest run keeps steps that nobody reads.
            let kept = self.runs.get_mut(&number).map(|run| std::mem::take(&mut run.kept));
            for step in kept.into_iter().flatten() {
                self.free_if_unneeded(number, step, effects);
            }
            self.free_statics_if_unneeded(number, effects);
            let is_empty = |run: &Run| run.steps.is_empty() && !run.has(STATIC_STEP) && run.is_over();
            if self.runs.get(&number).is_some_and(is_empty)
                && let Some(run) = self.runs.remove(&number)
            {
                for (step, servers) in run.unclaimed {
                    let (id, servers) = (self.step_id(number, step), servers.into_iter().collect());
                    effects.push(Effect::Free { id, servers, unseen_before: self.term });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
