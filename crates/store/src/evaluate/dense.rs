//! Elements that lie in short runs, side by side: copied once for all that is computed with them.

use crate::evaluate::runs::Runs;
use crate::evaluate::window::{FieldArray, Window};
use forebay_core::region::{Dims, MAX_NDIM};
use forebay_query::plan::Program;

/// Runs of fewer elements are copied.
const SHORT: u64 = 512;

/// Buffers for the arrays of a window, used again.
#[derive(Debug, Default)]
pub(super) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// A window of the same elements, whose arrays lie here, with as many neighbours as these programs take; `None` if nothing is won by
    /// that.
    pub(super) fn dense<'a>(&'a mut self, window: &Window<'a>, programs: &[&Program]) -> Option<Window<'a>> {
        let there = window.arrays.iter().flatten();
        let is_short = Runs::new(&window.part, there).length() < SHORT.min(window.part.volume());
        if !is_short || !window.part.is_dense() || !window.arrays.iter().flatten().all(FieldArray::is_filled)
        {
            return None;
        }
        let Buffers(buffers) = self;
        buffers.resize_with(window.arrays.len(), Vec::new);
        let boxes: Vec<Option<(Dims, Dims)>> = window
            .arrays
            .iter()
            .enumerate()
            .map(|(field, array)| box_of(field as u16, array.as_ref()?, window, programs))
            .collect();
        for ((array, buffer), place) in window.arrays.iter().zip(buffers.iter_mut()).zip(&boxes) {
            buffer.clear();
            if let (Some(array), Some((first, shape))) = (array, place) {
                copy(array, first, shape, buffer);
            }
        }
        let arrays = window.arrays.iter().zip(buffers.iter()).zip(boxes).map(|((array, bytes), place)| {
            let (array, (first, shape)) = (array.as_ref()?, place?);
            let mut origin = [0; MAX_NDIM];
            for (d, first) in first.iter().enumerate() {
                origin[d] = array.origin[d] + *first as i64;
            }
            Some(FieldArray { bytes, dtype: array.dtype, origin, shape })
        });
        Some(Window { arrays: arrays.collect(), ..window.clone() })
    }
}

/// Which elements of an array are needed: the first, counted from its own first, and how many in each dimension.
fn box_of(
    field: u16,
    array: &FieldArray<'_>,
    window: &Window<'_>,
    programs: &[&Program],
) -> Option<(Dims, Dims)> {
    let (mut first, mut shape) = (Dims::new(), Dims::new());
    for d in 0..window.part.shape.len() {
        let reaches = programs.iter().map(|program| program.reach(field, d as u8));
        let (below, above) = reaches.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
        let own = i64::try_from(window.part.offset[d]).ok()? - array.origin[d];
        let low = (own - below).max(0);
        let high = (own + i64::try_from(window.part.shape[d]).ok()? + above).min(array.shape[d] as i64);
        first.push(u64::try_from(low).ok()?);
        shape.push(u64::try_from(high - low).ok()?);
    }
    Some((first, shape))
}

/// Copies a box of an array, row by row.
fn copy(array: &FieldArray<'_>, first: &[u64], shape: &[u64], to: &mut Vec<u8>) {
    let (element, ndim) = (array.dtype.size(), shape.len());
    let Some(last) = ndim.checked_sub(1) else { return to.extend_from_slice(array.bytes) };
    let row = shape[last] as usize * element;
    let mut at = vec![0; last];
    if shape.contains(&0) {
        return;
    }
    loop {
        let outer = at.iter().zip(first).zip(&array.shape);
        let place = outer.fold(0, |place, ((at, first), extent)| place * extent + at + first);
        let begin = (place * array.shape[last] + first[last]) as usize * element;
        // The box lies in the array, whose bytes are all there.
        to.extend_from_slice(array.bytes.get(begin..begin + row).unwrap_or_default());
        let Some(d) = (0..last).rev().find(|d| at[*d] + 1 < shape[*d]) else { return };
        at[d] += 1;
        at[d + 1..].fill(0);
    }
}
