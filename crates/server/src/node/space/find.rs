//! Waiting for blocks of the space until they are there.

use super::Node;
use crate::space::owner::search::{Search, SearchAnswer, SearchOutcome};
use forebay_core::Result;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long all members may take to tell what follows from a new view.
const TOLD_PATIENCE: Duration = Duration::from_secs(5);

impl Node {
    /// The blocks that meet a region, once those of this owner's tiles are there. `None` if other servers own all of them.
    pub(crate) async fn space_find(
        &self,
        mut search: Search,
        patience: Duration,
    ) -> Result<Option<SearchAnswer>> {
        let deadline = Instant::now() + patience;
        self.space_known(&search.key, deadline.max(Instant::now() + TOLD_PATIENCE)).await?;
        loop {
            let look = self.in_space(|space, cx, group| space.owner.on_search(cx, group, &mut search));
            let change = match look? {
                SearchOutcome::Found(found) => return Ok(Some(*found)),
                SearchOutcome::NotOwned => return Ok(None),
                SearchOutcome::Missing(change) => change,
            };
            if timeout_at(deadline, change).await.is_err() {
                self.in_space(|space, cx, group| space.owner.on_patience_over(cx, group, &mut search))?;
            }
        }
    }

    /// A reader has finished with the blocks that it found.
    pub(crate) fn space_release(&self, lease: u64) {
        self.in_space(|space, cx, group| space.owner.on_release(cx, group, lease));
    }
}
