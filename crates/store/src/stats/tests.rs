//! What statistics are of which elements.

use super::*;
use crate::element::{Element, bytes_of};
use forebay_core::block::Extent;
use forebay_core::dtype::Dtype;
use forebay_core::stats::{BlockStats, Extremes, StatsOfBlock, Sum, Value};
use proptest::prelude::*;

fn dense(elements: usize) -> Extent {
    Extent::new(None, &[elements as u64], &[], &[]).unwrap()
}

fn made(dtype: Dtype, bytes: &[u8], wanted: StatsOfBlock) -> BlockStats {
    let mut accumulator = Accumulator::new(dtype, bytes.len() as u64, wanted);
    accumulator.add(bytes);
    accumulator.finish(bytes, &dense(bytes.len() / dtype.size()))
}

fn of<T: Element>(values: &[T]) -> BlockStats {
    let (all, compared) = (
        made(T::DTYPE, bytes_of(values), StatsOfBlock::All),
        made(T::DTYPE, bytes_of(values), StatsOfBlock::Extremes),
    );
    let without_moments = BlockStats { moments: None, ..all.clone() };
    // NaN is not equal to itself.
    assert_eq!(format!("{without_moments:?}"), format!("{compared:?}"), "they have the same extremes");
    all
}

fn bounds(found: &BlockStats) -> Option<(Value, Value)> {
    found.extremes.map(|extremes| (extremes.min, extremes.max))
}

fn sum(found: &BlockStats) -> Sum {
    found.whole().unwrap().sum
}

#[test]
fn infinities_are_values_and_nan_is_counted() {
    let found = of(&[1.5f64, f64::NAN, -2.0, f64::INFINITY, 4.0]);
    let expected = Some((Value::Float(-2.0), Value::Float(f64::INFINITY)));
    assert_eq!((bounds(&found), found.count, found.nan), (expected, 4, 1));
    assert_eq!(found.extremes.map(|extremes| (extremes.min_at, extremes.max_at)), Some((2, 3)));
    assert!(sum(&found).to_f64().is_infinite() && found.tiles.is_empty());
    let found = of(&[f32::NAN; 40_000]);
    assert_eq!((bounds(&found), found.nan), (None, 40_000));
    let tiles: Vec<f32> = found.tiles.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert!(tiles.len() == 6 && tiles.iter().all(|bound| bound.is_nan()));
}

#[test]
fn each_type_has_its_own_bounds() {
    assert_eq!(bounds(&of(&[i64::MIN, i64::MAX])), Some((Value::Int(i64::MIN), Value::Int(i64::MAX))));
    assert_eq!(
        bounds(&of(&[u64::MAX, 1 << 63])),
        Some((Value::Unsigned(1 << 63), Value::Unsigned(u64::MAX)))
    );
    assert_eq!(sum(&of(&[u64::MAX; 3])), Sum::Int(3 * i128::from(u64::MAX)));
    assert_eq!(bounds(&of(&[-3i8, 7])), Some((Value::Int(-3), Value::Int(7))));
    assert_eq!(bounds(&of(&[200u8, 7])), Some((Value::Unsigned(7), Value::Unsigned(200))));
    let bools = made(Dtype::Bool, &[0, 5, 1], StatsOfBlock::All);
    assert_eq!((bounds(&bools), sum(&bools)), (Some((Value::Unsigned(0), Value::Unsigned(1))), Sum::Int(2)));
    assert_eq!(bools.extremes.map(|extremes| (extremes.min_at, extremes.max_at)), Some((0, 1)));
    let halves: Vec<u8> =
        [3.5, -1.0, f32::NAN].iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
    let halves = made(Dtype::Bf16, &halves, StatsOfBlock::Extremes);
    assert_eq!((bounds(&halves), halves.nan), (Some((Value::Float(-1.0), Value::Float(3.5))), 1));
    assert_eq!(made(Dtype::C64, &[0; 16], StatsOfBlock::Extremes).extremes, None);
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
    for wanted in [StatsOfBlock::Extremes, StatsOfBlock::All] {
        let mut accumulator = Accumulator::new(Dtype::F32, 24 * 4, wanted);
        accumulator.add_interior(&bytes, &extent);
        assert_eq!(accumulator.finish(&bytes, &extent), made(Dtype::F32, bytes_of(&inside), wanted));
    }
    let empty = Extent::new(None, &[2, 0], &[1, 1], &[1, 1]).unwrap();
    let mut accumulator = Accumulator::new(Dtype::F32, 0, StatsOfBlock::All);
    accumulator.add_interior(&[0; 4 * 4 * 2], &empty);
    assert_eq!(accumulator.finish(&[0; 4 * 4 * 2], &empty), BlockStats::empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever the runs in which elements come, tiles are of consecutive ones.
    #[test]
    fn tiles_do_not_depend_on_runs(count in 1usize..40_000, run in 1usize..20_000, seed in any::<u32>()) {
        let value = |i: usize| ((i as u64 * 2_654_435_761 + u64::from(seed)) % 100_003) as f64 - 5e4;
        let values: Vec<f64> = (0..count).map(value).collect();
        let whole = of(&values);
        let mut accumulator = Accumulator::new(Dtype::F64, 8 * count as u64, StatsOfBlock::All);
        values.chunks(run).for_each(|run| accumulator.add(bytes_of(run)));
        prop_assert_eq!(&accumulator.finish(bytes_of(&values), &dense(count)), &whole);
        let first = |value: Value| values.iter().position(|x| *x == value.to_f64()).map(|place| place as u64);
        let Extremes { min, max, min_at, max_at } = whole.extremes.unwrap();
        prop_assert_eq!((Some(min_at), Some(max_at)), (first(min), first(max)));
        // The same while it is copied, past the cache or not.
        for streams in [false, true] {
            let mut accumulator = Accumulator::new(Dtype::F64, 8 * count as u64, StatsOfBlock::Extremes);
            let mut copy = vec![0.0; count];
            for (to, from) in copy.chunks_mut(run).zip(values.chunks(run)) {
                // SAFETY: both are of one length.
                #[allow(unsafe_code)]
                unsafe {
                    accumulator.copy(to.as_mut_ptr().cast(), from.as_ptr().cast(), size_of_val(from), streams);
                }
            }
            crate::streaming::finish();
            prop_assert_eq!(&copy, &values);
            let found = accumulator.finish(bytes_of(&values), &dense(count));
            prop_assert_eq!(found, BlockStats { moments: None, ..whole.clone() });
        }
        prop_assert!(whole.fits(8 * count as u64, 8));
        let bounds: Vec<f64> = whole.tiles.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
        if count > 8192 {
            for (tile, bounds) in values.chunks(8192).zip(bounds.chunks(2)) {
                prop_assert_eq!(tile.iter().copied().fold(f64::INFINITY, f64::min), bounds[0]);
                prop_assert_eq!(tile.iter().copied().fold(f64::NEG_INFINITY, f64::max), bounds[1]);
            }
        }
        prop_assert_eq!(sum(&whole).to_f64(), values.iter().sum::<f64>(), "integers below 2^53");
    }
}
