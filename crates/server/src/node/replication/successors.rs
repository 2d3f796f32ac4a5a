//! Finding who answers for a server that is dead.

use super::super::Node;
use crate::replication::successors::ArenaKey;
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

impl Node {
    /// Who answers for an arena of a server that is dead: maybe several, each for some of its blocks. Waits until the group
    /// knows them all.
    pub(crate) async fn who_answers(
        &self,
        server: ServerId,
        arena: u32,
        deadline: Instant,
    ) -> Result<Vec<ArenaKey>> {
        loop {
            let known = self.places_known.notified();
            tokio::pin!(known);
            known.as_mut().enable();
            {
                let state = self.state.lock();
                let found = state.replication.successors.of_arena((server, arena));
                if !found.is_empty() && (self.all_told(&state) || Instant::now() >= deadline) {
                    return Ok(found);
                }
                let member = self.standing().view.members.contains(&server);
                if member && !state.common.members.is_gone(server) {
                    return Err(Error::unreachable(format!("{server} is a member of the group still")));
                }
                if !member && self.all_told(&state) {
                    let text = format!("{server} is gone, and no other server holds what it held");
                    return Err(Error::new(ErrorKind::Lost, text));
                }
            }
            if tokio::time::timeout_at(deadline, known).await.is_err() {
                let found = self.state.lock().replication.successors.of_arena((server, arena));
                if !found.is_empty() {
                    return Ok(found);
                }
                return Err(Error::timeout(format!("it is not known in time who answers for {server}")));
            }
        }
    }
}
