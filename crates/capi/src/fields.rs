//! `fb_step_field...`: what a step tells of its fields.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]

use crate::abi::{Sized64, fb_field_info};
use crate::arguments;
use crate::boundary::{Handle, call};
use crate::boxes::eight;
use crate::field_texts::FieldTexts;
use crate::step::{StepInner, fb_step};
use forebay_client::core::region::MAX_NDIM;
use forebay_client::{Choice, Error, Result};
use std::ffi::{c_char, c_int};

impl StepInner {
    /// Those of all fields, in the step's order.
    fn texts(&self) -> &[FieldTexts] {
        self.texts.get_or_init(|| self.step.fields().map(|told| FieldTexts::new(&told.field)).collect())
    }

    fn field_info(&self, name: &str) -> Result<fb_field_info> {
        // The error for an unknown field names those that there are.
        let field = self.step.field(name)?;
        let index = self.step.fields().position(|told| told.field.name == field.name);
        let texts = index.and_then(|index| self.texts().get(index));
        let texts = texts.ok_or_else(|| Error::internal(format!("field '{name}' has no texts")))?;
        let mut dims = [std::ptr::null(); MAX_NDIM];
        dims.iter_mut().zip(&texts.dims).for_each(|(place, dim)| *place = dim.as_ptr());
        Ok(fb_field_info {
            name: texts.name.as_ptr(),
            dtype: field.dtype as i32,
            association: field.association.named().number,
            ndim: u32::from(field.ndim),
            every: field.every,
            placed: i32::from(field.shape.is_some()),
            has_dims: i32::from(!field.dims.is_empty()),
            has_spacing: i32::from(!field.spacing.is_empty()),
            has_origin: i32::from(!field.origin.is_empty()),
            shape: eight(field.shape.as_deref().unwrap_or_default()),
            dims,
            spacing: eight(&field.spacing),
            origin: eight(&field.origin),
            units: texts.units.as_ptr(),
            periodic: eight(&field.periodic.iter().copied().map(u64::from).collect::<Vec<_>>()),
            refinement: eight(&field.refinement.iter().copied().map(u64::from).collect::<Vec<_>>()),
            is_static: i32::from(field.is_static),
            ..fb_field_info::DEFAULT
        })
    }
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
            let texts = Handle::get(step, "step")?.texts();
            let place = arguments::place(name, "name")?;
            let found = usize::try_from(index).ok().and_then(|index| texts.get(index));
            let found = found.ok_or_else(|| {
                Error::not_found(format!(
                    "there is no field {index}: the step has {}, counted from 0",
                    texts.len()
                ))
            })?;
            place.write(found.name.as_ptr());
        }
        Ok(())
    })
}

/// Tells what a field is at this step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_field(
    step: *const fb_step,
    field: *const c_char,
    info: *mut fb_field_info,
) -> c_int {
    call("fb_step_field", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(step, "step")?;
            arguments::write(&inner.field_info(arguments::text(field, "field")?)?, info, "info")
        }
    })
}
