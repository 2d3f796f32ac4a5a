//! The space, for the subscriptions that watch the same of it: at which steps it is looked for arrays, and which were found.

use super::completed::Completed;
use super::readers::Leases;
use forebay_core::ids::{DescriptionNumber, ServerId, StepNumber};
use forebay_query::subscription::Definition;
use forebay_query::syntax::FieldUse;
use forebay_query::{Syntax, takes_neighbours};
use forebay_wire::subscription::Completion;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// How many steps that were found wait to be evaluated: more are looked for later.
const FOUND_MAX: usize = 16;

/// What is known of the space.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    /// The names of the fields.
    pub(super) fields: Vec<String>,
    /// At every so many steps.
    every: u32,
    /// Which elements of which fields must be there.
    pub(super) places: Vec<FieldUse>,
    /// The text, if it takes neighbours of them: such a one shares this with the same alone.
    pub(super) text: Option<String>,
    pub(super) completed: Completed,
    /// Servers that have not told yet what they know, and the questions' tokens: what they tell until then was there before.
    pub(super) awaited: BTreeMap<ServerId, u64>,
    searches: BTreeMap<StepNumber, Search>,
    /// Steps that are to be looked for as soon as others were found, and whether that is the first look.
    waiting: VecDeque<(StepNumber, bool)>,
    /// The same steps.
    waits: BTreeSet<StepNumber>,
    /// Steps that were found, and are evaluated or wait for that.
    found: BTreeMap<StepNumber, Found>,
}

/// A step whose arrays are looked for.
#[derive(Debug)]
struct Search {
    number: u64,
    /// Whether it is the first look: what is there already is no event.
    is_first: bool,
    /// What was told of the step meanwhile.
    news: BTreeSet<DescriptionNumber>,
    over: Arc<Notify>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.over.notify_one();
    }
}

/// A step that was found.
#[derive(Debug)]
struct Found {
    completion: Completion,
    /// The blocks stay until this is dropped.
    _leases: Leases,
}

/// What follows from a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The step is to be evaluated.
    Evaluate,
    /// It is known, was there before, or is not there.
    Nothing,
}

impl Arrays {
    /// For a subscription like this one.
    pub(super) fn new(definition: &Definition, completed: Completed) -> Arrays {
        let syntax = Syntax::parse(&definition.text).ok();
        let places = syntax.as_ref().map(|syntax| syntax.places()).unwrap_or_default();
        let takes_neighbours = syntax.is_some_and(|syntax| takes_neighbours(&syntax));
        let text = takes_neighbours.then(|| definition.text.clone());
        let fields: BTreeSet<String> = places.iter().map(|place| place.name.clone()).collect();
        let fields = fields.into_iter().collect();
        Arrays { fields, every: definition.every, places, text, completed, ..Arrays::default() }
    }

    /// Whether who waits for the same as another one may share this.
    pub(super) fn is_same(&self, other: &Arrays) -> bool {
        self.places == other.places && self.text == other.text
    }

    /// A server tells of a step: it is looked for, unless it is known already.
    pub(super) fn note(&mut self, from: ServerId, step: StepNumber, description: DescriptionNumber) {
        if !step.is_multiple_of(u64::from(self.every.max(1))) {
            return;
        }
        if let Some(search) = self.searches.get_mut(&step) {
            search.news.insert(description);
            return;
        }
        let is_found = self.found.get(&step).is_some_and(|found| found.completion.contains(&description));
        if is_found || self.completed.knows(step, description) {
            return;
        }
        let is_first = self.awaited.contains_key(&from);
        if self.waits.insert(step) {
            // Before those that were looked for already, and did not come.
            self.waiting.push_front((step, is_first));
        }
    }

    /// A field is removed at a step: what was told of it until then is looked for no more.
    pub(super) fn note_gone(&mut self, step: StepNumber, description: DescriptionNumber) {
        let is_later = |search: &Search| search.news.iter().any(|news| *news > description);
        if self.searches.get(&step).is_some_and(|search| !is_later(search)) {
            self.searches.remove(&step);
        }
        if self.waits.remove(&step) {
            self.waiting.retain(|(waiting, _)| *waiting != step);
        }
    }

    fn wait(&mut self, step: StepNumber, is_first: bool) {
        if self.waits.insert(step) {
            self.waiting.push_back((step, is_first));
        }
    }

    /// The next step that may be looked for.
    pub(super) fn next(&mut self) -> Option<(StepNumber, bool)> {
        if self.found.len() >= FOUND_MAX {
            return None;
        }
        let place = self.waiting.iter().position(|(step, _)| !self.found.contains_key(step))?;
        let next = self.waiting.remove(place)?;
        self.waits.remove(&next.0);
        Some(next)
    }

    /// A step is looked for from now on. Returns what ends when it need not be any more.
    pub(super) fn begin(&mut self, step: StepNumber, number: u64, is_first: bool) -> Arc<Notify> {
        let over: Arc<Notify> = Arc::default();
        self.searches.insert(step, Search { number, is_first, news: BTreeSet::new(), over: over.clone() });
        over
    }

    /// How many steps are looked for.
    pub(super) fn searching(&self) -> usize {
        self.searches.len()
    }

    /// Whether steps wait until others were found.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Of those that are looked for the one that was begun first waits again, so that others are.
    pub(super) fn put_back(&mut self) {
        let oldest = self.searches.iter().min_by_key(|(_, search)| search.number).map(|(step, _)| *step);
        if let Some(search) = oldest.and_then(|step| self.searches.remove(&step).map(|search| (step, search)))
        {
            self.wait(search.0, search.1.is_first);
        }
    }

    /// A search has ended: with these descriptions, or it is not there.
    pub(super) fn end(
        &mut self,
        (step, number): (StepNumber, u64),
        found: Option<(Completion, Leases)>,
    ) -> Outcome {
        if self.searches.get(&step).is_none_or(|search| search.number != number) {
            return Outcome::Nothing;
        }
        let Some(search) = self.searches.remove(&step) else { return Outcome::Nothing };
        let is_told = |found: &Completion| search.news.iter().all(|description| found.contains(description));
        let is_current = found.as_ref().is_some_and(|(completion, _)| is_told(completion));
        let is_news = !search.news.is_empty() && !is_current;
        let outcome = match found {
            Some((completion, _)) if search.is_first => {
                self.completed.insert(step, completion);
                Outcome::Nothing
            }
            // Something of it was put anew meanwhile: it is looked for again.
            Some(_) if is_news => Outcome::Nothing,
            Some((completion, leases)) if !self.completed.has(step, &completion) => {
                self.found.insert(step, Found { completion, _leases: leases });
                Outcome::Evaluate
            }
            _ => Outcome::Nothing,
        };
        if is_news {
            self.wait(step, false);
        }
        outcome
    }

    /// A step was evaluated: it was complete, under these descriptions. Its blocks may go.
    pub(super) fn complete(&mut self, step: StepNumber) -> Option<Completion> {
        let completion = self.found.remove(&step)?.completion;
        self.completed.insert(step, completion.clone());
        Some(completion)
    }

    /// Whether it has just become known which steps were complete before.
    pub(super) fn becomes_ready(&mut self) -> bool {
        let is_first = self.searches.values().any(|search| search.is_first)
            || self.waiting.iter().any(|(_, is_first)| *is_first);
        let becomes = !self.completed.is_ready && self.awaited.is_empty() && !is_first;
        self.completed.is_ready |= becomes;
        becomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: ServerId = ServerId(1);

    fn begin(arrays: &mut Arrays, number: u64) -> StepNumber {
        let (step, is_first) = arrays.next().unwrap();
        arrays.begin(step, number, is_first);
        step
    }

    fn found(completion: Completion) -> Option<(Completion, Leases)> {
        Some((completion, Leases::default()))
    }

    #[test]
    fn what_was_there_before_is_no_event_and_what_comes_is_one() {
        let mut arrays = Arrays::default();
        arrays.awaited.insert(S, 5);
        arrays.note(S, 3, 10);
        arrays.note(S, 4, 11);
        arrays.awaited.clear();
        assert!(!arrays.becomes_ready(), "what is there was not looked at");
        assert_eq!((begin(&mut arrays, 1), begin(&mut arrays, 2)), (4, 3));
        assert_eq!(arrays.end((3, 2), found(vec![10])), Outcome::Nothing);
        assert_eq!(arrays.end((4, 1), None), Outcome::Nothing, "not complete");
        assert!(arrays.becomes_ready() && !arrays.becomes_ready());
        arrays.note(S, 3, 10);
        assert!(arrays.next().is_none(), "it is known");
        arrays.note(S, 4, 11);
        assert_eq!(begin(&mut arrays, 3), 4);
        assert_eq!(arrays.end((4, 3), found(vec![11])), Outcome::Evaluate);
        arrays.note(S, 4, 11);
        assert!(arrays.next().is_none(), "it is being evaluated");
        assert_eq!(arrays.complete(4), Some(vec![11]));
        arrays.note(S, 4, 12);
        assert_eq!(begin(&mut arrays, 4), 4, "it was put anew");
        assert_eq!(arrays.end((4, 4), found(vec![11])), Outcome::Nothing, "another step's put");
    }

    #[test]
    fn what_is_told_while_a_step_is_looked_for_is_looked_for_again_unless_it_was_found() {
        let mut arrays = Arrays::default();
        arrays.note(S, 1, 10);
        begin(&mut arrays, 1);
        arrays.note(S, 1, 11);
        assert_eq!(arrays.end((1, 1), found(vec![11])), Outcome::Evaluate);
        assert!(arrays.next().is_none());
        arrays.complete(1);
        arrays.note(S, 2, 20);
        begin(&mut arrays, 2);
        arrays.note(S, 2, 21);
        assert_eq!(arrays.end((2, 2), found(vec![20])), Outcome::Nothing, "it is another one by now");
        assert_eq!(begin(&mut arrays, 3), 2);
        arrays.put_back();
        assert_eq!(arrays.searching(), 0);
        assert_eq!(begin(&mut arrays, 4), 2);
        assert_eq!(arrays.end((2, 3), found(vec![21])), Outcome::Nothing, "a search that was given up");
    }

    #[test]
    fn what_is_removed_is_looked_for_no_more_and_what_is_new_goes_first() {
        let mut arrays = Arrays::default();
        for step in 1..4 {
            arrays.note(S, step, u128::from(step) * 10);
        }
        assert_eq!(begin(&mut arrays, 1), 3, "the newest");
        arrays.note_gone(3, 30);
        assert_eq!(arrays.searching(), 0);
        arrays.note_gone(2, 20);
        assert_eq!(begin(&mut arrays, 2), 1);
        arrays.note(S, 1, 11);
        arrays.note_gone(1, 10);
        assert_eq!(arrays.searching(), 1, "it was put anew");
        assert!(!arrays.has_waiting());
    }
}
