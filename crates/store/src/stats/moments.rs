//! Statistics with moments, of elements that fit a cache: they are read twice.

use forebay_core::dtype::Dtype;
use forebay_core::stats::{Stats, Sum, Value};

/// The statistics of elements that fit a cache: they are read twice.
pub(super) fn of_tile(dtype: Dtype, bytes: &[u8]) -> Stats {
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
