//! Short ones up a binomial tree, long ones by Rabenseifner's algorithm, whose parts the root gathers. Thakur, Rabenseifner and Gropp
//! (2005).
//!
//! Elements are combined as [`Comm::allreduce`] does it, so that both give the same bits.

use super::doubling::{Doubling, Part, range_of};
use super::{ASIDE, UP, carry, check_operand};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::reduction::{Reduction, Side};
use crate::task::Task;
use forebay_core::{Error, Result};

/// What rank 0 has combined goes to a root that is another one.
const AWAY: u64 = u32::MAX as u64;

/// What a rank gives, unless it stands where the result will be; and that, if it is the root.
pub(crate) type Operands<'a> = (Option<&'a [u8]>, Option<&'a mut [u8]>);

impl Comm {
    /// Combines every rank's elements one by one, for the root. What a rank gives stands in `from`, at the root else where the result
    /// will be; `into` is empty for the others. It must be of the same length everywhere. Copies nothing but the messages.
    pub fn reduce(
        &self,
        root: u32,
        from: Option<&[u8]>,
        into: &mut [u8],
        reduction: &Reduction,
    ) -> Result<()> {
        let operands = self.reduced(root, from, into, reduction)?;
        let task = self.collective(Kind::of(What::Reduce).at(root).with(reduction));
        self.hub.run(&task, self.reduce_of(&task, root, operands, reduction))
    }

    /// What a rank gives to a reduction, and where the result goes, if it is the root.
    pub(crate) fn reduced<'a>(
        &self,
        root: u32,
        from: Option<&'a [u8]>,
        into: &'a mut [u8],
        reduction: &Reduction,
    ) -> Result<Operands<'a>> {
        self.check_rank(root)?;
        if self.rank == root {
            check_operand(from, into, reduction)?;
            return Ok((from, Some(into)));
        }
        let from =
            from.ok_or_else(|| Error::invalid("only the root's result can stand where what it gives is"))?;
        reduction.check(from.len())?;
        Ok((Some(from), None))
    }

    pub(crate) async fn reduce_of(
        &self,
        task: &Task,
        root: u32,
        (from, into): Operands<'_>,
        reduction: &Reduction,
    ) -> Result<()> {
        let (doubling, element) = (Doubling::of(self.size), reduction.element());
        let bytes = into.as_deref().or(from).unwrap_or_default().len();
        if let Some(way) = self.near(bytes, reduction, What::Reduce) {
            return self.reduce_near(task, way, root, (from, into), reduction).await;
        }
        // Others than the root have no memory for a result, but may need some on the way.
        let mut scratch = self.scratch(if into.is_none() { bytes } else { 0 });
        let into = into.unwrap_or(&mut scratch);
        let is_short = doubling.is_short(bytes, element);
        let mut from = from;
        let place = match doubling.part(self.rank) {
            Part::Gives(other) => {
                self.put(task, other, UP, from.unwrap_or(into)).await?;
                None
            }
            Part::Meets { place, takes_from } => {
                if let Some(other) = takes_from {
                    self.combine(task, (other, UP), (from.take(), into), (reduction, Side::Lower)).await?;
                }
                Some(place)
            }
        };
        match place {
            Some(place) if is_short => {
                carry(from, into);
                self.go_up(task, (doubling, place), root, into, reduction).await?;
            }
            Some(place) => {
                self.halve(task, doubling, place, (from, into), reduction).await?;
                if self.rank != root {
                    let mine = range_of(place, doubling.places.ilog2(), bytes / element);
                    let mine = &into[mine.start * element..mine.end * element];
                    self.put(task, root, ASIDE, mine).await?;
                }
            }
            None => {}
        }
        if self.rank != root {
            return Ok(());
        }
        if is_short {
            let first = doubling.rank_at(0);
            return if first == root { Ok(()) } else { self.fill(task, first, AWAY, into).await };
        }
        for other in (0..doubling.places).filter(|other| Some(*other) != place) {
            let theirs = range_of(other, doubling.places.ilog2(), bytes / element);
            let theirs = &mut into[theirs.start * element..theirs.end * element];
            self.fill(task, doubling.rank_at(other), ASIDE, theirs).await?;
        }
        Ok(())
    }

    /// Up the tree of places, to the first one, which sends the result to the root.
    async fn go_up(
        &self,
        task: &Task,
        (doubling, place): (Doubling, u32),
        root: u32,
        bytes: &mut [u8],
        reduction: &Reduction,
    ) -> Result<()> {
        let tag = UP + 1;
        for distance in doubling.distances() {
            if place & distance != 0 {
                return self.put(task, doubling.rank_at(place - distance), tag, bytes).await;
            }
            let from = (doubling.rank_at(place + distance), tag);
            self.combine(task, from, (None, bytes), (reduction, Side::Higher)).await?;
        }
        if self.rank == root { Ok(()) } else { self.put(task, root, AWAY, bytes).await }
    }

    /// Combines every rank's bytes, whose meaning only the caller knows, for the root; the others get `None`.
    ///
    /// `combine(lower, higher)` merges the second into the first. It need not commute: the first always
    /// holds a run of ranks just below the second's. It should be associative: the runs are those of a
    /// binomial tree over ranks 0 to n - 1, ((0 1) (2 3)) ((4 5) 6), whatever the root. The order depends
    /// on n alone, never on timing, so the result is the same to the bit every time.
    pub fn reduce_by(
        &self,
        root: u32,
        bytes: Vec<u8>,
        combine: impl Fn(&mut Vec<u8>, &[u8]),
    ) -> Result<Option<Vec<u8>>> {
        self.check_rank(root)?;
        let task = self.collective(Kind::of(What::Reduce).at(root));
        self.hub.run(&task, async {
            let combined = self.combine_up(&task, bytes, combine).await?;
            match (combined, root, self.rank) {
                (combined, 0, _) => Ok(combined),
                (Some(combined), root, _) => self.put(&task, root, AWAY, &combined).await.map(|()| None),
                (None, root, rank) if root == rank => self.get(&task, 0, AWAY).await.map(Some),
                _ => Ok(None),
            }
        })
    }

    /// Up the binomial tree, to rank 0.
    pub(super) async fn combine_up(
        &self,
        task: &Task,
        mut bytes: Vec<u8>,
        combine: impl Fn(&mut Vec<u8>, &[u8]),
    ) -> Result<Option<Vec<u8>>> {
        for distance in self.distances() {
            if self.rank & distance != 0 {
                return self.put(task, self.rank - distance, UP, &bytes).await.map(|()| None);
            }
            if self.rank + distance < self.size {
                combine(&mut bytes, &self.get(task, self.rank + distance, UP).await?);
            }
        }
        Ok(Some(bytes))
    }
}
