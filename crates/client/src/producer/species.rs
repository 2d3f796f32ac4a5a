//! Particle species: fields whose blocks have no place in a global array, and share one count.

use crate::producer::block::Block;
use forebay_core::block::Extent;
use forebay_core::region::Dims;
use forebay_core::{Error, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// Which fields belong to a particle species.
#[derive(Debug, Default)]
pub(super) struct Species {
    /// The species of a field, by the field's full name.
    of: BTreeMap<String, String>,
}

/// The counts of one step: of each species and block number, and the field that said so first.
#[derive(Debug, Default)]
pub(super) struct SpeciesCounts(HashMap<(String, u64), (Count, String)>);

/// How many particles a block has, and how many ghosts lie before and after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    particles: u64,
    before: u64,
    after: u64,
}

impl Count {
    fn of(extent: &Extent) -> Count {
        let first = |dims: Dims| dims.first().copied().unwrap_or(0);
        let particles = extent.shape().first().copied().unwrap_or(0);
        Count { particles, before: first(extent.ghost_low()), after: first(extent.ghost_high()) }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count { particles, before: 0, after: 0 } => write!(f, "{particles} particles"),
            Count { particles, before, after } => {
                write!(f, "{particles} particles, and {before} ghosts before them and {after} after")
            }
        }
    }
}

impl Species {
    /// Declares that a field belongs to a species.
    pub(super) fn add(&mut self, field: String, species: &str) {
        self.of.insert(field, species.to_owned());
    }

    /// Checks that the blocks of one species and number have one count.
    pub(super) fn check(&self, counts: &mut SpeciesCounts, block: &Block<'_>) -> Result<()> {
        let Some(species) = self.of.get(block.field) else { return Ok(()) };
        let count = Count::of(&block.extent);
        let key = (species.clone(), block.number);
        let (known, first) = counts.0.entry(key).or_insert_with(|| (count, block.field.to_owned()));
        if *known == count {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "block {} of field '{}' has {count}; that of '{first}' has {known}: the fields of species '{species}' share one count",
            block.number, block.field
        )))
    }

    /// A block was not put after all: unless another field of the species was put under its number, the count may be another
    /// one. `put` are the fields and numbers of the blocks that were put.
    pub(super) fn forget(
        &self,
        counts: &mut SpeciesCounts,
        put: &HashSet<(String, u64)>,
        field: &str,
        number: u64,
    ) {
        let Some(species) = self.of.get(field) else { return };
        let is_put = |other: &String| put.contains(&(other.clone(), number));
        if !self.of.iter().any(|(other, of)| of == species && is_put(other)) {
            counts.0.remove(&(species.clone(), number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(field: &str, count: u64) -> Block<'_> {
        Block { field, number: 3, level: 0, extent: Extent::new(None, &[count], &[], &[]).unwrap() }
    }

    #[test]
    fn a_count_holds_until_all_who_said_it_are_forgotten() {
        let (mut species, mut counts) = (Species::default(), SpeciesCounts::default());
        species.add("ion/x".to_owned(), "ion");
        species.add("ion/v".to_owned(), "ion");
        species.check(&mut counts, &block("ion/x", 5)).unwrap();
        let error = species.check(&mut counts, &block("ion/v", 6)).unwrap_err();
        assert!(error.text.contains("'ion/x' has 5"), "{error}");
        let mut put = HashSet::from([("ion/x".to_owned(), 3)]);
        species.forget(&mut counts, &put, "ion/v", 3);
        assert!(species.check(&mut counts, &block("ion/v", 6)).is_err(), "x was put with 5");
        put.clear();
        species.forget(&mut counts, &put, "ion/x", 3);
        species.check(&mut counts, &block("ion/v", 6)).unwrap();
        species.check(&mut counts, &block("U", 7)).unwrap();
    }
}
