//! Particles and buffers: fields whose blocks have no place in a global array, and what binds them.

use crate::producer::{Block, Open, Producer};
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::ids::check_name;
use forebay_core::{Error, Result};
use std::collections::BTreeMap;

/// Which fields belong to a particle species.
#[derive(Debug, Default)]
pub(crate) struct Species {
    /// The species of a field, by the field's full name.
    of: BTreeMap<String, String>,
}

impl Producer {
    /// Declares a particle species: a group of fields that share one count. Each is offered as `species/name`;
    /// it has no global shape, and its first dimension counts the particles: `[n]`, or `[n, components]`.
    /// The blocks of a species that have one number must have one count; `put` checks that. Waits for an
    /// answer for each field.
    pub fn particles(&self, species: &str, fields: Vec<Field>) -> Result<()> {
        check_name("species", species)?;
        let fail = |text: String| Err(Error::invalid(format!("species '{species}': {text}")));
        if species.contains('/') {
            return fail("its name has a '/', which stands between it and the names of its fields".into());
        }
        if fields.is_empty() {
            return fail("it has no field".into());
        }
        for field in &fields {
            check_name("field", &field.name)?;
            if field.shape.is_some() || field.ndim == 0 {
                return fail(format!(
                    "field '{}' needs a first dimension that counts particles, and no global shape",
                    field.name
                ));
            }
        }
        for mut field in fields {
            field.name = format!("{species}/{}", field.name);
            let name = field.name.clone();
            self.array(field)?;
            self.state()?.species.of.insert(name, species.to_owned());
        }
        Ok(())
    }

    /// Declares a buffer: bytes, of another length at each step and rank if need be, offered at the steps that
    /// are multiples of `every`. It is put as a block of `uint8` with one dimension and no offset. Waits for
    /// an answer.
    pub fn buffer(&self, name: &str, every: u32) -> Result<()> {
        self.array(Field { every, ..Field::new(name, Dtype::U8, None, 1) })
    }
}

impl Species {
    /// Checks that the blocks of one species and number have one count.
    pub(crate) fn check(&self, open: &mut Open, block: &Block<'_>) -> Result<()> {
        let Some(species) = self.of.get(block.field) else { return Ok(()) };
        let count = block.extent.shape().first().copied().unwrap_or(0);
        let key = (species.clone(), block.number);
        let (known, first) = open.counts.entry(key).or_insert_with(|| (count, block.field.to_owned()));
        if *known == count {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "block {} of field '{}' has {count} particles, that of '{first}' {known}: the fields of species '{species}' \
             share one count",
            block.number, block.field
        )))
    }

    /// A block was not put after all: if no other field has said its count, it may be another one.
    pub(crate) fn forget(&self, open: &mut Open, field: &str, number: u64) {
        let Some(species) = self.of.get(field) else { return };
        let put = |other: &String| open.keys.contains(&(other.clone(), number));
        if !self.of.iter().any(|(other, of)| of == species && put(other)) {
            open.counts.remove(&(species.clone(), number));
        }
    }
}
