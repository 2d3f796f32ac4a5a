//! By recursive doubling, as in Thakur, Rabenseifner and Gropp (2005): each pair exchanges what its run of ranks has combined to.

use super::{DOWN, both};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::reduction::{Reduction, Side};
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Combines the elements of all ranks up to this one, in the memory that they gave.
    pub fn scan(&self, bytes: &mut [u8], reduction: &Reduction) -> Result<()> {
        reduction.check(bytes.len())?;
        let task = self.collective(Kind::of(What::Scan).with(reduction));
        self.hub.run(&task, self.scan_of(&task, bytes, reduction))
    }

    pub(crate) async fn scan_of(&self, task: &Task, bytes: &mut [u8], reduction: &Reduction) -> Result<()> {
        self.scan_with(task, bytes.to_vec(), Some(bytes), reduction).await.map(drop)
    }

    /// The same of all ranks below this one. Rank 0 has none: its memory stays as it is.
    pub fn exscan(&self, bytes: &mut [u8], reduction: &Reduction) -> Result<()> {
        reduction.check(bytes.len())?;
        let task = self.collective(Kind::of(What::Exscan).with(reduction));
        self.hub.run(&task, self.exscan_of(&task, bytes, reduction))
    }

    pub(crate) async fn exscan_of(&self, task: &Task, bytes: &mut [u8], reduction: &Reduction) -> Result<()> {
        if let Some(below) = self.scan_with(task, bytes.to_vec(), None, reduction).await? {
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
        reduction: &Reduction,
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
                self.combine_here(task, &mut run, &mut theirs, (reduction, Side::Higher))?;
                continue;
            }
            let how = (reduction, Side::Lower);
            self.combine_here(task, &mut run, &mut theirs, how)?;
            match (&mut upto, &mut below) {
                (Some(upto), _) => self.combine_here(task, upto, &mut theirs, how)?,
                (None, Some(below)) => self.combine_here(task, below, &mut theirs, how)?,
                (None, none) => *none = Some(theirs),
            }
        }
        Ok(below)
    }
}
