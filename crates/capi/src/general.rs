//! Errors, versions, and the group itself.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]

use crate::arguments;
use crate::boundary::{c_text, call, last, remember};
use forebay_client::{Admin, Error, Group, GroupOptions, Result};
use std::ffi::{CStr, CString, c_char, c_int};

/// The text of the calling thread's last error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fb_error() -> *const c_char {
    last()
}

/// Makes a text the calling thread's last error.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_error_set(result: c_int, text: *const c_char) -> c_int {
    if !text.is_null() {
        // SAFETY: the header's terms.
        remember(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
    result
}

/// The names of the result codes, in their order.
const NAMES: [&CStr; 26] = [
    c"FB_OK",
    c"FB_INVALID",
    c"FB_NOT_FOUND",
    c"FB_TIMEOUT",
    c"FB_LOST",
    c"FB_NOT_COVERED",
    c"FB_CONFLICT",
    c"FB_TYPE_MISMATCH",
    c"FB_OUT_OF_BOUNDS",
    c"FB_OVER_BUDGET",
    c"FB_FULL",
    c"FB_CLOSED",
    c"FB_WRONG_SECRET",
    c"FB_WRONG_VERSION",
    c"FB_UNREACHABLE",
    c"FB_PROTOCOL",
    c"FB_CONNECTION_FILE",
    c"FB_UNSUPPORTED",
    c"FB_STEP_ORDER",
    c"FB_FORKED",
    c"FB_ENDED",
    c"FB_TORN",
    c"FB_DROPPED",
    c"FB_PIPELINE_FAILED",
    c"FB_INTERNAL",
    c"FB_IO",
];

/// The name of a result code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fb_result_name(result: c_int) -> *const c_char {
    let name = usize::try_from(result).ok().and_then(|index| NAMES.get(index));
    name.unwrap_or(&c"(unknown result)").as_ptr()
}

/// The library's version.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fb_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
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
        unsafe { give(text, |group| Group::find(&group)?.known().file.to_text(), group) }
    })
}

/// The group's status, as JSON.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_status(group: *const c_char, json: *mut *mut c_char) -> c_int {
    call("fb_admin_status", || {
        // SAFETY: the header's terms.
        unsafe { give(json, |group| Ok(Admin::open(&group)?.status()?.to_string()), group) }
    })
}

/// Gives the caller a text about a group.
unsafe fn give(
    place: *mut *mut c_char,
    make: impl FnOnce(GroupOptions) -> Result<String>,
    group: *const c_char,
) -> Result<()> {
    // SAFETY: the header's terms.
    unsafe {
        let place = arguments::place(place, "the place for the text")?;
        place.write(std::ptr::null_mut());
        let text = make(options(group)?)?;
        place.write(c_text(&text).into_c_string().into_raw());
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
    use forebay_client::ErrorKind;

    #[test]
    fn every_result_has_its_name() {
        for kind in ErrorKind::ALL {
            // SAFETY: names are constants.
            let name = unsafe { CStr::from_ptr(fb_result_name(kind.code())) }.to_str().unwrap();
            assert_eq!(name.replace('_', "").to_lowercase(), format!("fb{}", kind.name().to_lowercase()));
        }
        assert_eq!(NAMES.len(), ErrorKind::ALL.len() + 1);
        for odd in [-1, 26, c_int::MAX, c_int::MIN] {
            // SAFETY: as above.
            assert_eq!(unsafe { CStr::from_ptr(fb_result_name(odd)) }, c"(unknown result)");
        }
    }
}
