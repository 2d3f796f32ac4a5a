//! `fb_consumer_...`.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::{fb_consumer_options, fb_need};
use crate::arguments;
use crate::boundary::{Handle, call};
use crate::compound::changed_needs;
use crate::options::consumer_options;
use crate::step::{StepInner, fb_step};
use forebay_client::{Consumer, Error};
use std::ffi::c_int;

/// A reader of a stream.
pub(crate) type fb_consumer = Handle<Consumer>;

/// Attaches to a stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_consumer_open(
    options: *const fb_consumer_options,
    consumer: *mut *mut fb_consumer,
) -> c_int {
    call("fb_consumer_open", || {
        let place = arguments::place(consumer, "consumer")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let given = arguments::read(options, "options")?;
            let stream = arguments::text(given.stream, "options->stream")?;
            Handle::give(Consumer::open(&consumer_options(&given, stream)?)?, place);
        }
        Ok(())
    })
}

/// Waits for the next step that this consumer wants.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_consumer_next(
    consumer: *mut fb_consumer,
    timeout: f64,
    step: *mut *mut fb_step,
) -> c_int {
    call("fb_consumer_next", || {
        let place = arguments::place(step, "step")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let consumer = Handle::get(consumer, "consumer")?;
            let step = consumer.next_step(arguments::own_seconds(timeout)?)?;
            Handle::give(StepInner::new(step), place);
        }
        Ok(())
    })
}

/// Takes the next step if it is there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_consumer_poll(
    consumer: *mut fb_consumer,
    step: *mut *mut fb_step,
) -> c_int {
    call("fb_consumer_poll", || {
        let place = arguments::place(step, "step")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            if let Some(step) = Handle::get(consumer, "consumer")?.poll()? {
                Handle::give(StepInner::new(step), place);
            }
        }
        Ok(())
    })
}

/// Tells where another reader goes on.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_consumer_cursor(
    consumer: *const fb_consumer,
    run: *mut u64,
    step: *mut u64,
) -> c_int {
    call("fb_consumer_cursor", || {
        // SAFETY: the header's terms.
        unsafe {
            let (run, step) = (arguments::place(run, "run")?, arguments::place(step, "step")?);
            let cursor = Handle::get(consumer, "consumer")?.cursor()?;
            let unknown =
                || Error::not_found("no step has come yet, and the servers have not told the first one");
            let (of_run, next) = cursor.ok_or_else(unknown)?;
            run.write(of_run);
            step.write(next);
        }
        Ok(())
    })
}

/// Changes what is needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_consumer_need(
    consumer: *mut fb_consumer,
    fields: *const fb_need,
    count: u32,
    every: u32,
    run: *mut u64,
    step: *mut u64,
) -> c_int {
    call("fb_consumer_need", || {
        // SAFETY: the header's terms.
        unsafe {
            let consumer = Handle::get(consumer, "consumer")?;
            let (of_run, from) = consumer.need(&changed_needs(fields, count, every)?)?.unwrap_or((0, 0));
            for (place, number) in [(run, of_run), (step, from)] {
                if !place.is_null() {
                    place.write(number);
                }
            }
        }
        Ok(())
    })
}

/// Detaches, and frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_consumer_close(consumer: *mut fb_consumer) -> c_int {
    call("fb_consumer_close", || {
        // SAFETY: the header's terms.
        let consumer = unsafe { Handle::take(consumer) };
        consumer.map_or(Ok(()), |consumer| consumer.close())
    })
}

/// Detaches a reader that has failed, and frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_consumer_abandon(consumer: *mut fb_consumer) -> c_int {
    call("fb_consumer_abandon", || {
        // SAFETY: the header's terms.
        if let Some(consumer) = unsafe { Handle::take(consumer) } {
            consumer.abandon();
        }
        Ok(())
    })
}
