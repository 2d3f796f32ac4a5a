//! The bytes of a block, as far as a reader sees it: where they lie, copied, or fetched.

use crate::reading::block_view::{BlockBytes, MappedBytes};
use crate::reading::buffers::Buffer;
use crate::reading::held_steps::Hold;
use crate::reading::readable_arena::ReadableArena;
use crate::reading::seen::SeenBlock;
use crate::reading::server_pool::ServerPool;
use forebay_core::Result;
use forebay_core::block::{BlockRecord, Extent};
use forebay_core::ids::Epoch;
use forebay_core::parts::place_in_block;
use forebay_core::region::Region;
use forebay_core::selection::Selection;
use forebay_store::strided::Target;
use forebay_wire::client::reading::Part;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the bytes of a field's blocks are got with.
pub(super) struct BytesSource<'a> {
    pub(super) pool: &'a ServerPool,
    /// The term in which the blocks were told.
    pub(super) term: Epoch,
    /// What keeps them.
    pub(super) hold: &'a Arc<Hold>,
    /// Bytes of an element.
    pub(super) element: u64,
}

impl BytesSource<'_> {
    /// The bytes of what is seen of a block: no copy where they lie together on this host, unless views pin too much.
    pub(super) fn bytes(&self, block: &SeenBlock<'_>) -> Result<BlockBytes> {
        let (record, pool) = (block.record, self.pool);
        if let Some(cut) = &block.cut {
            return self.part(block, cut);
        }
        if let Some(inline) = &record.inline {
            return Ok(owned(Buffer::own(inline.to_vec())));
        }
        let (offset, bytes) = (record.location.offset, record.location.bytes);
        let Some(arena) = pool.arena(&record.location, self.term)? else {
            let whole = Region::whole(&record.extent.stored_shape())?;
            return self.fetched(record, Selection::region(&whole), bytes);
        };
        if !self.must_copy() {
            return self.mapped(arena, offset, bytes);
        }
        let mut copy = pool.buffers.take(bytes as usize);
        let (mapping, start) = arena.show_all(offset, bytes)?;
        mapping.read(start, copy.as_mut())?;
        Ok(owned(copy))
    }

    /// The same of a part of a block.
    fn part(&self, block: &SeenBlock<'_>, cut: &Extent) -> Result<BlockBytes> {
        let (record, pool) = (block.record, self.pool);
        let (stored, seen) = (record.extent.stored_shape(), block.bytes(self.element));
        // Where what is seen lies in the block's array.
        let place = place_in_block(&record.extent, cut);
        let target = |buffer| Target::from_slice(buffer, &place.shape, self.element as usize);
        if let Some(inline) = &record.inline {
            let mut copy = Buffer::own(vec![0; seen as usize]);
            target(copy.as_mut())?.fill_from_slice(inline, &stored, &place.offset, &place.step)?;
            return Ok(owned(copy));
        }
        let (offset, bytes) = (record.location.offset, record.location.bytes);
        let Some(arena) = pool.arena(&record.location, self.term)? else {
            return self.fetched(record, place, seen);
        };
        if place.is_contiguous_in(&stored) && !self.must_copy() {
            return self.mapped(arena, offset + place.first_in(&stored) * self.element, seen);
        }
        let mut copy = pool.buffers.take(seen as usize);
        let (mapping, start) = arena.show_all(offset, bytes)?;
        target(copy.as_mut())?.fill_from_mapping(&mapping, start, &stored, &place.offset, &place.step)?;
        Ok(owned(copy))
    }

    fn must_copy(&self) -> bool {
        self.pool.pins.must_copy(self.hold.bytes.load(Ordering::Relaxed))
    }

    /// Where they lie in an arena.
    fn mapped(&self, arena: Arc<ReadableArena>, offset: u64, bytes: u64) -> Result<BlockBytes> {
        let (mapping, offset) = arena.show(offset, bytes)?;
        let mapped = MappedBytes { mapping, offset, bytes, _arena: arena, _hold: self.hold.clone() };
        Ok(BlockBytes::Mapped(Arc::new(mapped)))
    }

    /// From a server that is reached over the network.
    fn fetched(&self, record: &BlockRecord, part: Selection, bytes: u64) -> Result<BlockBytes> {
        let Selection { offset, shape, step } = part;
        let (part, stored) = (Part { offset, shape, step }, record.extent.stored_shape());
        let mut fetched = self.pool.buffers.take(bytes as usize);
        self.pool.fetch(&record.location, &stored, self.element as usize, part, fetched.as_mut())?;
        Ok(owned(fetched))
    }
}

fn owned(bytes: Buffer) -> BlockBytes {
    BlockBytes::Owned(Arc::new(bytes))
}
