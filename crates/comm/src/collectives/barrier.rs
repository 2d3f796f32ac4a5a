//! The dissemination barrier of Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization" (1988): ceil(log2 n) rounds.

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
        for (round, distance) in self.distances().enumerate() {
            self.put(task, self.up(distance), round as u64, &[]).await?;
            self.fill(task, self.down(distance), round as u64, &mut []).await?;
        }
        Ok(())
    }
}
