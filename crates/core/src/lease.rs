//! Leases: what lets a member acknowledge something without asking anybody.
//!
//! A member asks all others every now and then; while more than half of them, itself among them, have granted its asking
//! within the last [`LEASE`], it may acknowledge. Who votes for a roster without a member grants it nothing any more,
//! and whoever has such a roster chosen waits for [`LEASE_OVER`] before it comes into force: by then the last lease
//! that a voter granted has run out, whether its holder knows of the roster, stands still, or is cut off. (Gray and
//! Cheriton, "Leases", 1989.)

use crate::ids::ServerId;
use crate::seeded::{Bug, seeded};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long after it was asked for a lease ends.
pub const LEASE: Duration = Duration::from_secs(1);
/// After that, a lease that was granted by now has ended, although clocks differ: by up to a tenth.
pub const LEASE_OVER: Duration = Duration::from_millis(1150);
/// How long a voter that has accepted a next roster grants leases in the old one, so that its members can go on until the
/// next one comes into force.
pub const STANDS_FOR: Duration = Duration::from_secs(2);
/// After that, nobody has a lease any more of the epoch before a roster that is in force by now, whoever missed it.
pub const STOOD_FOR: Duration = Duration::from_millis(3400);
/// How long after it was asked for a lease in use is asked for again.
const RENEW_AFTER: Duration = Duration::from_millis(250);
/// How long to wait for an answer before another one is asked for.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How many askings are remembered whose answers may still come.
const ASKED_MAX: usize = 64;

/// A member's lease.
#[derive(Debug)]
pub(crate) struct Lease {
    /// For each other member, when the latest granted asking was sent.
    granted: BTreeMap<ServerId, Option<Duration>>,
    asked: VecDeque<(u64, Duration)>,
    next: u64,
}

impl Lease {
    pub(crate) fn new(me: ServerId, members: impl Iterator<Item = ServerId>) -> Lease {
        let granted = members.filter(|id| *id != me).map(|id| (id, None)).collect();
        Lease { granted, asked: VecDeque::new(), next: 0 }
    }

    /// Asks: every other member is to be told this number.
    pub(crate) fn renew(&mut self, now: Duration) -> u64 {
        self.next += 1;
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back((self.next, now));
        self.next
    }

    /// A member has granted the asking of this number.
    pub(crate) fn granted(&mut self, by: ServerId, number: u64, now: Duration) {
        let asked = self.asked.iter().find(|(asked, _)| *asked == number).map(|(_, at)| *at);
        let asked = if seeded(Bug::LeaseCountsFromItsGrant) { asked.map(|_| now) } else { asked };
        if let Some(latest) = self.granted.get_mut(&by) {
            *latest = (*latest).max(asked);
        }
    }

    /// Whether it is to be asked for now, while it is in use.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let after = if self.holds(now) { RENEW_AFTER } else { ASK_AGAIN };
        !self.granted.is_empty() && self.asked.back().is_none_or(|(_, asked)| now >= *asked + after)
    }

    /// Whether more than half of the members stand behind this one now.
    pub(crate) fn holds(&self, now: Duration) -> bool {
        let standing = self.granted.values().flatten().filter(|asked| now < **asked + LEASE).count();
        2 * (standing + 1) > self.granted.len() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_its_asking() {
        let at = Duration::from_millis;
        let mut lease = Lease::new(ServerId(2), (0..4).map(ServerId));
        assert!(!lease.holds(at(0)));
        let first = lease.renew(at(100));
        lease.granted(ServerId(0), first, at(100));
        lease.granted(ServerId(0), first, at(100));
        lease.granted(ServerId(9), first, at(100));
        assert!(!lease.holds(at(101)), "two of four are no majority");
        let second = lease.renew(at(500));
        lease.granted(ServerId(1), second, at(500));
        assert!(lease.holds(at(1099)));
        assert!(!lease.holds(at(1100)));
        lease.granted(ServerId(3), second, at(500));
        assert!(lease.holds(at(1499)));
        lease.granted(ServerId(3), second + 1, at(1500));
        assert!(!lease.holds(at(1500)));
    }

    #[test]
    fn who_is_alone_needs_nobody() {
        let lease = Lease::new(ServerId(5), [ServerId(5)].into_iter());
        assert!(lease.holds(Duration::from_secs(9)));
        assert!(!lease.is_due(Duration::from_secs(9)));
    }

    #[test]
    fn it_is_asked_for_before_it_ends_and_sooner_while_nobody_grants_it() {
        let at = Duration::from_millis;
        let mut lease = Lease::new(ServerId(0), (0..3).map(ServerId));
        assert!(lease.is_due(at(0)));
        let number = lease.renew(at(0));
        assert!(!lease.is_due(at(19)));
        assert!(lease.is_due(at(20)));
        lease.granted(ServerId(1), number, at(20));
        assert!(!lease.is_due(at(249)));
        assert!(lease.is_due(at(250)) && lease.holds(at(250)));
    }
}
