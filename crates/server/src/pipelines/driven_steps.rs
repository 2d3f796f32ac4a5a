//! The steps of a pipeline that ranks drive, as its coordinator knows them.

use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::StepReport;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::drive::{Drive, DriveAnswer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// How many retired steps are remembered.
pub(super) const RETIRED_MAX: usize = 64;
/// How long a closed step is held that was activated, maybe, at a coordinator which has died, if no rank is heard of.
pub(super) const UNHEARD: Duration = Duration::from_secs(120);
/// As `UNHEARD`, of steps that closed since: whoever ends a step that it drives says so at once.
pub(super) const UNHEARD_SINCE: Duration = Duration::from_secs(5);

/// The steps of a pipeline that ranks drive.
#[derive(Debug, Default)]
pub(super) struct DrivenSteps {
    pub(super) run: RunNumber,
    /// Those that some rank has not deactivated.
    pub(super) steps: BTreeMap<StepNumber, DrivenStep>,
    /// By step and rank: what is activated once there is room.
    pub(super) awaiting_room: BTreeMap<(StepNumber, u32), (Option<ServerId>, Asker)>,
    /// What each rank of the run told last, of those that were heard of.
    pub(super) heard: BTreeMap<u32, RankNews>,
    /// Another server has coordinated the pipeline: closed steps may be active although no rank was heard of yet.
    pub(super) inherited: bool,
    /// Its steps are being taken over.
    pub(super) taking_over: bool,
    /// Steps that are active no more, the latest last.
    pub(super) retired: VecDeque<StepNumber>,
    /// The servers whose workers run the next step that is activated, as ranks were told.
    pub(super) promised: Option<BTreeSet<ServerId>>,
    /// Answers that are to be sent.
    pub(super) answers: Vec<(Asker, Result<DriveAnswer>)>,
}

/// What a rank has told.
#[derive(Debug)]
pub(super) struct RankNews {
    pub(super) active: BTreeSet<StepNumber>,
    /// The last step that it has activated.
    pub(super) latest: StepNumber,
}

impl RankNews {
    /// Whether the rank has deactivated a step, or left it out.
    pub(super) fn is_done_with(&self, step: StepNumber) -> bool {
        step <= self.latest && !self.active.contains(&step)
    }
}

/// A step that is active.
#[derive(Debug)]
pub(super) struct DrivenStep {
    /// The server whose worker alone is to run.
    pub(super) server: Option<ServerId>,
    /// The servers whose workers take part; `None` until a rank has told of it.
    pub(super) workers: Option<BTreeSet<ServerId>>,
    /// Those whose workers run the one that was activated after it.
    pub(super) next: BTreeSet<ServerId>,
    /// What is run, once all ranks have ended the step.
    pub(super) report: Option<StepReport>,
    /// The ranks that have deactivated it.
    pub(super) done: BTreeSet<u32>,
    /// The execution that is asked for, and not over.
    pub(super) wanted: Option<u32>,
    /// Whether that runs, or waits for its turn.
    pub(super) queued: bool,
    pub(super) outcomes: BTreeMap<u32, Outcome>,
    /// By rank: the execution that it asks for.
    pub(super) waiting: BTreeMap<u32, (u32, Asker)>,
    /// Until when it waits for some rank to be heard of.
    pub(super) unheard_until: Instant,
}

/// Whether a step was run, and how long that took, or what failed.
pub(super) type Outcome = Result<DriveAnswer>;

/// Where a question came from: the home of the rank, and what it calls it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    pub(super) server: ServerId,
    pub(super) token: u64,
}

impl DrivenStep {
    pub(super) fn new(done: BTreeSet<u32>, unheard_until: Instant) -> DrivenStep {
        DrivenStep {
            server: None,
            workers: None,
            next: BTreeSet::new(),
            report: None,
            done,
            wanted: None,
            queued: false,
            outcomes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            unheard_until,
        }
    }

    /// The next execution that somebody asks for.
    pub(super) fn next_wanted(&self) -> Option<u32> {
        self.waiting.values().map(|(attempt, _)| *attempt).min()
    }
}

impl DrivenSteps {
    /// Another server has coordinated the pipeline.
    pub(super) fn inherit(&mut self) {
        self.inherited = true;
    }

    /// Whether another server has coordinated the pipeline.
    pub(super) fn is_inherited(&self) -> bool {
        self.inherited
    }

    /// From now on the pipeline is told of the steps that have closed at the coordinator before, if there was one.
    pub(super) fn begin_takeover(&mut self) {
        self.taking_over = self.inherited;
    }

    /// The pipeline was told of all steps that had closed before.
    pub(super) fn end_takeover(&mut self) {
        self.taking_over = false;
    }

    /// The servers whose workers are to run a step, if there are such; and whether only these may.
    pub(super) fn workers_of(
        &self,
        (run, step): (RunNumber, StepNumber),
    ) -> Option<(&BTreeSet<ServerId>, bool)> {
        let step = self.steps.get(&step).filter(|_| run == self.run)?;
        step.workers.as_ref().map(|workers| (workers, step.server.is_some()))
    }

    /// The steps that are active.
    pub(super) fn active(&self) -> Vec<StepNumber> {
        self.steps.keys().copied().collect()
    }

    /// Whether a step is active, or was told of and not retired.
    pub(super) fn holds(&self, (run, step): (RunNumber, StepNumber)) -> bool {
        run == self.run && self.steps.contains_key(&step)
    }

    /// A rank tells which steps are active.
    pub(super) fn on_active_steps(&mut self, drive: &Drive) {
        let heard = RankNews { active: drive.active.iter().copied().collect(), latest: drive.latest };
        for (number, step) in &mut self.steps {
            if heard.is_done_with(*number) {
                step.done.insert(drive.rank);
            } else {
                step.done.remove(&drive.rank);
            }
        }
        self.heard.insert(drive.rank, heard);
        let given_up = |(step, rank): &(StepNumber, u32)| *rank == drive.rank && !drive.active.contains(step);
        let given_up: Vec<_> = self.awaiting_room.extract_if(.., |key, _| given_up(key)).collect();
        for ((step, _), (_, asker)) in given_up {
            let text = format!("step {step} was deactivated before there was room for it");
            self.answer(asker, Err(Error::new(ErrorKind::Closed, text)));
        }
    }

    /// A step that is active from now on, if it was not. Ranks that have finished with it already need not come back.
    pub(super) fn entry(&mut self, step: StepNumber) -> &mut DrivenStep {
        let done = self.heard.iter().filter(|(_, heard)| heard.is_done_with(step)).map(|(rank, _)| *rank);
        let patience = if self.taking_over { UNHEARD } else { UNHEARD_SINCE };
        self.steps.entry(step).or_insert_with(|| DrivenStep::new(done.collect(), Instant::now() + patience))
    }

    /// Whether a step has waited long enough for some rank to be heard of.
    pub(super) fn is_unheard(&self, step: &DrivenStep) -> bool {
        let unheard = step.workers.is_none() && self.heard.is_empty();
        unheard && (!self.inherited || Instant::now() > step.unheard_until)
    }

    /// What somebody asked for is known. Who only told something waits for no answer.
    pub(super) fn answer(&mut self, asker: Asker, result: Result<DriveAnswer>) {
        if asker.token != 0 {
            self.answers.push((asker, result));
        }
    }

    /// All who wait.
    pub(super) fn take_all_waiting(&mut self) -> Vec<Asker> {
        let waiting = self.steps.values_mut().flat_map(|step| std::mem::take(&mut step.waiting));
        let executions: Vec<Asker> = waiting.map(|(_, (_, answer))| answer).collect();
        let rooms = std::mem::take(&mut self.awaiting_room).into_values().map(|(.., answer)| answer);
        executions.into_iter().chain(rooms).collect()
    }

    /// What must hold after each event.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        if self.retired.len() > RETIRED_MAX {
            return Err(format!("{} retired steps are remembered", self.retired.len()));
        }
        if !self.answers.is_empty() {
            return Err(format!("{} answers were not sent", self.answers.len()));
        }
        let is_alone = |step: &DrivenStep| step.queued && (step.wanted.is_none() || step.report.is_none());
        match self.steps.iter().find(|(_, step)| is_alone(step)) {
            Some((number, _)) => {
                Err(format!("step {number} is to be run, but nobody asks for it, or it is not there"))
            }
            None => Ok(()),
        }
    }
}
