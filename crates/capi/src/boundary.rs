//! The boundary with C: what happens to every call on its way in and out.
#![allow(unsafe_code, reason = "handles are C's pointers")]

use forebay_client::transport::fork::ForkGuard;
use forebay_client::{Error, Result, ServerId};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
    static LAST_SERVER: Cell<Option<ServerId>> = const { Cell::new(None) };
}

/// Runs the body of the function called `name`: an error becomes its code and, under the function's name,
/// the thread's text; a panic does not get out.
pub(crate) fn call(name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
            Error::internal(format!("a defect of Forebay's, please report it: {text}"))
        }
    };
    remember(&format!("{name}: {}", error.text), error.server());
    error.kind.code()
}

/// Makes this the calling thread's last error, and this the server that it is about.
pub(crate) fn remember(text: &str, server: Option<ServerId>) {
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    if let Ok(text) = CString::new(bytes) {
        // A thread that is ending may have lost its text already.
        let _ = LAST.try_with(|last| last.replace(Some(text)));
        LAST_SERVER.set(server);
    }
}

/// The text of the calling thread's last error.
pub(crate) fn last() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

/// The server that the calling thread's last error is about.
pub(crate) fn last_server() -> Option<ServerId> {
    LAST_SERVER.get()
}

/// What every handle holds beside its content: the process that made it, so that a forked child is told
/// before it waits for a lock that nobody will release.
#[derive(Debug)]
pub(crate) struct Handle<T> {
    content: T,
    guard: ForkGuard,
}

impl<T> Handle<T> {
    /// Gives a new handle to the caller.
    ///
    /// # Safety
    /// `out` is not NULL and may be written.
    pub(crate) unsafe fn give(content: T, out: *mut *mut Handle<T>) {
        let handle = Box::new(Handle { content, guard: ForkGuard::new() });
        // SAFETY: the caller vouches for it.
        unsafe { out.write(Box::into_raw(handle)) };
    }

    /// The content of a handle that a caller passed as `what`.
    ///
    /// # Safety
    /// `handle` is NULL, or was given by [`Handle::give`] and is not taken back during the call.
    pub(crate) unsafe fn get<'a>(handle: *const Handle<T>, what: &str) -> Result<&'a T> {
        // SAFETY: the caller vouches for it.
        let handle = unsafe { handle.as_ref() }.ok_or_else(|| Error::invalid(format!("{what} is NULL")))?;
        handle.guard.check(what)?;
        Ok(&handle.content)
    }

    /// Takes a handle back to free it; `None` for NULL. In a forked child it is left as it is: nothing may be
    /// told to a server from there, nor a lock be waited for, and another thread of the parent may have been
    /// half-way through changing what would be freed.
    ///
    /// # Safety
    /// As for [`Handle::get`], and nobody uses it any more.
    pub(crate) unsafe fn take(handle: *mut Handle<T>) -> Option<T> {
        // SAFETY: the caller vouches for it.
        if unsafe { handle.as_ref() }.is_none_or(|handle| handle.guard.is_child()) {
            return None;
        }
        // SAFETY: the caller vouches for it; a handle was made from a box.
        let handle = unsafe { Box::from_raw(handle) };
        Some(handle.content)
    }
}

/// Text as C has it; a NUL inside is left out.
pub(crate) fn c_text(text: &str) -> Box<CStr> {
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default().into_boxed_c_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_client::ErrorKind;

    #[test]
    fn errors_are_told_under_the_functions_name() {
        assert_eq!(call("fb_x", || Err(Error::invalid("a\0b"))), 1);
        // SAFETY: the text is this thread's.
        assert_eq!(unsafe { CStr::from_ptr(last()) }, c"fb_x: ab");
        assert_eq!(last_server(), None);
        call("fb_x", || Err(Error::unreachable("server3 is gone").about(ServerId(3))));
        assert_eq!(last_server(), Some(ServerId(3)));
        call("fb_x", || Ok(()));
        assert_eq!(last_server(), Some(ServerId(3)), "a call that succeeds leaves it as it is");
        std::thread::spawn(|| assert_eq!(last_server(), None)).join().unwrap();
    }

    #[test]
    fn panics_stay_inside() {
        assert_eq!(call("fb_x", || panic!("of {}", "old")), ErrorKind::Internal.code());
        // SAFETY: as above.
        assert!(unsafe { CStr::from_ptr(last()) }.to_string_lossy().ends_with("please report it: of old"));
    }
}
