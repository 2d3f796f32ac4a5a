//! `fb_subscribe`, `fb_subscription_...` and `fb_event_...`.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::Sized64;
use crate::abi::{
    FB_BEGIN_AFTER, FB_BEGIN_FIRST, FB_BEGIN_NEXT, FB_BEGIN_RESUME, FB_TURN_UNKNOWN, fb_event_info,
    fb_subscription_options, fb_value,
};
use crate::admin::fb_admin;
use crate::arguments;
use crate::boundary::{Handle, c_text, call};
use crate::general::give;
use crate::step::{StepInner, fb_step};
use crate::subscribers::subscriber;
use crate::value::{at, told};
use forebay_client::core::ids::Timestamp;
use forebay_client::query::SPACE;
use forebay_client::query::subscription::{Definition, KeptSteps};
use forebay_client::status::SubscriptionStatus;
use forebay_client::{
    Admin, Choice, Error, ErrorKind, From, Notice, Result, Step, Subscription, SubscriptionEvent,
};
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// What a subscription's handle points at.
pub(crate) struct Listened {
    name: Box<CStr>,
    subscription: Subscription,
}

/// A subscription that this process listens to.
pub(crate) type fb_subscription = Handle<Listened>;

/// What an event's handle points at.
pub(crate) struct Told {
    info: fb_event_info,
    why: Box<CStr>,
    values: Vec<(Box<CStr>, fb_value)>,
    /// The step, until it is taken.
    step: Mutex<Option<Step>>,
}

/// One event.
pub(crate) type fb_event = Handle<Told>;

impl Told {
    fn step(&self) -> MutexGuard<'_, Option<Step>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_no_step(&self) -> Error {
        let step = self.info.step;
        match self.info.has_step {
            1 => Error::new(ErrorKind::Closed, format!("step {step} was taken out of this event before")),
            _ => Error::new(
                ErrorKind::Dropped,
                format!(
                    "step {step} is held no longer: see `hold` and `keep_around` in fb_subscription_options. Events of the space \
                     hold none: fb_space_get reads it"
                ),
            ),
        }
    }
}

/// Has the servers watch for something.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_subscribe(
    options: *const fb_subscription_options,
    text: *const c_char,
    subscription: *mut *mut fb_subscription,
) -> c_int {
    call("fb_subscribe", || {
        let place = arguments::place(subscription, "subscription")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let given = match options.is_null() {
                true => fb_subscription_options::DEFAULT,
                false => arguments::read(options, "options")?,
            };
            let group = arguments::group(given.group, given.transport, given.timeout, std::ptr::null())?;
            let subscriber = subscriber(&group)?;
            let name = arguments::optional_text(given.name, "options->name")?;
            let name = name.map_or_else(|| subscriber.unused_name(), str::to_owned);
            let definition = definition(&given, &name, arguments::text(text, "text")?)?;
            let window = arguments::within(given.window, 1..=1024, "options->window")?;
            let subscription = subscriber.subscribe(definition, begin(&given)?, window)?;
            Handle::give(Listened { name: c_text(&name), subscription }, place);
        }
        Ok(())
    })
}

/// What is asked for.
///
/// # Safety
/// The header's terms.
unsafe fn definition(given: &fb_subscription_options, name: &str, text: &str) -> Result<Definition> {
    let keeps = match arguments::truth(given.keep_around, "options->keep_around")? {
        true => Some(KeptSteps { before: given.keep_before, after: given.keep_after }),
        false => None,
    };
    let expires = match given.expires {
        0.0 => None,
        after => {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            let end = now.saturating_add(arguments::seconds(after, "options->expires")?);
            Some(Timestamp(u64::try_from(end.as_millis()).unwrap_or(u64::MAX)))
        }
    };
    // SAFETY: the caller vouches for it.
    let stream = unsafe { arguments::optional_text(given.stream, "options->stream") }?;
    let in_space = arguments::truth(given.space, "options->space")?;
    if in_space && stream.is_some() {
        let text = "fields are those of options->stream or of the space: give options->stream or options->space, not both";
        return Err(Error::invalid(text));
    }
    let stream = if in_space { Some(SPACE) } else { stream };
    Ok(Definition {
        own: stream.map(str::to_owned),
        every: given.every,
        on: Choice::of_number(given.on, "options->on")?,
        limit: Some(given.limit).filter(|limit| *limit > 0),
        expires,
        missing: Choice::of_number(given.missing, "options->missing")?,
        keep: arguments::truth(given.keep, "options->keep")?,
        keeps,
        hold: given.hold,
        ..Definition::new(name, text)
    })
}

fn begin(given: &fb_subscription_options) -> Result<From> {
    match given.begin {
        FB_BEGIN_RESUME => Ok(From::Resume),
        FB_BEGIN_NEXT => Ok(From::Next),
        FB_BEGIN_FIRST => Ok(From::First),
        FB_BEGIN_AFTER => Ok(From::After(given.after)),
        other => Err(Error::invalid(format!(
            "options->begin is {other}: use FB_BEGIN_RESUME (0), FB_BEGIN_NEXT (1), FB_BEGIN_FIRST (2) or FB_BEGIN_AFTER (3)"
        ))),
    }
}

/// Tells its name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_subscription_name(
    subscription: *const fb_subscription,
    name: *mut *const c_char,
) -> c_int {
    call("fb_subscription_name", || {
        // SAFETY: the header's terms.
        unsafe {
            let listened = Handle::get(subscription, "subscription")?;
            arguments::place(name, "name")?.write(listened.name.as_ptr());
        }
        Ok(())
    })
}

/// Waits until it watches.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_subscription_wait_active(
    subscription: *mut fb_subscription,
    run: *mut u64,
    step: *mut u64,
) -> c_int {
    call("fb_subscription_wait_active", || {
        // SAFETY: the header's terms.
        unsafe {
            let from = Handle::get(subscription, "subscription")?.subscription.wait_active()?;
            let (of_run, number) = from.unwrap_or((0, 0));
            for (place, value) in [(run, of_run), (step, number)] {
                if !place.is_null() {
                    place.write(value);
                }
            }
        }
        Ok(())
    })
}

/// Tells which event came last.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_subscription_cursor(
    subscription: *const fb_subscription,
    number: *mut u64,
) -> c_int {
    call("fb_subscription_cursor", || {
        // SAFETY: the header's terms.
        unsafe {
            let place = arguments::place(number, "number")?;
            let listened = Handle::get(subscription, "subscription")?;
            let unknown = || Error::not_found("no event has come yet, and the first one is not known");
            place.write(listened.subscription.cursor().ok_or_else(unknown)?);
        }
        Ok(())
    })
}

/// Pauses, resumes or removes it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_subscription_change(
    subscription: *mut fb_subscription,
    change: c_int,
) -> c_int {
    call("fb_subscription_change", || {
        // SAFETY: the header's terms.
        let listened = unsafe { Handle::get(subscription, "subscription") }?;
        listened.subscription.change(Choice::of_number(change, "change")?)
    })
}

/// Waits for the next event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_event_next(
    subscription: *mut fb_subscription,
    timeout: f64,
    event: *mut *mut fb_event,
) -> c_int {
    call("fb_event_next", || {
        let place = arguments::place(event, "event")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let listened = Handle::get(subscription, "subscription")?;
            let told = match listened.subscription.next(arguments::own_seconds(timeout)?)? {
                Notice::Event(event) => told_event(*event),
                Notice::Unknown { run, step, why } => {
                    let info = fb_event_info { turn: FB_TURN_UNKNOWN, run, step, ..fb_event_info::DEFAULT };
                    let (why, values) = (c_text(&why.text), Vec::new());
                    Told { info, why, values, step: Mutex::new(None) }
                }
            };
            Handle::give(told, place);
        }
        Ok(())
    })
}

fn told_event(SubscriptionEvent { event, missed, step }: SubscriptionEvent) -> Told {
    let values = event.values.iter().map(|reported| {
        let value = fb_value { nan: reported.nan, ..told(&reported.value) };
        (c_text(&reported.label), reported.place.as_ref().map_or(value, |place| at(place, value)))
    });
    let info = fb_event_info {
        turn: event.turn.named().number,
        values_count: event.values.len() as u32,
        number: event.number,
        run: event.run,
        step: event.step,
        time: event.time,
        episode: event.episode.number,
        first: event.episode.first,
        missing: event.episode.missing,
        missed,
        // Until it is taken.
        has_step: i32::from(step.is_some()),
        ..fb_event_info::DEFAULT
    };
    Told { info, why: c_text(""), values: values.collect(), step: Mutex::new(step) }
}

/// Tells which event it is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_event_info_get(event: *const fb_event, info: *mut fb_event_info) -> c_int {
    call("fb_event_info_get", || {
        // SAFETY: the header's terms.
        unsafe {
            let told = Handle::get(event, "event")?;
            let why = if told.info.turn == FB_TURN_UNKNOWN { told.why.as_ptr() } else { std::ptr::null() };
            let has_step = i32::from(told.step().is_some());
            arguments::write(&fb_event_info { why, has_step, ..told.info }, info, "info")
        }
    })
}

/// Tells one of its values.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_event_value(
    event: *const fb_event,
    index: u64,
    value: *mut fb_value,
) -> c_int {
    call("fb_event_value", || {
        // SAFETY: the header's terms.
        unsafe {
            let values = &Handle::get(event, "event")?.values;
            let found = usize::try_from(index).ok().and_then(|index| values.get(index));
            let (label, found) = found.ok_or_else(|| {
                Error::not_found(format!("the event has {} values, no value {index}", values.len()))
            })?;
            arguments::write(&fb_value { label: label.as_ptr(), ..*found }, value, "value")
        }
    })
}

/// Takes its step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_event_step(event: *mut fb_event, step: *mut *mut fb_step) -> c_int {
    call("fb_event_step", || {
        let place = arguments::place(step, "step")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let told = Handle::get(event, "event")?;
            let step = told.step().take().ok_or_else(|| told.has_no_step())?;
            Handle::give(StepInner::new(step), place);
        }
        Ok(())
    })
}

/// Has finished with an event, and frees its handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_event_release(event: *mut fb_event) -> c_int {
    call("fb_event_release", || {
        // SAFETY: the header's terms.
        drop(unsafe { Handle::take(event) });
        Ok(())
    })
}

/// Listens no more, and frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_subscription_close(subscription: *mut fb_subscription) -> c_int {
    call("fb_subscription_close", || {
        // SAFETY: the header's terms.
        if let Some(listened) = unsafe { Handle::take(subscription) } {
            listened.subscription.close();
        }
        Ok(())
    })
}

/// Tells all subscriptions of a group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_subscriptions(
    admin: *mut fb_admin,
    json: *mut *mut c_char,
) -> c_int {
    call("fb_admin_subscriptions", || {
        // SAFETY: the header's terms.
        unsafe {
            let group = Handle::get(admin, "admin")?;
            let list = || Admin::open(group)?.subscriptions();
            give(json, || Ok(SubscriptionStatus::list_to_json(&list()?).to_string()))
        }
    })
}

/// Pauses, resumes or removes a subscription.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_change_subscription(
    admin: *mut fb_admin,
    name: *const c_char,
    stream: *const c_char,
    change: c_int,
) -> c_int {
    call("fb_admin_change_subscription", || {
        // SAFETY: the header's terms.
        unsafe {
            let group = Handle::get(admin, "admin")?;
            let (name, stream) =
                (arguments::text(name, "name")?, arguments::optional_text(stream, "stream")?);
            Admin::open(group)?.change_subscription(name, stream, Choice::of_number(change, "change")?)
        }
    })
}
