//! Numbers in their order as integers of 64 bits.

use crate::plan::Lane;
use crate::value::Number;

const SIGN: u64 = 1 << 63;

/// The key of a number of a lane: keys compare as their numbers do. Those of floats of 32 bits are those of the same doubles, those
/// of unsigned integers they themselves. -0 comes before 0, and no key is one of NaN.
pub fn key_of(number: Number, lane: Lane) -> Option<u64> {
    match number {
        Number::Integer(number) if lane == Lane::U64 => u64::try_from(number).ok(),
        Number::Integer(number) => i64::try_from(number).ok().map(|number| number as u64 ^ SIGN),
        Number::F32(number) => key_of(Number::F64(f64::from(number)), lane),
        Number::F64(number) if number.is_nan() => None,
        Number::F64(number) => {
            let bits = number.to_bits();
            Some(if bits & SIGN == 0 { bits | SIGN } else { !bits })
        }
    }
}

/// The number of a key, in a lane.
pub fn number_of(key: u64, lane: Lane) -> Number {
    let double = |key: u64| f64::from_bits(if key & SIGN == 0 { !key } else { key & !SIGN });
    match lane {
        Lane::F32 => Number::F32(double(key) as f32),
        Lane::F64 => Number::F64(double(key)),
        Lane::I64 | Lane::Mask => Number::Integer(i128::from((key ^ SIGN) as i64)),
        Lane::U64 => Number::Integer(i128::from(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_compare_as_their_numbers(a in any::<f64>(), b in any::<f64>(), i in any::<i64>(), j in any::<i64>()) {
            if let (Some(x), Some(y)) = (key_of(Number::F64(a), Lane::F64), key_of(Number::F64(b), Lane::F64)) {
                prop_assert!(a == b || (x < y) == (a < b));
                prop_assert_eq!(number_of(x, Lane::F64), Number::F64(a));
            }
            let key = |number: i64| key_of(Number::Integer(number.into()), Lane::I64).unwrap();
            prop_assert_eq!(key(i) < key(j), i < j);
            prop_assert_eq!(number_of(key(i), Lane::I64), Number::Integer(i.into()));
            let narrow = a as f32;
            if !narrow.is_nan() {
                prop_assert_eq!(number_of(key_of(Number::F32(narrow), Lane::F32).unwrap(), Lane::F32), Number::F32(narrow));
            }
        }
    }
}
