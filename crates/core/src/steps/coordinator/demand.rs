//! What is demanded of producers, and from which step on.

use super::StreamCoordinator;
use crate::contract::Needs;
use crate::cut::Decision;
use crate::demand::Demand;
use crate::ids::{RunNumber, ServerId, StepNumber};
use crate::steps::Effect;
use std::sync::Arc;

impl StreamCoordinator {
    /// The demand of all that is attached, and of the run itself if it keeps steps that nobody reads.
    pub(super) fn union(&self) -> Demand {
        let keeps = self.runs.get(&self.last_run).is_some_and(|run| run.options.keep > 0);
        let kept = keeps.then_some(&Needs::All { every: 1 });
        let attached = self.attachments.values().filter(|attachment| attachment.takes_part_in(self.last_run));
        Demand::union(self.demand.version + 1, attached.map(|attachment| &attachment.needs).chain(kept))
    }

    pub(super) fn demand_changed(&mut self) -> Vec<Effect> {
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

    /// A server has joined the group: from the next change of the demand on it is asked, too. Until then it has no rank
    /// that was not told of the change that is being agreed.
    pub fn server_joined(&mut self, server: ServerId) {
        if !self.members.contains(&server) {
            self.members.push(server);
        }
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
}
