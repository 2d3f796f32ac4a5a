//! Into which bucket a number is counted.

use crate::gather::keys::{key_of, number_of};
use crate::plan::Lane;
use crate::value::Number;

/// How many buckets numbers are counted in at a time.
pub const BUCKETS: usize = 4096;
/// The most numbers that are sent themselves.
pub const VALUES_MAX: u64 = 8192;

/// The bin of a number among bins of the same width, as `numpy.histogram` chooses it; `low < high`, and the number lies between.
pub fn bin_of(number: f64, low: f64, high: f64, bins: u32) -> u32 {
    let count = f64::from(bins);
    let edge = |bin: u32| if bin == bins { high } else { low + f64::from(bin) * ((high - low) / count) };
    let mut bin = (((number - low) / (high - low)) * count) as u32;
    bin = bin.min(bins - 1);
    // What rounding has put on the wrong side of an edge.
    if number < edge(bin) {
        bin = bin.saturating_sub(1);
    } else if bin + 1 < bins && number >= edge(bin + 1) {
        bin += 1;
    }
    bin
}

/// How many bits of a double's key a bucket of the sketch leaves out: 6 bits of the fraction stay, so that the middle of a bucket is
/// within 0.8 % of all in it.
pub const SKETCH_SHIFT: u32 = 52 - 6;

/// How many buckets the sketch has.
pub fn sketch_buckets() -> usize {
    1 << (u64::BITS - SKETCH_SHIFT)
}

/// The bucket of a number in the sketch: the logarithm of its size to 1/64 of a power of two, and its sign, as DDSketch counts
/// numbers (C. Masson et al., PVLDB 2019, with the interpolated mapping). `None` of NaN.
pub fn sketch_bucket(number: f64) -> Option<u32> {
    // -0 and 0 are one number.
    key_of(Number::F64(number + 0.0), Lane::F64).map(|key| (key >> SKETCH_SHIFT) as u32)
}

/// The number in the middle of a bucket.
pub fn sketch_value(bucket: u32) -> f64 {
    let of = |key: u64| number_of(key, Lane::F64).to_f64();
    let first = u64::from(bucket) << SKETCH_SHIFT;
    let (low, high) = (of(first), of(first + (1 << SKETCH_SHIFT) - 1));
    match (low.is_finite(), high.is_finite()) {
        (true, true) => low + (high - low) / 2.0,
        (true, false) => low,
        (false, true) => high,
        // An infinity has a bucket of its own, with what is not a number.
        _ if low.is_nan() => high,
        _ => low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_are_those_of_numpy() {
        assert_eq!([0.0, 0.1, 0.25, 0.5, 0.99, 1.0].map(|x| bin_of(x, 0.0, 1.0, 4)), [0, 0, 1, 2, 3, 3]);
        // numpy.histogram([0.3], 10, (0, 1)): its third edge is 0.30000000000000004.
        assert_eq!(bin_of(0.3, 0.0, 1.0, 10), 2);
        assert_eq!(bin_of(7.0, 1.0, 7.0, 1), 0);
    }

    #[test]
    fn zero_and_the_infinities_have_buckets() {
        assert_eq!(sketch_bucket(0.0), sketch_bucket(-0.0));
        assert_eq!(sketch_value(sketch_bucket(f64::INFINITY).unwrap()), f64::INFINITY);
        assert_eq!(sketch_value(sketch_bucket(f64::NEG_INFINITY).unwrap()), f64::NEG_INFINITY);
        assert_eq!(sketch_bucket(f64::NAN), None);
        assert!(sketch_value(sketch_bucket(f64::MAX).unwrap()).is_finite());
    }

    proptest! {
        #[test]
        fn the_middle_of_a_bucket_is_near(x in any::<f64>().prop_filter("normal", |x| x.is_normal())) {
            let middle = sketch_value(sketch_bucket(x).unwrap());
            prop_assert!((middle - x).abs() <= 0.008 * x.abs(), "{} {}", middle, x);
        }
    }
}
