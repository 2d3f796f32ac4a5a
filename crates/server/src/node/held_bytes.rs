//! Bytes of blocks while this server reads them.

use super::Node;
use forebay_core::Result;
use forebay_store::Mapping;
use std::sync::Arc;

/// The bytes of a block that is held here. Their memory is not used again until this is dropped, whatever becomes of the block.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    pub(crate) mapping: Arc<Mapping>,
    /// Where they begin.
    pub(crate) offset: u64,
    /// How many they are.
    pub(crate) bytes: u64,
    node: Arc<Node>,
    reader: u64,
}

impl Node {
    /// The bytes of a block that is held here, to be read. Fails if it is not, or its bytes are not there yet.
    pub(crate) fn hold_bytes(
        self: &Arc<Node>,
        arena: u32,
        offset: u64,
        generation: u64,
        bytes: u64,
    ) -> Result<HeldBytes> {
        let reader = self.unique();
        let mut store = self.store.lock();
        store.check_committed(arena, offset, generation, bytes)?;
        store.add_reader(arena, reader)?;
        let mapping = store.mapping(arena).inspect_err(|_| {
            store.on_reader_gone(reader);
        })?;
        Ok(HeldBytes { mapping, offset, bytes, node: self.clone(), reader })
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.node.on_reader_gone(self.reader);
    }
}
