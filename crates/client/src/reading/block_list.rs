//! The blocks of a field at a step: found once, shown one by one.

use crate::reading::block_view::BlockView;
use crate::reading::seen::{SeenBlock, seen_of};
use crate::reading::step::Step;
use forebay_core::block::{BlockRecord, Extent};
use forebay_core::contract::Field;
use forebay_core::{Error, Result};

/// Blocks of a field at a step, as their reader sees them.
#[derive(Debug, Clone)]
pub struct BlockList {
    field: Field,
    /// As they are held, and what of each is seen, if not all.
    blocks: Vec<(BlockRecord, Option<Extent>)>,
}

impl BlockList {
    fn new(field: &Field, seen: Vec<SeenBlock<'_>>) -> BlockList {
        let blocks = seen.into_iter().map(|block| (block.record.clone(), block.cut)).collect();
        BlockList { field: field.clone(), blocks }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// The record of one, cut to what is seen of it. `ErrorKind::NotFound` past the last.
    pub fn record(&self, index: usize) -> Result<BlockRecord> {
        Ok(self.seen(index)?.as_record(self.field.dtype.size() as u64))
    }

    fn seen(&self, index: usize) -> Result<SeenBlock<'_>> {
        let (record, cut) = self.blocks.get(index).ok_or_else(|| {
            let (name, count) = (&self.field.name, self.blocks.len());
            Error::not_found(format!("field '{name}' has no block {index}: it has {count}, counted from 0"))
        })?;
        Ok(SeenBlock { record, cut: cut.clone() })
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

    /// A view of one of the blocks of a list that was made of this step.
    pub fn show(&self, list: &BlockList, index: usize) -> Result<BlockView> {
        let hold = self.hold_of(&list.field)?;
        self.view(&list.field, &list.seen(index)?, &hold)
    }
}
