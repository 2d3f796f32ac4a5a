//! Bruck's algorithm, as in Thakur, Rabenseifner and Gropp (2005): ceil(log2 n) rounds.

use super::beside;
use crate::comm::Comm;
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Gives every rank every rank's bytes, by rank. Each block is sent on from where it was received.
    pub fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let task = self.collective("allgather");
        self.hub.run(&task, self.allgather_of(&task, bytes))
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
            for send in sends.into_iter().filter(|send| !send.is_over()) {
                send.await?;
            }
            blocks.extend(came);
        }
        blocks.rotate_right(self.rank as usize);
        Ok(blocks)
    }
}
