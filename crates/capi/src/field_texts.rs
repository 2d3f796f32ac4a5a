//! The texts of a field, as C has them.

use crate::boundary::c_text;
use forebay_client::core::contract::Field;
use std::ffi::CStr;

/// What `fb_step_field` tells points at them.
#[derive(Debug)]
pub(crate) struct FieldTexts {
    pub(crate) name: Box<CStr>,
    pub(crate) dims: Vec<Box<CStr>>,
    pub(crate) units: Box<CStr>,
}

impl FieldTexts {
    pub(crate) fn new(field: &Field) -> FieldTexts {
        FieldTexts {
            name: c_text(&field.name),
            dims: field.dims.iter().map(|dim| c_text(dim)).collect(),
            units: c_text(&field.units),
        }
    }
}
