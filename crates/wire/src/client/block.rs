//! Blocks as they are put and granted memory for: what several protocols of clients speak of.

use forebay_core::block::{Extent, Location};
use forebay_core::ids::BlockKey;
use forebay_core::stats::BlockStats;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A range of an arena that a client may write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The arena on this server.
    pub arena: u32,
    /// Where the range starts, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Tells this use of the range from others.
    pub generation: u64,
    /// Whether pages of it may be missing: then it pays to populate them in one go.
    pub fresh: bool,
}

/// Where the bytes of a committed block are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum BytesLocation {
    /// In the range that was granted, written by the client.
    Granted {
        /// The arena.
        arena: u32,
        /// The range's start.
        offset: u64,
        /// The grant's generation.
        generation: u64,
    },
    /// In this message.
    Inline(Box<[u8]>),
    /// In the payload that follows this message.
    Payload,
    /// On a server that is not the rank's home, which holds them already.
    Placed(Location),
}

/// A block that is put.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PutBlock {
    /// The field, as this rank defined it.
    pub field: String,
    /// Which block of the field it is.
    pub number: u64,
    /// Which part of that block, counted from 1; 0 if it is all of it.
    pub part: u32,
    /// Refinement level.
    pub level: u32,
    /// Its box.
    pub extent: Extent,
    /// Statistics, if they were computed.
    pub stats: Option<Arc<BlockStats>>,
    /// Whether these are to be counted among the statistics of the whole field.
    pub of_field: bool,
    /// Its bytes.
    pub bytes: BytesLocation,
}

impl PutBlock {
    /// The most bytes that a record of it takes, encoded: numbers of full length.
    pub fn record_bytes_max(&self) -> usize {
        let inline = match &self.bytes {
            BytesLocation::Inline(bytes) => bytes.len(),
            BytesLocation::Granted { .. } | BytesLocation::Payload | BytesLocation::Placed(_) => 0,
        };
        // Four numbers a dimension (shape, offset and both ghosts) and all that has a fixed size.
        let stats = self.stats.as_ref().map_or(0, |stats| 160 + stats.tiles.len());
        128 + 4 * 10 * self.extent.ndim() + inline + stats
    }

    /// The block's key within its field and step, put by this rank.
    pub fn key(&self, rank: u32) -> BlockKey {
        BlockKey { rank, number: self.number, part: self.part }
    }
}
