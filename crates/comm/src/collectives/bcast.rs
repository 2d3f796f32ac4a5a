//! Down a binomial tree, as in Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005):
//! ceil(log2 n) rounds. On one host each rank reads where the one above it has the bytes.

use super::DOWN;
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Fills every rank's memory with the root's, which must be of the same length. Copies nothing but the message itself.
    pub fn bcast(&self, root: u32, bytes: &mut [u8]) -> Result<()> {
        self.check_rank(root)?;
        let task = self.collective(Kind::of(What::Bcast).at(root));
        self.hub.run(&task, self.bcast_of(&task, root, bytes))
    }

    pub(crate) async fn bcast_of(&self, task: &Task, root: u32, bytes: &mut [u8]) -> Result<()> {
        let (place, first) = self.branch(root);
        if place != 0 {
            self.fill(task, self.rank_at(root, place - first), DOWN, bytes).await?;
        }
        self.pass_down(task, root, bytes).await
    }

    /// Gives every rank the root's bytes, of which the others need not know how many they are; what they pass is dropped.
    pub fn broadcast(&self, root: u32, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.check_rank(root)?;
        let task = self.collective(Kind::of(What::Bcast).at(root));
        self.hub.run(&task, self.broadcast_of(&task, root, bytes))
    }

    pub(super) async fn broadcast_of(&self, task: &Task, root: u32, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let (place, first) = self.branch(root);
        if place != 0 {
            bytes = self.get(task, self.rank_at(root, place - first), DOWN).await?;
        }
        self.pass_down(task, root, &bytes).await?;
        Ok(bytes)
    }

    async fn pass_down(&self, task: &Task, root: u32, bytes: &[u8]) -> Result<()> {
        let (place, mut bit) = self.branch(root);
        while bit > 1 {
            bit >>= 1;
            if place + bit < self.size {
                self.put(task, self.rank_at(root, place + bit), DOWN, bytes).await?;
            }
        }
        Ok(())
    }

    /// This rank's place in the tree, and how far below is the one above it.
    fn branch(&self, root: u32) -> (u32, u32) {
        let place = self.place(root);
        let mut bit = 1;
        while bit < self.size && place & bit == 0 {
            bit <<= 1;
        }
        (place, bit)
    }
}
