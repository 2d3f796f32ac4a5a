//! What is demanded of producers, and from which step on.

use super::{StreamCoordinator, Survivors};
use crate::contract::Needs;
use crate::demand::Demand;
use crate::ids::{RunNumber, ServerId, StepNumber};
use crate::seeded::{Bug, seeded};
use crate::steps::attachment::{Attachment, AttachmentId};
use crate::steps::effect::Effect;
use crate::steps::rank::{Rank, RankState};
use crate::steps::run::Run;
use crate::{Error, Result};
use std::sync::Arc;

impl StreamCoordinator {
    /// The demand of all that is attached, and of the run itself if it keeps steps that nobody reads.
    pub(super) fn union(&self) -> Demand {
        let keeps = self.runs.get(&self.last_run).is_some_and(|run| run.options.keep > 0);
        let all = Needs::all(1);
        let kept = keeps.then_some(&all);
        let attached = self.attachments.values().filter(|attachment| attachment.takes_part_in(self.last_run));
        Demand::union(self.demand.version + 1, attached.map(Attachment::demanded).chain(kept))
    }

    /// Something was attached, or is gone: agrees with the servers on what is demanded from now on.
    pub(super) fn on_demand_changed(&mut self) -> Vec<Effect> {
        if self.waits_to_settle() {
            // Not all are known that are attached: ranks would put nothing of what the others need.
            return Vec::new();
        }
        let live = self.runs.get(&self.last_run).filter(|run| !run.is_over());
        let Some((run, highest)) = live.map(|run| (run.number, run.highest_left)) else {
            self.demand = Arc::new(self.union());
            // Nothing is to be agreed on: contracts that change hold for the next run.
            let next = self.last_run + 1;
            self.attachments.values_mut().for_each(|attachment| attachment.change_needs_at(next, 0));
            return Vec::new();
        };
        if self.cut.is_agreeing() {
            self.cut.note_outdated();
            return Vec::new();
        }
        self.demand = Arc::new(self.union());
        self.cut.propose(run, self.demand.clone(), highest, self.members.iter().copied());
        vec![Effect::Prepare { run, version: self.demand.version }]
    }

    /// A reader changes its contract: from the step that is agreed on, other needs hold. Needs that the run cannot meet are
    /// refused, and nothing has changed.
    pub fn change_needs(&mut self, id: AttachmentId, needs: Needs) -> Result<Vec<Effect>> {
        needs.check()?;
        let gone = || Error::not_found("the reader is not attached");
        let attachment = self.attachments.get(&id).ok_or_else(gone)?;
        if !attachment.demands {
            return Err(Error::invalid(
                "a reader that looks at what is held, and demands nothing, has no contract to change",
            ));
        }
        if *attachment.demanded() == needs {
            return Ok(Vec::new());
        }
        let run = self.runs.get(&self.last_run).filter(|run| !run.is_over() && run.offer.is_complete());
        if let Some(run) = run.filter(|run| attachment.takes_part_in(run.number)) {
            attachment.check(|| needs.check_against(&self.name, run.offer.fields.values()))?;
        }
        if let Some(attachment) = self.attachments.get_mut(&id) {
            attachment.proposed = Some(needs);
        }
        let mut effects = self.on_demand_changed();
        self.tell_attachments(&mut effects);
        Ok(effects)
    }

    /// From which step of which run on the latest contract of a reader holds, if that is known.
    pub fn needs_hold_from(&self, id: AttachmentId) -> Option<(RunNumber, StepNumber)> {
        let attachment = self.attachments.get(&id).filter(|attachment| attachment.proposed.is_none())?;
        attachment.needs.changed_at().max(attachment.from())
    }

    /// Whether it is decided from which step on the latest contract of a reader holds; also of one that is gone.
    pub fn are_needs_agreed(&self, id: AttachmentId) -> bool {
        self.attachments.get(&id).is_none_or(|attachment| attachment.proposed.is_none())
    }

    /// A server answered to [`Effect::Prepare`].
    pub fn on_prepared(&mut self, from: ServerId, version: u64, highest: Option<StepNumber>) -> Vec<Effect> {
        self.cut.on_prepared(from, version, highest);
        self.decide()
    }

    /// Decides the change that is being agreed, if all that it depends on is known.
    fn decide(&mut self) -> Vec<Effect> {
        let at_once = seeded(Bug::DecidesBeforeAllHaveTold);
        let ended = |run| self.runs.get(&run).and_then(Run::highest_ended).filter(|_| !at_once);
        let outdated = self.cut.is_outdated();
        let all_told = self.survivors == Survivors::HaveTold;
        let decision = (all_told || at_once).then(|| self.cut.decide(ended)).flatten();
        let Some(decision) = decision else { return Vec::new() };
        if let Some(run) = self.runs.get_mut(&decision.run) {
            run.cuts.decide(decision.from, decision.demand.clone());
        }
        let proposed = &decision.demand;
        let mut waits_for_another = false;
        for attachment in self.attachments.values_mut().filter(|a| proposed.includes(a.demanded())) {
            let first_run = attachment.first_run;
            attachment.begin_at(decision.run, decision.from);
            attachment.change_needs_at(decision.run, decision.from);
            waits_for_another |= attachment.first_run > first_run;
        }
        let mut effects = Vec::new();
        self.tell_attachments(&mut effects);
        effects.push(Effect::Decide(decision));
        if outdated || waits_for_another {
            effects.extend(self.on_demand_changed());
        }
        // The run may be over by now: who takes part from a step on that there is not hears of it.
        self.end_if_over(&mut effects);
        effects
    }

    /// A server has joined the group: from the next change of the demand on it is asked, too. Until then it has no rank
    /// that was not told of the change that is being agreed.
    pub fn on_server_joined(&mut self, server: ServerId) {
        if !self.members.contains(&server) {
            self.members.push(server);
        }
    }

    /// A server died: nothing is awaited from it, and the steps' blocks there are gone. Its ranks may come back through
    /// another one.
    pub fn on_server_gone(&mut self, server: ServerId) -> Vec<Effect> {
        self.cut.on_server_gone(server);
        self.members.retain(|member| *member != server);
        for run in self.runs.values_mut() {
            let here = |rank: &&mut Rank| rank.server == server && rank.state == RankState::Open;
            for rank in run.ranks.values_mut().filter(here) {
                rank.state = RankState::Lost;
                run.search = None;
                // Those that hold copies for it know of steps that its ranks have ended.
                if run.options.copies() > 0 {
                    self.survivors = Survivors::AreToTell;
                }
            }
        }
        self.decide()
    }

    /// All servers have told what they know in the place of those that have died.
    pub fn on_all_reported(&mut self) -> Vec<Effect> {
        match std::mem::take(&mut self.survivors) {
            Survivors::AreToTell => self.decide(),
            Survivors::HaveTold => Vec::new(),
        }
    }
}
