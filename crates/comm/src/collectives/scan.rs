//! By recursive doubling, as in Thakur, Rabenseifner and Gropp (2005): each pair exchanges what its run of ranks has combined to.

use super::allreduce::checked;
use super::{DOWN, both};
use crate::comm::Comm;
use crate::operation::{Combines, Datatype, Operation};
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Combines the elements of all ranks up to this one, in the memory that they gave.
    pub fn scan(&self, bytes: &mut [u8], datatype: Datatype, operation: Operation) -> Result<()> {
        let combines = checked(bytes.len(), datatype, operation)?;
        let task = self.collective("scan");
        self.hub.run(&task, self.scan_of(&task, bytes, combines))
    }

    pub(crate) async fn scan_of(&self, task: &Task, bytes: &mut [u8], combines: Combines) -> Result<()> {
        self.scan_with(task, bytes.to_vec(), Some(bytes), combines).await.map(drop)
    }

    /// The same of all ranks below this one. Rank 0 has none: its memory stays as it is.
    pub fn exscan(&self, bytes: &mut [u8], datatype: Datatype, operation: Operation) -> Result<()> {
        let combines = checked(bytes.len(), datatype, operation)?;
        let task = self.collective("exscan");
        self.hub.run(&task, self.exscan_of(&task, bytes, combines))
    }

    pub(crate) async fn exscan_of(&self, task: &Task, bytes: &mut [u8], combines: Combines) -> Result<()> {
        if let Some(below) = self.scan_with(task, bytes.to_vec(), None, combines).await? {
            bytes.copy_from_slice(&below);
        }
        Ok(())
    }

    /// `run` is what the ranks around this one have combined to so far, `upto` what those up to it have. What those below it have
    /// is returned, if it was not asked for the other.
    async fn scan_with(
        &self,
        task: &Task,
        mut run: Vec<u8>,
        mut upto: Option<&mut [u8]>,
        combines: Combines,
    ) -> Result<Option<Vec<u8>>> {
        let mut below: Option<Vec<u8>> = None;
        for distance in self.distances() {
            let other = self.rank ^ distance;
            if other >= self.size {
                continue;
            }
            let tag = DOWN + u64::from(distance);
            let mut theirs = vec![0; run.len()];
            both(self.put(task, other, tag, &run), self.fill(task, other, tag, &mut theirs)).await?;
            if other > self.rank {
                (combines.with_higher)(&mut run, &theirs);
                continue;
            }
            (combines.with_lower)(&mut run, &theirs);
            match (&mut upto, &mut below) {
                (Some(upto), _) => (combines.with_lower)(upto, &theirs),
                (None, Some(below)) => (combines.with_lower)(below, &theirs),
                (None, none) => *none = Some(theirs),
            }
        }
        Ok(below)
    }
}
