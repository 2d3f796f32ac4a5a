//! What producers do: ranks join a run, define fields, end steps and leave.

use super::StreamCoordinator;
use crate::attr::Attr;
use crate::contract::{Field, Needs};
use crate::cut::Cuts;
use crate::ids::{RunNumber, STATIC_STEP, ServerId, StepId, StepNumber};
use crate::seeded::{Bug, seeded};
use crate::steps::attachment::{Attachment, AttachmentId, Delivery};
use crate::steps::contribution::StepContribution;
use crate::steps::effect::{Effect, Joined};
use crate::steps::rank::{Joining, Rank, RankState};
use crate::steps::run::Run;
use crate::steps::run_end::RankEnd;
use crate::steps::run_phase::Admission;
use crate::steps::step::Step;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

impl StreamCoordinator {
    /// A rank joins the current run, or the first of a new one.
    pub fn join(&mut self, joining: Joining, server: ServerId) -> Result<(Joined, Vec<Effect>)> {
        joining.check()?;
        let Joining { rank, who, options } = joining;
        let mut effects = Vec::new();
        let current = self.runs.get_mut(&self.last_run).filter(|run| run.expects(rank, &options.job));
        if let Some(run) = current {
            if run.ranks.is_empty() {
                // Those that were there had not come after all.
                run.options = options.clone();
            }
            if let Some(error) = run.other_job(&self.name, rank, &who, &options) {
                return Err(error);
            }
            if let Some(known) = run.ranks.get(&rank).filter(|known| !known.may_not_know()) {
                return Err(Error::conflict(format!(
                    "rank {rank} of stream '{}' is already open, by {}; another run of the simulation uses this \
                     group: stop it, or give this one another stream name",
                    self.name, known.who
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
            let before = self.last_run;
            self.last_run += 1;
            self.on_followed(before, &mut effects);
            let run = Run::new(self.last_run, options, self.demand.clone(), self.now);
            self.runs.insert(self.last_run, run);
            for attachment in self.attachments.values_mut() {
                attachment.begin_at(self.last_run, 0);
            }
            self.tell_attachments(&mut effects);
            self.demand = Arc::new(self.union());
            if let Some(run) = self.runs.get_mut(&self.last_run) {
                run.cuts = Cuts::new(self.demand.clone());
            }
        }
        let number = self.last_run;
        let Some(run) = self.runs.get_mut(&number) else {
            return Err(Error::internal(format!("run {number} of stream '{}' is not there", self.name)));
        };
        run.ranks.insert(rank, Rank::new(who, server, RankState::Open, 0));
        let (cuts, began) = (run.cuts.clone(), run.began);
        self.forget_empty_runs(&mut effects);
        let agreeing = self.cut.proposed_version(number);
        Ok((Joined { run: number, cuts, agreeing, reported_below: 0, began }, effects))
    }

    /// A new run follows this one: its steps wait no longer for ranks that never came.
    fn on_followed(&mut self, number: RunNumber, effects: &mut Vec<Effect>) {
        self.give_up_lost_ranks(number, effects);
        let Some(run) = self.runs.get_mut(&number) else { return };
        run.admission = Admission::Shut;
        self.close_complete_steps(number, effects);
    }

    /// Ranks of a run have gone: steps may be complete without them, and the run may be over.
    pub(super) fn close_complete_steps(&mut self, number: RunNumber, effects: &mut Vec<Effect>) {
        let open = self.runs.get(&number).map(|run| run.open.clone());
        for step in open.into_iter().flatten() {
            self.close_if_complete(number, step, effects);
        }
        let settled = !self.waits_to_settle();
        if let Some(run) = self.runs.get_mut(&number)
            && settled
            && run.is_known_to_be_over()
            && run.ending.announce()
            && !seeded(Bug::TellsOnceWhoHasGone)
        {
            run.summary = run.summary(self.now);
            effects.extend(run.summary.clone().map(|summary| Effect::Over(number, Box::new(summary))));
        }
        self.end_if_over(effects);
        self.forget_empty_runs(effects);
    }

    /// Nobody waited for the answer to a rank's join: it has not come, and may come yet.
    pub fn on_join_abandoned(&mut self, number: RunNumber, rank: u32) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(run) = self.runs.get_mut(&number) else { return effects };
        let open = run.ranks.get_mut(&rank).filter(|rank| rank.state == RankState::Open);
        if let Some(known) = open {
            if known.attempt > 0 {
                // It comes back through another one.
                known.state = RankState::Moved;
                run.search = None;
                return effects;
            }
            run.ranks.remove(&rank);
            if run.admission == Admission::Shut {
                self.close_complete_steps(number, &mut effects);
            }
        }
        effects
    }

    /// A rank offers a field, or gives it another shape from its next step on. One that is offered for the first time after steps
    /// have begun ends contracts that cannot be met with it.
    pub fn define(&mut self, number: RunNumber, rank: u32, field: Field) -> Result<Vec<Effect>> {
        field.check()?;
        let Some(run) = self.runs.get_mut(&number) else { return Err(self.run_has_ended(number)) };
        let is_late = run.offer.is_complete() && !run.offer.fields.contains_key(&field.name);
        let offered = is_late.then(|| field.clone());
        run.offer.define(&self.name, rank, field)?;
        let stream = self.name.clone();
        let check =
            |needs: &Needs| offered.as_ref().map_or(Ok(()), |field| needs.check_offer(&stream, field));
        Ok(self.fail_where(number, check))
    }

    /// Ends those attachments that take part in a run and whose contracts it cannot meet.
    fn fail_where(&mut self, number: RunNumber, check: impl Fn(&Needs) -> Result<()>) -> Vec<Effect> {
        let concerned = |attachment: &Attachment| {
            attachment.takes_part_in(number) && (attachment.from().is_some() || number == self.last_run)
        };
        let failed = self.attachments.iter().filter(|(_, attachment)| concerned(attachment));
        let failed = failed.filter_map(|(id, attachment)| {
            Some((*id, attachment.check(|| check(attachment.demanded())).err()?))
        });
        let failed: Vec<(AttachmentId, Error)> = failed.collect();
        failed.into_iter().flat_map(|(id, error)| self.fail(id, error, None)).collect()
    }

    /// A rank sets an attribute of the stream or of one of its fields, for the rest of the run.
    pub fn set_attr(&mut self, run: RunNumber, field: Option<&str>, key: &str, attr: Attr) -> Result<()> {
        let Some(run) = self.runs.get_mut(&run) else { return Err(self.run_has_ended(run)) };
        run.offer.set_attr(&self.name, field, key, attr)
    }

    pub(super) fn run_has_ended(&self, run: RunNumber) -> Error {
        Error::not_found(format!("run {run} of stream '{}' has ended", self.name))
    }

    /// A rank begins a step: it has finished all before it. With the first of a run the contract is complete, and
    /// contracts that cannot be met fail. Told at least of a rank's first step, and after it left out some at which
    /// something was wanted.
    pub fn on_step_begun(&mut self, number: RunNumber, rank: u32, step: StepNumber) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(run) = self.runs.get_mut(&number) else { return effects };
        if run.offer.complete() {
            let (stream, offered) = (self.name.clone(), run.offer.fields.clone());
            effects = self.fail_where(number, |needs| needs.check_against(&stream, offered.values()));
        }
        self.note_finished_below(number, rank, step, &mut effects);
        if let Some(rank) = self.rank_mut(number, rank) {
            let is_first = !std::mem::replace(&mut rank.has_begun, true);
            rank.note_safe_below(step);
            if is_first {
                effects.extend(self.not_offered(number, step));
            }
        }
        effects
    }

    /// A rank has begun its first step: if it was the last to do so, subscriptions are told of whose fields no rank offers any. Of steps
    /// they do not hear then, since nothing of those is needed.
    fn not_offered(&self, number: RunNumber, step: StepNumber) -> Vec<Effect> {
        let begun = |run: &&Run| {
            run.ranks.len() == run.options.size as usize && run.ranks.values().all(|rank| rank.has_begun)
        };
        let Some(run) = self.runs.get(&number).filter(begun) else { return Vec::new() };
        let lacks = |attachment: &Attachment| {
            attachment.is_of_subscriptions
                && attachment.takes_part_in(number)
                && !run.offer.fields.keys().any(|field| attachment.demanded().of(field).is_some())
        };
        let lacking = self.attachments.iter().filter(|(_, attachment)| lacks(attachment));
        lacking.map(|(id, _)| Effect::NotOffered(*id, number, step)).collect()
    }

    /// What a rank has ended in a step has as many copies as it is to have.
    pub fn on_step_replicated(&mut self, run: RunNumber, rank: u32, step: StepNumber) {
        if step == STATIC_STEP {
            return;
        }
        if let Some(rank) = self.rank_mut(run, rank) {
            rank.note_safe_below(step.saturating_add(1));
        }
    }

    fn rank_mut(&mut self, run: RunNumber, rank: u32) -> Option<&mut Rank> {
        self.runs.get_mut(&run)?.ranks.get_mut(&rank)
    }

    /// A rank has left that began this step.
    pub fn note_highest_step_left(&mut self, number: RunNumber, step: StepNumber) {
        if let Some(run) = self.runs.get_mut(&number) {
            run.highest_left = run.highest_left.max(Some(step));
            self.cut.note_highest_step_left(number, step);
        }
    }

    /// A rank has finished all steps below this one: nothing of it is awaited any more in those that it left out.
    pub(super) fn note_finished_below(
        &mut self,
        number: RunNumber,
        rank: u32,
        below: StepNumber,
        effects: &mut Vec<Effect>,
    ) {
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

    /// A rank has put static fields, and has ended the step with which it did.
    fn on_statics_put(
        &mut self,
        number: RunNumber,
        rank: u32,
        server: ServerId,
        put: StepContribution,
    ) -> Vec<Effect> {
        let Some(run) = self.runs.get_mut(&number) else { return vec![self.unneeded(number, server, &put)] };
        match run.register_statics(rank, server, put) {
            Ok(()) => Vec::new(),
            Err(error) => vec![Effect::RankError { server, run: number, rank, error }],
        }
    }

    /// What was told is freed already: another server has told of it that has died since. Or the run was forgotten.
    fn unneeded(&self, run: RunNumber, server: ServerId, told: &StepContribution) -> Effect {
        let servers: BTreeSet<ServerId> = told.holders().chain([server]).collect();
        let servers = servers.into_iter().collect();
        Effect::Free { id: self.step_id(run, told.step), servers, unseen_before: self.term }
    }

    /// A rank ended a step at which something was demanded.
    pub fn on_step_ended(
        &mut self,
        run: RunNumber,
        rank: u32,
        server: ServerId,
        ended: StepContribution,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.awaits_report_of(run) {
            return effects;
        }
        let number = ended.step;
        if number == STATIC_STEP {
            return self.on_statics_put(run, rank, server, ended);
        }
        let away = self.runs.get(&run).and_then(|run| run.ranks.get(&rank));
        let away = away.is_some_and(|rank| rank.state.is_away());
        if !away {
            self.note_finished_below(run, rank, number, &mut effects);
        }
        let telling = self.waits_to_settle();
        let known = self.runs.get_mut(&run).filter(|run| {
            let done = run.ranks.get(&rank).is_some_and(|rank| rank.below > number);
            // Of a run that is just being learned of, what is told is not free.
            let learning = telling && run.learning().is_some();
            learning || !done || run.steps.contains_key(&number)
        });
        let Some(entry) = known else { return vec![self.unneeded(run, server, &ended)] };
        let step = entry.step_mut(number);
        if let Err(error) = step.register(rank, server, ended) {
            effects.push(Effect::RankError { server, run, rank, error });
        }
        if let Some(rank) = entry.ranks.get_mut(&rank) {
            let below = if away { &mut rank.told_below } else { &mut rank.below };
            *below = number.saturating_add(1).max(*below);
        }
        self.close_if_complete(run, number, &mut effects);
        effects
    }

    /// A rank closed its handle, or died. The steps that it did not end are torn.
    pub fn on_rank_gone(&mut self, run: RunNumber, rank: u32, end: RankEnd) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(entry) = self.runs.get_mut(&run) else { return effects };
        let Some(state) = entry.ranks.get_mut(&rank).filter(|rank| !rank.state.is_gone()) else {
            return effects;
        };
        match end {
            RankEnd::Closed(counts) => (state.state, state.counts) = (RankState::Closed, counts),
            RankEnd::Died => state.state = RankState::Dead,
        }
        // Its home has told all that it knew: what other servers hold beyond that belongs to no step.
        for (step, server) in std::mem::take(&mut state.stranded) {
            match entry.held_mut(step) {
                Some(step) => drop(step.servers.insert(server)),
                None => effects.push(Effect::Free {
                    id: StepId { stream: self.name.clone(), run, step },
                    servers: vec![server],
                    unseen_before: 0,
                }),
            }
        }
        self.close_complete_steps(run, &mut effects);
        effects
    }

    /// A server holds blocks that a rank placed there before it went away, maybe without having ended the step:
    /// they go with the step, or at once if there will be none.
    pub fn on_stranded_blocks(
        &mut self,
        run: RunNumber,
        step: StepNumber,
        rank: u32,
        server: ServerId,
    ) -> Vec<Effect> {
        if self.awaits_report_of(run) {
            return Vec::new();
        }
        let free =
            vec![Effect::Free { id: self.step_id(run, step), servers: vec![server], unseen_before: 0 }];
        let Some(entry) = self.runs.get_mut(&run) else { return free };
        if let Some(step) = entry.held_mut(step) {
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

    fn close_if_complete(&mut self, number: RunNumber, step_number: StepNumber, effects: &mut Vec<Effect>) {
        if self.waits_to_settle() {
            return;
        }
        let Some(run) = self.runs.get_mut(&number) else { return };
        let complete = |step: &Step| run.open.contains(&step_number) && run.is_complete(step_number, step);
        if !run.steps.get(&step_number).is_some_and(complete) {
            return;
        }
        let Some(step) = run.close_step(step_number) else { return };
        let (torn, dropped) = (step.torn, step.dropped);
        let mut holds = 0;
        for attachment in self.attachments.values_mut() {
            let takes = attachment.delivery;
            let wanted = if attachment.in_force(number, step_number) {
                let mut wanted = false;
                for field in run.offer.wanted(attachment.needs.at(number, step_number), step_number) {
                    attachment.matched.note(number, step_number, &field.name);
                    wanted = true;
                }
                wanted |= run.offer.needs_static_alone(attachment.needs.at(number, step_number));
                if attachment.unmatched.note(step_number, wanted)
                    && let Some(text) =
                        attachment.unmatched.text(attachment.needs.latest(), run.offer.fields.values())
                {
                    effects.push(Effect::Unmatched(attachment.described(), text));
                }
                takes == Delivery::All || wanted
            } else {
                attachment.oldest
                    && (attachment.takes_part_in(number) || attachment.is_looking())
                    && (takes == Delivery::All
                        || run.is_staged(attachment.needs.at(number, step_number), step_number))
            };
            let told = attachment.was_told_before((number, step_number)) || attachment.is_chosen_for;
            if !wanted || told || (torn && takes < Delivery::Torn) {
                continue;
            }
            if dropped && takes < Delivery::All {
                attachment.miss(number, step_number);
            } else {
                attachment.enqueue(number, step_number);
                holds += 1;
            }
        }
        if let Some(step) = run.steps.get_mut(&step_number) {
            step.holds += holds;
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
}
