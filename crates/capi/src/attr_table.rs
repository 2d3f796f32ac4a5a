//! The attributes of a step, as C reads them.

use crate::boundary::c_text;
use forebay_client::{AttrValues, Attrs};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};

/// By field (empty: the stream) and key. What it points at are the
/// step's attributes and its own texts.
#[derive(Debug)]
pub(crate) struct AttrTable(BTreeMap<String, Vec<AttrEntry>>);

/// One of them.
#[derive(Debug)]
pub(crate) struct AttrEntry {
    pub(crate) field: Option<Box<CStr>>,
    pub(crate) key: Box<CStr>,
    /// What `pointers` point at.
    _texts: Vec<Box<CStr>>,
    pub(crate) pointers: Vec<*const c_char>,
}

impl AttrTable {
    pub(crate) fn new(attrs: &Attrs) -> AttrTable {
        let fields = attrs.fields().map(Some).chain([None]);
        let of = |field: Option<&str>| {
            let shown = attrs.of(field).map(|(key, attr)| {
                let texts: Vec<Box<CStr>> = match &attr.values {
                    AttrValues::Text(texts) => texts.iter().map(|text| c_text(text)).collect(),
                    _ => Vec::new(),
                };
                let pointers = texts.iter().map(|text| text.as_ptr()).collect();
                AttrEntry { field: field.map(c_text), key: c_text(key), _texts: texts, pointers }
            });
            (field.unwrap_or("").to_owned(), shown.collect())
        };
        AttrTable(fields.map(of).collect())
    }

    /// Those of a field, in the order of their keys.
    pub(crate) fn of(&self, field: Option<&str>) -> &[AttrEntry] {
        self.0.get(field.unwrap_or("")).map_or(&[], |shown| &shown[..])
    }
}
