//! What readers look at: blocks that are removed meanwhile are let go of with the last lease on their field.

use super::FieldAtStep;
use forebay_cluster::environment::HashMap;
use forebay_core::block::Location;

/// The leases of all readers that this owner has told of blocks.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// The field that each lease is on, by the lease's number.
    by_number: HashMap<u64, FieldAtStep>,
    /// Where blocks are that were removed while readers had a lease on their field.
    removed: HashMap<FieldAtStep, Vec<Location>>,
}

impl Leases {
    /// A reader is told of blocks of a field.
    pub(super) fn grant(&mut self, lease: u64, key: FieldAtStep) {
        self.by_number.insert(lease, key);
    }

    /// Whether a reader may look at blocks of a field.
    fn covers(&self, key: &FieldAtStep) -> bool {
        self.by_number.values().any(|leased| leased == key)
    }

    /// Blocks of a field are removed. Returns those that may be freed at once: none, or all if no reader looks at any.
    pub(super) fn on_removed(&mut self, key: &FieldAtStep, locations: Vec<Location>) -> Vec<Location> {
        if !self.covers(key) {
            return locations;
        }
        self.removed.entry(key.clone()).or_default().extend(locations);
        Vec::new()
    }

    /// Whether a block was removed that a reader may still look at.
    pub(super) fn hold_back(&self, key: &FieldAtStep, location: &Location) -> bool {
        self.removed.get(key).is_some_and(|removed| removed.contains(location))
    }

    /// A reader has finished. Returns the field and what of it may be freed now.
    pub(super) fn end(&mut self, lease: u64) -> Option<(FieldAtStep, Vec<Location>)> {
        let key = self.by_number.remove(&lease)?;
        let freed = if self.covers(&key) { Vec::new() } else { self.removed.remove(&key)? };
        Some((key, freed))
    }

    /// Checks that each lease is on a field that is indexed, or of which blocks are held back, and that blocks are held back
    /// for leases alone.
    pub(super) fn sanity_check(&self, is_indexed: impl Fn(&FieldAtStep) -> bool) -> Result<(), String> {
        let unknown = |key: &&FieldAtStep| !is_indexed(key) && !self.removed.contains_key(*key);
        if let Some(key) = self.by_number.values().find(unknown) {
            return Err(format!("a lease is on {key}, which is neither indexed nor removed"));
        }
        match self.removed.keys().find(|key| !self.covers(key)) {
            Some(key) => Err(format!("blocks of {key} are held back for no reader")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ids::ServerId;

    #[test]
    fn what_is_removed_under_leases_is_freed_with_the_last() {
        let key = FieldAtStep::new("T", 4);
        let place = Location { server: ServerId(1), arena: 2, offset: 64, bytes: 8, generation: 1 };
        let mut leases = Leases::default();
        assert_eq!(leases.on_removed(&key, vec![place]), [place], "nobody looks at it");
        leases.grant(7, key.clone());
        leases.grant(8, key.clone());
        assert!(leases.sanity_check(|_| false).is_err());
        assert_eq!(leases.on_removed(&key, vec![place]), []);
        assert!(leases.hold_back(&key, &place));
        assert_eq!(leases.end(7), Some((key.clone(), Vec::new())));
        leases.sanity_check(|_| false).unwrap();
        assert_eq!(leases.end(8), Some((key.clone(), vec![place])));
        assert_eq!(leases.end(8), None);
        assert!(!leases.hold_back(&key, &place));
    }
}
