//! What of a field's blocks a reader sees: what its contract asks for.

use forebay_core::block::{BlockRecord, Extent};
use forebay_core::parts::shown_of;
use forebay_core::region::Dims;
use forebay_core::selection::Selection;
use forebay_core::steps::FieldReport;
use forebay_core::{Error, ErrorKind, Result};

/// A block as a reader sees it.
#[derive(Debug)]
pub(crate) struct SeenBlock<'a> {
    /// As it is held.
    pub(crate) record: &'a BlockRecord,
    /// What of it is seen; `None`: all of it.
    pub(crate) cut: Option<Extent>,
}

impl SeenBlock<'_> {
    /// How many bytes of it are seen.
    pub(crate) fn bytes(&self, element: u64) -> u64 {
        match &self.cut {
            Some(cut) => cut.stored_shape().iter().product::<u64>() * element,
            None => self.record.location.bytes,
        }
    }

    /// Its record, as far as it is seen.
    pub(crate) fn as_record(&self, element: u64) -> BlockRecord {
        let Some(cut) = &self.cut else { return self.record.clone() };
        let mut location = self.record.location;
        location.bytes = self.bytes(element);
        let BlockRecord { key, level, .. } = *self.record;
        BlockRecord { key, level, extent: cut.clone(), location, inline: None, stats: None }
    }
}

/// The elements of a field that its reader needs; `None`: all.
pub(crate) fn needed(found: &FieldReport) -> Option<Selection> {
    let (part, shape) = (found.part.as_ref()?, found.field.shape.as_ref()?);
    let zero = || shape.iter().map(|_| 0).collect::<Dims>();
    let nothing = || Selection { offset: zero(), shape: zero(), step: shape.iter().map(|_| 1).collect() };
    Some(part.of(shape).unwrap_or_else(nothing))
}

/// These blocks of a field as its reader sees them.
pub(crate) fn seen_of<'a>(found: &FieldReport, records: &'a [BlockRecord]) -> Vec<SeenBlock<'a>> {
    match needed(found) {
        Some(needed) => seen_within(&needed, records),
        None => records.iter().map(|record| SeenBlock { record, cut: None }).collect(),
    }
}

/// What these blocks show of a part of the field.
pub(crate) fn seen_within<'a>(needed: &Selection, records: &'a [BlockRecord]) -> Vec<SeenBlock<'a>> {
    let seen = |(index, cut): (usize, Extent)| {
        let record = records.get(index)?;
        Some(SeenBlock { record, cut: (cut != record.extent).then_some(cut) })
    };
    shown_of(needed, records).into_iter().filter_map(seen).collect()
}

/// Checks that a reader needs what it reads: others may need more, which it is not to depend on.
pub(crate) fn check_needed(step: &str, found: &FieldReport, selection: &Selection) -> Result<()> {
    match (needed(found), &found.part) {
        (Some(needed), Some(part)) if selection.volume() > 0 && !needed.holds(selection) => {
            let text = format!(
                "field '{}' at {step}: {selection} lies outside what this reader needs of it: region {part} (an event brings what \
                 its text watches)",
                found.field.name
            );
            Err(Error::new(ErrorKind::NotCovered, text))
        }
        _ => Ok(()),
    }
}
