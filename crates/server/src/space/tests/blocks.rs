//! Blocks of fields that one server owns, or several.

use crate::held::Held;
use crate::space::FieldAtStep;
use crate::space::owner::search::Search;
use forebay_core::block::{BlockRecord, Extent, Location};
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{BlockKey, ServerId};
use forebay_core::region::Region;

/// A block of a field: some of its rows.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Of how many rows the field is.
    rows: u64,
    /// The first one.
    from: u64,
    /// How many.
    count: u64,
}

/// Columns of a field.
const COLUMNS: u64 = 700;

impl Block {
    pub(super) fn new(rows: u64, from: u64, count: u64) -> Block {
        Block { rows, from, count }
    }

    pub(super) fn field(&self) -> Field {
        Field::new("T", Dtype::F32, Some(&[self.rows, COLUMNS]), 2)
    }

    pub(super) fn range(&self) -> Held {
        Held { arena: 3, offset: self.from * 64, generation: 1 }
    }

    pub(super) fn record(&self, holder: ServerId) -> BlockRecord {
        let Held { arena, offset, generation } = self.range();
        let bytes = self.count * COLUMNS * 4;
        BlockRecord {
            key: BlockKey::whole(9, self.from),
            level: 0,
            extent: Extent::new(Some(&[self.from, 0]), &[self.count, COLUMNS], &[], &[]).unwrap(),
            location: Location { server: holder, arena, offset, bytes, generation },
            inline: None,
            stats: None,
        }
    }

    /// Looks for its rows, with the field's shape known.
    pub(super) fn search(&self, key: &FieldAtStep) -> Search {
        let region = Region::new(&[self.from, 0], &[self.count, COLUMNS]).unwrap();
        Search::new(key.clone(), Some(region), self.field().shape)
    }
}
