//! Between hosts the dissemination barrier of Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization" (1988): ceil(log2 n)
//! rounds. On one host up a wide tree and down again: processes that share cores take turns anyway, and this has the fewest messages.

use super::{DOWN, NEAR, UP, tree};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Returns when every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        let task = self.collective(Kind::of(What::Barrier));
        self.hub.run(&task, self.barrier_of(&task))
    }

    pub(crate) async fn barrier_of(&self, task: &Task) -> Result<()> {
        if self.shares_cores {
            return self.barrier_near(task).await;
        }
        for (round, distance) in self.distances().enumerate() {
            self.put(task, self.up(distance), round as u64, &[]).await?;
            self.fill(task, self.down(distance), round as u64, &mut []).await?;
        }
        Ok(())
    }

    async fn barrier_near(&self, task: &Task) -> Result<()> {
        let tree = self.tree(0, tree::NEAR);
        for child in tree.children() {
            self.fill(task, child, NEAR + UP, &mut []).await?;
        }
        if let Some(parent) = tree.parent() {
            self.put(task, parent, NEAR + UP, &[]).await?;
            self.fill(task, parent, NEAR + DOWN, &mut []).await?;
        }
        for child in tree.children() {
            self.put(task, child, NEAR + DOWN, &[]).await?;
        }
        Ok(())
    }
}
