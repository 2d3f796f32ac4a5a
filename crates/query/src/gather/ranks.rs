//! Which two numbers a percentile lies between.

use crate::gather::buckets::{BUCKETS, VALUES_MAX};
use crate::gather::keys::number_of;
use crate::gather::partial::Partial;
use crate::gather::question::Stage;
use crate::plan::Lane;
use crate::value::Number;
use crate::value::arithmetic::Binary;

/// The two numbers between which a percentile lies, while their keys are narrowed down: by counts in buckets, each as wide as a
/// 4,096th of the one before, until few enough are left to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ranks {
    /// Which two, of all in their order.
    tracks: [Track; 2],
    /// How far the percentile lies from the first to the second.
    fraction: f64,
    /// How many are no numbers, and how many elements there are.
    pub(super) counted: (u64, u64),
    /// There are no numbers.
    is_empty: bool,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Track {
    /// How many numbers come before it.
    rank: u64,
    /// Where its key lies: between these, both included.
    low: u64,
    high: u64,
    /// How many numbers come before those.
    before: u64,
    /// How many there are of those.
    within: u64,
}

impl Track {
    /// What is asked of it next; nothing if it is known.
    fn stage(&self) -> Option<Stage> {
        match self.high - self.low {
            0 => None,
            _ if self.within <= VALUES_MAX => Some(Stage::Values { low: self.low, high: self.high }),
            width => {
                let bits = u64::BITS - width.leading_zeros();
                Some(Stage::Keys { low: self.low, shift: bits.saturating_sub(BUCKETS.ilog2()) as u8 })
            }
        }
    }

    /// Finds its bucket among those that were counted.
    fn take_counts(&mut self, low: u64, shift: u8, counts: &[(u32, u64)]) {
        for (bucket, count) in counts {
            if self.rank < self.before + count {
                let first = low + (u64::from(*bucket) << shift);
                (self.low, self.high) = (first, first + ((1u64 << shift) - 1));
                self.within = *count;
                return;
            }
            self.before += count;
        }
    }
}

impl Ranks {
    /// The place of a percentile among all numbers, as `numpy.percentile` computes it.
    pub(super) fn new(percent: f64, counts: &[(u32, u64)], counted: (u64, u64)) -> Ranks {
        let count: u64 = counts.iter().map(|(_, count)| count).sum();
        let last = count.saturating_sub(1);
        let place = last as f64 * (percent / 100.0);
        let (first, fraction) = ((place.floor() as u64).min(last), place - place.floor());
        let track = |rank: u64| Track { rank, low: 0, high: u64::MAX, before: 0, within: count };
        Ranks {
            tracks: [track(first), track((first + 1).min(last))],
            fraction,
            counted,
            is_empty: count == 0,
        }
    }

    pub(super) fn stages(&self) -> Vec<Stage> {
        let [first, second] = self.tracks.map(|track| track.stage());
        let second = second.filter(|second| Some(*second) != first);
        first.into_iter().chain(second).collect()
    }

    pub(super) fn take_counts(&mut self, stage: Stage, counts: &[(u32, u64)]) {
        let Stage::Keys { low, shift } = stage else { return };
        self.tracks.iter_mut().for_each(|track| track.take_counts(low, shift, counts));
    }

    pub(super) fn answer(&mut self, partials: &[Partial]) {
        let stages = self.stages();
        for track in &mut self.tracks {
            let asked = track.stage().and_then(|stage| stages.iter().position(|asked| *asked == stage));
            match asked.and_then(|index| Some((stages[index], partials.get(index)?))) {
                Some((Stage::Keys { low, shift }, Partial::Buckets(counts))) => {
                    track.take_counts(low, shift, counts)
                }
                Some((_, Partial::Keys(keys))) => {
                    let index = (track.rank - track.before) as usize;
                    if let Some(key) = keys.get(index) {
                        (track.low, track.high) = (*key, *key);
                    }
                }
                _ => {}
            }
        }
    }

    /// The percentile, once both are known; `None` if there are no numbers.
    pub(super) fn value(&self, lane: Lane) -> Option<Option<Number>> {
        if self.is_empty {
            return Some(None);
        }
        if !self.stages().is_empty() {
            return None;
        }
        let [a, b] = self.tracks.map(|track| number_of(track.low, lane));
        Some(Some(between(a, b, self.fraction)))
    }
}

/// A number between two, as `numpy.percentile` computes it: from the nearer one.
fn between(a: Number, b: Number, fraction: f64) -> Number {
    let of = |number: Number| {
        if let Number::Integer(number) = number { Number::F64(number as f64) } else { number }
    };
    let (a, b) = (of(a), of(b));
    let narrow = |number: f64| {
        if matches!(a, Number::F32(_)) { Number::F32(number as f32) } else { Number::F64(number) }
    };
    let compute = |x: Number, op: Binary, y: Number| x.binary(op, y).unwrap_or(Number::F64(f64::NAN));
    let difference = compute(b, Binary::Minus, a);
    match fraction < 0.5 {
        true => compute(a, Binary::Plus, compute(difference, Binary::Times, narrow(fraction))),
        false => compute(b, Binary::Minus, compute(difference, Binary::Times, narrow(1.0 - fraction))),
    }
}
