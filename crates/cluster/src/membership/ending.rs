//! The end of the whole group.

use crate::cluster::Cluster;
use crate::membership::entry;
use crate::peers::dialling;
use forebay_core::ids::ServerId;
use forebay_wire::peer::cluster;
use std::time::Duration;

/// Within this, a server hears that the group ends from who tells it so to all.
const TOLD: Duration = Duration::from_secs(1);

impl Cluster {
    /// Tells all other members that the group ends. Not all may have been told to: one that stands still is told by nobody
    /// who waits for its answer.
    pub fn tell_that_group_ends(&self) {
        for id in self.standing().roster.ids().filter(|id| *id != self.id) {
            let _ = self.peers.send(id, cluster::Message::GroupEnds);
        }
    }

    /// Another server says that the group was told to end. A member has the right to. This one is being told, too, most likely,
    /// by who waits for its answer.
    pub(crate) fn group_ends(&self, from: ServerId) {
        let is_member = from != self.id && self.standing().view.members.contains(&from);
        let Some(cluster) = self.me.upgrade().filter(|_| is_member) else { return };
        tracing::info!("{from} says that the group ends");
        tokio::spawn(async move {
            tokio::time::sleep(TOLD).await;
            cluster.shutdown.notify_one();
        });
    }

    /// Whether no other member is there any more.
    pub async fn is_last(&self) -> bool {
        let others =
            self.standing().roster.members.iter().filter(|member| member.id != self.id).map(entry).collect();
        !dialling::one_listens(&*self.environment, others).await
    }
}
