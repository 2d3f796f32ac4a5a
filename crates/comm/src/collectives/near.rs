//! Reductions of few ranks on one host: each rank takes its part of all straight from all others, in one round, and combines it by itself.
//!
//! Rounds are what costs time there: where processes share cores, each round has to wait until all of them have run.

use super::doubling::Doubling;
use super::exchange::Exchange;
use super::{DOWN, NEAR, PARTS, SHORT, UP, carry};
use crate::comm::Comm;
use crate::kind::What;
use crate::reduction::{Reduction, Side};
use crate::task::Task;
use forebay_core::{Error, Result};
use smallvec::SmallVec;
use std::ops::Range;

/// Up to so many ranks.
const RANKS: u32 = 16;
/// All that they give together is up to so many bytes if each rank that gets the result takes all of it.
const WHOLE: usize = 16 << 10;
/// What each gives is up to so many bytes.
const LONGEST: usize = 1 << 20;

/// Who combines what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Each rank that gets the result combines all of it.
    Whole,
    /// Each rank combines its part.
    Parts,
}

impl Comm {
    /// How so many bytes are reduced here, if it is to be done in this way.
    pub(super) fn near(&self, bytes: usize, reduction: &Reduction, what: What) -> Option<Way> {
        let is_built_in = reduction.in_pieces(Side::Higher).is_some();
        if !self.is_one_host || self.size > RANKS || !is_built_in || bytes == 0 {
            return None;
        }
        let can_part = bytes <= LONGEST && bytes / reduction.element() >= self.size as usize;
        let together = bytes * (self.size as usize - 1);
        let is_whole = match (what, self.shares_cores) {
            // Those that have cores of their own exchange all, round by round.
            (What::Allreduce, false) if bytes <= SHORT => return None,
            (What::Allreduce, false) => false,
            (What::Allreduce, true) => together <= WHOLE,
            (_, false) => together <= if self.size == 2 { LONGEST / 2 } else { 8 * WHOLE },
            (_, true) => together <= LONGEST,
        };
        if is_whole {
            return Some(Way::Whole);
        }
        can_part.then_some(Way::Parts)
    }

    pub(super) async fn allreduce_near(
        &self,
        task: &Task,
        way: Way,
        (from, into): (Option<&[u8]>, &mut [u8]),
        reduction: &Reduction,
    ) -> Result<()> {
        if way == Way::Whole {
            if self.rank == 0 {
                self.combine_all(task, (from, into), reduction).await?;
            } else {
                self.put(task, 0, NEAR + UP, from.unwrap_or(into)).await?;
            }
            return self.bcast_of(task, 0, into).await;
        }
        let parts = self.parts_of(into.len(), reduction);
        let mine = parts(self.rank);
        let mut blocks = self.scratch(mine.len() * self.size as usize);
        self.take_parts(task, from.unwrap_or(into), &parts, &mut blocks).await?;
        self.combine_blocks(task, &mut blocks, mine.len(), reduction)?;
        let combined = &blocks[..mine.len()];
        into[mine].copy_from_slice(combined);
        let mut exchange = Exchange::new(self, task);
        self.fill_parts(&mut exchange, &parts, into);
        for rank in self.others() {
            exchange.send(rank, PARTS + DOWN, combined);
        }
        exchange.finish().await
    }

    pub(super) async fn reduce_near(
        &self,
        task: &Task,
        way: Way,
        root: u32,
        (from, into): (Option<&[u8]>, Option<&mut [u8]>),
        reduction: &Reduction,
    ) -> Result<()> {
        let own = from.or(into.as_deref()).unwrap_or_default();
        if way == Way::Whole {
            return match into {
                Some(into) => self.combine_all(task, (from, into), reduction).await,
                None if self.shares_cores => self.put(task, root, NEAR + UP, own).lent_beyond(SHORT).await,
                None => self.put(task, root, NEAR + UP, own).await,
            };
        }
        let parts = self.parts_of(own.len(), reduction);
        let mine = parts(self.rank);
        let mut blocks = self.scratch(mine.len() * self.size as usize);
        self.take_parts(task, own, &parts, &mut blocks).await?;
        self.combine_blocks(task, &mut blocks, mine.len(), reduction)?;
        let combined = &blocks[..mine.len()];
        let Some(into) = into else { return self.put(task, root, PARTS + DOWN, combined).await };
        into[mine].copy_from_slice(combined);
        let mut exchange = Exchange::new(self, task);
        self.fill_parts(&mut exchange, &parts, into);
        exchange.finish().await
    }

    /// Which bytes each rank combines.
    fn parts_of(&self, bytes: usize, reduction: &Reduction) -> impl Fn(u32) -> Range<usize> + use<> {
        let (element, size) = (reduction.element(), self.size as usize);
        let start = move |rank: usize| bytes / element * rank / size * element;
        move |rank| start(rank as usize)..start(rank as usize + 1)
    }

    /// This rank combines what all give, each where it is received, in the order in which [`Comm::allreduce`] does it among many.
    async fn combine_all(
        &self,
        task: &Task,
        (from, into): (Option<&[u8]>, &mut [u8]),
        reduction: &Reduction,
    ) -> Result<()> {
        let Some(combine) = reduction.in_pieces(Side::Higher) else {
            return Err(Error::internal("a function does not combine what all give at once"));
        };
        let (doubling, bytes) = (Doubling::of(self.size), into.len());
        let mut memory = self.scratch(bytes * (1 + doubling.places.ilog2() as usize));
        let (kept, later) = memory.split_at_mut(bytes);
        let own = match from {
            Some(from) => from,
            None => {
                kept.copy_from_slice(into);
                kept
            }
        };
        // Runs of ranks that are combined so far. The first one stands where the result will be.
        let mut runs: SmallVec<[&mut [u8]; 5]> =
            std::iter::once(into).chain(later.chunks_exact_mut(bytes)).collect();
        let mut count = 0;
        // What this rank gives is not copied where the next one's is combined with it at once.
        let mut begins = None;
        for (rank, merges) in doubling.merges() {
            if merges == 0 {
                count += 1;
                match rank == self.rank {
                    true => begins = Some(own),
                    false => self.fill(task, rank, NEAR + UP, runs[count - 1]).await?,
                }
                continue;
            }
            let last = &mut *runs[count - 1];
            match rank == self.rank {
                true => (combine.into)(last, own),
                false => {
                    let how = (reduction, Side::Higher);
                    self.combine(task, (rank, NEAR + UP), (begins.take(), last), how).await?;
                }
            }
            for _ in 1..merges {
                count -= 1;
                let (below, last) = runs.split_at_mut(count);
                (combine.into)(below[count - 1], last[0]);
            }
        }
        // It is alone.
        carry(begins, runs[0]);
        Ok(())
    }

    /// Every rank gives every other one its part.
    async fn take_parts(
        &self,
        task: &Task,
        own: &[u8],
        parts: &impl Fn(u32) -> Range<usize>,
        blocks: &mut [u8],
    ) -> Result<()> {
        let mut exchange = Exchange::new(self, task);
        for rank in self.others() {
            exchange.send(rank, PARTS + UP, &own[parts(rank)]);
        }
        self.fill_blocks(&mut exchange, &own[parts(self.rank)], blocks);
        exchange.finish().await
    }

    /// All others give this rank what they have combined.
    fn fill_parts<'a>(
        &self,
        exchange: &mut Exchange<'a>,
        parts: &impl Fn(u32) -> Range<usize>,
        into: &'a mut [u8],
    ) {
        let (mut rest, mut at) = (into, 0);
        for rank in 0..self.size {
            let (part, behind) = rest.split_at_mut(parts(rank).end - at);
            (rest, at) = (behind, parts(rank).end);
            if rank != self.rank {
                exchange.fill(rank, PARTS + DOWN, part);
            }
        }
    }

    /// Blocks of one length, by rank: this rank's is there.
    fn fill_blocks<'a>(&self, exchange: &mut Exchange<'a>, own: &[u8], blocks: &'a mut [u8]) {
        for (rank, block) in (0..).zip(blocks.chunks_exact_mut(own.len().max(1))) {
            if rank == self.rank {
                block.copy_from_slice(own);
            } else {
                exchange.fill(rank, PARTS + UP, block);
            }
        }
    }

    /// Combines the blocks of all ranks in the order in which [`Comm::allreduce`] does it among many, in the first one.
    fn combine_blocks(
        &self,
        task: &Task,
        blocks: &mut [u8],
        bytes: usize,
        reduction: &Reduction,
    ) -> Result<()> {
        let mut runs: Vec<usize> = Vec::with_capacity(self.size as usize);
        for (rank, merges) in Doubling::of(self.size).merges() {
            runs.push(rank as usize * bytes);
            for _ in 0..merges {
                let (Some(last), Some(below)) = (runs.pop(), runs.last()) else { break };
                let (low, high) = blocks.split_at_mut(last);
                let (below, last) = (&mut low[*below..][..bytes], &mut high[..bytes]);
                self.combine_here(task, below, last, (reduction, Side::Higher))?;
            }
        }
        Ok(())
    }
}
