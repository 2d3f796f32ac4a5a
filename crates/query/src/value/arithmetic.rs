//! What operators and functions do with numbers: as NumPy does, but that integers never wrap round.

use crate::syntax::Comparison;

/// A function of one number. What it gives of an integer is a double, but for those that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Unary {
    /// Of integers an integer.
    Minus,
    /// Of integers an integer.
    Abs,
    Sqrt,
    Exp,
    Log,
    Log2,
    Log10,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    /// Of integers an integer.
    Floor,
    /// Of integers an integer.
    Ceil,
    /// To the nearest integer, and of two of those to the even one. Of integers an integer.
    Round,
    /// -1, 0 or 1; NaN of NaN. Of integers an integer.
    Sign,
}

/// An operator or a function of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Binary {
    Plus,
    Minus,
    Times,
    /// Never of integers.
    Divide,
    FloorDivide,
    /// With the sign of the divisor.
    Remainder,
    Power,
    /// NaN if one is.
    Minimum,
    /// NaN if one is.
    Maximum,
    /// Never of integers.
    Atan2,
    /// Never of integers.
    Hypot,
    /// Of integers alone.
    BitwiseAnd,
}

/// A test of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Test {
    IsNan,
    IsInf,
    IsFinite,
}

/// A float of a width.
pub trait Float: Copy + PartialOrd {
    /// What a function gives.
    fn unary(self, op: Unary) -> Self;
    /// What an operator gives.
    fn binary(self, op: Binary, other: Self) -> Self;
    /// Whether it is one of those.
    fn test(self, test: Test) -> bool;
}

macro_rules! float {
    ($float:ident) => {
        impl Float for $float {
            #[inline(always)]
            fn unary(self, op: Unary) -> Self {
                match op {
                    Unary::Minus => -self,
                    Unary::Abs => self.abs(),
                    Unary::Sqrt => self.sqrt(),
                    Unary::Exp => self.exp(),
                    Unary::Log => self.ln(),
                    Unary::Log2 => self.log2(),
                    Unary::Log10 => self.log10(),
                    Unary::Sin => self.sin(),
                    Unary::Cos => self.cos(),
                    Unary::Tan => self.tan(),
                    Unary::Asin => self.asin(),
                    Unary::Acos => self.acos(),
                    Unary::Atan => self.atan(),
                    Unary::Sinh => self.sinh(),
                    Unary::Cosh => self.cosh(),
                    Unary::Tanh => self.tanh(),
                    Unary::Floor => self.floor(),
                    Unary::Ceil => self.ceil(),
                    Unary::Round => self.round_ties_even(),
                    Unary::Sign => {
                        if self > 0.0 {
                            1.0
                        } else if self < 0.0 {
                            -1.0
                        } else {
                            // Zeros and NaN.
                            self + 0.0
                        }
                    }
                }
            }

            #[inline(always)]
            fn binary(self, op: Binary, other: Self) -> Self {
                match op {
                    Binary::Plus => self + other,
                    Binary::Minus => self - other,
                    Binary::Times => self * other,
                    Binary::Divide => self / other,
                    Binary::FloorDivide => {
                        if other == 0.0 {
                            return self / other;
                        }
                        // In this order there is an answer also where the divisor is infinite.
                        let rest = self % other;
                        let is_below = rest != 0.0 && (rest < 0.0) != (other < 0.0);
                        let quotient = (self - rest) / other - if is_below { 1.0 } else { 0.0 };
                        if quotient == 0.0 {
                            return (0.0 as $float).copysign(self / other);
                        }
                        let floor = quotient.floor();
                        // What lacks is what the division has rounded.
                        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
                    }
                    // With the sign of the divisor, also of zero.
                    Binary::Remainder => {
                        let rest = self % other;
                        if rest == 0.0 {
                            (0.0 as $float).copysign(other)
                        } else if (rest < 0.0) != (other < 0.0) {
                            rest + other
                        } else {
                            rest
                        }
                    }
                    Binary::Power => self.powf(other),
                    Binary::Minimum => {
                        if self.is_nan() || self < other {
                            self
                        } else {
                            other
                        }
                    }
                    Binary::Maximum => {
                        if self.is_nan() || self > other {
                            self
                        } else {
                            other
                        }
                    }
                    Binary::Atan2 => self.atan2(other),
                    Binary::Hypot => self.hypot(other),
                    Binary::BitwiseAnd => Self::NAN,
                }
            }

            #[inline(always)]
            fn test(self, test: Test) -> bool {
                match test {
                    Test::IsNan => self.is_nan(),
                    Test::IsInf => self.is_infinite(),
                    Test::IsFinite => self.is_finite(),
                }
            }
        }
    };
}

float!(f32);
float!(f64);

/// An integer of a width, which never wraps round.
pub trait Integer: Copy {
    /// What a function gives, of those that give an integer; `None` if that is beyond the type.
    fn integer_unary(self, op: Unary) -> Option<Self>;
    /// What an operator gives; `None` if that is beyond the type, or a divisor is 0.
    fn integer_binary(self, op: Binary, other: Self) -> Option<Self>;
}

macro_rules! integer {
    ($integer:ident) => {
        impl Integer for $integer {
            #[inline(always)]
            fn integer_unary(self, op: Unary) -> Option<Self> {
                match op {
                    Unary::Minus => self.checked_neg(),
                    Unary::Abs => self.checked_abs(),
                    Unary::Sign => Some(self.signum()),
                    Unary::Floor | Unary::Ceil | Unary::Round => Some(self),
                    _ => None,
                }
            }

            #[inline(always)]
            fn integer_binary(self, op: Binary, other: Self) -> Option<Self> {
                let differs = |rest: Self| rest != 0 && (rest < 0) != (other < 0);
                match op {
                    Binary::Plus => self.checked_add(other),
                    Binary::Minus => self.checked_sub(other),
                    Binary::Times => self.checked_mul(other),
                    Binary::FloorDivide => {
                        let quotient = self.checked_div(other)?;
                        Some(if differs(self % other) { quotient - 1 } else { quotient })
                    }
                    Binary::Remainder => {
                        let rest = self.checked_rem(other)?;
                        Some(if differs(rest) { rest + other } else { rest })
                    }
                    Binary::Power => self.checked_pow(u32::try_from(other).ok()?),
                    Binary::Minimum => Some(self.min(other)),
                    Binary::Maximum => Some(self.max(other)),
                    Binary::BitwiseAnd => Some(self & other),
                    Binary::Divide | Binary::Atan2 | Binary::Hypot => None,
                }
            }
        }
    };
}

integer!(i64);
integer!(i128);

/// Whether two numbers compare like that: with NaN only as unequal.
#[inline(always)]
pub fn compares<T: PartialOrd>(comparison: Comparison, a: T, b: T) -> bool {
    match comparison {
        Comparison::Less => a < b,
        Comparison::LessEqual => a <= b,
        Comparison::Greater => a > b,
        Comparison::GreaterEqual => a >= b,
        Comparison::Equal => a == b,
        Comparison::NotEqual => a != b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_and_remainder_are_those_of_numpy() {
        // numpy.floor_divide and numpy.remainder.
        for (a, b, quotient, rest) in [
            (7.0, 3.0, 2.0, 1.0),
            (-7.0, 3.0, -3.0, 2.0),
            (7.0, -3.0, -3.0, -2.0),
            (-7.0, -3.0, 2.0, -1.0),
            (6.0, -3.0, -2.0, 0.0),
            (1.0, 0.1, 9.0, 0.09999999999999995),
            (7.0, f64::INFINITY, 0.0, 7.0),
        ] {
            assert_eq!(
                (a.binary(Binary::FloorDivide, b), a.binary(Binary::Remainder, b)),
                (quotient, rest),
                "{a} // {b}"
            );
        }
        assert_eq!(1f64.binary(Binary::FloorDivide, 0.0), f64::INFINITY);
        assert!(
            1f64.binary(Binary::Remainder, 0.0).is_nan() && 0f64.binary(Binary::FloorDivide, 0.0).is_nan()
        );
        for (a, b, quotient, rest) in
            [(7i64, 3, 2, 1), (-7, 3, -3, 2), (7, -3, -3, -2), (-7, -3, 2, -1), (6, -3, -2, 0)]
        {
            assert_eq!(a.integer_binary(Binary::FloorDivide, b), Some(quotient));
            assert_eq!(a.integer_binary(Binary::Remainder, b), Some(rest));
        }
    }

    #[test]
    fn integers_do_not_wrap_round() {
        assert_eq!(i64::MAX.integer_binary(Binary::Plus, 1), None);
        assert_eq!(2i64.integer_binary(Binary::Power, 63), None);
        assert_eq!(2i64.integer_binary(Binary::Power, -1), None);
        assert_eq!((-2i64).integer_binary(Binary::Power, 63), Some(i64::MIN));
        assert_eq!(i64::MIN.integer_binary(Binary::FloorDivide, -1), None);
        assert_eq!(
            (3i64.integer_binary(Binary::Remainder, 0), i64::MIN.integer_unary(Unary::Abs)),
            (None, None)
        );
    }

    #[test]
    fn nan_goes_on_through_minimum_and_maximum() {
        for op in [Binary::Minimum, Binary::Maximum] {
            assert!(f64::NAN.binary(op, 1.0).is_nan() && 1f64.binary(op, f64::NAN).is_nan());
            assert_eq!(2f32.binary(op, 2.0), 2.0);
        }
        assert_eq!((1f64.binary(Binary::Minimum, 2.0), 1f64.binary(Binary::Maximum, 2.0)), (1.0, 2.0));
        assert!(f32::NAN.unary(Unary::Sign).is_nan() && (-3f32).unary(Unary::Sign) == -1.0);
        let floor = |a: f64, b: f64| a.binary(Binary::FloorDivide, b);
        assert_eq!([floor(16.0, f64::NEG_INFINITY), floor(-16.0, f64::INFINITY)], [-1.0, -1.0]);
        assert_eq!((floor(7.0, -2.0), floor(-7.0, 2.0), floor(16.0, f64::INFINITY)), (-4.0, -4.0, 0.0));
        assert!((-4.0f64).binary(Binary::Remainder, 2.0).is_sign_positive());
        assert!(4.0f64.binary(Binary::Remainder, -2.0).is_sign_negative());
        assert_eq!([0.5f64, 1.5, 2.5, -0.5].map(|x| x.unary(Unary::Round)), [0.0, 2.0, 2.0, 0.0]);
    }
}
