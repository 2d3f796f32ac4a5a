//! `fb_attr...`: what is said of a stream and its fields beside the data.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]

use crate::abi::{FB_BOOL, FB_C128, FB_F64, FB_I64, FB_TEXT, FB_U64, Sized64, fb_attribute};
use crate::arguments;
use crate::attr_table::AttrTable;
use crate::boundary::{Handle, call};
use crate::producer::fb_producer;
use crate::step::fb_step;
use forebay_client::core::attr::ATTRS_BYTES_MAX;
use forebay_client::{Attr, AttrValues, Error, Result};
use std::ffi::{c_char, c_int, c_void};

/// Sets an attribute of the stream or of one of its fields.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_attr(producer: *mut fb_producer, attribute: *const fb_attribute) -> c_int {
    call("fb_attr", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(producer, "producer")?;
            let given = arguments::read(attribute, "attribute")?;
            let key = arguments::text(given.key, "attribute->key")?;
            let field = arguments::optional_text(given.field, "attribute->field")?;
            inner.producer.attr(field, key, read(&given)?)
        }
    })
}

/// Sets an attribute of the step that is open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_attr_step(
    producer: *mut fb_producer,
    attribute: *const fb_attribute,
) -> c_int {
    call("fb_attr_step", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(producer, "producer")?;
            let given = arguments::read(attribute, "attribute")?;
            let key = arguments::text(given.key, "attribute->key")?;
            if arguments::optional_text(given.field, "attribute->field")?.is_some() {
                return Err(Error::invalid(
                    "attribute->field is given: what is said of a step is of no field",
                ));
            }
            inner.producer.step_attr(key, read(&given)?)
        }
    })
}

/// Reads the values of an attribute.
unsafe fn read(given: &fb_attribute) -> Result<Attr> {
    let list = arguments::truth(given.list, "attribute->list")?;
    let count = usize::try_from(given.count).ok().filter(|count| *count <= ATTRS_BYTES_MAX);
    let count = count.ok_or_else(|| {
        Error::invalid(format!("attribute->count is {}: all values fit into 64 KiB", given.count))
    })?;
    if !list && count != 1 {
        return Err(Error::invalid(format!(
            "attribute->count is {count}, and attribute->list 0: set list to 1 for more or less than one value"
        )));
    }
    if given.values.is_null() && count > 0 {
        return Err(Error::invalid(format!("attribute->values is NULL, and count is {count}")));
    }
    // SAFETY: the header's terms: so many values of that type.
    let values = unsafe {
        match given.dtype {
            FB_BOOL => {
                let bytes = arguments::optional_numbers(given.values.cast::<u8>(), count);
                let truths = bytes.map(|byte| arguments::truth(i32::from(byte), "a value of FB_BOOL"));
                AttrValues::Bool(truths.collect::<Result<_>>()?)
            }
            FB_I64 => AttrValues::Int(arguments::optional_numbers(given.values.cast(), count).collect()),
            FB_U64 => AttrValues::unsigned(arguments::optional_numbers(given.values.cast(), count).collect()),
            FB_C128 => AttrValues::Complex(arguments::optional_numbers(given.values.cast(), count).collect()),
            FB_F64 => AttrValues::Float(arguments::optional_numbers(given.values.cast(), count).collect()),
            FB_TEXT => {
                let texts = arguments::optional_numbers(given.values.cast::<*const c_char>(), count);
                let texts = texts.enumerate().map(|(index, text)| {
                    arguments::text(text, &format!("attribute->values[{index}]")).map(str::to_owned)
                });
                AttrValues::Text(texts.collect::<Result<_>>()?)
            }
            other => {
                return Err(Error::unsupported(format!(
                    "attribute->dtype is {other}: an attribute is of FB_BOOL, FB_I64, FB_U64, FB_F64, FB_C128 or FB_TEXT"
                )));
            }
        }
    };
    Ok(Attr { list, values })
}

/// Tells an attribute of the step's stream or of one of its fields.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_attr_get(
    step: *const fb_step,
    field: *const c_char,
    key: *const c_char,
    attribute: *mut fb_attribute,
) -> c_int {
    call("fb_attr_get", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(step, "step")?;
            let (field, key) = (arguments::optional_text(field, "field")?, arguments::text(key, "key")?);
            let attrs = inner.step.attrs();
            let place = attrs.of(field).position(|(known, _)| known == key);
            let shown = inner.attributes.get_or_init(|| AttrTable::new(attrs)).of(field);
            let (Some(attr), Some(shown)) = (attrs.get(field, key), place.and_then(|at| shown.get(at)))
            else {
                let known: Vec<&str> = attrs.of(field).map(|(key, _)| key).collect();
                return Err(Error::not_found(format!(
                    "{} has no attribute '{key}'; it has {}",
                    field.map_or("the stream".to_owned(), |field| format!("field '{field}'")),
                    if known.is_empty() { "none".into() } else { known.join(", ") }
                )));
            };
            let (dtype, values): (i32, *const c_void) = match &attr.values {
                AttrValues::Bool(values) => (FB_BOOL, values.as_ptr().cast()),
                AttrValues::Int(values) => (FB_I64, values.as_ptr().cast()),
                AttrValues::Float(values) => (FB_F64, values.as_ptr().cast()),
                AttrValues::Unsigned(values) => (FB_U64, values.as_ptr().cast()),
                AttrValues::Complex(values) => (FB_C128, values.as_ptr().cast()),
                AttrValues::Text(_) => (FB_TEXT, shown.pointers.as_ptr().cast()),
            };
            let told = fb_attribute {
                field: shown.field.as_ref().map_or(std::ptr::null(), |field| field.as_ptr()),
                key: shown.key.as_ptr(),
                dtype,
                list: i32::from(attr.list),
                count: attr.values.len() as u64,
                values,
                ..fb_attribute::DEFAULT
            };
            arguments::write(&told, attribute, "attribute")
        }
    })
}

/// Tells the key of one of the attributes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_attr_key(
    step: *const fb_step,
    field: *const c_char,
    index: u64,
    key: *mut *const c_char,
) -> c_int {
    call("fb_attr_key", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(step, "step")?;
            let field = arguments::optional_text(field, "field")?;
            let place = arguments::place(key, "key")?;
            let shown = inner.attributes.get_or_init(|| AttrTable::new(inner.step.attrs())).of(field);
            let found = usize::try_from(index).ok().and_then(|index| shown.get(index));
            let found = found.ok_or_else(|| {
                Error::not_found(format!("there is no attribute {index}: there are {}", shown.len()))
            })?;
            place.write(found.key.as_ptr());
        }
        Ok(())
    })
}
