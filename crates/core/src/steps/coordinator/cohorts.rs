//! What the ranks of cohorts do: they come until all are there, release steps, and leave.

use super::StreamCoordinator;
use crate::ids::{RunNumber, StepId, StepNumber};
use crate::steps::attachment::{Attachment, AttachmentId, Phase};
use crate::steps::cohort::Cohort;
use crate::steps::effect::Effect;
use crate::steps::gathering::{Coming, Gathering};
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeSet;

/// How many cohorts may gather at a stream.
const GATHERINGS_MAX: usize = 1024;

/// What has become of a rank that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// Not all have come.
    Waits,
    /// All have come, and are this attachment.
    Attached,
    /// It takes no part.
    Refused(Error),
}

impl StreamCoordinator {
    /// A rank of a cohort comes, or comes back. Returns what names the cohort: `id`, unless others have come before it. Once all
    /// have come they attach.
    pub fn come(
        &mut self,
        id: AttachmentId,
        comes_back: bool,
        coming: Coming,
    ) -> Result<(AttachmentId, Vec<Effect>)> {
        coming.rank.check()?;
        coming.attachment.needs.check()?;
        let name = coming.attachment.reader.as_ref().and_then(|reader| reader.name.clone());
        let name = name.ok_or_else(|| {
            Error::invalid("the ranks of a parallel reader have one `name`: it says which belong together")
        })?;
        self.check_is_free(&name)?;
        if self.gatherings.len() >= GATHERINGS_MAX && !self.gatherings.contains_key(&name) {
            return Err(Error::invalid(format!(
                "{GATHERINGS_MAX} parallel readers of stream '{}' wait for ranks to come: no other one can",
                self.name
            )));
        }
        let gone = self.gone_of(id);
        let new = || Gathering::new(id, gone, comes_back);
        let gathering = self.gatherings.entry(name.clone()).or_insert_with(new);
        let id = gathering.id;
        let added = gathering.add(coming, comes_back, &name);
        if let Err(error) = added {
            if gathering.is_empty() {
                self.gatherings.remove(&name);
            }
            return Err(error);
        }
        let complete = gathering.lacking().is_empty();
        Ok((id, if complete { self.attach_cohort(&name) } else { Vec::new() }))
    }

    /// The ranks without which a cohort has gone on whose place is kept.
    fn gone_of(&self, id: AttachmentId) -> BTreeSet<u32> {
        let stood_in = self.attachments.get(&id).and_then(|stood_in| stood_in.told.as_ref());
        let told = stood_in.or_else(|| self.takeover.reports()?.attachments.get(&id));
        told.and_then(|record| record.cohort.as_ref()).map(|cohort| cohort.gone.clone()).unwrap_or_default()
    }

    /// An error if a cohort of this name takes part.
    fn check_is_free(&self, name: &str) -> Result<()> {
        let taking_part = self.attachments.values().filter(|attachment| !attachment.is_closing());
        let mut cohorts = taking_part.filter_map(|attachment| attachment.cohort.as_ref());
        match cohorts.find(|cohort| cohort.record.name == name && !cohort.is_empty()) {
            None => Ok(()),
            Some(cohort) => Err(Error::conflict(format!(
                "all readers '{name}' of stream '{}' have come ({}): two parallel readers cannot have one name",
                self.name,
                cohort.describe(0)
            ))),
        }
    }

    /// All ranks of a cohort have come: they attach, as one.
    fn attach_cohort(&mut self, name: &str) -> Vec<Effect> {
        let Some(mut gathering) = self.gatherings.remove(name) else { return Vec::new() };
        let Some((attachment, start)) = gathering.take_attachment() else { return Vec::new() };
        match self.attach(gathering.id, attachment, start) {
            Ok(effects) => effects,
            Err(error) => {
                // All that have come are told: each asks, and goes.
                gathering.refused = Some(error);
                self.refused_gatherings.push(gathering);
                Vec::new()
            }
        }
    }

    /// What has become of a rank that has come; `token` tells its attempts apart.
    pub fn arrival(&self, id: AttachmentId, rank: u32, token: u64) -> Arrival {
        let waits_in = |gathering: &&Gathering| gathering.id == id && gathering.has(rank, token);
        if let Some(refused) =
            self.refused_gatherings.iter().find(waits_in).and_then(|found| found.refused.clone())
        {
            return Arrival::Refused(refused);
        }
        match self.gatherings.values().find(|gathering| gathering.id == id) {
            Some(gathering) if gathering.has(rank, token) => Arrival::Waits,
            None if self.is_member(id, rank) => Arrival::Attached,
            Some(_) => Arrival::Refused(Error::conflict(format!(
                "rank {rank} of a parallel reader of stream '{}' was opened once more, and this is not the latest",
                self.name
            ))),
            None => Arrival::Refused(Error::unreachable(format!(
                "stream '{}' is coordinated elsewhere now: try again",
                self.name
            ))),
        }
    }

    /// Who has not come of a cohort that gathers, for people.
    pub fn who_lacks(&self, id: AttachmentId) -> String {
        let gathering = self.gatherings.values().find(|gathering| gathering.id == id);
        let lacking = gathering.map(Gathering::lacking).unwrap_or_default();
        let named: Vec<String> = lacking.iter().take(8).map(u32::to_string).collect();
        let more = lacking.len().saturating_sub(8);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let noun = if lacking.len() == 1 { "rank" } else { "ranks" };
        let size = gathering.map(Gathering::size).unwrap_or_default();
        format!("{noun} {}{more} of the {size} did not come", named.join(", "))
    }

    /// An attempt of a rank is given up, which had not attached.
    pub fn give_up_coming(&mut self, id: AttachmentId, rank: u32, token: u64) {
        for gathering in self.gatherings.values_mut().filter(|gathering| gathering.id == id) {
            gathering.remove(rank, token);
        }
        self.gatherings.retain(|_, gathering| !gathering.is_empty());
        for gathering in &mut self.refused_gatherings {
            gathering.remove(rank, token);
        }
        self.refused_gatherings.retain(|gathering| !gathering.is_empty());
    }

    /// Whether an attachment is a cohort in which this rank reads.
    pub fn is_member(&self, id: AttachmentId, rank: u32) -> bool {
        let cohort = self.attachments.get(&id).and_then(|attachment| attachment.cohort.as_ref());
        cohort.is_some_and(|cohort| cohort.is_here(rank))
    }

    /// The hosts of a cohort's ranks; nothing if it is none.
    pub fn hosts_of(&self, id: AttachmentId) -> Vec<String> {
        let cohort = self.attachments.get(&id).and_then(|attachment| attachment.cohort.as_ref());
        cohort.map(Cohort::hosts).unwrap_or_default()
    }

    /// The steps that a rank of a cohort, or one of the readers that share steps, was told of and may still look at.
    pub fn held_by_rank(&self, id: AttachmentId, rank: u32) -> Vec<(RunNumber, StepNumber)> {
        self.attachments.get(&id).map(|attachment| attachment.held_by(rank)).unwrap_or_default()
    }

    /// A rank of a cohort, or one of the readers that share steps, has finished with a step; `pinned` says that arrays of it live on.
    pub fn release_by(
        &mut self,
        id: AttachmentId,
        rank: u32,
        (run, step): (RunNumber, StepNumber),
        pinned: bool,
    ) -> Vec<Effect> {
        let Some(attachment) = self.attachments.get_mut(&id) else { return Vec::new() };
        if attachment.share.is_some() {
            return self.release_shared(id, rank, (run, step), (pinned, false));
        }
        match attachment.release_by(rank, (run, step), pinned) {
            Some(pinned) => self.release(id, run, step, pinned),
            None => Vec::new(),
        }
    }

    /// A reader, or one of several, does not look at a step any more, but could not do with it what it wanted: another one of those
    /// that share steps is given it; of others the next of their name begins there, unless they finish with a later one.
    pub fn give_back(
        &mut self,
        id: AttachmentId,
        rank: Option<u32>,
        (run, step): (RunNumber, StepNumber),
        pinned: bool,
    ) -> Vec<Effect> {
        let Some(attachment) = self.attachments.get_mut(&id) else { return Vec::new() };
        if let (Some(number), true) = (rank, attachment.share.is_some()) {
            return self.release_shared(id, number, (run, step), (pinned, true));
        }
        attachment.note_given_back((run, step));
        let pinned = match rank {
            Some(rank) => attachment.release_by(rank, (run, step), pinned),
            None => Some(pinned),
        };
        pinned.map(|pinned| self.released(id, run, step, pinned)).unwrap_or_default()
    }

    /// A rank of a cohort that takes the newest step alone asks for one. `after` is the last that it was told of: the first that
    /// asks has one chosen for all. One of the readers that share steps on demand asks for one of its own.
    pub fn on_asked_by(
        &mut self,
        id: AttachmentId,
        reader: u32,
        after: Option<(RunNumber, StepNumber)>,
    ) -> Vec<Effect> {
        match self.attachments.get_mut(&id) {
            Some(Attachment { share: Some(share), .. }) => {
                share.ask(reader);
                let mut effects = Vec::new();
                self.deliver(id, &mut effects);
                effects
            }
            Some(attachment) if attachment.last == after => self.on_asked(id, false),
            _ => Vec::new(),
        }
    }

    /// A rank of a cohort, or one of the readers that share steps, has closed its reader, or has died; arrays of the steps in `kept`
    /// live on. The others of a cohort are told, unless the run is over for them, or they go on without it.
    pub fn leave(
        &mut self,
        id: AttachmentId,
        rank: u32,
        kept: &[(RunNumber, StepNumber)],
        died: bool,
    ) -> Vec<Effect> {
        let Some(attachment) = self.attachments.get_mut(&id) else { return Vec::new() };
        if attachment.share.is_some() {
            return self.leave_share(id, rank, kept, died);
        }
        let is_over = matches!(attachment.phase, Phase::Ended(..) | Phase::Closing(_));
        let Some(cohort) = &mut attachment.cohort else { return Vec::new() };
        let was_here = cohort.is_here(rank);
        let who = cohort.describe(rank);
        // What a rank that died had not finished with, or one that closes has not looked at, the next readers of this name read.
        let unread = match died {
            true => cohort.holders.first_unread(),
            false => cohort.holders.first_not_looked_at(rank, kept),
        };
        let finished = cohort.leave(rank, &kept.iter().copied().collect());
        if was_here && (!cohort.record.goes_on || !died && cohort.is_empty()) {
            attachment.unread = attachment.unread.into_iter().chain(unread).min();
        }
        let (is_empty, goes_on) = (cohort.is_empty(), cohort.record.goes_on);
        let held: Vec<_> = cohort.holders.all().map(|(step, _)| step).collect();
        let ends = was_here && (is_empty || !goes_on);
        let mut effects = if ends { self.on_stop(id, &[]) } else { Vec::new() };
        if is_empty && was_here {
            effects.extend(self.close(id, &held));
        } else if was_here && goes_on {
            self.tell_attachments(&mut effects);
        } else if was_here && !is_over {
            effects.extend(self.fail(id, ended_by(&who, &self.name, died), None));
        }
        for ((run, step), pinned) in finished {
            effects.extend(self.release(id, run, step, pinned));
        }
        effects
    }

    /// Tells ranks of a cohort of steps that others of them were told of by the coordinator before.
    pub(super) fn deliver_caught_up(&mut self, id: AttachmentId, effects: &mut Vec<Effect>) {
        if self.waits_to_settle() {
            return;
        }
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        let Some(cohort) = &mut attachment.cohort else { return };
        let (absent, name) = (cohort.absent(), cohort.record.name.clone());
        let mut lost = None;
        for told in std::mem::take(&mut cohort.catch_up) {
            let (run, step) = (told.step.run, told.step.step);
            let of_run = self.runs.get_mut(&run);
            let id_of_step = StepId { stream: self.name.clone(), run, step };
            let report = of_run.and_then(|of_run| {
                let found = of_run.steps.get(&step).filter(|step| !step.dropped)?;
                let needs = attachment.needs.at(run, step);
                Some((found.report(id_of_step, needs).with_statistics_for(Some(needs)), of_run))
            });
            let Some((mut report, of_run)) = report else {
                lost.get_or_insert((step, told.lacking));
                continue;
            };
            let attrs = &of_run.offer.attrs;
            report.attrs = (of_run.offer.attrs_version > 0).then(|| Box::new(attrs.clone()));
            report.statics = of_run.give_statics(attachment, Some(&told.lacking));
            (report.missed, report.rewound) = (told.step.missed, told.step.rewound);
            (report.term, report.ranks) = (self.term, of_run.options.size);
            report.absent.clone_from(&absent);
            effects.push(Effect::DeliverTo(id, told.lacking, Box::new(report)));
        }
        if let Some((step, lacking)) = lost {
            let error = Error::new(
                ErrorKind::Lost,
                format!(
                    "step {step} of stream '{}' is gone with servers that died: some of the readers '{}' have had it, and {} \
                     have not (rank {})",
                    self.name,
                    name,
                    lacking.len(),
                    lacking.first().copied().unwrap_or_default()
                ),
            );
            effects.extend(self.fail(id, error, None));
        }
    }

    /// Readers have had time to come back: cohorts of which some ranks have not go on without those, if they want to.
    pub(super) fn give_up_ranks_that_stay_away(&mut self, id: AttachmentId) -> Vec<Effect> {
        let gathered = self.gatherings.iter_mut().find(|(_, gathering)| gathering.id == id);
        let Some((name, gathering)) = gathered.filter(|(_, gathering)| gathering.goes_on()) else {
            return Vec::new();
        };
        gathering.give_up_lacking();
        let name = name.clone();
        self.attach_cohort(&name)
    }

    /// Checks what always holds of cohorts between two events.
    pub(super) fn check_cohorts(&self) -> std::result::Result<(), String> {
        for (name, gathering) in &self.gatherings {
            if gathering.is_empty() || gathering.lacking().is_empty() {
                return Err(format!("the readers '{name}' gather, and none has come, or all have"));
            }
        }
        Ok(())
    }
}

fn ended_by(who: &str, stream: &str, died: bool) -> Error {
    match died {
        true => Error::new(
            ErrorKind::Lost,
            format!("{who} of stream '{stream}' is gone: the others cannot go on without it (`on_loss`)"),
        ),
        false => Error::new(
            ErrorKind::Closed,
            format!(
                "{who} of stream '{stream}' has closed its reader: close it in all ranks after the same step"
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
