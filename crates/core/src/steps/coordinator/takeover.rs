//! A coordinator that takes the place of one that has died: the homes of the ranks tell it of their runs, steps and demand
//! once more, and readers come back with the number of the step that they want next.
//!
//! Every server knows of every attachment. Until they have come back, or had time to, a *stand-in* for each keeps its
//! demand in force and holds the steps that it would be told of.

use super::StreamCoordinator;
use crate::contract::Needs;
use crate::cut::Cuts;
use crate::ids::{Epoch, RunNumber, ServerId, StepId, StepNumber, Timestamp};
use crate::seeded::{Bug, seeded};
use crate::steps::attachment::{Attachment, AttachmentId, AttachmentRecord};
use crate::steps::counts::HandedCounts;
use crate::steps::effect::{Effect, Joined};
use crate::steps::ledger::{RankReport, RunReport, check_run};
use crate::steps::options::RunOptions;
use crate::steps::rank::{Joining, Rank, RankState, Rejoin};
use crate::steps::run::Run;
use crate::steps::run_end::RankEnd;
use crate::steps::run_phase::{Admission, Search};
use crate::steps::takeover::Reports;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// How many looks a rank whose home server has died or left may take to come back, if others have gone on without it
/// or are gone.
const AWAY_LOOKS: u32 = 30;
/// How many looks it may take if nothing tells whether it still runs: it may compute for long between two steps.
const AWAY_LOOKS_MAX: u32 = 600;
/// How many steps others may be ahead of it.
const AHEAD_MAX: StepNumber = 2;
/// How many looks readers may take to come back to the server that coordinates their stream now. One that is busy with a
/// step for longer finds a gap.
const STAND_IN_LOOKS: u32 = 10;

impl StreamCoordinator {
    /// A home tells of a run that another server coordinated, which has died. Its steps follow.
    pub fn on_run_report(&mut self, home: ServerId, epoch: Epoch, told: RunReport) -> Result<()> {
        told.check()?;
        self.take_over(epoch);
        let run = self.inherited_run(told.run, &told.options);
        if run.options != told.options {
            return Err(Error::conflict(format!(
                "{home} tells of run {} with {}; others with {}",
                told.run, told.options, run.options
            )));
        }
        if let Some(summary) = told.over {
            run.ending.note_inherited();
            run.summary.get_or_insert(*summary);
        }
        if run.began == Timestamp::default() || told.began < run.began {
            run.began = told.began;
        }
        run.highest_left = run.highest_left.max(told.highest_step_left);
        run.offer.inherit(told.fields, &told.attrs, told.begun)?;
        if let Some((first, later)) = told.cuts {
            run.inherit_cuts(Cuts::from_parts(first, later));
        }
        for RankReport { rank, who, below, safe_below, begun, away } in told.ranks {
            let state = if away { RankState::Lost } else { RankState::Open };
            let fresh = Rank::new(who, home, state, below);
            let known = run.ranks.entry(rank).or_insert_with(|| fresh.clone());
            if known.state.is_away() && !away {
                let below = below.max(known.below).max(known.told_below);
                *known = Rank { below, safe_below: known.safe_below, has_begun: known.has_begun, ..fresh };
            } else {
                // Each of those that had copies of what its home told knows as much as it was told itself. What it has of the
                // rank's steps follows.
                known.told_below = known.told_below.max(below);
            }
            known.note_safe_below(safe_below);
            known.has_begun |= begun;
        }
        self.takeover.homes.insert(home);
        Ok(())
    }

    /// The coordinator before this one has left, and had counted this.
    pub fn inherit_counts(&mut self, told: &HandedCounts) {
        if let Some(run) = self.runs.get_mut(&told.run) {
            run.inherit_counts(told);
        }
        self.takeover.missed.extend(told.missed.iter().copied());
    }

    /// What this coordinator has counted, for the one that takes its place when it leaves; `None` if it has had no run.
    pub fn counts_to_hand_over(&self) -> Option<HandedCounts> {
        let run = self.runs.get(&self.last_run)?;
        let missed = self.attachments.iter().filter(|(_, attachment)| !attachment.is_stand_in());
        let missed = missed.map(|(id, attachment)| (*id, attachment.missed_in_all())).collect();
        let (steps, since, last_closed) = (run.counts, run.counted_since(), run.last_closed);
        Some(HandedCounts { run: run.number, steps, since, last_closed, missed })
    }

    fn inherited_run(&mut self, number: RunNumber, options: &RunOptions) -> &mut Run {
        self.last_run = self.last_run.max(number);
        self.first_after = self.first_after.min(number.saturating_sub(1));
        let run =
            self.runs.entry(number).or_insert_with(|| Run::inherited(number, options.clone(), self.term));
        run.note_term(self.term);
        run
    }

    /// A server was told of an attachment by the coordinator before this one.
    pub fn on_attachment_report(
        &mut self,
        epoch: Epoch,
        id: AttachmentId,
        record: AttachmentRecord,
    ) -> Result<()> {
        record.needs.check()?;
        // One that coordinates the stream already knows better.
        if self.is_taking_over() || (self.runs.is_empty() && self.attachments.is_empty()) {
            self.begin_term(epoch);
            self.takeover.begin().attachments.insert(id, record);
        }
        Ok(())
    }

    /// A server holds or knows blocks of these steps, of which the coordinator before this one may have been told.
    pub fn on_blocks_held(
        &mut self,
        server: ServerId,
        steps: impl IntoIterator<Item = (RunNumber, StepNumber)>,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        for step in steps {
            match self.takeover.reports_mut() {
                Some(told) => drop(told.held.entry(step).or_default().insert(server)),
                None => self.claim(step, BTreeSet::from([server]), &mut effects),
            }
        }
        effects
    }

    /// Another server coordinated the stream, which died before this epoch: homes are going to tell of it.
    pub fn take_over(&mut self, epoch: Epoch) {
        self.begin_term(epoch);
        self.takeover.begin();
    }

    /// Another server coordinated the stream, which died before this epoch: there may be readers of its steps.
    pub fn begin_term(&mut self, epoch: Epoch) {
        self.term = self.term.max(epoch);
    }

    /// The epoch in which it took the place of another one; 0 if there was none.
    pub fn term(&self) -> Epoch {
        self.term
    }

    /// Whether homes are still telling of the time before.
    pub fn is_taking_over(&self) -> bool {
        self.takeover.reports().is_some()
    }

    /// The homes that have told.
    pub fn reported_homes(&self) -> impl Iterator<Item = ServerId> {
        self.takeover.homes.iter().copied()
    }

    /// All homes have told: the stream goes on. `id` gives the numbers of stand-ins.
    pub fn settle(&mut self, mut id: impl FnMut() -> AttachmentId) -> Vec<Effect> {
        let Some(Reports { attachments, held }) = self.takeover.settle() else { return Vec::new() };
        let mut effects = Vec::new();
        for (run, steps) in held {
            self.claim(run, steps, &mut effects);
        }
        self.takeover.readers_were_known |= !attachments.is_empty();
        let known = self.takeover.readers_were_known;
        self.keep_known_attachments(attachments);
        let numbers: Vec<RunNumber> = self.runs.keys().copied().collect();
        for number in &numbers {
            let Some(run) = self.runs.get_mut(number) else { continue };
            // An earlier run of a stream that has a later one.
            if *number < self.last_run {
                run.admission = Admission::Shut;
            }
            run.end_if_reported_over();
            let live = !run.is_over();
            if live {
                let agreeing = self.cut.proposed_version(*number);
                effects.push(Effect::Cuts { run: *number, cuts: run.cuts.clone(), agreeing });
            }
            let mut contracts: Vec<Needs> = run.cuts.latest().contracts().to_vec();
            if !live && contracts.is_empty() && !run.steps.is_empty() {
                // Nobody knows any more who wanted them.
                contracts.push(Needs::all(1));
            }
            let kept = run.options.keep > 0;
            // Of a run that was begun here, those who are told are known.
            if !run.settle() || known {
                continue;
            }
            // Those who were told of readers have all died. That of a run which keeps steps is nobody's.
            contracts.retain(|needs| !(kept && *needs == Needs::all(1)));
            for contract in contracts {
                self.attachments.insert(id(), Attachment::stand_in(contract, Some(*number)));
            }
        }
        self.takeover.looks = 0;
        let mut attachments = std::mem::take(&mut self.attachments);
        for attachment in attachments.values_mut() {
            self.resume(attachment);
            self.take_held(attachment);
        }
        self.attachments = attachments;
        self.tell_attachments(&mut effects);
        for number in numbers {
            self.close_complete_steps(number, &mut effects);
        }
        for attachment in self.attachments.values_mut().filter(|attachment| attachment.is_looking()) {
            attachment.oldest = false;
        }
        // Some ranks of cohorts may be told of steps that others have had.
        self.deliver_all(&mut effects);
        self.end_if_over(&mut effects);
        effects.extend(self.on_demand_changed());
        effects
    }

    /// Keeps the places of those who have not come back yet, or are no more.
    fn keep_known_attachments(&mut self, told: BTreeMap<AttachmentId, AttachmentRecord>) {
        let live = self.runs.get(&self.last_run).filter(|run| !run.is_over()).map(|run| run.number);
        for (id, record) in told {
            self.attachments.entry(id).or_insert_with(|| Attachment::stand_in_for(record, live));
        }
    }

    /// What is held of a step that nobody has told of either belongs to one that is still open, or to none.
    fn claim(
        &mut self,
        (run, step): (RunNumber, StepNumber),
        servers: BTreeSet<ServerId>,
        effects: &mut Vec<Effect>,
    ) {
        let id = self.step_id(run, step);
        match self.runs.get_mut(&run) {
            Some(run) if run.has(step) => {
                if let Some(step) = run.held_mut(step) {
                    step.servers.extend(servers);
                }
            }
            // All have told of it, and nobody needs it any more.
            Some(run) if !run.ranks.is_empty() && run.ranks.values().all(|rank| rank.below > step) => {
                effects.push(Effect::Free {
                    id,
                    servers: servers.into_iter().collect(),
                    unseen_before: self.term,
                });
            }
            Some(run) if !run.is_over() => run.unclaimed.entry(step).or_default().extend(servers),
            _ => effects.push(Effect::Free {
                id,
                servers: servers.into_iter().collect(),
                unseen_before: self.term,
            }),
        }
    }

    /// Whether it is not known yet if a step is one of those that the coordinator before this one knew.
    pub(super) fn waits_to_settle(&self) -> bool {
        self.is_taking_over() && !seeded(Bug::ClosesBeforeAllHaveTold)
    }

    /// Whether nobody has told of a run yet, but may: a home that tells of its steps already does not know of the next view,
    /// and tells of all of them again when it does.
    pub fn awaits_report_of(&self, run: RunNumber) -> bool {
        self.is_taking_over() && !self.runs.contains_key(&run)
    }

    /// A rank whose home server has died comes back to its run through another one, and tells which demand it knows.
    pub fn rejoin(
        &mut self,
        joining: Joining,
        server: ServerId,
        back_to: Rejoin,
        epoch: Epoch,
    ) -> Result<(Joined, Vec<Effect>)> {
        let Rejoin { run, demand, attempt } = back_to;
        joining.check()?;
        let Joining { rank, who, options } = joining;
        check_run(run)?;
        let text = format!("run {run} of stream '{}' has ended", self.name);
        let ended = || Error::not_found(text);
        let in_use = self.runs.get(&self.last_run).is_some_and(|last| !last.is_over());
        if !self.runs.contains_key(&run) {
            // Nobody else has told of it: its coordinator was the home of all its ranks, or of all but those to come.
            if in_use || run <= self.last_run {
                return Err(ended());
            }
            self.take_over(epoch);
            self.inherited_run(run, &options);
        }
        let Some(known) = self.runs.get_mut(&run).filter(|known| known.options == options) else {
            return Err(ended());
        };
        let entry =
            known.ranks.entry(rank).or_insert_with(|| Rank::new(who.clone(), server, RankState::Open, 0));
        if entry.state.is_gone() {
            return Err(Error::not_found(format!(
                "rank {rank} of run {run} of stream '{}' was given up: it had lost its home server for too long",
                self.name
            )));
        }
        if attempt < entry.attempt {
            return Err(Error::conflict(format!(
                "rank {rank} of stream '{}' has gone on at another server meanwhile",
                self.name
            )));
        }
        if entry.state == RankState::Open && entry.server != server {
            // What that one has told of the rank goes before what the new one will tell.
            return Err(Error::unreachable(format!(
                "rank {rank} of stream '{}' has its home on {}, as far as is known: try again",
                self.name, entry.server
            )));
        }
        entry.who = who;
        entry.server = server;
        entry.attempt = attempt;
        entry.state = RankState::Open;
        let below = entry.below.max(entry.told_below);
        let ended = if options.copies() > 0 { entry.safe_below } else { below };
        // Should it have seemed to be over.
        known.note_alive();
        known.inherit_demand(demand);
        let cuts = known.cuts.clone();
        let agreeing = self.cut.proposed_version(run);
        let joined = Joined { run, cuts, agreeing, reported_below: ended, began: known.began };
        // All have told by now: what was left out until then, it has left out.
        let mut effects = Vec::new();
        self.note_finished_below(run, rank, below, &mut effects);
        Ok((joined, effects))
    }

    /// A rank's home leaves the group, and has told all of what the rank did: the rank comes back through another one.
    pub fn on_rank_released(&mut self, run: RunNumber, rank: u32, home: ServerId) {
        let Some(run) = self.runs.get_mut(&run) else { return };
        let known = run.ranks.get_mut(&rank);
        if let Some(rank) = known.filter(|rank| rank.server == home && rank.state == RankState::Open) {
            rank.state = RankState::Moved;
            run.search = None;
        }
    }

    /// The home that has let a rank go, and has told all of it, if it has no other one yet.
    pub fn released_by(&self, run: RunNumber, rank: u32) -> Option<ServerId> {
        let rank = self.runs.get(&run)?.ranks.get(&rank)?;
        (rank.state == RankState::Moved).then_some(rank.server)
    }

    /// Ranks that lost their home server are given up if they have not come back after some looks, and so are readers.
    /// Called about once a second.
    pub fn give_up_overdue(&mut self) -> Vec<Effect> {
        let mut effects = self.look_for_readers();
        effects.extend(self.give_up_sharers_that_stay_away());
        let mut late = Vec::new();
        for run in self.runs.values_mut() {
            let away = run.ranks.values().any(|rank| rank.state.is_away());
            if away || run.lacks_ranks() {
                let Search { looks, since } = run.next_search();
                let enough = match run.is_gone_on_since(since.saturating_add(AHEAD_MAX)) {
                    true => AWAY_LOOKS,
                    false => AWAY_LOOKS_MAX,
                };
                if looks >= enough {
                    late.push(run.number);
                }
            }
            for (step, servers) in run.take_unclaimed() {
                let id = StepId { stream: self.name.clone(), run: run.number, step };
                effects.push(Effect::Free { id, servers, unseen_before: self.term });
            }
        }
        for run in late {
            self.give_up_lost_ranks(run, &mut effects);
        }
        effects
    }

    /// Gives up the ranks of a run that are away.
    pub(super) fn give_up_lost_ranks(&mut self, number: RunNumber, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        run.search = None;
        let away = run.ranks.iter().filter(|(_, rank)| rank.state.is_away());
        let away: Vec<u32> = away.map(|(rank, _)| *rank).collect();
        run.lost.extend(&away);
        if run.lacks_ranks() {
            run.admission = Admission::Shut;
            run.ending.note_given_up();
            self.close_complete_steps(number, effects);
        }
        for rank in away {
            effects.extend(self.on_rank_gone(number, rank, RankEnd::Died));
        }
    }

    /// Those that have not come back by now find what is left.
    fn look_for_readers(&mut self) -> Vec<Effect> {
        let standing_in: Vec<AttachmentId> =
            self.attachments.iter().filter(|(_, a)| a.is_stand_in()).map(|(id, _)| *id).collect();
        if standing_in.is_empty() {
            return Vec::new();
        }
        self.takeover.looks += 1;
        if self.takeover.looks < STAND_IN_LOOKS {
            return Vec::new();
        }
        let mut effects = Vec::new();
        for id in standing_in {
            effects.extend(self.give_up_ranks_that_stay_away(id));
            let stands_in = self.attachments.get(&id).is_some_and(Attachment::is_stand_in);
            effects.extend(stands_in.then(|| self.detach(id)).into_iter().flatten());
        }
        effects
    }
}

#[cfg(test)]
mod tests;
