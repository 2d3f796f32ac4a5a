//! The blocks of steps that are in this server's memory.

use crate::held::Held;
use forebay_cluster::environment::HashMap;
use forebay_core::ids::StepId;

/// The ranges that each step's blocks hold.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    by_step: HashMap<StepId, Vec<Held>>,
}

impl Holdings {
    /// Blocks of a step are held here.
    pub(crate) fn add(&mut self, id: &StepId, held: impl IntoIterator<Item = Held>) {
        self.by_step.entry(id.clone()).or_default().extend(held);
    }

    /// Nobody needs a step any more: what it held.
    pub(crate) fn remove(&mut self, id: &StepId) -> Vec<Held> {
        self.by_step.remove(id).unwrap_or_default()
    }

    /// What is held of a step.
    pub(crate) fn of(&self, id: &StepId) -> &[Held] {
        self.by_step.get(id).map_or(&[], Vec::as_slice)
    }

    /// The steps that blocks, or maybe only tellings of ranks, are held of.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &StepId> {
        self.by_step.keys()
    }

    /// All steps with what is held of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&StepId, &[Held])> {
        self.by_step.iter().map(|(id, held)| (id, held.as_slice()))
    }

    /// Of how many steps something is held.
    pub(crate) fn len(&self) -> usize {
        self.by_step.len()
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_step.is_empty()
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        let mut seen: HashMap<Held, &StepId> = HashMap::default();
        for (id, held) in self.all() {
            for range in held {
                if let Some(other) = seen.insert(*range, id) {
                    return Err(format!("{range:?} holds a block of {other} and one of {id}"));
                }
            }
        }
        Ok(())
    }
}
