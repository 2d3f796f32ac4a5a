//! Another roster comes into force.

use super::{CurrentRoster, entry};
use crate::cluster::Cluster;
use crate::peers;
use forebay_core::ids::ServerId;
use forebay_core::roster::Roster;
use forebay_transport::connection_file::ServerEntry;
use std::sync::Arc;
use std::time::Duration;

/// How long, and how often, it is waited until all is handled that a server had said which is gone.
const HEARD_LOOK: Duration = Duration::from_millis(100);
const HEARD_LOOKS: u32 = 100;

/// What changes for a server when another roster comes into force.
#[derive(Debug)]
pub struct RosterChange<'a> {
    cluster: &'a Cluster,
    /// The roster that was in force before.
    pub before: Arc<CurrentRoster>,
    /// The roster that comes into force.
    pub after: Arc<CurrentRoster>,
    /// The members that are new.
    pub came: Vec<ServerId>,
    /// Those that are members no more.
    pub left: Vec<ServerId>,
}

impl RosterChange<'_> {
    /// From now on the new roster is in force.
    pub fn put_in_force(&self) {
        *self.cluster.roster.write() = self.after.clone();
        self.cluster.epochs.set(self.after.view.epoch);
    }
}

impl Cluster {
    /// Another roster is in force: here, too, when all is handled that those had said who are gone.
    pub(super) fn adopt_in_turn(&self, roster: Arc<Roster>) {
        let mut adopting = self.driver.adopting.lock();
        if adopting.is_empty() && !self.inbound.may_lack(&self.gone_by(&roster)) {
            return self.adopt(roster);
        }
        adopting.push_back(roster);
        let Some(cluster) = self.me.upgrade().filter(|_| adopting.len() == 1) else { return };
        tokio::spawn(async move {
            let next = || cluster.driver.adopting.lock().front().cloned();
            while let Some(roster) = next() {
                let gone = cluster.gone_by(&roster);
                if !cluster.has_heard_all_of(&gone).await {
                    tracing::warn!("not all was handled in time that {gone:?} had said");
                }
                let mut adopting = cluster.driver.adopting.lock();
                // What this server is none of it tells nothing of.
                if !cluster.driver.out.get() {
                    cluster.adopt(roster);
                }
                adopting.pop_front();
            }
        });
    }

    /// Waits until all is handled that servers had said, but not for ever. While this server stands still no time passes
    /// but a little.
    async fn has_heard_all_of(&self, servers: &[ServerId]) -> bool {
        let heard = self.inbound.all_of(servers);
        tokio::pin!(heard);
        for _ in 0..HEARD_LOOKS {
            if tokio::time::timeout(HEARD_LOOK, &mut heard).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// The members that a roster does not have.
    fn gone_by(&self, roster: &Roster) -> Vec<ServerId> {
        self.standing().roster.ids().filter(|id| !roster.contains(*id)).collect()
    }

    /// Another roster is in force.
    fn adopt(&self, roster: Arc<Roster>) {
        let Some(cluster) = self.me.upgrade() else { return };
        let before = self.standing();
        let after = Arc::new(CurrentRoster::new(roster.clone()));
        let new = |id: &ServerId| !before.view.members.contains(id);
        let came: Vec<ServerEntry> =
            roster.members.iter().filter(|member| new(&member.id)).map(entry).collect();
        let left = self.gone_by(&roster);
        tracing::info!(
            "epoch {}: {} servers, {} new, {} gone",
            roster.epoch,
            roster.members.len(),
            came.len(),
            left.len()
        );
        // While it is still known what they coordinated.
        left.iter().for_each(|id| self.peer_gone(*id));
        self.pings.keep_members(&roster);
        peers::start(&cluster, &came);
        let came = came.iter().map(|server| server.id).collect();
        self.tell(|application| {
            application.on_roster(&RosterChange { cluster: self, before, after, came, left });
        });
        self.tell_joined();
        let first = roster.ids().next() == Some(self.id);
        if first {
            self.write_file(roster);
        }
    }

    /// The members are others, and this server is none of them.
    pub(super) fn is_out(&self, roster: &Arc<Roster>) {
        if roster.lost.iter().any(|lost| lost.id == self.id) {
            self.tell(|application| application.on_given_up());
        }
        let wanted = self.has_drained();
        match (self.driver.out.set(true), wanted) {
            (true, _) => {}
            (false, true) => tracing::info!("epoch {}: this server has left", roster.epoch),
            (false, false) => {
                tracing::warn!("epoch {}: the group goes on without this server", roster.epoch);
            }
        }
        // Those that gave it up have closed their connections.
        self.dial_members(roster, !wanted);
    }

    /// Dials the members of the roster without this server: those that it does not reach, or all anew.
    pub(super) fn dial_members(&self, roster: &Roster, all: bool) {
        let Some(cluster) = self.me.upgrade() else { return };
        for member in &roster.members {
            if all || !self.peers.reaches(member.id) {
                self.peers.remove(member.id);
                peers::start(&cluster, &[entry(member)]);
            }
        }
    }
}
