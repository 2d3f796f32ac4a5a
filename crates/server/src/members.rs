//! Which members are there, as far as this server knows, and who leaves: itself, or others.
//!
//! What is agreed on about members stands in the roster; this is what a server sees meanwhile.

use forebay_core::ids::ServerId;
use std::collections::BTreeSet;

/// How far this server is with leaving its group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It stays.
    #[default]
    Stays,
    /// What it has goes elsewhere.
    Drains,
    /// Besides, pipelines that it coordinates begin nothing more.
    Pauses,
    /// It holds nothing that nobody else does, and will not.
    Goes,
}

/// What a server knows of the members of its group.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Servers that are known to be gone, in the order in which they went.
    gone: Vec<ServerId>,
    /// Other members that leave.
    leaving: BTreeSet<ServerId>,
    phase: Phase,
    /// Members that know that this server leaves.
    informed: BTreeSet<ServerId>,
    /// The group has given this server up while it left.
    given_up: bool,
}

impl Members {
    /// Whether a server is known to be gone.
    pub(crate) fn is_gone(&self, server: ServerId) -> bool {
        self.gone.contains(&server)
    }

    /// The servers that are known to be gone.
    pub(crate) fn gone(&self) -> &[ServerId] {
        &self.gone
    }

    /// A server is gone; `false` if that is known.
    pub(crate) fn note_gone(&mut self, server: ServerId) -> bool {
        let is_news = !self.is_gone(server);
        if is_news {
            self.gone.push(server);
        }
        is_news
    }

    /// Whether another member leaves.
    pub(crate) fn leaves(&self, server: ServerId) -> bool {
        self.leaving.contains(&server)
    }

    /// Other members that leave.
    pub(crate) fn leaving(&self) -> &BTreeSet<ServerId> {
        &self.leaving
    }

    /// Another member leaves.
    pub(crate) fn note_leaving(&mut self, server: ServerId) {
        self.leaving.insert(server);
    }

    /// Another member does not leave after all; `false` if it did not.
    pub(crate) fn note_staying(&mut self, server: ServerId) -> bool {
        self.leaving.remove(&server)
    }

    /// Whether a server is there and does not leave, this one being `me`.
    pub(crate) fn stays(&self, server: ServerId, me: ServerId) -> bool {
        let leaves = if server == me { self.this_one_leaves() } else { self.leaves(server) };
        !leaves && !self.is_gone(server)
    }

    /// Whether this server leaves.
    pub(crate) fn this_one_leaves(&self) -> bool {
        self.phase > Phase::Stays
    }

    /// Whether pipelines that this server coordinates are to begin nothing more.
    pub(crate) fn pauses(&self) -> bool {
        self.phase >= Phase::Pauses
    }

    /// Whether this server takes nothing more.
    pub(crate) fn goes(&self) -> bool {
        self.phase == Phase::Goes
    }

    /// This server begins to leave, or stays after all: nobody knows of it yet.
    pub(crate) fn begin_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.informed.clear();
    }

    /// This server has come so far with leaving.
    pub(crate) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Pipelines that this server coordinates are to begin nothing more.
    pub(crate) fn pause(&mut self) {
        self.phase = self.phase.max(Phase::Pauses);
    }

    /// The group has given this server up while it waited to leave: it does not leave, and comes back with what it holds.
    pub(crate) fn note_given_up(&mut self) {
        self.phase = self.phase.min(Phase::Pauses);
        self.given_up = true;
    }

    /// Whether the group has given this server up while it left.
    pub(crate) fn was_given_up(&self) -> bool {
        self.given_up
    }

    /// A member knows that this server leaves.
    pub(crate) fn note_informed(&mut self, server: ServerId) {
        self.informed.insert(server);
    }

    /// Whether a member knows that this server leaves.
    pub(crate) fn is_informed(&self, server: ServerId) -> bool {
        self.informed.contains(&server)
    }

    /// The members are others.
    pub(crate) fn keep_members(&mut self, members: &[ServerId]) {
        self.informed.retain(|id| members.contains(id));
        self.leaving.retain(|id| members.contains(id));
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(crate) fn sanity_check(&self) -> Result<(), String> {
        if self.phase == Phase::Stays && !self.informed.is_empty() {
            return Err(format!("{:?} know that this server leaves, which it does not", self.informed));
        }
        if self.given_up && self.phase == Phase::Goes {
            return Err("this server was given up, and goes all the same".to_owned());
        }
        Ok(())
    }
}
