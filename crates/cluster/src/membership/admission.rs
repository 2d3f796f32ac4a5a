//! Servers that want to be members, and are told when they are.

use crate::cluster::Cluster;
use forebay_core::roster::{Candidate, Change};
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::frame::Header;
use forebay_wire::peer::cluster;
use std::sync::Arc;

/// How many servers may wait to be told that they are members.
const JOINING_MAX: usize = 256;

impl Cluster {
    /// A server wants to be a member: it is told on this connection when it is one.
    pub(crate) fn wants_to_join(&self, candidate: Candidate, outbox: Arc<Outbox>) -> Result<()> {
        let incarnation = candidate.incarnation;
        {
            let mut joining = self.driver.joining.lock();
            joining.retain(|_, outbox| !outbox.is_closed());
            if joining.len() >= JOINING_MAX {
                return Err(Error::conflict(format!(
                    "{JOINING_MAX} servers are joining the group: try again"
                )));
            }
            joining.insert(incarnation, outbox);
        }
        self.at_membership(None, |membership, now| membership.wish(Change::Join(candidate), now));
        self.tell_joined();
        Ok(())
    }

    /// A server that wanted to be a member is gone before it was one.
    pub(crate) fn wants_no_more(&self, candidate: &Candidate) {
        if self.driver.joining.lock().remove(&candidate.incarnation).is_some() {
            self.at_membership(None, |membership, _| membership.withdraw(&Change::Join(candidate.clone())));
        }
    }

    /// Tells those that are members now.
    pub(super) fn tell_joined(&self) {
        let roster = self.standing().roster.clone();
        self.driver.joining.lock().retain(|incarnation, outbox| {
            let joined = roster.find(*incarnation).is_some();
            if joined {
                let _ = outbox.push(Header::default(), &cluster::Message::Admission(Ok(roster.clone())));
            }
            !joined
        });
    }
}
