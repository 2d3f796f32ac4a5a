//! Servers that watch fields.

use forebay_core::ids::ServerId;
use std::collections::{BTreeMap, BTreeSet};

/// The servers that watch, and the names of the fields that each does.
#[derive(Debug, Default)]
pub(super) struct Watchers(BTreeMap<ServerId, BTreeSet<String>>);

impl Watchers {
    /// A server watches fields of these names, and no others.
    pub(super) fn set(&mut self, server: ServerId, fields: BTreeSet<String>) {
        match fields.is_empty() {
            true => self.0.remove(&server),
            false => self.0.insert(server, fields),
        };
    }

    /// A server watches nothing any more.
    pub(super) fn remove(&mut self, server: ServerId) {
        self.0.remove(&server);
    }

    /// The servers that watch a field.
    pub(super) fn of(&self, field: &str) -> impl Iterator<Item = ServerId> {
        self.0.iter().filter(move |(_, fields)| fields.contains(field)).map(|(server, _)| *server)
    }
}
