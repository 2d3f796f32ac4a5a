//! Each rank takes its block from every other one, in the order of ranks, and combines it: on one host where they lie, without a copy.

use super::DOWN;
use super::exchange::Exchange;
use super::layout::{Blocks, blocks_of};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::reduction::{Reduction, Side};
use crate::task::Task;
use forebay_core::{Error, Result};

impl Comm {
    /// Combines every rank's elements one by one, and gives each rank its block of the result: `counts` are their lengths in bytes, by
    /// rank, and stand one behind the other. They must be the same on every rank. Combined is in the order of ranks.
    pub fn reduce_scatter(
        &self,
        bytes: &[u8],
        counts: &[usize],
        into: &mut [u8],
        reduction: &Reduction,
    ) -> Result<()> {
        let blocks = self.reduce_scatter_blocks(bytes.len(), counts, into.len(), reduction)?;
        let task = self.collective(Kind::of(What::ReduceScatter).with(reduction));
        self.hub.run(&task, self.reduce_scatter_of(&task, (bytes, blocks), into, reduction))
    }

    /// Blocks of these lengths, if they fit what is given.
    pub(crate) fn reduce_scatter_blocks(
        &self,
        bytes: usize,
        counts: &[usize],
        room: usize,
        reduction: &Reduction,
    ) -> Result<Blocks> {
        reduction.check(bytes)?;
        let blocks = blocks_of(self.size, counts, bytes)?;
        let own = blocks.of(self.rank).len();
        if own != room || !counts.iter().all(|count| count.is_multiple_of(reduction.element())) {
            return Err(Error::invalid(format!(
                "blocks are of whole elements, and this rank's is {own} bytes: there is room for {room}"
            )));
        }
        Ok(blocks)
    }

    pub(crate) async fn reduce_scatter_of(
        &self,
        task: &Task,
        (bytes, blocks): (&[u8], Blocks),
        into: &mut [u8],
        reduction: &Reduction,
    ) -> Result<()> {
        let mut sends = Exchange::new(self, task);
        for rank in self.others() {
            sends.send(rank, DOWN, &bytes[blocks.of(rank)]);
        }
        let how = (reduction, Side::Higher);
        let receives = async {
            for rank in 0..self.size {
                let own = &bytes[blocks.of(rank)];
                match (rank == self.rank, rank) {
                    (true, 0) => into.copy_from_slice(own),
                    (true, _) => self.combine_here(task, into, &mut own.to_vec(), how)?,
                    (false, 0) => self.fill(task, rank, DOWN, into).await?,
                    (false, _) => self.combine(task, (rank, DOWN), (None, into), how).await?,
                }
            }
            Ok(())
        };
        sends.finish_beside(receives).await
    }
}
