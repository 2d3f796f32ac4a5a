//! `fb_consumer_...`, and the steps that it gives.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::{
    FB_START_CURSOR, FB_START_NEXT, FB_START_OLDEST, Sized64, fb_consumer_options, fb_selection,
    fb_step_info, fb_view,
};
use crate::arguments;
use crate::attributes::Shown;
use crate::boundary::{Handle, c_text, call};
use crate::boxes;
use forebay_client::core::contract::{Need, Needs};
use forebay_client::core::dtype::Dtype;
use forebay_client::core::region::MAX_NDIM;
use forebay_client::core::steps::Start;
use forebay_client::{BlockBytes, Consumer, ConsumerOptions, Error, GroupOptions, Result, Step};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A reader of a stream.
pub(crate) type fb_consumer = Handle<Consumer>;

/// What a step's handle points at.
pub(crate) struct StepInner {
    /// What `fb_step_block` showed, by field and index; freed before the step is released.
    views: Mutex<HashMap<(String, usize), BlockBytes>>,
    /// The fields' names, as C has text.
    names: Vec<Box<CStr>>,
    /// The attributes as C has them, once they were asked for.
    pub(crate) attributes: OnceLock<Shown>,
    pub(crate) step: Step,
}

/// One step, as a consumer holds it.
pub(crate) type fb_step = Handle<StepInner>;

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
            Handle::give(Consumer::open(&consumer_options(&given)?)?, place);
        }
        Ok(())
    })
}

unsafe fn consumer_options(given: &fb_consumer_options) -> Result<ConsumerOptions> {
    // SAFETY: the header's terms.
    unsafe {
        let mut options = ConsumerOptions::new(arguments::text(given.stream, "options->stream")?);
        options.group = GroupOptions {
            group: arguments::optional_text(given.group, "options->group")?.map(str::to_owned),
            transport: arguments::transport(given.transport, "options->transport")?,
            timeout: Some(arguments::patience(given.timeout, "options->timeout")?),
        };
        options.needs = needs(given)?;
        options.window = match given.window {
            window @ 1..=1024 => window,
            other => return Err(Error::invalid(format!("options->window is {other}: use 1 to 1024 steps"))),
        };
        options.start = match given.start {
            FB_START_NEXT => Start::Next,
            FB_START_OLDEST => Start::Oldest,
            FB_START_CURSOR if given.start_run == 0 => {
                return Err(Error::invalid("options->start_run is 0: runs are counted from 1"));
            }
            FB_START_CURSOR => Start::Cursor(given.start_run, given.start_step),
            other => {
                return Err(Error::invalid(format!(
                    "options->start is {other}: use FB_START_NEXT (0), FB_START_OLDEST (1) or FB_START_CURSOR (2)"
                )));
            }
        };
        options.follow = arguments::truth(given.follow, "options->follow")?;
        Ok(options)
    }
}

unsafe fn needs(given: &fb_consumer_options) -> Result<Needs> {
    if given.needs_count == 0 {
        return Ok(Needs::All { every: given.every });
    }
    // SAFETY: the header's terms: so many structs, so far apart.
    let needs = unsafe {
        arguments::each(
            given.needs,
            given.needs_count,
            given.needs_stride,
            "options->needs",
            |need, what| {
                Ok(Need {
                    field: arguments::text(need.field, &format!("{what}.field"))?.to_owned(),
                    dtype: (need.dtype != 0).then(|| Dtype::from_code(need.dtype)).transpose()?,
                    every: need.every,
                })
            },
        )?
    };
    Ok(Needs::Fields(needs))
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
            let timeout = if timeout < 0.0 { None } else { Some(arguments::seconds(timeout, "timeout")?) };
            let step = consumer.next_step(timeout)?;
            let names = step.report().fields.iter().map(|found| c_text(&found.field.name)).collect();
            let inner = StepInner { views: Mutex::default(), names, attributes: OnceLock::new(), step };
            Handle::give(inner, place);
        }
        Ok(())
    })
}

/// Tells which step it is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_info_get(step: *const fb_step, info: *mut fb_step_info) -> c_int {
    call("fb_step_info_get", || {
        // SAFETY: the header's terms.
        unsafe {
            let report = Handle::get(step, "step")?.step.report();
            let told = fb_step_info {
                run: report.id.run,
                number: report.id.step,
                time: report.time,
                missed: report.missed,
                rewound: i32::from(report.rewound),
                torn: i32::from(report.torn),
                ..fb_step_info::DEFAULT
            };
            arguments::write(&told, info, "info")
        }
    })
}

/// Tells the name of one of the step's fields.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_field_name(
    step: *const fb_step,
    index: u64,
    name: *mut *const c_char,
) -> c_int {
    call("fb_step_field_name", || {
        // SAFETY: the header's terms.
        unsafe {
            let names = &Handle::get(step, "step")?.names;
            let place = arguments::place(name, "name")?;
            let found = usize::try_from(index).ok().and_then(|index| names.get(index));
            let found = found.ok_or_else(|| {
                Error::not_found(format!(
                    "there is no field {index}: the step has {}, counted from 0",
                    names.len()
                ))
            })?;
            place.write(found.as_ptr());
        }
        Ok(())
    })
}

/// Tells a field's dtype and global shape at this step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_field(
    step: *const fb_step,
    field: *const c_char,
    dtype: *mut i32,
    ndim: *mut u32,
    shape: *mut u64,
) -> c_int {
    call("fb_step_field", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let found = step.field(arguments::text(field, "field")?)?;
            if !dtype.is_null() {
                dtype.write(found.dtype as i32);
            }
            if ndim.is_null() {
                return if shape.is_null() {
                    Ok(())
                } else {
                    Err(Error::invalid("ndim is NULL, and shape is not"))
                };
            }
            let room = ndim.read();
            ndim.write(u32::from(found.ndim));
            if shape.is_null() {
                return Ok(());
            }
            if room < u32::from(found.ndim) {
                return Err(Error::invalid(format!(
                    "shape has room for {room} numbers, and field '{}' has {} dimensions (8 are always enough)",
                    found.name, found.ndim
                )));
            }
            let Some(global) = &found.shape else {
                return Err(Error::out_of_bounds(format!(
                    "field '{}' has no global shape: its blocks have no place in one; see fb_step_block",
                    found.name
                )));
            };
            for (d, extent) in global.iter().enumerate() {
                shape.add(d).write(*extent);
            }
        }
        Ok(())
    })
}

/// Copies exactly the region asked for, or fails and says what is missing.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_get(step: *mut fb_step, selection: *const fb_selection) -> c_int {
    call("fb_get", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let given = arguments::read(selection, "selection")?;
            let name = arguments::text(given.field, "selection->field")?;
            let dtype = step.field(name)?.dtype;
            let selection = boxes::selection(&given)?;
            let mut target = boxes::target(&given, &selection.shape, name, dtype)?;
            step.read(name, &selection, &mut target)
        }
    })
}

/// Tells how many blocks a field has at this step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_block_count(
    step: *const fb_step,
    field: *const c_char,
    count: *mut u64,
) -> c_int {
    call("fb_step_block_count", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let records = step.records(arguments::text(field, "field")?)?;
            arguments::place(count, "count")?.write(records.len() as u64);
        }
        Ok(())
    })
}

/// Shows one block of a field where it lies.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_block(
    step: *mut fb_step,
    field: *const c_char,
    index: u64,
    view: *mut fb_view,
) -> c_int {
    call("fb_step_block", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(step, "step")?;
            arguments::write(&inner.view(arguments::text(field, "field")?, index)?, view, "view")
        }
    })
}

impl StepInner {
    fn view(&self, name: &str, index: u64) -> Result<fb_view> {
        let field = self.step.field(name)?;
        let records = self.step.records(name)?;
        // Past the last block on any machine.
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let record = records.get(index).ok_or_else(|| {
            let count = records.len();
            Error::not_found(format!("field '{name}' has no block {index}: it has {count}, counted from 0"))
        })?;
        let extent = &record.extent;
        let mut view = fb_view {
            number: record.key.number,
            rank: record.key.rank,
            level: record.level,
            dtype: field.dtype as i32,
            ndim: extent.ndim() as u32,
            placed: i32::from(extent.offset().is_some()),
            offset: eight(extent.offset().unwrap_or_default()),
            shape: eight(extent.shape()),
            ghost_low: eight(&extent.ghost_low()),
            ghost_high: eight(&extent.ghost_high()),
            bytes: extent.bytes(field.dtype)?,
            ..fb_view::DEFAULT
        };
        if let Some(stats) = &record.stats {
            view.has_stats = 1;
            (view.min, view.max, view.sum) = (stats.min, stats.max, stats.sum);
            (view.count, view.non_finite) = (stats.count, stats.non_finite);
        }
        if view.bytes > 0 {
            view.data = self.bytes(name, index)?.cast();
        }
        Ok(view)
    }

    /// The address of a block's bytes, which stays valid until the step is released.
    fn bytes(&self, name: &str, index: usize) -> Result<*const u8> {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (name.to_owned(), index);
        if let Some(bytes) = views.get(&place) {
            return Ok(bytes.as_raw()?.0);
        }
        let bytes = self.step.block(name, index)?.bytes;
        let (address, _) = bytes.as_raw()?;
        views.insert(place, bytes);
        Ok(address)
    }
}

fn eight(numbers: &[u64]) -> [u64; MAX_NDIM] {
    let mut all = [0; MAX_NDIM];
    all.iter_mut().zip(numbers).for_each(|(place, number)| *place = *number);
    all
}

/// Has finished with a step, and frees its handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_release(step: *mut fb_step) -> c_int {
    call("fb_step_release", || {
        // SAFETY: the header's terms. A child leaves it alone: another thread may have held its lock.
        drop(unsafe { Handle::take(step) });
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
