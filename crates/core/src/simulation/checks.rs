//! What must hold after each event.

use crate::ids::{Epoch, ServerId};
use crate::membership::Membership;
use crate::roster::{Incarnation, Roster};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Something that must never happen has happened.
#[derive(Debug)]
pub(super) struct Violation(pub(super) String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What has been seen to be in force.
#[derive(Debug, Default)]
pub(super) struct History {
    rosters: BTreeMap<Epoch, Roster>,
    ids: BTreeMap<ServerId, Incarnation>,
}

impl History {
    /// The latest roster that was in force anywhere.
    pub(super) fn latest(&self) -> Option<&Roster> {
        self.rosters.values().next_back()
    }

    /// A server takes a roster for the one in force.
    pub(super) fn in_force(&mut self, roster: &Roster) -> Result<(), Violation> {
        let known = self.rosters.entry(roster.epoch).or_insert_with(|| roster.clone());
        if known != roster {
            let ids = |roster: &Roster| roster.ids().map(|id| id.0).collect::<Vec<_>>();
            return Err(Violation(format!(
                "epoch {} has two rosters, {:?} and {:?}",
                roster.epoch,
                ids(known),
                ids(roster)
            )));
        }
        for member in &roster.members {
            let first = *self.ids.entry(member.id).or_insert(member.server.incarnation);
            if first != member.server.incarnation {
                return Err(Violation(format!("{} is two processes", member.id)));
            }
        }
        Ok(())
    }

    /// Nobody may acknowledge anything who is not in the latest roster that is in force anywhere.
    pub(super) fn nobody_evicted_acknowledges<'a>(
        &self,
        members: impl Iterator<Item = (&'a Membership, Duration)>,
    ) -> Result<(), Violation> {
        let Some(latest) = self.latest() else { return Ok(()) };
        for (member, now) in members {
            let evicted = member.roster().epoch < latest.epoch && !latest.contains(member.me());
            let evicted = evicted || member.is_out();
            if evicted && member.may_acknowledge(now) {
                return Err(Violation(format!(
                    "{} would acknowledge in epoch {}, but epoch {} without it is in force",
                    member.me(),
                    member.roster().epoch,
                    latest.epoch
                )));
            }
        }
        Ok(())
    }
}
