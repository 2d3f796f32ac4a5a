//! `fb_stream_...`: looking at a stream from outside.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::fb_admin_options;
use crate::arguments;
use crate::boundary::{Handle, call};
use crate::general::give;
use crate::options::admin_options;
use crate::step::{StepInner, fb_step};
use forebay_client::{Result, Step, StepInfo, Stream};
use serde_json::Value;
use std::ffi::{c_char, c_int};

/// A stream, looked at from outside.
pub(crate) type fb_stream = Handle<Stream>;

/// Finds the group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_stream_open(
    options: *const fb_admin_options,
    name: *const c_char,
    stream: *mut *mut fb_stream,
) -> c_int {
    call("fb_stream_open", || {
        let place = arguments::place(stream, "stream")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let options = admin_options(&arguments::read(options, "options")?)?;
            Handle::give(Stream::open(&options, arguments::text(name, "name")?)?, place);
        }
        Ok(())
    })
}

/// Tells which steps are held.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_stream_steps(stream: *mut fb_stream, json: *mut *mut c_char) -> c_int {
    call("fb_stream_steps", || {
        // SAFETY: the header's terms.
        unsafe {
            let stream = Handle::get(stream, "stream")?;
            give(json, || {
                let steps = stream.steps()?;
                Ok(Value::Array(steps.iter().map(StepInfo::to_json).collect()).to_string())
            })
        }
    })
}

/// Gives the newest closed step that is held.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_stream_latest(stream: *mut fb_stream, step: *mut *mut fb_step) -> c_int {
    // SAFETY: the header's terms.
    call("fb_stream_latest", || unsafe { give_step(stream, step, Stream::latest) })
}

/// Gives the step of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_stream_at(
    stream: *mut fb_stream,
    run: u64,
    number: u64,
    step: *mut *mut fb_step,
) -> c_int {
    let run = (run != 0).then_some(run);
    // SAFETY: the header's terms.
    call("fb_stream_at", || unsafe { give_step(stream, step, |stream| stream.at(run, number)) })
}

/// Finds a step and gives its handle.
///
/// # Safety
/// The header's terms.
unsafe fn give_step(
    stream: *mut fb_stream,
    step: *mut *mut fb_step,
    find: impl FnOnce(&Stream) -> Result<Step>,
) -> Result<()> {
    let place = arguments::place(step, "step")?;
    // SAFETY: the caller vouches for it.
    unsafe {
        place.write(std::ptr::null_mut());
        Handle::give(StepInner::new(find(Handle::get(stream, "stream")?)?), place);
    }
    Ok(())
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_stream_close(stream: *mut fb_stream) -> c_int {
    call("fb_stream_close", || {
        // SAFETY: the header's terms.
        drop(unsafe { Handle::take(stream) });
        Ok(())
    })
}
