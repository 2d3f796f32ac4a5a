//! Down a binomial tree, as in Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005):
//! ceil(log2 n) rounds. On one host each rank reads where the one above it has the bytes.

use super::exchange::Exchange;
use super::tree::{FAR, NEAR, Tree};
use super::{DOWN, SHORT};
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
        if let Some(parent) = self.way_down(root).parent() {
            self.fill(task, self.rank_at(root, parent), DOWN, bytes).await?;
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
        if let Some(parent) = self.way_down(root).parent() {
            bytes = self.get(task, self.rank_at(root, parent), DOWN).await?;
        }
        self.pass_down(task, root, &bytes).await?;
        Ok(bytes)
    }

    async fn pass_down(&self, task: &Task, root: u32, bytes: &[u8]) -> Result<()> {
        let children = self.way_down(root).children();
        if bytes.len() <= SHORT {
            for child in children {
                self.put(task, self.rank_at(root, child), DOWN, bytes).await?;
            }
            return Ok(());
        }
        let mut sends = Exchange::new(self, task);
        for child in children {
            sends.send(self.rank_at(root, child), DOWN, bytes);
        }
        sends.finish().await
    }

    /// The tree in which bytes go down.
    fn way_down(&self, root: u32) -> Tree {
        self.tree(root, if self.is_one_host { NEAR } else { FAR })
    }
}
