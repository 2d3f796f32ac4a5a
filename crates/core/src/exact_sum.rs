//! The exact sum of doubles: whatever their order and size, the result is the double nearest to it.
//!
//! A number of fixed point that is wide enough for all doubles: U. W. Kulisch, "Computer Arithmetic and Validity" (2008), with
//! digits that take in many numbers before carries are passed on, as in R. M. Neal, "Fast exact summation using small and large
//! superaccumulators" (2015).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bits of a digit.
const DIGIT: u32 = 32;
/// The place of the lowest bit of the smallest double, below the point.
const LOWEST: i32 = 1074;
/// Enough digits for the largest double 2^64 times.
const DIGITS: usize = (LOWEST as usize + 1024 + 64).div_ceil(DIGIT as usize) + 1;
/// How many numbers digits take in before carries are passed on: each adds less than 2^32 to one.
const PENDING_MAX: u32 = 1 << 29;

/// The exact sum of doubles.
#[derive(Debug, Clone)]
pub struct ExactSum {
    /// Lowest first; each may be larger than a digit, or negative, until carries are passed on.
    digits: [i64; DIGITS],
    /// How many numbers were added since that was done.
    pending: u32,
    /// The sum of what is not finite, if there is some.
    special: Option<f64>,
}

impl Default for ExactSum {
    fn default() -> ExactSum {
        ExactSum { digits: [0; DIGITS], pending: 0, special: None }
    }
}

impl ExactSum {
    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        if !number.is_finite() {
            self.special = Some(self.special.unwrap_or(0.0) + number);
            return;
        }
        let bits = number.to_bits();
        let exponent = ((bits >> 52) & 0x7ff) as u32;
        let fraction = bits & ((1 << 52) - 1);
        // The number is mantissa times 2^(place - LOWEST).
        let (mantissa, place) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        let (digit, shift) = ((place / DIGIT) as usize, place % DIGIT);
        let wide = u128::from(mantissa) << shift;
        let parts = [wide, wide >> DIGIT, wide >> (2 * DIGIT)].map(|part| i64::from(part as u32));
        for (index, part) in parts.into_iter().enumerate() {
            self.digits[digit + index] += if number.is_sign_negative() { -part } else { part };
        }
        self.pending += 1;
        if self.pending == PENDING_MAX {
            self.carry();
        }
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &ExactSum) {
        let mut other = other.clone();
        other.carry();
        self.carry();
        for (own, theirs) in self.digits.iter_mut().zip(other.digits) {
            *own += theirs;
        }
        self.pending = 1;
        if let Some(special) = other.special {
            self.special = Some(self.special.unwrap_or(0.0) + special);
        }
    }

    /// Passes carries on: all digits but the last are from 0 to below 2^32 then.
    fn carry(&mut self) {
        let mut carry = 0;
        for digit in &mut self.digits[..DIGITS - 1] {
            let sum = *digit + carry;
            *digit = sum & i64::from(u32::MAX);
            carry = sum >> DIGIT;
        }
        self.digits[DIGITS - 1] += carry;
        self.pending = 0;
    }

    /// Its sign, and its digits without sign, lowest first.
    fn magnitude(&self) -> (bool, [u32; DIGITS]) {
        let mut sum = self.clone();
        sum.carry();
        let is_negative = sum.digits[DIGITS - 1] < 0;
        if is_negative {
            sum.digits.iter_mut().for_each(|digit| *digit = -*digit);
            sum.carry();
        }
        (is_negative, sum.digits.map(|digit| digit as u32))
    }

    /// The double nearest to it; of two the even one. Infinite if it is beyond them.
    pub fn to_f64(&self) -> f64 {
        if let Some(special) = self.special {
            return special;
        }
        let (is_negative, digits) = self.magnitude();
        let Some(top) = digits.iter().rposition(|digit| *digit != 0) else { return 0.0 };
        // The highest 64 bits, and whether there are any below them.
        let at = |index: usize| u128::from(digits[index]);
        let below = |count: usize| if top >= count { at(top - count) } else { 0 };
        let wide = at(top) << 64 | below(1) << 32 | below(2);
        let has_rest = top >= 3 && digits[..top - 2].iter().any(|digit| *digit != 0);
        let length = 128 - wide.leading_zeros();
        let highest = ((wide << (128 - length)) >> 64) as u64;
        let lost = (wide << (128 - length)) as u64 != 0 || has_rest;
        // The place of the highest bit above the lowest of all.
        let place = (top as i32 - 2) * DIGIT as i32 + length as i32 - 1;
        let magnitude = rounded(highest, lost, place);
        if is_negative { -magnitude } else { magnitude }
    }

    /// The same as doubles, each the nearest to what those before it lack: the exact sum, unless it needs more than `N`.
    pub fn to_parts<const N: usize>(&self) -> ([f64; N], bool) {
        let (mut parts, mut rest) = ([0.0; N], self.clone());
        for part in &mut parts {
            *part = rest.to_f64();
            if *part == 0.0 || !part.is_finite() {
                return (parts, true);
            }
            rest.add(-*part);
        }
        (parts, rest.to_f64() == 0.0)
    }
}

/// The double nearest to 64 bits, of which the highest is set and lies at this place above the lowest of all doubles.
fn rounded(highest: u64, has_rest: bool, place: i32) -> f64 {
    // How many bits the mantissa has: fewer, if the number is below the normal ones.
    let kept = (place + 1).min(53);
    let mantissa = highest >> (64 - kept);
    let dropped = if kept == 64 { 0 } else { highest << kept };
    let half = 1u64 << 63;
    let up = dropped > half || (dropped == half && (has_rest || mantissa & 1 == 1));
    let mantissa = mantissa + u64::from(up);
    // Exact: at most 2^53, and a power of two.
    let exponent = place + 1 - kept;
    let bits = if place < 53 { mantissa } else { ((exponent as u64 + 1) << 52) + (mantissa - (1 << 52)) };
    if bits >= f64::INFINITY.to_bits() { f64::INFINITY } else { f64::from_bits(bits) }
}

impl PartialEq for ExactSum {
    fn eq(&self, other: &ExactSum) -> bool {
        let special = |sum: &ExactSum| sum.special.map(f64::to_bits);
        self.magnitude() == other.magnitude() && special(self) == special(other)
    }
}

impl FromIterator<f64> for ExactSum {
    fn from_iter<I: IntoIterator<Item = f64>>(numbers: I) -> ExactSum {
        let mut sum = ExactSum::default();
        numbers.into_iter().for_each(|number| sum.add(number));
        sum
    }
}

/// What is not finite, whether it is negative, the place of the first digit, and the digits that are not 0 at both ends.
type Sent = (Option<f64>, bool, u8, Vec<u32>);

impl Serialize for ExactSum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (is_negative, digits) = self.magnitude();
        let first = digits.iter().position(|digit| *digit != 0).unwrap_or(0);
        let end = digits.iter().rposition(|digit| *digit != 0).map_or(first, |last| last + 1);
        let sent: Sent = (self.special, is_negative, first as u8, digits[first..end].to_vec());
        sent.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ExactSum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ExactSum, D::Error> {
        let (special, is_negative, first, digits) = Sent::deserialize(deserializer)?;
        let mut sum = ExactSum { special, ..ExactSum::default() };
        let first = usize::from(first);
        let places = sum.digits.get_mut(first..).and_then(|places| places.get_mut(..digits.len()));
        let Some(places) = places else { return Err(D::Error::custom("a sum of too many digits")) };
        for (place, digit) in places.iter_mut().zip(digits) {
            *place = if is_negative { -i64::from(digit) } else { i64::from(digit) };
        }
        sum.pending = 1;
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(numbers: &[f64]) -> f64 {
        numbers.iter().copied().collect::<ExactSum>().to_f64()
    }

    #[test]
    fn nothing_is_lost() {
        // Those of Python's tests of math.fsum.
        for (numbers, expected) in [
            (vec![], 0.0),
            (vec![1e100, 1.0, -1e100, 1e-100, 1e50, -1.0, -1e50], 1e-100),
            (vec![2f64.powi(53), -0.5, -(2f64.powi(-54))], 2f64.powi(53) - 1.0),
            (vec![2f64.powi(53), 1.0, 2f64.powi(-100)], 2f64.powi(53) + 2.0),
            (vec![2f64.powi(53) + 10.0, 1.0, 2f64.powi(-100)], 2f64.powi(53) + 12.0),
            (vec![2f64.powi(53) - 4.0, 0.5, 2f64.powi(-54)], 2f64.powi(53) - 3.0),
            (vec![f64::MAX, -f64::MAX / 2.0, f64::MAX / 2.0], f64::MAX),
            (vec![f64::MAX, f64::MAX, -f64::MAX], f64::MAX),
            (vec![f64::MAX, 2f64.powi(970)], f64::INFINITY),
            (vec![f64::MAX, 2f64.powi(969)], f64::MAX),
            (vec![-f64::MAX, -f64::MAX], f64::NEG_INFINITY),
            (vec![5e-324, 5e-324, -5e-324], 5e-324),
            (vec![f64::MIN_POSITIVE, -5e-324], f64::MIN_POSITIVE - 5e-324),
            (vec![1.0, f64::INFINITY], f64::INFINITY),
            (vec![0.1; 10], 1.0),
        ] {
            assert_eq!(sum(&numbers), expected, "{numbers:?}");
        }
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        let harmonic: Vec<f64> = (1..1001).map(|n| 1.0 / f64::from(n)).collect();
        assert_eq!(sum(&harmonic), 7.485470860550345);
        let signs: Vec<f64> = (1..1001).map(|n| if n % 2 == 0 { 1.0 } else { -1.0 } / f64::from(n)).collect();
        assert_eq!(sum(&signs), -0.6926474305598203);
    }

    #[test]
    fn doubles_that_add_up_to_it() {
        let total: ExactSum = [1e30, 1.0, 1e-30].into_iter().collect();
        assert_eq!(total.to_parts::<3>(), ([1e30, 1.0, 1e-30], true));
        assert_eq!(total.to_parts::<2>(), ([1e30, 1.0], false));
        assert_eq!(ExactSum::default().to_parts::<3>(), ([0.0; 3], true));
        let infinite: ExactSum = [f64::NEG_INFINITY].into_iter().collect();
        assert_eq!(infinite.to_parts::<2>(), ([f64::NEG_INFINITY, 0.0], true));
    }

    fn doubles() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<f64>().prop_filter("finite", |x| x.is_finite()),
            -1e6f64..1e6,
            (any::<i64>(), -60i32..60).prop_map(|(m, e)| m as f64 * 2f64.powi(e)),
            (1u64..100).prop_map(f64::from_bits),
        ]
    }

    proptest! {
        /// However numbers are divided among sums, and whatever their order.
        #[test]
        fn order_and_parts_do_not_matter(mut numbers in prop::collection::vec(doubles(), 0..60), cut in 0usize..60) {
            let whole: ExactSum = numbers.iter().copied().collect();
            let cut = cut.min(numbers.len());
            let mut first: ExactSum = numbers[..cut].iter().copied().collect();
            first.add_sum(&numbers[cut..].iter().copied().collect());
            prop_assert_eq!(first.to_f64().to_bits(), whole.to_f64().to_bits());
            prop_assert_eq!(&first, &whole);
            numbers.reverse();
            prop_assert_eq!(sum(&numbers).to_bits(), whole.to_f64().to_bits());
            // With all of them taken away again, nothing is left.
            numbers.iter().for_each(|number| first.add(-number));
            prop_assert_eq!(first.to_f64(), 0.0);
        }

        /// The sum of two doubles is known from their rounded one.
        #[test]
        fn two_are_rounded_as_the_processor_does(a in doubles(), b in doubles()) {
            prop_assert_eq!(sum(&[a, b]), a + b);
            prop_assert_eq!(sum(&[a]), a);
        }
    }
}
