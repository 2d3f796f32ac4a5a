//! What a caller is about: for its deadline, and for texts.

use crate::kind::Kind;
use forebay_core::{Error, ErrorKind};
use forebay_wire::comm::Label;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bits of the number of a collective.
const NUMBER: u32 = 40;
/// As good as never.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Which part of a comm (0: all of it, else one that was split off), and in that the number of a collective, or 0 for users' messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space(pub(crate) u64);

impl Space {
    pub(crate) fn new(part: u32, number: u64) -> Space {
        Space(u64::from(part) << NUMBER | number & ((1 << NUMBER) - 1))
    }

    pub(crate) fn part(self) -> u32 {
        (self.0 >> NUMBER) as u32
    }

    pub(crate) fn number(self) -> u64 {
        self.0 & ((1 << NUMBER) - 1)
    }
}

/// One call.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) comm: u64,
    /// This process among all members of the comm.
    pub(crate) rank: u32,
    /// Those that take part, in their order.
    pub(crate) ranks: Arc<[u32]>,
    /// `message`, or a collective's name.
    pub(crate) what: &'static str,
    /// What all ranks must agree on, if it is a collective.
    pub(crate) kind: Kind,
    /// Tells what is said in it from all else.
    pub(crate) space: Space,
    pub(crate) timeout: Duration,
    /// When that is over, once somebody has begun to wait.
    pub(crate) deadline: OnceLock<Instant>,
    /// The deadline is over: what still waits fails when it is looked at next.
    pub(crate) expired: AtomicBool,
}

impl Task {
    /// When it has waited for long enough. It counts from the first wait on.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        *self.deadline.get_or_init(|| now.checked_add(self.timeout.min(FAR)).unwrap_or(now))
    }

    pub(crate) fn label(&self, tag: u64) -> Label {
        Label { source: self.rank, space: self.space.0, tag }
    }

    pub(crate) fn is_collective(&self) -> bool {
        self.space.number() != 0
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
        match (space.number(), tag) {
            (0, Some(tag)) => format!("a {what} with tag {tag} in communicator {comm}"),
            (0, None) => format!("a {what} with any tag in communicator {comm}"),
            (number, _) => format!("the {what} (collective {number} of communicator {comm})"),
        }
    }
}
