//! Each rank to each other one at once, those nearest upwards first, so that not all begin with the same one.

use super::DOWN;
use super::exchange::Exchange;
use super::layout::{Blocks, blocks_of, equal_blocks};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Gives every rank its block of every rank's memory. Blocks are all of one length, and stand in the order of ranks.
    pub fn alltoall(&self, from: &[u8], into: &mut [u8]) -> Result<()> {
        let count = from.len() / self.size as usize;
        let blocks = equal_blocks(self.size, count, from.len())?;
        let taken = equal_blocks(self.size, count, into.len())?;
        let task = self.collective(Kind::of(What::Alltoall));
        self.hub.run(&task, self.alltoall_of(&task, (from, blocks), (into, taken)))
    }

    /// The same of blocks of different lengths, in bytes, by rank: what one rank sends to another one, that one must expect.
    pub fn alltoallv(
        &self,
        (from, sent): (&[u8], &[usize]),
        (into, received): (&mut [u8], &[usize]),
    ) -> Result<()> {
        let blocks = blocks_of(self.size, sent, from.len())?;
        let taken = blocks_of(self.size, received, into.len())?;
        let task = self.collective(Kind::of(What::Alltoall));
        self.hub.run(&task, self.alltoall_of(&task, (from, blocks), (into, taken)))
    }

    pub(crate) async fn alltoall_of(
        &self,
        task: &Task,
        (from, sent): (&[u8], Blocks),
        (into, received): (&mut [u8], Blocks),
    ) -> Result<()> {
        let mut exchange = Exchange::new(self, task);
        for (rank, block) in (0..).zip(received.split(into)) {
            if rank == self.rank {
                self.keep_own(task, &from[sent.of(rank)], block)?;
            } else {
                exchange.fill(rank, DOWN, block);
            }
        }
        for rank in self.others() {
            exchange.send(rank, DOWN, &from[sent.of(rank)]);
        }
        exchange.finish().await
    }
}
