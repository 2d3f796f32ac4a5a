//! Copies between arrays of any strides.
//!
//! Dimensions that are contiguous in both arrays are merged first, so that the common cases are a few
//! long memory copies; what is left is copied element by element.
#![allow(unsafe_code)]

use crate::element::{Element, bytes_of, bytes_of_mut};
use crate::mapping::Mapping;
use crate::stats::Accumulator;
use crate::streaming;
use forebay_core::dtype::Dtype;
use forebay_core::region::{Dims, MAX_NDIM, Region};
use forebay_core::selection::Selection;
use forebay_core::stats::TILE_BYTES;
use forebay_core::{Error, ErrorKind, Result};
use std::marker::PhantomData;

/// Bytes between neighbours in each dimension; may be zero or negative.
pub type Strides = [i64; MAX_NDIM];

/// The strides of a dense, row-major array.
pub fn dense_strides(shape: &[u64], element: usize) -> Strides {
    let mut strides = [0; MAX_NDIM];
    let mut step = element as i64;
    for d in (0..shape.len()).rev() {
        strides[d] = step;
        step = step.wrapping_mul(shape[d].max(1) as i64);
    }
    strides
}

/// Somebody's array, to read from.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    data: *const u8,
    shape: Dims,
    strides: Strides,
    element: usize,
    dtype: Option<Dtype>,
    lives: PhantomData<&'a [u8]>,
}

/// Somebody's array, to write to.
#[derive(Debug)]
pub struct Target<'a> {
    data: *mut u8,
    shape: Dims,
    strides: Strides,
    element: usize,
    dtype: Option<Dtype>,
    /// Bytes of the array that it is a part of: what is filled piece by piece does not fit into the cache either.
    of_bytes: u64,
    lives: PhantomData<&'a mut [u8]>,
}

fn strides_of(shape: &[u64], strides: Option<&[i64]>, element: usize) -> Result<Strides> {
    let Some(given) = strides else { return Ok(dense_strides(shape, element)) };
    if given.len() != shape.len() {
        return Err(Error::out_of_bounds(format!("{} strides for {} dimensions", given.len(), shape.len())));
    }
    let mut all = [0; MAX_NDIM];
    all[..given.len()].copy_from_slice(given);
    Ok(all)
}

fn check_size(dtype: Dtype, element: usize) -> Result<()> {
    if dtype.size() == element {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::TypeMismatch,
        format!("elements of {element} bytes are no {dtype}, which has {}", dtype.size()),
    ))
}

impl<'a> Source<'a> {
    /// An array at an address that a user gave.
    ///
    /// # Safety
    /// For `'a`, every element that shape and strides reach must be readable and not be written.
    pub unsafe fn new(
        data: *const u8,
        shape: &[u64],
        strides: Option<&[i64]>,
        element: usize,
    ) -> Result<Source<'a>> {
        Region::whole(shape)?;
        let strides = strides_of(shape, strides, element)?;
        Ok(Source { data, shape: shape.into(), strides, element, dtype: None, lives: PhantomData })
    }

    /// A dense array in a slice of exactly its size.
    pub fn from_slice(bytes: &'a [u8], shape: &[u64], element: usize) -> Result<Source<'a>> {
        let region = Region::whole(shape)?;
        if region.volume().checked_mul(element as u64) != Some(bytes.len() as u64) {
            return Err(Error::out_of_bounds(format!("{} bytes do not hold shape {shape:?}", bytes.len())));
        }
        // SAFETY: the slice holds all elements of the dense array, and is borrowed for 'a.
        unsafe { Source::new(bytes.as_ptr(), shape, None, element) }
    }

    /// A dense array of values, which say their dtype.
    pub fn of<T: Element>(values: &'a [T], shape: &[u64]) -> Result<Source<'a>> {
        Source::from_slice(bytes_of(values), shape, size_of::<T>())?.typed(T::DTYPE)
    }

    /// Says what the elements are. Fails if they have another size.
    pub fn typed(self, dtype: Dtype) -> Result<Source<'a>> {
        check_size(dtype, self.element)?;
        Ok(Source { dtype: Some(dtype), ..self })
    }

    /// What the elements are, if that was said.
    pub fn dtype(&self) -> Option<Dtype> {
        self.dtype
    }

    /// The array's extents.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The array's bytes.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.element as u64
    }

    /// Some of its elements: in dimension `d` the elements `offset[d]`, `offset[d] + step[d]`, ...
    pub fn part(&self, part: &Selection) -> Result<Source<'a>> {
        if part.shape.len() != self.shape.len() || part.span_in(&self.shape).is_none() {
            return Err(Error::out_of_bounds(format!("part {part:?} lies outside shape {:?}", self.shape)));
        }
        let ndim = self.shape.len();
        let shift = (0..ndim).map(|d| part.offset[d] as i64 * self.strides[d]).sum::<i64>();
        let mut strides = self.strides;
        for (stride, step) in strides.iter_mut().zip(&part.step) {
            *stride *= *step as i64;
        }
        // All elements that are reached are some of those that `new` was promised.
        let data = self.data.wrapping_offset(shift as isize);
        Ok(Source { data, shape: part.shape.clone(), strides, ..self.clone() })
    }

    /// Its bytes as one slice, if it is dense.
    pub fn as_dense(&self) -> Option<&'a [u8]> {
        let bytes = self.bytes();
        if bytes == 0 {
            return Some(&[]);
        }
        let dense = dense_strides(&self.shape, self.element);
        let same = (0..self.shape.len()).all(|d| self.shape[d] == 1 || self.strides[d] == dense[d]);
        // SAFETY: a dense array's elements fill this range; they are readable for 'a as `new` demands.
        same.then(|| unsafe { std::slice::from_raw_parts(self.data, bytes as usize) })
    }

    /// Copies all of it, dense and row-major, into an arena's range that is the caller's to write, and
    /// computes statistics on the way if they are asked for.
    pub fn copy_to_mapping(
        &self,
        mapping: &Mapping,
        offset: u64,
        stats: Option<&mut Accumulator>,
    ) -> Result<()> {
        let target = mapping.address_mut(offset, self.bytes())?;
        // SAFETY: the source is readable as `new` demands; the target range was checked and is the caller's.
        unsafe { self.copy_to_address(target, stats) };
        Ok(())
    }

    /// Computes statistics of all of it, and copies nothing that lies in rows.
    pub fn count(&self, stats: &mut Accumulator) {
        if let Some(dense) = self.as_dense() {
            return stats.add(dense);
        }
        // Dimensions behind the first are counted one after the other, so that elements come in their order.
        let rows = Selection {
            offset: self.shape.iter().map(|_| 0).collect(),
            shape: std::iter::once(1).chain(self.shape.iter().skip(1).copied()).collect(),
            step: self.shape.iter().map(|_| 1).collect(),
        };
        let is_row = self.shape.len() < 2;
        for first in 0..self.shape.first().copied().unwrap_or(0) {
            let mut offset = rows.offset.clone();
            offset[0] = first;
            match self.part(&Selection { offset, ..rows.clone() }) {
                Ok(part) if is_row => stats.add(&part.to_vec(None)),
                Ok(part) => part.without_first().count(stats),
                // It lies inside.
                Err(_) => return,
            }
        }
    }

    /// The same without its first dimension, which has one element.
    fn without_first(&self) -> Source<'a> {
        let mut strides = [0; MAX_NDIM];
        strides[..MAX_NDIM - 1].copy_from_slice(&self.strides[1..]);
        Source { shape: self.shape.iter().skip(1).copied().collect(), strides, ..self.clone() }
    }

    /// Copies all of it, dense and row-major, into a new buffer.
    pub fn to_vec(&self, stats: Option<&mut Accumulator>) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes() as usize];
        // SAFETY: as above; the buffer has exactly the size.
        unsafe { self.copy_to_address(bytes.as_mut_ptr(), stats) };
        bytes
    }

    unsafe fn copy_to_address(&self, target: *mut u8, stats: Option<&mut Accumulator>) {
        let dense = dense_strides(&self.shape, self.element);
        // SAFETY: both sides hold all elements of the shape, by the callers' checks.
        unsafe {
            copy(target, &dense, self.data, &self.strides, &self.shape, self.element, self.bytes(), stats)
        }
    }
}

impl<'a> Target<'a> {
    /// An array at an address that a user gave.
    ///
    /// # Safety
    /// For `'a`, every element that shape and strides reach must be writable and used by nobody else, and
    /// no two indices may reach the same element.
    pub unsafe fn new(
        data: *mut u8,
        shape: &[u64],
        strides: Option<&[i64]>,
        element: usize,
    ) -> Result<Target<'a>> {
        Region::whole(shape)?;
        let strides = strides_of(shape, strides, element)?;
        let of_bytes = shape.iter().product::<u64>().saturating_mul(element as u64);
        Ok(Target { data, shape: shape.into(), strides, element, dtype: None, of_bytes, lives: PhantomData })
    }

    /// A dense array in a slice of exactly its size.
    pub fn from_slice(bytes: &'a mut [u8], shape: &[u64], element: usize) -> Result<Target<'a>> {
        let region = Region::whole(shape)?;
        if region.volume().checked_mul(element as u64) != Some(bytes.len() as u64) {
            return Err(Error::out_of_bounds(format!("{} bytes do not hold shape {shape:?}", bytes.len())));
        }
        // SAFETY: the slice holds all elements of the dense array, and is borrowed for 'a.
        unsafe { Target::new(bytes.as_mut_ptr(), shape, None, element) }
    }

    /// A dense array of values, which say their dtype.
    pub fn of<T: Element>(values: &'a mut [T], shape: &[u64]) -> Result<Target<'a>> {
        Target::from_slice(bytes_of_mut(values), shape, size_of::<T>())?.typed(T::DTYPE)
    }

    /// Says what the elements are. Fails if they have another size.
    pub fn typed(self, dtype: Dtype) -> Result<Target<'a>> {
        check_size(dtype, self.element)?;
        Ok(Target { dtype: Some(dtype), ..self })
    }

    /// What the elements are, if that was said.
    pub fn dtype(&self) -> Option<Dtype> {
        self.dtype
    }

    /// The array's extents.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The size of an element.
    pub fn element(&self) -> usize {
        self.element
    }

    /// A box of it.
    pub fn part(&mut self, region: &Region) -> Result<Target<'_>> {
        if !Region::whole(&self.shape)?.contains(region) {
            return Err(Error::out_of_bounds(format!("part {region} lies outside shape {:?}", self.shape)));
        }
        let shift: i64 = (0..region.ndim()).map(|d| region.offset()[d] as i64 * self.strides[d]).sum();
        // SAFETY: the first element of the part is an element of the array (or there is none).
        let data = if region.is_empty() { self.data } else { unsafe { self.data.offset(shift as isize) } };
        Ok(Target {
            data,
            shape: region.shape().into(),
            strides: self.strides,
            element: self.element,
            dtype: self.dtype,
            of_bytes: self.of_bytes,
            lives: PhantomData,
        })
    }

    /// All of it as one slice, if it is dense.
    pub fn as_dense(&mut self) -> Option<&mut [u8]> {
        let bytes = self.shape.iter().product::<u64>() as usize * self.element;
        let dense = dense_strides(&self.shape, self.element);
        let same = (0..self.shape.len()).all(|d| self.shape[d] == 1 || self.strides[d] == dense[d]);
        // SAFETY: a dense array's elements fill this range; it is ours for 'a as `new` demands.
        (bytes > 0 && same).then(|| unsafe { std::slice::from_raw_parts_mut(self.data, bytes) })
    }

    /// Sets all its elements to this one.
    pub fn fill_with(&mut self, element: &[u8]) -> Result<()> {
        if element.len() != self.element {
            return Err(Error::internal(format!(
                "an element of {} bytes, not {}",
                element.len(),
                self.element
            )));
        }
        let nowhere = [0; MAX_NDIM];
        // SAFETY: without strides the one element is read for each of the target's, which is ours.
        unsafe {
            copy(self.data, &self.strides, element.as_ptr(), &nowhere, &self.shape, self.element, 0, None);
        }
        Ok(())
    }

    /// Fills it from a selection of a dense array of extents `stored` in memory at `source`: in dimension
    /// `d`, the elements `offset[d]`, `offset[d] + step[d]`, ...
    ///
    /// # Safety
    /// `source` must be the address of that whole array, readable for the time of the call.
    pub unsafe fn fill_from(
        &mut self,
        source: *const u8,
        stored: &[u64],
        offset: &[u64],
        step: &[u64],
    ) -> Result<()> {
        let n = self.shape.len();
        if stored.len() != n || offset.len() != n || step.len() != n {
            return Err(Error::out_of_bounds("a selection has other dimensions than its array"));
        }
        if self.shape.contains(&0) {
            return Ok(());
        }
        let dense = dense_strides(stored, self.element);
        let mut strides = [0; MAX_NDIM];
        let mut first = 0i64;
        for d in 0..n {
            let last = (self.shape[d] - 1).checked_mul(step[d]).and_then(|span| span.checked_add(offset[d]));
            if step[d] == 0 || last.is_none_or(|last| last >= stored[d]) {
                return Err(Error::out_of_bounds(format!(
                    "selection {offset:?} + {:?} every {step:?} lies outside {stored:?}",
                    self.shape
                )));
            }
            strides[d] = dense[d] * step[d] as i64;
            first += dense[d] * offset[d] as i64;
        }
        // SAFETY: all selected elements lie inside the source array, as was just checked; the target is ours.
        unsafe {
            copy(
                self.data,
                &self.strides,
                source.offset(first as isize),
                &strides,
                &self.shape,
                self.element,
                self.of_bytes,
                None,
            )
        };
        Ok(())
    }

    /// Fills it from a selection of a dense array that lies in an arena, in a block that the caller holds.
    pub fn fill_from_mapping(
        &mut self,
        mapping: &Mapping,
        at: u64,
        stored: &[u64],
        offset: &[u64],
        step: &[u64],
    ) -> Result<()> {
        let bytes = stored.iter().try_fold(self.element as u64, |bytes, n| bytes.checked_mul(*n));
        let source =
            mapping.address(at, bytes.ok_or_else(|| Error::protocol("a block has an absurd shape"))?)?;
        // SAFETY: the mapping holds the whole array, and nobody writes to a block that is held.
        unsafe { self.fill_from(source, stored, offset, step) }
    }

    /// Fills it from a selection of a dense array in a slice.
    pub fn fill_from_slice(
        &mut self,
        source: &[u8],
        stored: &[u64],
        offset: &[u64],
        step: &[u64],
    ) -> Result<()> {
        let bytes = stored.iter().try_fold(self.element as u64, |bytes, n| bytes.checked_mul(*n));
        if bytes != Some(source.len() as u64) {
            return Err(Error::protocol(format!("{} bytes do not hold shape {stored:?}", source.len())));
        }
        // SAFETY: the slice holds the whole array.
        unsafe { self.fill_from(source.as_ptr(), stored, offset, step) }
    }
}

/// How much is copied element by element before its statistics are computed: it must still be in the nearest cache.
const CHUNK: usize = TILE_BYTES as usize;

/// Copies all elements of a shape from one array to another, which is, or is a part of, one of so many bytes.
///
/// # Safety
/// All elements that the shape reaches by `from_strides` are readable, all by `to_strides` writable, and
/// they do not overlap. With `stats`, the target is dense in its last dimension.
#[allow(clippy::too_many_arguments)]
unsafe fn copy(
    to: *mut u8,
    to_strides: &Strides,
    from: *const u8,
    from_strides: &Strides,
    shape: &[u64],
    element: usize,
    of_bytes: u64,
    mut stats: Option<&mut Accumulator>,
) {
    if shape.contains(&0) {
        return;
    }
    let plan = Plan::new(to_strides, from_strides, shape);
    let n = plan.shape.len();
    let (row, outer) = match n {
        0 => (1, 0),
        _ => (plan.shape[n - 1], n - 1),
    };
    let (to_step, from_step) =
        if n == 0 { (element as i64, element as i64) } else { (plan.to[n - 1], plan.from[n - 1]) };
    let row_bytes = row as usize * element;
    let contiguous = to_step == element as i64 && from_step == element as i64;
    // One long copy streams by itself, unless it is looked at on the way.
    let streams = contiguous
        && (stats.is_some() || outer > 0)
        && row_bytes >= streaming::ROW_MIN
        && of_bytes >= streaming::TOTAL_MIN;
    let mut at: [u64; MAX_NDIM] = [0; MAX_NDIM];
    loop {
        let shift = |strides: &Strides| (0..outer).map(|d| at[d] as i64 * strides[d]).sum::<i64>() as isize;
        // SAFETY: `at` is an index inside the shape, so both rows lie inside their arrays.
        unsafe {
            let (to, from) = (to.offset(shift(&plan.to)), from.offset(shift(&plan.from)));
            match &mut stats {
                None if streams => streaming::copy(to, from, row_bytes, 2 * plan.from[outer - 1] as isize),
                None => copy_row(to, to_step, from, from_step, row, element),
                Some(stats) if contiguous => stats.copy(to, from, row_bytes, streams),
                Some(stats) => {
                    let chunk = (CHUNK / element) as u64;
                    for first in (0..row).step_by(chunk as usize) {
                        let count = chunk.min(row - first);
                        let to = to.offset(first as isize * to_step as isize);
                        copy_row(
                            to,
                            to_step,
                            from.offset(first as isize * from_step as isize),
                            from_step,
                            count,
                            element,
                        );
                        stats.add(std::slice::from_raw_parts(to, count as usize * element));
                    }
                }
            }
        }
        let Some(d) = (0..outer).rev().find(|d| at[*d] + 1 < plan.shape[*d]) else { break };
        at[d] += 1;
        at[d + 1..outer].fill(0);
    }
    if streams {
        streaming::finish();
    }
}

/// A shape whose dimensions were merged where both arrays are contiguous.
struct Plan {
    shape: Dims,
    to: Strides,
    from: Strides,
}

impl Plan {
    fn new(to: &Strides, from: &Strides, shape: &[u64]) -> Plan {
        let mut plan = Plan { shape: Dims::new(), to: [0; MAX_NDIM], from: [0; MAX_NDIM] };
        for d in 0..shape.len() {
            if shape[d] == 1 {
                continue;
            }
            let last = plan.shape.len();
            let merges =
                |have: &Strides, new: &Strides| have[last - 1] == new[d].wrapping_mul(shape[d] as i64);
            if last > 0 && merges(&plan.to, to) && merges(&plan.from, from) {
                plan.shape[last - 1] *= shape[d];
                (plan.to[last - 1], plan.from[last - 1]) = (to[d], from[d]);
            } else {
                plan.shape.push(shape[d]);
                (plan.to[last], plan.from[last]) = (to[d], from[d]);
            }
        }
        plan
    }
}

unsafe fn copy_row(to: *mut u8, to_step: i64, from: *const u8, from_step: i64, count: u64, element: usize) {
    let count = count as usize;
    if to_step == element as i64 && from_step == element as i64 {
        // SAFETY: the caller vouches for both rows.
        unsafe { std::ptr::copy_nonoverlapping(from, to, count * element) };
        return;
    }
    macro_rules! each {
        ($bytes:literal) => {
            for i in 0..count as isize {
                // SAFETY: the caller vouches for both rows; unaligned access is allowed for byte arrays.
                unsafe {
                    let element = from.offset(i * from_step as isize).cast::<[u8; $bytes]>();
                    to.offset(i * to_step as isize).cast::<[u8; $bytes]>().write(element.read());
                }
            }
        };
    }
    match element {
        1 => each!(1),
        2 => each!(2),
        4 => each!(4),
        8 => each!(8),
        16 => each!(16),
        _ => {
            for i in 0..count as isize {
                // SAFETY: as above.
                unsafe {
                    let (from, to) = (from.offset(i * from_step as isize), to.offset(i * to_step as isize));
                    std::ptr::copy_nonoverlapping(from, to, element);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::block::Extent;
    use forebay_core::stats::{BlockStats, StatsOfBlock};
    use proptest::prelude::*;

    /// A reference that goes element by element.
    fn reference(
        data: &[u8],
        stored: &[u64],
        offset: &[u64],
        shape: &[u64],
        step: &[u64],
        element: usize,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let total: u64 = shape.iter().product();
        for i in 0..total {
            let (mut rest, mut index, mut scale) = (i, 0u64, 1u64);
            for d in (0..shape.len()).rev() {
                index += (offset[d] + (rest % shape[d]) * step[d]) * scale;
                rest /= shape[d];
                scale *= stored[d];
            }
            out.extend_from_slice(&data[index as usize * element..(index as usize + 1) * element]);
        }
        out
    }

    proptest! {
        #[test]
        fn selections_are_exact(
            dims in prop::collection::vec((1u64..6, 0u64..3, 1u64..3, 0u64..3), 0..4),
            element in prop::sample::select(vec![1usize, 2, 4, 8, 16]),
        ) {
            let shape: Vec<u64> = dims.iter().map(|(n, ..)| *n).collect();
            let offset: Vec<u64> = dims.iter().map(|(_, o, ..)| *o).collect();
            let step: Vec<u64> = dims.iter().map(|(_, _, s, _)| *s).collect();
            let stored: Vec<u64> = dims.iter().map(|(n, o, s, extra)| o + (n - 1) * s + 1 + extra).collect();
            let total = stored.iter().product::<u64>() as usize * element;
            let data: Vec<u8> = (0..total).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut out = vec![0; shape.iter().product::<u64>() as usize * element];
            Target::from_slice(&mut out, &shape, element).unwrap().fill_from_slice(&data, &stored, &offset, &step).unwrap();
            prop_assert_eq!(&out, &reference(&data, &stored, &offset, &shape, &step, element));
            // The same selection, as a strided source.
            let dense = dense_strides(&stored, element);
            let strides: Vec<i64> = (0..shape.len()).map(|d| dense[d] * step[d] as i64).collect();
            let first: i64 = (0..shape.len()).map(|d| dense[d] * offset[d] as i64).sum();
            // SAFETY: `stored` was made to hold the selection.
            let source = unsafe { Source::new(data.as_ptr().offset(first as isize), &shape, Some(&strides), element) }.unwrap();
            prop_assert_eq!(source.to_vec(None), out);
        }
    }

    #[test]
    fn selections_outside_are_refused() {
        let data = [0u8; 12];
        let mut out = [0u8; 4];
        let mut target = Target::from_slice(&mut out, &[2, 2], 1).unwrap();
        assert!(target.fill_from_slice(&data, &[3, 4], &[2, 0], &[1, 1]).is_err());
        assert!(target.fill_from_slice(&data, &[3, 4], &[0, 0], &[1, 4]).is_err());
        assert!(target.fill_from_slice(&data, &[3, 4], &[0, 0], &[0, 1]).is_err());
        assert!(target.fill_from_slice(&data, &[3, 4], &[1, 2], &[1, 1]).is_ok());
    }

    #[test]
    fn values_say_their_dtype() {
        let mut values = [1.5f32, 2.5];
        assert_eq!(Source::of(&values, &[2]).unwrap().dtype(), Some(Dtype::F32));
        assert!(Source::of(&values, &[3]).is_err());
        assert_eq!(Source::from_slice(&[0; 8], &[2], 4).unwrap().dtype(), None);
        assert!(Source::from_slice(&[0; 8], &[2], 4).unwrap().typed(Dtype::I64).is_err());
        let mut target = Target::of(&mut values, &[2]).unwrap();
        let part = target.part(&Region::new(&[1], &[1]).unwrap()).unwrap();
        assert_eq!(part.dtype(), Some(Dtype::F32));
    }

    #[test]
    fn statistics_come_with_the_copy() {
        let values: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let source = Source::from_slice(&bytes, &[100, 1000], 4).unwrap();
        let whole = Extent::new(None, source.shape(), &[], &[]).unwrap();
        let mut along = Accumulator::new(Dtype::F32, source.bytes(), StatsOfBlock::All);
        assert_eq!(source.to_vec(Some(&mut along)), bytes);
        let along = along.finish(&bytes, &whole);
        let all = along.whole().unwrap();
        assert_eq!((all.min(), all.max(), all.count), (0.0, 99_999.0, 100_000));
        assert_eq!(along.tiles.len(), 7 * 2 * 4);
        let mut alone = Accumulator::new(Dtype::F32, source.bytes(), StatsOfBlock::All);
        source.count(&mut alone);
        assert_eq!(alone.finish_whole(), Some(all));
        let mut compared = Accumulator::new(Dtype::F32, source.bytes(), StatsOfBlock::Extremes);
        assert_eq!(source.to_vec(Some(&mut compared)), bytes);
        assert_eq!(compared.finish(&bytes, &whole), BlockStats { moments: None, ..along });
        // Every other row, backwards: of what lies apart, too.
        let turned = source.part(&Selection {
            offset: [0, 0][..].into(),
            shape: [50, 500][..].into(),
            step: [2, 2][..].into(),
        });
        let turned = turned.unwrap();
        let mut apart = Accumulator::new(Dtype::F32, turned.bytes(), StatsOfBlock::All);
        turned.count(&mut apart);
        let mut gathered = Accumulator::new(Dtype::F32, turned.bytes(), StatsOfBlock::All);
        gathered.add(&turned.to_vec(None));
        assert_eq!(apart.finish_whole(), gathered.finish_whole());
    }
}
