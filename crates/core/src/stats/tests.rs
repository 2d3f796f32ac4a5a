//! What statistics say of which elements.

use super::*;
use proptest::prelude::*;

fn of(values: &[f64]) -> Stats {
    let mut stats = Stats::EMPTY;
    for value in values {
        let one = match value.is_nan() {
            true => Stats { nan: 1, ..Stats::EMPTY },
            false => Stats {
                bounds: Some((Value::Float(*value), Value::Float(*value))),
                count: 1,
                nan: 0,
                sum: Sum::Float(*value, 0.0),
                m2: 0.0,
            },
        };
        stats.merge(&one);
    }
    stats
}

#[test]
fn the_variance_of_large_numbers_that_differ_little() {
    let stats = of(&[1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]);
    assert_eq!((stats.variance(), stats.mean()), (22.5, 1e9 + 10.0));
}

#[test]
fn infinities_are_values_and_nan_is_counted() {
    let stats = of(&[f64::NAN, 1.0, f64::INFINITY, -2.0]);
    assert_eq!((stats.min(), stats.max(), stats.count, stats.nan), (-2.0, f64::INFINITY, 3, 1));
    assert!(stats.sum.to_f64().is_infinite());
    assert!(of(&[f64::INFINITY, f64::NEG_INFINITY]).sum.to_f64().is_nan());
    let none = of(&[f64::NAN]);
    assert!(none.min().is_nan() && none.mean().is_nan() && none.variance().is_nan());
}

#[test]
fn sums_keep_what_doubles_lose() {
    let stats = of(&[1.0, 1e100, 1.0, -1e100]);
    assert_eq!(stats.sum, Sum::Float(2.0, 0.0), "Neumaier's example, of two doubles");
}

#[test]
fn bounds_of_wide_integers_are_exact_and_their_doubles_never_inside() {
    let wide = |value| Stats {
        bounds: Some((Value::Int(value), Value::Int(value))),
        count: 1,
        sum: Sum::Int(value.into()),
        ..Stats::EMPTY
    };
    let mut stats = wide(i64::MAX);
    stats.merge(&wide(i64::MIN + 1));
    assert_eq!(stats.bounds, Some((Value::Int(i64::MIN + 1), Value::Int(i64::MAX))));
    assert!(stats.max() as i128 >= i128::from(i64::MAX) && stats.min() as i128 <= i128::from(i64::MIN + 1));
    assert_eq!(stats.sum, Sum::Int(0));
}

#[test]
fn tiles_are_never_too_many() {
    assert_eq!([1, 64 << 10, 256 << 20].map(tile_bytes), [TILE_BYTES; 3]);
    assert_eq!(tile_bytes((256 << 20) + 1), 2 * TILE_BYTES);
    assert!(u64::MAX.div_ceil(tile_bytes(u64::MAX)) <= TILES_MAX);
    let of = |tiles: usize, count: u64, nan: u64, at: u64| {
        let (min, max) = (Value::Float(0.0), Value::Float(0.0));
        let extremes = (count > 0).then_some(Extremes { min, max, min_at: at, max_at: at });
        BlockStats { extremes, count, nan, moments: None, tiles: vec![0; 16 * tiles].into() }
    };
    assert!(of(0, 8192, 0, 8191).fits(64 << 10, 8) && of(2, 8190, 3, 0).fits((64 << 10) + 8, 8));
    assert!(of(0, 0, 0, 0).fits(0, 8) && of(0, 0, 2, 0).fits(16, 8), "nothing, and nothing but NaN");
    assert!(!of(1, 8192, 0, 0).fits(64 << 10, 8) && !of(0, 8191, 0, 0).fits(64 << 10, 8));
    assert!(!of(0, 8192, 0, 8192).fits(64 << 10, 8) && !of(1, 0, 0, 0).fits(0, 8));
}

proptest! {
    /// However elements lie in blocks, and whatever the order in which these are merged.
    #[test]
    fn merging_in_another_order_changes_nothing(values in prop::collection::vec(-1e6f64..1e6, 1..60), cut in 0usize..60) {
        let cut = cut.min(values.len());
        let whole = of(&values);
        let (mut first, second) = (of(&values[cut..]), of(&values[..cut]));
        first.merge(&second);
        prop_assert_eq!((first.bounds, first.count), (whole.bounds, whole.count));
        prop_assert_eq!(first.sum.to_f64(), whole.sum.to_f64());
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let exact = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        prop_assert!((first.variance() - exact).abs() <= 1e-9 * exact.max(1.0));
    }
}
