//! Attachments: consumers and pipelines, as a stream's coordinator keeps them.

use crate::contract::{Needs, NeedsByStep};
use crate::identity::Identity;
use crate::ids::{RunNumber, STATIC_STEP, ServerId, StepNumber};
use crate::steps::cohort::{Cohort, CohortRecord};
use crate::steps::matched::Matched;
use crate::steps::queued::Queued;
use crate::steps::report::HeldStep;
use crate::steps::run_told::RunTold;
use crate::steps::share::{Share, ShareRecord};
use crate::steps::unmatched::Unmatched;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// After so many steps that it has finished with servers are told where the next reader of its name begins, should it die together
/// with its coordinator.
const FINISHED_TOLD: u32 = 16;
/// How many of the latest steps that were dropped are remembered for those who may come back.
const DROPPED_MAX: usize = 1 << 16;

/// Names an attachment within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttachmentId(pub u64);

/// With which step an attachment begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// The next step that begins.
    #[default]
    Next,
    /// The oldest closed step that is still held (the stream's `keep`), then all later ones.
    Oldest,
    /// The newest closed step that is still held, then all later ones.
    Latest,
    /// The first step of a run: of the one that is there, if it has begun none yet, else of the next one.
    Run,
    /// This step of this run, or the first after it that is still held, then all later ones: where an earlier reader has
    /// stopped.
    Cursor(RunNumber, StepNumber),
    /// The same for a reader that comes back to another coordinator: its demand was in force all the while.
    Rejoin(RunNumber, StepNumber),
    /// The closed steps that are held now, from this one on, and none that comes later: nothing is demanded for it.
    Held(RunNumber, StepNumber),
    /// Where the last reader of this name has stopped; the next step that begins if there was none.
    Resume,
}

impl Start {
    /// All the closed steps that are held now.
    pub const HELD: Start = Start::Held(0, 0);
}

/// Which closed steps an attachment is told of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Delivery {
    /// Those that are whole.
    Whole,
    /// Torn ones, too.
    #[default]
    Torn,
    /// All, also those that were dropped since something found no room, and those at which it needs nothing: it waits for
    /// steps that it knows of.
    All,
}

/// Which of the closed steps that wait for an attachment it is told of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Take {
    /// All of them, in order, as far as its window allows.
    #[default]
    All,
    /// The newest one, when it asks for one; it is told how many it has missed.
    Latest,
}

/// What every server knows of an attachment, so that its place is kept when the coordinator of its stream dies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttachmentRecord {
    /// What it needs.
    pub needs: NeedsByStep,
    /// Whether it goes on with the next run when one ends.
    pub follow: bool,
    /// Which closed steps it is told of.
    pub delivery: Delivery,
    /// Which of those that wait for it.
    pub take: Take,
    /// It takes no part in runs before this one.
    pub first_run: RunNumber,
    /// From which step of which run on it takes part; `None` until that is decided.
    pub from: Option<(RunNumber, StepNumber)>,
    /// Which ranks it has, if it is a cohort.
    pub cohort: Option<CohortRecord>,
    /// Which readers it has, if several share its steps.
    pub share: Option<ShareRecord>,
}

/// Since when an attachment takes part in its stream, and whether it still does.
///
/// ```text
///              a cut is decided, a run begins,                 its run is over, and
///              or it comes back                                it has been told of all
///   Waiting ──────────────────────────────────► TakesPart ──────────────────────────► Ended
///      │                                            │                                   │
///      └────────── it is closed, or fails ──────────┴───────────────────────────────────┴──► Closing
/// ```
///
/// An attachment that is closed and holds nothing is detached at once. One that looks at what is held alone ([`Start::Held`])
/// is `Looking` until it has been told of all, and then `Ended`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is not decided yet from which step on its demand is in force.
    Waiting,
    /// Its demand is in force from this step of this run on.
    TakesPart(RunNumber, StepNumber),
    /// It takes part in nothing that comes, and is told of what was held when it came.
    Looking,
    /// It took part from this step on, and was told that its stream has ended: it takes no part in later runs.
    Ended(RunNumber, StepNumber),
    /// Its handle is closed, or it has failed: it stays only for what it still holds. It took part from this step on, if
    /// that was decided.
    Closing(Option<(RunNumber, StepNumber)>),
}

/// Whether somebody reads what an attachment is told.
///
/// ```text
///   attach ────────────────────────────────────────────────► Reader
///   a coordinator takes over ──► StandIn ──it comes back──►  Reader
///                                   └──it does not──► (detached)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    /// A consumer or a pipeline.
    Reader,
    /// It keeps the place of readers that may come back (see the coordinator's takeover), and is told of nothing.
    StandIn {
        /// Which steps were dropped meanwhile: one that comes back may have had some of them.
        dropped: BTreeSet<(RunNumber, StepNumber)>,
        /// Which steps were chosen for one that is told of no others.
        chosen: BTreeSet<(RunNumber, StepNumber)>,
    },
}

/// A consumer or a pipeline.
#[derive(Debug)]
pub struct Attachment {
    /// What it needs.
    pub needs: NeedsByStep,
    /// What it has asked for instead, until it is decided from which step on that holds.
    pub(super) proposed: Option<Needs>,
    /// The server that it is connected to.
    pub server: ServerId,
    /// How many steps it may hold unreleased at once.
    pub window: u32,
    /// Whether it goes on with the next run when one ends.
    pub follow: bool,
    /// Which closed steps it is told of.
    pub delivery: Delivery,
    /// Which of those that wait for it.
    pub take: Take,
    /// Whether anything is demanded for it: not of one that looks at what is held.
    pub(super) demands: bool,
    /// Who reads, if it is a consumer; of a cohort its lowest rank.
    pub reader: Option<Identity>,
    /// The name of the pipeline that it is of, if it is of one.
    pub pipeline: Option<String>,
    /// Whether it is of subscriptions: no field of a run has to have what they need.
    pub is_of_subscriptions: bool,
    /// Whether it is told of those steps alone that are chosen for it ([`super::StreamCoordinator::choose`]).
    pub is_chosen_for: bool,
    /// The ranks that it has, if it is a cohort.
    pub(super) cohort: Option<Cohort>,
    /// The readers among which its steps are shared out, if they are.
    pub(super) share: Option<Share>,
    /// Whether it remembers attributes and static fields of a run, so that they are told only when they are others than before.
    pub remembers_run: bool,
    pub(super) phase: Phase,
    pub(super) role: Role,
    /// It takes no part in runs before this one.
    pub(super) first_run: RunNumber,
    /// Whether it takes part in runs from their first step on alone.
    pub(super) whole_runs: bool,
    /// Whether it has asked for a step, and has not been told of one since: one that takes the newest alone.
    pub(super) has_asked: bool,
    /// Whether it releases one of those that it holds as soon as it is told of a newer one.
    pub(super) has_spare: bool,
    /// What came before this was told already, if it came back.
    pub(super) first: (RunNumber, StepNumber),
    /// The step that it wants next, if it came back and its run is not known yet.
    pub(super) resumes_at: Option<(RunNumber, StepNumber)>,
    /// What it holds of the time with the coordinator before this one, which has not told of that yet.
    pub(super) held_before: Vec<HeldStep>,
    /// Closed steps that wait for it.
    pub(super) queue: VecDeque<Queued>,
    /// Whether its run was over when it came, and had nothing left for it.
    pub(super) is_late: bool,
    /// Whether it takes what is staged of steps that were running when it came, before its own demand holds.
    pub(super) oldest: bool,
    /// Steps it was told of and has not finished with.
    pub(super) delivered: BTreeSet<(RunNumber, StepNumber)>,
    /// Steps it was told of, has finished with, and still holds because arrays of them live; and the runs of which it holds the
    /// static fields.
    pub(super) pinned: BTreeSet<(RunNumber, StepNumber)>,
    /// Of a cohort: the first step with which a rank that died had not finished.
    pub(super) unread: Option<(RunNumber, StepNumber)>,
    /// The first of those after the last one with which it has finished that it has given back.
    pub given_back: Option<(RunNumber, StepNumber)>,
    /// How often it has let go of a step: now and then servers are told how far it is.
    pub(super) finished: u32,
    /// Steps dropped since the last one that waits for it or that it was told of.
    pub(super) missed: u64,
    /// Those that it was told of with steps.
    pub(super) missed_before: u64,
    /// The last step it was told of.
    pub(super) last: Option<(RunNumber, StepNumber)>,
    /// What it was told of runs; of readers that share steps each one knows that of itself.
    pub(super) run_told: RunTold,
    /// What the servers were told of it.
    pub(super) told: Option<AttachmentRecord>,
    /// The latest steps of which it needs nothing.
    pub(super) unmatched: Unmatched,
    /// When it last needed which field.
    pub(super) matched: Matched,
}

impl Attachment {
    /// A new attachment.
    pub fn new(needs: impl Into<NeedsByStep>, server: ServerId, window: u32) -> Attachment {
        Attachment {
            needs: needs.into(),
            proposed: None,
            server,
            window: window.clamp(1, 1024),
            follow: false,
            delivery: Delivery::default(),
            take: Take::default(),
            demands: true,
            reader: None,
            pipeline: None,
            is_of_subscriptions: false,
            is_chosen_for: false,
            cohort: None,
            share: None,
            remembers_run: true,
            phase: Phase::Waiting,
            role: Role::Reader,
            first_run: 0,
            whole_runs: false,
            has_asked: false,
            has_spare: false,
            first: (0, 0),
            resumes_at: None,
            held_before: Vec::new(),
            queue: VecDeque::new(),
            is_late: false,
            oldest: false,
            delivered: BTreeSet::new(),
            pinned: BTreeSet::new(),
            unread: None,
            given_back: None,
            finished: 0,
            missed: 0,
            missed_before: 0,
            last: None,
            run_told: RunTold::default(),
            told: None,
            unmatched: Unmatched::default(),
            matched: Matched::default(),
        }
    }

    /// The same of a reader that comes back, and still holds these steps.
    pub fn with_held_steps(self, held: Vec<HeldStep>) -> Attachment {
        Attachment { held_before: held, ..self }
    }

    /// What keeps the demand in force, and the steps, for readers of a run that may come back. It is told of nothing.
    pub(super) fn stand_in(needs: impl Into<NeedsByStep>, run: Option<RunNumber>) -> Attachment {
        let mut attachment = Attachment::new(needs, ServerId(0), 1);
        attachment.window = 0;
        attachment.role = Role::StandIn { dropped: BTreeSet::new(), chosen: BTreeSet::new() };
        attachment.phase = run.map_or(Phase::Waiting, |run| Phase::TakesPart(run, 0));
        attachment
    }

    /// The same for one attachment, of which the servers were told this.
    pub(super) fn stand_in_for(record: AttachmentRecord, live: Option<RunNumber>) -> Attachment {
        // Of a run that began as its coordinator died, it takes all.
        let run = record.from.map(|(run, _)| run).or(live);
        let mut attachment = Attachment::stand_in(record.needs.clone(), run);
        (attachment.follow, attachment.delivery) = (record.follow, record.delivery);
        (attachment.take, attachment.first_run) = (record.take, record.first_run);
        attachment.told = Some(record);
        attachment
    }

    /// From which step of which run on its demand is, or was, in force, if that is decided.
    pub(super) fn from(&self) -> Option<(RunNumber, StepNumber)> {
        match self.phase {
            Phase::Waiting | Phase::Looking => None,
            Phase::TakesPart(run, step) | Phase::Ended(run, step) => Some((run, step)),
            Phase::Closing(from) => from,
        }
    }

    /// Checks what it needs, or asks for, against the fields that a run offers, if it must match. Subscriptions are told of each step,
    /// and say themselves what does not.
    pub(super) fn check(&self, check: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.is_of_subscriptions {
            return Ok(());
        }
        check().map_err(|error| self.about(error))
    }

    /// Says whose contract an error is about.
    pub(super) fn about(&self, error: Error) -> Error {
        let whose = if self.reader.is_some() { "a reader, " } else { "" };
        error.during(format!("the contract of {whose}{}", self.described()))
    }

    /// Who it is, for people.
    pub(super) fn described(&self) -> String {
        match (&self.reader, &self.pipeline) {
            (Some(reader), _) => reader.to_string(),
            (None, Some(pipeline)) => format!("pipeline '{pipeline}'"),
            (None, None) if self.is_of_subscriptions => "subscriptions".to_owned(),
            (None, None) => "a pipeline".to_owned(),
        }
    }

    /// Which ranks of a cohort have not finished with a step for which the others wait, or which of the readers that share steps,
    /// for people; `None` if none has to.
    pub(super) fn behind(&self) -> Option<String> {
        if let Some(share) = &self.share {
            return share.behind(&self.queue);
        }
        let cohort = self.cohort.as_ref().filter(|_| self.delivered.len() >= self.window as usize)?;
        let oldest = self.delivered.first()?;
        let first = *cohort.holders.readers_of(*oldest).first()?;
        Some(format!(
            "{} has not finished with step {}, and the window is of {} steps",
            cohort.describe(first),
            oldest.1,
            self.window
        ))
    }

    /// What is demanded for it: what it needs at last.
    pub(super) fn demanded(&self) -> &Needs {
        self.proposed.as_ref().unwrap_or_else(|| self.needs.latest())
    }

    /// It is decided that what it has asked for holds from this step on.
    pub(super) fn change_needs_at(&mut self, run: RunNumber, step: StepNumber) {
        if let Some(needs) = self.proposed.take() {
            self.needs.change(run, step, needs);
            self.unmatched = Unmatched::default();
        }
    }

    /// It is decided that its demand is in force from this step on, if that was not decided before. One that takes part in
    /// whole runs alone waits for the next one, if this step is not the first.
    pub(super) fn begin_at(&mut self, run: RunNumber, step: StepNumber) {
        if run < self.first_run {
            return;
        }
        if self.whole_runs && step > 0 && self.phase == Phase::Waiting {
            self.first_run = run + 1;
            return;
        }
        match &mut self.phase {
            Phase::Waiting => self.phase = Phase::TakesPart(run, step),
            Phase::Closing(from @ None) => *from = Some((run, step)),
            Phase::Looking | Phase::TakesPart(..) | Phase::Ended(..) | Phase::Closing(Some(_)) => {}
        }
    }

    /// It comes back to the step of its run that it wants next.
    pub(super) fn come_back_at(&mut self, run: RunNumber, step: StepNumber) {
        self.phase = match self.phase {
            Phase::Looking => Phase::Looking,
            Phase::Waiting | Phase::TakesPart(..) => Phase::TakesPart(run, step),
            Phase::Ended(..) => Phase::Ended(run, step),
            Phase::Closing(_) => Phase::Closing(Some((run, step))),
        };
    }

    /// Its handle is closed, or it has failed.
    pub(super) fn begin_closing(&mut self) {
        self.phase = Phase::Closing(self.from());
    }

    /// Whether its demand counts: it was neither closed nor told that its stream has ended.
    fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::TakesPart(..))
    }

    /// Whether it takes what was held when it came, and nothing that comes later.
    pub(super) fn is_looking(&self) -> bool {
        self.phase == Phase::Looking
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    pub(super) fn is_stand_in(&self) -> bool {
        matches!(self.role, Role::StandIn { .. })
    }

    /// Which steps were dropped while it stood in for readers.
    pub(super) fn dropped_meanwhile(&self) -> Option<&BTreeSet<(RunNumber, StepNumber)>> {
        match &self.role {
            Role::Reader => None,
            Role::StandIn { dropped, .. } => Some(dropped),
        }
    }

    /// Which steps were chosen for it while somebody stood in for it.
    pub(super) fn chosen_meanwhile(&self) -> Option<&BTreeSet<(RunNumber, StepNumber)>> {
        match &self.role {
            Role::Reader => None,
            Role::StandIn { chosen, .. } => Some(chosen),
        }
    }

    /// A step is chosen for it that is to be told of once it is back; whether it is still awaited.
    pub(super) fn note_chosen(&mut self, step: (RunNumber, StepNumber)) -> bool {
        match &mut self.role {
            Role::Reader => false,
            Role::StandIn { chosen, .. } => {
                chosen.insert(step);
                true
            }
        }
    }

    /// What the servers are to be told of it, if they do not know: `None` in that if its place need not be kept.
    pub(super) fn take_record_to_tell(&mut self) -> Option<Option<AttachmentRecord>> {
        if self.is_stand_in() {
            // As they were told of the one whose place it keeps.
            return None;
        }
        let Attachment { follow, delivery, take, first_run, .. } = *self;
        let (from, stays) = (self.from(), self.is_active());
        let known = match &self.told {
            Some(told) => {
                let same = (told.follow, told.delivery, told.take) == (follow, delivery, take)
                    && (told.first_run, told.from) == (first_run, from)
                    && told.cohort.as_ref() == self.cohort.as_ref().map(|cohort| &cohort.record)
                    && told.share.as_ref() == self.share.as_ref().map(|share| &share.record);
                stays && same && told.needs == self.needs
            }
            None => !stays,
        };
        if !known {
            let needs = || self.needs.clone();
            let cohort = || self.cohort.as_ref().map(|cohort| cohort.record.clone());
            let share = || self.share.as_ref().map(|share| share.record.clone());
            self.told = stays.then(|| {
                let (needs, cohort, share) = (needs(), cohort(), share());
                AttachmentRecord { needs, follow, delivery, take, first_run, from, cohort, share }
            });
        }
        (!known).then(|| self.told.clone())
    }

    /// Whether its demand is in force at this step. Without `follow` it belongs to one run.
    pub(super) fn in_force(&self, run: RunNumber, step: StepNumber) -> bool {
        self.takes_part_in(run)
            && self.from().is_some_and(|(from_run, from)| run > from_run || (run == from_run && step >= from))
    }

    /// Whether it has a say in the demand of a run.
    pub(super) fn takes_part_in(&self, run: RunNumber) -> bool {
        self.is_active()
            && run >= self.first_run
            && self.from().is_none_or(|(from, _)| from == run || (self.follow && run > from))
    }

    /// What it was told of runs, or one of the readers that share its steps.
    fn run_told(&mut self, sharer: Option<u32>) -> Option<&mut RunTold> {
        match (sharer, &mut self.share) {
            (Some(number), Some(share)) => share.told(number),
            _ => Some(&mut self.run_told),
        }
    }

    /// Whether it, or one of the readers that share its steps, has to be told of the attributes of a run, at this version. The
    /// version 0 has none.
    pub(super) fn note_attrs_told(&mut self, sharer: Option<u32>, run: RunNumber, version: u64) -> bool {
        let is_new = self.run_told(sharer).is_some_and(|told| told.note_attrs(run, version));
        if self.remembers_run { is_new } else { version > 0 }
    }

    /// The same of the static fields.
    pub(super) fn note_statics_told(&mut self, sharer: Option<u32>, run: RunNumber, version: u64) -> bool {
        let is_new = self.run_told(sharer).is_some_and(|told| told.note_statics(run, version));
        if self.remembers_run { is_new } else { version > 0 }
    }

    /// It holds the static fields of a run: of several readers these, or all. Returns whether it did not before.
    pub(super) fn note_statics_held(&mut self, readers: Option<&[u32]>, run: RunNumber) -> bool {
        let step = (run, STATIC_STEP);
        match (&mut self.cohort, &mut self.share, readers) {
            (Some(cohort), _, None) => cohort.note_given(step),
            (Some(cohort), _, Some(ranks)) => {
                ranks.iter().for_each(|rank| cohort.holders.note(*rank, step, true));
            }
            (None, Some(share), Some(numbers)) => {
                numbers.iter().for_each(|number| share.holders.note(*number, step, true));
            }
            (None, _, _) => {}
        }
        self.pinned.insert(step)
    }

    /// Where it does not remember what it is told of runs, it holds the static fields of one no longer than steps of it: those
    /// that it holds no more.
    pub(super) fn take_outdated_statics(&mut self) -> Vec<(RunNumber, StepNumber)> {
        if self.remembers_run {
            return Vec::new();
        }
        let steps = self.delivered.iter().chain(self.pinned.iter().filter(|(_, step)| *step != STATIC_STEP));
        let runs: BTreeSet<RunNumber> = steps.map(|(run, _)| *run).collect();
        let is_outdated = |held: &(RunNumber, StepNumber)| held.1 == STATIC_STEP && !runs.contains(&held.0);
        self.pinned.extract_if(.., is_outdated).collect()
    }

    /// Where a reader of its name goes on: with the first step that it was told of and has not finished with, but for those that
    /// it has looked at.
    pub(super) fn goes_on_at(
        &self,
        looked_at: &[(RunNumber, StepNumber)],
    ) -> Option<(RunNumber, StepNumber)> {
        let unread = match (&self.cohort, &self.share) {
            (Some(cohort), _) => self.unread.into_iter().chain(cohort.holders.first_unread()).min(),
            // Some may have finished with later ones.
            (None, Some(_)) => {
                let waiting = self.queue.front().map(|queued| (queued.run, queued.step));
                self.delivered.first().copied().into_iter().chain(waiting).min()
            }
            (None, None) => self.delivered.iter().find(|step| !looked_at.contains(step)).copied(),
        };
        let after = self.last.map(|(run, step)| (run, step.saturating_add(1)));
        let unread = unread.into_iter().chain(self.given_back).min();
        unread.or(after).or_else(|| self.from())
    }

    /// It finishes with a step: with none before it the next reader of its name begins.
    pub(super) fn note_finished(&mut self, step: (RunNumber, StepNumber)) {
        // Of one that it has finished with before it tells that no array of it is left.
        let had_not = self.delivered.contains(&step)
            || self.held_before.iter().any(|held| (held.run, held.step) == step && !held.pinned);
        if had_not {
            self.given_back = self.given_back.filter(|given_back| *given_back >= step);
        }
    }

    /// Where the next reader of its name begins, should it die now; `None` of one that has no name.
    pub(super) fn place(&self) -> Option<(String, (RunNumber, StepNumber))> {
        let has_one = self.demands && !self.is_stand_in() && self.is_active();
        has_one.then(|| Some((self.name()?.clone(), self.goes_on_at(&[])?))).flatten()
    }

    /// The same after it has let go of a step, if servers are to be told of it now and then.
    pub(super) fn take_place_to_tell(&mut self) -> Option<(String, (RunNumber, StepNumber))> {
        self.finished += 1;
        self.finished.is_multiple_of(FINISHED_TOLD).then(|| self.place()).flatten()
    }

    /// It could not do with a step what it wanted: unless it finishes with a later one, the next reader of its name begins there.
    pub(super) fn note_given_back(&mut self, step: (RunNumber, StepNumber)) {
        if self.is_held(step) {
            self.given_back = self.given_back.into_iter().chain([step]).min();
        }
    }

    /// How many read.
    pub(super) fn readers(&self) -> u64 {
        let share = self.share.as_ref().map(Share::count);
        self.cohort.as_ref().map(Cohort::ranks).or(share).unwrap_or(1)
    }

    /// What its readers are called, if they have a name.
    pub(super) fn name(&self) -> Option<&String> {
        self.reader.as_ref()?.name.as_ref()
    }

    /// Whether nothing lives of the steps that it was told of, once it is closed.
    pub(super) fn holds_nothing(&self) -> bool {
        self.pinned.is_empty() && self.held_before.is_empty()
    }

    /// A closed step waits for it.
    pub(super) fn enqueue(&mut self, run: RunNumber, step: StepNumber) {
        let missed = std::mem::take(&mut self.missed);
        self.queue.push_back(Queued { run, step, missed });
    }

    /// Where it takes the newest alone, the steps before that do not wait for it any more: these.
    pub(super) fn drop_outdated(&mut self) -> Vec<(RunNumber, StepNumber)> {
        let mut dropped = Vec::new();
        while self.take == Take::Latest && self.queue.len() > 1 {
            dropped.extend(self.drop_at(0).map(|oldest| (oldest.run, oldest.step)));
        }
        dropped
    }

    /// Who is to be told of a step that waits for it, if it is ready: one of the readers that share its steps (`Some`), or all that
    /// read; and its place in the queue.
    pub(super) fn take_next_reader(&mut self) -> Option<(Option<u32>, usize)> {
        if let Some(share) = &mut self.share {
            return share.take_next(&self.queue).map(|(number, place)| (Some(number), place));
        }
        let is_ready = self.delivered.len() < self.window as usize + usize::from(self.has_spare)
            && (self.take == Take::All || self.has_asked);
        is_ready.then_some((None, 0))
    }

    /// Whether readers hold a step that they were told of.
    pub(super) fn is_held(&self, step: (RunNumber, StepNumber)) -> bool {
        self.delivered.contains(&step) || self.pinned.contains(&step)
    }

    /// Whether readers were told of a step by the coordinator before, and none of them has given it back.
    pub(super) fn was_told_before(&mut self, step: (RunNumber, StepNumber)) -> bool {
        let given_back = self.share.as_mut().is_some_and(|share| share.take_given_back(step));
        step < self.first || self.is_held(step) && !given_back
    }

    /// Whether readers may come back that were told by the coordinator before.
    pub(super) fn awaits_readers(&self) -> bool {
        self.is_stand_in() || self.share.as_ref().is_some_and(Share::awaits_some)
    }

    /// Servers are to be told how far the readers are that share its steps.
    pub(super) fn note_how_far(&mut self) {
        let first = self.delivered.first().copied().into_iter();
        let first = first.chain(self.queue.front().map(|queued| (queued.run, queued.step))).min();
        let below = first.or(self.last.map(|(run, step)| (run, step.saturating_add(1))));
        if let Some(share) = &mut self.share {
            share.record.below = share.record.below.max(below);
        }
    }

    /// Whether steps that readers were told of may be given to others yet, should those die.
    pub(super) fn may_give_again(&self) -> bool {
        self.share.is_some() && !self.delivered.is_empty()
    }

    /// Takes those of the steps that wait for it out of its queue.
    pub(super) fn take_queued(&mut self, of: impl Fn(&Queued) -> bool) -> Vec<(RunNumber, StepNumber)> {
        let mut taken = Vec::new();
        self.queue.retain(|queued| {
            let takes = of(queued);
            taken.extend(takes.then_some((queued.run, queued.step)));
            !takes
        });
        taken
    }

    /// A step that one of those was told of that share steps, and with which it has not finished, is to be given to another one: it
    /// waits again, before those after it. Its arrays may live on there (`pinned`); `failed` says whether it was looked at. Returns
    /// whether arrays hold it besides.
    pub(super) fn give_again(
        &mut self,
        reader: u32,
        step: (RunNumber, StepNumber),
        pinned: bool,
        failed: bool,
    ) -> bool {
        let Some(share) = &mut self.share else { return false };
        share.take_back(reader, step, pinned, failed);
        // Another one may read it, too, if a reader came back late.
        if share.is_read(step) || !self.delivered.remove(&step) {
            return false;
        }
        let place = self.queue.partition_point(|queued| (queued.run, queued.step) < step);
        self.queue.insert(place, Queued { run: step.0, step: step.1, missed: 0 });
        share.is_held(step) && self.pinned.insert(step)
    }

    /// One of several readers has finished with a step, or only arrays of it live on there. Returns the same of all of them, if the
    /// last one has finished with it.
    pub(super) fn release_by(
        &mut self,
        reader: u32,
        step: (RunNumber, StepNumber),
        pinned: bool,
    ) -> Option<bool> {
        let holders = match (&mut self.cohort, &mut self.share) {
            (Some(cohort), _) => &mut cohort.holders,
            (None, Some(share)) => &mut share.holders,
            (None, None) => return None,
        };
        holders.release(reader, step, pinned)
    }

    /// The steps that its several readers hold.
    pub(super) fn held_by_readers(&self) -> Vec<(RunNumber, StepNumber)> {
        let share = self.share.iter().flat_map(|share| share.holders.all());
        share.map(|(step, _)| step).collect()
    }

    /// The steps that one of several readers was told of and may still look at.
    pub(super) fn held_by(&self, reader: u32) -> Vec<(RunNumber, StepNumber)> {
        let cohort = self.cohort.as_ref().map(|cohort| &cohort.holders);
        let holders = cohort.or(self.share.as_ref().map(|share| &share.holders));
        holders.into_iter().flat_map(|holders| holders.of(reader)).map(|(step, _)| step).collect()
    }

    /// A step that waits for it is dropped, and counted where it was. `false` if it does not wait for it.
    pub(super) fn drop_queued(&mut self, run: RunNumber, step: StepNumber) -> bool {
        let found = self.queue.iter().position(|queued| (queued.run, queued.step) == (run, step));
        found.and_then(|place| self.drop_at(place)).is_some()
    }

    /// The step at this place in the queue is dropped, and counted there, or after all that wait.
    pub(super) fn drop_at(&mut self, place: usize) -> Option<Queued> {
        let dropped = self.queue.remove(place)?;
        self.note_dropped(dropped.run, dropped.step);
        if let Some(share) = &mut self.share {
            share.forget_attempts((dropped.run, dropped.step));
        }
        match self.queue.get_mut(place) {
            Some(next) => next.missed += dropped.missed + 1,
            None => self.missed += dropped.missed + 1,
        }
        Some(dropped)
    }

    /// A step was dropped that never waited for it.
    pub(super) fn miss(&mut self, run: RunNumber, step: StepNumber) {
        self.note_dropped(run, step);
        self.missed += 1;
    }

    fn note_dropped(&mut self, run: RunNumber, step: StepNumber) {
        if let Role::StandIn { dropped, .. } = &mut self.role {
            dropped.insert((run, step));
            if dropped.len() > DROPPED_MAX {
                dropped.pop_first();
            }
        }
    }

    /// How many steps it has missed, in all.
    pub(super) fn missed_in_all(&self) -> u64 {
        let before_waiting: u64 = self.queue.iter().map(|waiting| waiting.missed).sum();
        self.missed_before + before_waiting + self.missed
    }

    /// It has finished with a step, or only arrays of it live on. Returns whether it held it.
    pub(super) fn note_released(&mut self, run: RunNumber, step: StepNumber, pinned: bool) -> bool {
        let known = self.delivered.remove(&(run, step)) | self.pinned.remove(&(run, step));
        if known && pinned {
            self.pinned.insert((run, step));
        }
        if let Some(cohort) = self.cohort.as_mut().filter(|_| !pinned) {
            cohort.holders.forget((run, step));
        }
        let waits = self.queue.iter().any(|queued| (queued.run, queued.step) == (run, step));
        if let Some(share) = self.share.as_mut().filter(|_| !pinned && !waits) {
            share.forget_attempts((run, step));
        }
        let of_step = |before: &HeldStep| (before.run, before.step) == (run, step);
        if pinned {
            self.held_before.iter_mut().filter(|before| of_step(before)).for_each(|b| b.pinned = true);
        } else {
            self.held_before.retain(|before| !of_step(before));
        }
        known
    }

    /// The steps that it holds, also those that wait for it: each as often as it holds it.
    pub(super) fn holds(&self) -> impl Iterator<Item = (RunNumber, StepNumber)> + '_ {
        let queued = self.queue.iter().map(|queued| (queued.run, queued.step));
        queued.chain(self.delivered.iter().copied()).chain(self.pinned.iter().copied())
    }
}
