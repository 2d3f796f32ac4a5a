//! Which readers hold which step, of an attachment that has several.

use crate::ids::{RunNumber, StepNumber};
use std::collections::BTreeMap;

/// Which readers, by their numbers, hold which step; and whether only arrays of it live there.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<(RunNumber, StepNumber), BTreeMap<u32, bool>>);

impl Holders {
    /// A reader holds a step.
    pub(super) fn note(&mut self, reader: u32, step: (RunNumber, StepNumber), pinned: bool) {
        self.0.entry(step).or_default().insert(reader, pinned);
    }

    /// The steps that are held, and whether only arrays of each live.
    pub(super) fn all(&self) -> impl Iterator<Item = ((RunNumber, StepNumber), bool)> + '_ {
        self.0.iter().map(|(step, readers)| (*step, readers.values().all(|pinned| *pinned)))
    }

    /// The steps that a reader holds, and whether only arrays of each live there.
    pub(super) fn of(&self, reader: u32) -> impl Iterator<Item = ((RunNumber, StepNumber), bool)> + '_ {
        self.0.iter().filter_map(move |(step, readers)| Some((*step, *readers.get(&reader)?)))
    }

    /// The first step with which some reader has not finished.
    pub(super) fn first_unread(&self) -> Option<(RunNumber, StepNumber)> {
        self.0.iter().find(|(_, readers)| readers.values().any(|pinned| !pinned)).map(|(step, _)| *step)
    }

    /// The first step with which a reader has not finished, and that is none of these.
    pub(super) fn first_not_looked_at(
        &self,
        reader: u32,
        looked_at: &[(RunNumber, StepNumber)],
    ) -> Option<(RunNumber, StepNumber)> {
        let mut held = self.of(reader).filter(|(step, pinned)| !pinned && !looked_at.contains(step));
        held.next().map(|(step, _)| step)
    }

    /// The readers that have not finished with a step.
    pub(super) fn readers_of(&self, step: (RunNumber, StepNumber)) -> Vec<u32> {
        let readers = self.0.get(&step).into_iter().flatten();
        readers.filter(|(_, pinned)| !**pinned).map(|(reader, _)| *reader).collect()
    }

    /// Whether some reader holds a step.
    pub(super) fn is_held(&self, step: (RunNumber, StepNumber)) -> bool {
        self.0.contains_key(&step)
    }

    /// Whether a reader holds a step.
    pub(super) fn is_held_by(&self, reader: u32, step: (RunNumber, StepNumber)) -> bool {
        self.0.get(&step).is_some_and(|readers| readers.contains_key(&reader))
    }

    /// A reader has finished with a step, or only arrays of it live on there. Returns the same of all of them, if the last one has
    /// finished with it.
    pub(super) fn release(
        &mut self,
        reader: u32,
        step: (RunNumber, StepNumber),
        pinned: bool,
    ) -> Option<bool> {
        let readers = self.0.get_mut(&step)?;
        let held = readers.get_mut(&reader)?;
        match pinned {
            true => *held = true,
            false => drop(readers.remove(&reader)),
        }
        if readers.is_empty() {
            self.0.remove(&step);
            return Some(false);
        }
        readers.values().all(|pinned| *pinned).then_some(true)
    }

    /// Nobody holds a step any more.
    pub(super) fn forget(&mut self, step: (RunNumber, StepNumber)) {
        self.0.remove(&step);
    }
}
