//! What all ranks do together.
//!
//! The algorithms are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
//! Operations in MPICH" (2005): binomial trees for broadcast, gather and reduce, Bruck's for allgather; and
//! the dissemination barrier of Hensgen, Finkel and Manber (1988). Each takes ceil(log2 n) rounds. Those
//! for long messages that split them (scatter and allgather, Rabenseifner's reduction) are not here.
//!
//! All wait, by the comm's deadline; all are to be called by every rank, in the same order. A rank may
//! return from one while others are still in it. After a failure the results of other ranks are unknown,
//! but what was left over from it is never taken for part of a later collective.

use crate::comm::Comm;
use crate::point::Task;
use forebay_core::{Error, Result};

/// A block up to this size travels up the tree with the others, a longer one straight to the root.
const TREE_MAX: usize = 32 << 10;
/// In place of a length: the block comes straight.
const STRAIGHT: u64 = u64::MAX;
/// Tags of gather; others count their rounds or blocks.
const UP: u64 = 0;
const ASIDE: u64 = 1;

impl Comm {
    /// Returns when every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        let task = self.collective("barrier");
        for (round, distance) in self.distances().enumerate() {
            self.put(&task, self.up(distance), round as u64, &[])?;
            self.hub.receive(&task, self.down(distance), round as u64)?;
        }
        Ok(())
    }

    /// Gives every rank the root's bytes; what others pass is dropped. The root's own are not copied but
    /// for sending, once to each of at most log2 n ranks.
    pub fn broadcast(&self, root: u32, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.check_rank(root)?;
        self.spread_out(&self.collective("broadcast"), root, bytes)
    }

    /// Gives the root every rank's bytes, by rank; the others get `None`. Short blocks are copied once by
    /// every rank on their way up the tree, those above 32 KiB go straight to the root.
    pub fn gather(&self, root: u32, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        self.check_rank(root)?;
        let task = self.collective("gather");
        let place = self.place(root);
        // What this rank's part of the tree holds so far: places `place..` in order.
        let mut packed = Vec::new();
        let straight = bytes.len() > TREE_MAX && place != 0;
        pack(&mut packed, bytes, straight);
        let mut bit = 1;
        while bit < self.size && place & bit == 0 {
            if place + bit < self.size {
                packed.extend(self.hub.receive(&task, self.rank_at(root, place + bit), UP)?);
            }
            bit <<= 1;
        }
        if place != 0 {
            self.put(&task, self.rank_at(root, place - bit), UP, &packed)?;
            if straight {
                self.put(&task, root, ASIDE, bytes)?;
            }
            return Ok(None);
        }
        let mut blocks = vec![Vec::new(); self.size as usize];
        let mut rest = &packed[..];
        for place in 0..self.size {
            let rank = self.rank_at(root, place);
            blocks[rank as usize] = match unpack(&mut rest)? {
                Some(block) => block,
                None => self.hub.receive(&task, rank, ASIDE)?,
            };
        }
        Ok(Some(blocks))
    }

    /// Gives every rank every rank's bytes, by rank. Each block is sent on from where it was received.
    pub fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let task = self.collective("allgather");
        // In the order of distance upwards: this rank's, the next one's ...
        let mut blocks = vec![bytes.to_vec()];
        for distance in self.distances() {
            let count = distance.min(self.size - distance) as usize;
            for (index, block) in blocks[..count].iter().enumerate() {
                self.put(&task, self.down(distance), u64::from(distance) + index as u64, block)?;
            }
            for index in 0..count {
                blocks.push(self.hub.receive(
                    &task,
                    self.up(distance),
                    u64::from(distance) + index as u64,
                )?);
            }
        }
        blocks.rotate_right(self.rank as usize);
        Ok(blocks)
    }

    /// Combines every rank's bytes into one, for the root; the others get `None`.
    ///
    /// `combine(lower, higher)` merges the second into the first. It need not commute: the first always
    /// holds a run of ranks just below the second's. It should be associative: the runs are those of a
    /// binomial tree over ranks 0 to n - 1, ((0 1) (2 3)) ((4 5) 6), whatever the root. The order depends
    /// on n alone, never on timing, so the result is the same to the bit every time.
    pub fn reduce(
        &self,
        root: u32,
        bytes: Vec<u8>,
        combine: impl Fn(&mut Vec<u8>, &[u8]),
    ) -> Result<Option<Vec<u8>>> {
        self.check_rank(root)?;
        let task = self.collective("reduce");
        let combined = self.combine_up(&task, bytes, combine)?;
        let away = u64::from(u32::MAX);
        match (combined, root, self.rank) {
            (combined, 0, _) => Ok(combined),
            (Some(combined), root, _) => self.put(&task, root, away, &combined).map(|()| None),
            (None, root, rank) if root == rank => self.hub.receive(&task, 0, away).map(Some),
            _ => Ok(None),
        }
    }

    /// As [`Comm::reduce`], for every rank: combined at rank 0 and broadcast, so that all get the same bits.
    pub fn allreduce(&self, bytes: Vec<u8>, combine: impl Fn(&mut Vec<u8>, &[u8])) -> Result<Vec<u8>> {
        let task = self.collective("allreduce");
        let combined = self.combine_up(&task, bytes, combine)?;
        self.spread_out(&task, 0, combined.unwrap_or_default())
    }

    /// Up the binomial tree, to rank 0.
    fn combine_up(
        &self,
        task: &Task,
        mut bytes: Vec<u8>,
        combine: impl Fn(&mut Vec<u8>, &[u8]),
    ) -> Result<Option<Vec<u8>>> {
        let mut bit = 1;
        while bit < self.size {
            if self.rank & bit != 0 {
                return self.put(task, self.rank - bit, UP, &bytes).map(|()| None);
            }
            if self.rank + bit < self.size {
                combine(&mut bytes, &self.hub.receive(task, self.rank + bit, UP)?);
            }
            bit <<= 1;
        }
        Ok(Some(bytes))
    }

    /// Down the binomial tree. Its tag differs from that of the way up: both are one collective.
    fn spread_out(&self, task: &Task, root: u32, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let place = self.place(root);
        let mut bit = 1;
        while bit < self.size && place & bit == 0 {
            bit <<= 1;
        }
        if place != 0 {
            bytes = self.hub.receive(task, self.rank_at(root, place - bit), ASIDE)?;
        }
        while bit > 1 {
            bit >>= 1;
            if place + bit < self.size {
                self.put(task, self.rank_at(root, place + bit), ASIDE, &bytes)?;
            }
        }
        Ok(bytes)
    }

    fn put(&self, task: &Task, dest: u32, tag: u64, bytes: &[u8]) -> Result<()> {
        self.hub.send(task, dest, tag, bytes)
    }

    /// 1, 2, 4 ... below the size.
    fn distances(&self) -> impl Iterator<Item = u32> + use<> {
        let size = self.size;
        std::iter::successors(Some(1u32), |distance| distance.checked_mul(2))
            .take_while(move |distance| *distance < size)
    }

    fn up(&self, distance: u32) -> u32 {
        self.rank_at(self.rank, distance)
    }

    fn down(&self, distance: u32) -> u32 {
        self.rank_at(self.rank, self.size - distance)
    }

    /// This rank's place in a tree with this root: 0 is the root.
    fn place(&self, root: u32) -> u32 {
        (self.rank + self.size - root) % self.size
    }

    fn rank_at(&self, root: u32, place: u32) -> u32 {
        (root + place) % self.size
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
