//! Numbers by their keys: counted in buckets, or found within a range.

use crate::evaluate::CHUNK;
use crate::evaluate::value::{Chunk, Value};
use forebay_query::gather::BUCKETS;

/// Numbers that follow each other are counted in different tables: one that is the same as the last need not wait for that.
const TABLES: usize = 4;

/// How many numbers have their keys in each bucket.
pub(super) struct Buckets {
    low: u64,
    shift: u32,
    tables: Vec<[u32; BUCKETS]>,
    /// What was counted before the tables were full.
    counts: Vec<u64>,
    /// How many chunks the tables hold.
    chunks: u32,
}

impl Buckets {
    /// The first begins at `low`, each is `2^shift` wide.
    pub(super) fn new(low: u64, shift: u32) -> Buckets {
        let tables = vec![[0; BUCKETS]; TABLES];
        Buckets { low, shift: shift.min(u64::BITS - 1), tables, counts: vec![0; BUCKETS], chunks: 0 }
    }

    /// Counts the numbers of a chunk, of which so many are NaN.
    #[inline(always)]
    pub(super) fn add<T: Value>(&mut self, chunk: Chunk<'_, T>, nans: u64) {
        let (low, shift) = (self.low, self.shift);
        let bucket = |number: T| (number.key().wrapping_sub(low) >> shift) as usize;
        if chunk.mask.is_some() || nans > 0 {
            chunk.numbers(|number| {
                if number.key() >= low
                    && let Some(count) = self.counts.get_mut(bucket(number))
                {
                    *count += 1;
                }
            });
            return;
        }
        if low == 0 && u64::MAX >> shift < BUCKETS as u64 {
            let (rows, rest) = chunk.values.as_chunks::<TABLES>();
            for row in rows {
                for (table, number) in self.tables.iter_mut().zip(row) {
                    table[bucket(*number) % BUCKETS] += 1;
                }
            }
            for (table, number) in self.tables.iter_mut().zip(rest) {
                table[bucket(*number) % BUCKETS] += 1;
            }
        } else {
            let last = ((BUCKETS as u64) << shift).wrapping_sub(1);
            // Buckets reach beyond the last key.
            let last = if last >> shift < BUCKETS as u64 - 1 { u64::MAX } else { last };
            let last = last.min(u64::MAX - low);
            let mut next = 0;
            within(chunk.values, low, last, |number| {
                next = (next + 1) % TABLES;
                self.tables[next][bucket(number) % BUCKETS] += 1;
            });
        }
        self.chunks += 1;
        if self.chunks as usize == u32::MAX as usize / CHUNK {
            self.empty_tables();
        }
    }

    fn empty_tables(&mut self) {
        for table in &mut self.tables {
            self.counts.iter_mut().zip(table.iter()).for_each(|(all, count)| *all += u64::from(*count));
            table.fill(0);
        }
        self.chunks = 0;
    }

    /// What was counted.
    pub(super) fn finish(mut self) -> Vec<u64> {
        self.empty_tables();
        self.counts
    }
}

/// Takes the numbers whose keys lie from `low` to `last` behind it. None of them is NaN.
#[inline(always)]
pub(super) fn within<T: Value>(values: &[T], low: u64, last: u64, mut take: impl FnMut(T)) {
    let mut inside = [0u8; CHUNK];
    for (inside, number) in inside.iter_mut().zip(values) {
        *inside = (number.key().wrapping_sub(low) <= last).into();
    }
    let (rows, _) = inside.as_chunks::<8>();
    for (row, values) in rows.iter().zip(values.chunks(8)) {
        // A byte is 1 where the number is inside.
        let mut left = u64::from_le_bytes(*row);
        while left != 0 {
            let place = (left.trailing_zeros() / 8) as usize;
            if let Some(number) = values.get(place) {
                take(*number);
            }
            left &= left - 1;
        }
    }
}
