//! What readers do: they attach, are told of steps, release them and leave.

use super::StreamCoordinator;
use crate::contract::Field;
use crate::ids::{RunNumber, STATIC_STEP, StepId, StepNumber};
use crate::steps::attachment::{Attachment, AttachmentId, Delivery, Phase, Start};
use crate::steps::effect::Effect;
use crate::steps::queued::Queued;
use crate::steps::report::{HeldStep, StepReport};
use crate::steps::run::Run;
use crate::steps::run_end::RunEnd;
use crate::steps::situation::{ReadersThere, Situation};
use crate::steps::step::Step;
use crate::{Error, Result};
use std::collections::BTreeSet;

/// How many of the latest steps of a run are looked at for those that one that goes on has missed.
const GONE_MAX: usize = 1 << 16;
/// How many places are kept at most as another connection ends whose reader may come back.
const AWAITED_MAX: usize = 64;
/// How many readers without a name are named by their processes.
const UNNAMED_MAX: usize = 8;

impl StreamCoordinator {
    /// Somebody attaches. Contracts that cannot be met are refused if the offer is known to be complete. One that comes
    /// back has the id that it had, and takes the place that was kept for it.
    pub fn attach(
        &mut self,
        id: AttachmentId,
        mut attachment: Attachment,
        start: Start,
    ) -> Result<Vec<Effect>> {
        attachment.needs.check()?;
        let start = if start == Start::Resume { self.resumed(&attachment)? } else { start };
        // Of a run that is over it reads what is left, unless it waits for the next one.
        let waits = attachment.follow || start == Start::Run || self.attachments.contains_key(&id);
        let run = self.runs.get(&self.last_run).filter(|run| !run.is_over() || !waits);
        if let Some(run) = run.filter(|run| run.offer.is_complete()) {
            let fields = run.offer.fields.values();
            attachment.check(|| attachment.needs.latest().check_against(&self.name, fields))?;
        }
        if let Start::Cursor(run, _) = start
            && run > self.last_run
            && !self.is_taking_over()
        {
            return Err(Error::not_found(format!(
                "stream '{}' has had no run {run}, of which the cursor is: its latest is {}",
                self.name, self.last_run
            )));
        }
        let stood_in = self.attachments.remove(&id);
        let known = stood_in.as_ref().and_then(|stood_in| stood_in.told.as_ref());
        let known = known.or_else(|| self.takeover.reports()?.attachments.get(&id)).cloned();
        // Its first run may have begun while it was away.
        let from =
            known.as_ref().and_then(|known| known.from).or(stood_in.as_ref().and_then(Attachment::from));
        // What it was told of it goes on after; nothing, if it asks as it did first.
        let (start, first) = match (start, from) {
            (Start::Next, Some(from)) => (Start::Rejoin(from.0, from.1), from),
            (Start::Run, Some(from)) => (Start::Rejoin(from.0, from.1), from),
            (Start::Oldest, Some((run, step))) => (Start::Rejoin(run, step), (0, 0)),
            (Start::Latest, Some((run, step))) => (Start::Rejoin(run, step), self.newest(&attachment)),
            (Start::Cursor(run, step) | Start::Rejoin(run, step) | Start::Held(run, step), _) => {
                (start, (run, step))
            }
            (Start::Latest, None) => (start, self.newest(&attachment)),
            (Start::Next | Start::Oldest | Start::Run, None) => (start, (0, 0)),
            // It is one of the others by now.
            (Start::Resume, _) => (Start::Next, (0, 0)),
        };
        // It may not have heard of its last change.
        if let Some(known) = known.as_ref().filter(|known| known.needs.is_newer_than(&attachment.needs)) {
            attachment.needs = known.needs.clone();
        }
        attachment.whole_runs = start == Start::Run;
        attachment.first_run = known.as_ref().map_or(0, |known| known.first_run);
        self.queue_what_is_held(&mut attachment, start, first, stood_in.as_ref());
        self.take_held(&mut attachment);
        attachment.missed_before = self.takeover.missed.remove(&id).unwrap_or(0);
        // The servers know already what they were told of it before.
        attachment.told = known;
        let demands = attachment.demands;
        self.attachments.insert(id, attachment);
        let mut effects = Vec::new();
        self.tell_attachments(&mut effects);
        if demands || stood_in.is_some() {
            effects.extend(self.on_demand_changed());
        }
        for (run, step) in stood_in.iter().flat_map(Attachment::holds) {
            self.let_go(run, step, &mut effects);
        }
        self.drop_outdated(&mut effects);
        self.deliver(id, &mut effects);
        self.end_if_over(&mut effects);
        Ok(effects)
    }

    /// The newest closed step that is held and that an attachment wants; the beginning of all if there is none.
    fn newest(&self, attachment: &Attachment) -> (RunNumber, StepNumber) {
        let found = self.runs.iter().rev().find_map(|(number, run)| {
            let wanted = |(step, held): &(&StepNumber, &Step)| {
                held.is_closed()
                    && !held.dropped
                    && run.is_wanted(attachment.needs.at(*number, **step), **step)
            };
            run.steps.iter().rev().find(wanted).map(|(step, _)| (*number, *step))
        });
        found.unwrap_or_default()
    }

    /// An attachment that takes the newest step alone asks for one: it is told of what waits for it, or of what closes next.
    /// `has_spare` if it has one that it was told of too late to give it to its user, and which it then releases.
    pub fn on_asked(&mut self, id: AttachmentId, has_spare: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(attachment) = self.attachments.get_mut(&id) {
            attachment.has_asked = true;
            attachment.has_spare = has_spare;
        }
        self.deliver(id, &mut effects);
        self.end_if_over(&mut effects);
        effects
    }

    /// Queues the closed steps for a new attachment that it is to read from its start on. `first` is the first step that it may
    /// be told of, `stood_in` what kept its place.
    fn queue_what_is_held(
        &mut self,
        attachment: &mut Attachment,
        start: Start,
        first: (RunNumber, StepNumber),
        stood_in: Option<&Attachment>,
    ) {
        let run_is_over = self.runs.get(&self.last_run).is_some_and(Run::is_over);
        match start {
            Start::Run if run_is_over => attachment.first_run = self.last_run + 1,
            Start::Run => {}
            Start::Next | Start::Oldest | Start::Latest | Start::Resume => {
                if !matches!(start, Start::Next | Start::Resume) {
                    self.enqueue_closed(attachment, first, stood_in, BTreeSet::new());
                }
                if run_is_over && !attachment.follow {
                    // It reads what is left, and ends with that.
                    attachment.phase = Phase::TakesPart(self.last_run, 0);
                    attachment.is_late = attachment.queue.is_empty();
                }
            }
            Start::Held(..) => {
                // Those that are not known yet close again while it is looked which there are.
                (attachment.phase, attachment.demands) = (Phase::Looking, false);
                self.enqueue_closed(attachment, first, stood_in, BTreeSet::new());
                attachment.first = first;
                attachment.oldest = self.waits_to_settle();
            }
            Start::Cursor(run, step) => {
                let gone = self.gone_from(attachment, run, step);
                self.enqueue_closed(attachment, first, stood_in, gone);
                attachment.last = step.checked_sub(1).map(|last| (run, last));
                attachment.first = first;
                if (run < self.last_run || run_is_over) && !attachment.follow {
                    attachment.phase = Phase::TakesPart(run, step);
                }
            }
            Start::Rejoin(run, step) => {
                self.enqueue_closed(attachment, first, stood_in, BTreeSet::new());
                attachment.last = first.1.checked_sub(1).map(|last| (first.0, last));
                attachment.first = first;
                attachment.resumes_at = Some((run, step));
                self.resume(attachment);
            }
        }
    }

    /// The closed steps from this one of a run on that an attachment would have been told of, and that are held no longer, as far
    /// as this coordinator has seen them close.
    fn gone_from(
        &self,
        attachment: &Attachment,
        number: RunNumber,
        step: StepNumber,
    ) -> BTreeSet<(RunNumber, StepNumber)> {
        let mut gone = BTreeSet::new();
        let follows = |run: RunNumber| attachment.follow || run == number;
        for (run_number, run) in self.runs.range(number..).filter(|(run, _)| follows(**run)) {
            let from = if *run_number == number { step } else { 0 };
            let is_gone = |step: &StepNumber| {
                run.is_wanted(attachment.needs.at(*run_number, *step), *step) && !run.steps.contains_key(step)
            };
            let closed = run.closed.latest_from(from, GONE_MAX);
            gone.extend(closed.filter(is_gone).map(|step| (*run_number, step)));
        }
        gone
    }

    /// Tells the servers what they do not know yet of attachments.
    pub(super) fn tell_attachments(&mut self, effects: &mut Vec<Effect>) {
        for (id, attachment) in &mut self.attachments {
            let had_begun = attachment.told.as_ref().is_some_and(|told| told.from.is_some());
            let record = attachment.take_record_to_tell();
            if record.is_some() && !had_begun && attachment.from().is_some() {
                // Should it die together with this coordinator, the next one of its name misses nothing.
                effects.extend(attachment.place().map(|(name, cursor)| Effect::Cursor(name, cursor)));
            }
            effects.extend(record.map(|record| Effect::Attachment(*id, record.map(Box::new))));
        }
    }

    /// Closed steps from this one on wait for an attachment. Those that are gone from where it goes on (`gone`), and those that were
    /// dropped for the one that stood in for it, or for readers like it, are counted as missed, each where it was.
    fn enqueue_closed(
        &mut self,
        attachment: &mut Attachment,
        first: (RunNumber, StepNumber),
        stood_in: Option<&Attachment>,
        gone: BTreeSet<(RunNumber, StepNumber)>,
    ) {
        attachment.oldest = true;
        if attachment.is_chosen_for {
            let chosen = stood_in.and_then(Attachment::chosen_meanwhile).cloned().unwrap_or_default();
            chosen.range(first..).for_each(|step| self.enqueue_chosen(attachment, *step));
            return;
        }
        let alike = |other: &&Attachment| other.is_stand_in() && other.needs == attachment.needs;
        let stand_in = stood_in.or_else(|| self.attachments.values().find(alike));
        let mut dropped =
            stand_in.and_then(Attachment::dropped_meanwhile).cloned().unwrap_or_default().split_off(&first);
        dropped.extend(gone);
        // Without `follow` it goes on in its own run alone.
        let follows = attachment.follow || first.0 == 0;
        let takes_part = |run: RunNumber| follows || run == first.0;
        for (number, run) in self.runs.iter_mut().filter(|(number, _)| takes_part(**number)) {
            let mut wanted = Vec::new();
            for (step_number, step) in &run.steps {
                let (takes, all) = (attachment.delivery, attachment.delivery == Delivery::All);
                let closed =
                    step.is_closed() && (all || !step.dropped) && (takes >= Delivery::Torn || !step.torn);
                let wants = (*number, *step_number) >= first
                    && (all || run.is_wanted(attachment.needs.at(*number, *step_number), *step_number));
                if closed && wants {
                    wanted.push(*step_number);
                }
            }
            for step_number in wanted {
                // One that is kept is there, though others have missed it.
                dropped.remove(&(*number, step_number));
                let later = dropped.split_off(&(*number, step_number));
                attachment.missed += std::mem::replace(&mut dropped, later).len() as u64;
                attachment.enqueue(*number, step_number);
                if let Some(step) = run.steps.get_mut(&step_number) {
                    step.holds += 1;
                }
            }
        }
        attachment.missed += dropped.len() as u64;
    }

    /// A reader that comes back holds what it held, as far as that is still there.
    pub(super) fn take_held(&mut self, attachment: &mut Attachment) {
        if self.waits_to_settle() {
            return;
        }
        for HeldStep { run, step, pinned } in std::mem::take(&mut attachment.held_before) {
            let known = self.runs.get_mut(&run).and_then(|run| run.held_mut(step));
            let Some(known) = known.filter(|known| !known.dropped) else { continue };
            let held = if pinned { &mut attachment.pinned } else { &mut attachment.delivered };
            known.holds += u32::from(held.insert((run, step)));
        }
    }

    /// A reader that comes back takes part in its run from the step on that it wants next, if that run is known.
    pub(super) fn resume(&self, attachment: &mut Attachment) {
        if let Some((run, step)) = attachment.resumes_at
            && (self.runs.contains_key(&run) || self.last_run().is_some_and(|last| last > run))
        {
            attachment.resumes_at = None;
            attachment.come_back_at(run, step);
        }
    }

    /// The readers whose demand is in force in a run, as those are told that wait for them.
    pub fn readers_of(&self, number: RunNumber) -> ReadersThere {
        let has_begun = self.runs.get(&number).is_none_or(Run::has_begun);
        let mut there = ReadersThere { has_begun, ..ReadersThere::default() };
        let takes_part = |attachment: &&Attachment| {
            !attachment.is_stand_in() && attachment.takes_part_in(number) && attachment.from().is_some()
        };
        for attachment in self.attachments.values().filter(takes_part) {
            let Some(reader) = &attachment.reader else { continue };
            match &reader.name {
                Some(name) => drop(there.named.insert(name.clone(), reader.clone())),
                None => there.unnamed.push(reader.clone()),
            }
        }
        there.unnamed.truncate(UNNAMED_MAX);
        there
    }

    /// For how many readers with names the first step of the latest run waits; `None` once a rank has begun it.
    pub fn awaited_readers(&self) -> Option<u32> {
        let run = self.runs.get(&self.last_run).filter(|run| !run.is_over())?;
        let awaited = run.options.wait_for_readers;
        (awaited > 0 && !run.has_begun()).then_some(awaited)
    }

    /// What an attachment waits for; of readers that share its steps this one.
    pub fn situation_of(&self, id: AttachmentId, reader: Option<u32>) -> Situation {
        let mut situation = Situation { run: self.last_run(), ..Situation::default() };
        let (Some(run), Some(attachment)) = (self.runs.get(&self.last_run), self.attachments.get(&id)) else {
            return situation;
        };
        situation.is_over = run.is_over();
        situation.has_ranks = run.has_ranks();
        situation.takes_part = attachment.takes_part_in(run.number);
        situation.reached = run.reached();
        situation.is_any_wanted =
            run.offer.fields.keys().any(|field| attachment.demanded().of(field).is_some());
        situation.unmatched = self.why_unmatched(id);
        situation.behind = attachment.behind();
        if let (Some(share), Some(number)) = (&attachment.share, reader) {
            let is_any_left = !attachment.queue.is_empty();
            situation.waits_for_others = share.waits_for_others(number, is_any_left);
            let ends = run.is_over() && !attachment.follow && !is_any_left && !self.waits_to_settle();
            let waits_for_itself = ends && !situation.waits_for_others && share.reads(number);
            situation.end = waits_for_itself.then(|| Box::new(self.end_of(attachment, run.number)));
        }
        situation.name_fields(run.offer.fields.keys());
        situation
    }

    /// Why an attachment has been told of none of the latest steps, if its contract meets none of them.
    pub fn why_unmatched(&self, id: AttachmentId) -> Option<String> {
        self.unmatched_text(self.attachments.get(&id)?)
    }

    /// The same of an attachment.
    pub(super) fn unmatched_text(&self, attachment: &Attachment) -> Option<String> {
        let run = self.runs.get(&self.last_run).filter(|run| attachment.takes_part_in(run.number))?;
        attachment.unmatched.text(attachment.needs.latest(), run.offer.fields.values())
    }

    /// From which step on an attachment takes part, if that is known.
    pub fn active_from(&self, id: AttachmentId) -> Option<(RunNumber, StepNumber)> {
        self.attachments.get(&id).filter(|attachment| !attachment.is_late).and_then(Attachment::from)
    }

    /// Whether something is needed by an attachment at a step of a run, as far as the run's contract is known.
    pub fn is_wanted_by(&self, id: AttachmentId, run: RunNumber, step: StepNumber) -> bool {
        let Some(attachment) = self.attachments.get(&id) else { return false };
        self.runs.get(&run).is_some_and(|known| known.is_wanted(attachment.needs.at(run, step), step))
    }

    /// Whether anything of a step, or of static fields, is held or expected.
    pub fn has_step(&self, run: RunNumber, step: StepNumber) -> bool {
        self.runs.get(&run).is_some_and(|run| run.has(step))
    }

    /// Whether a step was dropped while somebody stood in for an attachment.
    pub fn has_dropped(&self, id: AttachmentId, run: RunNumber, step: StepNumber) -> bool {
        let dropped = self.attachments.get(&id).and_then(Attachment::dropped_meanwhile);
        dropped.is_some_and(|dropped| dropped.contains(&(run, step)))
    }

    /// How many ranks a run has, if it is known.
    pub fn size_of(&self, run: RunNumber) -> Option<u32> {
        self.runs.get(&run).map(|run| run.options.size)
    }

    /// Whether all ranks of a run have left it, but for those for which `left` says so; also if the run is not known.
    pub fn have_all_left(&self, run: RunNumber, left: impl Fn(u32) -> bool) -> bool {
        let Some(run) = self.runs.get(&run) else { return true };
        (0..run.options.size)
            .all(|rank| left(rank) || run.ranks.get(&rank).is_some_and(|r| r.state.is_gone()))
    }

    /// Whether it is agreed from which step on an attachment takes part in the run, if there is one.
    pub fn is_start_agreed(&self, id: AttachmentId) -> bool {
        let attachment = self.attachments.get(&id);
        let busy = self.cut.is_agreeing() || self.waits_to_settle();
        // For one that looks at what is held nothing is agreed on.
        attachment.is_none_or(|attachment| !attachment.demands || attachment.from().is_some() || !busy)
    }

    /// Somebody is gone, or detached: everything it held is released.
    pub fn detach(&mut self, id: AttachmentId) -> Vec<Effect> {
        let Some(attachment) = self.attachments.remove(&id) else { return Vec::new() };
        let mut effects = Vec::new();
        effects.extend(attachment.told.is_some().then_some(Effect::Attachment(id, None)));
        if attachment.demands {
            effects.extend(self.on_demand_changed());
        }
        for (run, step) in attachment.holds() {
            self.let_go(run, step, &mut effects);
        }
        self.forget_empty_runs(&mut effects);
        effects
    }

    /// The connection of somebody has ended that is made anew by others: for a while its place is kept as in a takeover, with all steps that
    /// it was told of or that wait for it. Those who come then find these. Where many places are kept already nobody is awaited.
    pub fn await_back(&mut self, id: AttachmentId) -> Vec<Effect> {
        if self.attachments.values().filter(|attachment| attachment.is_stand_in()).count() >= AWAITED_MAX {
            return self.detach(id);
        }
        let live = self.runs.get(&self.last_run).filter(|run| !run.is_over()).map(|run| run.number);
        let Some(attachment) = self.attachments.remove(&id) else { return Vec::new() };
        let mut stand_in = match attachment.told.clone() {
            Some(record) => Attachment::stand_in_for(record, live),
            None => Attachment::stand_in(attachment.needs.clone(), None),
        };
        stand_in.phase = attachment.phase;
        let (statics, mut held): (Vec<_>, Vec<_>) =
            attachment.holds().partition(|(_, step)| *step == STATIC_STEP);
        held.sort_unstable();
        held.into_iter().for_each(|(run, step)| stand_in.enqueue(run, step));
        self.attachments.insert(id, stand_in);
        self.takeover.looks = 0;
        let mut effects = Vec::new();
        statics.into_iter().for_each(|(run, step)| self.let_go(run, step, &mut effects));
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
        let mut all: Vec<(RunNumber, StepNumber)> = attachment.holds().collect();
        all.sort_unstable();
        let held: BTreeSet<(RunNumber, StepNumber)> = held.iter().copied().collect();
        attachment.queue.clear();
        attachment.delivered.clear();
        let mut kept: BTreeSet<_> = all.iter().copied().filter(|step| held.contains(step)).collect();
        attachment.pinned.clone_from(&kept);
        attachment.held_before.retain(|before| held.contains(&(before.run, before.step)));
        attachment.begin_closing();
        let done = attachment.holds_nothing();
        let mut effects = Vec::new();
        if done {
            effects = self.detach(id);
        } else {
            self.tell_attachments(&mut effects);
            effects.extend(self.on_demand_changed());
        }
        for (run, step) in all.into_iter().filter(|step| !kept.remove(step)) {
            self.let_go(run, step, &mut effects);
        }
        self.forget_empty_runs(&mut effects);
        effects
    }

    /// The steps that an attachment was told of and may still look at.
    pub fn held_by(&self, id: AttachmentId) -> Vec<(RunNumber, StepNumber)> {
        let attachment = self.attachments.get(&id);
        attachment.into_iter().flat_map(|held| held.delivered.iter().chain(&held.pinned)).copied().collect()
    }

    /// The fields that the latest run offers, as they are now, and whether it may offer others yet.
    pub fn offered(&self) -> (impl Iterator<Item = &Field>, bool) {
        let run = self.runs.get(&self.last_run);
        let is_complete = run.is_some_and(|run| run.offer.is_complete());
        (run.into_iter().flat_map(|run| run.offer.fields.values()), !is_complete)
    }

    /// A step that an attachment holds, or one of its several readers does, as that is told to it, with the static fields of its run.
    pub fn report_of(&self, id: AttachmentId, run: RunNumber, step: StepNumber) -> Result<StepReport> {
        let attachment = self.attachments.get(&id).filter(|attachment| attachment.is_held((run, step)));
        let of_run = self.runs.get(&run);
        let (Some(attachment), Some(of_run)) = (attachment, of_run) else {
            return Err(Error::not_found(format!("the reader does not hold step {step} of run {run}")));
        };
        let held = of_run.steps.get(&step).ok_or_else(|| {
            Error::not_found(format!("nothing is known of step {step} of run {run} any more"))
        })?;
        let step_id = StepId { stream: self.name.clone(), run, step };
        let mut report = held.report(step_id, attachment.needs.at(run, step));
        report.statics = of_run.statics.report();
        report.attrs = Some(Box::new(of_run.offer.attrs.clone()));
        (report.term, report.ranks) = (self.term, of_run.options.size);
        Ok(report)
    }

    /// An attachment has finished with a step; `pinned` says that arrays of it live on.
    pub fn release(
        &mut self,
        id: AttachmentId,
        run: RunNumber,
        step: StepNumber,
        pinned: bool,
    ) -> Vec<Effect> {
        if let Some(attachment) = self.attachments.get_mut(&id) {
            attachment.note_finished((run, step));
        }
        self.released(id, run, step, pinned)
    }

    /// A closed step is chosen for an attachment that is told of no others, or for who comes back to its place. Nothing happens if it is
    /// held no longer, was chosen already, or lies before those with which who came back goes on.
    pub fn choose(&mut self, id: AttachmentId, run: RunNumber, step: StepNumber) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(mut attachment) = self.attachments.remove(&id) else { return effects };
        let is_past = (run, step) < attachment.first;
        if !attachment.note_chosen((run, step)) && attachment.is_chosen_for && !is_past {
            self.enqueue_chosen(&mut attachment, (run, step));
        }
        self.attachments.insert(id, attachment);
        self.deliver(id, &mut effects);
        effects
    }

    /// A step that was chosen for an attachment waits for it, if it is still there.
    fn enqueue_chosen(&mut self, attachment: &mut Attachment, (run, step): (RunNumber, StepNumber)) {
        let held = self.runs.get_mut(&run).and_then(|of_run| of_run.steps.get_mut(&step));
        let is_known = attachment.holds().any(|known| known == (run, step));
        if let Some(held) = held.filter(|held| held.is_closed() && !held.dropped && !is_known) {
            held.holds += 1;
            attachment.enqueue(run, step);
        }
    }

    /// An attachment may hold so many steps from now on.
    pub fn set_window(&mut self, id: AttachmentId, window: u32) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(attachment) = self.attachments.get_mut(&id) {
            attachment.window = window.clamp(1, 1024);
            self.deliver(id, &mut effects);
        }
        effects
    }

    /// An attachment does not look at a step any more; `pinned` says that arrays of it live on.
    pub(super) fn released(
        &mut self,
        id: AttachmentId,
        run: RunNumber,
        step: StepNumber,
        pinned: bool,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(attachment) = self.attachments.get_mut(&id) else { return effects };
        let known = attachment.note_released(run, step, pinned);
        let place = known.then(|| attachment.take_place_to_tell()).flatten();
        if attachment.is_closing() && attachment.holds_nothing() {
            // Of a cohort that has ended some that are here yet may have finished with more than when the first of them left.
            let is_here = attachment.cohort.as_ref().is_some_and(|cohort| !cohort.is_empty());
            effects = if is_here { self.on_stop(id, &[]) } else { Vec::new() };
            effects.extend(self.detach(id));
        }
        effects.extend(place.map(|(name, cursor)| Effect::Cursor(name, cursor)));
        self.deliver(id, &mut effects);
        if known && !pinned {
            self.let_go(run, step, &mut effects);
        }
        let outdated = self.attachments.get_mut(&id).map(Attachment::take_outdated_statics);
        for (run, step) in outdated.into_iter().flatten() {
            self.let_go(run, step, &mut effects);
        }
        self.end_if_over(&mut effects);
        self.forget_empty_runs(&mut effects);
        effects
    }

    pub(super) fn deliver_all(&mut self, effects: &mut Vec<Effect>) {
        let ids: Vec<AttachmentId> = self.attachments.keys().copied().collect();
        ids.into_iter().for_each(|id| self.deliver(id, effects));
    }

    pub(super) fn deliver(&mut self, id: AttachmentId, effects: &mut Vec<Effect>) {
        self.deliver_caught_up(id, effects);
        while let Some(effect) = self.next_delivery(id) {
            effects.push(effect);
        }
    }

    /// Tells an attachment of the next step that waits for it, if it is ready.
    fn next_delivery(&mut self, id: AttachmentId) -> Option<Effect> {
        let attachment = self.attachments.get_mut(&id)?;
        let is_held = |queued: &Queued| {
            self.runs.get(&queued.run).is_some_and(|run| run.steps.contains_key(&queued.step))
        };
        while attachment.queue.front().is_some_and(|queued| !is_held(queued)) {
            attachment.queue.pop_front();
        }
        attachment.queue.front()?;
        let (sharer, place) = attachment.take_next_reader()?;
        let Queued { run, step, missed } = attachment.queue.remove(place)?;
        let of_run = self.runs.get_mut(&run)?;
        let id_of_step = StepId { stream: self.name.clone(), run, step };
        let needs = attachment.needs.at(run, step);
        let mut report = of_run.steps.get(&step)?.report(id_of_step, needs);
        if !attachment.is_of_subscriptions {
            report = report.with_statistics_for(Some(needs));
        }
        if attachment.note_attrs_told(sharer, run, of_run.offer.attrs_version) {
            report.attrs = Some(Box::new(of_run.offer.attrs.clone()));
        }
        report.statics = of_run.statics_to_tell(attachment, sharer);
        report.missed = missed;
        attachment.missed_before += missed;
        (report.term, report.ranks) = (self.term, of_run.options.size);
        if let Some(cohort) = &mut attachment.cohort {
            cohort.note_told((run, step));
            report.absent = cohort.absent();
        }
        report.rewound = attachment.last.is_some_and(|(last_run, last)| run > last_run && step <= last);
        attachment.delivered.insert((run, step));
        if attachment.pinned.remove(&(run, step)) {
            // Arrays held it while it waited to be given again.
            of_run.held_mut(step)?.holds -= 1;
        }
        (attachment.has_asked, attachment.has_spare) = (false, false);
        match (sharer, &mut attachment.share) {
            (Some(number), Some(share)) => {
                // One that is given once more is an earlier one.
                attachment.last = attachment.last.max(Some((run, step)));
                report.attempt = share.give(number, (run, step));
                Some(Effect::DeliverTo(id, vec![number], Box::new(report)))
            }
            _ => {
                attachment.last = Some((run, step));
                Some(Effect::Deliver(id, Box::new(report)))
            }
        }
    }

    /// Tells the end to those that have nothing left to be told of: each of its own run, which need not be the latest.
    pub(super) fn end_if_over(&mut self, effects: &mut Vec<Effect>) {
        if self.waits_to_settle() {
            // Steps that all have ended are yet to close.
            return;
        }
        let mut over = Vec::new();
        for (id, attachment) in &mut self.attachments {
            // What it still holds it may go on reading.
            let drained =
                attachment.queue.is_empty() && !attachment.is_stand_in() && !attachment.may_give_again();
            if drained && attachment.is_looking() {
                attachment.phase = Phase::Ended(self.last_run, 0);
                let missed = attachment.missed;
                effects.push(Effect::Ended(*id, Box::new(RunEnd::of_what_is_held(self.last_run, missed))));
                continue;
            }
            let Phase::TakesPart(number, from) = attachment.phase else { continue };
            if !drained || attachment.follow {
                continue;
            }
            // One that is over and has no steps may have been forgotten.
            if self.runs.get(&number).is_none_or(Run::is_over) {
                attachment.phase = Phase::Ended(number, from);
                effects.extend(attachment.told.take().map(|_| Effect::Attachment(*id, None)));
                over.push((*id, number));
            }
        }
        for (id, number) in over {
            let Some(attachment) = self.attachments.get(&id) else { continue };
            let end = Box::new(self.end_of(attachment, number));
            let share = self.attachments.get_mut(&id).and_then(|attachment| attachment.share.as_mut());
            share.into_iter().for_each(|share| share.end = Some(end.clone()));
            effects.push(Effect::Ended(id, end));
        }
    }

    /// How an attachment is told that a run is over, which may have been forgotten.
    fn end_of(&self, attachment: &Attachment, number: RunNumber) -> RunEnd {
        let run = self.runs.get(&number);
        let continues = |other: &&Run| other.options.continues.is_some_and(|(run, _)| run == number);
        let kept = run.map_or(0, |run| run.kept.len() as u64);
        RunEnd {
            run: number,
            summary: run.and_then(|run| run.summary(self.now)),
            continued_by: self.runs.values().rfind(continues).map(|other| other.number),
            missed: attachment.missed,
            late: attachment.is_late.then_some(kept),
            looked: false,
        }
    }
}
