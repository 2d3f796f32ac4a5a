//! Elements come run by run, and become the statistics of a block.

use crate::extremes::{Copying, Float};
use crate::stats::compared::Compared;
use crate::stats::moments::of_tile;
use crate::stats::position::position;
use forebay_core::block::Extent;
use forebay_core::dtype::Dtype;
use forebay_core::stats::{BlockStats, Extremes, Moments, Stats, StatsOfBlock, Value, tile_bytes};
use std::cmp::Ordering;
use std::ops::Range;

/// Takes in the elements of a block's interior, one run after the other, and makes its statistics of them: of all, and the
/// bounds of each tile.
#[derive(Debug)]
pub struct Accumulator {
    dtype: Dtype,
    /// Bytes of a tile.
    tile: usize,
    /// What was found of tiles that are full.
    all: Compared,
    moments: Option<Summed>,
    /// What came of a tile that is not full yet, and how many bytes.
    begun: Compared,
    filled: usize,
    bounds: Vec<u8>,
    /// The extremes, and in which tiles the first of each lies.
    least: Option<(Value, usize)>,
    greatest: Option<(Value, usize)>,
}

/// What is added up.
#[derive(Debug)]
struct Summed {
    all: Stats,
    /// The bytes of a tile that is not full yet: they are read twice.
    begun: Vec<u8>,
}

impl Accumulator {
    /// Of a block of this dtype, whose interior has so many bytes: with what is wanted.
    pub fn new(dtype: Dtype, interior: u64, wanted: StatsOfBlock) -> Accumulator {
        let tile = usize::try_from(tile_bytes(interior)).unwrap_or(usize::MAX);
        let moments = (wanted == StatsOfBlock::All).then(|| Summed { all: Stats::EMPTY, begun: Vec::new() });
        Accumulator {
            dtype,
            tile,
            all: Compared::NOTHING,
            moments,
            begun: Compared::NOTHING,
            filled: 0,
            bounds: Vec::new(),
            least: None,
            greatest: None,
        }
    }

    /// Takes in elements: dense, whole ones, of any alignment.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(self.tile - self.filled));
            self.add_within_tile(now);
            bytes = rest;
        }
    }

    /// Copies elements that lie side by side, and takes them in on the way: past the cache, if so asked.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `bytes`, whole elements, and they do not overlap. What is copied past the cache
    /// needs [`crate::streaming::finish`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn copy(&mut self, to: *mut u8, from: *const u8, bytes: usize, streams: bool) {
        let copying = if streams { Copying::Streamed } else { Copying::Stored };
        let mut done = 0;
        while done < bytes {
            let now = (bytes - done).min(self.tile - self.filled);
            // SAFETY: they lie within both ranges.
            unsafe {
                let (to, from) = (to.add(done), from.add(done));
                match self.dtype {
                    Dtype::F64 if self.moments.is_none() => {
                        let found = f64::look(to.cast(), from.cast(), now / 8, copying);
                        self.begun.merge(Compared::of_floats(found, now / 8));
                        self.fill(now);
                    }
                    Dtype::F32 if self.moments.is_none() => {
                        let found = f32::look(to.cast(), from.cast(), now / 4, copying);
                        self.begun.merge(Compared::of_floats(found, now / 4));
                        self.fill(now);
                    }
                    _ => {
                        std::ptr::copy_nonoverlapping(from, to, now);
                        self.add_within_tile(std::slice::from_raw_parts(to, now));
                    }
                }
            }
            done += now;
        }
    }

    /// Takes in the interior of a block: its bytes are dense and row-major, ghosts included.
    pub fn add_interior(&mut self, bytes: &[u8], extent: &Extent) {
        for (_, row) in interior_rows(extent, self.dtype.size(), 0) {
            if let Some(row) = bytes.get(row) {
                self.add(row);
            }
        }
    }

    /// The statistics of all that came: these are the bytes of the block, ghosts included.
    pub fn finish(mut self, bytes: &[u8], extent: &Extent) -> BlockStats {
        self.close_tile();
        let one_tile = self.bounds.len() <= 2 * self.dtype.size();
        let tiles = if one_tile { Box::default() } else { std::mem::take(&mut self.bounds).into() };
        let place = |known: Option<(Value, usize)>| {
            let (value, tile) = known?;
            Some(self.place_of(value, tile, bytes, extent))
        };
        let extremes = place(self.least).zip(place(self.greatest));
        let extremes = extremes.map(|((min, min_at), (max, max_at))| Extremes { min, max, min_at, max_at });
        let moments = self.moments.map(|Summed { all, .. }| Moments { sum: all.sum, m2: all.m2 });
        BlockStats { extremes, count: self.all.count, nan: self.all.nan, moments, tiles }
    }

    /// The statistics of all that came, if moments are among them.
    pub fn finish_whole(mut self) -> Option<Stats> {
        self.close_tile();
        self.moments.map(|Summed { all, .. }| all)
    }

    fn add_within_tile(&mut self, bytes: &[u8]) {
        let Some(Summed { begun, .. }) = &mut self.moments else {
            self.begun.merge(Compared::of(self.dtype, bytes));
            return self.fill(bytes.len());
        };
        if bytes.len() == self.tile {
            self.filled = bytes.len();
            self.add_tile(bytes);
            return self.close_tile();
        }
        if begun.capacity() == 0 {
            begun.reserve_exact(self.tile.min(bytes.len().next_power_of_two()));
        }
        begun.extend_from_slice(bytes);
        self.fill(bytes.len());
    }

    fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
        if self.filled == self.tile {
            self.close_tile();
        }
    }

    fn add_tile(&mut self, bytes: &[u8]) {
        let found = of_tile(self.dtype, bytes);
        self.begun = Compared::of_stats(&found);
        if let Some(Summed { all, .. }) = &mut self.moments {
            all.merge(&found);
        }
    }

    fn close_tile(&mut self) {
        if self.filled == 0 {
            return;
        }
        if let Some(Summed { begun, .. }) = &mut self.moments
            && !begun.is_empty()
        {
            let mut bytes = std::mem::take(begun);
            self.add_tile(&bytes);
            bytes.clear();
            self.moments.iter_mut().for_each(|moments| moments.begun = std::mem::take(&mut bytes));
        }
        let tile = self.bounds.len() / (2 * self.dtype.size());
        let found = std::mem::replace(&mut self.begun, Compared::NOTHING);
        self.filled = 0;
        let nan = Value::Float(f64::NAN);
        let (min, max) = found.bounds.unwrap_or((nan, nan));
        min.write(self.dtype, &mut self.bounds);
        max.write(self.dtype, &mut self.bounds);
        if let Some((min, max)) = found.bounds {
            let beats = |known: Option<(Value, usize)>, value: Value, wins: Ordering| {
                known.is_none_or(|(best, _)| value.order(best) == Some(wins))
            };
            if beats(self.least, min, Ordering::Less) {
                self.least = Some((min, tile));
            }
            if beats(self.greatest, max, Ordering::Greater) {
                self.greatest = Some((max, tile));
            }
        }
        self.all.merge(found);
    }

    /// The first element of a tile that is the same as a value: as it is, and where it lies in the interior. Memory that somebody goes on
    /// writing to may have none: then it is the first of the tile.
    fn place_of(&self, value: Value, tile: usize, bytes: &[u8], extent: &Extent) -> (Value, u64) {
        let element = self.dtype.size();
        let first = (tile * self.tile / element) as u64;
        let end = first + (self.tile / element) as u64;
        for (before, row) in interior_rows(extent, element, first) {
            if before >= end {
                break;
            }
            let skip = first.saturating_sub(before) as usize * element;
            let row = bytes.get(row).and_then(|row| row.get(skip..)).unwrap_or_default();
            if let Some(place) = position(self.dtype, row, value) {
                let found = Value::read(self.dtype, &row[place * element..]);
                return (found, before + (skip / element + place) as u64);
            }
        }
        (value, first)
    }
}

/// The runs of a block's interior, from that on in which an element lies: how many elements lie before each, and the bytes of its array as
/// that is stored.
fn interior_rows(
    extent: &Extent,
    element: usize,
    from: u64,
) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
    let (shape, low, stored) = (extent.shape().to_vec(), extent.ghost_low(), extent.stored_shape());
    // Without ghosts all elements lie in one.
    let last = shape.len().checked_sub(1).filter(|_| extent.has_ghosts());
    let (rows, length) = match last {
        Some(last) => (shape[..last].iter().product::<u64>(), shape[last]),
        None => (1, shape.iter().product()),
    };
    let rows = if length == 0 { 0 } else { rows };
    (from.checked_div(length).unwrap_or(0)..rows).map(move |row| {
        let mut at = 0;
        if let Some(last) = last {
            let (mut left, mut stride) = (row, stored[last]);
            at = low[last];
            for d in (0..last).rev() {
                at += (left % shape[d] + low[d]) * stride;
                left /= shape[d];
                stride *= stored[d];
            }
        }
        let first = at as usize * element;
        (row * length, first..first + length as usize * element)
    })
}
