//! The coordinator of one stream.

use super::run::{Rank, RankState, Run};
use super::{
    Attachment, AttachmentId, Effect, Joined, Policy, RECORDS_TRAVEL_RANKS_MAX, RunOptions, Start, StepEnded,
};
use crate::attr::{Attr, Attrs};
use crate::contract::{Field, Needs};
use crate::cut::{CutCoordinator, Decision};
use crate::demand::Demand;
use crate::ids::{RunNumber, ServerId, StepId, StepNumber};
use crate::{Error, ErrorKind, Result};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
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
            attachments: BTreeMap::new(),
            demand: Arc::new(Demand::default()),
            cut: CutCoordinator::default(),
            stale: false,
        }
    }

    /// Whether nothing would be lost by forgetting it.
    pub fn is_idle(&self) -> bool {
        self.attachments.is_empty() && self.runs.values().all(|run| run.is_over() && run.steps.is_empty())
    }

    /// The latest run, if there has been one.
    pub fn last_run(&self) -> Option<RunNumber> {
        (self.last_run > 0).then_some(self.last_run)
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
            run: self.last_run,
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
        let current = self.runs.get(&self.last_run).filter(|run| run.expects(rank));
        if let Some(run) = current {
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
            self.runs.insert(self.last_run, Run::new(self.last_run, options));
            for attachment in self.attachments.values_mut().filter(|attachment| !attachment.ended) {
                attachment.from.get_or_insert((self.last_run, 0));
            }
            self.demand = Arc::new(self.union());
        }
        let number = self.last_run;
        if let Some(run) = self.runs.get_mut(&number) {
            run.ranks.insert(rank, Rank { server, state: RankState::Open, stranded: Vec::new() });
        }
        self.forget_empty_runs(&mut effects);
        Ok((Joined { run: number, demand: self.demand.clone() }, effects))
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

    /// A rank begins its first step: the contract is complete, and contracts that cannot be met fail.
    pub fn begun(&mut self, run: RunNumber) -> Vec<Effect> {
        let Some(run) = self.runs.get_mut(&run).filter(|run| !run.begun) else { return Vec::new() };
        run.begun = true;
        let mut failed = Vec::new();
        for (id, attachment) in &self.attachments {
            if let Err(error) = attachment.needs.check_against(&self.name, run.contract.values()) {
                failed.push((*id, error));
            }
        }
        let mut effects = Vec::new();
        for (id, error) in failed {
            effects.extend(self.detach(id));
            effects.push(Effect::Failed(id, error));
        }
        effects
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
        let open: Vec<StepNumber> =
            entry.steps.iter().filter(|(_, step)| !step.closed).map(|(number, _)| *number).collect();
        for number in open {
            if let Some(step) = entry.steps.get_mut(&number) {
                step.torn |= !step.ended.contains(&rank);
            }
        }
        let open: Vec<StepNumber> =
            entry.steps.iter().filter(|(_, step)| !step.closed).map(|(number, _)| *number).collect();
        for number in open {
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
        let complete = run.steps.get(&step_number).is_some_and(|step| !step.closed && run.is_complete(step));
        let ranks = run.options.size as usize;
        let Some(step) = run.steps.get_mut(&step_number).filter(|_| complete) else { return };
        step.closed = true;
        step.torn |= step.ended.len() < ranks;
        run.closed_steps += 1;
        run.dropped_steps += u64::from(step.dropped);
        let dropped = step.dropped;
        for attachment in self.attachments.values_mut() {
            let wanted = attachment.in_force(number, step_number)
                && step.is_wanted(&run.contract, &attachment.needs, step_number)
                && (attachment.takes_torn || !step.torn);
            if wanted && dropped {
                attachment.missed += 1;
            } else if wanted {
                attachment.queue.push_back((number, step_number));
            }
        }
        self.enforce_policy(number);
        self.deliver_all(effects);
        self.free_unheld(number, effects);
    }

    /// Drops closed steps that wait for readers, as the run's policy says.
    fn enforce_policy(&mut self, number: RunNumber) {
        let Some(run) = self.runs.get(&number) else { return };
        match run.options.policy {
            Policy::Block => {}
            Policy::Latest => {
                for attachment in self.attachments.values_mut() {
                    let waiting = attachment.queue.len();
                    if waiting > 1 {
                        attachment.queue.drain(..waiting - 1);
                        attachment.missed += waiting as u64 - 1;
                    }
                }
            }
            Policy::DropOldest => {
                let limit = run.options.queue_bytes;
                let mut waiting: BTreeMap<StepNumber, u64> = BTreeMap::new();
                for attachment in self.attachments.values() {
                    // The one at the head may be about to be delivered: a queue of one is no backlog.
                    for (queued, step) in attachment.queue.iter() {
                        if *queued == number {
                            waiting.insert(*step, run.steps.get(step).map_or(0, |step| step.bytes));
                        }
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
                    Self::drop_queued(&mut self.attachments, (number, step));
                }
            }
        }
    }

    fn drop_queued(attachments: &mut BTreeMap<AttachmentId, Attachment>, id: (RunNumber, StepNumber)) {
        for attachment in attachments.values_mut() {
            let before = attachment.queue.len();
            attachment.queue.retain(|queued| *queued != id);
            attachment.missed += (before - attachment.queue.len()) as u64;
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
            let droppable = run.options.policy != Policy::Block;
            let mut closed = run.steps.iter().filter(|(_, step)| step.closed);
            closed
                .find(|(number, _)| !busy(**number) && (droppable || !self.is_queued(run.number, **number)))
                .map(|(number, _)| (run.number, *number))
        });
        if let Some((run, step)) = candidate {
            Self::drop_queued(&mut self.attachments, (run, step));
            self.free(run, step, &mut effects);
        }
        effects
    }

    fn is_queued(&self, run: RunNumber, step: StepNumber) -> bool {
        self.attachments.values().any(|attachment| attachment.holds(run, step))
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
            for (number, run) in &self.runs {
                for (step_number, step) in &run.steps {
                    let closed = step.closed && !step.dropped && (attachment.takes_torn || !step.torn);
                    if closed && step.is_wanted(&run.contract, &attachment.needs, *step_number) {
                        attachment.queue.push_back((*number, *step_number));
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
        Ok(effects)
    }

    /// Somebody is gone, or detached: everything it held is released.
    pub fn detach(&mut self, id: AttachmentId) -> Vec<Effect> {
        let Some(attachment) = self.attachments.remove(&id) else { return Vec::new() };
        let mut effects = self.demand_changed();
        let held = attachment.queue.iter().chain(&attachment.delivered).chain(&attachment.pinned);
        for run in held.map(|(run, _)| *run).collect::<std::collections::BTreeSet<_>>() {
            self.free_unheld(run, &mut effects);
        }
        self.forget_empty_runs(&mut effects);
        effects
    }

    /// Somebody closes its handle, but arrays of these steps live on: they stay held, nothing else does.
    pub fn close(&mut self, id: AttachmentId, held: &[(RunNumber, StepNumber)]) -> Vec<Effect> {
        let Some(attachment) = self.attachments.get_mut(&id) else { return Vec::new() };
        let all: Vec<(RunNumber, StepNumber)> =
            attachment.queue.drain(..).chain(std::mem::take(&mut attachment.delivered)).collect();
        let kept = all.iter().chain(&attachment.pinned).filter(|step| held.contains(step)).copied();
        attachment.pinned = kept.collect();
        attachment.closing = true;
        let done = attachment.pinned.is_empty();
        let mut effects = if done { self.detach(id) } else { self.demand_changed() };
        for run in all.iter().map(|(run, _)| *run).collect::<std::collections::BTreeSet<_>>() {
            self.free_unheld(run, &mut effects);
        }
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
        self.free_unheld(run, &mut effects);
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
            let Some((run, step)) = attachment.queue.pop_front() else { break };
            let Some(of_run) = self.runs.get(&run) else { continue };
            let Some(found) = of_run.steps.get(&step) else { continue };
            let id_of_step = StepId { stream: self.name.clone(), run, step };
            let mut report = found.report(id_of_step, &attachment.needs);
            if attachment.learns_attrs(run, of_run.attrs_version) {
                report.attrs = Some(Box::new(of_run.attrs.clone()));
            }
            report.missed = std::mem::take(&mut attachment.missed);
            report.rewound = attachment.last.is_some_and(|(last_run, last)| run > last_run && step <= last);
            attachment.last = Some((run, step));
            attachment.delivered.insert((run, step));
            effects.push(Effect::Deliver(id, Box::new(report)));
        }
    }

    fn end_if_over(&mut self, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get(&self.last_run).filter(|run| run.is_over()) else { return };
        for (id, attachment) in &mut self.attachments {
            let drained = attachment.queue.is_empty() && attachment.delivered.is_empty();
            let concerned = attachment.from.is_some_and(|(from, _)| from <= self.last_run);
            if drained && concerned && !attachment.follow && !attachment.ended && !attachment.closing {
                attachment.ended = true;
                effects.push(match &run.lost {
                    None => Effect::Ended(*id),
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
        let live = self.runs.get(&self.last_run).filter(|run| !run.is_over()).map(|run| run.number);
        let Some(run) = live else {
            self.demand = Arc::new(self.union());
            return Vec::new();
        };
        if self.cut.is_busy() {
            self.stale = true;
            return Vec::new();
        }
        self.demand = Arc::new(self.union());
        self.stale = false;
        self.cut.propose(run, self.demand.clone(), self.members.iter().copied());
        vec![Effect::Prepare { run, version: self.demand.version }]
    }

    /// A server answered to [`Effect::Prepare`].
    pub fn prepared(&mut self, from: ServerId, version: u64, highest: Option<StepNumber>) -> Vec<Effect> {
        let decision = self.cut.prepared(from, version, highest);
        self.decided(decision)
    }

    fn decided(&mut self, decision: Option<Decision>) -> Vec<Effect> {
        let Some(decision) = decision else { return Vec::new() };
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

    fn free_unheld(&mut self, number: RunNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get(&number) else { return };
        let keep = if number == self.last_run { run.options.keep as usize } else { 0 };
        let closed: Vec<StepNumber> =
            run.steps.iter().filter(|(_, step)| step.closed).map(|(number, _)| *number).collect();
        let old = closed.len().saturating_sub(keep);
        // Once for all: many steps may wait for a reader that stands still.
        let ids = |attachment: &Attachment| -> Vec<(RunNumber, StepNumber)> {
            let held = attachment.queue.iter().chain(&attachment.delivered).chain(&attachment.pinned);
            held.copied().collect()
        };
        let held: HashSet<(RunNumber, StepNumber)> = self.attachments.values().flat_map(ids).collect();
        for (index, step) in closed.into_iter().enumerate() {
            let dropped =
                self.runs.get(&number).and_then(|run| run.steps.get(&step)).is_some_and(|step| step.dropped);
            if (index < old || dropped) && !held.contains(&(number, step)) {
                self.free(number, step, effects);
            }
        }
    }

    fn free(&mut self, number: RunNumber, step: StepNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&number) else { return };
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
            self.free_unheld(number, effects);
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
