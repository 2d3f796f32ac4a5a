//! A Hilbert curve over the tiles of a domain of any shape.
//!
//! The curve is drawn through the enclosing cube of a power of two (Skilling, "Programming the Hilbert
//! curve", 2004), but only tiles that exist are numbered: the index costs memory for the domain's true
//! shape, never for the cube (the padding is what made the index of DataSpaces grow out of bounds).

use crate::region::{Dims, Region};

/// A domain cut into equal tiles, numbered along the curve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiling {
    shape: Dims,
    /// Extent of a tile in each dimension.
    tile: Dims,
    /// Number of tiles in each dimension.
    counts: Dims,
    /// For each tile, in row-major order, its place on the curve.
    places: Vec<u32>,
}

impl Tiling {
    /// Cuts a domain of this shape into at least `wanted` tiles if it has so many elements, and not many
    /// more: dimensions are halved, longest tile first. `wanted` is at most 65,536.
    pub fn new(shape: &[u64], wanted: usize) -> Tiling {
        let wanted = wanted.clamp(1, 1 << 16);
        let mut tile: Dims = shape.iter().map(|n| (*n).max(1)).collect();
        let mut counts: Dims = tile.iter().map(|_| 1).collect();
        while counts.iter().product::<u64>() < wanted as u64 {
            let Some(longest) = (0..tile.len()).filter(|d| tile[*d] > 1).max_by_key(|d| tile[*d]) else {
                break;
            };
            tile[longest] = tile[longest].div_ceil(2);
            counts[longest] = shape[longest].div_ceil(tile[longest]);
        }
        let total = counts.iter().product::<u64>() as usize;
        let bits = counts.iter().map(|n| 64 - (n - 1).leading_zeros()).max().unwrap_or(0);
        let mut order: Vec<(u128, u32)> = (0..total)
            .map(|tile| (hilbert_index(&unravel(tile as u64, &counts), bits), tile as u32))
            .collect();
        order.sort_unstable();
        let mut places = vec![0; total];
        for (place, (_, tile)) in order.iter().enumerate() {
            places[*tile as usize] = place as u32;
        }
        Tiling { shape: shape.into(), tile, counts, places }
    }

    /// How many tiles there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no tile: never.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The places on the curve of all tiles that a region touches, in no particular order.
    pub fn places_of(&self, region: &Region) -> Vec<u32> {
        let mut places = Vec::new();
        self.visit(region, |place, _| places.push(place));
        places
    }

    /// The parts into which the tiles cut a region, each with its tile's place on the curve.
    pub fn parts_of(&self, region: &Region) -> Vec<(u32, Region)> {
        let mut parts = Vec::new();
        self.visit(region, |place, at| {
            let offset: Dims = at.iter().zip(&self.tile).map(|(at, extent)| at * extent).collect();
            let ends = offset.iter().zip(&self.tile).zip(&self.shape);
            let shape = ends.map(|((low, extent), end)| (*extent).min(end - low)).collect();
            parts.extend(Region::from_checked(offset, shape).intersect(region).map(|part| (place, part)));
        });
        parts
    }

    /// Calls `tell` with the place and the coordinates of every tile that a region touches.
    fn visit(&self, region: &Region, mut tell: impl FnMut(u32, &[u64])) {
        let n = self.counts.len();
        if region.ndim() != n || region.is_empty() {
            return;
        }
        let low: Dims = (0..n).map(|d| (region.offset()[d] / self.tile[d]).min(self.counts[d] - 1)).collect();
        let high: Dims =
            (0..n).map(|d| ((region.end(d) - 1) / self.tile[d]).min(self.counts[d] - 1)).collect();
        let mut at = low.clone();
        loop {
            let index = (0..n).fold(0, |index, d| index * self.counts[d] + at[d]);
            tell(self.places[index as usize], &at);
            let Some(d) = (0..n).rev().find(|d| at[*d] < high[*d]) else { return };
            at[d] += 1;
            at[d + 1..].copy_from_slice(&low[d + 1..]);
        }
    }

    /// Which of `owners` equal ranges of the curve a place belongs to.
    pub fn range_of(&self, place: u32, owners: usize) -> usize {
        (u64::from(place) * owners as u64 / self.places.len() as u64) as usize
    }
}

fn unravel(mut index: u64, counts: &[u64]) -> Dims {
    let mut at: Dims = counts.into();
    for d in (0..counts.len()).rev() {
        at[d] = index % counts[d];
        index /= counts[d];
    }
    at
}

/// The position along the curve of a point in a cube of `2^bits` in each dimension.
fn hilbert_index(point: &[u64], bits: u32) -> u128 {
    let n = point.len();
    if n == 0 || bits == 0 {
        return 0;
    }
    let mut x: Dims = point.into();
    let mut q = 1u64 << (bits - 1);
    while q > 1 {
        let p = q - 1;
        for i in 0..n {
            if x[i] & q != 0 {
                x[0] ^= p;
            } else {
                let t = (x[0] ^ x[i]) & p;
                x[0] ^= t;
                x[i] ^= t;
            }
        }
        q >>= 1;
    }
    for i in 1..n {
        x[i] ^= x[i - 1];
    }
    let mut t = 0;
    let mut q = 1u64 << (bits - 1);
    while q > 1 {
        if x[n - 1] & q != 0 {
            t ^= q - 1;
        }
        q >>= 1;
    }
    let mut index = 0u128;
    for bit in (0..bits).rev() {
        for value in x.iter() {
            index = (index << 1) | u128::from(((value ^ t) >> bit) & 1);
        }
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_the_curve_are_neighbours_in_space() {
        for (ndim, bits) in [(2usize, 4u32), (3, 3)] {
            let counts = vec![1u64 << bits; ndim];
            let total = counts.iter().product::<u64>();
            let mut points: Vec<_> = (0..total).map(|i| unravel(i, &counts)).collect();
            points.sort_by_key(|point| hilbert_index(point, bits));
            for pair in points.windows(2) {
                let distance: u64 = (0..ndim).map(|d| pair[0][d].abs_diff(pair[1][d])).sum();
                assert_eq!(distance, 1, "{pair:?}");
            }
        }
    }

    #[test]
    fn the_true_shape_is_tiled_without_padding() {
        let tiling = Tiling::new(&[1000, 3, 70], 64);
        assert!((64..=160).contains(&tiling.len()), "{}", tiling.len());
        let whole = Region::whole(&[1000, 3, 70]).unwrap();
        let mut places = tiling.places_of(&whole);
        places.sort_unstable();
        assert_eq!(places, (0..tiling.len() as u32).collect::<Vec<_>>());
        let part = Region::new(&[37, 1, 5], &[700, 2, 64]).unwrap();
        let parts = tiling.parts_of(&part);
        assert_eq!(parts.iter().map(|(_, part)| part.volume()).sum::<u64>(), part.volume());
        for (place, piece) in &parts {
            assert_eq!(tiling.places_of(piece), [*place], "{piece}");
        }
        assert_eq!(tiling.range_of(0, 4), 0);
        assert_eq!(tiling.range_of(tiling.len() as u32 - 1, 4), 3);
        assert_eq!(Tiling::new(&[], 64).len(), 1);
        assert_eq!(Tiling::new(&[0, 5], 1).places_of(&Region::new(&[0, 0], &[0, 5]).unwrap()), [0u32; 0]);
    }
}
