//! Members that are lost to this server: their connection has ended, or their process.

use crate::cluster::Cluster;
use crate::failure::process::Process;
use forebay_core::ErrorKind;
use forebay_core::ids::ServerId;
use forebay_core::membership::Evidence;

impl Cluster {
    /// The connection to a server has ended, or its process: it is gone for this one, and is to go.
    pub fn lost(&self, peer: ServerId, proven: bool) {
        let standing = self.standing();
        if !standing.view.members.contains(&peer) {
            // One that is yet to be a member here may have had this one keep something.
            if standing.roster.has_left(peer) {
                self.tell(|application| application.on_former_peer_gone(peer));
            }
            return;
        }
        self.peer_gone(peer);
        self.suspect(peer, if proven { Evidence::Dead } else { Evidence::Lost });
    }

    /// Watches the process of a server on this host, which the kernel vouches for: it proves its death, too.
    pub(crate) fn watch(&self, id: ServerId, process: u32) {
        let me = self.me.clone();
        match Process::watch(process) {
            Ok(process) => drop(tokio::spawn(async move {
                process.ended().await;
                if let Some(cluster) = me.upgrade()
                    && cluster.goes_on().await
                {
                    cluster.lost(id, true);
                }
            })),
            Err(error) if error.kind == ErrorKind::NotFound => self.lost(id, true),
            // Its connection will tell.
            Err(error) => tracing::info!("{id} is not watched: {error}"),
        }
    }
}
