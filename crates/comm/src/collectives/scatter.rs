//! From the root to each rank at once. On one host each rank reads its block where the root has it.

use super::DOWN;
use super::exchange::Exchange;
use super::layout::Blocks;
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Gives each rank its block of the root's memory: `counts` are their lengths in bytes, by rank, and stand one behind the other;
    /// what others than the root pass for both is not looked at. `into` must be as long as this rank's block.
    pub fn scatter(&self, root: u32, all: &[u8], counts: &[usize], into: &mut [u8]) -> Result<()> {
        self.check_rank(root)?;
        let blocks = self.blocks_at(root, counts, all.len())?;
        let task = self.collective(Kind::of(What::Scatter).at(root));
        self.hub.run(&task, self.scatter_of(&task, root, all, blocks, into))
    }

    pub(crate) async fn scatter_of(
        &self,
        task: &Task,
        root: u32,
        all: &[u8],
        blocks: Option<Blocks>,
        into: &mut [u8],
    ) -> Result<()> {
        let Some(blocks) = blocks else { return self.fill(task, root, DOWN, into).await };
        let mut exchange = Exchange::new(self, task);
        for rank in self.others() {
            exchange.send(rank, DOWN, &all[blocks.of(rank)]);
        }
        self.keep_own(task, &all[blocks.of(root)], into)?;
        exchange.finish().await
    }
}
