//! Blocks of all ranks in one buffer, wherever they stand.

use super::memory::Part;
use crate::errors::raise;
use forebay_client::Error;
use pyo3::prelude::*;

/// Lengths and offsets of the blocks of all ranks, in bytes.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) counts: Vec<usize>,
    offsets: Vec<usize>,
}

/// As Python gives it; none where all blocks are of one length, one behind the other.
pub(super) type Given = Option<(Vec<usize>, Vec<usize>)>;

impl Layout {
    /// Blocks of these lengths, or of equal ones, in a buffer.
    pub(super) fn of(given: Given, size: u32, part: &Part) -> PyResult<Layout> {
        let size = size as usize;
        let (counts, offsets) = match given {
            Some(given) => given,
            None => {
                let count = part.count() / size * part.element.bytes;
                if count * size != part.bytes() {
                    return Err(raise(Error::invalid(format!(
                        "message: a buffer of {} elements does not hold as many for each of {size} ranks",
                        part.count()
                    ))));
                }
                (vec![count; size], (0..size).map(|rank| rank * count).collect())
            }
        };
        Layout { counts, offsets }.checked(size, part.bytes()).map_err(raise)
    }

    fn checked(self, size: usize, bytes: usize) -> forebay_client::Result<Layout> {
        if self.counts.len() != size || self.offsets.len() != size {
            return Err(Error::invalid(format!(
                "message: {} lengths and {} offsets are given for the blocks of {size} ranks",
                self.counts.len(),
                self.offsets.len()
            )));
        }
        let fits =
            self.offsets.iter().zip(&self.counts).all(|(offset, count)| {
                offset.checked_add(*count).is_some_and(|end| end <= bytes || *count == 0)
            });
        if !fits {
            return Err(Error::invalid(format!(
                "message: blocks end beyond the buffer, which has {bytes} bytes"
            )));
        }
        Ok(self)
    }

    /// Whether they stand one behind the other, from the beginning on.
    pub(super) fn is_packed(&self) -> bool {
        let mut end = 0;
        self.offsets.iter().zip(&self.counts).all(|(offset, count)| {
            let fits = *offset == end || *count == 0;
            end += count;
            fits
        })
    }

    /// How many bytes they have together.
    pub(super) fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The block of a rank.
    pub(super) fn block<'a>(&self, all: &'a [u8], rank: u32) -> &'a [u8] {
        let rank = rank as usize;
        if self.counts[rank] == 0 { &[] } else { &all[self.offsets[rank]..][..self.counts[rank]] }
    }

    /// All of them, one behind the other.
    pub(super) fn packed(&self, all: &[u8]) -> Vec<u8> {
        (0..self.counts.len() as u32).flat_map(|rank| self.block(all, rank)).copied().collect()
    }

    /// The opposite.
    pub(super) fn unpack(&self, packed: &[u8], all: &mut [u8]) {
        let mut start = 0;
        for (offset, count) in self.offsets.iter().zip(&self.counts).filter(|(_, count)| **count > 0) {
            all[*offset..][..*count].copy_from_slice(&packed[start..][..*count]);
            start += count;
        }
    }
}
