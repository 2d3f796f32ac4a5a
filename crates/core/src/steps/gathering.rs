//! The ranks of a cohort that have come, until all have.

use crate::identity::Identity;
use crate::ids::{RunNumber, StepNumber};
use crate::steps::attachment::{Attachment, AttachmentId, Start};
use crate::steps::cohort::{CatchUp, Cohort, CohortRank, CohortRecord, ToldStep};
use crate::steps::report::HeldStep;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// A rank that has come.
#[derive(Debug)]
pub struct Coming {
    /// Which rank it is.
    pub rank: CohortRank,
    /// Tells this attempt of it from others.
    pub token: u64,
    /// What it attaches with.
    pub attachment: Attachment,
    /// With which step.
    pub start: Start,
}

impl Coming {
    fn who(&self) -> Identity {
        self.attachment.reader.clone().unwrap_or_default()
    }

    /// The step that it is to be told of next, if it was told of one before.
    fn next(&self) -> Option<(RunNumber, StepNumber)> {
        let told_last = self.rank.told.iter().map(|told| (told.run, told.step.saturating_add(1))).max();
        match self.start {
            Start::Rejoin(run, step) | Start::Held(run, step) => told_last.max(Some((run, step))),
            _ => told_last,
        }
    }

    fn was_told(&self, step: &ToldStep) -> bool {
        self.next().is_some_and(|next| next > (step.run, step.step))
    }
}

/// The ranks of a cohort that have come, until all have.
#[derive(Debug)]
pub(super) struct Gathering {
    /// Names the attachment that they are to be.
    pub(super) id: AttachmentId,
    /// Ranks without which it has gone on before.
    gone: BTreeSet<u32>,
    /// Whether they come back to a stream whose coordinator has died.
    comes_back: bool,
    come: BTreeMap<u32, Coming>,
    /// The attempts of those that wait for an answer.
    attempts: BTreeMap<u32, u64>,
    /// How many ranks there are.
    size: u32,
    /// Why they cannot attach.
    pub(super) refused: Option<Error>,
}

impl Gathering {
    pub(super) fn new(id: AttachmentId, gone: BTreeSet<u32>, comes_back: bool) -> Gathering {
        let (come, attempts) = (BTreeMap::new(), BTreeMap::new());
        Gathering { id, gone, comes_back, come, attempts, size: 0, refused: None }
    }

    /// A rank comes. It must agree with those that have come before it.
    pub(super) fn add(&mut self, coming: Coming, comes_back: bool, name: &str) -> Result<()> {
        let (rank, who) = (coming.rank.rank, coming.who());
        if self.gone.contains(&rank) {
            let text = format!("the readers '{name}' have gone on without rank {rank} ({who})");
            return Err(Error::new(crate::ErrorKind::Lost, text));
        }
        if let Some(first) = self.come.values().find(|other| other.rank.rank != rank) {
            let other = format!("rank {} ({})", first.rank.rank, first.who());
            let mine = format!("the readers '{name}': rank {rank} ({who})");
            if self.comes_back != comes_back {
                return Err(Error::conflict(format!(
                    "{mine} comes {}, and {other} {}: two readers have one name, or a part of one was started anew",
                    if comes_back { "back to the stream" } else { "for the first time" },
                    if comes_back { "for the first time" } else { "back to it" },
                )));
            }
            if let Some(text) = difference(&coming, first) {
                return Err(Error::conflict(format!(
                    "{mine} {text}, as {other} says: give all ranks the same"
                )));
            }
        }
        let before = self.come.get(&rank).map(Coming::who);
        if let Some(before) = before.filter(|before| *before != who) {
            return Err(Error::conflict(format!(
                "the readers '{name}': rank {rank} ({who}) has come already, as {before}: each rank opens the stream once"
            )));
        }
        self.size = coming.rank.size;
        self.attempts.insert(rank, coming.token);
        self.come.insert(rank, coming);
        Ok(())
    }

    /// This attempt of a rank is given up.
    pub(super) fn remove(&mut self, rank: u32, token: u64) {
        if self.has(rank, token) {
            self.attempts.remove(&rank);
            self.come.remove(&rank);
        }
    }

    /// Whether nobody waits here.
    pub(super) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// How many ranks there are to be.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Whether this attempt of a rank waits here.
    pub(super) fn has(&self, rank: u32, token: u64) -> bool {
        self.attempts.get(&rank) == Some(&token)
    }

    /// The ranks that have not come.
    pub(super) fn lacking(&self) -> Vec<u32> {
        (0..self.size).filter(|rank| !self.come.contains_key(rank) && !self.gone.contains(rank)).collect()
    }

    /// Whether the others are to go on without a rank that does not come back.
    pub(super) fn goes_on(&self) -> bool {
        self.comes_back && self.come.values().all(|coming| coming.rank.goes_on)
    }

    /// Nobody waits any more for those that have not come.
    pub(super) fn give_up_lacking(&mut self) {
        self.gone.extend(self.lacking());
    }

    /// The attachment that the ranks are together, and with which step it begins. `None` if nobody has come.
    pub(super) fn take_attachment(&mut self) -> Option<(Attachment, Start)> {
        let come = std::mem::take(&mut self.come);
        let first = come.values().next()?;
        let who = |coming: &Coming| (coming.who(), coming.rank.host.clone());
        let who = come.iter().map(|(rank, coming)| (*rank, who(coming))).collect();
        let (name, gone) = (first.who().name.unwrap_or_default(), self.gone.clone());
        let record = CohortRecord { name, size: self.size, goes_on: first.rank.goes_on, gone };
        let mut cohort = Cohort::new(record, who);
        let start = catch_up(&come, &mut cohort);
        for (rank, coming) in &come {
            for held in &coming.attachment.held_before {
                cohort.holders.note(*rank, (held.run, held.step), held.pinned);
            }
        }
        let held = cohort.holders.all().map(|((run, step), pinned)| HeldStep { run, step, pinned }).collect();
        // One may know of a later change of the contract than others.
        let newest = |one: Coming, other: Coming| {
            if other.attachment.needs.is_newer_than(&one.attachment.needs) { other } else { one }
        };
        let identity = first.who();
        let given_back = come.values().filter_map(|coming| coming.attachment.given_back).min();
        let mut attachment = come.into_values().reduce(newest)?.attachment;
        (attachment.reader, attachment.held_before, attachment.cohort) = (Some(identity), held, Some(cohort));
        attachment.given_back = given_back;
        Some((attachment, start))
    }
}

/// What a rank says otherwise than another one, if anything: as a text that begins with a verb.
fn difference(mine: &Coming, other: &Coming) -> Option<String> {
    let (a, b) = (&mine.attachment, &other.attachment);
    if mine.rank.size != other.rank.size {
        return Some(format!("says that there are {} ranks, and not {}", mine.rank.size, other.rank.size));
    }
    let begins = |coming: &Coming| match coming.start {
        Start::Rejoin(..) | Start::Held(..) => None,
        start => Some(start),
    };
    let starts = (begins(mine), begins(other));
    let same = [
        (mine.rank.goes_on == other.rank.goes_on, "on_loss"),
        ((a.window, a.follow, a.take) == (b.window, b.follow, b.take), "window, follow or take"),
        (starts.0.is_none() || starts.1.is_none() || starts.0 == starts.1, "start"),
        (mine.next().is_some() || a.needs == b.needs, "fields"),
    ];
    let differs = same.iter().find(|(same, _)| !same)?;
    Some(format!("does not have the same {}", differs.1))
}

/// Notes what some ranks were told of by the coordinator before, and others not. Returns the step with which all go on.
fn catch_up(come: &BTreeMap<u32, Coming>, cohort: &mut Cohort) -> Start {
    let told: BTreeSet<ToldStep> =
        come.values().flat_map(|coming| coming.rank.told.iter().copied()).collect();
    let mut before = None;
    for step in told {
        let lacking = come.iter().filter(|(_, coming)| !coming.was_told(&step)).map(|(rank, _)| *rank);
        let lacking: Vec<u32> = lacking.collect();
        if !lacking.is_empty() && before.replace((step.run, step.step)) != Some((step.run, step.step)) {
            lacking.iter().for_each(|rank| cohort.holders.note(*rank, (step.run, step.step), false));
            cohort.catch_up.push_back(CatchUp { step, lacking });
        }
    }
    let furthest = come.values().max_by_key(|coming| coming.next());
    let start = furthest.map_or(Start::Next, |coming| coming.start);
    match (furthest.and_then(Coming::next), start) {
        (Some((run, step)), Start::Held(..)) => Start::Held(run, step),
        (Some((run, step)), _) => Start::Rejoin(run, step),
        (None, start) => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Needs;
    use crate::ids::ServerId;

    fn told(step: StepNumber) -> ToldStep {
        ToldStep { run: 1, step, missed: 0, rewound: false }
    }

    fn coming(rank: u32, start: Start, told: Vec<ToldStep>) -> Coming {
        let mut attachment = Attachment::new(Needs::all(1), ServerId(0), 4);
        attachment.reader = Some(Identity { name: Some("render".into()), host: "a".into(), pid: 10 + rank });
        let rank = CohortRank { rank, size: 3, host: "a".into(), goes_on: false, told };
        Coming { rank, token: 0, attachment, start }
    }

    fn gathered(come: Vec<Coming>) -> (Attachment, Start) {
        let mut gathering = Gathering::new(AttachmentId(1), BTreeSet::new(), true);
        come.into_iter().for_each(|coming| gathering.add(coming, true, "render").unwrap());
        assert!(gathering.lacking().is_empty());
        gathering.take_attachment().unwrap()
    }

    #[test]
    fn all_go_on_after_the_furthest_and_others_catch_up() {
        let (attachment, start) = gathered(vec![
            coming(0, Start::Rejoin(1, 8), vec![told(5), told(7)]),
            coming(1, Start::Rejoin(1, 6), vec![told(5)]),
            coming(2, Start::Next, Vec::new()),
        ]);
        assert_eq!(start, Start::Rejoin(1, 8));
        let cohort = attachment.cohort.unwrap();
        let expected = [(5, vec![2]), (7, vec![1, 2])];
        assert_eq!(cohort.catch_up.len(), 2);
        for (step, (number, lacking)) in cohort.catch_up.iter().zip(expected) {
            assert_eq!((step.step.step, &step.lacking), (number, &lacking));
        }
        assert_eq!(attachment.held_before.len(), 2);
    }

    #[test]
    fn where_nobody_was_told_anything_all_begin_as_they_wanted() {
        let (attachment, start) =
            gathered((0..3).map(|rank| coming(rank, Start::Oldest, Vec::new())).collect());
        assert_eq!(start, Start::Oldest);
        assert!(attachment.cohort.unwrap().catch_up.is_empty());
    }

    #[test]
    fn ranks_that_do_not_agree_are_refused() {
        let mut gathering = Gathering::new(AttachmentId(1), BTreeSet::new(), false);
        gathering.add(coming(0, Start::Next, Vec::new()), false, "render").unwrap();
        let refused = |gathering: &mut Gathering, other: Coming, comes_back| {
            gathering.add(other, comes_back, "render").unwrap_err().text
        };
        let mut other = coming(1, Start::Next, Vec::new());
        other.rank.size = 4;
        let text = refused(&mut gathering, other, false);
        assert!(text.contains("4 ranks, and not 3, as rank 0 ('render' (process 10 on a)) says"), "{text}");
        let text = refused(&mut gathering, coming(1, Start::Oldest, Vec::new()), false);
        assert!(text.contains("the same start"), "{text}");
        let mut other = coming(1, Start::Next, Vec::new());
        other.attachment.needs = Needs::all(2).into();
        assert!(refused(&mut gathering, other, false).contains("the same fields"));
        let text = refused(&mut gathering, coming(1, Start::Rejoin(1, 1), Vec::new()), true);
        assert!(text.contains("comes back to the stream, and rank 0"), "{text}");
        let mut other = coming(0, Start::Next, Vec::new());
        other.attachment.reader = Some(Identity { name: None, host: "b".into(), pid: 1 });
        let text = refused(&mut gathering, other, false);
        assert!(text.contains("has come already"), "{text}");
        assert_eq!(gathering.lacking(), [1, 2]);
    }
}
