//! Zero-copy views of blocks.

use crate::reading::buffers::Buffer;
use crate::reading::held_steps::Hold;
use crate::reading::readable_arena::ReadableArena;
use forebay_core::Result;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::stats::{Stats, StatsOfBlock};
use forebay_store::Mapping;
use forebay_store::stats::Accumulator;
use std::sync::Arc;

/// One block of a step, with a view of its bytes: dense, row-major, ghosts included, read-only.
#[derive(Debug, Clone)]
pub struct BlockView {
    /// Its field, as it is at this step.
    pub field: Field,
    /// Its box and the rest.
    pub record: BlockRecord,
    /// Its bytes.
    pub bytes: BlockBytes,
}

/// The bytes of a block. Cloning copies nothing.
#[derive(Debug, Clone)]
pub enum BlockBytes {
    /// In an arena, mapped: no copy was made.
    Mapped(Arc<MappedBytes>),
    /// In this process: small, fetched over the network, or copied since earlier steps pin too much.
    Owned(Arc<Buffer>),
}

/// A range of a mapped arena and the hold on it.
#[derive(Debug)]
pub struct MappedBytes {
    pub(super) mapping: Arc<Mapping>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) _arena: Arc<ReadableArena>,
    pub(super) _hold: Arc<Hold>,
}

impl BlockView {
    /// The statistics of its interior: those that came with it, or else computed from its bytes. `None` for complex
    /// numbers, which have no order.
    pub fn statistics(&self) -> Result<Option<Stats>> {
        if let Some(stats) = self.record.stats.as_ref().and_then(|stats| stats.whole()) {
            return Ok(Some(stats));
        }
        if !self.field.dtype.is_ordered() {
            return Ok(None);
        }
        let dtype = self.field.dtype;
        let interior = self.record.extent.interior_bytes(dtype);
        let mut found = Accumulator::new(dtype, interior, StatsOfBlock::All);
        self.bytes.with(|bytes| found.add_interior(bytes, &self.record.extent))?;
        Ok(found.finish_whole())
    }
}

impl BlockBytes {
    /// Shows them for one call.
    pub(crate) fn with<T>(&self, use_them: impl FnOnce(&[u8]) -> T) -> Result<T> {
        match self {
            BlockBytes::Mapped(mapped) => mapped.mapping.with_readable(mapped.offset, mapped.bytes, use_them),
            BlockBytes::Owned(bytes) => Ok(use_them(bytes)),
        }
    }

    /// The address of the first byte and the length. The address is valid, and the bytes stay as they are,
    /// while this or a clone of it lives.
    pub fn as_raw(&self) -> Result<(*const u8, usize)> {
        match self {
            BlockBytes::Mapped(mapped) => {
                Ok((mapped.mapping.address(mapped.offset, mapped.bytes)?, mapped.bytes as usize))
            }
            BlockBytes::Owned(bytes) => Ok((bytes.as_ptr(), bytes.len())),
        }
    }
}
