//! One instruction on a chunk: a loop for each, which the compiler makes vector instructions of.

use forebay_query::syntax::Comparison;
use forebay_query::value::arithmetic::{Binary, Float, Integer, Test, Unary, compares};

/// Applies a function to each number.
#[inline(always)]
fn map<A: Copy, B>(to: &mut [B], a: &[A], f: impl Fn(A) -> B) {
    for (to, a) in to.iter_mut().zip(a) {
        *to = f(*a);
    }
}

/// Applies a function to each two numbers.
#[inline(always)]
fn map2<A: Copy, B: Copy, C>(to: &mut [C], a: &[A], b: &[B], f: impl Fn(A, B) -> C) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = f(*a, *b);
    }
}

/// Gives each of these a loop of its own.
macro_rules! each {
    ($op:expr, $name:ident: $kind:ident { $($variant:ident)* } $body:expr) => {
        match $op { $($kind::$variant => { const $name: $kind = $kind::$variant; $body })* }
    };
}

#[inline(always)]
pub(super) fn unary<F: Float>(op: Unary, to: &mut [F], a: &[F]) {
    each!(op, OP: Unary {
        Minus Abs Sqrt Exp Log Log2 Log10 Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Floor Ceil Round Sign
    } map(to, a, |a| a.unary(OP)));
}

#[inline(always)]
pub(super) fn binary<F: Float>(op: Binary, to: &mut [F], a: &[F], b: &[F]) {
    each!(op, OP: Binary {
        Plus Minus Times Divide FloorDivide Remainder Power Minimum Maximum Atan2 Hypot BitwiseAnd
    } map2(to, a, b, |a, b| a.binary(OP, b)));
}

/// The first ones, and the products of the others added to them. Each result is rounded on its own, as of two instructions.
#[inline(always)]
pub(super) fn mul_add<F: Float>(to: &mut [F], a: &[F], [b, c]: [&[F]; 2]) {
    for (((to, a), b), c) in to.iter_mut().zip(a).zip(b).zip(c) {
        *to = a.binary(Binary::Plus, b.binary(Binary::Times, *c));
    }
}

/// The sums of two products.
#[inline(always)]
pub(super) fn products<F: Float>(to: &mut [F], [a, b]: [&[F]; 2], [c, d]: [&[F]; 2]) {
    for ((((to, a), b), c), d) in to.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *to = a.binary(Binary::Times, *b).binary(Binary::Plus, c.binary(Binary::Times, *d));
    }
}

#[inline(always)]
pub(super) fn test<F: Float>(test: Test, to: &mut [u8], a: &[F]) {
    each!(test, TEST: Test { IsNan IsInf IsFinite } map(to, a, |a| u8::from(a.test(TEST))));
}

#[inline(always)]
pub(super) fn compare<T: PartialOrd + Copy>(comparison: Comparison, to: &mut [u8], a: &[T], b: &[T]) {
    match comparison {
        Comparison::Less => map2(to, a, b, |a, b| u8::from(a < b)),
        Comparison::LessEqual => map2(to, a, b, |a, b| u8::from(a <= b)),
        Comparison::Greater => map2(to, a, b, |a, b| u8::from(a > b)),
        Comparison::GreaterEqual => map2(to, a, b, |a, b| u8::from(a >= b)),
        Comparison::Equal => map2(to, a, b, |a, b| u8::from(a == b)),
        Comparison::NotEqual => map2(to, a, b, |a, b| u8::from(a != b)),
    }
}

/// Of integers with and without sign.
#[inline(always)]
pub(super) fn compare_wide<A: Copy + Into<i128>, B: Copy + Into<i128>>(
    comparison: Comparison,
    to: &mut [u8],
    a: &[A],
    b: &[B],
) {
    map2(to, a, b, |a, b| u8::from(compares(comparison, a.into(), b.into())));
}

#[inline(always)]
pub(super) fn compare_with<T: PartialOrd + Copy>(comparison: Comparison, to: &mut [u8], a: &[T], b: T) {
    match comparison {
        Comparison::Less => map(to, a, |a| u8::from(a < b)),
        Comparison::LessEqual => map(to, a, |a| u8::from(a <= b)),
        Comparison::Greater => map(to, a, |a| u8::from(a > b)),
        Comparison::GreaterEqual => map(to, a, |a| u8::from(a >= b)),
        Comparison::Equal => map(to, a, |a| u8::from(a == b)),
        Comparison::NotEqual => map(to, a, |a| u8::from(a != b)),
    }
}

/// Of signed integers; the first element that is beyond the type, if one is.
#[inline(always)]
pub(super) fn unary_integer(op: Unary, to: &mut [i64], a: &[i64]) -> Option<usize> {
    let mut is_beyond = false;
    for (to, a) in to.iter_mut().zip(a) {
        let result = a.integer_unary(op);
        is_beyond |= result.is_none();
        *to = result.unwrap_or(0);
    }
    first(is_beyond, a.iter().map(|a| a.integer_unary(op).is_none()))
}

/// Of signed integers; the first element that is beyond the type, or whose divisor is 0, if one is.
#[inline(always)]
pub(super) fn binary_integer(op: Binary, to: &mut [i64], a: &[i64], b: &[i64]) -> Option<usize> {
    let mut is_beyond = false;
    let mut wrapping = |f: fn(i64, i64) -> (i64, bool)| {
        for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
            let (result, beyond) = f(*a, *b);
            *to = result;
            is_beyond |= beyond;
        }
    };
    match op {
        Binary::Plus => wrapping(i64::overflowing_add),
        Binary::Minus => wrapping(i64::overflowing_sub),
        Binary::Times => wrapping(i64::overflowing_mul),
        Binary::Minimum => map2(to, a, b, i64::min),
        Binary::Maximum => map2(to, a, b, i64::max),
        Binary::BitwiseAnd => map2(to, a, b, |a, b| a & b),
        op => {
            for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
                let result = a.integer_binary(op, *b);
                is_beyond |= result.is_none();
                *to = result.unwrap_or(0);
            }
        }
    }
    first(is_beyond, a.iter().zip(b).map(|(a, b)| a.integer_binary(op, *b).is_none()))
}

/// The first of these that is so, if any is.
fn first(is_any: bool, mut each: impl Iterator<Item = bool>) -> Option<usize> {
    if is_any { each.position(|is| is) } else { None }
}

#[inline(always)]
pub(super) fn select<T: Copy>(to: &mut [T], mask: &[u8], a: &[T], b: &[T]) {
    for (((to, mask), a), b) in to.iter_mut().zip(mask).zip(a).zip(b) {
        *to = if *mask != 0 { *a } else { *b };
    }
}

#[inline(always)]
pub(super) fn convert<A: Copy, B>(to: &mut [B], a: &[A], f: impl Fn(A) -> B) {
    map(to, a, f);
}

#[inline(always)]
pub(super) fn and(to: &mut [u8], a: &[u8], b: &[u8]) {
    map2(to, a, b, |a, b| a & b);
}

#[inline(always)]
pub(super) fn or(to: &mut [u8], a: &[u8], b: &[u8]) {
    map2(to, a, b, |a, b| a | b);
}

#[inline(always)]
pub(super) fn not(to: &mut [u8], a: &[u8]) {
    map(to, a, |a| a ^ 1);
}

#[inline(always)]
pub(super) fn smaller<T: Copy + Ord>(to: &mut [T], a: &[T], b: &[T]) {
    map2(to, a, b, T::min);
}

#[inline(always)]
pub(super) fn larger<T: Copy + Ord>(to: &mut [T], a: &[T], b: &[T]) {
    map2(to, a, b, T::max);
}
