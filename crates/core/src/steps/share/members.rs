//! The readers that share the steps of a stream, whose turn it is, and which of them holds which step.

use crate::identity::Identity;
use crate::ids::{RunNumber, STATIC_STEP, StepNumber};
use crate::steps::holders::Holders;
use crate::steps::queued::Queued;
use crate::steps::run_end::RunEnd;
use crate::steps::run_told::RunTold;
use crate::steps::share::sharer::Sharing;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many times a coordinator looks for readers that were there before it, until their steps are given to others. It looks
/// about once a second.
const AWAY_LOOKS: u32 = 10;
/// After so many steps that were finished servers are told how far readers are: another coordinator gives none of these again.
const FINISHED_TOLD: u64 = 64;

/// What every server knows of readers that share steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRecord {
    /// What they are called.
    pub name: String,
    /// How the steps are shared out.
    pub sharing: Sharing,
    /// The numbers of those that are there.
    pub sharers: BTreeSet<u32>,
    /// Some time ago, all before this step had been finished.
    pub below: Option<(RunNumber, StepNumber)>,
}

/// A reader that is there.
#[derive(Debug)]
struct Present {
    who: Identity,
    /// How many steps it may hold.
    window: u32,
    told: RunTold,
}

/// The readers that share the steps of a stream.
#[derive(Debug)]
pub(in crate::steps) struct Share {
    pub(in crate::steps) record: ShareRecord,
    present: BTreeMap<u32, Present>,
    pub(in crate::steps) holders: Holders,
    /// The number of the next that comes for the first time.
    next: u32,
    /// Those that have asked for a step, the first one first; one may ask for several.
    asking: VecDeque<u32>,
    /// The number of the one that was given a step last.
    last: Option<u32>,
    /// How many steps they have finished with.
    finished: u64,
    /// What they were told of the end of their run, once they were.
    pub(in crate::steps) end: Option<Box<RunEnd>>,
    /// How many readers a step was given to that died before they had finished with it.
    attempts: BTreeMap<(RunNumber, StepNumber), u32>,
    /// Steps that are open here, and had closed at the coordinator before: a reader holds arrays of each, and has given it back.
    given_back: BTreeSet<(RunNumber, StepNumber)>,
    /// Those that the coordinator before knew, and that have not come back.
    away: BTreeSet<u32>,
    looks: u32,
}

impl Share {
    /// Readers that are yet to come. Those that the coordinator before this one knew may come back.
    pub(in crate::steps) fn new(name: &str, sharing: Sharing, away: BTreeSet<u32>) -> Share {
        let record = ShareRecord { name: name.to_owned(), sharing, sharers: away.clone(), below: None };
        Share {
            next: record.sharers.last().map_or(0, |last| last.wrapping_add(1)),
            record,
            present: BTreeMap::new(),
            holders: Holders::default(),
            asking: VecDeque::new(),
            last: None,
            finished: 0,
            end: None,
            attempts: BTreeMap::new(),
            given_back: BTreeSet::new(),
            away,
            looks: 0,
        }
    }

    /// A reader comes, or comes back with the number that it had. Returns its number.
    pub(in crate::steps) fn come(&mut self, number: Option<u32>, who: Identity, window: u32) -> u32 {
        let mut number = number.unwrap_or(self.next);
        // One that is gone may still hold arrays.
        while self.present.contains_key(&number) || self.holders.of(number).next().is_some() {
            number = number.wrapping_add(1);
        }
        self.next = self.next.max(number.wrapping_add(1));
        self.away.remove(&number);
        self.record.sharers.insert(number);
        self.present.insert(number, Present { who, window, told: RunTold::default() });
        number
    }

    /// Whether none is there.
    pub(in crate::steps) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Whether some may come back.
    pub(in crate::steps) fn awaits_some(&self) -> bool {
        !self.away.is_empty()
    }

    /// How many are there.
    pub(in crate::steps) fn count(&self) -> u64 {
        self.present.len() as u64
    }

    /// One of those that are there.
    pub(in crate::steps) fn one_of_them(&self) -> Option<&Identity> {
        self.present.values().next().map(|present| &present.who)
    }

    /// How many steps they may hold, all together.
    pub(in crate::steps) fn window(&self) -> u64 {
        self.present.values().map(|present| u64::from(present.window)).sum()
    }

    /// What a reader was told of runs.
    pub(in crate::steps) fn told(&mut self, number: u32) -> Option<&mut RunTold> {
        self.present.get_mut(&number).map(|present| &mut present.told)
    }

    /// A reader, as people read it.
    pub(in crate::steps) fn describe(&self, number: u32) -> String {
        let Some(Present { who, .. }) = self.present.get(&number) else { return "a reader".to_owned() };
        format!("process {} on {} (one of the readers '{}')", who.pid, who.host, self.record.name)
    }

    /// A reader asks for a step, for as many as it may hold.
    pub(in crate::steps) fn ask(&mut self, number: u32) {
        let asks = self.asking.iter().filter(|other| **other == number).count();
        if self.present.get(&number).is_some_and(|present| asks < present.window as usize) {
            self.asking.push_back(number);
        }
    }

    /// Whether a reader may be given one more step.
    fn has_room(&self, number: u32) -> bool {
        let unread = self.holders.of(number).filter(|(_, pinned)| !pinned).count();
        self.present.get(&number).is_some_and(|present| unread < present.window as usize)
    }

    /// Whose turn it is, where they are given steps in turn: this reader's, then that of those after it.
    fn turns(&self) -> impl Iterator<Item = u32> + '_ {
        let after = self.last.and_then(|last| last.checked_add(1)).unwrap_or(0);
        self.present.range(after..).chain(self.present.range(..after)).map(|(number, _)| *number)
    }

    /// Which of the steps that wait a reader may be given: the first of which it holds nothing. With one that it has given back it
    /// waits until no arrays of it live there: else it would not be clear which of the two it has finished with.
    fn may_be_given(&self, number: u32, waiting: &VecDeque<Queued>) -> Option<(u32, usize)> {
        let is_free = |queued: &Queued| !self.holders.is_held_by(number, (queued.run, queued.step));
        Some((number, waiting.iter().position(is_free)?))
    }

    /// The reader that is to be given a step now, and which of those that wait. None is while others may come back that hold steps.
    pub(in crate::steps) fn take_next(&mut self, waiting: &VecDeque<Queued>) -> Option<(u32, usize)> {
        if !self.away.is_empty() {
            return None;
        }
        let next = match self.record.sharing {
            Sharing::None => None,
            Sharing::OnDemand => {
                let ready = |(place, number): (usize, &u32)| {
                    let next = self.has_room(*number).then(|| self.may_be_given(*number, waiting))??;
                    Some((place, next))
                };
                let (place, next) = self.asking.iter().enumerate().find_map(ready)?;
                self.asking.remove(place);
                Some(next)
            }
            Sharing::RoundRobin => {
                let mut ready = self.turns().take_while(|number| self.has_room(*number));
                ready.find_map(|number| self.may_be_given(number, waiting))
            }
        };
        self.last = next.map(|(number, _)| number).or(self.last);
        next
    }

    /// A step is given to a reader. Returns to how many it was given that died.
    pub(in crate::steps) fn give(&mut self, number: u32, step: (RunNumber, StepNumber)) -> u32 {
        debug_assert!(!self.holders.is_held_by(number, step), "{step:?} is given once more to {number}");
        self.holders.note(number, step, false);
        self.attempts.get(&step).copied().unwrap_or(0)
    }

    /// Nobody is to be given a step any more.
    pub(in crate::steps) fn forget_attempts(&mut self, step: (RunNumber, StepNumber)) {
        self.attempts.remove(&step);
    }

    /// A reader does not look at a step any more, with which it has not finished: it goes to another one. `failed` says whether it
    /// has looked at it, and `pinned` whether its arrays live on.
    pub(in crate::steps) fn take_back(
        &mut self,
        number: u32,
        step: (RunNumber, StepNumber),
        pinned: bool,
        failed: bool,
    ) {
        self.holders.release(number, step, pinned);
        if failed {
            self.note_attempt(step);
        }
    }

    /// Whether some reader has not finished with a step.
    pub(in crate::steps) fn is_read(&self, step: (RunNumber, StepNumber)) -> bool {
        !self.holders.readers_of(step).is_empty()
    }

    /// Whether some reader holds a step.
    pub(in crate::steps) fn is_held(&self, step: (RunNumber, StepNumber)) -> bool {
        self.holders.is_held(step)
    }

    /// One has finished with a step. Whether servers are to be told now how far they are.
    pub(in crate::steps) fn note_finished(&mut self) -> bool {
        self.finished += 1;
        self.finished.is_multiple_of(FINISHED_TOLD)
    }

    /// Whether a reader has not finished with a step. With static fields nobody has to.
    pub(in crate::steps) fn has_not_finished(&self, number: u32, step: (RunNumber, StepNumber)) -> bool {
        step.1 != STATIC_STEP && self.holders.of(number).any(|held| held == (step, false))
    }

    /// Whether a reader takes part.
    pub(in crate::steps) fn is_here(&self, number: u32) -> bool {
        self.present.contains_key(&number)
    }

    /// A reader is gone. Returns whether it was there.
    pub(in crate::steps) fn leave(&mut self, number: u32) -> bool {
        self.asking.retain(|other| *other != number);
        self.record.sharers.remove(&number);
        self.present.remove(&number).is_some()
    }

    /// The steps that a reader holds, and whether only arrays of each live there.
    pub(in crate::steps) fn held_by(&self, number: u32) -> Vec<((RunNumber, StepNumber), bool)> {
        self.holders.of(number).collect()
    }

    /// One more look for readers that have not come back. Returns how many are given up: steps that they hold go to others.
    pub(in crate::steps) fn give_up_away(&mut self) -> usize {
        if self.away.is_empty() {
            return 0;
        }
        self.looks += 1;
        if self.looks < AWAY_LOOKS {
            return 0;
        }
        let away = std::mem::take(&mut self.away);
        self.record.sharers.retain(|number| !away.contains(number));
        away.len()
    }

    /// A step may have been given to one that has died.
    pub(in crate::steps) fn note_attempt(&mut self, step: (RunNumber, StepNumber)) {
        *self.attempts.entry(step).or_default() += 1;
    }

    /// A reader came back with arrays of a step that is open here, which it had given back: once the step closes, others are given it.
    pub(in crate::steps) fn note_given_back(&mut self, step: (RunNumber, StepNumber)) {
        if !self.is_read(step) {
            self.given_back.insert(step);
        }
    }

    /// The same step is read by another one. Or it closes: returns whether it was given back.
    pub(in crate::steps) fn take_given_back(&mut self, step: (RunNumber, StepNumber)) -> bool {
        self.given_back.remove(&step)
    }

    /// Whether a reader has not finished with some step of a run.
    pub(in crate::steps) fn reads_run(&self, number: u32, run: RunNumber) -> bool {
        self.holders.of(number).any(|((of, step), pinned)| of == run && step != STATIC_STEP && !pinned)
    }

    /// Whether steps may yet be given to this reader that others have not finished with, or that wait for some of them.
    pub(in crate::steps) fn waits_for_others(&self, number: u32, is_any_left: bool) -> bool {
        let others = self.unfinished().any(|(_, reader)| reader != number);
        others || !self.away.is_empty() || is_any_left && self.present.len() > 1
    }

    /// Whether a reader has not finished with some step.
    pub(in crate::steps) fn reads(&self, number: u32) -> bool {
        self.unfinished().any(|(_, reader)| reader == number)
    }

    /// The steps with which some reader has not finished, each with one that has not.
    fn unfinished(&self) -> impl Iterator<Item = ((RunNumber, StepNumber), u32)> + '_ {
        let steps = self.holders.all().filter(|((_, step), pinned)| !pinned && *step != STATIC_STEP);
        steps
            .flat_map(|(step, _)| self.holders.readers_of(step).into_iter().map(move |reader| (step, reader)))
    }

    /// For whom the others wait, for people: for readers that hold the last steps (none is `waiting` to be given), or for the one
    /// whose turn it is.
    pub(in crate::steps) fn behind(&self, waiting: &VecDeque<Queued>) -> Option<String> {
        if !self.away.is_empty() {
            return Some("readers that share its steps are yet to come back".to_owned());
        }
        let Some(first) = waiting.front() else {
            let (step, reader) = self.unfinished().next()?;
            return Some(format!("{} has not finished with step {}", self.describe(reader), step.1));
        };
        let is_free = |number: u32| self.may_be_given(number, waiting).is_some();
        if !self.present.keys().any(|number| is_free(*number)) {
            return Some(format!(
                "step {} was given back, and waits until no arrays of it live where it was: drop what still shows its blocks",
                first.step
            ));
        }
        let next = self.turns().next().filter(|_| self.record.sharing == Sharing::RoundRobin)?;
        (!self.has_room(next))
            .then(|| format!("the next step is for {}, which holds as many as it may", self.describe(next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(sharing: Sharing, readers: u32) -> Share {
        let mut share = Share::new("w", sharing, BTreeSet::new());
        for number in 0..readers {
            assert_eq!(share.come(None, Identity::default(), 2), number);
        }
        share
    }

    /// Steps that wait, all of run 1.
    fn waiting(steps: impl IntoIterator<Item = StepNumber>) -> VecDeque<Queued> {
        steps.into_iter().map(|step| Queued { run: 1, step, missed: 0 }).collect()
    }

    /// To whom this step goes, if it alone waits.
    fn next(share: &mut Share, step: StepNumber) -> Option<u32> {
        share.take_next(&waiting([step])).map(|(number, _)| number)
    }

    /// To whom the next steps go, none of which is released.
    fn given(share: &mut Share, steps: u64) -> Vec<Option<u32>> {
        let mut give = |step| {
            let next = next(share, step);
            next.iter().for_each(|number| assert_eq!(share.give(*number, (1, step)), 0));
            next
        };
        (0..steps).map(&mut give).collect()
    }

    #[test]
    fn steps_go_round() {
        let mut three = share(Sharing::RoundRobin, 3);
        assert_eq!(given(&mut three, 4), [Some(0), Some(1), Some(2), Some(0)]);
        assert!(three.leave(1) && !three.leave(1));
        assert_eq!(next(&mut three, 9), Some(2));
        assert_eq!(next(&mut three, 9), None, "the first one holds two, and it is its turn");
        three.holders.release(0, (1, 0), false);
        assert_eq!((next(&mut three, 9), next(&mut three, 9)), (Some(0), Some(2)));
    }

    #[test]
    fn steps_go_to_who_asks_first() {
        let mut three = share(Sharing::OnDemand, 3);
        assert_eq!(next(&mut three, 9), None);
        [2, 2, 2, 0, 7].into_iter().for_each(|number| three.ask(number));
        assert_eq!(given(&mut three, 5), [Some(2), Some(2), Some(0), None, None], "no more than it may hold");
        three.ask(2);
        three.ask(1);
        assert_eq!(next(&mut three, 9), Some(1), "the other one holds as many as it may");
        three.holders.release(2, (1, 0), false);
        assert_eq!(next(&mut three, 9), Some(2));
    }

    #[test]
    fn nobody_is_given_a_step_of_which_it_holds_arrays() {
        for sharing in [Sharing::RoundRobin, Sharing::OnDemand] {
            let mut two = share(sharing, 2);
            let asks = |share: &mut Share| (0..2).for_each(|number| share.ask(number));
            asks(&mut two);
            two.holders.note(0, (1, 4), true);
            assert_eq!(two.take_next(&waiting([4, 5])), Some((0, 1)));
            assert_eq!(two.take_next(&waiting([4])), Some((1, 0)));
            two.holders.note(1, (1, 4), true);
            asks(&mut two);
            assert_eq!(two.take_next(&waiting([4])), None);
            let text = two.behind(&waiting([4])).unwrap();
            assert!(text.starts_with("step 4 was given back, and waits until no arrays"), "{text}");
            two.holders.release(0, (1, 4), false);
            assert_eq!(two.take_next(&waiting([4])), Some((0, 0)));
        }
    }

    #[test]
    fn who_has_not_come_back_is_awaited() {
        let mut two = Share::new("w", Sharing::RoundRobin, BTreeSet::from([3, 5]));
        assert_eq!(two.come(Some(5), Identity::default(), 1), 5);
        assert_eq!(two.come(None, Identity::default(), 1), 6, "a new one");
        assert_eq!(next(&mut two, 9), None);
        assert!((0..9).all(|_| two.give_up_away() == 0));
        assert_eq!((two.give_up_away(), two.give_up_away()), (1, 0));
        assert_eq!((next(&mut two, 9), two.record.sharers), (Some(5), BTreeSet::from([5, 6])));
    }
}
