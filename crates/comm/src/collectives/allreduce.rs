//! Short ones by recursive doubling, long ones by Rabenseifner's algorithm: each pair halves what it is to combine, then all of it is
//! gathered in the opposite order. Thakur, Rabenseifner and Gropp (2005).
//!
//! Whichever it is, an element is combined in the order of ranks as ((0 1) (2 3)), each pair's the same on both: so all ranks have the same
//! bits, whatever the timing.

use super::doubling::{Doubling, Part, range_of};
use super::{ASIDE, DOWN, SHORT, UP, both, carry, check_operand};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::reduction::{Reduction, Side};
use crate::task::Task;
use forebay_core::Result;

impl Comm {
    /// Combines every rank's elements one by one; all get the result. What this rank gives stands in `from`, or where the result will be.
    /// It must be of the same length everywhere. Copies nothing but the messages.
    pub fn allreduce(&self, from: Option<&[u8]>, into: &mut [u8], reduction: &Reduction) -> Result<()> {
        check_operand(from, into, reduction)?;
        let task = self.collective(Kind::of(What::Allreduce).with(reduction));
        self.hub.run(&task, self.allreduce_of(&task, from, into, reduction))
    }

    pub(crate) async fn allreduce_of(
        &self,
        task: &Task,
        from: Option<&[u8]>,
        into: &mut [u8],
        reduction: &Reduction,
    ) -> Result<()> {
        if let Some(way) = self.near(into.len(), reduction, What::Allreduce) {
            return self.allreduce_near(task, way, (from, into), reduction).await;
        }
        let doubling = Doubling::of(self.size);
        let (place, takes_from) = match doubling.part(self.rank) {
            Part::Gives(other) => {
                self.put(task, other, UP, from.unwrap_or(into)).await?;
                return self.fill(task, other, ASIDE, into).await;
            }
            Part::Meets { place, takes_from } => (place, takes_from),
        };
        let mut from = from;
        if let Some(other) = takes_from {
            self.combine(task, (other, UP), (from.take(), into), (reduction, Side::Lower)).await?;
        }
        if doubling.is_short(into.len(), reduction.element()) {
            carry(from, into);
            self.exchange_all(task, doubling, place, into, reduction).await?;
        } else {
            self.halve(task, doubling, place, (from, into), reduction).await?;
            self.gather_halves(task, doubling, place, into, reduction.element()).await?;
        }
        match takes_from {
            Some(other) => self.put(task, other, ASIDE, into).await,
            None => Ok(()),
        }
    }

    /// Each pair exchanges all, and combines it in the same order.
    async fn exchange_all(
        &self,
        task: &Task,
        doubling: Doubling,
        place: u32,
        bytes: &mut [u8],
        reduction: &Reduction,
    ) -> Result<()> {
        for distance in doubling.distances() {
            let other = doubling.rank_at(place ^ distance);
            let how = (reduction, if place & distance == 0 { Side::Higher } else { Side::Lower });
            let tag = DOWN + u64::from(distance);
            if bytes.len() <= SHORT {
                // They are copied, and may be changed once they are on their way.
                self.put(task, other, tag, bytes).await?;
                self.combine(task, (other, tag), (None, bytes), how).await?;
            } else {
                let given = bytes.to_vec();
                both(
                    self.put(task, other, tag, &given),
                    self.combine(task, (other, tag), (None, bytes), how),
                )
                .await?;
            }
        }
        Ok(())
    }

    /// Each pair halves what it has, and combines one half each: at the end every place has its range of all.
    pub(super) async fn halve(
        &self,
        task: &Task,
        doubling: Doubling,
        place: u32,
        (mut from, into): (Option<&[u8]>, &mut [u8]),
        reduction: &Reduction,
    ) -> Result<()> {
        let element = reduction.element();
        let elements = into.len() / element;
        if doubling.places == 1 {
            carry(from, into);
        }
        for (round, distance) in (1..).zip(doubling.distances()) {
            let other = doubling.rank_at(place ^ distance);
            let how = (reduction, if place & distance == 0 { Side::Higher } else { Side::Lower });
            let kept = range_of(place, round, elements);
            let given = range_of(place ^ distance, round, elements);
            let tag = DOWN + u64::from(distance);
            let [own, away] = [&kept, &given].map(|range| range.start * element..range.end * element);
            match from.take() {
                Some(from) => {
                    let send = self.put(task, other, tag, &from[away]);
                    let operands = (Some(&from[own.clone()]), &mut into[own]);
                    both(send, self.combine(task, (other, tag), operands, how)).await?;
                }
                None => {
                    let (kept, given) = two_ranges(into, kept, given, element);
                    let send = self.put(task, other, tag, given);
                    both(send, self.combine(task, (other, tag), (None, kept), how)).await?;
                }
            }
        }
        Ok(())
    }

    async fn gather_halves(
        &self,
        task: &Task,
        doubling: Doubling,
        place: u32,
        bytes: &mut [u8],
        element: usize,
    ) -> Result<()> {
        let elements = bytes.len() / element;
        let rounds = doubling.places.ilog2();
        for round in (1..=rounds).rev() {
            let distance = 1 << (round - 1);
            let other = doubling.rank_at(place ^ distance);
            let mine = range_of(place, round, elements);
            let theirs = range_of(place ^ distance, round, elements);
            let (theirs, mine) = two_ranges(bytes, theirs, mine, element);
            let tag = DOWN + u64::from(doubling.places) + u64::from(distance);
            both(self.put(task, other, tag, mine), self.fill(task, other, tag, theirs)).await?;
        }
        Ok(())
    }

    /// As [`Comm::allreduce`], of bytes whose meaning only the caller knows, and which may change their length: as [`Comm::reduce_by`]
    /// combines them, at rank 0, which tells the others.
    pub fn allreduce_by(&self, bytes: Vec<u8>, combine: impl Fn(&mut Vec<u8>, &[u8])) -> Result<Vec<u8>> {
        let task = self.collective(Kind::of(What::Allreduce));
        self.hub.run(&task, async {
            let combined = self.combine_up(&task, bytes, combine).await?;
            self.broadcast_of(&task, 0, combined.unwrap_or_default()).await
        })
    }
}

/// Two ranges of elements that do not overlap.
fn two_ranges(
    bytes: &mut [u8],
    first: std::ops::Range<usize>,
    second: std::ops::Range<usize>,
    element: usize,
) -> (&mut [u8], &mut [u8]) {
    let [first, second] = [first, second].map(|range| range.start * element..range.end * element);
    if first.start < second.start {
        let (low, high) = bytes.split_at_mut(second.start);
        (&mut low[first], &mut high[..second.len()])
    } else {
        let (low, high) = bytes.split_at_mut(first.start);
        (&mut high[..first.len()], &mut low[second])
    }
}
