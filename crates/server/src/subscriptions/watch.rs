//! The steps of a stream, for the subscriptions that need the same of it: evaluated one after the other, and held as long as one of
//! them, or a subscriber, needs them.

use super::arrays::Arrays;
use super::partner::JOINED_MAX;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{AttachmentId, StepReport};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How many steps wait to be evaluated, or are: more wait in the stream, under its policy.
const WINDOW: usize = 2;
/// How many steps may be held at once: streams let nobody hold more.
const HELD_MAX: usize = 1000;
/// How many steps a subscription keeps that fired, or lie around one that did.
const KEPT_MAX: usize = 128;
/// How many steps are held for events that subscribers have not taken.
const WAITING_MAX: usize = 8;

/// The steps of a stream.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) stream: String,
    pub(super) needs: Needs,
    /// Whether steps wait for those of other streams. Then it has one subscription.
    pub(super) joins: bool,
    /// The names of the subscriptions.
    pub(super) users: BTreeSet<String>,
    /// Steps that are to be evaluated.
    queue: VecDeque<Arc<StepReport>>,
    /// The one that is.
    pub(super) evaluating: Option<Arc<StepReport>>,
    /// The last that was begun with.
    last_begun: Option<(RunNumber, StepNumber)>,
    /// Whether others are told what came of one, before the next one is evaluated.
    pub(super) is_telling: bool,
    held: BTreeMap<(RunNumber, StepNumber), Held>,
    /// The latest steps that were evaluated, the latest last: as many as one of the subscriptions looks back.
    recent: VecDeque<(RunNumber, StepNumber)>,
    /// How many that are.
    pub(super) looks_back: usize,
    /// What the stream was told of how many steps it may tell.
    window: usize,
    /// Whether a subscription has another plan, so that another thing may be needed.
    pub(super) has_new_plans: bool,
    /// What is known of the space, if that is watched.
    pub(super) arrays: Option<Arrays>,
}

/// How many steps a stream may tell at least.
fn least_window(joins: bool) -> usize {
    if joins { JOINED_MAX + WINDOW } else { WINDOW }
}

/// A step that is held.
#[derive(Debug, Default)]
struct Held {
    by: BTreeSet<Holder>,
    /// Until when it is held for subscribers that have not taken it.
    until: Duration,
}

/// For what a step is held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    /// It is to be evaluated.
    Evaluation,
    /// Others are told how far subscriptions have come, under this token.
    Untold(u64),
    /// The next one may fire, and this one is to be kept then.
    LookBack,
    /// A subscription keeps it.
    Kept(String),
    /// Subscribers have not taken an event of this subscription.
    Event(String),
    /// A subscriber has it.
    Listener(AttachmentId),
}

impl Watch {
    pub(super) fn new(stream: &str, needs: Needs, joins: bool) -> Watch {
        Watch {
            stream: stream.to_owned(),
            needs,
            joins,
            users: BTreeSet::new(),
            queue: VecDeque::new(),
            evaluating: None,
            last_begun: None,
            is_telling: false,
            held: BTreeMap::new(),
            recent: VecDeque::new(),
            looks_back: 0,
            window: least_window(joins),
            has_new_plans: false,
            arrays: None,
        }
    }

    /// A step is to be evaluated.
    pub(super) fn push(&mut self, report: StepReport) {
        self.hold((report.id.run, report.id.step), Holder::Evaluation);
        self.queue.push_back(Arc::new(report));
    }

    /// How many steps the stream may tell.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// The next one, unless another is being evaluated; and how many wait.
    pub(super) fn next(&self) -> Option<(&Arc<StepReport>, usize)> {
        let next = self.queue.front().filter(|_| self.evaluating.is_none() && !self.is_telling)?;
        Some((next, self.queue.len()))
    }

    /// The run of the steps that wait, or are evaluated.
    pub(super) fn run(&self) -> Option<RunNumber> {
        self.queue.front().or(self.evaluating.as_ref()).map(|report| report.id.run)
    }

    /// The number of the first one that waits, or is evaluated.
    pub(super) fn awaited(&self) -> Option<StepNumber> {
        self.evaluating.as_ref().or(self.queue.front()).map(|report| report.id.step)
    }

    /// The next one is evaluated from now on.
    pub(super) fn begin_next(&mut self) {
        self.evaluating = self.queue.pop_front();
        self.last_begun = self.evaluating.as_ref().map(|report| (report.id.run, report.id.step));
    }

    /// From which step on one watches that comes now; `None` if that is from the first one on.
    pub(super) fn comes_from(&self) -> Option<(RunNumber, StepNumber)> {
        self.last_begun.map(|(run, step)| (run, step.saturating_add(1)))
    }

    /// A step is held for this.
    pub(super) fn hold(&mut self, step: (RunNumber, StepNumber), by: Holder) {
        self.held.entry(step).or_default().by.insert(by);
    }

    /// A step is held for this no more.
    pub(super) fn end(&mut self, step: (RunNumber, StepNumber), by: &Holder) {
        if let Some(held) = self.held.get_mut(&step) {
            held.by.remove(by);
        }
    }

    /// A step is held for subscribers that have not taken an event of a subscription.
    pub(super) fn hold_for_event(&mut self, step: (RunNumber, StepNumber), name: &str, until: Duration) {
        let waiting = self.held.iter().filter(|(_, held)| held.by.contains(&Holder::Event(name.to_owned())));
        let waiting: Vec<_> = waiting.map(|(step, _)| *step).collect();
        if waiting.len() >= WAITING_MAX
            && let Some(oldest) = waiting.first()
        {
            self.end(*oldest, &Holder::Event(name.to_owned()));
        }
        self.hold(step, Holder::Event(name.to_owned()));
        if let Some(held) = self.held.get_mut(&step) {
            held.until = held.until.max(until);
        }
    }

    /// A subscriber has a step.
    pub(super) fn hold_for_listener(&mut self, step: (RunNumber, StepNumber), id: AttachmentId) {
        self.hold(step, Holder::Listener(id));
    }

    /// A subscriber has it no more.
    pub(super) fn end_listening(&mut self, step: (RunNumber, StepNumber), id: AttachmentId) {
        self.end(step, &Holder::Listener(id));
    }

    /// The steps that a subscriber has.
    pub(super) fn held_for(&self, id: AttachmentId) -> Vec<(RunNumber, StepNumber)> {
        let of = self.held.iter().filter(|(_, held)| held.by.contains(&Holder::Listener(id)));
        of.map(|(step, _)| *step).collect()
    }

    /// Whether a subscriber has one of its steps.
    pub(super) fn is_read(&self) -> bool {
        self.held.values().any(|held| held.by.iter().any(|by| matches!(by, Holder::Listener(_))))
    }

    /// Whether those who listen are told of what comes of a step once other servers know.
    pub(super) fn tells_once_kept(&self) -> bool {
        self.joins || self.arrays.is_some()
    }

    /// Whether a step is held.
    pub(super) fn holds(&self, step: (RunNumber, StepNumber)) -> bool {
        self.held.contains_key(&step)
    }

    /// The steps that are held for a subscription, or for these who listen to it, and whether it keeps them.
    pub(super) fn held_for_name(
        &self,
        name: &str,
        listeners: &[AttachmentId],
    ) -> Vec<(RunNumber, StepNumber, bool)> {
        let (kept, event) = (Holder::Kept(name.to_owned()), Holder::Event(name.to_owned()));
        let of = |(step, held): (&(RunNumber, StepNumber), &Held)| {
            let is_kept = held.by.contains(&kept);
            let is_read = || listeners.iter().any(|id| held.by.contains(&Holder::Listener(*id)));
            (is_kept || held.by.contains(&event) || is_read()).then_some((step.0, step.1, is_kept))
        };
        self.held.iter().filter_map(of).collect()
    }

    /// A subscription keeps a step, and so many before it. The oldest of those that it keeps are let go of if there are many.
    pub(super) fn keep(&mut self, step: (RunNumber, StepNumber), name: &str, before: usize) {
        let holder = Holder::Kept(name.to_owned());
        let back: Vec<_> = self.recent.iter().rev().take(before).copied().collect();
        for step in back.into_iter().chain([step]) {
            self.hold(step, holder.clone());
        }
        let kept = self.held.iter().filter(|(_, held)| held.by.contains(&holder));
        let kept: Vec<_> = kept.map(|(step, _)| *step).collect();
        for step in kept.iter().take(kept.len().saturating_sub(KEPT_MAX)) {
            self.end(*step, &holder);
        }
    }

    /// A step was evaluated: it is one of the latest.
    pub(super) fn note_recent(&mut self, step: (RunNumber, StepNumber)) {
        if self.looks_back > 0 {
            self.hold(step, Holder::LookBack);
            self.recent.push_back(step);
        }
        while self.recent.len() > self.looks_back {
            if let Some(oldest) = self.recent.pop_front() {
                self.end(oldest, &Holder::LookBack);
            }
        }
    }

    /// A subscription is told of these steps no more.
    pub(super) fn remove_user(&mut self, name: &str) {
        self.users.remove(name);
        let (kept, event) = (Holder::Kept(name.to_owned()), Holder::Event(name.to_owned()));
        for held in self.held.values_mut() {
            held.by.remove(&kept);
            held.by.remove(&event);
        }
    }

    /// Steps that no subscriber has taken in time are held for them no more.
    pub(super) fn end_waiting(&mut self, now: Duration) {
        for held in self.held.values_mut().filter(|held| held.until <= now) {
            held.by.retain(|by| !matches!(by, Holder::Event(_)));
        }
    }

    /// Takes out the steps that are held for nothing.
    pub(super) fn take_free(&mut self) -> Vec<(RunNumber, StepNumber)> {
        let free: Vec<_> =
            self.held.iter().filter(|(_, held)| held.by.is_empty()).map(|(step, _)| *step).collect();
        for step in &free {
            self.held.remove(step);
        }
        free
    }

    /// How many steps the stream may tell, if that is another number than it knows.
    pub(super) fn take_window(&mut self) -> Option<usize> {
        let waits = |held: &&Held| held.by.contains(&Holder::Evaluation);
        let others = self.held.len() - self.held.values().filter(waits).count();
        let window = least_window(self.joins) + others.min(HELD_MAX);
        (std::mem::replace(&mut self.window, window) != window).then_some(window)
    }

    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        if let Some((step, _)) = self.held.iter().find(|(_, held)| held.by.is_empty()) {
            return Err(format!("step {step:?} is held for nothing"));
        }
        let waits = self.queue.iter().chain(&self.evaluating).map(|report| (report.id.run, report.id.step));
        for step in waits {
            if !self.held.get(&step).is_some_and(|held| held.by.contains(&Holder::Evaluation)) {
                return Err(format!("step {step:?} is to be evaluated, and not held"));
            }
        }
        Ok(())
    }
}
