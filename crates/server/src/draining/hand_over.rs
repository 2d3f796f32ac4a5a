//! Giving what this server holds to others.

use super::units::{Drain, amount_of, held_of};
use crate::node::Node;
use crate::replication::primary::{Part, candidates};
use forebay_core::{Error, Result};
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many units are given to others at once.
const AT_ONCE: usize = 32;

impl Node {
    /// Has others hold all that nobody else holds; why some could not, if so. If what is here may be discarded, what none takes is given up.
    pub(super) async fn hand_over_all(&self, drain: &mut Drain) -> Option<Error> {
        let (all, able) = {
            let state = self.state.lock();
            let all = drain.only_here(self, &state).into_iter();
            let all: Vec<_> = all.map(|unit| (unit.clone(), amount_of(&state, &unit))).collect();
            (all, candidates(self, &state.common.members).len())
        };
        self.replicate_runs(&mut self.state.lock());
        let mut refused = None;
        for some in all.chunks(AT_ONCE) {
            let mut tasks = JoinSet::new();
            for (id, amount) in some {
                let Some(node) = self.me.upgrade() else { continue };
                let (id, amount) = (id.clone(), *amount);
                tasks.spawn(async move { ((id.clone(), amount), node.hand_over(id).await) });
            }
            while let Some(done) = tasks.join_next().await {
                match done {
                    Ok(((id, amount), done)) if drain.discards() && (done.is_err() || able == 0) => {
                        drain.give_up(id, amount);
                    }
                    Ok((_, Err(error))) => drop(refused.get_or_insert(error)),
                    _ => {}
                }
            }
        }
        refused
    }

    /// Has another server hold all that this one holds of something.
    async fn hand_over(self: Arc<Node>, id: ReplicaUnit) -> Result<()> {
        let (copies, ranges, told, parts) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let (held, told) = held_of(state, &id);
            if held.is_empty() && told.is_empty() {
                return Ok(());
            }
            let store = self.store.lock();
            let ranges: Vec<BlockRange> = held
                .into_iter()
                .filter_map(|held| {
                    let bytes = store.length_of(held.arena, held.offset, held.generation)?;
                    let (arena, offset, generation) = (held.arena, held.offset, held.generation);
                    Some(BlockRange { arena, offset, generation, bytes })
                })
                .collect();
            let (copies, parts) = state.replication.primary.begin_hand_over(&id, &told);
            (copies, ranges, told, parts)
        };
        // Those that it is to have, and one in the place of what is here.
        self.replicate_all(Part { unit: id, ranges, ended: told }, copies + 1, parts).await
    }
}
