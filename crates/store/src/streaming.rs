//! Copies of rows past the cache.
//!
//! A large array that is assembled row by row does not fit into the cache. An ordinary store first reads the
//! line that it is about to overwrite; a streaming store does not, which saves a third of the traffic. One
//! long `memcpy` does this by itself, many short ones do not. Short rows also end before the processor has
//! noticed where they lead: the rows to come are asked for ahead.
#![allow(unsafe_code)]

/// Rows below this many bytes are copied in the ordinary way.
pub(crate) const ROW_MIN: usize = 256;
/// Copies below this many bytes in all may well be read again from the cache.
pub(crate) const TOTAL_MIN: u64 = 4 << 20;

/// Copies one row. `ahead` is how many bytes further on a later row of the source lies.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes`, and they do not overlap.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize, ahead: isize) {
    use std::arch::x86_64::{__m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_stream_si128};
    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    // SAFETY: every access lies inside the two rows; streaming stores go to aligned addresses. SSE2 is part
    // of every x86-64 processor.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        let (mut target, mut source) = (to.add(head), from.add(head));
        for _ in 0..lines {
            _mm_prefetch::<_MM_HINT_T0>(source.wrapping_offset(ahead).cast());
            let (t, s) = (target.cast::<__m128i>(), source.cast::<__m128i>());
            let line = [
                _mm_loadu_si128(s),
                _mm_loadu_si128(s.add(1)),
                _mm_loadu_si128(s.add(2)),
                _mm_loadu_si128(s.add(3)),
            ];
            _mm_stream_si128(t, line[0]);
            _mm_stream_si128(t.add(1), line[1]);
            _mm_stream_si128(t.add(2), line[2]);
            _mm_stream_si128(t.add(3), line[3]);
            target = target.add(LINE);
            source = source.add(LINE);
        }
        std::ptr::copy_nonoverlapping(source, target, bytes - head - lines * LINE);
    }
}

/// Copies one row. `ahead` is how many bytes further on a later row of the source lies.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes`, and they do not overlap.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize, _ahead: isize) {
    // SAFETY: as the caller vouches.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Makes what was streamed visible to other threads in the order of the program.
pub(crate) fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence has no preconditions; SSE is part of every x86-64 processor.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn rows_are_exact_at_any_alignment() {
        let source: Vec<u8> = (0..2000u32).map(|i| (i * 7) as u8).collect();
        for (skip_to, skip_from, bytes) in
            [(0, 0, 1024), (1, 0, 1000), (3, 5, 777), (63, 1, 64), (0, 9, 3), (7, 7, 0)]
        {
            let mut target = vec![0xee; 2000];
            // SAFETY: both vectors hold the ranges.
            unsafe {
                super::copy(target.as_mut_ptr().add(skip_to), source.as_ptr().add(skip_from), bytes, 0)
            };
            super::finish();
            assert_eq!(target[skip_to..skip_to + bytes], source[skip_from..skip_from + bytes]);
            assert!(target[..skip_to].iter().chain(&target[skip_to + bytes..]).all(|byte| *byte == 0xee));
        }
    }
}
