//! Telling a home server of blocks.

use crate::connection::rpc::{GRACE, Payload, lock};
use crate::producer::rank::Producer;
use crate::producer::stored_block::StoredBlock;
use crate::put_target::PutTarget;
use forebay_core::steps::Durability;
use forebay_core::{Error, Result};
use forebay_wire::client::block::{BytesLocation, PutBlock};
use forebay_wire::client::producer::Request;
use std::sync::Arc;

impl Producer {
    /// Tells the home server of a block, at the latest when the step ends: a step's blocks are told of together. Where a put is
    /// to be safe when it returns, waits until it is. Fails with `Unreachable` if the home changed meanwhile: the caller puts
    /// the block again at the new home.
    pub(super) fn publish(&self, home: &Arc<PutTarget>, block: StoredBlock) -> Result<()> {
        let block = self.announce(home, block)?;
        self.note_stored(home, block)
    }

    /// Tells a server, which is the home or is to be it, of a block.
    pub(super) fn announce(&self, home: &PutTarget, block: StoredBlock) -> Result<StoredBlock> {
        let message = Request::Put(block.put);
        match self.joining.options.durability {
            Durability::Replicated if self.joining.options.copies() > 0 => {
                let patience = home.rpc.patience() + GRACE;
                home.rpc.call_within(&message, None, patience, "to hold copies")?;
            }
            // Where no memory says that something was put, the home hears of the first block at once: should this process die,
            // the step is torn.
            _ if home.arena.is_none() && self.has_put_nothing() => home.rpc.tell(&message)?,
            _ => home.rpc.queue(&message)?,
        }
        let Request::Put(put) = message else { return Err(Error::internal("not a put")) };
        Ok(StoredBlock { put, ..block })
    }

    /// Sends a block with its bytes to a server, which is the home or is to be it, and waits until that has them.
    pub(super) fn send_with_bytes(
        &self,
        home: &PutTarget,
        mut put: PutBlock,
        dense: &[u8],
    ) -> Result<StoredBlock> {
        put.bytes = BytesLocation::Payload;
        let message = Request::Put(put);
        let patience = home.rpc.patience();
        let answer = home.rpc.call_within(&message, Some(Payload(dense)), patience, "to hold a block")?;
        let Request::Put(put) = message else { return Err(Error::internal("not a put")) };
        Ok(StoredBlock::sent(put, &answer.message))
    }

    /// Remembers a block that a home server was told of. Fails with `Unreachable` if the home changed meanwhile.
    pub(super) fn note_stored(&self, home: &Arc<PutTarget>, block: StoredBlock) -> Result<()> {
        let mut state = lock(&self.state);
        if !Arc::ptr_eq(home, &self.home()) {
            let text = format!("{} is not the home of this rank any more", home.server);
            return Err(Error::unreachable(text).about(home.server));
        }
        if let Some(open) = state.open.as_mut() {
            open.stored.push(block);
            home.arena.iter().for_each(|arena| arena.note_put(open.step));
        }
        Ok(())
    }

    fn has_put_nothing(&self) -> bool {
        lock(&self.state).open.as_ref().is_none_or(|open| open.stored.is_empty())
    }
}
