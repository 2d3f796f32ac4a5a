//! Block statistics, computed over bytes that have just been copied and are still in the cache.

use forebay_core::block::{Extent, Stats};
use forebay_core::dtype::Dtype;

/// Whether statistics of this dtype exist: complex numbers have no order.
pub fn supported(dtype: Dtype) -> bool {
    !matches!(dtype, Dtype::C64 | Dtype::C128)
}

/// Adds the elements in `bytes` (dense, whole elements, any alignment) to `stats`.
///
/// 64-bit integers beyond 2^53 are rounded outwards in `min` and `max`, so that a bound is never wrong.
pub fn accumulate(stats: &mut Stats, dtype: Dtype, bytes: &[u8]) {
    match dtype {
        Dtype::Bool => fold(stats, bytes, |[b]| f64::from(u8::from(b != 0))),
        Dtype::I8 => fold(stats, bytes, |b| f64::from(i8::from_le_bytes(b))),
        Dtype::U8 => fold(stats, bytes, |b| f64::from(u8::from_le_bytes(b))),
        Dtype::I16 => fold(stats, bytes, |b| f64::from(i16::from_le_bytes(b))),
        Dtype::U16 => fold(stats, bytes, |b| f64::from(u16::from_le_bytes(b))),
        Dtype::I32 => fold(stats, bytes, |b| f64::from(i32::from_le_bytes(b))),
        Dtype::U32 => fold(stats, bytes, |b| f64::from(u32::from_le_bytes(b))),
        Dtype::I64 => fold_wide(stats, bytes, |b| i128::from(i64::from_le_bytes(b))),
        Dtype::U64 => fold_wide(stats, bytes, |b| i128::from(u64::from_le_bytes(b))),
        Dtype::F16 => fold(stats, bytes, |b| half::f16::from_le_bytes(b).to_f64()),
        Dtype::Bf16 => fold(stats, bytes, |b| half::bf16::from_le_bytes(b).to_f64()),
        Dtype::F32 => fold(stats, bytes, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F64 => fold(stats, bytes, f64::from_le_bytes),
        Dtype::C64 | Dtype::C128 => {}
    }
}

/// Adds the interior of a block to `stats`: its bytes are dense and row-major, ghosts included.
pub fn accumulate_interior(stats: &mut Stats, dtype: Dtype, bytes: &[u8], extent: &Extent) {
    let (shape, low, stored) = (extent.shape(), extent.ghost_low(), extent.stored_shape());
    let Some(last) = shape.len().checked_sub(1).filter(|_| extent.has_ghosts()) else {
        return accumulate(stats, dtype, bytes);
    };
    let rows: u64 = shape[..last].iter().product();
    if shape.contains(&0) {
        return;
    }
    for row in 0..rows {
        let (mut left, mut at, mut stride) = (row, low[last], stored[last]);
        for d in (0..last).rev() {
            at += (left % shape[d] + low[d]) * stride;
            left /= shape[d];
            stride *= stored[d];
        }
        let (first, length) = (at as usize * dtype.size(), shape[last] as usize * dtype.size());
        if let Some(row) = bytes.get(first..first + length) {
            accumulate(stats, dtype, row);
        }
    }
}

/// Several independent lanes, so that additions do not wait for each other.
const LANES: usize = 8;

fn fold<const N: usize>(stats: &mut Stats, bytes: &[u8], value: impl Fn([u8; N]) -> f64) {
    let mut lanes = [Stats::EMPTY; LANES];
    let (elements, _) = bytes.as_chunks::<N>();
    let (rows, rest) = elements.as_chunks::<LANES>();
    let add = |lane: &mut Stats, x: f64| {
        let finite = x.is_finite();
        lane.min = if finite && x < lane.min { x } else { lane.min };
        lane.max = if finite && x > lane.max { x } else { lane.max };
        lane.sum += if finite { x } else { 0.0 };
        lane.count += u64::from(finite);
    };
    for row in rows {
        for (lane, element) in lanes.iter_mut().zip(row) {
            add(lane, value(*element));
        }
    }
    for (lane, element) in lanes.iter_mut().zip(rest) {
        add(lane, value(*element));
    }
    let mut sum = Stats::EMPTY;
    lanes.iter().for_each(|lane| sum.merge(lane));
    sum.non_finite = elements.len() as u64 - sum.count;
    stats.merge(&sum);
}

fn fold_wide(stats: &mut Stats, bytes: &[u8], value: impl Fn([u8; 8]) -> i128) {
    let (elements, _) = bytes.as_chunks::<8>();
    let (mut min, mut max, mut sum) = (i128::MAX, i128::MIN, 0i128);
    for element in elements {
        let x = value(*element);
        min = min.min(x);
        max = max.max(x);
        sum += x;
    }
    if elements.is_empty() {
        return;
    }
    let mut low = min as f64;
    if low as i128 > min {
        low = low.next_down();
    }
    let mut high = max as f64;
    if (high as i128) < max {
        high = high.next_up();
    }
    stats.merge(&Stats { min: low, max: high, sum: sum as f64, count: elements.len() as u64, non_finite: 0 });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_elements_are_counted_apart() {
        let values = [1.5f64, f64::NAN, -2.0, f64::INFINITY, 4.0];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut stats = Stats::EMPTY;
        accumulate(&mut stats, Dtype::F64, &bytes);
        assert_eq!(stats, Stats { min: -2.0, max: 4.0, sum: 3.5, count: 3, non_finite: 2 });
    }

    #[test]
    fn ghosts_take_no_part() {
        let extent = Extent::new(Some(&[5, 0, 9]), &[2, 3, 4], &[1, 0, 2], &[0, 3, 1]).unwrap();
        let stored = extent.stored_shape();
        let mut bytes = Vec::new();
        let (mut sum, mut count) = (0.0, 0);
        for z in 0..stored[0] {
            for y in 0..stored[1] {
                for x in 0..stored[2] {
                    let inside = (1..3).contains(&z) && (0..3).contains(&y) && (2..6).contains(&x);
                    let value = if inside { (100 * z + 10 * y + x) as f32 } else { f32::NAN };
                    sum += if inside { f64::from(value) } else { 0.0 };
                    count += u64::from(inside);
                    bytes.extend(value.to_le_bytes());
                }
            }
        }
        let mut stats = Stats::EMPTY;
        accumulate_interior(&mut stats, Dtype::F32, &bytes, &extent);
        assert_eq!(stats, Stats { min: 102.0, max: 225.0, sum, count, non_finite: 0 });
        assert_eq!(count, 24);
        let empty = Extent::new(None, &[2, 0], &[1, 1], &[1, 1]).unwrap();
        let mut stats = Stats::EMPTY;
        accumulate_interior(&mut stats, Dtype::F32, &[0; 4 * 4 * 2], &empty);
        assert_eq!(stats, Stats::EMPTY);
    }

    #[test]
    fn bounds_of_wide_integers_are_never_inside() {
        let values = [i64::MAX, i64::MIN + 1];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut stats = Stats::EMPTY;
        accumulate(&mut stats, Dtype::I64, &bytes);
        assert!(stats.max as i128 >= i128::from(i64::MAX) && stats.min as i128 <= i128::from(i64::MIN + 1));
    }
}
