//! The processes of servers, as the simulation sees them.

use crate::node::Node;
use crate::simulation::process::{Micros, Process};
use crate::simulation::server::Known;
use std::sync::Arc;

/// How long others may take to agree to go on without a server that stood still.
const DOUBTED: Micros = 3_000_000;

/// A server, as the simulation sees it.
pub(super) struct Server {
    pub(super) number: u32,
    pub(super) host: usize,
    pub(super) process: Option<Process>,
    pub(super) known: Known,
    pub(super) stands_still: bool,
    /// Since when it runs again after it stood still: the others may just have agreed to go on without it.
    pub(super) runs_since: Micros,
    /// Whether it was given up before, and came back with what it held.
    pub(super) came_back: bool,
}

impl Server {
    pub(super) fn runs(&self) -> bool {
        self.process.is_some() && !self.stands_still
    }

    /// Whether others can count on it.
    pub(super) fn is_reliable(&self, now: Micros, cut: &Cut) -> bool {
        let doubted = |since: Micros| since > 0 && now <= since + DOUBTED;
        let was_cut = cut.host == self.host && (cut.lasts || doubted(cut.until));
        self.runs() && !doubted(self.runs_since) && !was_cut
    }

    /// Whether it was given up, and is going to offer what it holds as a new member.
    pub(super) fn comes_back(&self) -> bool {
        let was_out = |node: Arc<Node>| node.driver.out.get() && !node.state.lock().common.members.goes();
        self.process.is_some() && self.known.node().map_or(self.came_back, was_out)
    }

    /// Its state, if it is a member as far as it knows.
    pub(super) fn member(&self) -> Option<Arc<Node>> {
        self.process.as_ref()?;
        self.known.node().filter(|node| !node.driver.out.get())
    }
}

/// The host that was cut off last.
#[derive(Debug, Default)]
pub(super) struct Cut {
    pub(super) host: usize,
    pub(super) lasts: bool,
    pub(super) since: Micros,
    pub(super) until: Micros,
}
