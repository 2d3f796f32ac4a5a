//! `fb_get_rows` and what tells where ranks and blocks lie in space.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]

use crate::abi::{fb_selection, fb_view};
use crate::arguments;
use crate::boundary::{Handle, call};
use crate::boxes;
use crate::producer::fb_producer;
use crate::step::fb_step;
use forebay_client::core::dtype::Dtype;
use forebay_client::{Bounds, Error, RANK_BOUNDS, RankBounds, Result, Selection};
use std::ffi::{c_char, c_int};

/// Tells how many rows a field without a global shape has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_row_count(
    step: *const fb_step,
    field: *const c_char,
    count: *mut u64,
) -> c_int {
    call("fb_step_row_count", || {
        // SAFETY: the header's terms.
        unsafe {
            let rows = Handle::get(step, "step")?.step.row_count(arguments::text(field, "field")?)?;
            arguments::place(count, "count")?.write(rows);
        }
        Ok(())
    })
}

/// Copies rows of a field without a global shape.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_get_rows(step: *mut fb_step, selection: *const fb_selection) -> c_int {
    call("fb_get_rows", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let given = arguments::read(selection, "selection")?;
            let name = arguments::text(given.field, "selection->field")?;
            let selection = boxes::selection(&given)?;
            let Some((first, others)) = selection.offset.split_first() else {
                return Err(Error::out_of_bounds("selection->ndim is 0: rows have one dimension or more"));
            };
            if others.iter().any(|offset| *offset != 0) || selection.step.iter().any(|step| *step != 1) {
                return Err(Error::out_of_bounds(
                    "selection: rows are read whole, so that beyond the first dimension its offset is 0, and every is 1",
                ));
            }
            let mut target = boxes::target(&given, &selection.shape, name, step.field(name)?.dtype)?;
            step.read_rows(name, *first, &mut target)
        }
    })
}

/// Declares that ranks say which part of space they have.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_rank_bounds(producer: *mut fb_producer, ndim: u32, every: u32) -> c_int {
    call("fb_rank_bounds", || {
        // SAFETY: the header's terms.
        let inner = unsafe { Handle::get(producer, "producer")? };
        inner.producer.rank_bounds(arguments::dimensions(ndim, "ndim")?, every)?;
        inner.note_declared(RANK_BOUNDS, Dtype::F64);
        Ok(())
    })
}

/// Says which part of space this rank has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_put_rank_bounds(
    producer: *mut fb_producer,
    ndim: u32,
    low: *const f64,
    high: *const f64,
    ghost_low: *const f64,
    ghost_high: *const f64,
) -> c_int {
    call("fb_put_rank_bounds", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(producer, "producer")?;
            let ndim = arguments::dimensions(ndim, "ndim")?;
            let numbers =
                |given, what: &str| Ok::<Vec<f64>, Error>(arguments::numbers(given, ndim, what)?.collect());
            let own = Bounds { low: numbers(low, "low")?, high: numbers(high, "high")? };
            let or_own = |given: *const f64, own: &[f64], what: &str| match given.is_null() {
                true => Ok(own.to_vec()),
                false => numbers(given, what),
            };
            let with_ghosts = Bounds {
                low: or_own(ghost_low, &own.low, "ghost_low")?,
                high: or_own(ghost_high, &own.high, "ghost_high")?,
            };
            inner.producer.put_rank_bounds(&RankBounds { own, with_ghosts }).map(drop)
        }
    })
}

/// Tells which part of space a rank of the simulation has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_rank_bounds(
    step: *const fb_step,
    rank: u32,
    ndim: u32,
    low: *mut f64,
    high: *mut f64,
    ghost_low: *mut f64,
    ghost_high: *mut f64,
) -> c_int {
    call("fb_step_rank_bounds", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(step, "step")?;
            let ndim = arguments::dimensions(ndim, "ndim")?;
            let found = inner.rank_bounds()?.get(&rank).ok_or_else(|| {
                let number = inner.step.number();
                Error::not_found(format!(
                    "rank {rank} did not say at step {number} which part of space it has"
                ))
            })?;
            let places = [
                (low, "low", &found.own.low),
                (high, "high", &found.own.high),
                (ghost_low, "ghost_low", &found.with_ghosts.low),
                (ghost_high, "ghost_high", &found.with_ghosts.high),
            ];
            for (place, what, numbers) in places.into_iter().filter(|(place, ..)| !place.is_null()) {
                write(place, numbers, ndim, what)?;
            }
        }
        Ok(())
    })
}

/// Tells where a block lies in space.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_view_bounds(
    step: *const fb_step,
    field: *const c_char,
    view: *const fb_view,
    ghosts: c_int,
    low: *mut f64,
    high: *mut f64,
) -> c_int {
    call("fb_view_bounds", || {
        let ghosts = arguments::truth(ghosts, "ghosts")?;
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let field = step.field(arguments::text(field, "field")?)?;
            let given = arguments::read(view, "view")?;
            let ndim = arguments::dimensions(given.ndim, "view->ndim")?;
            let of = |numbers: &[u64; 8]| numbers[..ndim].into();
            let elements =
                Selection { offset: of(&given.offset), shape: of(&given.shape), step: of(&given.step) };
            let widths = if ghosts {
                (&given.ghost_low[..ndim], &given.ghost_high[..ndim])
            } else {
                (&[][..], &[][..])
            };
            let found = field.bounds_of(&elements, given.level, widths)?;
            write(arguments::place(low, "low")?, &found.low, ndim, "low")?;
            write(arguments::place(high, "high")?, &found.high, ndim, "high")
        }
    })
}

/// Writes so many numbers.
///
/// # Safety
/// There is room for `ndim` of them.
unsafe fn write(place: *mut f64, numbers: &[f64], ndim: usize, what: &str) -> Result<()> {
    if numbers.len() != ndim {
        return Err(Error::out_of_bounds(format!(
            "{what}: ndim is {ndim}, and space has {} dimensions",
            numbers.len()
        )));
    }
    // SAFETY: the caller vouches for it.
    unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr(), place, ndim) };
    Ok(())
}
