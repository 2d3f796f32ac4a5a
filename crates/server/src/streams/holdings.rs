//! The blocks of steps that are in this server's memory.

use forebay_cluster::environment::HashMap;
use forebay_core::block::Location;
use forebay_core::ids::StepId;
use forebay_wire::peer::replication::BlockRange;

/// A range that holds a block, and the arena it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) arena: u32,
    pub(crate) offset: u64,
    pub(crate) generation: u64,
}

impl From<&Location> for Held {
    fn from(location: &Location) -> Held {
        Held { arena: location.arena, offset: location.offset, generation: location.generation }
    }
}

impl From<&BlockRange> for Held {
    fn from(range: &BlockRange) -> Held {
        Held { arena: range.arena, offset: range.offset, generation: range.generation }
    }
}

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
}
