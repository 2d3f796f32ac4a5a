//! The directory of large runs: which servers know which blocks of a step. In small runs a stream's coordinator knows all blocks,
//! and tells them with each step.
//!
//! - [`owner`]: this server as an owner of tiles: which blocks touch them;
//! - [`holder`]: this server as a holder of blocks: what their records are;
//! - [`registration`]: this server as the home of ranks: how it registers what a rank put, before it tells the coordinator;
//! - `parts`: as many records as one message takes.
//!
//! What waits for answers, and what follows for other components, is at the server's level: `node/directory`.

pub(crate) mod holder;
pub(crate) mod owner;
mod parts;
pub(crate) mod registration;

pub(crate) use parts::in_parts;

use crate::context::Context;
use forebay_core::ids::{BlockKey, ServerId, StepId};
use forebay_core::steps::FieldReport;
use forebay_wire::peer::directory::Message;
use holder::Holder;
use owner::Owner;
use registration::Registrations;

/// What a server knows of the blocks of large runs.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) owner: Owner,
    pub(crate) holder: Holder,
    pub(crate) registrations: Registrations,
}

impl Directory {
    /// Nobody needs a step any more.
    pub(crate) fn forget(&mut self, id: &StepId) {
        self.owner.forget(id);
        self.holder.forget(id);
    }

    /// A rank's home registers what the rank put: blocks that touch tiles of this server, and blocks that it holds.
    pub(crate) fn on_register(
        &mut self,
        cx: &mut Context<'_>,
        (from, token): (ServerId, u64),
        id: &StepId,
        (owned, held): (Vec<FieldReport>, Vec<FieldReport>),
    ) {
        for report in held {
            self.holder.hold(id, report);
        }
        let (refused, error) = self.owner.register(cx.members(), id, owned);
        cx.tell(from, Message::Registered { token, refused, error });
    }

    /// Other owners refused these blocks.
    pub(crate) fn on_unregister(
        &mut self,
        cx: &mut Context<'_>,
        (from, token): (ServerId, u64),
        id: &StepId,
        blocks: &[(String, BlockKey)],
    ) {
        self.owner.unregister(id, blocks);
        self.holder.unregister(id, blocks);
        cx.tell(from, Message::Unregistered { token });
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        self.owner.sanity_check()?;
        self.holder.sanity_check()?;
        self.registrations.sanity_check()
    }
}
