//! Each rank takes its block from every other one, in the order of ranks, and combines it: on one host where they lie, without a copy.

use super::DOWN;
use super::allreduce::checked;
use super::exchange::Exchange;
use super::layout::{Blocks, blocks_of};
use crate::comm::Comm;
use crate::operation::{Combines, Datatype, Operation};
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
        (datatype, operation): (Datatype, Operation),
    ) -> Result<()> {
        let (blocks, combines) =
            self.reduce_scatter_checked(bytes.len(), counts, into.len(), (datatype, operation))?;
        let task = self.collective("reduce_scatter");
        self.hub.run(&task, self.reduce_scatter_of(&task, (bytes, blocks), into, combines))
    }

    /// Whether blocks of these lengths fit what is given.
    pub(crate) fn reduce_scatter_checked(
        &self,
        bytes: usize,
        counts: &[usize],
        room: usize,
        (datatype, operation): (Datatype, Operation),
    ) -> Result<(Blocks, Combines)> {
        let combines = checked(bytes, datatype, operation)?;
        let blocks = blocks_of(self.size, counts, bytes)?;
        let own = blocks.of(self.rank).len();
        if own != room || !counts.iter().all(|count| count.is_multiple_of(datatype.size())) {
            return Err(Error::invalid(format!(
                "blocks are of whole elements, and this rank's is {own} bytes: there is room for {room}"
            )));
        }
        Ok((blocks, combines))
    }

    pub(crate) async fn reduce_scatter_of(
        &self,
        task: &Task,
        (bytes, blocks): (&[u8], Blocks),
        into: &mut [u8],
        combines: Combines,
    ) -> Result<()> {
        let mut sends = Exchange::new(self, task);
        for rank in self.others() {
            sends.send(rank, DOWN, &bytes[blocks.of(rank)]);
        }
        let receives = async {
            for rank in 0..self.size {
                let own = &bytes[blocks.of(rank)];
                match (rank == self.rank, rank) {
                    (true, 0) => into.copy_from_slice(own),
                    (true, _) => (combines.with_higher)(into, own),
                    (false, 0) => self.fill(task, rank, DOWN, into).await?,
                    (false, _) => self.combine(task, (rank, DOWN), into, combines.with_higher).await?,
                }
            }
            Ok(())
        };
        sends.finish_beside(receives).await
    }
}
