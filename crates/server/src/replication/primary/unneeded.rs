//! Memory that is needed no more, and who may still take it for that of a block.

use crate::held::Held;
use forebay_core::ids::{Epoch, ServerId};
use std::collections::BTreeSet;

/// Memory of blocks that nobody needs any more.
#[derive(Debug)]
pub(crate) struct Unneeded {
    pub(crate) held: Vec<Held>,
    /// Readers may still look at it who were told of it in a term before this one.
    pub(crate) unseen_before: Epoch,
    /// Who asked this server to free it, with questions of these tokens.
    pub(crate) asked_to_free: Vec<(ServerId, u64)>,
}

/// Memory that backups may still take for that of a block.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) unneeded: Unneeded,
    pub(super) held_by: BTreeSet<ServerId>,
}

impl Release {
    /// Whether no backup holds it any more.
    pub(super) fn is_over(&self) -> bool {
        self.held_by.is_empty()
    }
}
