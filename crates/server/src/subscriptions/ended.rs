//! Which subscriptions have ended, and why: who knew one of them is told so, and does not make it again.

use std::collections::VecDeque;

/// How many are remembered.
const KNOWN_MAX: usize = 4096;

/// Subscriptions that have ended, the latest last.
#[derive(Debug, Default)]
pub(super) struct Ended(VecDeque<(u64, String)>);

impl Ended {
    /// One has ended. `creation` tells it from others of its name.
    pub(super) fn note(&mut self, creation: u64, why: &str) {
        self.0.push_back((creation, why.to_owned()));
        if self.0.len() > KNOWN_MAX {
            self.0.pop_front();
        }
    }

    /// Why one has ended, if it has.
    pub(super) fn get(&self, creation: u64) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == creation).map(|(_, why)| &why[..])
    }
}
