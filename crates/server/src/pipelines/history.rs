//! What was run of a pipeline whose coordinator has died, as the servers with workers tell it.

use super::Pipeline;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_wire::message::PipelineHistory;
use std::collections::BTreeMap;

impl Pipeline {
    /// What another server has to know of the executions here to go on.
    pub(super) fn history(&self) -> PipelineHistory {
        match &self.inherited {
            Some(told) => merged(told),
            None => PipelineHistory { done: self.last_step, counts: self.counts, open: self.open.clone() },
        }
    }

    /// Whether the execution that was open at the coordinator before was over is known now: its step is run again, or is past.
    pub(super) fn settle_open(&mut self, next: Option<(RunNumber, StepNumber)>) {
        let Some(open) = self.open.take() else { return };
        if next == Some((open.run, open.step)) {
            self.counts.repeated = self.counts.repeated.saturating_add(1);
        } else {
            self.counts.ran(open.failed == Some(true));
            self.last_step = Some((open.run, open.step));
        }
    }
}

/// What all know together. The last execution that any was ordered to take part in was begun when all before it were over;
/// it is over itself if all that take part say so.
pub(super) fn merged(told: &BTreeMap<ServerId, PipelineHistory>) -> PipelineHistory {
    let last = told.values().map(|history| history.counts.last).max().unwrap_or_default();
    let latest: BTreeMap<ServerId, &PipelineHistory> = told
        .iter()
        .filter(|(_, history)| history.counts.last == last)
        .map(|(id, known)| (*id, known))
        .collect();
    // The coordinator before has said of it how it ended.
    if let Some(history) = latest.values().find(|history| history.open.is_none()) {
        return (*history).clone();
    }
    let Some(mut history) = latest.values().next().map(|history| (*history).clone()) else {
        return PipelineHistory::default();
    };
    let Some(open) = history.open.as_mut() else { return history };
    let outcome = |server: &ServerId| latest.get(server)?.open.as_ref()?.failed;
    let outcomes: Vec<Option<bool>> = open.together.iter().map(outcome).collect();
    let failed = outcomes.contains(&Some(true));
    if outcomes.contains(&None) {
        open.failed = Some(failed);
        return history;
    }
    history.done = Some((open.run, open.step));
    history.counts.ran(failed);
    history.open = None;
    history
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::message::{OpenExecution, PipelineCounts};

    /// What a server tells whose worker was ordered to run the step after `executed` ones, as their `last` execution.
    fn told(executed: u64, last: u64, together: &[u32], failed: Option<bool>) -> PipelineHistory {
        let open = OpenExecution {
            run: 1,
            step: executed,
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
    fn it_is_open_while_one_has_not_ended_it_or_cannot_say() {
        let ended = told(3, 4, &[0, 1], Some(false));
        for other in
            [vec![], vec![(1, told(3, 4, &[0, 1], None))], vec![(1, told(2, 3, &[0, 1], Some(false)))]]
        {
            let history = all([vec![(0, ended.clone())], other].concat());
            assert_eq!((history.done, history.counts.executed), (Some((1, 2)), 3));
            assert_eq!(
                history.open.map(|open| (open.run, open.step, open.failed)),
                Some((1, 3, Some(false)))
            );
        }
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
