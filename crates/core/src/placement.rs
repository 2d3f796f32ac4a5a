//! Placement: which server holds a block.

use crate::ids::{BlockKey, ServerId};
use crate::view::{View, hash_name, mix};
use serde::{Deserialize, Serialize};

/// How a stream's blocks are spread over the servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// On the rank's home server, which is on its host if any is: one copy, no second hop. The default.
    #[default]
    Nearest,
    /// By the block's id: spread evenly, whatever the ranks do.
    ByBlock,
}

/// The home server of a rank: on its own host if there is one, else spread evenly.
///
/// `local` are the members on the rank's host, in the order of the view.
pub fn home_of(view: &View, local: &[ServerId], rank: u32) -> Option<ServerId> {
    let candidates = if local.is_empty() { &view.members } else { local };
    let n = candidates.len();
    (n > 0).then(|| candidates[rank as usize % n])
}

/// The server that holds this block of this field when placed by its id.
pub fn by_block(view: &View, field: &str, key: BlockKey) -> Option<ServerId> {
    view.owner_of(mix(hash_name(field) ^ mix(u64::from(key.rank))).wrapping_add(key.number))
}
