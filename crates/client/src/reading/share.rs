//! Which blocks of a step one worker of a pipeline reads.

use forebay_core::ids::ServerId;

/// Which blocks of a step are a worker's: those of the server beside it, and an equal share of what servers hold that have
/// no worker, since it has just come, is ending, or the server is gone and others answer for it.
#[derive(Debug, Clone)]
pub struct Share {
    pub(crate) own: ServerId,
    /// The servers of all workers that take part, in the order of their ranks.
    pub(crate) servers: Vec<ServerId>,
    /// Whether all blocks are on these: then nobody needs to be asked for any.
    pub(crate) beside_all: bool,
}

impl Share {
    pub(super) fn has(&self, holder: ServerId) -> bool {
        let takes = match self.servers.contains(&holder) {
            true => Some(holder),
            false => self.servers.get(holder.0 as usize % self.servers.len().max(1)).copied(),
        };
        takes == Some(self.own)
    }
}
