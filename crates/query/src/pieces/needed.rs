//! Which elements of a field are needed for those of a part, and where they lie in the array.

use crate::plan::Program;
use forebay_core::block::Extent;
use forebay_core::contract::Field;
use forebay_core::region::{Dims, MAX_NDIM, Region};
use forebay_core::selection::Selection;

/// A box of elements, which may reach beyond the ends of a periodic dimension.
pub(super) struct Needed {
    pub(super) origin: [i64; MAX_NDIM],
    pub(super) shape: Dims,
}

impl Needed {
    /// Those of a part, and the neighbours that a program takes of a field.
    pub(super) fn of(part: &Selection, program: &Program, index: u16, field: &Field, shape: &Dims) -> Needed {
        let (mut origin, mut extents) = ([0; MAX_NDIM], Dims::new());
        for d in 0..part.shape.len() {
            let (below, above) = program.reach(index, d as u8);
            let first = part.offset[d] as i64;
            let end = first + part.extent(d).unwrap_or_default() as i64;
            let is_periodic = field.periodic.get(d) == Some(&true);
            let (least, most) = if is_periodic { (i64::MIN, i64::MAX) } else { (0, shape[d] as i64) };
            let low = (first - below).max(least).min(first);
            let high = (end + above).min(most).max(end);
            origin[d] = low;
            extents.push((high - low) as u64);
        }
        Needed { origin, shape: extents }
    }

    /// Whether a block stores all of it, side by side.
    pub(super) fn lies_in(&self, extent: &Extent) -> bool {
        let (first, stored) = (first_of(extent), extent.stored_shape());
        let lies = |d: usize| {
            let end = self.origin[d] + self.shape[d] as i64;
            first[d] <= self.origin[d] && end <= first[d] + stored[d] as i64
        };
        extent.offset().is_some() && extent.step().is_none() && (0..self.shape.len()).all(lies)
    }

    /// The parts of it that lie side by side in an array of this shape, and where each belongs.
    pub(super) fn pieces(&self, shape: &[u64]) -> Vec<(Selection, Region)> {
        let mut pieces: Vec<(Dims, Dims, Dims)> = vec![Default::default()];
        for ((n, extent), origin) in shape.iter().zip(&self.shape).zip(self.origin) {
            let n = (*n).max(1) as i64;
            let mut cuts = Vec::new();
            let mut done = 0;
            while done < *extent {
                let at = (origin + done as i64).rem_euclid(n) as u64;
                let count = (extent - done).min(n as u64 - at);
                cuts.push((at, count, done));
                done += count;
            }
            let longer = |(offset, extents, place): &(Dims, Dims, Dims)| {
                let (offset, extents, place) = (offset.clone(), extents.clone(), place.clone());
                let cuts = cuts.clone();
                cuts.into_iter().map(move |(at, count, done)| {
                    let add =
                        |dims: &Dims, number: u64| dims.iter().copied().chain([number]).collect::<Dims>();
                    (add(&offset, at), add(&extents, count), add(&place, done))
                })
            };
            pieces = pieces.iter().flat_map(longer).collect();
        }
        let one = |(offset, extents, place): (Dims, Dims, Dims)| {
            let from = Selection::region(&Region::new(&offset, &extents).ok()?);
            Some((from, Region::new(&place, &extents).ok()?))
        };
        pieces.into_iter().filter_map(one).collect()
    }
}

/// The index of the first element that a block stores.
pub(super) fn first_of(extent: &Extent) -> [i64; MAX_NDIM] {
    let mut first = [0; MAX_NDIM];
    for (d, low) in extent.ghost_low().iter().enumerate() {
        let offset = extent.offset().map_or(0, |offset| offset[d]);
        first[d] = offset as i64 - *low as i64;
    }
    first
}
