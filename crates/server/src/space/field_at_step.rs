//! What is put into the space, found there and removed.

use forebay_core::contract::Field;
use forebay_core::ids::StepNumber;
use forebay_core::region::Region;
use forebay_core::tiles::hash_in_space;
use forebay_core::{Error, Result};
use std::fmt;

/// A field at a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FieldAtStep {
    /// Its name.
    pub(crate) field: String,
    /// The step.
    pub(crate) step: StepNumber,
}

impl fmt::Display for FieldAtStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field '{}' at step {}", self.field, self.step)
    }
}

impl FieldAtStep {
    pub(crate) fn new(field: &str, step: StepNumber) -> FieldAtStep {
        FieldAtStep { field: field.to_owned(), step }
    }

    /// What says which server describes it, and which ones own its tiles.
    pub(crate) fn hash(&self) -> u64 {
        hash_in_space(&self.field, self.step)
    }

    /// Checks that it is put as it was described.
    pub(super) fn check_same(&self, known: &Field, given: &Field) -> Result<()> {
        if known.agrees_with(given) && known.shape == given.shape {
            return Ok(());
        }
        if known.whole && !given.whole {
            return Err(Error::conflict(format!(
                "{self} was put with `replace`: replace it again, or remove it first"
            )));
        }
        Err(Error::conflict(format!(
            "{self} is {} in the space, not {}; remove it there, or give this one another name or step",
            known.kind_and_shape(),
            given.kind_and_shape()
        )))
    }
}

/// Checks that a region lies in a field.
pub(super) fn check_inside(field: &Field, region: &Region) -> Result<()> {
    let whole = Region::whole(field.shape.as_deref().unwrap_or_default())?;
    if whole.contains(region) {
        return Ok(());
    }
    Err(Error::out_of_bounds(format!(
        "region {region} reaches outside field '{}', which is {whole}",
        field.name
    )))
}
