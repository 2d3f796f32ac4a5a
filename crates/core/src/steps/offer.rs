//! What the ranks of a run offer: its fields and attributes.

use crate::attr::{Attr, Attrs};
use crate::contract::{Field, Needs};
use crate::ids::StepNumber;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// How many fields a run may offer.
const FIELDS_MAX: usize = 4096;

/// Whether readers' contracts can be checked against the fields of an offer.
///
/// ```text
///             a rank begins a step, or a home tells that one has
///   Growing ─────────────────────────────────────────────────────► Complete
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OfferPhase {
    /// Ranks may still declare the fields that a reader needs.
    #[default]
    Growing,
    /// A rank has begun a step: contracts that cannot be met fail.
    Complete,
}

/// The fields and attributes of a run.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub(super) fields: BTreeMap<String, Field>,
    pub(super) attrs: Attrs,
    /// How often an attribute was set.
    pub(super) attrs_version: u64,
    pub(super) phase: OfferPhase,
}

impl Offer {
    pub(super) fn is_complete(&self) -> bool {
        self.phase == OfferPhase::Complete
    }

    /// A rank has begun a step. Returns whether that was the first one.
    pub(super) fn complete(&mut self) -> bool {
        std::mem::replace(&mut self.phase, OfferPhase::Complete) == OfferPhase::Growing
    }

    /// A rank offers a field, or gives it another shape from its next step on.
    pub(super) fn define(&mut self, stream: &str, rank: u32, field: Field) -> Result<()> {
        let fields = self.fields.len();
        match self.fields.get_mut(&field.name) {
            Some(known) if !known.agrees_with(&field) => Err(Error::conflict(format!(
                "rank {rank} offers field '{}' of stream '{stream}' with {}, as it was offered before: its shape, \
                 spacing, origin and units alone may change in a run, and all ranks must agree",
                field.name,
                known.differences(&field).join("; ")
            ))),
            Some(known) => {
                *known = field;
                Ok(())
            }
            None if fields >= FIELDS_MAX => {
                Err(Error::invalid(format!("stream '{stream}' already offers {FIELDS_MAX} fields")))
            }
            None => {
                self.fields.insert(field.name.clone(), field);
                Ok(())
            }
        }
    }

    /// A rank sets an attribute of the stream or of one of its fields, for the rest of the run.
    pub(super) fn set_attr(
        &mut self,
        stream: &str,
        field: Option<&str>,
        key: &str,
        attr: Attr,
    ) -> Result<()> {
        if let Some(field) = field.filter(|field| !self.fields.contains_key(*field)) {
            return Err(Error::not_found(format!(
                "attribute '{key}': stream '{stream}' has no field '{field}': declare it first"
            )));
        }
        let changed =
            self.attrs.set(field, key, attr).map_err(|error| error.during(format!("stream '{stream}'")))?;
        self.attrs_version += u64::from(changed);
        Ok(())
    }

    /// A home tells what was offered, and set, before this coordinator took over. What is known already stays.
    pub(super) fn inherit(&mut self, fields: Vec<Field>, attrs: &Attrs, begun: bool) -> Result<()> {
        if begun {
            self.phase = OfferPhase::Complete;
        }
        for field in fields {
            self.fields.entry(field.name.clone()).or_insert(field);
        }
        for field in [None].into_iter().chain(attrs.fields().map(Some)) {
            for (key, attr) in attrs.of(field) {
                self.attrs_version += u64::from(self.attrs.set(field, key, attr.clone())?);
            }
        }
        Ok(())
    }

    /// The fields that are needed at a step.
    pub(super) fn wanted<'a>(
        &'a self,
        needs: &'a Needs,
        step: StepNumber,
    ) -> impl Iterator<Item = &'a Field> {
        self.fields.values().filter(move |field| needs.wants(field, step))
    }

    /// Whether something of a step is needed. Those who need nothing but static fields are told of each.
    pub(super) fn is_wanted(&self, needs: &Needs, step: StepNumber) -> bool {
        self.wanted(needs, step).next().is_some() || self.needs_static_alone(needs)
    }

    /// Whether fields are needed, and all of them are static.
    pub(super) fn needs_static_alone(&self, needs: &Needs) -> bool {
        let mut needed = self.fields.values().filter(|field| needs.of(&field.name).is_some()).peekable();
        needed.peek().is_some() && needed.all(|field| field.is_static)
    }
}
