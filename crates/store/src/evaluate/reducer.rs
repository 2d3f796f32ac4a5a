//! What is gathered of chunks.

use crate::evaluate::CHUNK;
use crate::evaluate::chunk_sum;
use crate::evaluate::keys::{Buckets, within};
use crate::evaluate::value::{Chunk, Value, largest};
use crate::extremes::Found;
use forebay_core::exact_sum::ExactSum;
use forebay_core::region::Dims;
use forebay_query::gather::{
    BUCKETS, Extreme, Moments, Partial, Stage, Total, bin_of, sketch_bucket, sketch_buckets,
};
use forebay_query::plan::{Lane, Measure};
use forebay_query::value::Number;
use std::cmp::Ordering;

/// What was gathered so far.
pub(super) enum Reducer {
    Extreme {
        is_least: bool,
        best: Option<(Number, Dims)>,
    },
    Sum(Box<Sums>),
    /// How numbers spread: those of a unit, and of those before.
    Moments {
        unit: Box<Sums>,
        all: Box<Moments>,
    },
    /// The squared distances from a mean.
    Squares {
        mean: f64,
        sums: Box<Sums>,
    },
    Buckets(Buckets),
    Sketch {
        counts: Vec<u64>,
    },
    Keys {
        low: u64,
        high: u64,
        keys: Vec<u64>,
    },
    Bounds(Option<(f64, f64)>),
    Bins {
        low: f64,
        high: f64,
        counts: Vec<u64>,
    },
}

/// The sum of numbers, how many they are, and their squared distances from their own mean.
pub(super) struct Sums {
    floats: ExactSum,
    integers: Option<i128>,
    count: u64,
    mean: f64,
    m2: f64,
    room: [f64; CHUNK],
}

impl Sums {
    fn new(lane: Lane) -> Box<Sums> {
        let integers = matches!(lane, Lane::I64 | Lane::U64).then_some(0);
        Box::new(Sums {
            floats: ExactSum::default(),
            integers,
            count: 0,
            mean: 0.0,
            m2: 0.0,
            room: [0.0; CHUNK],
        })
    }

    /// Forgets all numbers.
    fn clear(&mut self) {
        self.floats = ExactSum::default();
        self.integers.iter_mut().for_each(|sum| *sum = 0);
        (self.count, self.mean, self.m2) = (0, 0.0, 0.0);
    }

    /// The exact sum of all numbers.
    fn total(&self) -> Total {
        match self.integers {
            Some(sum) => Total::Integer(sum),
            None => Total::Float(Box::new(self.floats.clone())),
        }
    }
}

impl Reducer {
    /// Of values in a lane; `None` if nothing is gathered of values.
    pub(super) fn new(measure: Measure, stage: Stage, lane: Lane) -> Option<Reducer> {
        Some(match (stage, measure) {
            (Stage::Squares(mean), _) => Reducer::Squares { mean, sums: Sums::new(lane) },
            (Stage::Keys { low, shift }, _) => Reducer::Buckets(Buckets::new(low, shift.into())),
            (Stage::Values { low, high }, _) => Reducer::Keys { low, high, keys: Vec::new() },
            (Stage::Bins { low, high }, Measure::Histogram(bins)) => {
                Reducer::Bins { low, high, counts: vec![0; bins as usize] }
            }
            (Stage::Bins { .. }, _) => return None,
            (Stage::First, measure) => match measure {
                Measure::Min => Reducer::Extreme { is_least: true, best: None },
                Measure::Max => Reducer::Extreme { is_least: false, best: None },
                Measure::Sum(_) => Reducer::Sum(Sums::new(lane)),
                Measure::Moments => {
                    let unit = Sums::new(lane);
                    let all = Box::new(Moments::new(unit.total()));
                    Reducer::Moments { unit, all }
                }
                Measure::Percentile(_) => Reducer::Buckets(Buckets::new(0, u64::BITS - BUCKETS.ilog2())),
                Measure::Sketch => Reducer::Sketch { counts: vec![0; sketch_buckets()] },
                Measure::Histogram(_) => Reducer::Bounds(None),
                Measure::Count | Measure::Any | Measure::All | Measure::Size | Measure::Covered => {
                    return None;
                }
            },
        })
    }

    /// Takes in a chunk; how many of those that count are NaN. `place` tells where an element of it lies, `weights` how much each
    /// adds to a sum.
    #[inline(always)]
    pub(super) fn add<T: Value>(
        &mut self,
        chunk: Chunk<'_, T>,
        place: impl Fn(usize) -> Dims,
        weights: Option<&[f64]>,
    ) -> u64 {
        let scanned = if chunk.mask.is_none() { T::extremes(chunk.values) } else { None };
        let nans = scanned.map_or_else(|| chunk.nans(), |found| found.nan as u64);
        let largest = scanned.map(|found| largest_of(&found)).filter(|_| nans == 0);
        match self {
            Reducer::Extreme { is_least, best } => match scanned {
                Some(found) if found.nan == chunk.values.len() => {}
                Some(found) => {
                    extreme(*is_least, best, chunk, if *is_least { found.min } else { found.max }, place);
                }
                None => extreme(*is_least, best, chunk, chunk.extreme(*is_least), place),
            },
            Reducer::Sum(sums) => add_sum(sums, chunk, (nans, largest), weights),
            Reducer::Moments { unit, .. } => add_squares(unit, chunk, (nans, largest)),
            Reducer::Squares { sums, .. } => add_squares(sums, chunk, (nans, largest)),
            Reducer::Buckets(buckets) => buckets.add(chunk, nans),
            Reducer::Sketch { counts } => chunk.numbers(|number| {
                let bucket = sketch_bucket(number.to_f64()).map(|bucket| bucket as usize);
                bucket.and_then(|bucket| counts.get_mut(bucket)).into_iter().for_each(|count| *count += 1);
            }),
            Reducer::Keys { low, high, keys } if *low <= *high && chunk.mask.is_none() && nans == 0 => {
                within(chunk.values, *low, *high - *low, |number| keys.push(number.key()));
            }
            Reducer::Keys { low, high, keys } => chunk.numbers(|number| {
                let key = number.key();
                if *low <= key && key <= *high {
                    keys.push(key);
                }
            }),
            Reducer::Bounds(bounds) => chunk.numbers(|number| {
                let number = number.to_f64();
                if number.is_finite() {
                    let (low, high) = bounds.unwrap_or((number, number));
                    *bounds = Some((low.min(number), high.max(number)));
                }
            }),
            Reducer::Bins { low, high, counts } => {
                let bins = counts.len() as u32;
                chunk.numbers(|number| {
                    let number = number.to_f64();
                    if (*low..=*high).contains(&number)
                        && let Some(count) = counts.get_mut(bin_of(number, *low, *high, bins) as usize)
                    {
                        *count += 1;
                    }
                });
            }
        }
        nans
    }

    /// All elements of a unit came.
    pub(super) fn end_unit(&mut self) {
        if let Reducer::Moments { unit, all } = self {
            let total = unit.total();
            let mean = total.to_f64() / unit.count as f64;
            all.add_part(unit.count, mean, about(mean, unit).unwrap_or(0.0));
            all.total.add(&total);
            unit.clear();
        }
    }

    /// What was gathered of all chunks; the extreme by its place.
    pub(super) fn finish(self, extreme: impl Fn(Number, Dims) -> Extreme) -> Partial {
        let sparse = |counts: Vec<u64>| {
            let each = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
            Partial::Buckets(each.map(|(bucket, count)| (bucket as u32, count)).collect())
        };
        let placed = |best: Option<(Number, Dims)>| best.map(|(value, place)| extreme(value, place));
        match self {
            Reducer::Extreme { is_least: true, best } => Partial::Least(placed(best)),
            Reducer::Extreme { is_least: false, best } => Partial::Greatest(placed(best)),
            Reducer::Sum(sums) => Partial::Sum(sums.total(), sums.count),
            Reducer::Moments { all, .. } => Partial::Moments(all),
            Reducer::Squares { mean, sums } => {
                Partial::Squares(Box::new(about(mean, &sums).into_iter().collect()))
            }
            Reducer::Buckets(buckets) => sparse(buckets.finish()),
            Reducer::Sketch { counts } | Reducer::Bins { counts, .. } => sparse(counts),
            Reducer::Keys { mut keys, .. } => {
                keys.sort_unstable();
                Partial::Keys(keys)
            }
            Reducer::Bounds(bounds) => Partial::Bounds(bounds),
        }
    }
}

/// The largest size of floats of which these are the extremes; of integers nothing is found.
fn largest_of<T: Value>(found: &Found<T>) -> f64 {
    found.min.to_f64().abs().max(found.max.to_f64().abs())
}

/// The squared distances from a mean, of those from the own one; nothing of nothing.
fn about(mean: f64, sums: &Sums) -> Option<f64> {
    let count = sums.count as f64;
    let distance = sums.total().to_f64() / count - mean;
    (sums.count > 0).then_some(sums.m2 + count * (distance * distance))
}

#[inline(always)]
fn add_sum<T: Value>(
    sums: &mut Sums,
    chunk: Chunk<'_, T>,
    (nans, known): (u64, Option<f64>),
    weights: Option<&[f64]>,
) {
    sums.count += chunk.count() - nans;
    if let Some(sum) = &mut sums.integers {
        chunk.numbers(|number| *sum += integer(number));
        return;
    }
    let Sums { floats, room, .. } = sums;
    let Some(weights) = weights else {
        let numbers = chunk.doubles(nans, room);
        chunk_sum::add(floats, numbers, known.unwrap_or_else(|| largest(numbers)));
        return;
    };
    let numbers = chunk.doubles(nans, room);
    let weighted: Vec<f64> = numbers.iter().zip(weights).map(|(number, weight)| number * weight).collect();
    chunk_sum::add(floats, &weighted, largest(&weighted));
}

fn integer<T: Value>(value: T) -> i128 {
    match value.number() {
        Number::Integer(number) => number,
        number => number.to_f64() as i128,
    }
}

/// Adds the squared distances of a chunk from its own mean, and moves them to that of all: T. F. Chan, G. H. Golub and R. J. LeVeque
/// (1979).
#[inline(always)]
fn add_squares<T: Value>(sums: &mut Sums, chunk: Chunk<'_, T>, (nans, known): (u64, Option<f64>)) {
    let count = chunk.count() - nans;
    if count == 0 {
        return;
    }
    if let Some(sum) = &mut sums.integers {
        chunk.numbers(|number| *sum += integer(number));
    }
    let numbers = chunk.doubles(nans, &mut sums.room);
    let most = known.unwrap_or_else(|| largest(numbers));
    let mean = chunk_sum::add(&mut sums.floats, numbers, most) / count as f64;
    let left_out = chunk.values.len() as u64 - count;
    // What does not count lies at 0 there.
    let squares = match left_out {
        0 => squares(numbers, mean),
        _ => {
            let mut all = 0.0;
            chunk.numbers(|number| all += (number.to_f64() - mean) * (number.to_f64() - mean));
            all
        }
    };
    let (before, added) = (sums.count as f64, count as f64);
    let between = mean - sums.mean;
    sums.m2 += squares + between * between * (before * added / (before + added));
    sums.mean += between * (added / (before + added));
    sums.count += count;
}

#[inline(always)]
fn squares(numbers: &[f64], mean: f64) -> f64 {
    const LANES: usize = 16;
    let mut lanes = [0f64; LANES];
    let (rows, rest) = numbers.as_chunks::<LANES>();
    for row in rows {
        for lane in 0..LANES {
            let distance = row[lane] - mean;
            lanes[lane] += distance * distance;
        }
    }
    rest.iter().map(|number| (number - mean) * (number - mean)).sum::<f64>() + lanes.iter().sum::<f64>()
}

/// Keeps the extreme, and where the first of those lies that are the same. `found` is that of the chunk.
#[inline(always)]
fn extreme<T: Value>(
    is_least: bool,
    best: &mut Option<(Number, Dims)>,
    chunk: Chunk<'_, T>,
    found: T,
    place: impl Fn(usize) -> Dims,
) {
    let wins = if is_least { Ordering::Less } else { Ordering::Greater };
    let order = best.as_ref().map(|(value, _)| found.number().order(*value));
    if order.is_some_and(|order| order != Some(wins) && order != Some(Ordering::Equal)) {
        return;
    }
    let first = (0..chunk.values.len()).find(|index| chunk.values[*index] == found && chunk.counts(*index));
    let Some(first) = first else { return };
    let candidate = (chunk.values[first].number(), place(first));
    let is_before = |best: &(Number, Dims)| order.flatten() != Some(Ordering::Equal) || candidate.1 < best.1;
    if best.as_ref().is_none_or(is_before) {
        *best = Some(candidate);
    }
}
