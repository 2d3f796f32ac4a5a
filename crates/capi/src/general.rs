//! Errors, versions, and the group itself.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]

use crate::arguments;
use crate::boundary::{c_text, call, last, last_server, remember};
use forebay_client::{Error, ErrorKind, Group, GroupOptions, Result};
use std::ffi::{CStr, CString, c_char, c_int};

/// The text of the calling thread's last error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fb_error() -> *const c_char {
    last()
}

/// The number of the server that the calling thread's last error is about; -1 if it is about none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fb_error_server() -> i64 {
    last_server().map_or(-1, |server| i64::from(server.0))
}

/// Makes a text the calling thread's last error.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_error_set(result: c_int, text: *const c_char) -> c_int {
    if !text.is_null() {
        // SAFETY: the header's terms.
        remember(&unsafe { CStr::from_ptr(text) }.to_string_lossy(), None);
    }
    result
}

fn kind(result: c_int) -> Option<ErrorKind> {
    ErrorKind::ALL.into_iter().find(|kind| kind.code() == result)
}

/// The name of a result code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fb_result_name(result: c_int) -> *const c_char {
    let name =
        if result == 0 { c"FB_OK" } else { kind(result).map_or(c"(unknown result)", ErrorKind::c_name) };
    name.as_ptr()
}

/// Whether trying again may help.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fb_result_is_retryable(result: c_int) -> c_int {
    c_int::from(kind(result).is_some_and(ErrorKind::is_retryable))
}

/// The library's version.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fb_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// A name that no other job has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_new_job_name(name: *mut *mut c_char) -> c_int {
    // SAFETY: the header's terms.
    call("fb_new_job_name", || unsafe { give(name, || Ok(forebay_client::new_job_name())) })
}

unsafe fn options(group: *const c_char) -> Result<GroupOptions> {
    // SAFETY: the header's terms.
    let group = unsafe { arguments::optional_text(group, "group") }?.map(str::to_owned);
    Ok(GroupOptions { group, ..GroupOptions::default() })
}

/// The text of a group's connection file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_group_text(group: *const c_char, text: *mut *mut c_char) -> c_int {
    call("fb_group_text", || {
        // SAFETY: the header's terms.
        unsafe {
            let group = options(group)?;
            give(text, || Group::text_for_others(&group))
        }
    })
}

/// Gives the caller a text that is made.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn give(place: *mut *mut c_char, make: impl FnOnce() -> Result<String>) -> Result<()> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let place = arguments::place(place, "the place for the text")?;
        place.write(std::ptr::null_mut());
        place.write(c_text(&make()?).into_c_string().into_raw());
    }
    Ok(())
}

/// Frees a text that the library gave.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_free(text: *mut c_char) {
    let freed = call("fb_free", || {
        if !text.is_null() {
            // SAFETY: it was made by `give`.
            drop(unsafe { CString::from_raw(text) });
        }
        Ok::<_, Error>(())
    });
    debug_assert_eq!(freed, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_has_its_name() {
        for kind in ErrorKind::ALL {
            // SAFETY: names are constants.
            let name = unsafe { CStr::from_ptr(fb_result_name(kind.code())) }.to_str().unwrap();
            assert_eq!(name.replace('_', "").to_lowercase(), format!("fb{}", kind.name().to_lowercase()));
            assert_eq!(fb_result_is_retryable(kind.code()), c_int::from(kind.is_retryable()));
        }
        for odd in [-1, ErrorKind::ALL.len() as c_int + 1, c_int::MAX, c_int::MIN] {
            // SAFETY: as above.
            assert_eq!(unsafe { CStr::from_ptr(fb_result_name(odd)) }, c"(unknown result)");
            assert_eq!(fb_result_is_retryable(odd), 0);
        }
    }
}
