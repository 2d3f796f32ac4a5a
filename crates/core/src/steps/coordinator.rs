//! The coordinator of one stream.

use super::attachment::Queued;
use super::run::{Rank, RankState, Run, Step};
use super::{
    Attachment, AttachmentId, Effect, Joined, Policy, RECORDS_TRAVEL_RANKS_MAX, RunOptions, Start, StepEnded,
};
use crate::attr::{Attr, Attrs};
use crate::contract::{Field, Needs};
use crate::cut::{CutCoordinator, Cuts, Decision};
use crate::demand::Demand;
use crate::ids::{RunNumber, ServerId, StepId, StepNumber};
use crate::{Error, ErrorKind, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many steps may wait for readers before the oldest are dropped, however small they are: steps of a few bytes
/// would not fill any limit in bytes, but memory all the same.
const WAITING_MAX: usize = 1024;

/// The state of one stream at the server that coordinates it.
#[derive(Debug)]
pub struct StreamCoordinator {
    name: String,
    members: Vec<ServerId>,
    /// The runs that still have steps, the last one first to be joined.
    runs: BTreeMap<RunNumber, Run>,
    last_run: RunNumber,
    /// The number before that of its first run.
    first_after: RunNumber,
    attachments: BTreeMap<AttachmentId, Attachment>,
    demand: Arc<Demand>,
    cut: CutCoordinator,
    /// The demand changed while a cut was being agreed.
    stale: bool,
}

/// What `status` shows of a stream.
#[derive(Debug, Clone, Serialize, serde::Deserialize, PartialEq)]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// The latest run.
    pub run: RunNumber,
    /// How many ranks it has, and how many of them are open now.
    pub ranks: (u32, u32),
    /// Closed and dropped steps of that run.
    pub steps: (u64, u64),
    /// The latest closed step that is still held.
    pub latest: Option<StepNumber>,
    /// Bytes and blocks of the steps that are held.
    pub held: (u64, u64),
    /// Names of the fields it offers.
    pub fields: Vec<String>,
    /// How many consumers and pipelines are attached.
    pub attached: u32,
}

impl StreamCoordinator {
    /// A stream that nobody has opened yet.
    pub fn new(name: &str, members: Vec<ServerId>) -> StreamCoordinator {
        StreamCoordinator {
            name: name.to_owned(),
            members,
            runs: BTreeMap::new(),
            last_run: 0,
            first_after: 0,
            attachments: BTreeMap::new(),
            demand: Arc::new(Demand::default()),
            cut: CutCoordinator::default(),
            stale: false,
        }
    }

    /// Its runs get higher numbers than this one, since a stream of its name may have been forgotten.
    #[must_use]
    pub fn with_runs_after(mut self, run: RunNumber) -> StreamCoordinator {
        (self.last_run, self.first_after) = (run, run);
        self
    }

    /// Whether nothing but what is told of its past would be lost by forgetting it.
    pub fn is_idle(&self) -> bool {
        let done = |run: &Run| (run.is_over() || run.ranks.is_empty()) && run.steps.is_empty();
        self.attachments.is_empty() && !self.cut.is_busy() && self.runs.values().all(done)
    }

    /// The latest run, if there has been one.
    pub fn last_run(&self) -> Option<RunNumber> {
        (self.last_run > self.first_after).then_some(self.last_run)
    }

    /// The demand as it was last decided or proposed.
    pub fn demand(&self) -> &Arc<Demand> {
        &self.demand
    }

    /// What `status` shows.
    pub fn status(&self) -> StreamStatus {
        let run = self.runs.get(&self.last_run);
        let open = |run: &Run| run.ranks.values().filter(|rank| rank.state == RankState::Open).count() as u32;
        let steps = || self.runs.values().flat_map(|run| run.steps.values());
        StreamStatus {
            name: self.name.clone(),
            run: self.last_run().unwrap_or(0),
            ranks: run.map_or((0, 0), |run| (run.options.size, open(run))),
            steps: run.map_or((0, 0), |run| (run.closed_steps, run.dropped_steps)),
            latest: run.and_then(|run| {
                run.steps.iter().filter(|(_, step)| step.closed).map(|(number, _)| *number).next_back()
            }),
            held: (steps().map(|step| step.bytes).sum(), steps().map(|step| step.block_count()).sum()),
            fields: run.map_or(Vec::new(), |run| run.contract.keys().cloned().collect()),
            attached: self.attachments.len() as u32,
        }
    }

    /// How many blocks it knows itself, and about how many bytes that takes.
    pub fn directory_size(&self) -> (u64, u64) {
        let steps = self.runs.values().flat_map(|run| run.steps.values());
        steps
            .flat_map(|step| step.fields.values())
            .fold((0, 0), |sum, index| (sum.0 + index.blocks().len() as u64, sum.1 + index.bytes()))
    }

    /// The fields that the latest run offers.
    pub fn contract(&self) -> impl Iterator<Item = &Field> {
        self.runs.get(&self.last_run).into_iter().flat_map(|run| run.contract.values())
    }

    /// The attributes of the latest run.
    pub fn attrs(&self) -> Option<&Attrs> {
        self.runs.get(&self.last_run).map(|run| &run.attrs)
    }

    // ---- producers ------------------------------------------------------------------------------

    /// A rank joins the current run, or the first of a new one.
    pub fn join(
        &mut self,
        rank: u32,
        server: ServerId,
        options: RunOptions,
    ) -> Result<(Joined, Vec<Effect>)> {
        options.check(rank)?;
        let mut effects = Vec::new();
        let current = self.runs.get_mut(&self.last_run).filter(|run| run.expects(rank));
        if let Some(run) = current {
            if run.ranks.is_empty() {
                // Those that were there had not come after all.
                run.options = options.clone();
            }
            if run.ranks.contains_key(&rank) {
                return Err(Error::conflict(format!(
                    "rank {rank} of stream '{}' is already open; another run of the simulation uses this group: \
                     stop it, or give this one another stream name",
                    self.name
                )));
            }
            if run.options != options {
                return Err(Error::conflict(format!(
                    "rank {rank} of stream '{}' opened it with {options}; the ranks before it with {}; all ranks \
                     must agree",
                    self.name, run.options
                )));
            }
        } else {
            self.last_run += 1;
            self.runs.insert(self.last_run, Run::new(self.last_run, options, self.demand.clone()));
            for attachment in self.attachments.values_mut().filter(|attachment| !attachment.ended) {
                attachment.from.get_or_insert((self.last_run, 0));
            }
            self.demand = Arc::new(self.union());
            if let Some(run) = self.runs.get_mut(&self.last_run) {
                run.cuts = Cuts::new(self.demand.clone());
            }
        }
        let number = self.last_run;
        let Some(run) = self.runs.get_mut(&number) else {
            return Err(Error::internal(format!("run {number} of stream '{}' is not there", self.name)));
        };
        run.ranks.insert(rank, Rank { server, state: RankState::Open, below: 0, stranded: Vec::new() });
        let cuts = run.cuts.clone();
        self.forget_empty_runs(&mut effects);
        Ok((Joined { run: number, cuts, agreeing: self.cut.agreeing(number) }, effects))
    }

    /// Nobody waited for the answer to a rank's join: it has not come, and may come yet.
    pub fn never_came(&mut self, run: RunNumber, rank: u32) {
        let Some(run) = self.runs.get_mut(&run) else { return };
        if run.ranks.get(&rank).is_some_and(|rank| rank.state == RankState::Open) {
            run.ranks.remove(&rank);
        }
    }

    /// A rank offers a field, or gives it another shape from its next step on.
    pub fn define(&mut self, run: RunNumber, rank: u32, field: Field) -> Result<()> {
        field.check()?;
        let Some(run) = self.runs.get_mut(&run) else {
            return Err(Error::not_found(format!("run {run} of stream '{}' has ended", self.name)));
        };
        let fields = run.contract.len();
        match run.contract.get_mut(&field.name) {
            Some(known) if !known.agrees_with(&field) => Err(Error::conflict(format!(
                "rank {rank} offers field '{}' of stream '{}' as {} with {} dimensions every {} steps, another rank as \
                 {} with {} every {}; all ranks must agree (units, dims, spacing and origin too)",
                field.name,
                self.name,
                field.dtype,
                field.ndim,
                field.every,
                known.dtype,
                known.ndim,
                known.every
            ))),
            Some(known) => {
                *known = field;
                Ok(())
            }
            None if fields >= 4096 => {
                Err(Error::invalid(format!("stream '{}' already offers 4096 fields", self.name)))
            }
            None => {
                run.contract.insert(field.name.clone(), field);
                Ok(())
            }
        }
    }

    /// A rank sets an attribute of the stream or of one of its fields, for the rest of the run.
    pub fn set_attr(&mut self, run: RunNumber, field: Option<&str>, key: &str, attr: Attr) -> Result<()> {
        let Some(run) = self.runs.get_mut(&run) else {
            return Err(Error::not_found(format!("run {run} of stream '{}' has ended", self.name)));
        };
        if let Some(field) = field.filter(|field| !run.contract.contains_key(*field)) {
            return Err(Error::not_found(format!(
                "attribute '{key}': stream '{}' has no field '{field}': declare it first",
                self.name
            )));
        }
        let changed = run
            .attrs
            .set(field, key, attr)
            .map_err(|error| error.during(format!("stream '{}'", self.name)))?;
        run.attrs_version += u64::from(changed);
        Ok(())
    }

    /// A rank begins a step: it has finished all before it. With the first of a run the contract is complete, and
    /// contracts that cannot be met fail. Told at least of a rank's first step, and after it left out some at which
    /// something was wanted.
    pub fn begun(&mut self, number: RunNumber, rank: u32, step: StepNumber) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(run) = self.runs.get_mut(&number) else { return effects };
        if !std::mem::replace(&mut run.begun, true) {
            let mut failed = Vec::new();
            for (id, attachment) in &self.attachments {
                let concerned = attachment.takes_part_in(number)
                    && (attachment.from.is_some() || number == self.last_run);
                if concerned
                    && let Err(error) = attachment.needs.check_against(&self.name, run.contract.values())
                {
                    failed.push((*id, error));
                }
            }
            for (id, error) in failed {
                effects.extend(self.fail(id, error, None));
            }
        }
        self.finished_below(number, rank, step, &mut effects);
        effects
    }

    /// A rank has left that began this step.
    pub fn reached(&mut self, number: RunNumber, step: StepNumber) {
        if let Some(run) = self.runs.get_mut(&number) {
            run.highest_left = run.highest_left.max(Some(step));
            self.cut.reached(number, step);
        }
    }

    /// A rank has finished all steps below this one: nothing of it is awaited any more in those that it left out.
    fn finished_below(&mut self, number: RunNumber, rank: u32, below: StepNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        let Some(state) = run.ranks.get_mut(&rank) else { return };
        let from = state.below;
        if from >= below {
            return;
        }
        state.below = below;
        let left_out = |step: &StepNumber| run.steps.get(step).is_some_and(|s| !s.ended.contains(&rank));
        let left_out: Vec<StepNumber> = run.open.range(from..below).copied().filter(left_out).collect();
        for step in left_out {
            self.close_if_complete(number, step, effects);
        }
    }

    /// A rank ended a step at which something was demanded.
    pub fn step_ended(
        &mut self,
        run: RunNumber,
        rank: u32,
        server: ServerId,
        ended: StepEnded,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let number = ended.step;
        self.finished_below(run, rank, number, &mut effects);
        let Some(entry) = self.runs.get_mut(&run) else { return effects };
        let step = entry.step_mut(number, ended.time);
        if let Err(error) = step.register(rank, server, ended) {
            effects.push(Effect::RankError { server, run, rank, error });
        }
        self.close_if_complete(run, number, &mut effects);
        effects
    }

    /// A rank closed its handle, or died: then the steps that it did not end are torn.
    pub fn rank_gone(&mut self, run: RunNumber, rank: u32, died: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(entry) = self.runs.get_mut(&run) else { return effects };
        let Some(state) = entry.ranks.get_mut(&rank).filter(|rank| rank.state == RankState::Open) else {
            return effects;
        };
        state.state = if died { RankState::Dead } else { RankState::Closed };
        // Its home has told all that it knew: what other servers hold beyond that belongs to no step.
        for (step, server) in std::mem::take(&mut state.stranded) {
            match entry.steps.get_mut(&step) {
                Some(step) => drop(step.servers.insert(server)),
                None => effects.push(Effect::Free {
                    id: StepId { stream: self.name.clone(), run, step },
                    servers: vec![server],
                }),
            }
        }
        for number in &entry.open {
            if let Some(step) = entry.steps.get_mut(number) {
                step.torn |= !step.ended.contains(&rank);
            }
        }
        for number in entry.open.clone() {
            self.close_if_complete(run, number, &mut effects);
        }
        self.end_if_over(&mut effects);
        self.forget_empty_runs(&mut effects);
        effects
    }

    /// A server holds blocks that a rank placed there before it went away, maybe without having ended the step:
    /// they go with the step, or at once if there will be none.
    pub fn stranded(&mut self, run: RunNumber, step: StepNumber, rank: u32, server: ServerId) -> Vec<Effect> {
        let free = vec![Effect::Free { id: self.step_id(run, step), servers: vec![server] }];
        let Some(entry) = self.runs.get_mut(&run) else { return free };
        if let Some(step) = entry.steps.get_mut(&step) {
            step.servers.insert(server);
            return Vec::new();
        }
        match entry.ranks.get_mut(&rank).filter(|rank| rank.state == RankState::Open) {
            // What its home has to tell may still be on its way.
            Some(rank) => {
                rank.stranded.push((step, server));
                Vec::new()
            }
            None => free,
        }
    }

    fn step_id(&self, run: RunNumber, step: StepNumber) -> StepId {
        StepId { stream: self.name.clone(), run, step }
    }

    fn close_if_complete(&mut self, number: RunNumber, step_number: StepNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        let complete = |step: &Step| run.open.contains(&step_number) && run.is_complete(step_number, step);
        if !run.steps.get(&step_number).is_some_and(complete) {
            return;
        }
        run.open.remove(&step_number);
        let ranks = run.options.size as usize;
        let Some(step) = run.steps.get_mut(&step_number) else { return };
        step.closed = true;
        step.torn |= step.ended.len() < ranks;
        run.closed_steps += 1;
        run.dropped_steps += u64::from(step.dropped);
        let (torn, dropped) = (step.torn, step.dropped);
        let mut holds = 0;
        for attachment in self.attachments.values_mut() {
            let wanted = if attachment.in_force(number, step_number) {
                run.is_wanted(&attachment.needs, step_number)
            } else {
                attachment.oldest
                    && attachment.takes_part_in(number)
                    && run.is_staged(&attachment.needs, step_number)
            };
            if !wanted || (torn && !attachment.takes_torn) {
                continue;
            }
            if dropped {
                attachment.missed += 1;
            } else {
                attachment.enqueue(number, step_number);
                holds += 1;
            }
        }
        if let Some(step) = run.steps.get_mut(&step_number) {
            step.holds = holds;
        }
        if number == self.last_run && run.options.keep > 0 && !dropped {
            run.kept.insert(step_number);
        }
        let surplus = run.kept.len() > run.options.keep as usize;
        let no_longer_kept = surplus.then(|| run.kept.pop_first()).flatten();
        self.enforce_policy(number, effects);
        self.deliver_all(effects);
        for step in no_longer_kept.into_iter().chain([step_number]) {
            self.free_if_unneeded(number, step, effects);
        }
    }

    /// Drops closed steps that wait for readers, as the run's policy says.
    fn enforce_policy(&mut self, number: RunNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get(&number) else { return };
        match run.options.policy {
            Policy::Block => {}
            Policy::Latest => {
                let mut dropped = Vec::new();
                for attachment in self.attachments.values_mut() {
                    while attachment.queue.len() > 1 {
                        let Some(oldest) = attachment.queue.pop_front() else { break };
                        attachment.miss(0, oldest.missed + 1);
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
                for attachment in self.attachments.values() {
                    // The one at the head may be about to be delivered: a queue of one is no backlog.
                    for Queued { step, .. } in attachment.queue.iter().filter(|queued| queued.run == number) {
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

    fn drop_queued(&mut self, run: RunNumber, step: StepNumber, effects: &mut Vec<Effect>) {
        let waited =
            self.attachments.values_mut().filter_map(|a| a.drop_queued(run, step).then_some(())).count();
        for _ in 0..waited {
            self.let_go(run, step, effects);
        }
    }

    /// Memory is short on some server: gives up the oldest closed step that nobody reads right now, if the
    /// policy allows. The effects are empty if nothing could be given up.
    pub fn pressure(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let candidate = self.runs.values().find_map(|run| {
            let busy = |step: StepNumber| {
                self.attachments.values().any(|attachment| {
                    let id = (run.number, step);
                    attachment.delivered.contains(&id) || attachment.pinned.contains(&id)
                })
            };
            let step = if run.options.policy == Policy::Block {
                // What nobody holds is there only if it is kept.
                run.kept.iter().find(|step| run.steps.get(step).is_some_and(|step| step.holds == 0))
            } else {
                let mut closed = run.steps.iter().filter(|(_, step)| step.closed).map(|(step, _)| step);
                closed.find(|step| !busy(**step))
            };
            step.map(|step| (run.number, *step))
        });
        if let Some((run, step)) = candidate {
            self.drop_queued(run, step, &mut effects);
            self.free(run, step, &mut effects);
            self.end_if_over(&mut effects);
        }
        effects
    }

    // ---- consumers and pipelines ----------------------------------------------------------------

    /// Somebody attaches. Contracts that cannot be met are refused if the offer is known to be complete.
    pub fn attach(
        &mut self,
        id: AttachmentId,
        mut attachment: Attachment,
        start: Start,
    ) -> Result<Vec<Effect>> {
        attachment.needs.check()?;
        let run = self.runs.get(&self.last_run).filter(|run| !run.is_over());
        if let Some(run) = run.filter(|run| run.begun) {
            attachment.needs.check_against(&self.name, run.contract.values())?;
        }
        let run_is_over = self.runs.get(&self.last_run).is_some_and(Run::is_over);
        if start == Start::Oldest {
            attachment.oldest = true;
            for (number, run) in &mut self.runs {
                let mut wanted = Vec::new();
                for (step_number, step) in &run.steps {
                    let closed = step.closed && !step.dropped && (attachment.takes_torn || !step.torn);
                    if closed && run.is_wanted(&attachment.needs, *step_number) {
                        wanted.push(*step_number);
                    }
                }
                for step_number in wanted {
                    attachment.enqueue(*number, step_number);
                    if let Some(step) = run.steps.get_mut(&step_number) {
                        step.holds += 1;
                    }
                }
            }
            if run_is_over && !attachment.queue.is_empty() {
                // It reads what is left, and ends with that.
                attachment.from = Some((self.last_run, 0));
            }
        }
        self.attachments.insert(id, attachment);
        let mut effects = self.demand_changed();
        self.deliver(id, &mut effects);
        self.end_if_over(&mut effects);
        Ok(effects)
    }

    /// Whether it is agreed from which step on an attachment takes part in the run, if there is one.
    pub fn is_agreed(&self, id: AttachmentId) -> bool {
        let attachment = self.attachments.get(&id);
        attachment.is_none_or(|attachment| attachment.from.is_some() || !self.cut.is_busy())
    }

    /// Somebody is gone, or detached: everything it held is released.
    pub fn detach(&mut self, id: AttachmentId) -> Vec<Effect> {
        let Some(attachment) = self.attachments.remove(&id) else { return Vec::new() };
        let mut effects = self.demand_changed();
        for (run, step) in attachment.held() {
            self.let_go(run, step, &mut effects);
        }
        self.forget_empty_runs(&mut effects);
        effects
    }

    /// Somebody cannot be served any more. What it was told of it holds until it says otherwise, as if it had closed
    /// its handle; not so a step of which it could not be told.
    pub fn fail(
        &mut self,
        id: AttachmentId,
        error: Error,
        untold: Option<(RunNumber, StepNumber)>,
    ) -> Vec<Effect> {
        let Some(attachment) = self.attachments.get(&id) else { return Vec::new() };
        let told = attachment.delivered.iter().chain(&attachment.pinned).copied();
        let told: Vec<_> = told.filter(|step| Some(*step) != untold).collect();
        let mut effects = self.close(id, &told);
        effects.push(Effect::Failed(id, error));
        effects
    }

    /// Somebody closes its handle, but arrays of these steps live on: they stay held, nothing else does.
    pub fn close(&mut self, id: AttachmentId, held: &[(RunNumber, StepNumber)]) -> Vec<Effect> {
        let Some(attachment) = self.attachments.get_mut(&id) else { return Vec::new() };
        let all = attachment.held();
        let held: BTreeSet<(RunNumber, StepNumber)> = held.iter().copied().collect();
        attachment.queue.clear();
        attachment.delivered.clear();
        attachment.pinned = all.intersection(&held).copied().collect();
        attachment.closing = true;
        let done = attachment.pinned.is_empty();
        let mut effects = if done { self.detach(id) } else { self.demand_changed() };
        for (run, step) in all.difference(&held) {
            self.let_go(*run, *step, &mut effects);
        }
        self.forget_empty_runs(&mut effects);
        effects
    }

    /// The steps that an attachment was told of and may still look at.
    pub fn held_by(&self, id: AttachmentId) -> Vec<(RunNumber, StepNumber)> {
        let attachment = self.attachments.get(&id);
        attachment.into_iter().flat_map(|held| held.delivered.iter().chain(&held.pinned)).copied().collect()
    }

    /// An attachment has finished with a step; `pinned` says that arrays of it live on.
    pub fn release(
        &mut self,
        id: AttachmentId,
        run: RunNumber,
        step: StepNumber,
        pinned: bool,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(attachment) = self.attachments.get_mut(&id) else { return effects };
        let known = attachment.delivered.remove(&(run, step)) | attachment.pinned.remove(&(run, step));
        if known && pinned {
            attachment.pinned.insert((run, step));
        }
        if attachment.closing && attachment.pinned.is_empty() {
            effects = self.detach(id);
        }
        self.deliver(id, &mut effects);
        if known && !pinned {
            self.let_go(run, step, &mut effects);
        }
        self.end_if_over(&mut effects);
        self.forget_empty_runs(&mut effects);
        effects
    }

    fn deliver_all(&mut self, effects: &mut Vec<Effect>) {
        let ids: Vec<AttachmentId> = self.attachments.keys().copied().collect();
        ids.into_iter().for_each(|id| self.deliver(id, effects));
    }

    fn deliver(&mut self, id: AttachmentId, effects: &mut Vec<Effect>) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        while attachment.delivered.len() < attachment.window as usize {
            let Some(Queued { run, step, missed }) = attachment.queue.pop_front() else { break };
            let Some(of_run) = self.runs.get(&run) else { continue };
            let Some(found) = of_run.steps.get(&step) else { continue };
            let id_of_step = StepId { stream: self.name.clone(), run, step };
            let mut report = found.report(id_of_step, &attachment.needs);
            if attachment.learns_attrs(run, of_run.attrs_version) {
                report.attrs = Some(Box::new(of_run.attrs.clone()));
            }
            report.missed = missed;
            report.rewound = attachment.last.is_some_and(|(last_run, last)| run > last_run && step <= last);
            attachment.last = Some((run, step));
            attachment.delivered.insert((run, step));
            effects.push(Effect::Deliver(id, Box::new(report)));
        }
    }

    /// Tells the end to those that have nothing left to be told of: each of its own run, which need not be the latest.
    fn end_if_over(&mut self, effects: &mut Vec<Effect>) {
        for (id, attachment) in &mut self.attachments {
            // What it still holds it may go on reading.
            let drained = attachment.queue.is_empty();
            let Some((number, _)) = attachment.from.filter(|_| drained && !attachment.follow) else {
                continue;
            };
            // One that is over and has no steps may have been forgotten.
            let run = self.runs.get(&number);
            if run.is_none_or(Run::is_over) && !attachment.ended && !attachment.closing {
                attachment.ended = true;
                effects.push(match run.and_then(|run| run.lost.as_ref()) {
                    None => Effect::Ended(*id, attachment.missed),
                    Some(why) => Effect::Failed(*id, Error::new(ErrorKind::Lost, why.clone())),
                });
            }
        }
    }

    // ---- demand ---------------------------------------------------------------------------------

    /// The demand of all that is attached, and of the run itself if it keeps steps that nobody reads.
    fn union(&self) -> Demand {
        let keeps = self.runs.get(&self.last_run).is_some_and(|run| run.options.keep > 0);
        let kept = keeps.then_some(&Needs::All { every: 1 });
        let attached = self.attachments.values().filter(|attachment| attachment.takes_part_in(self.last_run));
        Demand::union(self.demand.version + 1, attached.map(|attachment| &attachment.needs).chain(kept))
    }

    fn demand_changed(&mut self) -> Vec<Effect> {
        let live = self.runs.get(&self.last_run).filter(|run| !run.is_over());
        let Some((run, highest)) = live.map(|run| (run.number, run.highest_left)) else {
            self.demand = Arc::new(self.union());
            return Vec::new();
        };
        if self.cut.is_busy() {
            self.stale = true;
            return Vec::new();
        }
        self.demand = Arc::new(self.union());
        self.stale = false;
        self.cut.propose(run, self.demand.clone(), highest, self.members.iter().copied());
        vec![Effect::Prepare { run, version: self.demand.version }]
    }

    /// A server answered to [`Effect::Prepare`].
    pub fn prepared(&mut self, from: ServerId, version: u64, highest: Option<StepNumber>) -> Vec<Effect> {
        let decision = self.cut.prepared(from, version, highest);
        self.decided(decision)
    }

    fn decided(&mut self, decision: Option<Decision>) -> Vec<Effect> {
        let Some(decision) = decision else { return Vec::new() };
        if let Some(run) = self.runs.get_mut(&decision.run) {
            run.cuts.decide(decision.from, decision.demand.clone());
        }
        let proposed = &decision.demand;
        for attachment in self.attachments.values_mut().filter(|attachment| attachment.from.is_none()) {
            if proposed.includes(&attachment.needs) {
                attachment.from = Some((decision.run, decision.from));
            }
        }
        let mut effects = vec![Effect::Decide(decision)];
        if self.stale {
            effects.extend(self.demand_changed());
        }
        effects
    }

    /// A server died: nothing is awaited from it, and its ranks and the steps' blocks there are gone.
    pub fn server_gone(&mut self, server: ServerId) -> Vec<Effect> {
        let decision = self.cut.server_gone(server);
        self.members.retain(|member| *member != server);
        let mut effects = self.decided(decision);
        let ranks: Vec<(RunNumber, u32)> = self
            .runs
            .values()
            .flat_map(|run| run.ranks.iter().map(move |(rank, state)| (run.number, *rank, state)))
            .filter(|(_, _, state)| state.server == server)
            .map(|(run, rank, _)| (run, rank))
            .collect();
        for (run, rank) in ranks {
            if let Some(run) = self.runs.get_mut(&run) {
                let text =
                    format!("{server} died, and with it ranks of stream '{}' lost their home", self.name);
                run.lost.get_or_insert(text);
            }
            effects.extend(self.rank_gone(run, rank, true));
        }
        effects
    }

    // ---- retention ------------------------------------------------------------------------------

    /// An attachment does not hold a step any more.
    fn let_go(&mut self, number: RunNumber, step: StepNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        let Some(found) = run.steps.get_mut(&step) else { return };
        found.holds = found.holds.saturating_sub(1);
        self.free_if_unneeded(number, step, effects);
    }

    fn free_if_unneeded(&mut self, number: RunNumber, step: StepNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get(&number) else { return };
        let unheld = run.steps.get(&step).is_some_and(|step| step.closed && step.holds == 0);
        if unheld && !run.kept.contains(&step) {
            self.free(number, step, effects);
        }
    }

    fn free(&mut self, number: RunNumber, step: StepNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        run.kept.remove(&step);
        if let Some(mut freed) = run.steps.remove(&step) {
            if run.options.size > RECORDS_TRAVEL_RANKS_MAX {
                // Owners may know blocks of a rank that died before it could say so.
                freed.servers.extend(self.members.iter().copied());
            }
            let id = StepId { stream: self.name.clone(), run: number, step };
            effects.push(Effect::Free { id, servers: freed.servers.into_iter().collect() });
        }
    }

    /// Runs that are over are kept only for their steps; the latest also for its contract.
    fn forget_empty_runs(&mut self, effects: &mut Vec<Effect>) {
        let over: Vec<RunNumber> =
            self.runs.values().filter(|run| run.number < self.last_run).map(|run| run.number).collect();
        for number in over {
            // Only the latest run keeps steps that nobody reads.
            let kept = self.runs.get_mut(&number).map(|run| std::mem::take(&mut run.kept));
            for step in kept.into_iter().flatten() {
                self.free_if_unneeded(number, step, effects);
            }
            if self.runs.get(&number).is_some_and(|run| run.steps.is_empty() && run.is_over()) {
                self.runs.remove(&number);
            }
        }
    }

    /// Looks up the closed step of the latest run with this number, for reads by number.
    pub fn find_step(&self, step: StepNumber, needs: &Needs) -> Option<super::StepReport> {
        let run =
            self.runs.values().rev().find(|run| run.steps.get(&step).is_some_and(|step| step.closed))?;
        let id = StepId { stream: self.name.clone(), run: run.number, step };
        let mut report = run.steps.get(&step)?.report(id, needs);
        report.attrs = (!run.attrs.is_empty()).then(|| Box::new(run.attrs.clone()));
        Some(report)
    }
}

#[cfg(test)]
#[path = "coordinator_tests.rs"]
mod tests;
