//! What reductions do with two elements.
//!
//! Each operation gives the same bits wherever it is computed: the operand of the lower rank is the first one. Integers wrap. The minimum
//! or maximum of a NaN and a number is the NaN, as of `numpy.minimum`; of two that are equal it is the first.

use forebay_core::{Error, Result};
use half::{bf16, f16};
use std::ops::{BitAnd, BitOr, BitXor};

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Datatype {
    /// 8 bits with a sign.
    Int8,
    /// 16 bits with a sign.
    Int16,
    /// 32 bits with a sign.
    Int32,
    /// 64 bits with a sign.
    Int64,
    /// 8 bits.
    UInt8,
    /// 16 bits.
    UInt16,
    /// 32 bits.
    UInt32,
    /// 64 bits.
    UInt64,
    /// IEEE 754 of 32 bits.
    Float32,
    /// IEEE 754 of 64 bits.
    Float64,
    /// Two of 32 bits.
    Complex64,
    /// Two of 64 bits.
    Complex128,
    /// A byte that is 0 or 1.
    Bool,
    /// IEEE 754 of 16 bits; computed in 32.
    Float16,
    /// The upper half of one of 32 bits; computed in these.
    BFloat16,
    /// A number of 32 bits and an `int`, as C lays out a struct of both: for the places of extrema, as all of these.
    Float32Int,
    /// A number of 64 bits and an `int`.
    Float64Int,
    /// An integer of 64 bits and an `int`.
    Int64Int,
    /// Two `int`s.
    Int32Int,
    /// An integer of 16 bits and an `int`.
    Int16Int,
}

/// An operation on two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// 1 if both are not 0.
    LogicalAnd,
    /// 1 if one is not 0.
    LogicalOr,
    /// 1 if exactly one is not 0.
    LogicalXor,
    /// Their common bits.
    BitAnd,
    /// The bits of either.
    BitOr,
    /// The bits of exactly one.
    BitXor,
    /// The smaller one with its place; of two that are equal the lower place.
    MinLocation,
    /// The larger one with its place; of two that are equal the lower place.
    MaxLocation,
}

/// Combines elements one by one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Combine {
    /// Those of the second into those of the first.
    pub(crate) into: fn(&mut [u8], &[u8]),
    /// Those of the third with those of the second, into the first.
    pub(crate) apart: fn(&mut [u8], &[u8], &[u8]),
}

/// An operation on elements of one type, for either order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Combines {
    /// The second are of the higher rank.
    pub(crate) with_higher: Combine,
    /// The second are of the lower rank.
    pub(crate) with_lower: Combine,
}

impl Datatype {
    /// All of them.
    pub(crate) const ALL: &'static [Datatype] = &[
        Datatype::Int8,
        Datatype::Int16,
        Datatype::Int32,
        Datatype::Int64,
        Datatype::UInt8,
        Datatype::UInt16,
        Datatype::UInt32,
        Datatype::UInt64,
        Datatype::Float32,
        Datatype::Float64,
        Datatype::Complex64,
        Datatype::Complex128,
        Datatype::Bool,
        Datatype::Float16,
        Datatype::BFloat16,
        Datatype::Float32Int,
        Datatype::Float64Int,
        Datatype::Int64Int,
        Datatype::Int32Int,
        Datatype::Int16Int,
    ];
    pub(crate) const COUNT: u16 = Datatype::ALL.len() as u16;

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Datatype::Float32Int | Datatype::Int32Int | Datatype::Int16Int => 8,
            Datatype::Float64Int | Datatype::Int64Int => 16,
            Datatype::Int8 | Datatype::UInt8 | Datatype::Bool => 1,
            Datatype::Int16 | Datatype::UInt16 | Datatype::Float16 | Datatype::BFloat16 => 2,
            Datatype::Int32 | Datatype::UInt32 | Datatype::Float32 => 4,
            Datatype::Int64 | Datatype::UInt64 | Datatype::Float64 | Datatype::Complex64 => 8,
            Datatype::Complex128 => 16,
        }
    }
}

impl Operation {
    /// All of them, in the order of their numbers.
    pub const ALL: &'static [Operation] = &[
        Operation::Sum,
        Operation::Product,
        Operation::Min,
        Operation::Max,
        Operation::LogicalAnd,
        Operation::LogicalOr,
        Operation::LogicalXor,
        Operation::BitAnd,
        Operation::BitOr,
        Operation::BitXor,
        Operation::MinLocation,
        Operation::MaxLocation,
    ];

    /// How elements of this type are combined.
    pub(crate) fn of(self, datatype: Datatype) -> Result<Combines> {
        let found = match datatype {
            Datatype::Int8 => self.of_integer::<i8>(),
            Datatype::Int16 => self.of_integer::<i16>(),
            Datatype::Int32 => self.of_integer::<i32>(),
            Datatype::Int64 => self.of_integer::<i64>(),
            Datatype::UInt8 => self.of_integer::<u8>(),
            Datatype::UInt16 => self.of_integer::<u16>(),
            Datatype::UInt32 => self.of_integer::<u32>(),
            Datatype::UInt64 => self.of_integer::<u64>(),
            Datatype::Float32 => self.of_number::<f32>(),
            Datatype::Float64 => self.of_number::<f64>(),
            Datatype::Float16 => self.of_number::<f16>(),
            Datatype::BFloat16 => self.of_number::<bf16>(),
            Datatype::Complex64 => self.of_complex::<f32>(),
            Datatype::Complex128 => self.of_complex::<f64>(),
            Datatype::Bool => self.of_bool(),
            Datatype::Float32Int => self.of_located::<f32>(),
            Datatype::Float64Int => self.of_located::<f64>(),
            Datatype::Int64Int => self.of_located::<i64>(),
            Datatype::Int32Int => self.of_located::<i32>(),
            Datatype::Int16Int => self.of_located::<i16>(),
        };
        found.ok_or_else(|| Error::invalid(format!("{self:?} of {datatype:?} is not defined")))
    }

    fn of_number<T: Number>(self) -> Option<Combines> {
        Some(match self {
            Operation::Sum => combines::<T, Sum>(),
            Operation::Product => combines::<T, Product>(),
            Operation::Min => combines::<T, Min>(),
            Operation::Max => combines::<T, Max>(),
            _ => return None,
        })
    }

    fn of_integer<T: Integer>(self) -> Option<Combines> {
        Some(match self {
            Operation::LogicalAnd => combines::<T, LogicalAnd>(),
            Operation::LogicalOr => combines::<T, LogicalOr>(),
            Operation::LogicalXor => combines::<T, LogicalXor>(),
            Operation::BitAnd => combines::<T, Common>(),
            Operation::BitOr => combines::<T, Either>(),
            Operation::BitXor => combines::<T, Differing>(),
            _ => return self.of_number::<T>(),
        })
    }

    fn of_complex<T: Number>(self) -> Option<Combines> {
        Some(match self {
            Operation::Sum => combines::<Complex<T>, Sum>(),
            Operation::Product => combines::<Complex<T>, Product>(),
            _ => return None,
        })
    }

    fn of_located<T: Number>(self) -> Option<Combines> {
        Some(match self {
            Operation::MinLocation => combines::<Located<T>, MinLocation>(),
            Operation::MaxLocation => combines::<Located<T>, MaxLocation>(),
            _ => return None,
        })
    }

    fn of_bool(self) -> Option<Combines> {
        match self {
            Operation::LogicalAnd | Operation::LogicalOr | Operation::LogicalXor => self.of_integer::<u8>(),
            _ => None,
        }
    }
}

// ---- elements ---------------------------------------------------------------------------------------------

/// An element as its bytes lie in memory.
trait Element: Copy {
    const SIZE: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
}

/// What can be added and multiplied.
trait Ring: Element {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// What has an order.
trait Ordered: Element {
    fn is_below(self, other: Self) -> bool;
    fn is_nan(self) -> bool;
}

/// What has all of that.
trait Number: Ring + Ordered {
    fn minus(self, other: Self) -> Self;
}

trait Integer: Number + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> {
    fn is_true(self) -> bool;
    fn of(truth: bool) -> Self;
}

macro_rules! element {
    ($($type:ty),*) => { $(
        impl Element for $type {
            const SIZE: usize = size_of::<$type>();
            fn read(bytes: &[u8]) -> Self {
                <$type>::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default())
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )* };
}

macro_rules! integer {
    ($($type:ty),*) => { $(
        impl Ring for $type {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
        impl Ordered for $type {
            fn is_below(self, other: Self) -> bool {
                self < other
            }
            fn is_nan(self) -> bool {
                false
            }
        }
        impl Number for $type {
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
        }
        impl Integer for $type {
            fn is_true(self) -> bool {
                self != 0
            }
            fn of(truth: bool) -> Self {
                truth.into()
            }
        }
    )* };
}

macro_rules! float {
    ($($type:ty),*) => { $(
        impl Ring for $type {
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
        }
        impl Ordered for $type {
            fn is_below(self, other: Self) -> bool {
                self < other
            }
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }
        }
        impl Number for $type {
            fn minus(self, other: Self) -> Self {
                self - other
            }
        }
    )* };
}

element!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, f16, bf16);
integer!(i8, i16, i32, i64, u8, u16, u32, u64);
float!(f32, f64, f16, bf16);

#[derive(Clone, Copy)]
struct Complex<T>(T, T);

impl<T: Element> Element for Complex<T> {
    const SIZE: usize = 2 * T::SIZE;
    fn read(bytes: &[u8]) -> Self {
        let (real, imaginary) = bytes.split_at(T::SIZE);
        Complex(T::read(real), T::read(imaginary))
    }
    fn write(self, bytes: &mut [u8]) {
        let (real, imaginary) = bytes.split_at_mut(T::SIZE);
        self.0.write(real);
        self.1.write(imaginary);
    }
}

impl<T: Number> Ring for Complex<T> {
    fn plus(self, other: Self) -> Self {
        Complex(self.0.plus(other.0), self.1.plus(other.1))
    }
    fn times(self, other: Self) -> Self {
        Complex(
            self.0.times(other.0).minus(self.1.times(other.1)),
            self.0.times(other.1).plus(self.1.times(other.0)),
        )
    }
}

/// A value and its place, an `int` that is aligned as C aligns it.
#[derive(Clone, Copy)]
struct Located<T>(T, i32);

impl<T: Element> Element for Located<T> {
    const SIZE: usize = if T::SIZE > 4 { 2 * T::SIZE } else { 8 };
    fn read(bytes: &[u8]) -> Self {
        let (value, place) = bytes.split_at(Self::SIZE / 2);
        Located(T::read(value), i32::read(place))
    }
    fn write(self, bytes: &mut [u8]) {
        bytes.fill(0);
        let (value, place) = bytes.split_at_mut(Self::SIZE / 2);
        self.0.write(&mut value[..T::SIZE]);
        self.1.write(&mut place[..4]);
    }
}

// ---- operations -------------------------------------------------------------------------------------------

/// An operation, of a first and a second operand.
trait Apply<T> {
    fn apply(first: T, second: T) -> T;
}

macro_rules! operation {
    ($name:ident, $bound:ident, |$first:ident, $second:ident| $result:expr) => {
        struct $name;
        impl<T: $bound> Apply<T> for $name {
            fn apply($first: T, $second: T) -> T {
                $result
            }
        }
    };
}

operation!(Sum, Ring, |a, b| a.plus(b));
operation!(Product, Ring, |a, b| a.times(b));
operation!(Min, Ordered, |a, b| if !a.is_nan() && (b.is_nan() || b.is_below(a)) { b } else { a });
operation!(Max, Ordered, |a, b| if !a.is_nan() && (b.is_nan() || a.is_below(b)) { b } else { a });
struct MinLocation;
impl<T: Number> Apply<Located<T>> for MinLocation {
    fn apply(a: Located<T>, b: Located<T>) -> Located<T> {
        located(Min::apply(a.0, b.0), a, b)
    }
}

struct MaxLocation;
impl<T: Number> Apply<Located<T>> for MaxLocation {
    fn apply(a: Located<T>, b: Located<T>) -> Located<T> {
        located(Max::apply(a.0, b.0), a, b)
    }
}

/// An extremum with its place: where both have it, the lower one.
fn located<T: Number>(extremum: T, a: Located<T>, b: Located<T>) -> Located<T> {
    let has = |one: T| {
        one.is_nan() && extremum.is_nan()
            || !one.is_below(extremum) && !extremum.is_below(one) && !one.is_nan() && !extremum.is_nan()
    };
    match (has(a.0), has(b.0)) {
        (true, true) => Located(extremum, a.1.min(b.1)),
        (true, false) => a,
        (false, _) => b,
    }
}

operation!(LogicalAnd, Integer, |a, b| T::of(a.is_true() && b.is_true()));
operation!(LogicalOr, Integer, |a, b| T::of(a.is_true() || b.is_true()));
operation!(LogicalXor, Integer, |a, b| T::of(a.is_true() != b.is_true()));
operation!(Common, Integer, |a, b| a & b);
operation!(Either, Integer, |a, b| a | b);
operation!(Differing, Integer, |a, b| a ^ b);

fn combines<T: Element, O: Apply<T>>() -> Combines {
    let with_higher = Combine { into: combine::<T, O, false>, apart: combine_apart::<T, O, false> };
    let with_lower = Combine { into: combine::<T, O, true>, apart: combine_apart::<T, O, true> };
    Combines { with_higher, with_lower }
}

fn combine<T: Element, O: Apply<T>, const LOWER: bool>(into: &mut [u8], other: &[u8]) {
    for (into, other) in into.chunks_exact_mut(T::SIZE).zip(other.chunks_exact(T::SIZE)) {
        let (mine, theirs) = (T::read(into), T::read(other));
        let result = if LOWER { O::apply(theirs, mine) } else { O::apply(mine, theirs) };
        result.write(into);
    }
}

fn combine_apart<T: Element, O: Apply<T>, const LOWER: bool>(into: &mut [u8], mine: &[u8], other: &[u8]) {
    let both = mine.chunks_exact(T::SIZE).zip(other.chunks_exact(T::SIZE));
    for (into, (mine, other)) in into.chunks_exact_mut(T::SIZE).zip(both) {
        let (mine, theirs) = (T::read(mine), T::read(other));
        let result = if LOWER { O::apply(theirs, mine) } else { O::apply(mine, theirs) };
        result.write(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two<T: Element, const N: usize>(
        operation: Operation,
        datatype: Datatype,
        mine: T,
        theirs: T,
    ) -> [[u8; N]; 2] {
        let combines = operation.of(datatype).unwrap();
        [combines.with_higher, combines.with_lower].map(|combine| {
            let (mut into, mut other, mut apart) = ([0; N], [0; N], [0; N]);
            mine.write(&mut into);
            theirs.write(&mut other);
            (combine.apart)(&mut apart, &into, &other);
            (combine.into)(&mut into, &other);
            assert_eq!(into, apart);
            into
        })
    }

    #[test]
    fn elements_are_combined_in_the_order_of_ranks() {
        let floats = |operation, a: f64, b: f64| {
            of_two::<f64, 8>(operation, Datatype::Float64, a, b).map(f64::from_ne_bytes)
        };
        assert_eq!(floats(Operation::Sum, 1.5, 2.0), [3.5; 2]);
        assert_eq!(floats(Operation::Max, 1.5, 2.0), [2.0; 2]);
        assert_eq!(floats(Operation::Min, 1.5, 2.0), [1.5; 2]);
        assert!(floats(Operation::Min, 1.5, f64::NAN).iter().all(|value| value.is_nan()));
        assert!(floats(Operation::Max, f64::NAN, 1.5).iter().all(|value| value.is_nan()));
        // Of two that are equal it is the first: the lower rank's.
        assert_eq!(floats(Operation::Min, 0.0, -0.0).map(f64::is_sign_negative), [false, true]);
        let bytes = |operation, a: u8, b: u8| of_two::<u8, 1>(operation, Datatype::UInt8, a, b)[0][0];
        assert_eq!(bytes(Operation::Sum, 200, 100), 44);
        assert_eq!((bytes(Operation::LogicalAnd, 2, 4), bytes(Operation::BitAnd, 2, 4)), (1, 0));
        assert_eq!((bytes(Operation::LogicalXor, 2, 4), bytes(Operation::BitXor, 2, 6)), (0, 4));
        assert_eq!((bytes(Operation::LogicalOr, 0, 0), bytes(Operation::BitOr, 2, 4)), (0, 6));
        let complex =
            of_two::<_, 8>(Operation::Product, Datatype::Complex64, Complex(1f32, 2f32), Complex(3.0, -1.0));
        assert_eq!((f32::read(&complex[0][..4]), f32::read(&complex[0][4..])), (5.0, 5.0));
    }

    #[test]
    fn places_of_extrema_are_those_of_the_first() {
        let of = |operation, a: (f64, i32), b: (f64, i32)| {
            let (a, b) = (Located(a.0, a.1), Located(b.0, b.1));
            of_two::<_, 16>(operation, Datatype::Float64Int, a, b).map(|bytes| {
                let Located(value, place) = Located::<f64>::read(&bytes);
                (value, place)
            })
        };
        assert_eq!(of(Operation::MinLocation, (2.0, 7), (1.0, 9)), [(1.0, 9); 2]);
        assert_eq!(of(Operation::MaxLocation, (2.0, 7), (1.0, 9)), [(2.0, 7); 2]);
        assert_eq!(of(Operation::MinLocation, (2.0, 7), (2.0, 3)), [(2.0, 3); 2]);
        assert_eq!(of(Operation::MaxLocation, (2.0, 3), (2.0, 7)), [(2.0, 3); 2]);
        for nan in of(Operation::MaxLocation, (f64::NAN, 3), (2.0, 7)) {
            assert!(nan.0.is_nan() && nan.1 == 3);
        }
        // Wherever it stands: the place is that of one that has it.
        for operation in [Operation::MinLocation, Operation::MaxLocation] {
            for nan in of(operation, (2.0, 1), (f64::NAN, 7)).into_iter().chain(of(
                operation,
                (f64::NAN, 7),
                (2.0, 1),
            )) {
                assert!(nan.0.is_nan() && nan.1 == 7);
            }
        }
        let short =
            of_two::<_, 8>(Operation::MinLocation, Datatype::Int16Int, Located(-2i16, 5), Located(3i16, 4));
        assert_eq!(short[0], [0xfe, 0xff, 0, 0, 5, 0, 0, 0]);
    }

    #[test]
    fn numbers_of_operations_and_types_stand_for_them() {
        assert!(Operation::ALL.iter().zip(0..).all(|(operation, number)| *operation as usize == number));
        assert!(Datatype::ALL.iter().zip(0..).all(|(datatype, number)| *datatype as usize == number));
    }

    #[test]
    fn what_is_not_defined_is_refused() {
        for (operation, datatype) in [
            (Operation::BitOr, Datatype::Float64),
            (Operation::LogicalAnd, Datatype::Float32),
            (Operation::Max, Datatype::Complex128),
            (Operation::Sum, Datatype::Bool),
            (Operation::Sum, Datatype::Float64Int),
            (Operation::MinLocation, Datatype::Float64),
        ] {
            assert!(operation.of(datatype).unwrap_err().text.contains("is not defined"));
        }
    }
}
