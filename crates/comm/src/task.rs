//! What a caller is about: for its deadline, and for texts.

use forebay_core::{Error, ErrorKind};
use forebay_wire::comm::Label;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One call.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) comm: u64,
    pub(crate) rank: u32,
    /// `message`, or a collective's name.
    pub(crate) what: &'static str,
    /// 0 for the user's messages, else the collective's number.
    pub(crate) space: u64,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
    /// The deadline is over: what still waits fails when it is looked at next.
    pub(crate) expired: AtomicBool,
}

impl Task {
    pub(crate) fn label(&self, tag: u64) -> Label {
        Label { source: self.rank, space: self.space, tag }
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    pub(crate) fn timed_out(&self, what: impl fmt::Display) -> Error {
        Error::timeout(format!("rank {} waited {:?} {what}", self.rank, self.timeout))
    }

    pub(crate) fn failed(&self, kind: ErrorKind, tag: Option<u64>, why: impl fmt::Display) -> Error {
        Error::new(kind, format!("{} failed at rank {}: {why}", self.name(tag), self.rank))
    }

    /// What it is, for people.
    pub(crate) fn name(&self, tag: Option<u64>) -> String {
        let Task { comm, what, space, .. } = self;
        match (space, tag) {
            (0, Some(tag)) => format!("a {what} with tag {tag} in communicator {comm}"),
            (0, None) => format!("a {what} with any tag in communicator {comm}"),
            _ => format!("the {what} (collective {space} of communicator {comm})"),
        }
    }
}
