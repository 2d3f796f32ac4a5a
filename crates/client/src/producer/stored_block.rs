//! Blocks that a rank's home server was told of, as far as the rank can put them again when that server dies.

use crate::put_target::PutTarget;
use forebay_core::{Error, Result};
use forebay_wire::client::block::{BytesLocation, Grant, PutBlock};
use forebay_wire::client::producer::Reply;
use std::sync::Arc;

/// A block that was put.
#[derive(Debug, Clone)]
pub(super) struct StoredBlock {
    /// As the home server was told of it.
    pub(super) put: PutBlock,
    pub(super) place: BytesPlace,
}

/// Where the bytes of a block are that was put.
#[derive(Debug, Clone)]
pub(super) enum BytesPlace {
    /// In the message to the home server, which may also say which other server holds them.
    Message,
    /// In a server's arena, which stays mapped here when that server dies.
    Mapped(Arc<PutTarget>, Grant),
    /// At the home server alone: they went over the network.
    HomeOnly,
}

impl StoredBlock {
    /// A block whose bytes were sent to the home server, which has answered: where it is, if other servers hold it too.
    pub(super) fn sent(mut put: PutBlock, answer: &Reply) -> StoredBlock {
        let Reply::Placed(location) = answer else { return StoredBlock { put, place: BytesPlace::HomeOnly } };
        put.bytes = BytesLocation::Placed(*location);
        StoredBlock { put, place: BytesPlace::Message }
    }
}

/// Fails if one of these blocks cannot be put again.
pub(super) fn check_replayable(blocks: &[StoredBlock]) -> Result<()> {
    let gone = blocks.iter().find(|block| matches!(block.place, BytesPlace::HomeOnly));
    gone.map_or(Ok(()), |block| Err(not_replayable(&block.put)))
}

/// The error for a block that cannot be put again.
pub(super) fn not_replayable(put: &PutBlock) -> Error {
    Error::unreachable(format!(
        "block {} of field '{}' was sent over the network, and only the server had it",
        put.number, put.field
    ))
}
