//! Bruck's algorithm, as in Thakur, Rabenseifner and Gropp (2005): ceil(log2 n) rounds.

use super::exchange::Exchange;
use super::layout::{Blocks, blocks_of};
use super::{DOWN, SHORT, beside, finish};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Gives every rank every rank's bytes, by rank. Each block is sent on from where it was received.
    pub fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let task = self.collective(Kind::of(What::Allgather));
        self.hub.run(&task, self.allgather_of(&task, bytes))
    }

    /// Gives every rank every rank's bytes, in memory in which their blocks stand one behind the other: `counts` are their lengths, by
    /// rank, the same everywhere. Short blocks go through Bruck's rounds, long ones from each rank to each other one.
    pub fn allgather_into(&self, bytes: &[u8], all: &mut [u8], counts: &[usize]) -> Result<()> {
        let blocks = blocks_of(self.size, counts, all.len())?;
        let task = self.collective(Kind::of(What::Allgather));
        self.hub.run(&task, self.allgather_into_of(&task, bytes, (all, blocks)))
    }

    pub(crate) async fn allgather_into_of(
        &self,
        task: &Task,
        bytes: &[u8],
        (all, blocks): (&mut [u8], Blocks),
    ) -> Result<()> {
        let count = blocks.of(0).len();
        if count > 0 && all.len() <= SHORT && (0..self.size).all(|rank| blocks.of(rank).len() == count) {
            return self.allgather_short(task, bytes, all, count).await;
        }
        let mut exchange = Exchange::new(self, task);
        for (rank, block) in (0..).zip(blocks.split(all)) {
            if rank == self.rank {
                self.keep_own(task, bytes, block)?;
            } else {
                exchange.fill(rank, DOWN, block);
            }
        }
        for rank in self.others() {
            exchange.send(rank, DOWN, bytes);
        }
        exchange.finish().await
    }

    /// Blocks of one length: in each round twice as many go to a rank that is twice as far away.
    async fn allgather_short(&self, task: &Task, bytes: &[u8], all: &mut [u8], count: usize) -> Result<()> {
        self.keep_own(task, bytes, &mut all[..count])?;
        for distance in self.distances() {
            let blocks = distance.min(self.size - distance) as usize;
            let (have, wanted) = all.split_at_mut(distance as usize * count);
            let tag = DOWN + u64::from(distance);
            self.put(task, self.down(distance), tag, &have[..blocks * count]).await?;
            self.fill(task, self.up(distance), tag, &mut wanted[..blocks * count]).await?;
        }
        all.rotate_right(self.rank as usize * count);
        Ok(())
    }

    async fn allgather_of(&self, task: &Task, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        // In the order of distance upwards: this rank's, the next one's ...
        let mut blocks = vec![bytes.to_vec()];
        for distance in self.distances() {
            let count = distance.min(self.size - distance) as usize;
            let (first, to, from) = (u64::from(distance), self.down(distance), self.up(distance));
            let mut sends: Vec<_> =
                (first..).zip(&blocks[..count]).map(|(tag, block)| self.put(task, to, tag, block)).collect();
            let mut came = Vec::with_capacity(count);
            for index in 0..count {
                // Long blocks are sent while others come.
                came.push(beside(&mut sends, self.get(task, from, first + index as u64)).await?);
            }
            finish(sends).await?;
            blocks.extend(came);
        }
        blocks.rotate_right(self.rank as usize);
        Ok(blocks)
    }
}
