//! Who is connected to this server.

use forebay_core::identity::Identity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How many that have a name a status shows.
const NAMED_SHOWN: usize = 100;

/// The connections of clients, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Of each role that somebody has had: how many there are.
    counts: BTreeMap<&'static str, u64>,
    /// Role and client of those whose user has given them a name.
    named: BTreeMap<u64, (&'static str, Identity)>,
    /// The number of the last one that came.
    last: u64,
}

/// A connection that is there.
#[derive(Debug)]
pub(crate) struct ConnectionKey {
    role: &'static str,
    number: u64,
}

impl Connections {
    /// A client has greeted.
    pub(crate) fn add(&mut self, role: &'static str, who: &Identity) -> ConnectionKey {
        self.last += 1;
        *self.counts.entry(role).or_default() += 1;
        if who.name.is_some() {
            self.named.insert(self.last, (role, who.clone()));
        }
        ConnectionKey { role, number: self.last }
    }

    /// Its connection has ended.
    pub(crate) fn remove(&mut self, key: &ConnectionKey) {
        self.named.remove(&key.number);
        if let Some(count) = self.counts.get_mut(key.role) {
            *count = count.saturating_sub(1);
        }
    }

    /// How many there are of each role.
    pub(crate) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// Those that have a name, one entry for each handle.
    pub(crate) fn named(&self) -> Vec<Value> {
        let shown = self.named.values().take(NAMED_SHOWN);
        shown
            .map(|(role, who)| json!({ "role": role, "name": who.name, "host": who.host, "pid": who.pid }))
            .collect()
    }
}
