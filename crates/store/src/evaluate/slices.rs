//! The sums of slices of numbers, with vectors whose additions keep both kinds of units of a processor busy.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// The sums of the slices above two ends, each exact, unless something is left of a number: then `None`. Numbers that cannot be cut so,
/// for want of such instructions, are `Err`.
#[cfg(target_arch = "x86_64")]
pub(super) fn two(numbers: &[f64], ends: [f64; 2]) -> Result<Option<[f64; 2]>, ()> {
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the processor has these instructions.
        Ok(unsafe { two_of(numbers, ends) })
    } else {
        Err(())
    }
}

/// The same where there are no such instructions.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn two(_: &[f64], _: [f64; 2]) -> Result<Option<[f64; 2]>, ()> {
    Err(())
}

/// Numbers of a vector.
#[cfg(target_arch = "x86_64")]
const LANES: usize = 4;
/// Vectors that are worked on side by side.
#[cfg(target_arch = "x86_64")]
const VECTORS: usize = 4;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn two_of(numbers: &[f64], ends: [f64; 2]) -> Option<[f64; 2]> {
    // Compilers make additions of products with a 1 that they see: those have other units.
    let one = _mm256_set1_pd(std::hint::black_box(1.0));
    let [a, b] = ends.map(|end| _mm256_set1_pd(end));
    let (mut first, mut second) = ([_mm256_setzero_pd(); VECTORS], [_mm256_setzero_pd(); VECTORS]);
    let mut left = _mm256_setzero_si256();
    let (rows, rest) = numbers.as_chunks::<{ LANES * VECTORS }>();
    let mut last = [0.0; LANES * VECTORS];
    last.iter_mut().zip(rest).for_each(|(to, number)| *to = *number);
    for row in rows.iter().chain([&last]) {
        for v in 0..VECTORS {
            // SAFETY: a row has so many numbers.
            let x = unsafe { _mm256_loadu_pd(row.as_ptr().add(LANES * v)) };
            // The number plus a power of two loses what is below the slice.
            let high = _mm256_sub_pd(_mm256_fmadd_pd(x, one, a), a);
            let below = _mm256_sub_pd(x, high);
            let low = _mm256_sub_pd(_mm256_fmadd_pd(below, one, b), b);
            left = _mm256_or_si256(left, _mm256_castpd_si256(_mm256_fnmadd_pd(low, one, below)));
            first[v] = _mm256_fmadd_pd(high, one, first[v]);
            second[v] = _mm256_add_pd(second[v], low);
        }
    }
    // Of zeros the sign is left.
    let left = _mm256_slli_epi64::<1>(left);
    if _mm256_testz_si256(left, left) == 0 {
        return None;
    }
    let sum = |vectors: [__m256d; VECTORS]| {
        let all = vectors.into_iter().reduce(|a, b| _mm256_add_pd(a, b)).unwrap_or(_mm256_setzero_pd());
        let mut lanes = [0.0; LANES];
        // SAFETY: there is room for so many.
        unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), all) };
        lanes.iter().sum::<f64>()
    };
    Some([sum(first), sum(second)])
}
