//! The exact sum of a chunk.
//!
//! A number is cut into slices whose sums no double rounds: S. M. Rump, T. Ogita and S. Oishi, "Accurate floating-point summation,
//! part I" (2008), their ExtractVector. Two slices hold 84 bits below the largest number of the chunk, three 126; a chunk of which
//! that is not enough is added number by number.

use crate::evaluate::CHUNK;
use crate::evaluate::slices;
use forebay_core::exact_sum::ExactSum;

/// Several independent lanes, so that additions do not wait for each other.
const LANES: usize = 16;
/// A sum of slices has so many bits more than one of them.
const GUARD: i32 = CHUNK.ilog2() as i32 + 1;
/// Bits of a slice.
const SLICE: i32 = 53 - GUARD;

/// Adds all numbers, none of which is NaN and none larger than `largest`. Gives their sum as a double that may be rounded.
#[inline(always)]
pub(super) fn add(sum: &mut ExactSum, numbers: &[f64], largest: f64) -> f64 {
    debug_assert!(numbers.len() <= CHUNK);
    if largest == 0.0 {
        return 0.0;
    }
    let exponent = (largest.to_bits() >> 52) as i32 - 1023;
    // Slices above the doubles, and numbers that have none of their own.
    if exponent + GUARD < 1023 && exponent >= -800 {
        let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
        let first = exponent + 1 + GUARD;
        let cuts = [first, first - SLICE, first - 2 * SLICE].map(power);
        let two = match slices::two(numbers, [cuts[0], cuts[1]]) {
            Ok(found) => found.map(|[first, second]| [first, second, 0.0]),
            Err(()) => two_slices(numbers, cuts),
        };
        if let Some(parts) = two.or_else(|| three_slices(numbers, cuts)) {
            parts.into_iter().for_each(|part| sum.add(part));
            return parts.iter().sum();
        }
    }
    numbers.iter().for_each(|number| sum.add(*number));
    numbers.iter().sum()
}

/// The part of a number above a slice's end: the number plus a power of two loses what is below.
#[inline(always)]
fn cut(number: f64, power: f64) -> f64 {
    (power + number) - power
}

/// The sums of two slices, each exact, unless something is left of a number.
#[inline(always)]
fn two_slices(numbers: &[f64], [a, b, _]: [f64; 3]) -> Option<[f64; 3]> {
    let (mut first, mut second, mut left) = ([0f64; LANES], [0f64; LANES], [0f64; LANES]);
    let (rows, rest) = numbers.as_chunks::<LANES>();
    for row in rows {
        take(row, [a, b], &mut first, &mut second, &mut left);
    }
    let mut last = [0f64; LANES];
    last.iter_mut().zip(rest).for_each(|(to, number)| *to = *number);
    take(&last, [a, b], &mut first, &mut second, &mut left);
    let is_all = left.iter().all(|left| *left == 0.0);
    is_all.then(|| [first.iter().sum(), second.iter().sum(), 0.0])
}

/// Adds both slices of some numbers, and what is left of them.
#[inline(always)]
fn take(
    row: &[f64; LANES],
    [a, b]: [f64; 2],
    first: &mut [f64; LANES],
    second: &mut [f64; LANES],
    left: &mut [f64; LANES],
) {
    for lane in 0..LANES {
        let high = cut(row[lane], a);
        let below = row[lane] - high;
        let low = cut(below, b);
        first[lane] += high;
        second[lane] += low;
        // What is left of different numbers may have different signs.
        left[lane] += (below - low).abs();
    }
}

/// The same of three slices.
#[inline(always)]
fn three_slices(numbers: &[f64], [a, b, c]: [f64; 3]) -> Option<[f64; 3]> {
    let mut sums = [[0f64; LANES]; 3];
    let mut left = [0f64; LANES];
    for row in numbers.chunks(LANES) {
        for (lane, number) in row.iter().enumerate() {
            let mut rest = *number;
            for (sums, power) in sums.iter_mut().zip([a, b, c]) {
                let slice = cut(rest, power);
                rest -= slice;
                sums[lane] += slice;
            }
            left[lane] += rest.abs();
        }
    }
    let is_all = left.iter().all(|left| *left == 0.0);
    is_all.then(|| sums.map(|lanes| lanes.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(numbers: &[f64]) {
        let expected: ExactSum = numbers.iter().copied().collect();
        let mut found = ExactSum::default();
        for chunk in numbers.chunks(CHUNK) {
            add(&mut found, chunk, chunk.iter().fold(0.0, |most, number| most.max(number.abs())));
        }
        assert_eq!(found, expected, "{numbers:?}");
    }

    #[test]
    fn nothing_is_lost_at_the_ends_of_the_doubles() {
        for numbers in [
            vec![f64::MAX; 1024],
            vec![f64::MAX, -f64::MAX, 1.0],
            vec![5e-324; 1024],
            vec![1e-300, 5e-324, -1e-300],
            vec![1e100, 1.0, -1e100],
            vec![1.0, f64::INFINITY],
            vec![-0.0, 0.0],
            vec![1e-240; 1000],
        ] {
            check(&numbers);
        }
        check(&(0..1024).map(|i| 1.0 / f64::from(i + 1)).collect::<Vec<_>>());
        check(&(0..1024).map(|i| f64::from(i).sin() * 10f64.powi(i % 60 - 30)).collect::<Vec<_>>());
    }

    #[test]
    fn slices_are_the_same_without_vectors() {
        let numbers: Vec<f64> = (0..1000).map(|i| f64::from(i % 91) * 0.125 - 3.0).collect();
        let ends = [2f64.powi(4 + GUARD), 2f64.powi(4 + GUARD - SLICE), 0.0];
        let plain = two_slices(&numbers, ends);
        assert!(plain.is_some());
        if let Ok(found) = slices::two(&numbers, [ends[0], ends[1]]) {
            assert_eq!(found.map(|[first, second]| [first, second, 0.0]), plain);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(numbers in prop::collection::vec(prop_oneof![
            3 => -1e3f64..1e3,
            1 => any::<f64>().prop_filter("a number", |x| !x.is_nan()),
            1 => (any::<i64>(), -90i32..90).prop_map(|(m, e)| m as f64 * 2f64.powi(e)),
        ], 0..200)) {
            check(&numbers);
        }

        #[test]
        fn nothing_is_lost_of_many(seed in any::<u64>(), spread in 0i32..130) {
            let number = |i: u64| {
                let bits = (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (bits as i64) as f64 * 2f64.powi((bits % 131) as i32 % (spread + 1))
            };
            check(&(0..1024).map(number).collect::<Vec<_>>());
        }
    }
}
