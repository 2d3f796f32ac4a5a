//! Block statistics, computed over bytes that have just been copied and are still in the cache.

use forebay_core::block::Extent;
use forebay_core::dtype::Dtype;
use forebay_core::stats::{BlockStats, Stats, Sum, Value, tile_bytes};

/// Takes in the elements of a block's interior, one run after the other, and makes its statistics of them: of all, and the
/// bounds of each tile.
#[derive(Debug)]
pub struct Accumulator {
    dtype: Dtype,
    all: Stats,
    tile: usize,
    /// What came of a tile that is not full yet.
    begun: Vec<u8>,
    bounds: Vec<u8>,
}

impl Accumulator {
    /// Of a block of this dtype, whose interior has so many bytes.
    pub fn new(dtype: Dtype, interior: u64) -> Accumulator {
        let tile = usize::try_from(tile_bytes(interior)).unwrap_or(usize::MAX);
        Accumulator { dtype, all: Stats::EMPTY, tile, begun: Vec::new(), bounds: Vec::new() }
    }

    /// Takes in elements: dense, whole ones, of any alignment.
    pub fn add(&mut self, mut bytes: &[u8]) {
        if !self.begun.is_empty() {
            let missing = (self.tile - self.begun.len()).min(bytes.len());
            self.begun.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.begun.len() < self.tile {
                return;
            }
            let full = std::mem::take(&mut self.begun);
            self.add_tile(&full);
            self.begun = full;
            self.begun.clear();
        }
        let whole = bytes.chunks_exact(self.tile);
        let rest = whole.remainder();
        whole.for_each(|tile| self.add_tile(tile));
        if !rest.is_empty() {
            if self.begun.capacity() == 0 {
                self.begun.reserve_exact(self.tile.min(rest.len().next_power_of_two()));
            }
            self.begun.extend_from_slice(rest);
        }
    }

    /// Takes in the interior of a block: its bytes are dense and row-major, ghosts included.
    pub fn add_interior(&mut self, bytes: &[u8], extent: &Extent) {
        let (shape, low, stored) = (extent.shape(), extent.ghost_low(), extent.stored_shape());
        let Some(last) = shape.len().checked_sub(1).filter(|_| extent.has_ghosts()) else {
            return self.add(bytes);
        };
        if shape.contains(&0) {
            return;
        }
        let element = self.dtype.size();
        let rows: u64 = shape[..last].iter().product();
        for row in 0..rows {
            let (mut left, mut at, mut stride) = (row, low[last], stored[last]);
            for d in (0..last).rev() {
                at += (left % shape[d] + low[d]) * stride;
                left /= shape[d];
                stride *= stored[d];
            }
            let (first, length) = (at as usize * element, shape[last] as usize * element);
            if let Some(row) = bytes.get(first..first + length) {
                self.add(row);
            }
        }
    }

    /// The statistics of all that came.
    pub fn finish(mut self) -> BlockStats {
        if !self.begun.is_empty() {
            let rest = std::mem::take(&mut self.begun);
            self.add_tile(&rest);
        }
        let one_tile = self.bounds.len() <= 2 * self.dtype.size();
        let tiles = if one_tile { Box::default() } else { self.bounds.into() };
        BlockStats { all: self.all, tiles }
    }

    fn add_tile(&mut self, tile: &[u8]) {
        let found = of_tile(self.dtype, tile);
        write_bounds(&mut self.bounds, self.dtype, &found);
        self.all.merge(&found);
    }
}

/// The statistics of elements that fit a cache: they are read twice.
fn of_tile(dtype: Dtype, bytes: &[u8]) -> Stats {
    let signed = |value: i64| Value::Int(value);
    let unsigned = |value: u64| Value::Unsigned(value);
    match dtype {
        Dtype::Bool => of_integers(bytes, |[b]| u64::from(b != 0), |x| x as i128, |x| x as f64, unsigned),
        Dtype::I8 => of_small(bytes, |b| i64::from(i8::from_le_bytes(b)), signed),
        Dtype::I16 => of_small(bytes, |b| i64::from(i16::from_le_bytes(b)), signed),
        Dtype::I32 => of_small(bytes, |b| i64::from(i32::from_le_bytes(b)), signed),
        Dtype::U8 => of_small(bytes, |b| i64::from(u8::from_le_bytes(b)), |value| unsigned(value as u64)),
        Dtype::U16 => of_small(bytes, |b| i64::from(u16::from_le_bytes(b)), |value| unsigned(value as u64)),
        Dtype::U32 => of_small(bytes, |b| i64::from(u32::from_le_bytes(b)), |value| unsigned(value as u64)),
        Dtype::I64 => of_integers(bytes, i64::from_le_bytes, i128::from, |x| x as f64, signed),
        Dtype::U64 => of_integers(bytes, u64::from_le_bytes, i128::from, |x| x as f64, unsigned),
        Dtype::F16 => of_floats(bytes, |b| half::f16::from_le_bytes(b).to_f64()),
        Dtype::Bf16 => of_floats(bytes, |b| half::bf16::from_le_bytes(b).to_f64()),
        Dtype::F32 => of_floats(bytes, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F64 => of_floats(bytes, f64::from_le_bytes),
        Dtype::C64 | Dtype::C128 => Stats::EMPTY,
    }
}

/// Several independent lanes, so that additions do not wait for each other.
const LANES: usize = 8;

/// One lane over floats.
#[derive(Clone, Copy)]
struct Lane {
    min: f64,
    max: f64,
    high: f64,
    low: f64,
    count: u64,
}

impl Lane {
    const EMPTY: Lane = Lane { min: f64::INFINITY, max: f64::NEG_INFINITY, high: 0.0, low: 0.0, count: 0 };

    #[inline(always)]
    fn add(&mut self, x: f64) {
        let is_number = !x.is_nan();
        self.min = if x < self.min { x } else { self.min };
        self.max = if x > self.max { x } else { self.max };
        let x = if is_number { x } else { 0.0 };
        // The sum and its error, as in `Sum::plus`.
        let sum = self.high + x;
        let of_x = sum - self.high;
        self.low += (self.high - (sum - of_x)) + (x - of_x);
        self.high = sum;
        self.count += u64::from(is_number);
    }
}

fn of_floats<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Stats {
    let (elements, _) = bytes.as_chunks::<N>();
    let (rows, rest) = elements.as_chunks::<LANES>();
    let mut lanes = [Lane::EMPTY; LANES];
    for row in rows {
        for (lane, element) in lanes.iter_mut().zip(row) {
            lane.add(value(*element));
        }
    }
    for (lane, element) in lanes.iter_mut().zip(rest) {
        lane.add(value(*element));
    }
    let count = lanes.iter().map(|lane| lane.count).sum::<u64>();
    let nan = elements.len() as u64 - count;
    if count == 0 {
        return Stats { nan, ..Stats::EMPTY };
    }
    let min = lanes.iter().fold(f64::INFINITY, |min, lane| min.min(lane.min));
    let max = lanes.iter().fold(f64::NEG_INFINITY, |max, lane| max.max(lane.max));
    let sum = lanes.iter().fold(Sum::Float(0.0, 0.0), |sum, lane| sum.plus(Sum::float(lane.high, lane.low)));
    let mean = sum.to_f64() / count as f64;
    let distance = |x: f64| {
        let distance = if x.is_nan() { 0.0 } else { x - mean };
        distance * distance
    };
    let mut squares = [0.0; LANES];
    for row in rows {
        for (sum, element) in squares.iter_mut().zip(row) {
            *sum += distance(value(*element));
        }
    }
    for (sum, element) in squares.iter_mut().zip(rest) {
        *sum += distance(value(*element));
    }
    let bounds = Some((Value::Float(min), Value::Float(max)));
    Stats { bounds, count, nan, sum, m2: squares.iter().sum() }
}

/// Integers of up to 32 bits: the sum of a tile fits 64.
fn of_small<const N: usize>(
    bytes: &[u8],
    value: impl Fn([u8; N]) -> i64,
    exact: impl Fn(i64) -> Value,
) -> Stats {
    let (elements, _) = bytes.as_chunks::<N>();
    let (mut min, mut max, mut sum) = (i64::MAX, i64::MIN, 0i64);
    for element in elements {
        let x = value(*element);
        min = min.min(x);
        max = max.max(x);
        sum = sum.wrapping_add(x);
    }
    let count = elements.len() as u64;
    if count == 0 {
        return Stats::EMPTY;
    }
    let mean = sum as f64 / count as f64;
    let m2 = squares(elements, |element| value(element) as f64 - mean);
    Stats { bounds: Some((exact(min), exact(max))), count, nan: 0, sum: Sum::Int(sum.into()), m2 }
}

fn of_integers<const N: usize, T: Copy + Ord>(
    bytes: &[u8],
    value: impl Fn([u8; N]) -> T,
    wide: impl Fn(T) -> i128,
    real: impl Fn(T) -> f64,
    exact: impl Fn(T) -> Value,
) -> Stats {
    let (elements, _) = bytes.as_chunks::<N>();
    let mut bounds: Option<(T, T)> = None;
    let mut sum = 0i128;
    for element in elements {
        let x = value(*element);
        let (min, max) = bounds.unwrap_or((x, x));
        bounds = Some((min.min(x), max.max(x)));
        sum += wide(x);
    }
    let count = elements.len() as u64;
    let Some((min, max)) = bounds else { return Stats::EMPTY };
    let mean = sum as f64 / count as f64;
    let m2 = squares(elements, |element| real(value(element)) - mean);
    Stats { bounds: Some((exact(min), exact(max))), count, nan: 0, sum: Sum::Int(sum), m2 }
}

/// The sum of the squares of what is made of each element.
fn squares<const N: usize>(elements: &[[u8; N]], distance: impl Fn([u8; N]) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (rows, rest) = elements.as_chunks::<LANES>();
    for row in rows {
        for (sum, element) in lanes.iter_mut().zip(row) {
            let distance = distance(*element);
            *sum += distance * distance;
        }
    }
    for (sum, element) in lanes.iter_mut().zip(rest) {
        let distance = distance(*element);
        *sum += distance * distance;
    }
    lanes.iter().sum()
}

/// Appends the bounds of a tile in the field's own type; NaN for one without numbers.
fn write_bounds(to: &mut Vec<u8>, dtype: Dtype, found: &Stats) {
    let (min, max) = found.bounds.unwrap_or((Value::Float(f64::NAN), Value::Float(f64::NAN)));
    for value in [min, max] {
        write_value(to, dtype, value);
    }
}

/// Appends a value as an element of a type that it has come from.
pub fn write_value(to: &mut Vec<u8>, dtype: Dtype, value: Value) {
    match (dtype, value) {
        (Dtype::F16, value) => to.extend(half::f16::from_f64(value.to_f64()).to_le_bytes()),
        (Dtype::Bf16, value) => to.extend(half::bf16::from_f64(value.to_f64()).to_le_bytes()),
        (Dtype::F32, value) => to.extend((value.to_f64() as f32).to_le_bytes()),
        (_, Value::Float(value)) => to.extend(value.to_le_bytes()),
        (_, Value::Int(value)) => to.extend(&value.to_le_bytes()[..dtype.size().min(8)]),
        (_, Value::Unsigned(value)) => to.extend(&value.to_le_bytes()[..dtype.size().min(8)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Element, bytes_of};
    use proptest::prelude::*;

    fn of<T: Element>(values: &[T]) -> BlockStats {
        let bytes = bytes_of(values);
        let mut accumulator = Accumulator::new(T::DTYPE, bytes.len() as u64);
        accumulator.add(bytes);
        accumulator.finish()
    }

    #[test]
    fn infinities_are_values_and_nan_is_counted() {
        let found = of(&[1.5f64, f64::NAN, -2.0, f64::INFINITY, 4.0]);
        let bounds = Some((Value::Float(-2.0), Value::Float(f64::INFINITY)));
        assert_eq!((found.all.bounds, found.all.count, found.all.nan), (bounds, 4, 1));
        assert!(found.all.sum.to_f64().is_infinite() && found.tiles.is_empty());
        let found = of(&[f32::NAN; 40_000]);
        assert_eq!((found.all.bounds, found.all.nan), (None, 40_000));
        let tiles: Vec<f32> =
            found.tiles.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert!(tiles.len() == 6 && tiles.iter().all(|bound| bound.is_nan()));
    }

    #[test]
    fn each_type_has_its_own_bounds() {
        assert_eq!(of(&[i64::MIN, i64::MAX]).all.bounds, Some((Value::Int(i64::MIN), Value::Int(i64::MAX))));
        assert_eq!(
            of(&[u64::MAX, 1 << 63]).all.bounds,
            Some((Value::Unsigned(1 << 63), Value::Unsigned(u64::MAX)))
        );
        assert_eq!(of(&[u64::MAX; 3]).all.sum, Sum::Int(3 * i128::from(u64::MAX)));
        assert_eq!(of(&[-3i8, 7]).all.bounds, Some((Value::Int(-3), Value::Int(7))));
        assert_eq!(of(&[200u8, 7]).all.bounds, Some((Value::Unsigned(7), Value::Unsigned(200))));
        let mut bools = Accumulator::new(Dtype::Bool, 3);
        bools.add(&[0, 5, 1]);
        let bools = bools.finish().all;
        assert_eq!((bools.bounds, bools.sum), (Some((Value::Unsigned(0), Value::Unsigned(1))), Sum::Int(2)));
    }

    #[test]
    fn ghosts_take_no_part() {
        let extent = Extent::new(Some(&[5, 0, 9]), &[2, 3, 4], &[1, 0, 2], &[0, 3, 1]).unwrap();
        let stored = extent.stored_shape();
        let mut bytes = Vec::new();
        let mut inside = Vec::new();
        for z in 0..stored[0] {
            for y in 0..stored[1] {
                for x in 0..stored[2] {
                    let is_inside = (1..3).contains(&z) && (0..3).contains(&y) && (2..6).contains(&x);
                    let value = if is_inside { (100 * z + 10 * y + x) as f32 } else { f32::NAN };
                    inside.extend(is_inside.then_some(value));
                    bytes.extend(value.to_le_bytes());
                }
            }
        }
        let mut accumulator = Accumulator::new(Dtype::F32, 24 * 4);
        accumulator.add_interior(&bytes, &extent);
        assert_eq!(accumulator.finish(), of(&inside));
        let empty = Extent::new(None, &[2, 0], &[1, 1], &[1, 1]).unwrap();
        let mut accumulator = Accumulator::new(Dtype::F32, 0);
        accumulator.add_interior(&[0; 4 * 4 * 2], &empty);
        assert_eq!(accumulator.finish(), BlockStats { all: Stats::EMPTY, tiles: Box::default() });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Whatever the runs in which elements come, tiles are of consecutive ones.
        #[test]
        fn tiles_do_not_depend_on_runs(count in 1usize..40_000, run in 1usize..20_000, seed in any::<u32>()) {
            let value = |i: usize| ((i as u64 * 2_654_435_761 + u64::from(seed)) % 100_003) as f64 - 5e4;
            let values: Vec<f64> = (0..count).map(value).collect();
            let whole = of(&values);
            let mut accumulator = Accumulator::new(Dtype::F64, 8 * count as u64);
            values.chunks(run).for_each(|run| accumulator.add(bytes_of(run)));
            prop_assert_eq!(&accumulator.finish(), &whole);
            prop_assert!(whole.fits(8 * count as u64, 8));
            let bounds: Vec<f64> = whole.tiles.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
            if count > 8192 {
                for (tile, bounds) in values.chunks(8192).zip(bounds.chunks(2)) {
                    prop_assert_eq!(tile.iter().copied().fold(f64::INFINITY, f64::min), bounds[0]);
                    prop_assert_eq!(tile.iter().copied().fold(f64::NEG_INFINITY, f64::max), bounds[1]);
                }
            }
            prop_assert_eq!(whole.all.sum.to_f64(), values.iter().sum::<f64>(), "integers below 2^53");
        }
    }
}
