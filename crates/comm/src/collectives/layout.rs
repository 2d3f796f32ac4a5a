//! How the blocks of all ranks stand in one memory.

use crate::comm::Comm;
use forebay_core::{Error, Result};
use std::ops::Range;

/// Blocks one behind the other.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    ends: Vec<usize>,
}

impl Blocks {
    /// Where the block of a rank is.
    pub(super) fn of(&self, rank: u32) -> Range<usize> {
        let rank = rank as usize;
        let start = rank.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[rank]
    }

    /// All of them, to be written to.
    pub(super) fn split<'a>(&self, mut all: &'a mut [u8]) -> Vec<&'a mut [u8]> {
        (0..self.ends.len() as u32)
            .map(|rank| {
                let (block, rest) = std::mem::take(&mut all).split_at_mut(self.of(rank).len());
                all = rest;
                block
            })
            .collect()
    }
}

impl Comm {
    /// The blocks in the root's memory; what others say of it is not looked at.
    pub(crate) fn blocks_at(&self, root: u32, counts: &[usize], bytes: usize) -> Result<Option<Blocks>> {
        self.check_rank(root)?;
        if self.rank == root { blocks_of(self.size, counts, bytes).map(Some) } else { Ok(None) }
    }
}

/// The blocks of so many ranks, of these lengths, in memory of `bytes`, all of which they take.
pub(crate) fn blocks_of(size: u32, counts: &[usize], bytes: usize) -> Result<Blocks> {
    if counts.len() != size as usize {
        return Err(Error::invalid(format!(
            "{} lengths are given for the blocks of {size} ranks",
            counts.len()
        )));
    }
    let mut ends = Vec::with_capacity(counts.len());
    let mut end = 0usize;
    for count in counts {
        end = end
            .checked_add(*count)
            .ok_or_else(|| Error::invalid("the blocks are longer than can be counted"))?;
        ends.push(end);
    }
    if end != bytes {
        return Err(Error::invalid(format!(
            "the blocks of all ranks are {end} bytes, their memory is {bytes}"
        )));
    }
    Ok(Blocks { ends })
}

/// The same, all of one length.
pub(crate) fn equal_blocks(size: u32, count: usize, bytes: usize) -> Result<Blocks> {
    blocks_of(size, &vec![count; size as usize], bytes)
}
