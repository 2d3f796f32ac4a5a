//! The smallest and the largest of floats, as fast as memory gives them, and also while they are copied.
//!
//! Compilers make vectors of such loops, but spill them; written with vectors they take no longer than the copy alone.
#![allow(unsafe_code)]

use crate::element::Element;

/// What was found of some floats. Without numbers `min` is the positive infinity, and `max` the negative one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found<T> {
    /// The smallest.
    pub(crate) min: T,
    /// The largest.
    pub(crate) max: T,
    /// How many are no numbers.
    pub(crate) nan: usize,
}

/// What becomes of the elements that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Nothing.
    None,
    /// They are copied.
    Stored,
    /// They are copied past the cache. What follows needs [`crate::streaming::finish`].
    Streamed,
}

/// A float of Rust's.
pub(crate) trait Float: Element + PartialOrd {
    /// What is larger than all others.
    const INFINITY: Self;
    /// What is smaller.
    const NEG_INFINITY: Self;

    /// Looks at so many, and copies them.
    ///
    /// # Safety
    /// `from` is readable for `count` elements, of any alignment; unless nothing is copied, `to` is writable for as many, and they do not
    /// overlap.
    unsafe fn look(to: *mut Self, from: *const Self, count: usize, copying: Copying) -> Found<Self>;
}

/// What is found of all elements in these bytes, of any alignment. What remains behind the last whole one is left out.
pub(crate) fn of_bytes<T: Float>(bytes: &[u8]) -> Found<T> {
    let count = bytes.len() / size_of::<T>();
    // SAFETY: the slice holds so many elements; nothing is copied.
    unsafe { T::look(std::ptr::null_mut(), bytes.as_ptr().cast(), count, Copying::None) }
}

impl<T: Float> Found<T> {
    const NOTHING: Found<T> = Found { min: T::INFINITY, max: T::NEG_INFINITY, nan: 0 };

    /// Takes in one.
    #[inline(always)]
    #[allow(clippy::eq_op)]
    fn add(&mut self, x: T) {
        self.min = if x < self.min { x } else { self.min };
        self.max = if x > self.max { x } else { self.max };
        self.nan += usize::from(x != x);
    }

    /// Takes in what was found of others.
    fn merge(&mut self, other: Found<T>) {
        self.min = if other.min < self.min { other.min } else { self.min };
        self.max = if other.max > self.max { other.max } else { self.max };
        self.nan += other.nan;
    }
}

/// One after the other.
///
/// # Safety
/// As [`Float::look`].
unsafe fn look_at_each<T: Float>(to: *mut T, from: *const T, count: usize, copying: Copying) -> Found<T> {
    let mut found = Found::NOTHING;
    for index in 0..count {
        // SAFETY: the index lies within both.
        unsafe {
            let x = from.add(index).read_unaligned();
            found.add(x);
            if copying != Copying::None {
                to.add(index).write_unaligned(x);
            }
        }
    }
    found
}

macro_rules! float {
    ($float:ty, $wide:ident) => {
        impl Float for $float {
            const INFINITY: $float = <$float>::INFINITY;
            const NEG_INFINITY: $float = <$float>::NEG_INFINITY;

            unsafe fn look(
                to: *mut $float,
                from: *const $float,
                count: usize,
                copying: Copying,
            ) -> Found<$float> {
                #[cfg(target_arch = "x86_64")]
                if std::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has these instructions; as the caller vouches.
                    return unsafe { wide::$wide(to, from, count, copying) };
                }
                // SAFETY: as the caller vouches.
                unsafe { look_at_each(to, from, count, copying) }
            }
        }
    };
}

float!(f32, f32s);
float!(f64, f64s);

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{Copying, Found, look_at_each};
    use std::arch::x86_64::*;

    /// Bytes of a vector.
    const VECTOR: usize = 32;
    /// Vectors that are worked on side by side.
    const VECTORS: usize = 4;
    /// How far ahead the source is asked for, where it is copied and where it is not.
    const AHEAD: usize = 1024;
    const AHEAD_UNCOPIED: usize = 4096;

    macro_rules! look {
        ($name:ident, $float:ty, $lanes:literal, $count:ty, $load:ident, $store:ident, $stream:ident, $set:ident, $min:ident, $max:ident,
         $compare:ident, $cast:ident, $subtract:ident, $add:ident) => {
            /// # Safety
            /// As [`super::Float::look`].
            #[target_feature(enable = "avx2")]
            pub(super) unsafe fn $name(
                to: *mut $float,
                from: *const $float,
                count: usize,
                copying: Copying,
            ) -> Found<$float> {
                let aligned = if copying == Copying::Streamed { to.align_offset(VECTOR) } else { 0 };
                // What lies between elements cannot be streamed.
                let copying =
                    if aligned > count && copying == Copying::Streamed { Copying::Stored } else { copying };
                let head = if copying == Copying::Streamed { aligned } else { 0 };
                let rows = (count - head) / ($lanes * VECTORS);
                let tail = head + rows * $lanes * VECTORS;
                // SAFETY: as the caller vouches; head, rows and tail make up all elements, and streams go to aligned addresses.
                unsafe {
                    let mut found = look_at_each(to, from, head, copying);
                    found.merge(match copying {
                        Copying::None => rows_of::<0>(to, from.add(head), rows),
                        Copying::Stored => rows_of::<1>(to.add(head), from.add(head), rows),
                        Copying::Streamed => rows_of::<2>(to.add(head), from.add(head), rows),
                    });
                    let behind = if copying == Copying::None { to } else { to.add(tail) };
                    found.merge(look_at_each(behind, from.add(tail), count - tail, copying));
                    return found;
                }

                #[target_feature(enable = "avx2")]
                unsafe fn rows_of<const COPYING: u8>(
                    mut to: *mut $float,
                    mut from: *const $float,
                    rows: usize,
                ) -> Found<$float> {
                    let mut min = [$set(<$float>::INFINITY); VECTORS];
                    let mut max = [$set(<$float>::NEG_INFINITY); VECTORS];
                    let mut nan = [_mm256_setzero_si256(); VECTORS];
                    let ahead = if COPYING == 0 { AHEAD_UNCOPIED } else { AHEAD };
                    // SAFETY: so many rows lie there, as the caller vouches; a prefetch may ask for any address.
                    unsafe {
                        for _ in 0..rows {
                            // Also where nothing is stored: what is asked for piece by piece, the processor is ahead of in each piece anew.
                            for line in (0..VECTORS * VECTOR).step_by(64) {
                                _mm_prefetch::<_MM_HINT_T0>(from.cast::<i8>().wrapping_add(ahead + line));
                            }
                            for v in 0..VECTORS {
                                let x = $load(from.add($lanes * v));
                                // Of a NaN and a number these give the second one.
                                min[v] = $min(x, min[v]);
                                max[v] = $max(x, max[v]);
                                nan[v] = $subtract(nan[v], $cast($compare::<_CMP_UNORD_Q>(x, x)));
                                match COPYING {
                                    1 => $store(to.add($lanes * v), x),
                                    2 => $stream(to.add($lanes * v), x),
                                    _ => {}
                                }
                            }
                            from = from.add($lanes * VECTORS);
                            if COPYING != 0 {
                                to = to.add($lanes * VECTORS);
                            }
                        }
                        for v in 1..VECTORS {
                            min[0] = $min(min[v], min[0]);
                            max[0] = $max(max[v], max[0]);
                            nan[0] = $add(nan[0], nan[v]);
                        }
                        let (mut least, mut most, mut counts) =
                            ([0.0; $lanes], [0.0; $lanes], [0 as $count; $lanes]);
                        $store(least.as_mut_ptr(), min[0]);
                        $store(most.as_mut_ptr(), max[0]);
                        _mm256_storeu_si256(counts.as_mut_ptr().cast(), nan[0]);
                        let mut found = Found::NOTHING;
                        for lane in 0..$lanes {
                            found.merge(Found {
                                min: least[lane],
                                max: most[lane],
                                nan: counts[lane] as usize,
                            });
                        }
                        found
                    }
                }
            }
        };
    }

    look!(
        f64s,
        f64,
        4,
        u64,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_stream_pd,
        _mm256_set1_pd,
        _mm256_min_pd,
        _mm256_max_pd,
        _mm256_cmp_pd,
        _mm256_castpd_si256,
        _mm256_sub_epi64,
        _mm256_add_epi64
    );
    look!(
        f32s,
        f32,
        8,
        u32,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_stream_ps,
        _mm256_set1_ps,
        _mm256_min_ps,
        _mm256_max_ps,
        _mm256_cmp_ps,
        _mm256_castps_si256,
        _mm256_sub_epi32,
        _mm256_add_epi32
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::bytes_of;

    fn looks_right<T: Float + std::fmt::Debug + PartialEq>(value: impl Fn(usize) -> T) {
        let values: Vec<T> = (0..1000).map(value).collect();
        let bytes = bytes_of(&values);
        for (first, count, shift) in
            [(0, 1000, 0), (3, 64, 8), (1, 997, 5), (7, 0, 0), (2, 33, 64), (999, 1, 3)]
        {
            let mut expected = Found::NOTHING;
            values[first..first + count].iter().for_each(|x| expected.add(*x));
            let size = size_of::<T>();
            assert_eq!(of_bytes::<T>(&bytes[first * size..(first + count) * size]), expected);
            for copying in [Copying::Stored, Copying::Streamed] {
                let mut target = vec![0xee; 9000];
                // SAFETY: both hold the ranges.
                let found = unsafe {
                    T::look(target.as_mut_ptr().add(shift).cast(), values.as_ptr().add(first), count, copying)
                };
                crate::streaming::finish();
                assert_eq!(found, expected, "{copying:?}");
                assert_eq!(target[shift..shift + count * size], bytes[first * size..(first + count) * size]);
                assert!(
                    target[..shift].iter().chain(&target[shift + count * size..]).all(|byte| *byte == 0xee)
                );
            }
        }
    }

    #[test]
    fn floats_are_found_and_copied_at_any_alignment() {
        let number = |i: usize| ((i * 7919) % 1009) as f64 - 500.0;
        looks_right::<f64>(|i| if i % 97 == 5 { f64::NAN } else { number(i) });
        looks_right::<f32>(|i| if i % 97 == 5 { f32::NAN } else { number(i) as f32 });
        looks_right::<f64>(|_| f64::NAN);
        looks_right::<f32>(|i| if i == 700 { f32::NEG_INFINITY } else { f32::INFINITY });
    }
}
