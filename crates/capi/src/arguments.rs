//! Reading what a caller passes: nothing is believed that can be checked, and what is wrong is named.
#![allow(unsafe_code, reason = "arguments are C's pointers")]

use crate::abi::Sized64;
use forebay_client::core::region::MAX_NDIM;
use forebay_client::{Choice, Error, GroupOptions, Result, TransportChoice};
pub(crate) use forebay_client::{patience, seconds};
use std::ffi::{CStr, c_char};
use std::mem::size_of;
use std::ops::RangeInclusive;
use std::time::Duration;

/// No struct is larger; a larger size is a sign that it was never set.
const SIZE_MAX: u64 = 1 << 16;

/// Reads a struct: as much as the caller's has, defaults for the rest.
///
/// # Safety
/// `given` is NULL, or the caller's struct, which is as large as its first member says.
pub(crate) unsafe fn read<T: Sized64>(given: *const T, what: &str) -> Result<T> {
    let size = size_given::<T>(given, what)? as usize;
    let mut read = T::DEFAULT;
    let known = size.min(size_of::<T>());
    // SAFETY: both have that many bytes; any bytes make a valid T; the caller's may be unaligned.
    unsafe {
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut read).cast::<u8>(), known);
        let unknown = std::slice::from_raw_parts(given.cast::<u8>().add(known), size - known);
        if unknown.iter().any(|byte| *byte != 0) {
            return Err(Error::unsupported(format!(
                "{what} has members that this release ({}) does not know, and they are set: the program was compiled \
                 for a newer one",
                env!("CARGO_PKG_VERSION")
            )));
        }
    }
    Ok(read)
}

/// Reads `count` structs that lie `stride` bytes apart, and what `make` makes of each under its name.
///
/// # Safety
/// `given` is NULL, or so many structs, so far apart; each is as large as its first member says.
pub(crate) unsafe fn each<T: Sized64, R>(
    given: *const T,
    count: u32,
    stride: u32,
    what: &str,
    make: impl Fn(&T, &str) -> Result<R>,
) -> Result<Vec<R>> {
    if given.is_null() && count > 0 {
        return Err(Error::invalid(format!("{what} is NULL, and {what}_count is {count}")));
    }
    if count > 0 && (stride as usize) < T::FIRST {
        return Err(Error::invalid(format!("{what}_stride is {stride}: set it to sizeof({})", T::NAME)));
    }
    let list = what;
    let one = |index: usize| {
        let what = format!("{list}[{index}]");
        // SAFETY: the caller vouches for it.
        unsafe {
            let at = given.byte_add(index * stride as usize);
            if at.cast::<u64>().read_unaligned() > u64::from(stride) {
                return Err(Error::invalid(format!(
                    "{what}.struct_size is more than {list}_stride, {stride}"
                )));
            }
            make(&read(at, &what)?, &what)
        }
    };
    (0..count as usize).map(one).collect()
}

/// Writes a struct: as much as the caller's has room for; its size stays as it is.
///
/// # Safety
/// As for [`read`], and it may be written.
pub(crate) unsafe fn write<T: Sized64>(value: &T, given: *mut T, what: &str) -> Result<()> {
    let size = size_given::<T>(given, what)? as usize;
    let first = size_of::<u64>();
    // SAFETY: both have that many bytes.
    unsafe {
        let from = std::ptr::from_ref(value).cast::<u8>().add(first);
        std::ptr::copy_nonoverlapping(from, given.cast::<u8>().add(first), size.min(size_of::<T>()) - first);
    }
    Ok(())
}

fn size_given<T: Sized64>(given: *const T, what: &str) -> Result<u64> {
    if given.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    // SAFETY: every struct begins with its size.
    let size = unsafe { given.cast::<u64>().read_unaligned() };
    if size < T::FIRST as u64 || size > SIZE_MAX {
        return Err(Error::invalid(format!(
            "{what}->struct_size is {size}, and a {} has at least {} bytes: initialise it with {}_INIT",
            T::NAME,
            T::FIRST,
            T::NAME.to_uppercase()
        )));
    }
    Ok(size)
}

/// Text that must be there.
///
/// # Safety
/// `given` is NULL or text that ends with NUL and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(given: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller vouches for it.
    unsafe { optional_text(given, what) }?.ok_or_else(|| Error::invalid(format!("{what} is NULL")))
}

/// Text that may be left out.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional_text<'a>(given: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches for it.
    let text = unsafe { CStr::from_ptr(given) };
    text.to_str()
        .map(Some)
        .map_err(|_| Error::invalid(format!("{what} is not UTF-8: {}", text.to_string_lossy())))
}

/// A choice that is given by its name; NULL for the first one.
///
/// # Safety
/// `given` is NULL or points at a text that ends with NUL.
pub(crate) unsafe fn choice_by_name<T: Choice>(given: *const c_char, what: &str) -> Result<T> {
    // SAFETY: the caller vouches for it.
    match unsafe { optional_text(given, what) }? {
        Some(name) => T::of_name(name),
        None => T::of_number(0, what),
    }
}

/// One number for each dimension, which must be there.
///
/// # Safety
/// `given` is NULL or points at `count` numbers, which stay as they are while they are read.
pub(crate) unsafe fn numbers<T: Copy>(
    given: *const T,
    count: usize,
    what: &str,
) -> Result<impl Iterator<Item = T>> {
    if given.is_null() && count > 0 {
        return Err(Error::invalid(format!("{what} is NULL, and ndim is {count}")));
    }
    // SAFETY: the caller vouches for it; the numbers may be unaligned.
    Ok((0..count).map(move |index| unsafe { given.add(index).read_unaligned() }))
}

/// As many numbers, or none if it is NULL.
///
/// # Safety
/// As for [`numbers`].
pub(crate) unsafe fn optional_numbers<T: Copy>(given: *const T, count: usize) -> impl Iterator<Item = T> {
    let count = if given.is_null() { 0 } else { count };
    // SAFETY: the caller vouches for it.
    (0..count).map(move |index| unsafe { given.add(index).read_unaligned() })
}

/// A 0 or 1 for each dimension, or none if it is NULL.
///
/// # Safety
/// As for [`numbers`].
pub(crate) unsafe fn flags(given: *const i32, count: usize, what: &str) -> Result<Vec<bool>> {
    // SAFETY: the caller vouches for it.
    let flags = unsafe { optional_numbers(given, count) };
    flags.enumerate().map(|(d, flag)| truth(flag, &format!("{what}[{d}]"))).collect()
}

/// A text for each dimension, or none if it is NULL.
///
/// # Safety
/// As for [`numbers`] and [`text`].
pub(crate) unsafe fn labels(given: *const *const c_char, count: usize, what: &str) -> Result<Vec<String>> {
    // SAFETY: the caller vouches for it.
    let texts = unsafe { optional_numbers(given, count) };
    texts
        .enumerate()
        // SAFETY: as above.
        .map(|(index, given)| unsafe { text(given, &format!("{what}[{index}]")) }.map(str::to_owned))
        .collect()
}

/// A number of dimensions.
pub(crate) fn dimensions(given: u32, what: &str) -> Result<usize> {
    match given as usize {
        ndim if ndim <= MAX_NDIM => Ok(ndim),
        ndim => Err(Error::out_of_bounds(format!(
            "{what} is {ndim}, and an array has at most {MAX_NDIM} dimensions"
        ))),
    }
}

/// A place for a result, which must be there.
pub(crate) fn place<T>(given: *mut T, what: &str) -> Result<*mut T> {
    if given.is_null() { Err(Error::invalid(format!("{what} is NULL"))) } else { Ok(given) }
}

/// A yes or no.
pub(crate) fn truth(given: i32, what: &str) -> Result<bool> {
    match given {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::invalid(format!("{what} is {other}: use 0 or 1"))),
    }
}

/// A member that is not used yet.
pub(crate) fn unused(given: i32, what: &str) -> Result<()> {
    if given == 0 {
        Ok(())
    } else {
        Err(Error::unsupported(format!("{what} is {given}, and must be 0 in this release")))
    }
}

/// A transport's name; NULL: auto.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn transport(given: *const c_char, what: &str) -> Result<TransportChoice> {
    // SAFETY: the caller vouches for it.
    match unsafe { optional_text(given, what) }? {
        Some(name) => TransportChoice::parse(name),
        None => Ok(TransportChoice::Auto),
    }
}

/// How to find a group and reach its servers, with one deadline for all waits, and what the handle is called.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn group(
    group: *const c_char,
    transport: *const c_char,
    timeout: f64,
    name: *const c_char,
) -> Result<GroupOptions> {
    // SAFETY: the caller vouches for it.
    unsafe {
        Ok(GroupOptions {
            group: optional_text(group, "options->group")?.map(str::to_owned),
            transport: self::transport(transport, "options->transport")?,
            timeout: Some(patience(timeout, "options->timeout")?),
            name: optional_text(name, "options->name")?.map(str::to_owned),
        })
    }
}

/// The same, where below 0 each call has a deadline of its own.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn own_group(
    group: *const c_char,
    transport: *const c_char,
    timeout: f64,
    name: *const c_char,
) -> Result<GroupOptions> {
    // SAFETY: the caller vouches for it.
    let found = unsafe { self::group(group, transport, if timeout < 0.0 { 1.0 } else { timeout }, name) }?;
    Ok(GroupOptions { timeout: found.timeout.filter(|_| timeout >= 0.0), ..found })
}

/// A deadline of one call; below 0: the handle's.
pub(crate) fn own_seconds(timeout: f64) -> Result<Option<Duration>> {
    if timeout < 0.0 { Ok(None) } else { seconds(timeout, "timeout").map(Some) }
}

/// A number that has its limits.
pub(crate) fn within(given: u32, limits: RangeInclusive<u32>, what: &str) -> Result<u32> {
    if limits.contains(&given) {
        return Ok(given);
    }
    let (low, high) = limits.into_inner();
    let limits = if high == u32::MAX { format!("{low} or more") } else { format!("{low} to {high}") };
    Err(Error::invalid(format!("{what} is {given}: use {limits}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::fb_need;
    use forebay_client::ErrorKind;

    fn with_size(size: u64) -> fb_need {
        fb_need { struct_size: size, every: 7, ..fb_need::DEFAULT }
    }

    #[test]
    fn structs_are_read_as_far_as_they_go() {
        // SAFETY: the sizes are refused before anything else is read, or are true.
        unsafe {
            for size in [0, 8, 23, 1 << 40, u64::MAX] {
                let error = read(&with_size(size), "needs[0]").unwrap_err();
                assert!(
                    error.text.contains("needs[0]->struct_size") && error.text.contains("FB_NEED_INIT"),
                    "{error}"
                );
            }
            assert_eq!(read(&with_size(24), "x").unwrap().every, 7);
            assert_eq!(read::<fb_need>(std::ptr::null(), "x").unwrap_err().text, "x is NULL");
        }
    }

    #[test]
    fn structs_of_newer_releases_are_read_if_they_ask_for_nothing_new() {
        #[repr(C)]
        struct Newer(fb_need, u64);
        let newer = |more| Newer(with_size(size_of::<Newer>() as u64), more);
        // SAFETY: the size is true.
        let read_newer = |newer: &Newer| unsafe { read((&raw const *newer).cast::<fb_need>(), "x") };
        assert_eq!(read_newer(&newer(0)).unwrap().every, 7);
        assert_eq!(read_newer(&newer(1)).unwrap_err().kind, ErrorKind::Unsupported);
    }
}
