//! The blocks of a field at a step: found once, shown one by one.

use crate::reading::block_view::BlockBytes;
use crate::reading::seen::{SeenBlock, seen_of};
use crate::reading::step::Step;
use forebay_core::block::{BlockRecord, Extent};
use forebay_core::contract::Field;
use forebay_core::{Error, Result};
use std::borrow::Cow;

/// Blocks of a field at a step, as their reader sees them.
#[derive(Debug, Clone)]
pub struct BlockList {
    field: String,
    element: u64,
    /// As they are held, and what of each is seen, if not all.
    blocks: Vec<(BlockRecord, Option<Extent>)>,
}

impl BlockList {
    fn new(field: &Field, seen: Vec<SeenBlock<'_>>) -> BlockList {
        let blocks = seen.into_iter().map(|block| (block.record.clone(), block.cut)).collect();
        BlockList { field: field.name.clone(), element: field.dtype.size() as u64, blocks }
    }

    /// The field's name.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// The record of one, cut to what is seen of it. `ErrorKind::NotFound` past the last.
    pub fn record(&self, index: usize) -> Result<Cow<'_, BlockRecord>> {
        let (record, cut) = self.at(index)?;
        Ok(match cut {
            None => Cow::Borrowed(record),
            Some(cut) => Cow::Owned(SeenBlock { record, cut: Some(cut.clone()) }.as_record(self.element)),
        })
    }

    fn at(&self, index: usize) -> Result<&(BlockRecord, Option<Extent>)> {
        self.blocks.get(index).ok_or_else(|| {
            let (name, count) = (&self.field, self.blocks.len());
            Error::not_found(format!("field '{name}' has no block {index}: it has {count}, counted from 0"))
        })
    }
}

impl Step {
    /// A field's blocks, as [`Step::records`].
    pub fn block_list(&self, name: &str) -> Result<BlockList> {
        let (found, records) = self.found_records(name)?;
        Ok(BlockList::new(&found.field, seen_of(found, &records)))
    }

    /// Those that are this rank's, as [`Step::mine`].
    pub fn mine_list(&self, name: &str) -> Result<BlockList> {
        let (found, records) = self.found_records(name)?;
        Ok(BlockList::new(&found.field, self.mine_of(found, &records)))
    }

    /// The bytes of one of the blocks of a list that was made of this step.
    pub fn show(&self, list: &BlockList, index: usize) -> Result<BlockBytes> {
        let field = &self.find_data(&list.field)?.field;
        let (record, cut) = list.at(index)?;
        self.bytes_of(field, &SeenBlock { record, cut: cut.clone() }, &self.hold_of(field)?)
    }
}
