//! Copies of what servers hold, so that it outlives them. (Design note 11.)
//!
//! What is to have copies, a step's blocks at a server or a block of the space, has *backups*: servers that hold the blocks, too,
//! and what ranks reported of them. The server that they hold it for is its *primary*. On one host a backup holds the arena's
//! descriptor: the memory is the same, and stays when the primary dies. On another host the backup fetches the bytes to the
//! same place of an arena of its own.
//!
//! - [`primary`]: this server as a primary: which backups hold what it holds;
//! - [`backups`]: this server as a backup: what it holds for each primary;
//! - [`successors`]: which servers answer for the arenas of servers that are dead;
//! - [`rejoin`]: what a server held that its group gave up, and that it brings with it when it rejoins;
//! - [`Sources`]: what replication asks of the components that hold what is replicated.
//!
//! What waits for answers, and what follows for other components, is at the server's level: `node/replication`.

pub(crate) mod backups;
pub(crate) mod primary;
pub(crate) mod rejoin;
mod sources;
pub(crate) mod successors;

pub(crate) use sources::{RunKnowledge, Sources};

use crate::context::Context;
use backups::{Backups, TakenOver};
use forebay_core::ids::ServerId;
use forebay_wire::peer::replication::Replica;
use primary::Primary;
use rejoin::FormerArena;
use successors::Successors;

/// What a server knows of copies.
#[derive(Debug, Default)]
pub(crate) struct Replication {
    pub(crate) primary: Primary,
    pub(crate) backups: Backups,
    pub(crate) successors: Successors,
}

impl Replication {
    /// A primary is dead: what this server holds for it, it holds in that server's place from now on.
    pub(crate) fn take_over(
        &mut self,
        cx: &Context<'_>,
        sources: &dyn Sources,
        dead: ServerId,
    ) -> Option<TakenOver> {
        self.backups.take_over(cx, sources, &mut self.successors, dead)
    }

    /// This server rejoins with an arena of the member that it was before its group gave it up.
    pub(crate) fn hold_former_arena(&mut self, cx: &Context<'_>, former: ServerId, arena: FormerArena) {
        let number = arena.number;
        match self.backups.hold_former_arena(cx, former, arena) {
            Ok((here, stands_for)) => {
                stands_for.into_iter().for_each(|key| self.successors.add(key, cx.me(), here));
            }
            Err(error) => tracing::warn!("arena {number} of {former} is not kept: {error}"),
        }
    }

    /// This server rejoins with what that member held of a step.
    pub(crate) fn hold_former_replica(&mut self, cx: &Context<'_>, former: ServerId, replica: Replica) {
        if let Err(error) = self.backups.hold(cx, former, replica) {
            tracing::warn!("something that {former} held is not kept: {error}");
        }
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        self.primary.sanity_check()?;
        self.backups.sanity_check()?;
        self.successors.sanity_check()
    }
}
