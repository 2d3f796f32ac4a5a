//! Up a binomial tree, as in Thakur, Rabenseifner and Gropp (2005); long blocks go straight to the root.

use super::exchange::Exchange;
use super::layout::Blocks;
use super::{ASIDE, UP};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::task::Task;
use forebay_core::{Error, Result};

/// A block up to this size travels up the tree with the others, a longer one straight to the root.
const TREE_MAX: usize = 32 << 10;
/// In place of a length: the block comes straight.
const STRAIGHT: u64 = u64::MAX;

impl Comm {
    /// Gives the root every rank's bytes, by rank; the others get `None`. Short blocks are copied once by
    /// every rank on their way up the tree, those above 32 KiB go straight to the root.
    pub fn gather(&self, root: u32, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        self.check_rank(root)?;
        let task = self.collective(Kind::of(What::Gather).at(root));
        self.hub.run(&task, self.gather_of(&task, root, bytes))
    }

    /// Gives the root every rank's bytes, in the root's memory: `counts` are their lengths, by rank, and stand one behind the other;
    /// what others than the root pass for both is not looked at. On one host the root reads each where it lies.
    pub fn gather_into(&self, root: u32, bytes: &[u8], all: &mut [u8], counts: &[usize]) -> Result<()> {
        self.check_rank(root)?;
        let blocks = self.blocks_at(root, counts, all.len())?;
        let task = self.collective(Kind::of(What::Gather).at(root));
        self.hub.run(&task, self.gather_into_of(&task, root, bytes, (all, blocks)))
    }

    pub(crate) async fn gather_into_of(
        &self,
        task: &Task,
        root: u32,
        bytes: &[u8],
        (all, blocks): (&mut [u8], Option<Blocks>),
    ) -> Result<()> {
        let Some(blocks) = blocks else { return self.put(task, root, UP, bytes).await };
        let mut exchange = Exchange::new(self, task);
        for (rank, block) in (0..).zip(blocks.split(all)) {
            if rank == root {
                self.keep_own(task, bytes, block)?;
            } else {
                exchange.fill(rank, UP, block);
            }
        }
        exchange.finish().await
    }

    async fn gather_of(&self, task: &Task, root: u32, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let place = self.place(root);
        // What this rank's part of the tree holds so far: places `place..` in order.
        let mut packed = Vec::new();
        let straight = bytes.len() > TREE_MAX && place != 0;
        pack(&mut packed, bytes, straight);
        let mut bit = 1;
        while bit < self.size && place & bit == 0 {
            if place + bit < self.size {
                packed.extend(self.get(task, self.rank_at(root, place + bit), UP).await?);
            }
            bit <<= 1;
        }
        if place != 0 {
            self.put(task, self.rank_at(root, place - bit), UP, &packed).await?;
            if straight {
                self.put(task, root, ASIDE, bytes).await?;
            }
            return Ok(None);
        }
        let mut blocks = vec![Vec::new(); self.size as usize];
        let mut rest = &packed[..];
        for place in 0..self.size {
            let rank = self.rank_at(root, place);
            blocks[rank as usize] = match unpack(&mut rest)? {
                Some(block) => block,
                None => self.get(task, rank, ASIDE).await?,
            };
        }
        Ok(Some(blocks))
    }
}

fn pack(packed: &mut Vec<u8>, block: &[u8], straight: bool) {
    let length = if straight { STRAIGHT } else { block.len() as u64 };
    packed.extend_from_slice(&length.to_le_bytes());
    if !straight {
        packed.extend_from_slice(block);
    }
}

/// The next block; `None`: it comes straight.
fn unpack(packed: &mut &[u8]) -> Result<Option<Vec<u8>>> {
    let cut = || Error::protocol("what was gathered is cut short: do all ranks call the same collectives?");
    let (head, rest) = packed.split_first_chunk::<8>().ok_or_else(cut)?;
    let length = u64::from_le_bytes(*head);
    if length == STRAIGHT {
        *packed = rest;
        return Ok(None);
    }
    let length = usize::try_from(length).ok().filter(|length| *length <= rest.len()).ok_or_else(cut)?;
    let (block, rest) = rest.split_at(length);
    *packed = rest;
    Ok(Some(block.to_vec()))
}
