//! What the coordinator of a pipeline knows of the steps that ranks drive.

use super::super::Pipeline;
use forebay_core::ids::{RunNumber, ServerId, StepNumber};
use forebay_core::steps::StepReport;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::drive::{Drive, DriveAnswer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// How many steps are remembered that were let go of.
pub(super) const PASSED_MAX: usize = 64;
/// How long a closed step is held that was activated, maybe, at a coordinator which has died, if no rank is heard of.
pub(super) const UNHEARD: Duration = Duration::from_secs(120);
/// As `UNHEARD`, of steps that closed since: whoever ends a step that it drives says so at once.
pub(super) const UNHEARD_SINCE: Duration = Duration::from_secs(5);

/// The steps of a pipeline that ranks drive.
#[derive(Debug, Default)]
pub(in crate::pipelines) struct Driven {
    pub(super) run: RunNumber,
    /// Those that some rank has not deactivated.
    pub(super) steps: BTreeMap<StepNumber, DrivenStep>,
    /// By step and rank: what is activated once there is room.
    pub(super) awaiting_room: BTreeMap<(StepNumber, u32), (Option<ServerId>, Asker)>,
    /// The ranks of the run that were heard of, and what they told last.
    pub(super) heard: BTreeMap<u32, Heard>,
    /// Another server has coordinated the pipeline: closed steps may be active although no rank was heard of yet.
    pub(super) inherited: bool,
    /// Its steps are being taken over.
    pub(super) taking_over: bool,
    /// Steps that were let go of, the latest last.
    pub(super) passed: VecDeque<StepNumber>,
    /// The servers whose workers run the next step that is activated, as ranks were told.
    pub(super) promised: Option<BTreeSet<ServerId>>,
    /// Answers that are to be sent.
    pub(super) answers: Vec<(Asker, Result<DriveAnswer>)>,
}

/// What a rank has told.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) active: BTreeSet<StepNumber>,
    /// The last step that it has activated.
    pub(super) latest: StepNumber,
}

impl Heard {
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
    pub(super) unheard: Instant,
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
    pub(super) fn new(done: BTreeSet<u32>, unheard: Instant) -> DrivenStep {
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
            unheard,
        }
    }

    /// The next execution that somebody asks for.
    pub(super) fn next_wanted(&self) -> Option<u32> {
        self.waiting.values().map(|(attempt, _)| *attempt).min()
    }
}

impl Driven {
    /// Another server has coordinated the pipeline.
    pub(in crate::pipelines) fn inherit(&mut self) {
        self.inherited = true;
    }

    /// The pipeline is told of the steps that are closed, whether another server has coordinated it; of more when that is
    /// over.
    pub(in crate::pipelines) fn takes_over(&mut self) -> bool {
        self.taking_over = self.inherited;
        self.inherited
    }

    pub(in crate::pipelines) fn has_taken_over(&mut self) {
        self.taking_over = false;
    }

    /// The servers whose workers are to run a step, if there are such; and whether only these may.
    pub(in crate::pipelines) fn workers_of(
        &self,
        run: RunNumber,
        step: StepNumber,
    ) -> Option<(&BTreeSet<ServerId>, bool)> {
        let step = self.steps.get(&step).filter(|_| run == self.run)?;
        step.workers.as_ref().map(|workers| (workers, step.server.is_some()))
    }

    /// The steps that are active.
    pub(in crate::pipelines) fn active(&self) -> Vec<StepNumber> {
        self.steps.keys().copied().collect()
    }

    /// Whether a step is not let go of.
    pub(in crate::pipelines) fn holds(&self, run: RunNumber, step: StepNumber) -> bool {
        run == self.run && self.steps.contains_key(&step)
    }

    /// A rank tells which steps are active.
    pub(super) fn hear(&mut self, drive: &Drive) {
        let heard = Heard { active: drive.active.iter().copied().collect(), latest: drive.latest };
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
        unheard && (!self.inherited || Instant::now() > step.unheard)
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
}

impl Pipeline {
    /// A rank tells of a step: from now on it is known who runs it, and the next one.
    pub(super) fn activate(&mut self, step: StepNumber, server: Option<ServerId>) -> Result<DriveAnswer> {
        let (name, servers) = (&self.spec.name, &self.servers);
        let driven = self.driven.as_mut().ok_or_else(|| Error::internal("a pipeline that is not driven"))?;
        let known = driven.steps.get(&step).filter(|known| known.workers.is_some());
        if let Some(known) = known.filter(|known| known.server != server) {
            let who = |server: Option<ServerId>| server.map_or("all servers".to_owned(), |s| s.to_string());
            return Err(Error::conflict(format!(
                "step {step} was activated for pipeline '{name}' on {}, and now on {}: all ranks must use one handle",
                who(known.server),
                who(server)
            )));
        }
        let ready: BTreeSet<ServerId> = match server {
            Some(one) if servers.contains(&one) => BTreeSet::from([one]),
            Some(one) => {
                let there: Vec<String> = servers.iter().map(ServerId::to_string).collect();
                return Err(Error::not_found(format!(
                    "pipeline '{name}' has no worker on {one}; it has some on {}",
                    there.join(", ")
                )));
            }
            None => self.ready.keys().filter(|server| !self.leaving.contains(server)).copied().collect(),
        };
        if driven.entry(step).workers.is_none() {
            let promised = driven.promised.replace(ready.clone()).filter(|_| server.is_none());
            let entry = driven.entry(step);
            entry.server = server;
            entry.workers = Some(promised.unwrap_or_else(|| ready.clone()));
            entry.next = ready;
        }
        let entry = driven.entry(step);
        Ok(DriveAnswer::Activated {
            workers: entry.workers.iter().flatten().copied().collect(),
            next: entry.next.iter().copied().collect(),
        })
    }
}
