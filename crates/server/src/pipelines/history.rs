//! What was run of a pipeline whose coordinator has died, as the servers with workers tell it.

use super::pipeline::Pipeline;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_wire::execution::{OpenExecution, PipelineCounts, PipelineHistory};
use std::collections::BTreeMap;

impl Pipeline {
    /// What another server has to know of the executions here to go on.
    pub(super) fn history(&self) -> PipelineHistory {
        if let Some(told) = &self.inherited {
            return merged(told);
        }
        // One that runs is not over.
        let last = self.counts.last.saturating_sub(u64::from(self.running.is_some()));
        let counts = PipelineCounts { last, ..self.counts };
        PipelineHistory { done: self.last_step, counts, open: self.open.clone() }
    }

    /// Goes on from what all servers with workers know together, if another server has coordinated the pipeline.
    pub(super) fn adopt_history(&mut self) {
        if let Some(told) = self.inherited.take() {
            let history = merged(&told);
            (self.last_step, self.counts, self.open) = (history.done, history.counts, history.open);
        }
    }

    /// The last step that was run, and what became of all: what was open at the coordinator before was over, if nothing of
    /// its step is known any more. Ranks may put that again.
    pub(super) fn seen(
        &self,
        known: impl Fn(RunNumber, StepNumber) -> bool,
    ) -> (Option<(RunNumber, StepNumber)>, PipelineCounts) {
        let mut history = self.history();
        if let Some(open) = history.open.take_if(|open| !known(open.run, open.step)) {
            count_past(&open, &mut history.done, &mut history.counts);
        }
        (history.done, history.counts)
    }

    /// A step is about to be run, for the `attempt`-th time: whether what was open at the coordinator before was over may be
    /// known now.
    pub(super) fn settle_begun(&mut self, next: (RunNumber, StepNumber), attempt: u32) {
        let Some(open) = &self.open else { return };
        let same = (open.run, open.step) == next;
        if same && open.attempt == attempt {
            self.counts.repeated = self.counts.repeated.saturating_add(1);
            self.open = None;
        } else if same || open.run != next.0 || self.driven.is_none() {
            self.settle_past();
        }
        // Else ranks may still ask for it.
    }

    /// What was open is past: nobody will have its step run again.
    pub(super) fn settle_past(&mut self) {
        if let Some(open) = self.open.take() {
            count_past(&open, &mut self.last_step, &mut self.counts);
        }
    }
}

/// What was open is past. If all that live had ended it, it was over: else its step was lost with the coordinator before.
fn count_past(open: &OpenExecution, done: &mut Option<(RunNumber, StepNumber)>, counts: &mut PipelineCounts) {
    match open.failed {
        Some(failed) => {
            counts.count_run(failed);
            *done = (*done).max(Some((open.run, open.step)));
        }
        None => counts.missed = counts.missed.saturating_add(1),
    }
}

/// What all know together. The last execution that any was ordered to take part in was begun when all before it were over;
/// it is over itself if all that take part say so.
fn merged(told: &BTreeMap<ServerId, PipelineHistory>) -> PipelineHistory {
    let last = told.values().map(|history| history.counts.last).max().unwrap_or_default();
    let is_latest = |history: &&PipelineHistory| history.counts.last == last;
    // The coordinator before may have said how it ended.
    let known = told.values().filter(is_latest).min_by_key(|history| history.open.is_some());
    let Some(mut history) = known.cloned() else { return PipelineHistory::default() };
    let Some(open) = history.open.as_mut() else { return history };
    // Of those that are not there any more nobody can say.
    let there = open.together.iter().filter_map(|server| told.get(server));
    let outcome = |history: &PipelineHistory| {
        let open = history.open.as_ref().filter(|_| history.counts.last == last)?;
        open.failed
    };
    let outcomes: Option<Vec<bool>> = there.map(outcome).collect();
    open.failed = outcomes.as_ref().map(|outcomes| outcomes.contains(&true));
    // Ranks who asked for it may not have been told, and ask again.
    if let Some(outcomes) = outcomes
        && outcomes.len() == open.together.len()
        && open.attempt == 0
    {
        count_past(open, &mut history.done, &mut history.counts);
        history.open = None;
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server tells whose worker was ordered to run the step after `executed` ones, as their `last` execution.
    fn told(executed: u64, last: u64, together: &[u32], failed: Option<bool>) -> PipelineHistory {
        let open = OpenExecution {
            run: 1,
            step: executed,
            attempt: 0,
            together: together.iter().copied().map(ServerId).collect(),
            failed,
        };
        PipelineHistory {
            done: executed.checked_sub(1).map(|step| (1, step)),
            counts: PipelineCounts { last, executed, ..PipelineCounts::default() },
            open: Some(open),
        }
    }

    fn all(histories: Vec<(u32, PipelineHistory)>) -> PipelineHistory {
        merged(&histories.into_iter().map(|(id, history)| (ServerId(id), history)).collect())
    }

    #[test]
    fn nothing_was_run_if_nobody_was_ordered_to() {
        assert_eq!(all(vec![]), PipelineHistory::default());
        assert_eq!(all(vec![(0, PipelineHistory::default())]), PipelineHistory::default());
    }

    #[test]
    fn an_execution_is_over_if_all_that_take_part_say_so() {
        let history = all(vec![(0, told(3, 4, &[0, 1], Some(false))), (1, told(3, 4, &[0, 1], Some(false)))]);
        assert_eq!((history.done, history.counts.executed, history.open), (Some((1, 3)), 4, None));
        let history = all(vec![(0, told(3, 4, &[0, 1], Some(false))), (1, told(3, 4, &[0, 1], Some(true)))]);
        assert_eq!((history.done, history.counts.executed, history.counts.failed), (Some((1, 3)), 3, 1));
        assert_eq!(history.open, None);
    }

    #[test]
    fn it_is_open_if_one_that_took_part_is_gone() {
        for failed in [false, true] {
            let history = all(vec![(0, told(3, 4, &[0, 1], Some(failed)))]);
            assert_eq!((history.done, history.counts.executed), (Some((1, 2)), 3));
            assert_eq!(
                history.open.map(|open| (open.run, open.step, open.failed)),
                Some((1, 3, Some(failed)))
            );
        }
    }

    #[test]
    fn it_was_not_over_while_one_that_lives_has_not_ended_it() {
        let ended = told(3, 4, &[0, 1, 2], Some(false));
        let early = told(2, 3, &[0, 1, 2], Some(false));
        for other in [told(3, 4, &[0, 1, 2], None), early, PipelineHistory::default()] {
            for order in [[0, 1], [1, 0]] {
                let both = vec![(order[0], ended.clone()), (order[1], other.clone())];
                let history = all(both);
                assert_eq!((history.done, history.counts.executed), (Some((1, 2)), 3));
                assert_eq!(history.open.map(|open| open.failed), Some(None));
            }
        }
    }

    #[test]
    fn what_ranks_asked_for_they_may_ask_for_again() {
        let mut ended = told(3, 4, &[0], Some(false));
        ended.open.iter_mut().for_each(|open| open.attempt = 1);
        assert_eq!(all(vec![(0, ended.clone())]), ended);
    }

    #[test]
    fn what_is_handed_on_stays_open() {
        let before = all(vec![(0, told(3, 4, &[0, 1], None)), (1, told(3, 4, &[0, 1], Some(false)))]);
        assert_eq!(all(vec![(0, before.clone()), (1, before.clone())]), before);
        let before = all(vec![(0, told(3, 4, &[0, 1], Some(false)))]);
        assert_eq!(all(vec![(0, before.clone()), (2, before.clone())]), before);
    }

    #[test]
    fn what_a_coordinator_said_that_left_is_what_counts() {
        let said = PipelineHistory {
            done: Some((1, 3)),
            counts: PipelineCounts { last: 4, executed: 4, ..PipelineCounts::default() },
            open: None,
        };
        let history = all(vec![(0, told(3, 4, &[0, 1, 2], Some(false))), (1, said.clone())]);
        assert_eq!(history, said);
    }
}
