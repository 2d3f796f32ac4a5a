//! `fb_space_...`: arrays by name, step and region.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::{fb_block, fb_field, fb_selection, fb_space_options, fb_value};
use crate::arguments;
use crate::boundary::{Handle, call};
use crate::boxes::{self, BlockArguments};
use crate::general::give;
use crate::options::space_options;
use crate::value::told;
use forebay_client::core::contract::Field;
use forebay_client::core::region::{Dims, Region};
use forebay_client::{Error, Result, Selection, Space, SpaceArray, SpacePut};
use serde_json::Value;
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// What a space's handle points at.
pub(crate) struct Inner {
    space: Space,
    /// Of a wait that has none of its own.
    timeout: Duration,
}

/// Arrays put and got by name, step and region.
pub(crate) type fb_space = Handle<Inner>;

/// Finds the group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_space_open(
    options: *const fb_space_options,
    space: *mut *mut fb_space,
) -> c_int {
    call("fb_space_open", || {
        let place = arguments::place(space, "space")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let given = arguments::read(options, "options")?;
            let options = space_options(&given)?;
            let (space, timeout) = (Space::open(&options)?, options.group.patience());
            Handle::give(Inner { space, timeout }, place);
        }
        Ok(())
    })
}

/// Keeps an array, or a part of it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_space_put(
    space: *mut fb_space,
    field: *const fb_field,
    step: u64,
    block: *const fb_block,
) -> c_int {
    // SAFETY: the header's terms.
    call("fb_space_put", || unsafe { put(space, field, step, block, false) })
}

/// Puts a whole array into the space, in the place of what there is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_space_replace(
    space: *mut fb_space,
    field: *const fb_field,
    step: u64,
    block: *const fb_block,
) -> c_int {
    // SAFETY: the header's terms.
    call("fb_space_replace", || unsafe { put(space, field, step, block, true) })
}

/// Puts an array.
///
/// # Safety
/// The header's terms.
unsafe fn put(
    space: *mut fb_space,
    field: *const fb_field,
    step: u64,
    block: *const fb_block,
    whole: bool,
) -> Result<()> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let inner = Handle::get(space, "space")?;
        let field = Field { whole, ..boxes::field(&arguments::read(field, "field")?)? };
        // The field is named once, by `field`.
        let mut described = arguments::read(block, "block")?;
        if described.field.is_null() {
            described.field = c"".as_ptr();
        }
        let given = BlockArguments::read(&described)?;
        if !given.field.is_empty() && given.field != field.name {
            return Err(Error::invalid(format!(
                "block->field is '{}', and field->name is '{}'",
                given.field, field.name
            )));
        }
        given.check_dtype(field.dtype)?;
        inner.space.put(&SpacePut { field, step, extent: given.extent.clone() }, &given.source()?)
    }
}

/// Tells what there is in the space.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_space_list(space: *mut fb_space, json: *mut *mut c_char) -> c_int {
    call("fb_space_list", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(space, "space")?;
            give(json, || {
                let arrays = inner.space.list()?;
                Ok(Value::Array(arrays.iter().map(SpaceArray::to_json).collect()).to_string())
            })
        }
    })
}

/// Copies a region, waiting until it is there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_space_get(
    space: *mut fb_space,
    step: u64,
    timeout: f64,
    selection: *const fb_selection,
) -> c_int {
    call("fb_space_get", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(space, "space")?;
            let given = arguments::read(selection, "selection")?;
            let name = arguments::text(given.field, "selection->field")?;
            let selection = boxes::selection(&given)?;
            let region = span(&selection)?;
            let timeout = arguments::own_seconds(timeout)?.unwrap_or(inner.timeout);
            let found = inner.space.find(name, step, &region, timeout)?;
            let mut target = boxes::target(&given, &selection.shape, name, found.field().dtype)?;
            found.read(&selection, &mut target)
        }
    })
}

/// The box that a selection spans.
fn span(selection: &Selection) -> Result<Region> {
    let extent = |(count, step): (&u64, &u64)| match count {
        0 => Some(0),
        count => (count - 1).checked_mul(*step)?.checked_add(1),
    };
    let extents: Option<Dims> = selection.shape.iter().zip(&selection.step).map(extent).collect();
    let extents =
        extents.ok_or_else(|| Error::out_of_bounds("the selection reaches further than 64 bits"))?;
    Region::new(&selection.offset, &extents)
}

/// Tells what an expression gives of what was put into the space.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_space_evaluate(
    space: *mut fb_space,
    step: u64,
    timeout: f64,
    text: *const c_char,
    value: *mut fb_value,
) -> c_int {
    call("fb_space_evaluate", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(space, "space")?;
            let timeout = arguments::own_seconds(timeout)?.unwrap_or(inner.timeout);
            let found = inner.space.evaluate(arguments::text(text, "text")?, step, timeout)?;
            arguments::write(&told(&found), value, "value")
        }
    })
}

/// Removes what was put of a field at a step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_space_remove(
    space: *mut fb_space,
    field: *const c_char,
    step: u64,
) -> c_int {
    call("fb_space_remove", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(space, "space")?;
            inner.space.remove(arguments::text(field, "field")?, step)
        }
    })
}

/// Frees the handle. What was put stays.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_space_close(space: *mut fb_space) -> c_int {
    call("fb_space_close", || {
        // SAFETY: the header's terms.
        drop(unsafe { Handle::take(space) });
        Ok(())
    })
}
