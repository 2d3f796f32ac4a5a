//! A field at a step, as one of its owners knows it.

use super::FieldAtStep;
use forebay_core::Result;
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::Field;
use forebay_core::directory::FieldIndex;
use forebay_core::ids::{BlockKey, DescriptionNumber, ServerId};
use std::collections::BTreeSet;

/// A field at a step.
#[derive(Debug)]
pub(super) struct OwnedField {
    /// Grows with every time that the field is described anew.
    description: DescriptionNumber,
    index: FieldIndex,
    /// The servers that may register under this description with other owners, as far as this server describes the field.
    registrants: BTreeSet<ServerId>,
}

impl OwnedField {
    pub(super) fn new(description: DescriptionNumber, field: Field) -> OwnedField {
        OwnedField { description, index: FieldIndex::of_space(field), registrants: BTreeSet::new() }
    }

    pub(super) fn description(&self) -> DescriptionNumber {
        self.description
    }

    pub(super) fn field(&self) -> &Field {
        self.index.field()
    }

    pub(super) fn index(&self) -> &FieldIndex {
        &self.index
    }

    /// Where its blocks are.
    pub(super) fn locations(&self) -> Vec<Location> {
        self.index.blocks().iter().map(|block| block.location).collect()
    }

    /// A server may register under this description with other owners.
    pub(super) fn add_registrant(&mut self, server: ServerId) {
        self.registrants.insert(server);
    }

    pub(super) fn registrants(&self) -> impl Iterator<Item = ServerId> {
        self.registrants.iter().copied()
    }

    /// Takes blocks that a holder registers. Returns where those of them were before that were put again, since the server
    /// did not answer that they were put to. `is_held`, given if servers have gone, says whether any server holds what was
    /// at a place: other blocks give way to these.
    pub(super) fn insert(
        &mut self,
        blocks: Vec<BlockRecord>,
        is_held: Option<&impl Fn(&Location) -> bool>,
    ) -> (Vec<Location>, Result<()>) {
        let mut replaced = Vec::new();
        for block in blocks {
            let is_elsewhere =
                |known: &&BlockRecord| known.extent == block.extent && known.location != block.location;
            if let Some(known) = self.index.get(block.key).filter(is_elsewhere) {
                replaced.push(known.location);
                self.index.remove(|known| known.key == block.key);
            }
            if let Err(error) = self.insert_one(block, is_held) {
                return (replaced, Err(error));
            }
        }
        (replaced, Ok(()))
    }

    fn insert_one(&mut self, block: BlockRecord, is_held: Option<&impl Fn(&Location) -> bool>) -> Result<()> {
        let Some(is_held) = is_held else { return self.index.insert(block).map(drop) };
        if self.index.insert(block.clone()).is_err() {
            // What servers held that have gone is in nobody's way.
            self.index.remove(|known| known.inline.is_none() && !is_held(&known.location));
            self.index.insert(block)?;
        }
        Ok(())
    }

    /// Takes blocks that a dead owner knew. Returns where those are that do not fit.
    pub(super) fn take_over(&mut self, key: &FieldAtStep, blocks: Vec<BlockRecord>) -> Vec<Location> {
        let mut refused = Vec::new();
        for block in blocks {
            let location = block.location;
            if let Err(error) = self.index.insert(block) {
                tracing::warn!("a block of {key} is not taken over: {error}");
                refused.push(location);
            }
        }
        refused
    }

    /// Its owner does not know these blocks any more.
    pub(super) fn remove(&mut self, blocks: &[(BlockKey, Location)]) {
        self.index.remove(|known| blocks.contains(&(known.key, known.location)));
    }

    /// How many blocks there are, and about how many bytes their records take.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.index.blocks().len() as u64, self.index.bytes())
    }
}
